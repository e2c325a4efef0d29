"""The forecasts of a run: which of its experiments ran without SME2, and which emulated one tells their kernels."""

from pathlib import Path

from model_profiling.analysis.run.run_data import RunData
from model_profiling.analysis.sme2.coverage import Coverage
from model_profiling.analysis.sme2.sme2_forecast import (
    Forecast,
    Sides,
    as_programmed,
    assumed_forecast,
    derived_forecast,
)
from model_profiling.analysis.sme2.target import DEFAULT, read_target
from model_profiling.base.errors import InputError
from model_profiling.store.run_directory import ExperimentRecord, Manifest


def forecasts(
    measured: RunData,
    emulated: RunData,
    speedups: tuple[float, ...] = (),
    target: str | Path = DEFAULT,
) -> list[Forecast]:
    """Return a forecast for runs without SME2 and with all else on, for a target unless speedups are assumed."""
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
    notes = _notes(manifest, emulated.manifest)
    # What is switched off on purpose, beside SME2, would not be off with SME2.
    timed = {name: r for name, r in manifest.experiments.items() if r.status == "ok" and r.mode != "trace"}
    without = {name: record for name, record in timed.items() if _sme2(record) is False}
    least = min((len(record.disable_features) for record in without.values()), default=0)
    names = [name for name, record in without.items() if len(record.disable_features) == least]
    if not names:
        raise InputError(
            "no experiment of the first run is known to have run without SME2",
            "Where SME2 was on and off, compare those; a runner of your own does not say what was on.",
        )
    # Of a language model each phase has kernels of its own, whatever the number of tokens.
    kinds = {name: without[name].phase_kind for name in names}
    coverages = {kind: _sme2_coverage(emulated, kind) for kind in dict.fromkeys(kinds.values())}
    chosen = None if speedups else read_target(target)
    found = []
    for name in names:
        breakdown, coverage = summary.experiments[name].breakdown, coverages[kinds[name]]
        if chosen is None:
            found.append(assumed_forecast(Sides(name, breakdown, coverage, notes), speedups))
        else:
            found.append(
                derived_forecast(Sides(name, as_programmed(breakdown), coverage, notes), chosen, without[name])
            )
    return found


def _sme2(record: ExperimentRecord) -> bool | None:
    """Return whether SME2 was on; None if a runner does not say."""
    return "sme2" in record.features.active if record.features is not None else None


def _sme2_coverage(emulated: RunData, phase: str) -> Coverage:
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
