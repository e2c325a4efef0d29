"""Several numbers of threads are shown wherever a run is shown; with one number, nothing says so."""

import csv
from collections.abc import Sequence
from pathlib import Path

import msgspec
import pytest

from model_profiling.analysis.advice.finding import FindingKind
from model_profiling.mcp_server.tools import limited
from model_profiling.report import charts, markdown
from model_profiling.report.blocks import AdviceBlock, Bullets, Number, Picture, Table
from model_profiling.report.content import combined
from model_profiling.report.content import whole as content
from model_profiling.report.drawing.drawing_process import DrawingPool
from model_profiling.report.drawing.theme import LIGHT
from model_profiling.report.files.artifact_files import pipeline_summary
from model_profiling.report.files.report_files import write_picture
from model_profiling.report.html import run_page
from model_profiling.store.run_directory import ExperimentRecord, Manifest
from sme2_kit import Run
from tests.helpers.run_forge import forge_run
from tests.helpers.screens import whole_text

KNOWN = Path(__file__).resolve().parents[1] / "data" / "known_good_run"
OFF, ON = "linux_fp16arith_off", "linux_fp16arith_on"


def forged(place: Path, threads: Sequence[int]) -> Run:
    """Off scales; on is three times as fast alone, gains nothing with two threads, and is slower with four."""

    def times(record: ExperimentRecord, name: str, ns: int) -> float:
        cost = {1: 1.0, 2: 1.0, 4: 2.0}[record.threads] if record.name.startswith(ON) else 1.5 / record.threads
        return 100 * ns * cost

    def change(manifest: Manifest) -> None:
        manifest.environment["cores"] = 2

    return Run.open(forge_run(KNOWN, place, executions=48, launches=8, threads=threads, times=times, change=change))


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> Run:
    return forged(tmp_path_factory.mktemp("threads") / "run", (1, 2, 4))


@pytest.fixture(scope="module")
def plain() -> Run:
    return Run.open(KNOWN)


def test_the_section_has_every_number_the_best_and_what_is_wrong(run: Run) -> None:
    section = content.report(run).section("threads")
    assert section is not None and section.title == "Threads"
    table = next(block for block in section.blocks if isinstance(block, Table))
    counts = [row[1] for row in table.rows]
    assert [count.value for count in counts if isinstance(count, Number)] == [1, 2, 4, 1, 2, 4]
    assert [row[0] for row in table.rows] == ["fp16 arithmetic off"] * 3 + ["fp16 arithmetic on"] * 3
    assert "on against off" in table.columns
    said = next(block for block in section.blocks if isinstance(block, Bullets)).items
    assert any(item.startswith("fp16 arithmetic off: 4 threads are best") for item in said)
    assert any("no difference seen between 1 and 2 threads; 1 is enough" in item for item in said)
    assert any(isinstance(block, Picture) and block.chart == "threads" for block in section.blocks)
    wrong = [block.title for block in section.blocks if isinstance(block, AdviceBlock)]
    assert any("slower with 4 threads" in title for title in wrong)
    operators = [block for block in section.blocks if isinstance(block, Table) and block.key == "thread_operators"]
    assert len(operators) == 2 and {row[-1] for row in operators[1].rows} >= {"no faster"}


def test_the_first_screen_is_of_the_first_number(run: Run) -> None:
    report = content.report(run)
    (cpu,) = [fact for fact in report.facts if fact.label == "This CPU"]
    assert cpu.text.startswith("fp16 arithmetic on (1 thread): ") and "fp16 arithmetic off (1 thread): " in cpu.text
    assert run.of_interest == [f"{ON}_threads1"]
    assert not any("4 threads" in sentence for sentence in report.headline)


def test_every_format_shows_it(run: Run) -> None:
    report = content.report(run)
    text = markdown.render(report, {"threads": "report_charts/threads.png"})
    assert "## Threads" in text and "report_charts/threads.png" in text
    shown = " ".join(whole_text(run).split())
    assert "parallel efficiency" in shown and "4 threads are best" in shown and "4 threads on 2 CPUs" in shown
    assert 'data-table="threads"' in run_page(run, report, {})
    assert "fp16 arithmetic off: 4 threads are best" in pipeline_summary(run)


