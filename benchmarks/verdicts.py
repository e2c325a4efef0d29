"""How far a verdict can be trusted: a study on real networks, quiet and beside other work.

Equal programs must rarely be called different, intervals must hold the long-run ratio, and 2 % must be found. A last
table holds intervals against how often other work took the processor away, which is where the limit for "contended" in
analysis/timing/latency.py comes from.

    python -m benchmarks.verdicts                       # about 40 minutes; --comparisons 5 for a look
    python -m benchmarks.verdicts --keep study.jsonl    # also writes every execution down
    python -m benchmarks.verdicts --read study.jsonl    # the tables again, from what was written down
"""

import argparse
import contextlib
import itertools
import os
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path

import msgspec
import numpy as np

from benchmarks import networks
from model_profiling.analysis.timing.latency import Comparison, compare
from model_profiling.pipeline.group_state import MeasuredProgram
from model_profiling.pipeline.schedule import Counts
from model_profiling.pipeline.side_by_side import measure
from model_profiling.platforms.process_platform import LocalPlatform
from model_profiling.store.run_directory import Turn, preempted_share

# Launches of each side in one comparison here, so that hundreds fit a benchmark; `sme2-kit compare` makes up to 100.
LAUNCHES = {"conv small": 30, "mixer": 30, "conv medium": 16, "conv large": 8}
# Loops per processor that want all of it, from none to more than anybody would measure beside.
LOADS = (0.0, 0.5, 1.0, 2.0, 4.0, 8.0)
EQUAL, TWIN, DEFAULT, CONTENDED = "equal", "twin", "twin, default budget", "short against long"


class MeasuredPair(msgspec.Struct, frozen=True):
    """One comparison of two programs: what was compared, beside how many loops, and every turn of both."""

    part: str
    network: str
    loops: int
    before: list[Turn]
    after: list[Turn]

    @property
    def comparison(self) -> Comparison:
        return compare(("before", self.before), ("after", self.after), paired=True)

    @property
    def lost(self) -> float:
        """The share of executions that lost time to other work, of the side that lost more."""
        return max(preempted_share(side) for side in (self.before, self.after))


@contextlib.contextmanager
def busy(loops: int) -> Iterator[None]:
    """Run so many processes that never stop computing while the block runs."""
    others = [subprocess.Popen([sys.executable, "-c", "while True: pass"]) for _ in range(loops)]
    try:
        yield
    finally:
        for other in others:
            other.kill()
            other.wait()


