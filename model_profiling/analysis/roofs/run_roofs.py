"""The roofs that a run is compared with: those that are kept with it, else those known of its CPU on this machine; and
the roofs out of a run of the probe program."""

import hashlib
from collections.abc import Mapping
from pathlib import Path

import msgspec
import numpy as np

from model_profiling import __version__
from model_profiling.analysis.roofs import roof_rates
from model_profiling.analysis.timing.breakdown import Breakdown
from model_profiling.analysis.timing.profile import Profile
from model_profiling.base import files
from model_profiling.base.errors import KitError
from model_profiling.store.artifacts import ROOFS
from model_profiling.store.made_by import Machine, machine_of
from model_profiling.store.run_directory import Manifest

_COMMAND = "sme2-kit roofs"
# The fastest tenth is what the CPU reaches when nothing is in its way.
_BEST = 0.1
# XNNPACK's clock has whole microseconds: the fastest tenth is up to one too fast, which the mean is not.
_TICK_MS = 0.001


class RunRoofs(msgspec.Struct, frozen=True):
    """`used` has only the measurements with the features and threads of the run's experiments; None if none fits.

    Those in other dtypes are kept, too: what another dtype would take is predicted from them.

    `notes` say which file could not be used; `command` measures what is missing, '' where nothing would help.
    """

    used: roof_rates.Roofs | None = None
    notes: list[str] = []
    command: str = ""

    @property
    def identity(self) -> str:
        """Another one for other roofs: what derives from a run was made with these."""
        if self.used is None:
            return ""
        told = [self.used.cpu, self.used.created, self.used.measurements]
        return hashlib.sha256(msgspec.json.encode(told)).hexdigest()[:16]

    def rates(self, manifest: Manifest, experiment: str) -> roof_rates.Rates | None:
        """Return what is known for an experiment; None where the probes were not measured in its dtype."""
        found = _fitting(self.used, manifest, experiment) if self.used is not None else None
        if self.used is None or found is None:
            return None
        return self.used.rates(found.active, found.threads, found.dtype)


def run_roofs(directory: Path, manifest: Manifest) -> RunRoofs:
    """Return the roofs of a run. What is kept with it counts first, so that it says the same on every machine."""
    cpu = str(manifest.environment.get("cpu") or "")
    # Experiments whose times mean something and whose features are known.
    records = manifest.experiments.items() if manifest.timing == "measured" else ()
    timed = [name for name, record in records if record.mode != "trace" and record.status == "ok" and record.features]
    if not cpu or not timed:
        return RunRoofs()
    notes: list[str] = []
    chosen: tuple[roof_rates.Roofs, list[roof_rates.Measurement]] | None = None
    dtypes_known: list[roof_rates.Roofs] = []
    machine = machine_of("", (), manifest.environment)
    for path in (directory / ROOFS, roof_rates.roofs_path(cpu)):
        roofs = _read(path, machine, notes)
        if roofs is None:
            continue
        dtypes_known.append(roofs)
        fits = [found for name in timed if (found := _fitting(roofs, manifest, name)) is not None]
        if fits and (chosen is None or len(fits) > len(chosen[1])):
            chosen = roofs, fits
        if len(fits) == len(timed):
            break
    command = _command(manifest, timed, dtypes_known)
    if chosen is None:
        return RunRoofs(None, notes, command)
    roofs, fits = chosen
    libraries = {manifest.experiments[name].runner.executorch_libraries for name in timed} - {""}
    if roofs.libraries and libraries - {roofs.libraries}:
        notes.append(
            f"roofs were measured with other libraries of ExecuTorch than this run: `{_COMMAND}` measures again"
        )
    kept = {entry.key: entry for fit in fits for entry in roofs.fitting(fit.active, fit.threads)}
    return RunRoofs(msgspec.structs.replace(roofs, measurements=list(kept.values()), sha256=""), notes, command)


def roofs_of(manifest: Manifest, probed: Mapping[str, tuple[Profile, Breakdown]]) -> roof_rates.Roofs:
    """Return what the experiments of a finished run of the probe program tell of its CPU."""
    environment = {name: value for name, value in manifest.environment.items() if name != "features_proof"}
    first = next(iter(manifest.experiments.values())).runner
    return roof_rates.Roofs(
        cpu=str(manifest.environment.get("cpu") or ""),
        arch=str(manifest.environment.get("arch") or ""),
        platform=manifest.platform,
        created=manifest.updated,
        kit_version=__version__,
        executorch=first.executorch,
        environment=environment,
        measurements=[_measurement(manifest, name, *sides) for name, sides in probed.items()],
        libraries=first.executorch_libraries,
    )


def _measurement(manifest: Manifest, name: str, profile: Profile, breakdown: Breakdown) -> roof_rates.Measurement:
    record = manifest.experiments[name]
    best = np.quantile(profile.times, _BEST, axis=1) / 1e6
    return roof_rates.Measurement(
        dtype=manifest.model.dtype,
        threads=record.threads,
        active=list(record.features.active) if record.features else [],
        disabled=list(record.disable_features),
        executions=profile.executions,
        load=record.load_before,
        probes=[
            roof_rates.ProbeResult(
                *(x.operator, x.category, x.kind, x.work),
                *(max(ms, min(x.ms, ms + _TICK_MS)), x.spread.median_ms, x.spread.mad_ms, x.where),
            )
            for x, ms in zip(breakdown.instances, best.tolist(), strict=True)
            if x.where != "runtime" and x.work is not None
        ],
    )


def _read(path: Path, machine: Machine, notes: list[str]) -> roof_rates.Roofs | None:
    """Return the roofs in a file; a report does without a file that is broken or of another machine, and says so."""
    if not files.is_file(path):
        return None
    try:
        roofs = roof_rates.read_roofs(path)
    except KitError as error:
        notes.append(f"roofs are left out: {error.message}")
        return None
    if not roofs.machine.may_be(machine):
        notes.append(f"roofs are left out: {path} is of {roofs.machine}, and this run of {machine}")
        return None
    return roofs


def _fitting(roofs: roof_rates.Roofs, manifest: Manifest, experiment: str) -> roof_rates.Measurement | None:
    features, threads = manifest.experiments[experiment].features, manifest.experiments[experiment].threads
    return roofs.measurement(manifest.model.dtype, features.active, threads) if features is not None else None


def _command(manifest: Manifest, timed: list[str], known: list[roof_rates.Roofs]) -> str:
    """Return what measures the roofs that a run lacks; '' if it lacks none, or no probe is like it."""
    dtype = manifest.model.dtype
    threads = sorted({manifest.experiments[name].threads for name in timed})
    probed = {(m.dtype, m.threads) for roofs in known for m in roofs.measurements}
    missing = [count for count in threads if (dtype, count) not in probed]
    if dtype not in roof_rates.DTYPES or not missing:
        return ""
    words = [_COMMAND, *([f"--dtype {dtype}"] if known else [])]
    return " ".join([*words, *(f"--threads {count}" for count in missing if missing != [1])])
