"""Roofs out of a run of the probe program: what each probe did and how long it took at best."""

import numpy as np

from model_profiling import __version__
from model_profiling.analysis.roofs.roof_rates import Measurement, ProbeResult, Roofs
from model_profiling.analysis.run.run_view import RunView
from model_profiling.base.errors import InputError

# The fastest tenth is what the CPU reaches when nothing is in its way.
_BEST = 0.1
# XNNPACK's clock has whole microseconds: the fastest tenth is up to one too fast, which the mean is not.
_TICK_MS = 0.001


def roofs_of(run: RunView) -> Roofs:
    """Return what a finished run of the probe program tells of its CPU."""
    manifest = run.manifest
    if not run.measured:
        raise InputError("an emulated CPU has no roofs: its times mean nothing", "Measure on real hardware.")
    environment = {name: value for name, value in manifest.environment.items() if name != "features_proof"}
    return Roofs(
        cpu=str(manifest.environment.get("cpu") or ""),
        arch=str(manifest.environment.get("arch") or ""),
        platform=manifest.platform,
        created=manifest.updated,
        kit_version=__version__,
        executorch=next((r.runner.executorch for r in manifest.experiments.values() if r.runner), ""),
        environment=environment,
        measurements=[_measurement(run, name) for name in run.shown],
        libraries=next((r.runner.executorch_libraries for r in manifest.experiments.values()), ""),
    )


def _measurement(run: RunView, name: str) -> Measurement:
    record, profile = run.manifest.experiments[name], run.profiles[name]
    best = np.quantile(profile.times, _BEST, axis=1) / 1e6
    instances = run.summary.experiments[name].breakdown.instances
    return Measurement(
        dtype=run.summary.dtype,
        threads=record.threads,
        active=list(record.features.active) if record.features else [],
        disabled=list(record.disable_features),
        executions=profile.executions,
        load=record.load_before,
        probes=[
            ProbeResult(
                *(x.operator, x.category, x.kind, x.work),
                *(max(ms, min(x.ms, ms + _TICK_MS)), x.spread.median_ms, x.spread.mad_ms, x.where),
            )
            for x, ms in zip(instances, best.tolist(), strict=True)
            if x.where != "runtime" and x.work is not None
        ],
    )