def test_the_picture_has_a_line_for_each_side_and_the_cpus(run: Run, tmp_path: Path) -> None:
    specs = [charts.of_run(run, width, LIGHT)["threads"] for width in (charts.WIDE, charts.NARROW)]
    assert "hconcat" in specs[0] and "vconcat" in specs[1]
    with DrawingPool() as artist:
        (drawn,), _ = write_picture(run, artist, "threads", tmp_path / "threads.svg", "light", 760)
    svg = drawn.read_text()
    for words in ("latency (ms)", "times faster", "fp16 arithmetic off", "fp16 arithmetic on", "2 CPUs"):
        assert words in svg


def test_the_combined_report_has_a_row_for_each(run: Run, plain: Run) -> None:
    section = combined.report([run, plain]).section("threads")
    assert section is not None
    table = next(block for block in section.blocks if isinstance(block, Table))
    assert len(table.rows) == 6
    assert combined.report([plain]).section("threads") is None


def test_csv_has_every_number_and_every_operator(run: Run) -> None:
    run.save()
    with (run.path / "threads.csv").open() as file:
        rows = list(csv.DictReader(file))
    assert [row["experiment"] for row in rows][:2] == [f"{ON}_threads1", f"{ON}_threads2"]
    assert [row["threads"] for row in rows if row["best"] == "1"] == ["1", "4"]
    with (run.path / "operator_threads.csv").open() as file:
        operators = list(csv.DictReader(file))
    whole = run.summary.experiments[f"{ON}_threads4"].breakdown.execute_ms
    mine = [float(row["ms"]) for row in operators if row["experiment"] == f"{ON}_threads4" and row["ms"]]
    assert sum(mine) == pytest.approx(whole, rel=1e-3)


def test_python_programs_get_rows(run: Run, plain: Run) -> None:
    rows = {row.experiment: row for row in run.scaling}
    assert [row.threads for row in run.scaling if row.best] == [1, 4]
    many, off = rows[f"{ON}_threads4"], rows[f"{OFF}_threads4"]
    assert many.on_off is not None and many.on_off < 1 and off.on_off is None
    assert off.speedup == pytest.approx(4, rel=0.05) and off.efficiency == pytest.approx(1, rel=0.05)
    assert {row.threads for row in run.operator_scaling} == {1, 2, 4}
    assert run.scaling.to_dicts()[0]["threads"] == 1
    rules = {row.rule for row in run.advice if row.experiment == f"{ON}_threads4"}
    assert FindingKind.SLOWER_WITH_THREADS.value in rules
    assert len(plain.scaling) == 0


def test_assistants_get_curves(run: Run, plain: Run) -> None:
    answer, without = (limited(msgspec.to_builtins(each.summary), 3, ()) for each in (run, plain))
    assert len(answer["metrics"]["scaling"]["curves"]) == 2 and without["metrics"].get("scaling") is None
    assert [len(curve["operators"]) for curve in answer["operator_scaling"]] == [3, 3]


def test_one_number_of_threads_is_not_spoken_of(plain: Run) -> None:
    report = content.report(plain)
    assert report.section("threads") is None and "threads" not in charts.of_run(plain, 760, LIGHT)
    assert "number of threads" not in whole_text(plain)
    assert not any("thread" in fact.text for fact in report.facts)


@pytest.mark.parametrize(
    "pairs",
    [
        [],
        [(f"{ON}_threads1", f"{ON}_threads2")],
        [(f"{OFF}_threads2", f"{ON}_threads2")],
        [(f"{OFF}_threads4", f"{ON}_threads1")],
    ],
)
def test_whatever_is_compared_there_is_a_report(tmp_path: Path, pairs: list[tuple[str, str]]) -> None:
    def change(manifest: Manifest) -> None:
        manifest.compare_pairs = pairs

    run = Run.open(forge_run(KNOWN, tmp_path / "run", executions=24, launches=6, threads=(1, 2, 4), change=change))
    report = content.report(run)
    assert report.section("threads") is not None and report.facts
    assert "parallel efficiency" in whole_text(run)
    assert run.of_interest and set(charts.of_run(run, 340, LIGHT)) >= {"threads", "shift", "latency"}
