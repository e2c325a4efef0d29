"""How commands end: where the page is and what to type next, which works as it stands; in JSON nothing of it."""

import json
import shlex
import shutil
from collections.abc import Callable
from pathlib import Path

import pytest

from model_profiling.api import Run
from model_profiling.base.errors import RunError
from model_profiling.cli.main import make_parser
from tests.conftest import QUICK
from tests.helpers.kit_here import kit_here
from tests.helpers.states import KNOWN_GOOD

FEW = ("--runs", "2", "--launches", "1", "--startup-launches", "0")


_ENDINGS = ("Report ", "Next ")


def ended(*words: object) -> tuple[Path | None, list[str]]:
    """The page and the next command that a command ends with."""
    done = kit_here(*words)
    assert done.returncode == 0, done
    # What gives paths has them alone on standard output, and says how to go on beside them.
    streams = [stream.splitlines() for stream in (done.stdout, done.stderr)]
    lines = next((lines for lines in streams if any(line.startswith(_ENDINGS) for line in lines)), [])
    said = {line.split()[0]: line.split(maxsplit=1)[1] for line in lines if line.startswith(_ENDINGS)}
    if said:
        assert lines[-1].lstrip().startswith(list(said)[-1])
    program, *following = shlex.split(said.get("Next", "sme2-kit"))
    assert Path(program).name == "sme2-kit"
    return Path(said["Report"]) if "Report" in said else None, following


@pytest.fixture
def run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    return Path(shutil.copytree(KNOWN_GOOD, Path("out_toy_cnn") / "runs" / "linux"))


def test_each_command_names_the_next_one_until_all_is_seen(run: Path) -> None:
    page, following = ended("analyze", run)
    assert page is None and following == ["report", str(run), "--html"]
    page, following = ended(*following)
    assert page == run / "report.html" and page.is_file() and following == ["graph", str(run)]
    assert ended("analyze", run) == (page, following)
    page, following = ended(*following)
    assert page == run / "graph.html" and page.is_file() and not following


@pytest.mark.parametrize("words", [["compare", "RUN", "RUN"], ["history"], ["history", "list", "--root", "."]])
def test_what_is_named_next_works(words: list[str], run: Path) -> None:
    _, following = ended(*(str(run) if word == "RUN" else word for word in words))
    assert following and ended(*following)


def test_json_has_nothing_of_it(run: Path) -> None:
    for words in (["analyze", run], ["compare", run, run], ["history"], ["graph", run]):
        json.loads(kit_here(*words, "--json").stdout)


@pytest.fixture
def quick(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    for name, value in QUICK.items():
        monkeypatch.setenv(name, value)
    return tmp_path


def test_a_run_writes_its_page_unless_asked_not_to(quick: Path, toy: Callable[[str], Path], runner: Path) -> None:
    words = ["run", str(toy("fp16")), "--out", "run", *FEW]
    assert ended(*words, "--no-html")[0] is None and not Path("run/report.html").exists()
    page, following = ended(*words)
    assert page == Path("run/report.html") and page.is_file() and Path("run/report.md").is_file()
    assert following[0] == "kernels" and make_parser(["kernels"]).parse_args(following).model.is_file()


def test_a_page_that_nobody_asked_for_does_not_fail_a_run(
    quick: Path, toy: Callable[[str], Path], runner: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fails(run: Run, html: bool = False) -> list[Path]:
        raise RunError("the pictures cannot be drawn", "Install it again.")

    monkeypatch.setattr(Run, "report", fails)
    words = ["run", str(toy("fp16")), "--out", "run", *FEW]
    done = kit_here(*words)
    assert done.returncode == 0
    assert "note: no page was written: the pictures cannot be drawn. Install it again." in done.stderr
    assert kit_here(*words, "--html").returncode == 4
