"""A run on a busy machine says so once, at the top, and what cannot be relied on says so where it stands."""

import json
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from model_profiling.report import content, markdown
from model_profiling.report.html import page
from model_profiling.report.terminal.run_text import render_run
from model_profiling.report.terminal.style import Style
from sme2_kit import Run
from tests.conftest import ROOT, kit

KNOWN_GOOD = ROOT / "tests" / "data" / "known_good_run"
COLOURED = Style(colour=True, blocks=False)


def changed(home: Path, change: Callable[[dict[str, Any]], None]) -> Run:
    """The known-good run with other samples."""
    shutil.copytree(KNOWN_GOOD, home)
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


def test_a_busy_machine_is_said_first_with_the_command_to_repeat(busy: Run) -> None:
    report = content.report(busy)
    assert report.subdued
    assert report.alerts[0].startswith("The machine was busy: other processes preempted 100%")
    assert "--force" in report.alerts[0] and "sme2-kit" in report.alerts[0]
    told = render_run(busy, COLOURED)
    assert told.index("The machine was busy") < told.index("speedup")
    html = page(busy, report, {})
    assert html.count('class="subdued"') == 2 and html.index("The machine was busy") < html.index('id="figures"')
    text = markdown.render(report, {})
    assert f"**{report.figures[-1].value}**" not in text and "The machine was busy" in text


def test_a_quiet_run_has_no_such_banner() -> None:
    run = Run.open(KNOWN_GOOD)
    report = content.report(run)
    assert not report.subdued and not any("busy" in alert for alert in report.alerts)
    assert "subdued" not in page(run, report, {}).partition("</style>")[2]
    assert all(not experiment.breakdown.unreliable for experiment in run.summary.experiments.values())


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
    assert comparison.unreliable in " ".join(render_run(run, Style(colour=False, blocks=False)).split())
    assert why in markdown.render(report, {}) and why in page(run, report, {})


def test_a_gate_without_a_verdict_says_so_last(tmp_path: Path) -> None:
    busy, summary = changed(tmp_path / "busy", preempt), tmp_path / "summary.md"
    loose = kit("compare", KNOWN_GOOD, busy.path, "--fail-if-slower", 5, "--summary", summary)
    assert loose.returncode == 0
    assert loose.stderr.splitlines()[-1] == "gate: no verdict, which passes without --strict"
    assert summary.read_text().startswith("## Performance gate: no verdict")
    strict = kit("compare", KNOWN_GOOD, busy.path, "--fail-if-slower", 5, "--strict")
    assert strict.returncode == 1
    assert strict.stderr.splitlines()[-1] == "gate: no verdict, which --strict counts as failed"
