"""A forecast: what SME2 would change, from times measured without it and the kernels that a CPU with it chooses.

Which operators SME2 takes is in the table of known kernels, or an emulated run shows it. How much faster each becomes
follows from its dtype and shape on a target; or the user assumes it, and every assumption gets its own prediction.
"""

import operator
from collections.abc import Callable, Sequence
from typing import Any

import msgspec

from model_profiling.analysis.sme2.coverage import Coverage, CoveredOperator
from model_profiling.analysis.sme2.forecast_record import Evidence, Forecast, PredictedOperator, RemainingOperator
from model_profiling.analysis.sme2.gains import Gain
from model_profiling.analysis.sme2.target import FP16_OVER_FP32, I8MM_OVER_DOT, AnyTarget, rate_dtype
from model_profiling.analysis.sme2.whatif import Prediction, apply_speedups
from model_profiling.analysis.timing.breakdown import Breakdown, InstanceTime
from model_profiling.analysis.timing.work import Work
from model_profiling.base.errors import InputError
from model_profiling.base.units import counted, shown_ms
from model_profiling.store.run_directory import ExperimentRecord


def as_programmed(breakdown: Breakdown) -> Breakdown:
    """Return a breakdown in which operators that had to be widened to fp32 are fp16, as with SME2."""
    instances = [
        msgspec.structs.replace(entry, work=_narrowed(entry.work)) if _was_widened(entry) else entry
        for entry in breakdown.instances
    ]
    return msgspec.structs.replace(breakdown, instances=instances)


def _was_widened(entry: InstanceTime) -> bool:
    return entry.work is not None and bool(entry.work.program_element)


