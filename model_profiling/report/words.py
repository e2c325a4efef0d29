"""The sentences every report uses, so that each says the same of the same numbers."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING, NamedTuple, Protocol, TypeVar

from model_profiling.analysis.timing.intervals import ASSUMED_SPREAD
from model_profiling.base.units import counted
from model_profiling.report import numbers

if TYPE_CHECKING:
    from model_profiling.analysis.accuracy.agreement import Agreement
    from model_profiling.analysis.compare.comparison import KernelComparison, MetricChange, MetricValue
    from model_profiling.analysis.process.memory import Memory, MemoryComparison
    from model_profiling.analysis.process.startup import StartupComparison
    from model_profiling.analysis.sme2.forecast_record import Forecast
    from model_profiling.analysis.timing.latency import Comparison


class PlacedOperator(Protocol):
    """An operator of a list: its name, and what is known of where it stands ('' if it is not)."""

    @property
    def name(self) -> str: ...
    @property
    def module(self) -> str: ...
    @property
    def source_line(self) -> str: ...
    @property
    def instruction(self) -> int: ...


Placed = TypeVar("Placed", bound=PlacedOperator)


class BareOperator(NamedTuple):
    """An operator of which only a kernel trace tells."""

    name: str
    instruction: int
    module: str = ""
    source_line: str = ""


def unique_labels(operators: Iterable[PlacedOperator]) -> list[str]:
    """Return names of operators; where some share one, with the first of these that no other of that name has: its
    module, its line, both, the instruction of its delegate."""
    operators = list(operators)
    count = Counter(operator.name for operator in operators)
    places: list[list[str]] = []
    for each in operators:
        known = list(dict.fromkeys(filter(None, [each.module, each.source_line, source(each)])))
        places.append([*known, f"instruction {each.instruction}"] if count[each.name] > 1 else [])
    often = Counter((operator.name, place) for operator, own in zip(operators, places, strict=True) for place in own)
    return [
        f"{x.name} ({next((place for place in own if often[x.name, place] == 1), own[-1])})" if own else x.name
        for x, own in zip(operators, places, strict=True)
    ]


def labelled(operators: Sequence[Placed]) -> list[tuple[str, Placed]]:
    """Return operators with names that are told apart."""
    return list(zip(unique_labels(operators), operators, strict=True))


# So many places of several operators are said.
_MOST_PLACES = 2
# How it is known which operators SME2 runs.
EVIDENCE = {
    "table": "from the table of known kernels of its ExecuTorch",
    "emulated": "seen under emulation",
    "traced": "traced on a CPU that has SME2",
}
# What a forecast's times stand on.
BASIS = {"measured": "measured on this Arm CPU", "modelled": "modelled from the program"}
ADVICE_NOTE = "Shares are of this run; only measuring both programs tells what a change brings."
BUSY = "the machine was busy"


def comparison_sentence(comparison: Comparison, busy: bool = True) -> str:
    """Return `A is 1.42x faster than B (95 % interval 1.40 to 1.44)`, or that no difference was seen; and its caveats.

    `busy` is False where one line says of several comparisons that the machine was busy.
    """
    if comparison.contended and not busy:
        return f"{comparison.after} and {comparison.before}: not known"
    caveats = [] if comparison.contended or comparison.high is None else comparison.caveats
    return "; ".join([_verdict(comparison), *_launches(comparison), *caveats])


def busy_sentence(comparisons: Iterable[Comparison]) -> str:
    """Return the sentence for several comparisons at once; empty if none was disturbed."""
    comparisons = list(comparisons)
    disturbed = [f"{c.after} and {c.before}" for c in comparisons if c.contended]
    if not disturbed:
        return ""
    those = "" if len(disturbed) == len(comparisons) else f" ({'; '.join(disturbed)})"
    what = "the comparisons" if len(disturbed) > 1 else "the comparison"
    return f"the machine was busy: do not rely on {what}{those}; stop other work and measure again"


def _launches(comparison: Comparison) -> list[str]:
    """Say so where the interval rests on an assumption: too few launches show nothing of how launches differ."""
    if comparison.high is None or comparison.contended or comparison.launch_spread_percent is not None:
        return []
    count = "one launch" if comparison.launches == 1 else f"{comparison.launches} launches"
    return [f"{count} per side: the spread between launches is not known, {ASSUMED_SPREAD:.1%} is assumed"]


def _verdict(comparison: Comparison) -> str:
    confidence = f"{comparison.confidence * 100:g} % interval"
    pair = f"{comparison.after} and {comparison.before}"
    if comparison.high is None or comparison.contended:
        return f"{pair}: {', '.join(factor(comparison))}"
    if comparison.verdict == "no difference seen":
        bounds = f"{confidence} {comparison.low:.3f} to {comparison.high:.3f}"
        unseen = f"differences below {comparison.resolution_percent:.1f} % are not detectable in this run"
        return f"{pair}: no difference seen (ratio {comparison.ratio:.3f}, {bounds}; {unseen})"
    ratio, low, high = _as_said(comparison)
    bounds = f"{confidence} {low:.2f} to {high:.2f}"
    sentence = f"{comparison.after} is {ratio:.2f}x {comparison.verdict} than {comparison.before} ({bounds})"
    return sentence if comparison.paired else f"{sentence}; measured separately"


def startup_sentence(comparison: StartupComparison, busy: bool = True) -> str:
    """Return the time to the first result of two experiments, said as latency is."""
    found = comparison.first_result
    too_few = f"{found.after} and {found.before}: too few launches ({found.turns}) to compare"
    return f"time to the first result: {too_few if found.high is None else comparison_sentence(found, busy)}"


def drop_text(found: MetricValue) -> str:
    """Return `0.012 (0.004 to 0.02)`, or that it is within the noise of the samples."""
    if found.drop is None or found.low is None or found.high is None:
        return "-" if found.drop is None else f"{found.drop:.3g}"
    noise = "" if found.significant or not found.drop else ", not significant"
    return f"{found.drop:.3g} ({found.low:.3g} to {found.high:.3g}{noise})"


def metric_sentence(change: MetricChange, before: str = "before") -> str:
    """Return what the user's metric says of both sides, and by how much it is worse for the second."""
    after, worse = change.after, "grows" if change.lower_is_better else "drops"
    sides = f"{change.before:.4g} {before}, {after.value:.4g} now"
    return f"{change.name} {worse} by {drop_text(after)}: {sides}, {counted(change.samples, 'sample')}"


