"""The workflow that users copy, executed as GitHub would: in another repository, with the kit from its wheel."""

import subprocess
import xml.etree.ElementTree as ET
from pathlib import Path

import pytest
import yaml

from tests.conftest import ROOT
from tests.helpers.distorted_clock import true_clock
from tests.helpers.installed_kit import Installed, add_packages, build_wheel, new_environment

pytestmark = pytest.mark.wide
WORKFLOW = yaml.safe_load((ROOT / ".github" / "workflows" / "performance.yml").read_text())
STEPS = {step["name"]: step["run"] for step in WORKFLOW["jobs"]["gate"]["steps"] if "run" in step}
# A `model.py` of somebody; the change has more layers than the base.
MODEL = """import torch


class Net(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.layers = torch.nn.Sequential(*[torch.nn.Linear(256, 256) for _ in range({layers})])

    def forward(self, x):
        return self.layers(x)
"""


@pytest.mark.parametrize(
    ("kit", "asked"),
    [
        ("git+https://host/owner/kit@v1", "executorch-sme2-kit[export] @ git+https://host/owner/kit@v1"),
        ("change/wheels/kit-1.whl", "change/wheels/kit-1.whl[export]"),
    ],
)
def test_the_kit_comes_from_one_variable(kit: str, asked: str, tmp_path: Path) -> None:
    (tmp_path / "python").write_text('#!/bin/sh\nprintf "%s\\n" "$@"\n')
    (tmp_path / "python").chmod(0o755)
    (tmp_path / "change").mkdir()
    (tmp_path / "change" / "requirements.txt").touch()
    command = ["bash", "-eo", "pipefail", "-c", f'PATH="{tmp_path}:$PATH"\n{STEPS["Install"]}']
    said = subprocess.run(command, cwd=tmp_path, env={"KIT": kit}, capture_output=True, text=True, check=True).stdout
    assert said.splitlines() == ["-m", "pip", "install", asked, "-r", "change/requirements.txt"]


@pytest.fixture(scope="module")
def home(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Two checkouts of a repository with a model and the copied workflow: the base, and a slower change."""
    pytest.importorskip("executorch.exir")
    home = tmp_path_factory.mktemp("foreign")
    origin = home / "origin"
    (origin / ".github" / "workflows").mkdir(parents=True)
    (origin / ".github" / "workflows" / "performance.yml").write_text(yaml.safe_dump(WORKFLOW))
    git = ["git", "-c", "user.name=somebody", "-c", "user.email=somebody@example.org", "-C", str(origin)]
    for layers, message in ((1, "A model"), (8, "A slower model")):
        (origin / "model.py").write_text(MODEL.format(layers=layers))
        for command in (["init", "-q"], ["add", "."], ["commit", "-qm", message]):
            subprocess.run([*git, *command], check=True, capture_output=True)
    for side, commit in (("base", "HEAD~1"), ("change", "HEAD")):
        subprocess.run(["git", "clone", "-q", str(origin), str(home / side)], check=True, capture_output=True)
        subprocess.run(["git", "-C", str(home / side), "checkout", "-q", commit], check=True, capture_output=True)
    return home


@pytest.fixture(scope="module")
def kit(home: Path, tmp_path_factory: pytest.TempPathFactory) -> Installed:
    """An environment in which the workflow's own step has installed the wheel."""
    import pip

    kit = new_environment(build_wheel(tmp_path_factory.mktemp("wheel")))
    # setup-python's environment has pip; and there is no index here, so that pip looks for nothing besides the wheel.
    (site,) = (kit.home / "lib").glob("python3*/site-packages")
    (site / "pip").symlink_to(Path(pip.__file__).parent)
    offline = {"PIP_NO_DEPS": "1", "PIP_NO_INDEX": "1", "PIP_EXTRA_INDEX_URL": ""}
    done = kit.shell(STEPS["Install"], home, KIT=str(kit.wheel), **offline)
    assert done.returncode == 0, done.stdout + done.stderr
    add_packages(kit)
    return kit


@pytest.mark.measures
@true_clock()
def test_the_copied_workflow_fails_a_slower_change_and_keeps_its_page(home: Path, kit: Installed) -> None:
    variables = {**WORKFLOW["env"], "MODEL": "model.py:Net", "INPUTS": "--input 32,256"}
    variables |= {"GITHUB_STEP_SUMMARY": str(home / "summary.md")}
    codes = {}
    for name in ("Export both", "Profile the change", "Gate"):
        done = kit.shell(STEPS[name], home, **variables)
        codes[name] = done.returncode
        assert done.returncode in (0, 1), done.stdout + done.stderr
    # Eight layers against one, in turns: also on a busy machine.
    assert codes == {"Export both": 0, "Profile the change": 0, "Gate": 1}
    suite = ET.parse(home / "runs" / "performance.xml").getroot()
    assert len(list(suite.iter("failure"))) == 1
    assert "fp16" in (home / "summary.md").read_text()
    assert "model.py" in (home / "runs" / "change" / "report.html").read_text()
    # What is to be uploaded lies outside of both checkouts.
    status = ["git", "-C", str(home / "change"), "status", "--short"]
    assert subprocess.run(status, capture_output=True, check=True).stdout == b""


def test_a_model_that_the_base_does_not_have_is_no_failure(tmp_path: Path) -> None:
    for name in ("base", "change"):
        (tmp_path / name).mkdir()
    (tmp_path / "change" / "new.py").touch()
    (tmp_path / "sme2-kit").write_text("#!/bin/sh\necho kit\n")
    (tmp_path / "sme2-kit").chmod(0o755)
    environment = {"PATH": f"{tmp_path}:/usr/bin:/bin", "MODEL": "new.py:Net", "INPUTS": "", "DTYPE": "fp16"}
    for name, said in (("Export both", "::notice::the base has no new.py"), ("Gate", "")):
        command = ["bash", "-euo", "pipefail", "-c", STEPS[name]]
        done = subprocess.run(command, cwd=tmp_path, env=environment, capture_output=True, text=True, check=True)
        assert done.stdout.startswith(said) and done.stdout.count("kit\n") == (name == "Export both")
