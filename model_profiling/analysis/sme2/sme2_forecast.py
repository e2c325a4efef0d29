"""A forecast: what SME2 would change, from times measured without it and the kernels that a CPU with it chooses.

Which operators SME2 takes is in the table of known kernels, or an emulated run shows it. How much faster each becomes
follows from its dtype and shape on a target; or the user assumes it, and every assumption gets its own prediction.
"""

import itertools
from collections.abc import Sequence
from typing import Any

import msgspec

from model_profiling.analysis.sme2.core_prices import I8MM_OVER_DOT, CorePrices, gains_by_i8mm
from model_profiling.analysis.sme2.coverage import Coverage
from model_profiling.analysis.sme2.forecast_record import Evidence, Forecast, PredictedOperator, RemainingOperator
from model_profiling.analysis.sme2.gains import Gain, unchanged
from model_profiling.analysis.sme2.kernel_assignment import ELIGIBLE
from model_profiling.analysis.sme2.kernel_table import Cpu
from model_profiling.analysis.sme2.target import FP16_OVER_FP32, AnyTarget, rate_dtype
from model_profiling.analysis.sme2.whatif import Prediction, apply_speedups
from model_profiling.analysis.timing.breakdown import Breakdown, InstanceTime
from model_profiling.analysis.timing.work import Work
from model_profiling.base.errors import InputError
from model_profiling.base.records import record_of
from model_profiling.base.units import counted, shown_ms
from model_profiling.store.run_directory import ExperimentRecord