class VerdictStudy:
    """Takes comparisons and tells each to `keep` as soon as it is there."""

    def __init__(self, home: Path, keep: Callable[[MeasuredPair], None]) -> None:
        self._home = home
        self._keep = keep
        self._made = networks.export(home)
        self._platform = LocalPlatform()

    def run(self, comparisons: int) -> None:
        for loops in (0, 1):
            for name, launches in LAUNCHES.items():
                with busy(loops):
                    one, more = self._made[name]
                    for number in range(comparisons):
                        self._take(EQUAL, name, loops, (one, one), launches)
                        if number % 2 == 0:
                            self._take(TWIN, name, loops, (one, more), launches)
        for name, pair in self._made.items():
            for _ in range(-(-comparisons // 10)):
                self._take(DEFAULT, name, 0, pair, None)
        short, long = self._made["conv small"][0], self._made["conv medium"][0]
        for load in LOADS:
            loops = round(load * (os.cpu_count() or 1))
            with busy(loops):
                for _ in range(-(-comparisons // 5)):
                    self._take(CONTENDED, "small, medium", loops, (short, long), 16)

    def _take(self, part: str, name: str, loops: int, pair: tuple[Path, Path], launches: int | None) -> None:
        """Compare two programs with so many launches of each, or with as many as the default budget allows."""
        programs = {
            label: MeasuredProgram(pte, label, ()) for label, pte in zip(("before", "after"), pair, strict=True)
        }
        home, counts = self._home / "measured", Counts(launches=launches)
        outcomes = measure(self._platform, programs, home, 1, lambda *_: None, counts=counts)
        self._keep(MeasuredPair(part, name, loops, outcomes["before"].timed, outcomes["after"].timed))


def long_run(taken: list[MeasuredPair]) -> float:
    """Return the ratio of medians over everything that was measured."""
    before = [ns for one in taken for turn in one.before for ns in turn.ns]
    after = [ns for one in taken for turn in one.after for ns in turn.ns]
    return float(np.median(before) / np.median(after))


def held(taken: list[MeasuredPair], truth: float) -> int:
    """Return how many intervals hold the true ratio."""
    return sum(one.comparison.low <= truth <= (one.comparison.high or 0) for one in taken)


def tables(taken: list[MeasuredPair]) -> None:
    """Print all tables, from all comparisons."""
    by_part = {part: [one for one in taken if one.part == part] for part in (EQUAL, TWIN, DEFAULT, CONTENDED)}
    _verdicts(by_part[EQUAL], by_part[TWIN])
    print("\nthe twin, with the default budget of 30 s for a comparison, nothing beside it\n")
    for name, members in _grouped(by_part[DEFAULT]).items():
        found = sum(one.comparison.verdict == "slower" for one in members)
        launches = np.median([one.comparison.launches for one in members])
        more = 1 / long_run(members) - 1
        print(f"{name[0]:>12}  {more:+.1%}  {launches:.0f} launches  {found}/{len(members)} find it")
    _contention(by_part[CONTENDED])


def _grouped(taken: list[MeasuredPair]) -> dict[tuple[str, int], list[MeasuredPair]]:
    found: dict[tuple[str, int], list[MeasuredPair]] = {}
    for one in taken:
        found.setdefault((one.network, one.loops), []).append(one)
    return found


def _verdicts(equal: list[MeasuredPair], twins: list[MeasuredPair]) -> None:
    columns = ("network", "beside", "time", "launches", "spread", "A/A claims", "hold 1", "twin", "hold it", "find it")
    print("  ".join(f"{column:>11}" for column in columns))
    pairs, all_held = _grouped(twins), 0
    for (name, loops), members in _grouped(equal).items():
        same, other = [one.comparison for one in members], pairs[name, loops]
        truth = long_run(other)
        claims = sum(result.verdict != "no difference seen" for result in same)
        found = sum(one.comparison.verdict == ("slower" if truth < 1 else "faster") for one in other)
        all_held += held(members, 1.0) + held(other, truth)
        cells = (
            name,
            f"{loops} loop" if loops else "nothing",
            f"{same[0].before_ms:.2f} ms",
            f"{np.median([result.launches for result in same]):.0f}",
            f"{np.median([result.launch_spread_percent or 0.0 for result in same]):.2f} %",
            f"{claims}/{len(same)}",
            f"{held(members, 1.0)}/{len(same)}",
            f"{1 / truth - 1:+.1%}",
            f"{held(other, truth)}/{len(other)}",
            f"{found}/{len(other)}",
        )
        print("  ".join(f"{cell:>11}" for cell in cells))
    claims = sum(one.comparison.verdict != "no difference seen" for one in equal)
    print(f"\nA/A claims: {claims} of {len(equal)} ({claims / len(equal):.1%}; bar: 5 %)")
    print(f"intervals that hold the long-run ratio: {all_held / (len(equal) + len(twins)):.1%} (bar: 92 %)")


def _contention(taken: list[MeasuredPair]) -> None:
    """Print whether the interval of a short network against a long one still holds the ratio of a quiet machine."""
    quiet = long_run([one for one in taken if one.loops == 0])
    print("\nlost time in       comparisons   ratio off by (median, worst)   intervals hold the quiet ratio")
    for low, high in itertools.pairwise((0.0, 0.02, 0.1, 0.2, 0.3, 0.4, 0.5, 0.7, 1.01)):
        part = [one for one in taken if low <= one.lost < high]
        if part:
            off = np.abs([one.comparison.ratio / quiet - 1 for one in part])
            span = f"{low:.0%} to {min(high, 1):.0%}"
            print(
                f"{span:<19}{len(part):>11}{np.median(off):>18.1%}, {off.max():.1%}{held(part, quiet):>22}/{len(part)}"
            )


def report(comparisons: int = 50, keep: Path | None = None) -> None:
    """Take the study and print it; everything is kept at `keep` as it comes, a line a comparison."""
    taken: list[MeasuredPair] = []
    with tempfile.TemporaryDirectory() as scratch, contextlib.ExitStack() as stack:
        file = stack.enter_context(keep.open("wb")) if keep else None

        def note(one: MeasuredPair) -> None:
            taken.append(one)
            if file:
                file.write(msgspec.json.encode(one) + b"\n")
                file.flush()

        VerdictStudy(Path(scratch), note).run(comparisons)
    tables(taken)


if __name__ == "__main__":
    parser = argparse.ArgumentParser()
    parser.add_argument("--comparisons", type=int, default=50)
    parser.add_argument("--keep", type=Path)
    parser.add_argument("--read", type=Path)
    args = parser.parse_args()
    if args.read:
        tables([msgspec.json.decode(line, type=MeasuredPair) for line in args.read.read_bytes().splitlines()])
    else:
        report(args.comparisons, args.keep)
