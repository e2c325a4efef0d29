"""The forecasts of a run: which of its experiments ran without SME2, and what tells which operators SME2 takes."""

from pathlib import Path
from typing import NamedTuple

import msgspec

from model_profiling.analysis.run.run_data import RunData
from model_profiling.analysis.sme2.coverage import Coverage, known_coverage
from model_profiling.analysis.sme2.forecast_record import Evidence, Forecast
from model_profiling.analysis.sme2.kernel_table import Cpu, known_table, why_no_table
from model_profiling.analysis.sme2.sme2_forecast import Sides, as_programmed, assumed_forecast, derived_forecast
from model_profiling.analysis.sme2.target import DEFAULT, AnyTarget, kit_targets, read_target
from model_profiling.base.errors import InputError
from model_profiling.store.run_directory import ExperimentRecord, Manifest, ModelRecord


class Sme2Use(NamedTuple):
    """Which operators of an experiment SME2 takes, how that is known, and the program of which it is known."""

    experiment: str
    coverage: Coverage
    evidence: Evidence
    program: ModelRecord


class TargetForecast(msgspec.Struct, frozen=True):
    """What is predicted for one target; or why nothing is known."""

    target: str
    cpu: str
    forecasts: list[Forecast]
    why_not: str = ""


def forecasts(
    measured: RunData, emulated: RunData | None = None, speedups: tuple[float, ...] = (), target: str | Path = DEFAULT
) -> list[Forecast]:
    """Return a forecast for runs without SME2 and with all else on, for a target unless speedups are assumed.

    Which operators SME2 takes is in the table of known kernels, unless an emulated run of the model is given.
    """
    speedups = tuple(sorted(speedups))
    for value in speedups:
        if not 1 <= value < float("inf"):
            raise InputError(f"--speedup must be 1 or more, not {value:g}", "For example --speedup 3.")
    names, chosen = without_sme2(measured), None if speedups else read_target(target)
    return [predict(measured, sme2_use(measured, name, emulated), chosen, speedups) for name in names]


def predict(measured: RunData, use: Sme2Use, target: AnyTarget | None, speedups: tuple[float, ...] = ()) -> Forecast:
    """Return the forecast of one experiment, for a target unless speedups are assumed."""
    breakdown, notes = measured.summary.experiments[use.experiment].breakdown, _notes(measured.manifest, use.program)
    if use.coverage.unknown:
        raise InputError(
            f"which operators of {measured.summary.model} SME2 would run is unknown: {use.coverage.unknown}",
            "Show it under an emulator (sme2-kit kernels MODEL.pte), and give that run, too.",
        )
    if target is None:
        return assumed_forecast(Sides(use.experiment, breakdown, use.coverage, notes, use.evidence), speedups)
    sides = Sides(use.experiment, as_programmed(breakdown), use.coverage, notes, use.evidence)
    return derived_forecast(sides, target, measured.manifest.experiments[use.experiment])


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
            "Give a measured run first, then the emulated one.",
        )
    timed = {name: r for name, r in manifest.experiments.items() if r.status == "ok" and r.mode != "trace"}
    without = {name: record for name, record in timed.items() if _sme(record) is False}
    least = min((len(record.disable_features) for record in without.values()), default=0)
    names = [name for name, record in without.items() if len(record.disable_features) == least]
    if not names:
        raise InputError(
            "no experiment of the run is known to have run without SME2",
            "Where SME2 was on and off, compare those; a runner of your own does not say what was on.",
        )
    return names


def sme2_use(measured: RunData, name: str, emulated: RunData | None = None) -> Sme2Use:
    """Return which operators of an experiment SME2 runs, or would run, and how that is known."""
    if emulated is not None:
        # Of a language model each phase has kernels of its own, whatever the number of tokens.
        covered = _traced_coverage(emulated, measured.manifest.experiments[name].phase_kind)
        evidence: Evidence = "emulated" if emulated.manifest.timing == "emulated" else "traced"
        return Sme2Use(name, covered, evidence, emulated.manifest.model)
    return Sme2Use(name, table_coverage(measured, name), "table", measured.manifest.model)


def table_coverage(run: RunData, name: str, cpu: Cpu = "sme2") -> Coverage:
    """Return what the table of known kernels says of an experiment's operators; unknown if its .pte has changed."""
    record, model = run.manifest.experiments[name], run.manifest.model
    executorch = record.runner.executorch_name
    try:
        table = known_table(executorch)
        why = "" if table is not None else why_no_table(executorch)
    except InputError as error:
        table, why = None, error.message
    return known_coverage(
        run.summary.experiments[name].breakdown.instances,
        table or why,
        model.file(),
        model.dtype,
        record.method or "forward",
        record.phase.tokens_read if record.phase is not None else None,
        cpu,
    )


def _sme2(record: ExperimentRecord) -> bool | None:
    """Return whether SME2 was on; None if a runner does not say."""
    return "sme2" in record.features.active if record.features is not None else None


def _sme(record: ExperimentRecord) -> bool | None:
    """Return whether there was any SME: without SME2 alone, XNNPACK runs kernels of SME."""
    return not {"sme", "sme2"}.isdisjoint(record.features.active) if record.features is not None else None


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
            "Trace them again, into another directory: sme2-kit kernels MODEL.pte --out DIR",
        )
    if not covered:
        raise InputError(
            f"no experiment of the second run ({summary.model} on {summary.platform}) had SME2 and traced its kernels",
            "Make it with: sme2-kit kernels MODEL.pte",
        )
    return max(covered, key=lambda coverage: coverage.on_sme2 or 0)


def _notes(measured: Manifest, program: ModelRecord) -> list[str]:
    notes = []
    if measured.model.sha256 != program.sha256:
        names = f"times are of {measured.model.stem}, kernels of {program.stem}"
        notes.append(f"{names}: another .pte with the same operators")
    if measured.environment.get("arch") != "aarch64":
        notes.append("times are from a CPU that is not Arm: shares differ on an Arm CPU")
    return notes
