"""A picture that cannot be drawn: what was written is said, and nothing else is."""

import shutil
from concurrent.futures import Future
from pathlib import Path
from typing import Any

import pytest

from model_profiling.base.errors import RunError
from model_profiling.report.drawing import drawing_process
from model_profiling.report.drawing.drawing_process import DrawingPool
from model_profiling.report.files.report_files import write_picture, write_report
from model_profiling.store.artifacts import REPORT
from sme2_kit import Run
from tests.conftest import ROOT

SENTENCE = "The report without pictures is in"


class Broken(DrawingPool):
    """An artist whose process always ends over a picture."""

    def _failed(self) -> "Future[Any]":
        future: Future[Any] = Future()
        future.set_exception(RunError("a picture could not be drawn: it ended", drawing_process._REPORT_IT))
        return future

    def draw(self, spec: dict[str, Any], scale: float = 1.0) -> "Future[Any]":
        return self._failed()

    def svg(self, spec: dict[str, Any]) -> "Future[str]":
        return self._failed()


@pytest.fixture
def run(tmp_path: Path) -> Run:
    home = tmp_path / "run"
    shutil.copytree(ROOT / "tests" / "data" / "known_good_run", home)
    (home / REPORT).unlink(missing_ok=True)
    return Run.open(home)


@pytest.mark.parametrize("page", [False, True])
def test_the_text_of_a_report_is_written_without_its_pictures_and_its_place_is_said(
    run: Run, page: bool, tmp_path: Path
) -> None:
    output = tmp_path / "elsewhere.md"
    with pytest.raises(RunError, match="could not be drawn") as caught:
        write_report(run, Broken(), output, page=page)
    assert caught.value.hint.endswith(f"{SENTENCE} {output}.")
    text = output.read_text()
    assert "## " in text and "![" not in text


def test_where_no_text_is_written_none_is_spoken_of(run: Run, tmp_path: Path) -> None:
    with pytest.raises(RunError) as caught:
        write_report(run, Broken(), run.path / REPORT, markdown=False, page=True)
    assert SENTENCE not in caught.value.hint and not (run.path / REPORT).exists()
    with pytest.raises(RunError) as caught:
        write_picture(run, Broken(), _a_picture(run), tmp_path / "picture.png", "light", 760)
    assert "report.md" not in caught.value.hint and not (run.path / REPORT).exists()


def _a_picture(run: Run) -> str:
    from model_profiling.report import charts
    from model_profiling.report.drawing.theme import LIGHT

    return next(iter(charts.of_run(run, 760, LIGHT)))


def test_the_process_that_draws_says_nothing_of_files_that_others_write() -> None:
    assert "report.md" not in drawing_process._REPORT_IT