def as_programmed(breakdown: Breakdown) -> Breakdown:
    """Return a breakdown in which operators that had to be widened to fp32 are fp16, as with SME2: half the bytes."""

    def narrowed(work: Work) -> Work:
        sizes = {name: getattr(work, name) // 2 for name in ("weight_bytes", "read_bytes", "written_bytes")}
        return msgspec.structs.replace(work, element=work.program_element, **sizes)

    instances = [
        msgspec.structs.replace(x, work=narrowed(x.work)) if x.work is not None and x.work.program_element else x
        for x in breakdown.instances
    ]
    return msgspec.structs.replace(breakdown, instances=instances)


class Sides:
    """A measured breakdown, and which of its operators, by row, SME2 takes by some evidence."""

    def __init__(
        self,
        name: str,
        breakdown: Breakdown,
        coverage: Coverage,
        notes: list[str],
        evidence: Evidence = "emulated",
        core: CorePrices | None = None,
        cpu: Cpu = "sme2",
    ) -> None:
        self.name, self.breakdown, self.rows = name, breakdown, breakdown.instances
        self.evidence, self.core, self.notes = evidence, core, [*notes]
        self.eligible = [row for row, entry in enumerate(self.rows) if entry.category in ELIGIBLE]
        if not coverage.is_of([self.rows[row] for row in self.eligible]):
            raise InputError(
                f"the runs are of different models: {len(self.eligible)} CONV and GEMM operators measured in {name}, "
                f"{len(coverage.operators)} emulated, or in another order",
                "Make the second run from the .pte of the first: sme2-kit kernels MODEL.pte",
            )
        if unknown := [entry for entry in coverage.operators if entry.level == "unknown"]:
            whether = f"whether SME2 runs {counted(len(unknown), 'operator')} is not known, taken as unchanged"
            self.notes.append(f"{whether}: {unknown[0].why_not}")
        level = "SME" if cpu == "sme1" else "SME2"
        both = list(zip(self.eligible, coverage.operators, strict=True))
        self.taken = [row for row, other in both if other.level == level]
        self.why_not = {row: other.why_not for row, other in both}
        if not self.taken:
            none = f"none of {counted(len(self.eligible), 'CONV and GEMM operator')} has an SME2 kernel"
            none = none if self.eligible else "there is no CONV or GEMM operator"
            self.notes.append(f"{none}: nothing becomes faster by SME2")

    def faster(self, by_row: dict[int, float]) -> list[float]:
        """Return how many times faster each operator becomes: 1 where nothing is said of it."""
        return [by_row.get(row, 1.0) for row in range(len(self.rows))]

    def forecast(self, predictions: list[Prediction], notes: Sequence[str] = (), **more: Any) -> Forecast:
        rest = [(row, x) for row, x in enumerate(self.rows) if row not in {*self.taken}]
        left = [record_of(RemainingOperator, x, why_not=self.why_not.get(row, "")) for row, x in rest]
        found = Forecast(
            experiment=self.name,
            eligible=len(self.eligible),
            on_sme2=len(self.taken),
            on_sme2_ms=sum(self.rows[row].ms for row in self.taken),
            now=apply_speedups(self.breakdown, {}, self.faster({})),
            predictions=predictions,
            left=sorted(left, key=lambda entry: -entry.ms),
            notes=[*self.notes, *notes],
            evidence=self.evidence,
            basis="measured" if self.core is None else "modelled",
            core="" if self.core is None else self.core.cpu,
            **more,
        )
        return msgspec.structs.replace(found, ratio=found.speedups[-1])


def assumed_forecast(sides: Sides, speedups: tuple[float, ...]) -> Forecast:
    """Return one prediction for each speedup that the user assumes of all operators that SME2 takes."""

    def assume(speedup: float) -> Prediction:
        faster = sides.faster(dict.fromkeys(sides.taken, speedup))
        found = apply_speedups(sides.breakdown, {"SME2": speedup}, faster)
        return msgspec.structs.replace(found, name=f"SME2 {speedup:g}x")

    return sides.forecast([assume(speedup) for speedup in speedups])


def derived_forecast(sides: Sides, target: AnyTarget, record: ExperimentRecord) -> Forecast:
    """Return the prediction that follows from each operator's dtype and shape on a target."""
    rows = sides.rows
    target.refuse({dtype for row in sides.taken if (dtype := rate_dtype(rows[row].work))})
    known = {row: target.gain(rows[row], record.threads) for row in sides.taken}
    unknown = [rows[row] for row, gain in known.items() if gain is None]
    if unknown and len(unknown) == len(known):
        raise InputError(
            f"{_why_unknown(unknown[0], target)}: nothing can be predicted of {sides.name}",
            "Put the .pte back where it was measured, use another --target, or assume a gain with --speedup.",
        )
    gains = {
        row: gain or unchanged(f"{_why_unknown(rows[row], target)}; taken as unchanged") for row, gain in known.items()
    }
    before = sides.faster({row: _neon_step(rows[row], record) for row in sides.eligible} if sides.core is None else {})

    def faster(end: str) -> list[float]:
        return [step * (getattr(gains[row], end) if row in gains else 1.0) for row, step in enumerate(before)]

    def ratio(end: str, rest: float) -> float:
        """Return what the whole gains if all that is no product took `rest` of its time."""
        times = [entry.ms * (1.0 if entry.category in ELIGIBLE else rest) for entry in rows]
        off = sum(ms / step for ms, step in zip(times, before, strict=True))
        return off / (sum(ms / by for ms, by in zip(times, faster(end), strict=True)) or 1.0) if off else 1.0

    # What all that is no product takes on the target, as parts of what it takes in the breakdown. What is not known of
    # the gains and of the rest is not known together.
    (low, high), core = target.rest, sides.core
    rests = (low, 1.0, high) if core is None else (low * core.rest_low, 1.0, high * core.rest_high)
    ends = [ratio(end, rest) for end, rest in itertools.product(("low", "times", "high"), rests)]
    on_sme2 = sum(rows[row].ms / before[row] / gain.times for row, gain in gains.items())
    whole = sum(rows[row].ms / before[row] for row in gains)
    without = apply_speedups(sides.breakdown, {}, before)
    expected = msgspec.structs.replace(
        apply_speedups(sides.breakdown, {"SME2": whole / on_sme2} if on_sme2 else {}, faster("times")),
        name=f"SME2 as on {target.cpu}",
        low_ms=without.predicted_ms / max(ends),
        high_ms=without.predicted_ms / min(ends),
    )
    notes = []
    if unknown:
        ms = sum(entry.ms for entry in unknown)
        time = shown_ms(ms) if core is None else f"{ms / sides.breakdown.execute_ms:.0%} of the time"
        several = counted(len(unknown), "operator")
        notes = [f"the gain of {several} that SME2 runs ({time}) is not known: taken as unchanged"]
    steps = any(step != 1 for step in before)
    operators = [_operator(rows[row], gain, before[row]) for row, gain in gains.items()]
    return sides.forecast(
        [expected],
        notes,
        target=target.cpu,
        without=msgspec.structs.replace(without, name="a CPU like it, without SME2") if steps else None,
        operators=sorted(operators, key=lambda entry: -entry.ms),
        ratio_low=min(ends),
        ratio_high=max(ends),
    )


def _why_unknown(entry: InstanceTime, target: AnyTarget) -> str:
    if entry.work is None:
        return f"the shape of {entry.name} is not known (its .pte is not there, has changed, or is dynamic)"
    return f"what {target.cpu} gains on {entry.name} is not known"


def _neon_step(entry: InstanceTime, record: ExperimentRecord) -> float:
    """Return how much faster a CPU with SME2 is without using it: it has fp16 arithmetic and i8mm."""
    features = record.features
    if entry.work is not None and entry.work.program_element:
        return FP16_OVER_FP32
    if features is None or features.arch != "aarch64" or not gains_by_i8mm(entry):
        return 1.0
    return I8MM_OVER_DOT if "dot" in features.active and "i8mm" not in features.active else 1.0


def _operator(entry: InstanceTime, gain: Gain, before: float) -> PredictedOperator:
    ms, by = entry.ms / before, "fp16" if entry.work is not None and entry.work.program_element else "i8mm"
    first = f"{before:g}x of it without SME2, by {by}; " if before != 1 else ""
    times = {"predicted_ms": ms / gain.times, "low_ms": ms / gain.high, "high_ms": ms / gain.low}
    return record_of(PredictedOperator, entry, **times, times=before * gain.times, why=f"{first}{gain.why}")
