"""A run of hundreds of experiments: the first are shown in full, all are listed, and any other is made on demand."""

import json
import re
import shutil
from collections.abc import Callable
from pathlib import Path

import pytest

from model_profiling.analysis.run.run_view import MOST_DETAILED
from model_profiling.analysis.run.validation import Staleness, check_staleness
from model_profiling.base.errors import InputError
from model_profiling.report import charts
from model_profiling.report.content import combined
from model_profiling.report.content import whole as content
from model_profiling.report.drawing.theme import LIGHT
from model_profiling.report.files.page_files import write_combined
from model_profiling.report.files.report_files import write_picture, write_report
from model_profiling.store.run_directory import Manifest, RunDirectory
from sme2_kit import Run
from tests.conftest import ROOT, kit
from tests.helpers.run_forge import forge_run
from tests.helpers.sketching import Sketcher

# What is large takes long, whatever it is about.
pytestmark = pytest.mark.wide
KNOWN_GOOD = ROOT / "tests" / "data" / "known_good_run"
# Each experiment beyond the first adds rows to tables and sentences, and nothing else.
_MOST_BYTES_EACH = 4000


def pairs(manifest: Manifest) -> None:
    """Off and on, as `run` makes them."""


def alone(manifest: Manifest) -> None:
    manifest.compare_pairs.clear()


def star(manifest: Manifest) -> None:
    first, *others = manifest.experiments
    manifest.compare_pairs[:] = [(first, other) for other in others]


# How experiments are compared changes little of it.
CHANGES = [pairs, *(pytest.param(change, marks=[pytest.mark.wide, pytest.mark.again]) for change in (alone, star))]


@pytest.fixture(scope="module", params=CHANGES, ids=lambda change: str(change.__name__))
def runs(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Path]:
    """The same with 40 experiments and with 80."""
    change: Callable[[Manifest], None] = request.param
    home = tmp_path_factory.mktemp("many")
    few, many = (forge_run(KNOWN_GOOD, home / str(copies), copies=copies, change=change) for copies in (20, 40))
    for root in (few, many):
        write_report(Run.open(root), Sketcher(), root / "report.md", page=True)
    return few, many


def test_pages_and_pictures_hardly_grow_with_the_number_of_experiments(runs: tuple[Path, Path]) -> None:
    for name in ("report.md", "report.html"):
        small, large = ((root / name).stat().st_size for root in runs)
        assert large - small < 40 * _MOST_BYTES_EACH
    drawn = [charts.of_run(Run.open(root), charts.WIDE, LIGHT) for root in runs]
    assert drawn[0].keys() == drawn[1].keys() and len(drawn[1]) <= 2 * charts.MOST_DRAWN + 4
    small, large = (len(json.dumps(specs)) for specs in drawn)
    assert large < 1.2 * small and len(drawn[1]["latency"]["vconcat"]) == charts.MOST_PANELS


def test_a_large_report_lists_every_experiment_and_says_how_to_get_more_of_one(runs: tuple[Path, Path]) -> None:
    root = runs[1]
    run = Run.open(root)
    text = (root / "report.md").read_text()
    latency = content.report(run).section("latency")
    assert latency is not None
    listed = {row[0] for block in latency.blocks for row in getattr(block, "rows", ())}
    assert listed == {run.label(name) for name in run.manifest.experiments}
    assert f"sme2-kit report {root} --experiment NAME" in text and "This run has 80 experiments" in text
    page = re.search(r'id="data">(.*?)</script>', (root / "report.html").read_text(), re.S)
    assert page and len(json.loads(page[1])["timelines"]) <= MOST_DETAILED
    assert check_staleness(RunDirectory(root)) == Staleness()


def test_the_numbers_of_what_is_shown_in_full_are_those_of_the_whole(runs: tuple[Path, Path]) -> None:
    run = Run.open(runs[1])
    for name, experiment in run.detailed.summary.experiments.items():
        assert experiment.breakdown == run.summary.experiments[name].breakdown
        assert run.detailed.label(name) == run.label(name)


def test_any_experiment_has_a_report_and_pictures_of_its_own(runs: tuple[Path, Path], tmp_path: Path) -> None:
    root = Path(shutil.copytree(runs[0], tmp_path / "run"))
    last = list(RunDirectory(root).manifest().experiments)[-1]
    run = Run.open(root, only=[last])
    assert last in run.manifest.experiments and len(run.manifest.experiments) <= 2
    before = (root / "metrics.json").read_bytes()
    write_report(run, Sketcher(), root / "one.md", page=True)
    write_picture(run, Sketcher(), "latency", root / "one.svg", "light", 400)
    assert f"report {root} --html --out {root}/one.md --experiment {last}" in _renewing(root, "one.md")
    assert (root / "metrics.json").read_bytes() == before and check_staleness(RunDirectory(root)) == Staleness()
    # What is known of the whole is not lost by a look at a part.
    assert {"report.md", "report.html", "trace.json"} <= {path.name for path in root.iterdir()}
    with pytest.raises(InputError, match="no experiment 'nobody'"):
        Run.open(root, only=["nobody"])


def _renewing(root: Path, name: str) -> str:
    record = json.loads((root / "derived.json").read_text())
    return str(record["files"][name]["renew"]).replace("{dir}", str(root))


def test_a_report_of_most_runs_shows_all_of_it() -> None:
    run = Run.open(KNOWN_GOOD)
    assert run.detailed is run
    assert "--experiment" not in str(content.report(run))


def test_a_combined_report_of_many_runs_draws_the_first_and_lists_all(tmp_path: Path) -> None:
    runs = [Run.open(KNOWN_GOOD) for _ in range(80)]
    few, many = (combined.pictures_of(part, charts.WIDE, LIGHT) for part in (runs[:40], runs))
    assert few == many
    (path,) = write_combined(runs, Sketcher(), tmp_path / "all.md")
    assert f"No more than the first {charts.MOST_ROWS}" in path.read_text()


def test_an_experiment_is_chosen_by_a_flag(tmp_path: Path) -> None:
    root = forge_run(KNOWN_GOOD, tmp_path / "run", copies=2)
    name = list(RunDirectory(root).manifest().experiments)[-1]
    done = kit("report", root, "--experiment", name)
    assert done.returncode == 0, done.stderr
    assert done.stdout == f"{root}/report_{name}.md\n"
    assert kit("report", root, root, "--experiment", name).returncode == 2
    assert "no experiment 'x'" in kit("report", root, "--experiment", "x").stderr
    assert kit("validate", "--results", root).returncode == 0
