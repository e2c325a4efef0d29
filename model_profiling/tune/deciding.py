"""Which of the variants that won is kept, and what each of its changes gained.

What cannot be told from the fastest is as fast: of these the most accurate is kept, and of such the one that changes
least.
"""

import itertools
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from typing import Any

import msgspec

from model_profiling.analysis.timing.latency import Comparison, compare
from model_profiling.store.run_directory import Turn
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
