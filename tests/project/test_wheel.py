"""The kit as pip installs it: built, installed into a new environment outside the clone, and used there."""

import ast
import re
import shlex
import subprocess
import sys
import zipfile
from pathlib import Path

import pytest
import yaml

from model_profiling import __version__
from model_profiling.base import installation
from model_profiling.platforms.platform_table import local_name
from model_profiling.schemas.contracts import shipped_schemas, text_of
from tests.conftest import ROOT
from tests.helpers.installed_kit import Installed, add_packages, build_wheel, new_environment

EXTRAS = ("run", "export", "mcp", "vision", "transformers", "models")


@pytest.fixture(scope="module")
def installed(tmp_path_factory: pytest.TempPathFactory) -> Installed:
    kit = new_environment(build_wheel(tmp_path_factory.mktemp("wheel")))
    pip = [sys.executable, "-m", "pip", "--python", str(kit.python), "install", "--quiet", "--no-deps", "--no-index"]
    subprocess.run([*pip, str(kit.wheel)], check=True, capture_output=True)
    add_packages(kit)
    return kit


@pytest.mark.wide
def test_the_wheel_holds_the_package_its_skills_and_nothing_of_the_clone(installed: Installed, tmp_path: Path) -> None:
    names = zipfile.ZipFile(installed.wheel).namelist()
    described = f"executorch_sme2_kit-{__version__}.dist-info"
    assert {name.split("/")[0] for name in names} == {"model_profiling", "sme2_kit", described}
    assert not [name for name in names if "/out_" in name or "__pycache__" in name]
    assert len([name for name in names if name.startswith("model_profiling/skills/texts/0")]) == 8
    shipped = {f"model_profiling/{path}": text_of(schema) for path, schema in shipped_schemas().items()}
    with zipfile.ZipFile(installed.wheel) as wheel:
        assert {name: wheel.read(name).decode() for name in names if name.endswith(".schema.json")} == shipped
    code = "import importlib.metadata as m, model_profiling as p; print(p.__file__, m.version('executorch-sme2-kit'))"
    file, version = installed.run(installed.python, "-c", code, cwd=tmp_path).stdout.split()
    assert Path(file).is_relative_to(installed.home) and version == __version__
    assert installed.kit("--version", tmp_path) == f"sme2-kit {__version__}\n"


@pytest.mark.wide
@pytest.mark.again
def test_the_workflows_step_that_uses_the_wheel_works(installed: Installed, tmp_path: Path) -> None:
    """doctor and quicktest, as GitHub would run them; nothing but out_toy_cnn is there afterwards."""
    pytest.importorskip("executorch.exir")
    steps = yaml.safe_load((ROOT / ".github" / "workflows" / "tests.yml").read_text())["jobs"]["wheel"]["steps"]
    (script,) = (step["run"] for step in steps if step.get("name") == "Use")
    done = installed.run("bash", "-eo", "pipefail", "-c", script, cwd=tmp_path)
    assert done.returncode == 0 and "report ok" in done.stdout, done.stdout + done.stderr
    assert list(tmp_path.iterdir()) == []


@pytest.mark.wide
def test_a_user_of_the_wheel_finds_results_in_out_model_and_nothing_else(installed: Installed, tmp_path: Path) -> None:
    pytest.importorskip("executorch.exir")
    before = _files(installed.home)

    def here() -> set[str]:
        return {path.name for path in tmp_path.iterdir()}

    assert re.search(r"ok +torch", installed.kit("doctor", tmp_path))
    assert "toy_cnn" in installed.kit("models", tmp_path)
    assert here() == set()
    assert "sme2-kit export my_net/model.py" in installed.kit("new-model my_net", tmp_path)
    assert "my_net/model.py:MyNet" in installed.kit("models", tmp_path)
    # A neighbour that is imported while the model is built is the user's as well.
    (tmp_path / "my_net" / "parts.py").write_text("from torch.nn import Linear\n")
    model = tmp_path / "my_net" / "model.py"
    model.write_text(model.read_text().replace("nn.Linear(", "__import__('parts').Linear("))
    mine = _files(tmp_path / "my_net")
    installed.kit("export my_net/model.py", tmp_path)
    installed.kit("run out_my_net/artifacts/my_net_xnnpack_fp16.pte --quiet", tmp_path)
    assert (tmp_path / "out_my_net" / "runs" / local_name() / "report.html").is_file()
    assert _files(tmp_path / "my_net") == mine
    installed.kit("skills install --to skills", tmp_path)
    assert here() == {"my_net", "out_my_net", "skills"}
    written = {path for path in _files(installed.home) - before if path.suffix != ".pyc"}
    assert written == set(), "what pip installed is not written to"