def memory_sentence(comparison: MemoryComparison) -> str:
    """Return how much more memory one of two experiments takes at its peak."""
    sides = f"{numbers.mebibytes(comparison.after_bytes)} against {numbers.mebibytes(comparison.before_bytes)}"
    pair = f"peak memory of {comparison.after} and {comparison.before}"
    low, high = comparison.low_percent, comparison.high_percent
    if low is None or high is None:
        count = "one process" if comparison.processes == 1 else f"{comparison.processes} processes"
        return f"{pair}: {sides}; {count} per side: too few for an interval"
    bounds = f"95 % interval {low:+.1f} to {high:+.1f} %"
    if low <= 0 <= high:
        return f"{pair}: no difference seen ({sides}, {bounds})"
    more = "above" if comparison.percent > 0 else "below"
    off = f"{abs(comparison.percent):.1f} % {more} that of {comparison.before}"
    return f"peak memory of {comparison.after} is {off} ({sides}, {bounds})"


def outputs_sentence(agreement: Agreement | None) -> str:
    """Return whether two versions computed the same; no outputs are no agreement."""
    return "unknown: none were kept" if agreement is None else agreement_sentence(agreement)


def kernels_sentence(comparison: KernelComparison) -> str:
    """Return which operators call other kernels, the first of them by name, or why nobody can tell."""
    if comparison.unknown or comparison.operators is None:
        return f"kernels: unknown: {comparison.unknown}"
    pair = f"{comparison.before} and {comparison.after}"
    if not comparison.changed:
        return f"kernels of {pair}: the same in all {comparison.operators} operators"
    names = unique_labels(BareOperator(change.operator, change.instruction) for change in comparison.changed)
    changes = [(" + ".join(c.before) or "none", " + ".join(c.after) or "none") for c in comparison.changed[:3]]
    shown = [f"{name} {before}, now {after}" for name, (before, after) in zip(names, changes, strict=False)]
    more = f"; and {len(comparison.changed) - 3} more" if len(comparison.changed) > 3 else ""
    count = f"{len(comparison.changed)} of {comparison.operators} operators"
    return f"kernels of {pair}: {count} call others: {'; '.join(shown)}{more}"