def _narrowed(work: Work | None) -> Work | None:
    """Return the work of an operator that was computed in fp32, in the program's fp16: half the bytes."""
    if work is None:
        return None
    weights, read, written = (size // 2 for size in (work.weight_bytes, work.read_bytes, work.written_bytes))
    return msgspec.structs.replace(
        work, element=work.program_element, weight_bytes=weights, read_bytes=read, written_bytes=written
    )


class Sides:
    """A measured breakdown, and which of its operators SME2 takes by some evidence."""

    def __init__(
        self, name: str, breakdown: Breakdown, coverage: Coverage, notes: list[str], evidence: Evidence = "emulated"
    ) -> None:
        self.name, self.breakdown, self.evidence = name, breakdown, evidence
        unknown = [entry for entry in coverage.operators if entry.level == "unknown"]
        self.notes = [*notes, *([_unknown_kernels(unknown)] if unknown else [])]
        self.eligible = [entry for entry in breakdown.instances if entry.category in ("CONV", "GEMM")]
        ours = [(entry.instruction, entry.category, entry.kind) for entry in self.eligible]
        if ours != [(x.instruction, x.category, x.kind) for x in coverage.operators]:
            raise InputError(
                f"the runs are of different models: {len(ours)} CONV and GEMM operators measured in {name}, "
                f"{len(coverage.operators)} emulated, or in another order",
                "Make the second run from the .pte of the first: sme2-kit kernels MODEL.pte",
            )
        both = list(zip(self.eligible, coverage.operators, strict=True))
        self.taken = {id(entry): entry for entry, other in both if other.level == "SME2"}
        self.why_not = {id(entry): other.why_not for entry, other in both}

    def forecast(self, predictions: list[Prediction], notes: Sequence[str] = (), **more: Any) -> Forecast:
        left = [
            RemainingOperator(
                *(x.name, x.category, x.kind, x.instruction, x.ms, self.why_not.get(id(x), "")),
                module=x.module,
                source_line=x.source_line,
            )
            for x in self.breakdown.instances
            if id(x) not in self.taken
        ]
        return Forecast(
            experiment=self.name,
            eligible=len(self.eligible),
            on_sme2=len(self.taken),
            on_sme2_ms=sum(entry.ms for entry in self.taken.values()),
            now=apply_speedups(self.breakdown, {}, lambda _: 1.0),
            predictions=predictions,
            left=sorted(left, key=lambda entry: -entry.ms),
            notes=[*self.notes, *notes],
            evidence=self.evidence,
            **more,
        )


def assumed_forecast(sides: Sides, speedups: tuple[float, ...]) -> Forecast:
    """Return one prediction for each speedup that the user assumes of all operators that SME2 takes."""

    def assume(speedup: float) -> Prediction:
        found = apply_speedups(sides.breakdown, {"SME2": speedup}, lambda x: speedup if id(x) in sides.taken else 1.0)
        return msgspec.structs.replace(found, name=f"SME2 {speedup:g}x")

    return sides.forecast([assume(speedup) for speedup in speedups], _none_note(sides))


def derived_forecast(sides: Sides, target: AnyTarget, record: ExperimentRecord) -> Forecast:
    """Return the prediction that follows from each operator's dtype and shape on a target."""
    target.refuse({dtype for entry in sides.taken.values() if (dtype := rate_dtype(entry.work))})
    known = {key: target.gain(entry, record.threads) for key, entry in sides.taken.items()}
    unknown = [sides.taken[key] for key, gain in known.items() if gain is None]
    if unknown and len(unknown) == len(known):
        raise InputError(
            f"{_why_unknown(unknown[0], target)}: nothing can be predicted of {sides.name}",
            "Put the .pte back where it was measured, use another --target, or assume a gain with --speedup.",
        )
    gains = {
        key: gain or Gain(1.0, 1.0, 1.0, f"{_why_unknown(sides.taken[key], target)}; taken as unchanged")
        for key, gain in known.items()
    }
    before = {id(x): _neon_step(x, record) for x in sides.eligible}

    def predicted(gain_of: Callable[[Gain], float]) -> Prediction:
        def faster(entry: InstanceTime) -> float:
            gain = gains.get(id(entry))
            return before.get(id(entry), 1.0) * (gain_of(gain) if gain is not None else 1.0)

        return apply_speedups(sides.breakdown, {}, faster)

    expected, slow, fast = (predicted(choose) for choose in (_TIMES, _LOW, _HIGH))
    on_sme2 = sum(x.ms / before[key] / gains[key].times for key, x in sides.taken.items())
    whole = sum(x.ms / before[key] for key, x in sides.taken.items())
    without = apply_speedups(sides.breakdown, {}, lambda entry: before.get(id(entry), 1.0))
    steps = any(step != 1 for step in before.values())
    return sides.forecast(
        [
            msgspec.structs.replace(
                expected,
                name=f"SME2 as on {target.cpu}",
                speedups={"SME2": whole / on_sme2} if on_sme2 else {},
                low_ms=fast.predicted_ms,
                high_ms=slow.predicted_ms,
            )
        ],
        [*_none_note(sides), *_unknown_note(unknown)],
        target=target.cpu,
        without=msgspec.structs.replace(without, name="a CPU like it, without SME2") if steps else None,
        operators=sorted(
            (_operator(x, gains[key], before[key]) for key, x in sides.taken.items()), key=lambda entry: -entry.ms
        ),
    )


def _unknown_kernels(operators: list[CoveredOperator]) -> str:
    whether = counted(len(operators), "operator")
    return f"whether SME2 runs {whether} is not known, taken as unchanged: {operators[0].why_not}"


def _none_note(sides: Sides) -> list[str]:
    if sides.taken:
        return []
    none = f"none of {counted(len(sides.eligible), 'CONV and GEMM operator')} has an SME2 kernel"
    return [f"{none if sides.eligible else 'there is no CONV or GEMM operator'}: nothing becomes faster by SME2"]


def _unknown_note(unknown: list[InstanceTime]) -> list[str]:
    if not unknown:
        return []
    time = shown_ms(sum(entry.ms for entry in unknown))
    return [f"the gain of {counted(len(unknown), 'operator')} that SME2 runs ({time}) is not known: taken as unchanged"]


def _why_unknown(entry: InstanceTime, target: AnyTarget) -> str:
    if entry.work is None:
        return f"the shape of {entry.name} is not known (its .pte is not there, has changed, or is dynamic)"
    return f"what {target.cpu} gains on {entry.name} is not known"


_TIMES, _LOW, _HIGH = (operator.attrgetter(name) for name in ("times", "low", "high"))


def _neon_step(entry: InstanceTime, record: ExperimentRecord) -> float:
    """Return how much faster a CPU with SME2 is without using it: it has fp16 arithmetic and i8mm."""
    features = record.features
    if _was_widened(entry):
        return FP16_OVER_FP32
    if features is None or features.arch != "aarch64" or entry.work is None or entry.kind == "depthwise":
        return 1.0
    dot = "dot" in features.active and "i8mm" not in features.active
    return I8MM_OVER_DOT if dot and entry.where == "delegated" and entry.work.element in _INT8 else 1.0


_INT8 = ("qint8", "quint8", "qdint8", "qpint8")


def _operator(entry: InstanceTime, gain: Gain, before: float) -> PredictedOperator:
    ms = entry.ms / before
    low, high = ms / gain.high, ms / gain.low
    first = ""
    if before != 1:
        first = f"{before:g}x of it without SME2, by {'fp16' if _was_widened(entry) else 'i8mm'}; "
    return PredictedOperator(
        name=entry.name,
        category=entry.category,
        kind=entry.kind,
        instruction=entry.instruction,
        ms=entry.ms,
        predicted_ms=ms / gain.times,
        low_ms=low,
        high_ms=high,
        times=before * gain.times,
        why=f"{first}{gain.why}",
        module=entry.module,
        source_line=entry.source_line,
    )
