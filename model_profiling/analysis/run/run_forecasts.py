"""The forecasts of a run: which of its experiments ran without SME2, and what tells which operators SME2 takes."""

from collections.abc import Sequence
from pathlib import Path

import msgspec

from model_profiling.analysis.run.run_data import RunData
from model_profiling.analysis.sme2.coverage import Coverage, known_coverage
from model_profiling.analysis.sme2.kernel_table import known_table
from model_profiling.analysis.sme2.sme2_forecast import (
    Evidence,
    Forecast,
    Sides,
    as_programmed,
    assumed_forecast,
    derived_forecast,
)
from model_profiling.analysis.sme2.target import DEFAULT, kit_targets, read_target
from model_profiling.base.errors import InputError
from model_profiling.store.run_directory import ExperimentRecord, Manifest


class TargetForecast(msgspec.Struct, frozen=True):
    """What is predicted for one target; or why nothing is known."""

    target: str
    cpu: str
    forecasts: list[Forecast]
    why_not: str = ""


def forecasts(
    measured: RunData,
    emulated: RunData | None = None,
    speedups: tuple[float, ...] = (),
    target: str | Path = DEFAULT,
    only: Sequence[str] = (),
) -> list[Forecast]:
    """Return a forecast for runs without SME2 and with all else on, for a target unless speedups are assumed.

    Which operators SME2 takes is in the table of known kernels, unless an emulated run of the model is given. With
    `only`, for these experiments alone.
    """
    manifest, summary = measured.manifest, measured.summary
    speedups = tuple(sorted(speedups))
    for value in speedups:
        if not 1 <= value < float("inf"):
            raise InputError(f"--speedup must be 1 or more, not {value:g}", "For example --speedup 3.")
    names = only or without_sme2(measured)
    notes = _notes(manifest, emulated.manifest if emulated is not None else manifest)
    chosen = None if speedups else read_target(target)
    found = []
    for name in names:
        breakdown = summary.experiments[name].breakdown
        coverage, evidence = sme2_coverage(measured, name, emulated)
        if coverage.unknown:
            raise InputError(
                f"which operators of {summary.model} SME2 would run is unknown: {coverage.unknown}",
                "Show it under an emulator: sme2-kit kernels MODEL.pte, then give that run with --emulated.",
            )
        if chosen is None:
            found.append(assumed_forecast(Sides(name, breakdown, coverage, notes, evidence), speedups))
        else:
            sides = Sides(name, as_programmed(breakdown), coverage, notes, evidence)
            found.append(derived_forecast(sides, chosen, manifest.experiments[name]))
    return found


def forecast_targets(measured: RunData, emulated: RunData | None = None) -> list[TargetForecast]:
    """Return what is predicted for every target that comes with the kit, or why nothing can be."""
    without_sme2(measured)
    found = []
    for target in kit_targets():
        try:
            predicted, why = forecasts(measured, emulated, target=target.name), ""
        except InputError as error:
            predicted, why = [], error.message
        found.append(TargetForecast(target.name, target.cpu, predicted, why))
    return found


def without_sme2(measured: RunData) -> list[str]:
    """Return the timed experiments without SME2 and with all else on: what is switched off on purpose, beside SME2,
    would not be off with SME2."""
    manifest, summary = measured.manifest, measured.summary
    if manifest.timing != "measured":
        raise InputError(
            f"the run ({summary.model} on {summary.platform}) is emulated and has no times",
            "Give a measured run; the emulated one goes with --emulated.",
        )
    timed = {name: r for name, r in manifest.experiments.items() if r.status == "ok" and r.mode != "trace"}
    without = {name: record for name, record in timed.items() if _sme2(record) is False}
    least = min((len(record.disable_features) for record in without.values()), default=0)
    names = [name for name, record in without.items() if len(record.disable_features) == least]
    if not names:
        raise InputError(
            "no experiment of the run is known to have run without SME2",
            "Where SME2 was on and off, compare those; a runner of your own does not say what was on.",
        )
    return names


def sme2_coverage(measured: RunData, name: str, emulated: RunData | None = None) -> tuple[Coverage, Evidence]:
    """Return which operators of an experiment SME2 runs, or would run, and how that is known."""
    record = measured.manifest.experiments[name]
    if emulated is not None:
        # Of a language model each phase has kernels of its own, whatever the number of tokens.
        covered = _traced_coverage(emulated, record.phase_kind)
        return covered, "emulated" if emulated.manifest.timing == "emulated" else "traced"
    executorch, model = record.runner.executorch_name, measured.manifest.model
    covered = known_coverage(
        measured.summary.experiments[name].breakdown.instances,
        known_table(executorch),
        executorch,
        Path(model.path),
        model.dtype,
        record.method or "forward",
        record.phase.tokens_read if record.phase is not None else None,
    )
    return covered, "table"


def _sme2(record: ExperimentRecord) -> bool | None:
    """Return whether SME2 was on; None if a runner does not say."""
    return "sme2" in record.features.active if record.features is not None else None


def _traced_coverage(emulated: RunData, phase: str) -> Coverage:
    """Return the coverage of the emulated experiment that uses SME2 most, of those in a phase; '' is of no phase."""
    summary, records = emulated.summary, emulated.manifest.experiments
    found = {n: x.coverage for n, x in summary.experiments.items() if x.coverage and records[n].phase_kind == phase}
    if phase and not found:
        raise InputError(
            f"no experiment of the second run ({summary.model} on {summary.platform}) is of the phase {phase}",
            "Make it with: sme2-kit kernels MODEL.pte",
        )
    traced = list(found.values())
    covered = [coverage for coverage in traced if coverage.on_sme2]
    if not covered:
        # A model none of whose operators has an SME2 kernel gains nothing, which is the answer.
        covered = [c for name, c in found.items() if _sme2(records[name]) and c.on_sme2 is not None]
    unknown = next((coverage.unknown for coverage in traced if coverage.unknown), "")
    if unknown and not covered:
        raise InputError(
            f"which operators of {summary.model} run on SME2 is unknown: {unknown}",
            "Trace them again, into another directory: sme2-kit kernels MODEL.pte --output-root DIR",
        )
    if not covered:
        raise InputError(
            f"no experiment of the second run ({summary.model} on {summary.platform}) had SME2 and traced its kernels",
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