def growth_sentence(memory: Memory) -> str:
    """Return whether memory grows with inferences; '' where no process took turns enough to tell."""
    each = memory.growth_per_execution_bytes
    if each is None:
        return ""
    if memory.leak:
        return f"memory grows by {numbers.mebibytes(each)} with every inference: a leak"
    return f"memory does not grow with inferences ({memory.executions} in each process)"


_NUMBER = re.compile(r"[-+]?\d+(?:\.\d+)?")


def merge_sentences(said: Iterable[tuple[str, str]], ranges: bool = False) -> list[tuple[str, str]]:
    """Return what is said of several experiments, by name, once. With `ranges`, numbers that differ become a range:
    for measured numbers alone, never for a failure, whose numbers are signals, addresses and parts of paths."""
    groups: dict[str, list[tuple[str, str]]] = {}
    for name, sentence in said:
        groups.setdefault(_NUMBER.sub("#", sentence) if ranges else sentence, []).append((name, sentence))
    return [
        (", ".join(dict.fromkeys(name for name, _ in group)), _ranged([s for _, s in group]))
        for group in groups.values()
    ]


def _ranged(sentences: list[str]) -> str:
    """Merge sentences that differ only in their numbers into one."""
    columns = [sorted(set(column), key=float) for column in zip(*map(_NUMBER.findall, sentences), strict=True)]
    spans = iter([column[0] if len(column) == 1 else f"{column[0]} to {column[-1]}" for column in columns])
    return _NUMBER.sub(lambda _: next(spans), sentences[0])


def agreement_sentence(agreement: Agreement) -> str:
    """Return `on vs eager: max error 3.1e-04, cosine 0.999998`, and whatever makes these outputs not worth timing."""
    pair = f"{agreement.left} vs {agreement.right}"
    odd = "".join(f"; {remark}" for remark in agreement.remarks)
    if agreement.max_abs_error == 0:
        return f"{pair}: identical{odd}"
    differs = "; more than the dtype explains" if agreement.verdict == "differs" else ""
    if agreement.max_abs_error is None:
        return f"{pair}: {agreement.error_of_reference}, so there is no error to tell{differs}{odd}"
    sqnr = f", SQNR {agreement.sqnr_db:.1f} dB" if agreement.sqnr_db is not None else ""
    alone = agreement.dtype_sqnr_db
    # Worth its place where the dtype's own noise is what one sees.
    if sqnr and agreement.right == "eager" and alone is not None and alone < 40:
        sqnr += f" (the dtype alone: {alone:.1f} dB)"
    cosine = "unknown" if agreement.cosine is None else f"{agreement.cosine:.6f}"
    place = agreement.in_output if differs else ""
    return f"{pair}: max error {agreement.max_abs_error:.2g}, cosine {cosine}{sqnr}{place}{differs}{odd}"


def forecast_time(forecast: Forecast, ms: float) -> str:
    """Return a time of a forecast: in milliseconds if it is this machine's, else as part of the whole without SME2."""
    whole = forecast.now.predicted_ms
    return numbers.ms(ms) if forecast.basis == "measured" else numbers.share(ms / whole if whole else 0.0)


def operator_name(name: str, where: str, count: int = 1) -> str:
    """Return `16 x index.Tensor_out (portable)`; a single one without its number."""
    return f"{f'{count} x ' if count > 1 else ''}{name}{' (portable)' if where == 'portable' else ''}"


