"""What `tune` tried, what came of it, and what of it is kept."""

import itertools
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import replace
from typing import Any

import msgspec

from model_profiling.analysis.accuracy.agreement import Agreement
from model_profiling.analysis.compare.comparison import MetricValue
from model_profiling.analysis.compare.program_changes import ProgramChanges
from model_profiling.analysis.llm.phases import PhaseMetrics
from model_profiling.analysis.timing.latency import Comparison, compare
from model_profiling.store.run_directory import Turn
from model_profiling.tune.variants import TuneVariant

Turns = Mapping[str, list[Turn]]
# Whatever its interval allows to be so much faster than the best is measured again; without an interval, what looks
# faster at all; so many at a time.
WORTH, _LOOKS_FASTER, MOST_RIVALS = 1.05, 1.02, 3
# Outputs whose noise is further down than this differ in nothing that anybody would see.
_AS_GOOD_DB = 60.0
# What another dtype may cost where nobody says: below it outputs differ by more than 3 %.
LEAST_SQNR_DB = 30.0
_ORDER = ("dtype", "rewrites", "memory_format", "io_layout", "delegation", "keep_fp32")


class TriedPhase(msgspec.Struct, frozen=True):
    """One phase of a variant, held against the baseline's; its logits against eager PyTorch in fp32."""

    metrics: PhaseMetrics
    comparison: Comparison | None = None
    agreement: Agreement | None = None
    # In nats, of the next token's distribution; None where it cannot be told.
    kl_divergence: float | None = None


class FormatResult(msgspec.Struct, frozen=True):
    """What is known of one weight format. `sme2_share` is the part of all linear weights that SME2 has kernels for."""

    phases: list[TriedPhase] = []
    file_bytes: int = 0
    peak_bytes: int | None = None
    sme2_share: float | None = None
    # Of the tokens that the user gave; None without any.
    perplexity: float | None = None
    # No other format is at least as good in everything: speed of each phase, accuracy, memory.
    pareto: bool = False


class TuneStep(msgspec.Struct, frozen=True):
    """One change of those that the best program has, and what it gained beside the changes before it."""

    variant: str
    change: str
    comparison: Comparison


class TuneCost(msgspec.Struct, frozen=True):
    """How long it took to export or to measure so many programs; what was on disk already costs nothing."""

    step: str
    programs: int
    seconds: float


class KeptLayer(msgspec.Struct, frozen=True):
    """Layers of the winner that stay in fp32, as they are named in `--keep-fp32`; what they cost in time (`without`
    them, and with them), and how much further the metric drops without them."""

    keep: list[str]
    without: str
    comparison: Comparison
    saved: float | None = None


class MetricSummary(msgspec.Struct, frozen=True):
    """How variants were judged by a metric: on how many samples, none of which is among the `calibration_samples` if
    these are `apart`; drawn anew `resamples` times for intervals."""

    name: str
    samples: int
    max_drop: float
    lower_is_better: bool = False
    calibration_samples: int = 0
    apart: bool = True
    resamples: int = 0
    kept: list[KeptLayer] = []


class Sme2Outlook(msgspec.Struct, frozen=True):
    """What is known of SME2 without a CPU that has it: how many operators have a kernel, and what they would gain."""

    eligible: int
    on_sme2: int | None
    target: str = ""
    ratio: float | None = None
    low: float | None = None
    high: float | None = None


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
    # Where variants are judged by a metric.
    metric: MetricValue | None = None
    file_bytes: int | None = None
    sme2: Sme2Outlook | None = None

    @property
    def faster(self) -> bool:
        """Whether its whole interval is."""
        return self.comparison is not None and self.comparison.verdict == "faster"

    @property
    def ratio(self) -> float:
        """How often it is as fast as the baseline, both measured in turns; 1 for the baseline itself."""
        return self.comparison.ratio if self.comparison is not None else 1.0

    @property
    def sqnr_db(self) -> float | None:
        """Signal to noise of its outputs; infinite if they are exact."""
        exact = self.agreement is not None and self.agreement.max_abs_error == 0
        return float("inf") if exact else self.agreement.sqnr_db if self.agreement is not None else None


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
    # In the order in which it was done.
    costs: list[TuneCost] = []
    metric: MetricSummary | None = None

    @property
    def busy(self) -> list[TriedVariant]:
        """What looks faster and may only have been disturbed less than the baseline."""
        return [e for e in self.tried if e.faster and e.comparison is not None and e.comparison.contended]

    @property
    def unsure(self) -> list[TriedVariant]:
        """What its interval still allows to be faster than all that is known to be."""
        names = promising(self.tried, lambda entry: won(entry, self.min_sqnr_db, self.baseline))
        return [entry for entry in self.tried if entry.name in names]

    @property
    def wrong(self) -> list[TriedVariant]:
        """What is faster and does not agree."""
        right = [e for e in self.tried if won(e, self.min_sqnr_db, self.baseline)]
        return [e for e in self.tried if e.faster and e not in right and e not in self.busy]


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


