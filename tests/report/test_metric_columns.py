"""One list says which metrics there are and how they are written; every output takes them from there."""

import ast
import xml.etree.ElementTree as ET
from collections.abc import Callable

import msgspec
import pytest

from model_profiling.analysis.compare.comparison import PairComparison, compare_profiles
from model_profiling.analysis.compare.metrics import ExperimentMetrics, latency_metrics
from model_profiling.analysis.compare.program_changes import ProfiledProgram
from model_profiling.analysis.run.selection import choose
from model_profiling.analysis.timing.breakdown import break_down
from model_profiling.analysis.timing.latency import compare
from model_profiling.gates.ci_files import job_summary, junit_xml
from model_profiling.report import markdown, metric_columns
from model_profiling.report.content import combined
from model_profiling.report.content import whole as content
from model_profiling.report.files.artifact_files import pipeline_summary
from model_profiling.report.metric_columns import COLUMNS, Column
from sme2_kit import Run
from tests.conftest import ROOT
from tests.helpers.screens import whole_text

pytestmark = pytest.mark.fast

KNOWN_GOOD = ROOT / "tests" / "data" / "known_good_run"
ENERGY = Column("energy", "made-up energy", "", lambda measured: 41.5, lambda value: f"{value:.1f} mJ", "lower")


@pytest.fixture(scope="module")
def run() -> Run:
    return Run.open(KNOWN_GOOD)


@pytest.fixture(scope="module")
def pair() -> PairComparison:
    before, after = choose(str(KNOWN_GOOD)).values()
    old, new = before.profile(), after.profile()
    sides = [ProfiledProgram(side.name, each, break_down(each)) for side, each in ((before, old), (after, new))]
    parts = compare_profiles(sides[0], sides[1], True)
    latency = compare((before.name, before.turns), (after.name, after.turns), True)
    return PairComparison(latency, parts, before.metrics, after.metrics)


OUTPUTS: dict[str, Callable[[Run, PairComparison], str]] = {
    "terminal": lambda run, _: whole_text(run),
    "pipeline summary": lambda run, _: pipeline_summary(run),
    "report": lambda run, _: markdown.render(content.report(run), {}),
    "combined report": lambda run, _: markdown.render(combined.report([run, run]), {}),
    "job summary": lambda _, pair: job_summary([pair], []),
}


@pytest.mark.parametrize("output", OUTPUTS)
def test_a_new_metric_is_one_entry_and_is_in_every_output(
    output: str, run: Run, pair: PairComparison, monkeypatch: pytest.MonkeyPatch
) -> None:
    shown = OUTPUTS[output]
    assert "made-up" not in shown(run, pair)
    monkeypatch.setattr(metric_columns, "COLUMNS", (*COLUMNS, ENERGY))
    text = shown(run, pair)
    assert "made-up energy" in text and text.count("41.5 mJ") == 2 * (2 if output == "combined report" else 1), text


def test_a_new_metric_is_a_property_of_the_test_case_that_ci_sees(
    pair: PairComparison, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(metric_columns, "COLUMNS", (*COLUMNS, ENERGY))
    found = {p.get("name"): p.get("value") for p in ET.fromstring(junit_xml([pair], [])).iter("property")}
    assert pair.before is not None and pair.before.latency is not None
    assert float(found["before.median_ms"] or 0) == pair.before.latency.median_ms
    assert found["before.energy"] == found["after.energy"] == "41.5"


def test_both_sides_of_a_comparison_have_the_metrics_that_their_run_has(run: Run, pair: PairComparison) -> None:
    assert [pair.before, pair.after] == list(run.metrics.experiments.values())


@pytest.mark.parametrize("column", COLUMNS, ids=lambda column: column.name)
def test_what_is_not_known_is_a_dash_and_no_zero(column: Column) -> None:
    nothing = latency_metrics([], "none")
    assert column.text(nothing) == "-" and column.number(nothing).value is None


def test_a_tracer_whose_cost_is_too_small_to_see_is_told_from_one_that_was_not_measured() -> None:
    (cost,) = [column for column in COLUMNS if column.name == "tracer_cost"]
    seen: ExperimentMetrics = msgspec.structs.replace(latency_metrics([], "none"), tracer_overhead_measured=True)
    assert cost.text(seen) == "~"
    assert cost.text(msgspec.structs.replace(seen, tracer_overhead_percent=2.0)) == "+2.0 %"


def test_labels_are_spelled_nowhere_else() -> None:
    assert len({column.key for column in COLUMNS}) == len({column.label for column in COLUMNS}) == len(COLUMNS)
    words = {"launch spread", "tracer cost"}
    for folder in ("report", "gates"):
        for path in (ROOT / "model_profiling" / folder).rglob("*.py"):
            constants = {node.value for node in ast.walk(ast.parse(path.read_text())) if isinstance(node, ast.Constant)}
            assert path.name == "metric_columns.py" or not constants & words, path
