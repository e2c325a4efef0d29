"""A run on a busy machine says so once, at the top, and what cannot be relied on says so where it stands."""

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

import sme2_kit
from model_profiling.gates.verdict import Limits, judge
from model_profiling.report import markdown, numbers
from model_profiling.report.blocks import Number, Table
from model_profiling.report.content import whole as content
from model_profiling.report.html import run_page
from sme2_kit import Run
from tests.conftest import ROOT, kit
from tests.helpers.run_forge import forge_run
from tests.helpers.screens import first_screen, whole_text

KNOWN_GOOD = ROOT / "tests" / "data" / "known_good_run"


def changed(home: Path, change: Callable[[dict[str, Any]], None]) -> Run:
    """The known-good run with other samples."""
    forge_run(KNOWN_GOOD, home, executions=24, launches=6)
    for path in home.glob("*/*_samples.json"):
        samples = json.loads(path.read_text())
        change(samples)
        path.write_text(json.dumps(samples))
    return Run.open(home)


def preempt(samples: dict[str, Any]) -> None:
    for turn in samples["timed"]:
        turn["preempted"] = len(turn["ns"])


def slow(samples: dict[str, Any]) -> None:
    for turn in (*samples["timed"], *samples["traced"]):
        turn["ns"] = [3 * ns for ns in turn["ns"]]


@pytest.fixture
def busy(tmp_path: Path) -> Run:
    return changed(tmp_path / "busy", preempt)


def test_a_busy_machine_is_said_once_with_the_command_to_repeat(busy: Run) -> None:
    report = content.report(busy)
    assert report.alerts[0].startswith("The machine was busy: other processes preempted 100 %")
    assert "sme2-kit" in report.alerts[0] and "--force" not in report.alerts[0]
    for text in (first_screen(busy), run_page(busy, report, {}), markdown.render(report)):
        assert text.count("The machine was busy: other") == 1


def test_headline_and_parts_of_a_busy_run_are_of_undisturbed_time(busy: Run) -> None:
    (comparison,) = busy.metrics.comparisons
    told, (profile,) = busy.told(comparison), busy.summary.comparisons
    assert comparison.contended and not told.contended
    assert (told.before_ms, told.after_ms) == (profile.execute.before_ms, profile.execute.after_ms)
    screen = first_screen(busy)
    assert numbers.ms(told.after_ms) in screen and numbers.ms(comparison.after_ms) not in screen


def test_a_quiet_run_has_no_such_banner() -> None:
    run = Run.open(KNOWN_GOOD)
    assert not any("busy" in alert for alert in content.report(run).alerts)
    assert all(not experiment.breakdown.unreliable for experiment in run.summary.experiments.values())


def test_the_parts_of_an_execution_lead_to_the_headline() -> None:
    """Categories add up to the traced time, and less the tracer to what the first screen says."""
    run = Run.open(KNOWN_GOOD)
    section = content.report(run).section("categories")
    assert section is not None
    (table,) = [block for block in section.blocks if isinstance(block, Table)]
    *parts, whole, tracer, execution = [row[3] for row in table.rows]
    values = [cell.value or 0.0 for cell in (*parts, whole, tracer, execution) if isinstance(cell, Number)]
    assert sum(values[:-3]) == pytest.approx(values[-3])
    assert values[-3] + values[-2] == pytest.approx(values[-1])
    assert isinstance(execution, Number) and execution.shown in first_screen(run)


def test_operators_that_do_not_add_up_to_the_latency_are_not_relied_on(tmp_path: Path) -> None:
    """No ratio, no shift, and why, in every output."""
    run = changed(tmp_path / "slow", slow)
    (comparison,) = run.summary.comparisons
    changes = [*comparison.categories, comparison.execute, *(entry.change for entry in comparison.operators)]
    assert all(change.ratio is None for change in changes) and not comparison.untouched
    assert all(group.change.ratio is None for groups in run.operator_groups for group in groups)
    assert not comparison.shift.moved and "cannot be told" in comparison.shift.sentence
    why = run.summary.experiments[comparison.after].breakdown.unreliable
    assert why.startswith("the operators add up to")
    report = content.report(run)
    assert comparison.unreliable in " ".join(whole_text(run).split())
    assert why in markdown.render(report, {}) and why in run_page(run, report, {})


def test_a_gate_tells_twice_as_slow_on_a_busy_machine_too(busy: Run) -> None:
    """Undisturbed times tell what latencies cannot."""
    sides = [f"{busy.path}:{name}" for name in ("linux_fp16arith_on", "linux_fp16arith_off")]
    for pair, outcome in ((sides, "failed"), (sides[::-1], "passed")):
        found = sme2_kit.compare(*pair)
        assert found[0].latency.contended
        assert [each.outcome for each in judge(list(found), Limits(5.0), strict=False)] == [outcome]


def test_a_gate_without_a_verdict_says_so_last(tmp_path: Path) -> None:
    def unclear(samples: dict[str, Any]) -> None:
        preempt(samples)
        slow(samples)

    busy, summary = changed(tmp_path / "busy", unclear), tmp_path / "summary.md"
    loose = kit("compare", KNOWN_GOOD, busy.path, "--fail-if-slower", 5, "--summary", summary)
    assert loose.returncode == 0
    assert loose.stderr.splitlines()[-1] == "gate: no verdict, which passes without --strict"
    assert summary.read_text().startswith("## Performance gate: no verdict")
    strict = kit("compare", KNOWN_GOOD, busy.path, "--fail-if-slower", 5, "--strict")
    assert strict.returncode == 1
    assert strict.stderr.splitlines()[-1] == "gate: no verdict, which --strict counts as failed"
