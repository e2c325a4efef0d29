"""A forecast: what SME2 would change, from times measured without it and the kernels an emulated CPU chose with it.

Which operators SME2 takes is known, because the emulated run shows their kernels. How much faster they become is not:
it is assumed, and every assumption gets its own prediction.
"""

from typing import TYPE_CHECKING, Literal

import msgspec

from model_profiling.analysis.breakdown import Breakdown
from model_profiling.analysis.coverage import Coverage
from model_profiling.analysis.dumps import AnalysisSummary
from model_profiling.analysis.whatif import Prediction, sped_up
from model_profiling.errors import InputError
from model_profiling.run_directory import ExperimentRecord, Manifest

if TYPE_CHECKING:
    from model_profiling.analysis.run_view import RunView

# What SME2 has been seen to bring to convolutions and matrix multiplications, and something in between.
ASSUMED = (3.0, 8.0, 15.0)


class RemainingOperator(msgspec.Struct, frozen=True):
    """An operator that SME2 leaves as it is; `why_not` is said of those that it might have taken."""

    name: str
    category: str
    kind: str
    instruction: int
    ms: float
    why_not: str


class Forecast(msgspec.Struct, frozen=True):
    """One experiment's time if SME2 took the operators it takes under emulation, which need `on_sme2_ms` now."""

    experiment: str
    eligible: int
    on_sme2: int
    on_sme2_ms: float
    now: Prediction
    predictions: list[Prediction]
    left: list[RemainingOperator]
    notes: list[str]
    label: Literal["prediction"] = "prediction"

    @property
    def share(self) -> float:
        """Which part of the time is in the operators that SME2 takes."""
        return self.on_sme2_ms / self.now.execute_ms if self.now.execute_ms else 0.0

    @property
    def columns(self) -> list[str]:
        """What to call `now` and each prediction."""
        return ["now", *(f"SME2 {prediction.speedups['SME2']:g}x" for prediction in self.predictions)]


def forecasts(
    measured: "RunView",
    emulated: "RunView",
    speedups: tuple[float, ...] = ASSUMED,
) -> list[Forecast]:
    """A forecast of what was measured without SME2 and with all else on."""
    manifest, summary = measured.manifest, measured.summary
    if manifest.timing != "measured":
        raise InputError(
            f"the first run ({summary.model} on {summary.platform}) is emulated and has no times",
            "Give a measured run first, then the emulated one.",
        )
    speedups = tuple(sorted(speedups))
    for value in speedups:
        if not 1 <= value < float("inf"):
            raise InputError(f"--speedup must be 1 or more, not {value:g}", "For example --speedup 3.")
    coverage = _sme2_coverage(emulated.summary)
    notes = _notes(manifest, emulated.manifest)
    # What is switched off on purpose, beside SME2, would not be off with SME2.
    without = {name: record for name, record in manifest.experiments.items() if _without_sme2(record)}
    least = min((len(record.disable_features) for record in without.values()), default=0)
    names = [name for name, record in without.items() if len(record.disable_features) == least]
    if not names:
        raise InputError(
            "no experiment of the first run is known to have run without SME2",
            "Where SME2 was on and off, compare those; a runner of your own does not say what was on.",
        )
    return [_forecast(name, summary.experiments[name].breakdown, coverage, speedups, notes) for name in names]


def _without_sme2(record: ExperimentRecord) -> bool:
    if record.status != "ok" or record.mode == "trace" or record.features is None:
        return False
    return "sme2" not in record.features.active


def _forecast(
    name: str, breakdown: Breakdown, coverage: Coverage, speedups: tuple[float, ...], notes: list[str]
) -> Forecast:
    eligible = [entry for entry in breakdown.instances if entry.category in ("CONV", "GEMM")]
    ours = [(entry.instruction, entry.category, entry.kind) for entry in eligible]
    if ours != [(x.instruction, x.category, x.kind) for x in coverage.operators]:
        raise InputError(
            f"the runs are of different models: {len(ours)} CONV and GEMM operators measured in {name}, "
            f"{len(coverage.operators)} emulated, or in another order",
            "Make the second run from the .pte of the first: sme2-kit kernels MODEL.pte",
        )
    taken = {id(entry) for entry, other in zip(eligible, coverage.operators, strict=True) if other.level == "SME2"}
    why_not = {id(entry): other.why_not for entry, other in zip(eligible, coverage.operators, strict=True)}
    left = [
        RemainingOperator(x.name, x.category, x.kind, x.instruction, x.ms, why_not.get(id(x), ""))
        for x in breakdown.instances
        if id(x) not in taken
    ]

    def assume(speedup: float) -> Prediction:
        return sped_up(breakdown, {"SME2": speedup}, lambda entry: speedup if id(entry) in taken else 1.0)

    return Forecast(
        experiment=name,
        eligible=len(eligible),
        on_sme2=len(taken),
        on_sme2_ms=sum(entry.ms for entry in eligible if id(entry) in taken),
        now=assume(1.0),
        predictions=[assume(speedup) for speedup in speedups],
        left=sorted(left, key=lambda entry: -entry.ms),
        notes=notes,
    )


def _sme2_coverage(summary: AnalysisSummary) -> Coverage:
    """The coverage of the emulated experiment that uses SME2 most."""
    traced = [x.coverage for x in summary.experiments.values() if x.coverage is not None]
    covered = [coverage for coverage in traced if coverage.on_sme2]
    unknown = next((coverage.unknown for coverage in traced if coverage.unknown), "")
    if unknown and not covered:
        raise InputError(
            f"which operators of {summary.model} run on SME2 is unknown: {unknown}",
            "Trace them again, into another directory: sme2-kit kernels MODEL.pte --output-root DIR",
        )
    if not covered:
        raise InputError(
            f"no experiment of the second run ({summary.model} on {summary.platform}) uses SME2",
            "Make it with: sme2-kit kernels MODEL.pte",
        )
    return max(covered, key=lambda coverage: coverage.on_sme2 or 0)


def _notes(measured: Manifest, emulated: Manifest) -> list[str]:
    notes = []
    if measured.model.sha256 != emulated.model.sha256:
        names = f"times are of {measured.model.stem}, kernels of {emulated.model.stem}"
        notes.append(f"{names}: another .pte with the same operators")
    if measured.environment.get("arch") != "aarch64":
        notes.append("times are from a CPU that is not Arm: shares differ on an Arm CPU")
    return notes
