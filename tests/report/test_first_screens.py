"""The first screen of any kind of result: what one sees at once, no number twice, nothing cut off without saying so."""

import re
from collections.abc import Callable
from pathlib import Path

import msgspec
import pytest

from model_profiling.analysis.run.dumps import analyse_dumps
from model_profiling.analysis.timing.categories import load_table
from model_profiling.fleet.history.run_history import RunHistory
from model_profiling.fleet.history.trend_page import page_report
from model_profiling.fleet.history.trends import Trend
from model_profiling.fleet.sweep import portfolio
from model_profiling.report.blocks import Report
from model_profiling.report.content import comparison, dumps, forecast, roofline
from model_profiling.report.content import runtimes as runtimes_content
from model_profiling.report.terminal import SCREEN_LINES, Style, render
from model_profiling.store.run_directory import Manifest, Phase
from model_profiling.tune.tune_report import document
from model_profiling.tune.tune_result import TriedVariant, TuneResult
from sme2_kit import Run
from tests.analysis.test_target import measured_roofs
from tests.conftest import ROOT
from tests.helpers.history_forge import Forge
from tests.helpers.run_forge import forge_emulated, forge_run
from tests.helpers.runtime_forge import EXECUTORCH, FAILED, OTHER, runtimes
from tests.helpers.sweep_forge import forged_sweep
from tests.report.test_busy import changed, preempt
from tests.report.test_compare_page import SAME, SIX
from tests.tune.test_deciding import FASTER

pytestmark = pytest.mark.fast

KNOWN_GOOD = ROOT / "tests" / "data" / "known_good_run"
DUMP = ROOT / "tests" / "data" / "etdump" / "two_methods.etdump"
# `Report` and `Next` stand below.
END = 2


def _forged(home: Path, change: Callable[[Manifest], None] = lambda _: None, **how: object) -> Report:
    return Run.open(forge_run(KNOWN_GOOD, home / "run", change=change, **how)).first_screen  # type: ignore[arg-type]


def _single(manifest: Manifest) -> None:
    manifest.experiments.pop("linux_fp16arith_off")
    manifest.compare_pairs.clear()


def _failed(manifest: Manifest) -> None:
    record = manifest.experiments["linux_fp16arith_off"]
    why = "the runner ended with signal 9 (killed), as where memory is short: " + "its log has more; " * 8
    manifest.experiments[record.name] = msgspec.structs.replace(record, status="failed", failure=why)
    manifest.compare_pairs.clear()


def _partial(manifest: Manifest) -> None:
    for name, record in manifest.experiments.items():
        manifest.experiments[name] = msgspec.structs.replace(record, partial="3 of 10 turns")


def _language_model(manifest: Manifest) -> None:
    for name, record in manifest.experiments.items():
        phase = Phase("decode", 1, 128) if name.endswith("on") else Phase("prefill", 128, 0)
        manifest.experiments[name] = msgspec.structs.replace(record, phase=phase)
    manifest.compare_pairs.clear()


def _tuned() -> Report:
    tried = [TriedVariant("int8", "", "sme2-kit export net --dtype int8", 1.0, FASTER)]
    tried += [TriedVariant(f"fp16+v{n}", "a reason of many words " * 4, "sme2-kit export", 2.0 + n) for n in range(40)]
    tried += [TriedVariant("fp32", "", "", failure="it cannot be lowered: " + "a long reason " * 9)]
    return document(TuneResult("net", "fp16", "linux", tried, "int8", program="tune/int8/net.pte"))


def _history(home: Path) -> Report:
    run = Run.open(forge_run(KNOWN_GOOD, home / "real"))
    run.save()
    Forge(run.path).series(home / "runs", [1.0 + 0.01 * (n % 3) for n in range(40)])
    return page_report(Trend(RunHistory([home / "runs"]).series()), home)


def _busy(home: Path) -> Report:
    return changed(home / "busy", preempt).first_screen


def _predicted(_: Path) -> Report:
    run = Run.open(KNOWN_GOOD)
    return forecast.report("net", run.forecasts)


KINDS: dict[str, Callable[[Path], Report]] = {
    "compared": _forged,
    "single": lambda home: _forged(home, _single),
    "language model": lambda home: _forged(home, _language_model),
    "threads": lambda home: _forged(home, threads=(1, 2, 4), executions=24, launches=6),
    "failed": lambda home: _forged(home, _failed),
    "partial": lambda home: _forged(home, _partial),
    "busy": _busy,
    "emulated": lambda home: Run.open(forge_emulated(KNOWN_GOOD, home / "seen", lambda _: True)).first_screen,
    "many operators": lambda home: _forged(home, operators=300, executions=4),
    "dump": lambda _: dumps.report(analyse_dumps([DUMP], load_table()).summary),
    "compare": lambda _: comparison.opening([SIX.compared]),
    "compare, the same": lambda _: comparison.opening([SAME.compared]),
    "compare, many": lambda _: comparison.opening([SIX.compared] * 30),
    "tune": lambda _: _tuned(),
    "sweep": lambda _: portfolio.report(forged_sweep(15, ("local", "android-9A", "emulator"), True, True)),
    "history": _history,
    "runtimes": lambda _: runtimes_content.report(runtimes(OTHER, EXECUTORCH, FAILED)),
    "roofs": lambda _: roofline.report(measured_roofs(4.0)),
    "forecast": _predicted,
}


@pytest.mark.parametrize("kind", KINDS)
def test_it_is_25_lines_of_100_columns_and_says_no_time_twice(kind: str, tmp_path: Path) -> None:
    report = KINDS[kind](tmp_path)
    lines = render(report, Style(colour=False), lines=SCREEN_LINES - END).splitlines()
    assert 0 < len(lines) <= SCREEN_LINES - END, "\n".join(lines)
    # A word that is longer, such as a path, is not broken.
    assert not [line for line in lines if len(line) > 100 and len(line.split()) > 1], "\n".join(lines)
    if kind in ("compared", "single", "language model", "busy"):
        times = re.findall(r"\d+\.\d+ ms", "\n".join(lines))
        assert len(times) == len(set(times)), "\n".join(lines)
