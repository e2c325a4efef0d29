"""What switching features gains, operator by operator, from the roofs measured with them off and on. All predicted.

Off and on were measured on the same probes. So each probe has a gain, and an operator gets that of the probes nearest
to it in kind and shape; how much those disagree is how sure the gain is.
"""

import math
from collections.abc import Sequence

import msgspec

from model_profiling.analysis.roofs.roof_rates import Measurement, ProbeResult, Rates, nearest, place
from model_profiling.analysis.timing.breakdown import Breakdown, InstanceTime
from model_profiling.analysis.timing.work import Work

_GONE = "the conversion goes: nothing has to be widened"


class Gain(msgspec.Struct, frozen=True):
    """How many times faster one operator becomes, the range of that, and why. Infinite where the operator goes."""

    times: float
    low: float
    high: float
    why: str


def unchanged(why: str) -> Gain:
    """Return the gain of an operator that takes as long as before."""
    return Gain(1.0, 1.0, 1.0, why)


class Switch:
    """Two measurements of the same probes, that differ in what was switched."""

    def __init__(self, off: Measurement, on: Measurement) -> None:
        self.off, self.on = Rates(off), Rates(on)
        self.switched = sorted(set(on.active) ^ set(off.active))

    def gains(self, breakdown: Breakdown) -> list[Gain]:
        """Return the gain of every row of a breakdown measured with the features off."""
        # Where an operator that had to be computed in fp32 is computed in the program's fp16 when on.
        worked = [(entry, entry.work) for entry in breakdown.instances if entry.work is not None]
        narrowed = {
            entry.instruction
            for entry, work in worked
            if work.program_element and self._element(entry.kind, work.element) == work.program_element
        }
        return [self._gain(entry, entry.instruction in narrowed) for entry in breakdown.instances]

    def _element(self, kind: str, element: str) -> str:
        """Return what is computed when on of what was widened when off: the same, unless no probe does any more."""
        elements = self.on.elements(kind)
        return element if element in elements or not elements else elements[0]

    def _gain(self, entry: InstanceTime, narrowed: bool) -> Gain:
        if entry.where == "runtime":
            return unchanged("ExecuTorch's own time stays")
        if entry.where == "portable":
            return unchanged("a portable kernel: nothing is switched in it")
        if entry.work is None:
            if entry.kind == "convert" and narrowed:
                return Gain(math.inf, math.inf, math.inf, _GONE)
            return self._of_kind(entry, narrowed)
        gain = self.of_probes(entry.kind, entry.work, entry.operator)
        return gain or unchanged(f"not known: no {entry.kind} was probed")

    def _of_kind(self, entry: InstanceTime, narrowed: bool) -> Gain:
        """Return what all probes of a kind gained, where the .pte does not tell an operator's shape."""
        for element in self.off.elements(entry.kind):
            off = [(1.0, probed) for probed in self.off.probes(entry.kind, element)]
            pairs = self._paired(entry.kind, self._element(entry.kind, element), off)
            if pairs and (not narrowed or element == "fp32"):
                why = "as probes of its kind gain: its shape is not known"
                return msgspec.structs.replace(mean_gain(pairs), why=why)
        return unchanged("not known: the .pte does not tell its work")

    def of_probes(self, kind: str, work: Work, operator: str = "") -> Gain | None:
        """Return what the nearest probes of an operator gained, or of its kind; None if there are none."""
        # What the program itself has in fp32 stays so.
        on = self._element(kind, work.element) if work.program_element else work.element
        pairs = self._paired(kind, on, nearest(self.off.probes(kind, work.element, operator), work))
        return mean_gain(pairs) if pairs else None

    def _paired(
        self, kind: str, element: str, off: Sequence[tuple[float, ProbeResult]]
    ) -> list[tuple[float, ProbeResult, ProbeResult]]:
        """Return probes with the features off, each with what it counts, and the same with them on, in `element`."""
        on = {_shape(probed): probed for probed in self.on.probes(kind, element)}
        return [(share, probed, on[_shape(probed)]) for share, probed in off if _shape(probed) in on]


def _shape(probed: ProbeResult) -> tuple[str, tuple[float, ...]]:
    # Off and on name an operator by its type; what stands before that is the same.
    return probed.operator.partition(" (")[0], tuple(round(size, 1) for size in place(probed.work))


def mean_gain(pairs: Sequence[tuple[float, ProbeResult, ProbeResult]]) -> Gain:
    """Return the mean gain of some probes, in logarithms, and how far they are from it."""
    whole = sum(share for share, _, _ in pairs)
    gains = [(share / whole, math.log(off.best_ms / on.best_ms)) for share, off, on in pairs]
    mean = sum(share * gain for share, gain in gains)
    spread = math.sqrt(sum(share * (gain - mean) ** 2 for share, gain in gains))
    shape = pairs[0][1].work.size
    return Gain(math.exp(mean), math.exp(mean - spread), math.exp(mean + spread), f"as a probe of {shape} gains")
