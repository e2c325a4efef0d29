"""How far a verdict can be trusted: a study on real networks, quiet and beside other work.

Equal programs must rarely be called different, intervals must hold the long-run ratio, and 2 % must be found. A second
table holds intervals against how often other work took the processor away, which is where the limit for "contended" in
analysis/latency.py comes from.

    python -m benchmarks.verdicts                       # about 40 minutes; --comparisons 5 for a look
"""

import argparse
import contextlib
import itertools
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from benchmarks import networks
from model_profiling.analysis.latency import Comparison, compare, preempted_share
from model_profiling.pipeline.execution import Program
from model_profiling.pipeline.schedule import Counts
from model_profiling.pipeline.side_by_side import measure
from model_profiling.platforms.local import LocalPlatform
from model_profiling.run_directory import Turn

# Launches of each side in one comparison here, so that hundreds fit a benchmark; `sme2-kit compare` makes up to 100.
LAUNCHES = {"conv small": 30, "mixer": 30, "conv medium": 16, "conv large": 8}
# Loops per processor that want all of it, from none to more than anybody would measure beside.
LOADS = (0.0, 0.5, 1.0, 2.0, 4.0, 8.0)


@dataclass(frozen=True)
class Measured:
    """One comparison of two programs, with the turns behind it."""

    before: list[Turn]
    after: list[Turn]

    @property
    def comparison(self) -> Comparison:
        return compare(("before", self.before), ("after", self.after), paired=True)


@contextlib.contextmanager
def busy(loops: int) -> Iterator[None]:
    """So many processes that never stop computing."""
    others = [subprocess.Popen([sys.executable, "-c", "while True: pass"]) for _ in range(loops)]
    try:
        yield
    finally:
        for other in others:
            other.kill()
            other.wait()


def take(before: Path, after: Path, home: Path, launches: int | None) -> Measured:
    """Compare two programs with so many launches of each, or with as many as the default budget allows."""
    programs = {name: Program(pte, name, ()) for name, pte in (("before", before), ("after", after))}
    counts = Counts(launches=launches)
    outcomes = measure(LocalPlatform(), programs, home, 1, lambda *_: None, counts=counts)
    return Measured(outcomes["before"].timed, outcomes["after"].timed)


def long_run(taken: list[Measured]) -> float:
    """The ratio of medians over everything that was measured."""
    sides = ([ns for one in taken for turn in side(one) for ns in turn.ns] for side in (_before, _after))
    first, second = (float(np.median(side)) for side in sides)
    return first / second


def _before(one: Measured) -> list[Turn]:
    return one.before


def _after(one: Measured) -> list[Turn]:
    return one.after


def study(made: dict[str, tuple[Path, Path]], home: Path, comparisons: int) -> None:
    """Each network against itself and against its twin, quiet and beside one loop."""
    columns = (
        "network",
        "beside",
        "time",
        "launches",
        "spread",
        "A/A claims",
        "cover 1",
        "twin",
        "cover it",
        "find it",
    )
    print("  ".join(f"{column:>12}" for column in columns))
    totals = np.zeros(6, dtype=int)
    for load in (0, 1):
        for name, (one, more) in made.items():
            with busy(load):
                equal = [take(one, one, home, LAUNCHES[name]) for _ in range(comparisons)]
                twins = [take(one, more, home, LAUNCHES[name]) for _ in range(-(-comparisons // 2))]
            totals += _row(name, load, equal, twins)
    claims, covered, count, held, found, pairs = totals
    print(f"\nA/A claims {claims} of {count} ({claims / count:.1%}; bar: 5 %)")
    print(f"intervals hold the long-run ratio in {(covered + held) / (count + pairs):.1%} (bar: 92 %)")
    print(f"the twin's difference is found in {found / pairs:.1%} with so few launches")


def _row(name: str, load: int, equal: list[Measured], twins: list[Measured]) -> np.ndarray:
    same, other = [one.comparison for one in equal], [one.comparison for one in twins]
    truth = long_run(twins)
    claims = sum(result.verdict != "no difference seen" for result in same)
    covered = sum(result.low <= 1 <= (result.high or 0) for result in same)
    held = sum(result.low <= truth <= (result.high or 0) for result in other)
    found = sum(result.verdict == ("slower" if truth < 1 else "faster") for result in other)
    spread = np.median([result.launch_spread_percent or 0.0 for result in same])
    cells = (
        name,
        f"{load} loop" if load else "nothing",
        f"{same[0].before_ms:.2f} ms",
        f"{int(np.median([result.launches for result in same]))}",
        f"{spread:.2f} %",
        f"{claims}/{len(same)}",
        f"{covered}/{len(same)}",
        f"{(1 / truth - 1) * 100:+.1f} %",
        f"{held}/{len(other)}",
        f"{found}/{len(other)}",
    )
    print("  ".join(f"{cell:>12}" for cell in cells), flush=True)
    return np.array([claims, covered, len(same), held, found, len(other)])


def power(made: dict[str, tuple[Path, Path]], home: Path, comparisons: int) -> None:
    """How often the twin is found in the time that `sme2-kit compare` takes by default, on a quiet machine."""
    print("\nthe twin, with the default budget of 30 s for a comparison")
    for name, (one, more) in made.items():
        began = time.perf_counter()
        taken = [take(one, more, home, None) for _ in range(comparisons)]
        each = (time.perf_counter() - began) / comparisons
        found = sum(one.comparison.verdict == "slower" for one in taken)
        print(f"{name:>12}  {(1 / long_run(taken) - 1) * 100:+.1f} %  {found}/{len(taken)} find it, {each:.0f} s each")


def contention(made: dict[str, tuple[Path, Path]], home: Path, comparisons: int) -> None:
    """A short network against a long one: does the interval still hold the quiet ratio, by how often it lost time?"""
    short, long = made["conv small"][0], made["conv medium"][0]
    quiet = long_run([take(short, long, home, 16) for _ in range(comparisons)])
    found: list[tuple[float, float, bool]] = []
    for load in LOADS:
        with busy(round(load * (os.cpu_count() or 1))):
            for _ in range(comparisons):
                one = take(short, long, home, 16)
                result = one.comparison
                lost = max(preempted_share(side) for side in (one.before, one.after))
                found.append((lost, result.ratio / quiet - 1, result.low <= quiet <= (result.high or 0)))
    print(
        "\nexecutions that lost time   comparisons   ratio off by (median, worst)   intervals that hold the quiet ratio"
    )
    edges = (0.0, 0.02, 0.1, 0.2, 0.3, 0.4, 0.5, 0.7, 1.01)
    for low, high in itertools.pairwise(edges):
        part = [entry for entry in found if low <= entry[0] < high]
        if part:
            off = np.abs([entry[1] for entry in part])
            held = sum(entry[2] for entry in part)
            print(
                f"{low:>12.0%} to {min(high, 1):<10.0%}{len(part):>10}{np.median(off):>18.1%}, {off.max():.1%}"
                f"{held:>24}/{len(part)}",
                flush=True,
            )


def report(comparisons: int = 50) -> None:
    with tempfile.TemporaryDirectory() as scratch:
        home = Path(scratch)
        made = networks.export(home)
        study(made, home / "measured", comparisons)
        power(made, home / "measured", max(1, comparisons // 10))
        contention(made, home / "measured", max(1, comparisons // 5))


if __name__ == "__main__":
    parser = argparse.ArgumentParser()
    parser.add_argument("--comparisons", type=int, default=50)
    report(parser.parse_args().comparisons)