def rivals(turns: Turns, best: str, won: Iterable[str], by: float = 0.0) -> list[str]:
    """Return the others that won and that cannot be told from the best, or that may be faster than it `by` a factor."""
    held = [(name, _compared(turns, best, name)) for name in won if name != best]
    return [n for n, each in held if each.verdict != "slower" and (each.high is None or each.high >= by)][:MOST_RIVALS]


def preferred(names: Sequence[str], sqnr: Mapping[str, float | None], variants: Mapping[str, TuneVariant]) -> str:
    """Return which of the equally fast is kept; `sqnr` are the outputs' signal to noise in dB."""

    def rank(name: str) -> tuple[float, int]:
        noise, usual = sqnr[name], TuneVariant("")
        changes = sum(getattr(variants[name], option) != getattr(usual, option) for option in _ORDER[1:])
        return -min(noise if noise is not None else 0.0, _AS_GOOD_DB), changes

    return min(names, key=rank)


def ladder(base: TuneVariant, best: TuneVariant) -> list[TuneVariant]:
    """Return the variants between the baseline and the best one, each with one change more; both are left out."""
    differing: dict[str, Any] = {n: getattr(best, n) for n in _ORDER if getattr(base, n) != getattr(best, n)}
    parts = [dict(itertools.islice(differing.items(), count)) for count in range(1, len(differing))]
    return [replace(base, **taken, reason=f"a step to {best.name}") for taken in parts]


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
    changed = {name: getattr(after, name) for name in _ORDER if getattr(before, name) != getattr(after, name)}
    given = [(name, each) for name, v in changed.items() for each in (v if isinstance(v, tuple) else (v,))]
    return " ".join(f"--{name.replace('_', '-').replace('rewrites', 'rewrite')} {each}" for name, each in given)


def replace_comparison(entry: TriedVariant, **fields: Any) -> TriedVariant:
    """Return a variant as if its comparison had been another."""
    assert entry.comparison is not None
    return msgspec.structs.replace(entry, comparison=msgspec.structs.replace(entry.comparison, **fields))


def promising(tried: Iterable[TriedVariant], wins: Callable[[TriedVariant], bool]) -> list[str]:
    """Return what would win if it were sure, is not, and may be faster than all that won; fastest first, a few."""
    pairs = [(entry, entry.comparison) for entry in tried if entry.comparison is not None]
    most = max((entry.ratio for entry, _ in pairs if wins(entry)), default=1.0)
    found = []
    for entry, compared in pairs:
        may = entry.ratio > _LOOKS_FASTER * most if compared.high is None else compared.high >= WORTH * most
        unsure = compared.verdict == "no difference seen" and entry.ratio > 1
        if unsure and may and wins(replace_comparison(entry, verdict="faster")):
            found.append(entry)
    return [entry.name for entry in sorted(found, key=lambda entry: -entry.ratio)[:MOST_RIVALS]]


def won(entry: TriedVariant | None, min_sqnr_db: float | None = None, baseline: str = "") -> bool:
    """Return whether a variant is faster by its whole interval, undisturbed, with outputs right for its dtype and, in
    another dtype than the baseline's, not far from eager's; or, if an accuracy or a metric is asked for, with that."""
    if entry is None or not entry.faster or (entry.comparison is not None and entry.comparison.contended):
        return False
    if entry.metric is not None:
        return entry.metric.verdict == "within"
    known = entry.sqnr_db
    if min_sqnr_db is not None:
        return (known or 0.0) >= min_sqnr_db
    # Weight formats of language models say themselves what they cost.
    other = entry.format is None and bool(baseline) and entry.dtype not in ("", baseline)
    if other and known is not None and known < LEAST_SQNR_DB:
        return False
    return entry.agreement is None or (entry.agreement.verdict == "agrees" and not entry.agreement.remarks)
