"""What `tune` tried, what came of it, and what of it is kept."""

import itertools
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import replace
from typing import Any

import msgspec

from model_profiling.analysis.accuracy.agreement import Agreement
from model_profiling.analysis.compare.program_changes import ProgramChanges
from model_profiling.analysis.timing.latency import Comparison, compare
from model_profiling.store.run_directory import Turn
from model_profiling.tune.formats import FormatResult
from model_profiling.tune.variants import TuneVariant

Turns = Mapping[str, list[Turn]]
# How often the best ones are measured again until they can be told apart, and how many of them.
MOST_ROUNDS, MOST_RIVALS = 3, 3
# Outputs whose noise is further down than this differ in nothing that anybody would see.
_AS_GOOD_DB = 60.0


class TuneStep(msgspec.Struct, frozen=True):
    """One change of those that the best program has, and what it gained beside the changes before it."""

    variant: str
    change: str
    comparison: Comparison


def appended(earlier: Turns, later: Turns) -> dict[str, list[Turn]]:
    """Return the turns of two rounds as those of one: launches and turns of the later one are counted on."""
    before = [turn for turns in earlier.values() for turn in turns]
    launch = 1 + max((turn.launch for turn in before), default=-1)
    number = 1 + max((turn.turn for turn in before), default=-1)
    found = {name: [*turns] for name, turns in earlier.items()}
    for name, turns in later.items():
        moved = (msgspec.structs.replace(each, launch=launch + each.launch, turn=number + each.turn) for each in turns)
        found.setdefault(name, []).extend(moved)
    return found


def rivals(turns: Turns, best: str, won: Iterable[str]) -> list[str]:
    """Return the others that won and that cannot be told from the best, fastest first."""
    held = [(name, _compared(turns, best, name)) for name in won if name != best]
    return [name for name, each in sorted(held, key=lambda item: item[1].after_ms) if each.verdict != "slower"]


def preferred(names: Sequence[str], sqnr: Mapping[str, float | None], variants: Mapping[str, TuneVariant]) -> str:
    """Return which of the equally fast is kept; `sqnr` are the outputs' signal to noise in dB."""

    def rank(name: str) -> tuple[float, int]:
        noise = sqnr[name]
        return -min(noise if noise is not None else 0.0, _AS_GOOD_DB), len(changes(variants[name]))

    return min(names, key=rank)


def changes(variant: TuneVariant) -> list[str]:
    """Return the names of the options in which a variant may differ from the baseline, in the order of its steps."""
    usual = TuneVariant("")
    return ["dtype", *(name for name in _ORDER[1:] if getattr(variant, name) != getattr(usual, name))]


_ORDER = ("dtype", "rewrites", "memory_format", "io_layout", "delegation")


def ladder(base: TuneVariant, best: TuneVariant) -> list[TuneVariant]:
    """Return the variants between the baseline and the best one, each with one change more; both are left out."""
    differing = [name for name in _ORDER if getattr(base, name) != getattr(best, name)]
    steps = []
    for count in range(1, len(differing)):
        taken: dict[str, Any] = {name: getattr(best, name) for name in differing[:count]}
        steps.append(replace(base, **taken, reason=f"a step to {best.name}"))
    return steps


def step_gains(base: TuneVariant, best: TuneVariant, turns: Turns) -> list[TuneStep]:
    """Return what each change gained, as far as the programs between could be made; nothing if there is only one."""
    way = [base, *(each for each in ladder(base, best) if each.name in turns), best]
    if len(way) < 3:
        return []
    return [
        TuneStep(after.name, _change(before, after), _compared(turns, before.name, after.name))
        for before, after in itertools.pairwise(way)
    ]


def _compared(turns: Turns, before: str, after: str) -> Comparison:
    return compare((before, turns[before]), (after, turns[after]), paired=True)


def _change(before: TuneVariant, after: TuneVariant) -> str:
    """Return what the second has more than the first, as flags."""
    flags = []
    for name in _ORDER:
        value = getattr(after, name)
        if value != getattr(before, name):
            given = value if isinstance(value, tuple) else (value,)
            flags += [f"--{name.replace('_', '-').replace('rewrites', 'rewrite')} {each}" for each in given]
    return " ".join(flags)


# Medians that are so far apart are worth another look where there is no interval yet, and where it is wide.
_LOOKS_FASTER, _LOOKS_MUCH_FASTER, _MOST_PROMISING = 1.02, 1.1, 3
# What another dtype may cost where nobody says: below it outputs differ by more than 3 %.
LEAST_SQNR_DB = 30.0


