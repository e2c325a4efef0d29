"""The wrong programs that docs/upstream-bugs.md lists: still wrong with the ExecuTorch that is installed, or mended?"""

import importlib.metadata
import re
import subprocess
import sys

import pytest

pytest.importorskip("executorch.exir")

from tests.conftest import ROOT

pytestmark = pytest.mark.wide
LISTED = re.findall(
    r"^\| \[\w+\.py\]\((upstream_bugs/\w+\.py)\) \| .* \| (wrong|mended) \|$",
    (ROOT / "docs/upstream-bugs.md").read_text(),
    re.MULTILINE,
)


def test_every_script_is_listed_and_short() -> None:
    scripts = sorted((ROOT / "docs/upstream_bugs").glob("*.py"))
    assert [f"upstream_bugs/{path.name}" for path in scripts] == sorted(path for path, _ in LISTED)
    assert all(len(path.read_text().splitlines()) <= 40 for path in scripts)


@pytest.mark.parametrize(("script", "state"), LISTED)
def test_a_program_is_as_wrong_as_the_page_says(script: str, state: str) -> None:
    if importlib.metadata.version("executorch") != "1.5.1":
        pytest.skip("hardware: the page is about ExecuTorch 1.5.1")
    command = [sys.executable, str(ROOT / "docs" / script)]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert "largest error" in done.stdout, done.stderr
    assert {1: "wrong", 0: "mended"}[done.returncode] == state, f"say so on the page: {done.stdout}"