@pytest.mark.wide
def test_skills_of_the_wheel_name_nothing_that_only_a_clone_has(installed: Installed, tmp_path: Path) -> None:
    installed.kit("skills install --to skills", tmp_path)
    texts = [path.read_text() for path in sorted((tmp_path / "skills").glob("*/SKILL.md"))]
    modules: set[str] = set()
    assert len(texts) == 8
    for text in texts:
        body = text.partition("metadata:")[2].partition("duration:")[2]
        assert not re.search(r"\bmake \w|\.venv|clone[d ]|(?<!/)model_profiling/|install -e", body), text
        for path in re.findall(r"/\S+/model_profiling/[\w./]+", body):
            assert Path(path).exists(), path
        for block in re.findall(r"```bash.*?\n(.*?)```", body, re.DOTALL):
            assert block.strip(), text
            subprocess.run(["bash", "-n"], input=block, text=True, check=True)
        modules |= set(re.findall(r"python -m ([\w.]+\w)", body))
    assert modules
    for module in modules:
        done = installed.run(installed.python, "-m", module, "--help", cwd=tmp_path)
        assert done.returncode == 0, done.stderr


@pytest.mark.wide
def test_hints_of_the_wheel_name_pip(installed: Installed, tmp_path: Path) -> None:
    for line in ("export toy_cnn", "check toy_cnn", "doctor --essentials", "models"):
        done = installed.without_torch(line, tmp_path)
        assert done.returncode == (0 if line == "models" else 3), done.stderr
        said = done.stdout + done.stderr
        assert "pip install 'executorch-sme2-kit[export]'" in said and "make " not in said, said
    assert list(tmp_path.iterdir()) == []


def _files(home: Path) -> set[Path]:
    return {path for path in home.rglob("*") if path.is_file()}


def _in_clone(monkeypatch: pytest.MonkeyPatch, root: Path, prefix: Path, complete: bool) -> None:
    """As if the package lay in a clone at `root`, run by the Python of `prefix`."""
    (root / "model_profiling").mkdir(parents=True)
    (root / ".venv").mkdir()
    for name in ("Makefile", "pyproject.toml"):
        (root / name).write_bytes((ROOT / name).read_bytes())
    if complete:
        (root / ".venv" / ".setup").touch()
    monkeypatch.setattr(installation, "PACKAGE", root / "model_profiling")
    monkeypatch.setattr(sys, "prefix", str(prefix))


@pytest.mark.parametrize("complete", [False, True])
@pytest.mark.parametrize("prefix", ["clone/.venv", "another", "/usr"])
@pytest.mark.parametrize("here", ["clone", ".", "clone/model_profiling"])
def test_hints_of_a_clone_name_what_works_there(
    here: str, prefix: str, complete: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    root = tmp_path / "clone"
    monkeypatch.setattr(sys, "base_prefix", "/usr")
    _in_clone(monkeypatch, root, tmp_path / prefix, complete)
    monkeypatch.chdir(tmp_path / here)
    for extra in EXTRAS:
        command = installation.install_command(extra)
        subprocess.run(["bash", "-nc", command], check=True)
        # make changes nothing where it believes to be done, nor in an environment that is not its own.
        useless = complete if prefix == "clone/.venv" else prefix == "another"
        assert command.startswith("make ") == (extra in ("run", "export") and not useless), command
        if command.startswith("make "):
            subprocess.run([*shlex.split(command.split("&&")[0]), "-n"], check=True, capture_output=True)
        else:
            assert (Path(shlex.split(command)[3].partition("[")[0]) / "pyproject.toml").is_file()
    assert installation.stands_in_clone() == (here != ".")


@pytest.mark.parametrize("strangers", [(), ("Makefile",), ("Makefile", "pyproject.toml")])
def test_a_project_that_holds_the_package_is_not_taken_for_the_clone(
    strangers: tuple[str, ...], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in strangers:
        (tmp_path / name).write_text('name = "somebody-else"\n')
    monkeypatch.setattr(installation, "PACKAGE", tmp_path / "model_profiling")
    monkeypatch.chdir(tmp_path)
    assert installation.install_command("export") == "pip install 'executorch-sme2-kit[export]'"
    assert not installation.stands_in_clone()
    assert installation.default_output("toy_cnn") == Path("out_toy_cnn")


def test_one_place_decides_how_the_kit_is_installed() -> None:
    """No other module spells out make, or pip with the kit's own name."""
    # The second rewrites texts that were written for a clone.
    deciding = ("installation.py", "without_clone.py")
    for path in (ROOT / "model_profiling").rglob("*.py"):
        texts = [node.value for node in ast.walk(ast.parse(path.read_bytes())) if isinstance(node, ast.Constant)]
        for text in texts:
            if isinstance(text, str) and path.name not in deciding:
                assert "make setup" not in text and "install 'executorch-sme2" not in text, path


def test_one_place_states_the_version_and_the_changelog_knows_it() -> None:
    assert 'dynamic = ["version"]' in (ROOT / "pyproject.toml").read_text()
    headings = re.findall(r"^## \[(.+?)\]", (ROOT / "CHANGELOG.md").read_text(), re.MULTILINE)
    assert headings[:2] == ["Unreleased", __version__]
    for path in (ROOT / "README.md", *ROOT.glob("docs/*.md")):
        assert f"executorch_sme2_kit-{__version__}" not in path.read_text(), path
