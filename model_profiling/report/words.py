"""The sentences every report uses, so that each says the same of the same numbers."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable
from typing import TYPE_CHECKING, NamedTuple, Protocol

from model_profiling.analysis.timing.intervals import ASSUMED_SPREAD
from model_profiling.report import numbers

if TYPE_CHECKING:
    from model_profiling.analysis.accuracy.agreement import Agreement
    from model_profiling.analysis.compare.kernel_changes import KernelComparison
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
    places = [_places(operator) if count[operator.name] > 1 else [] for operator in operators]
    often = Counter((operator.name, place) for operator, own in zip(operators, places, strict=True) for place in own)
    return [
        f"{x.name} ({next((place for place in own if often[x.name, place] == 1), own[-1])})" if own else x.name
        for x, own in zip(operators, places, strict=True)
    ]


def _places(operator: PlacedOperator) -> list[str]:
    known = [operator.module, operator.source_line]
    return [*filter(None, [*known, " ".join(known) if all(known) else ""]), f"instruction {operator.instruction}"]


# How it is known which operators SME2 runs.
EVIDENCE = {
    "table": "from the table of known kernels of its ExecuTorch",
    "emulated": "seen under emulation",
    "traced": "traced on a CPU that has SME2",
}
SME2_TITLE = "What SME2 does for this model"
ADVICE_NOTE = "Shares are of the time of this run: what a change brings, only measuring both programs tells."
BUSY = "measured on a busy machine, do not rely on it"


def comparison_sentence(comparison: Comparison, busy: bool = True) -> str:
    """Return `A is 1.42x faster than B (95 % interval 1.40 to 1.44)`, or that no difference was seen; and its caveats.

    `busy` is False where one line says of several comparisons that the machine was busy.
    """
    disturbed = [BUSY] if busy and comparison.contended and comparison.high is not None else []
    return "; ".join([_verdict(comparison), *disturbed, *_launches(comparison), *comparison.caveats])


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
    if comparison.high is None or comparison.launch_spread_percent is not None:
        return []
    count = "one launch" if comparison.launches == 1 else f"{comparison.launches} launches"
    return [f"{count} per side: the spread between launches is not known, {ASSUMED_SPREAD:.1%} is assumed"]


def _verdict(comparison: Comparison) -> str:
    confidence = f"{comparison.confidence * 100:g} % interval"
    pair = f"{comparison.after} and {comparison.before}"
    if comparison.high is None:
        return f"{pair}: too few turns ({comparison.turns}) to compare; run more"
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
    if found.high is None:
        said = f"{found.after} and {found.before}: too few launches ({found.turns}) to compare"
    else:
        said = comparison_sentence(found, busy)
    return f"time to the first result: {said}"


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
    changes = list(zip(names, comparison.changed, strict=True))[:3]
    shown = [f"{name} {_kernel_names(c.before)}, now {_kernel_names(c.after)}" for name, c in changes]
    more = f"; and {len(comparison.changed) - 3} more" if len(comparison.changed) > 3 else ""
    count = f"{len(comparison.changed)} of {comparison.operators} operators"
    return f"kernels of {pair}: {count} call others: {'; '.join(shown)}{more}"


def _kernel_names(kernels: list[str]) -> str:
    return " + ".join(kernels) or "none"


def growth_sentence(memory: Memory) -> str:
    """Return whether memory grows with inferences; '' where no process took turns enough to tell."""
    each = memory.growth_per_execution_bytes
    if each is None:
        return ""
    if memory.leak:
        return f"memory grows by {numbers.mebibytes(each)} with every inference: a leak"
    return f"memory does not grow with inferences ({memory.executions} in each process)"


def with_cost(title: str, measured: str) -> str:
    """Return the title of a finding; of start-up or memory with what was measured."""
    return f"{title} ({measured})" if measured else title


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
    numbers = [sorted(set(column), key=float) for column in zip(*map(_NUMBER.findall, sentences), strict=True)]
    spans = iter([_span(column[0], column[-1]) for column in numbers])
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
    sqnr += (
        f" (the dtype alone: {alone:.1f} dB)"
        if sqnr and agreement.right == "eager" and alone is not None and alone < 40
        else ""
    )
    cosine = "unknown" if agreement.cosine is None else f"{agreement.cosine:.6f}"
    return f"{pair}: max error {agreement.max_abs_error:.2g}, cosine {cosine}{sqnr}{differs}{odd}"


def forecast_sentence(forecast: Forecast) -> str:
    """Return what SME2 would change on its target, or under the mildest and the boldest assumption: a prediction."""
    if not forecast.on_sme2:
        none = f"none of the {forecast.eligible} CONV and GEMM operators" if forecast.eligible else "no operator"
        return f"Prediction: SME2 would run {none}, so nothing becomes faster by it (1.00x)."
    if forecast.target:
        return _on_target(forecast)
    now, least, most = forecast.now, forecast.predictions[0], forecast.predictions[-1]
    grown = max(now.shares, key=lambda name: most.shares[name] - now.shares[name])
    assumed = _span(f"{least.speedups['SME2']:g}x", f"{most.speedups['SME2']:g}x")
    gain = _span(f"{least.ratio:.1f}x", f"{most.ratio:.1f}x")
    share = _span(f"{least.shares[grown]:.0%}", f"{most.shares[grown]:.0%}")
    return (
        f"Prediction: if SME2 made the {forecast.on_sme2} operators that it runs {assumed} faster, the whole would be "
        f"{gain} faster, and {grown} would take {share} of the time instead of {now.shares[grown]:.0%}."
    )


def _on_target(forecast: Forecast) -> str:
    before, after = forecast.without or forecast.now, forecast.predictions[-1]
    grown = max(before.shares, key=lambda name: after.shares[name] - before.shares[name])
    bounds = forecast.speedup_range
    told = f" ({bounds[0]:.1f}x to {bounds[1]:.1f}x)" if bounds else ""
    return (
        f"Prediction: SME2 as on {forecast.target} would run {forecast.on_sme2} operators and make the whole "
        f"{forecast.speedups[-1]:.1f}x faster{told}; {grown} would take {after.shares[grown]:.0%} of the time instead "
        f"of {before.shares[grown]:.0%}."
    )


def _span(low: str, high: str) -> str:
    return low if low == high else f"{low} to {high}"


def located_name(name: str, where: str) -> str:
    return f"{name} (portable)" if where == "portable" else name


def counted_name(count: int, name: str) -> str:
    """Return `16 x index.Tensor_out`; a single one by its name alone."""
    return f"{count} x {name}" if count > 1 else name


def factor(comparison: Comparison) -> tuple[str, str]:
    """Return how many times faster, and its interval with what a reader must know of it."""
    interval = f"{comparison.confidence * 100:g} % interval"
    if comparison.high is None:
        return "not known", "; ".join([f"too few turns ({comparison.turns}) to compare; run more", *comparison.caveats])
    if comparison.verdict == "no difference seen":
        unseen = f"differences below {comparison.resolution_percent:.1f} % are not detectable"
        value, notes = "no difference", [f"{interval} {comparison.low:.3f} to {comparison.high:.3f}", unseen]
    else:
        ratio, low, high = _as_said(comparison)
        value, notes = f"{ratio:.2f}x {comparison.verdict}", [f"{interval} {low:.2f} to {high:.2f}"]
    notes += ["measured separately"] if not comparison.paired else []
    notes += [BUSY] if comparison.contended else []
    return value, "; ".join([*notes, *_launches(comparison), *comparison.caveats])


def _as_said(comparison: Comparison) -> tuple[float, float, float]:
    """Return the ratio and its bounds in the direction of the verdict: twice slower, not 0.5 times faster."""
    ratio, low, high = comparison.ratio, comparison.low, comparison.high or comparison.ratio
    return (1 / ratio, 1 / high, 1 / low) if comparison.verdict == "slower" else (ratio, low, high)