def bounded_factor(comparison: Comparison) -> tuple[str, str]:
    """Return how many times faster, and between which bounds, as short as it can be said."""
    if comparison.contended:
        return "not known", "(the machine was busy)"
    if comparison.high is None:
        return factor(comparison)[0], f"({_estimate(comparison)})"
    if comparison.verdict == "no difference seen":
        return comparison.verdict, f"({comparison.low:.2f} to {comparison.high:.2f})"
    ratio, low, high = _as_said(comparison)
    return f"{ratio:.2f}x {comparison.verdict}", f"({low:.2f} to {high:.2f})"


def predicted_factor(forecast: Forecast) -> tuple[str, str]:
    """Return `2.2x` and `faster, predicted (2.1 to 2.2, as on Apple M4)`; below 1 the other way round, and slower."""
    bounds, gain, way = forecast.speedup_range, forecast.ratio, "faster"
    if round(gain, 1) < 1:
        bounds, gain, way = bounds and (1 / bounds[1], 1 / bounds[0]), 1 / gain, "slower"
    said = [f"{bounds[0]:.1f} to {bounds[1]:.1f}"] if bounds else []
    said += [f"as on {forecast.target.partition(',')[0]}"] if forecast.target else []
    said += [BASIS[forecast.basis]] if forecast.basis == "modelled" else []
    what = f"{way}, predicted" if round(gain, 1) != 1 else "no gain, predicted"
    return f"{gain:.1f}x", f"{what} ({', '.join(said)})" if said else what


def factor(comparison: Comparison) -> tuple[str, str]:
    """Return how many times faster, and its interval with what a reader must know of it."""
    interval = f"{comparison.confidence * 100:g} % interval"
    if comparison.contended and comparison.high is not None:
        return "not known", "; ".join([BUSY, *comparison.caveats])
    if comparison.high is None:
        way, times = ("faster", comparison.ratio) if comparison.ratio >= 1 else ("slower", 1 / comparison.ratio)
        return f"about {times:.2f}x {way}", "; ".join([_estimate(comparison), "run more", *comparison.caveats])
    ratio, low, high = _as_said(comparison)
    value, notes = f"{ratio:.2f}x {comparison.verdict}", [f"{interval} {low:.2f} to {high:.2f}"]
    if comparison.verdict == "no difference seen":
        unseen = f"differences below {comparison.resolution_percent:.1f} % are not detectable"
        value, notes = "no difference", [f"{interval} {low:.3f} to {high:.3f}", unseen]
    notes += ["measured separately"] if not comparison.paired else []
    return value, "; ".join([*notes, *_launches(comparison), *comparison.caveats])


def _estimate(comparison: Comparison) -> str:
    """Return how sure one may be of what too few turns show."""
    if comparison.estimate is None:
        return f"too few turns ({comparison.turns}) to say how sure"
    low, high = comparison.estimate if comparison.ratio >= 1 else (1 / value for value in comparison.estimate[::-1])
    return f"{low:.2f} to {high:.2f}, estimated from {counted(comparison.turns, 'turn')}"


def _as_said(comparison: Comparison) -> tuple[float, float, float]:
    """Return the ratio and its bounds in the direction of the verdict: twice slower, not 0.5 times faster."""
    ratio, low, high = comparison.ratio, comparison.low, comparison.high or comparison.ratio
    return (1 / ratio, 1 / high, 1 / low) if comparison.verdict == "slower" else (ratio, low, high)


def source(entry: PlacedOperator | None) -> str:
    """Return where in PyTorch an operator comes from: module and line, as far as they are known."""
    return " ".join(part for part in (entry.module, entry.source_line) if part) if entry is not None else ""


def some(texts: Iterable[str]) -> str:
    """Return the first of several texts, and how many more there are."""
    found = list(dict.fromkeys(text for text in texts if text))
    more = f" and {len(found) - _MOST_PLACES} more" if len(found) > _MOST_PLACES else ""
    return ", ".join(found[:_MOST_PLACES]) + more
