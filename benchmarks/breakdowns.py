"""How far a breakdown can be trusted: a study on real networks, quiet and beside a busy loop on every core.

A program against itself must give no row and no sentence, and the times of operators must be those that Inspector
reads on a quiet machine.

    python -m benchmarks.breakdowns                  # about 25 minutes; --repeats 5 for a look
"""

import argparse
import os
import shutil
import tempfile
from collections.abc import Mapping
from pathlib import Path

import numpy as np

from benchmarks import networks
from benchmarks.verdicts import busy
from model_profiling.analysis.compare.comparison import PairComparison
from model_profiling.analysis.timing.breakdown import Breakdown
from model_profiling.api import comparing
from model_profiling.pipeline.schedule import Counts
from model_profiling.platforms.process_platform import LocalPlatform
from model_profiling.report import numbers
from sme2_kit import Run, run

BUDGET_S = 6.0
# XNNPACK's clock has steps of a microsecond: operators shorter than this are not timed to a percent.
_TIMED_MS = 0.1


def claims(pair: PairComparison) -> list[str]:
    """Return what is said of two programs: rows with a ratio, and a shift."""
    profile = pair.profile
    changes = [*profile.categories, profile.execute, *(entry.change for entry in profile.operators)]
    rows = [change.name for change in changes if numbers.speedup(change.ratio, change.low, change.high)[0] not in "~-"]
    said = profile.shift.moved or "grew" in profile.shift.sentence or "still does" in profile.shift.sentence
    return [*rows, *([profile.shift.sentence] if said else [])]


def against_itself(pte: Path, repeats: int) -> tuple[int, int]:
    """Return how many of so many comparisons of a program with its copy say something of parts, and how many of
    latency."""
    parts = latency = 0
    with tempfile.TemporaryDirectory() as scratch:
        copy = Path(shutil.copy(pte, scratch))
        for _ in range(repeats):
            sides = (str(pte), str(copy))
            counts, platform = Counts(budget_s=BUDGET_S), LocalPlatform()
            (pair,) = comparing.measure_pair(comparing.Measuring(*sides, counts, 1), None, lambda *_: None, platform)
            parts += bool(claims(pair))
            latency += pair.latency.verdict != "no difference seen"
    return parts, latency


def inspector_medians(dump: Path) -> dict[str, float]:
    """Return what ExecuTorch's own tool reads of each operator, in milliseconds."""
    from executorch.devtools import Inspector

    frame = Inspector(etdump_path=str(dump)).to_dataframe()
    rows = frame[frame["is_delegated_op"] == True]  # noqa: E712 - a column of pandas
    return {str(name): float(ms) for name, ms in zip(rows["event_name"], rows["p50 (ms)"], strict=True)}


def measure_breakdown(pte: Path, home: Path) -> tuple[Path, Breakdown]:
    """Return the dump of a run, and what the kit makes of it."""
    found: Run = run(pte, out=home, budget_s=BUDGET_S, force=True)
    name = next(iter(found.summary.experiments))
    return Path(found.summary.experiments[name].etdump), found.summary.experiments[name].breakdown


def operator_errors(breakdown: Breakdown, truth: Mapping[str, float]) -> tuple[float, float]:
    """Return how far the sum of operators is from the truth, and how far the worst of those that are long enough."""
    times = {entry.name: entry.ms for entry in breakdown.instances if entry.where == "delegated"}
    whole = sum(times[name] for name in truth) / sum(truth.values()) - 1
    each = [times[name] / ms - 1 for name, ms in truth.items() if ms >= _TIMED_MS]
    return whole, max(each, key=abs, default=0.0)


def report(repeats: int = 40) -> None:
    cores = os.cpu_count() or 1
    with tempfile.TemporaryDirectory() as scratch:
        made = {name: pair[0] for name, pair in networks.export(Path(scratch)).items()}
        print("     network  beside  A/A parts  A/A latency  operators against Inspector (sum, worst)", flush=True)
        for name, pte in made.items():
            home = Path(scratch) / pte.stem
            dump, _ = measure_breakdown(pte, home)
            truth = inspector_medians(dump)
            for loops in (0, cores):
                with busy(loops):
                    parts, latency = against_itself(pte, repeats)
                    offs = np.array([operator_errors(measure_breakdown(pte, home)[1], truth) for _ in range(3)])
                whole, worst = (offs[np.abs(offs[:, column]).argmax(), column] for column in (0, 1))
                claimed = f"{parts}/{repeats:<7}  {latency}/{repeats:<9}"
                print(f"{name:>12}  {loops} loops  {claimed}  {whole:+.1%}, {worst:+.1%}", flush=True)


if __name__ == "__main__":
    parser = argparse.ArgumentParser()
    parser.add_argument("--repeats", type=int, default=40)
    report(parser.parse_args().repeats)