class TriedVariant(msgspec.Struct, frozen=True):
    """One variant: how fast, how right, why it was tried, and the command that makes it. `failure` if it could not.

    `dtype` to `delegation` are what the export was asked for.
    """

    name: str
    reason: str
    command: str
    median_ms: float | None = None
    comparison: Comparison | None = None
    agreement: Agreement | None = None
    failure: str = ""
    dtype: str = ""
    memory_format: str = ""
    rewrites: list[str] = []
    delegation: str = ""
    io_layout: str = ""
    # Of a language model; `comparison` and `agreement` are then those of its last phase, decode.
    format: FormatResult | None = None
    # Layers that stay in fp32; and, where that is tried, whether no other variant is both faster and more accurate.
    keep_fp32: list[str] = []
    # The variant that has the very same program, and was measured instead.
    same_as: str = ""
    pareto: bool | None = None


class TuneResult(msgspec.Struct, frozen=True, tag="tune", tag_field="kind"):
    """All that was tried, fastest first, and which of it to keep: the fastest whose whole interval is faster and whose
    outputs agree."""

    model: str
    baseline: str
    platform: str
    tried: list[TriedVariant]
    winner: str = ""
    schema: int = 1
    # The .pte to keep, which is the winner's or the baseline's, and the baseline's; '' if an earlier kit tuned.
    program: str = ""
    baseline_program: str = ""
    # What each change of the winner gained beside those before it, if it has several.
    steps: list[TuneStep] = []
    # What won as well and cannot be told from the winner by its time.
    as_fast: list[str] = []
    # The accuracy that was asked for, if it was.
    min_sqnr_db: float | None = None
    # What the winner does in another time than the baseline, by line: the largest changes, of a language model those of
    # decode. None without a winner, and where it could not be traced.
    changes: ProgramChanges | None = None

    @property
    def busy(self) -> list[TriedVariant]:
        """What looks faster and may only have been disturbed less than the baseline."""
        return [entry for entry in self._faster if entry.comparison is not None and entry.comparison.contended]

    @property
    def unsure(self) -> list[TriedVariant]:
        """What looks faster than all that is known to be, by too few runs for an interval."""
        names = promising(self.tried, lambda entry: won(entry, self.min_sqnr_db, self.baseline))
        return [entry for entry in self.tried if entry.name in names]

    @property
    def wrong(self) -> list[TriedVariant]:
        """What is faster and does not agree."""
        return [
            entry
            for entry in self._faster
            if entry not in self.busy and not won(entry, self.min_sqnr_db, self.baseline)
        ]

    @property
    def _faster(self) -> list[TriedVariant]:
        compared = [entry for entry in self.tried if entry.comparison is not None]
        return [entry for entry in compared if entry.comparison is not None and entry.comparison.verdict == "faster"]


def promising(tried: Iterable[TriedVariant], wins: Callable[[TriedVariant], bool]) -> list[str]:
    """Return what looks faster than all that won, would win if it were sure, and is not; fastest first, a few."""
    entries = [entry for entry in tried if entry.comparison is not None and entry.median_ms is not None]
    least = min((entry.median_ms or 0.0 for entry in entries if wins(entry)), default=float("inf"))
    found = []
    for entry in entries:
        compared = entry.comparison
        assert compared is not None
        surely = msgspec.structs.replace(entry, comparison=msgspec.structs.replace(compared, verdict="faster"))
        looks = compared.ratio >= (_LOOKS_FASTER if compared.high is None else _LOOKS_MUCH_FASTER)
        if compared.verdict == "no difference seen" and looks and (entry.median_ms or 0.0) < least and wins(surely):
            found.append(entry)
    return [entry.name for entry in sorted(found, key=lambda entry: entry.median_ms or 0.0)[:_MOST_PROMISING]]


def sqnr_of(entry: TriedVariant) -> float | None:
    """Return signal to noise of a variant; infinite if it is exact."""
    if entry.agreement is None:
        return None
    return float("inf") if entry.agreement.max_abs_error == 0 else entry.agreement.sqnr_db


def won(entry: TriedVariant | None, min_sqnr_db: float | None = None, baseline: str = "") -> bool:
    """Return whether a variant is faster by its whole interval, undisturbed, with outputs right for its dtype and, in
    another dtype than the baseline's, not far from eager's; or, if an accuracy is asked for, with that."""
    if entry is None or entry.comparison is None or entry.comparison.verdict != "faster" or entry.comparison.contended:
        return False
    if min_sqnr_db is not None:
        return (sqnr_of(entry) or 0.0) >= min_sqnr_db
    known = sqnr_of(entry)
    # Weight formats of language models say themselves what they cost.
    other = entry.format is None and bool(baseline) and entry.dtype not in ("", baseline)
    if other and known is not None and known < LEAST_SQNR_DB:
        return False
    return entry.agreement is None or (entry.agreement.verdict == "agrees" and not entry.agreement.remarks)
