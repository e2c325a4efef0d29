"""Measure the roofs of a CPU: export the probe program, run it with acceleration on and off, keep what it tells."""

import contextlib
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from model_profiling.analysis.roofs.roof_rates import DTYPES, Roofs, known_roofs, roofs_bytes, roofs_path
from model_profiling.analysis.roofs.run_roofs import roofs_of
from model_profiling.api.exporting import from_target
from model_profiling.api.measuring import RunRequest, measure
from model_profiling.base import files
from model_profiling.base.errors import InputError
from model_profiling.base.on_progress import OnNote, OnProgress, no_notes
from model_profiling.export.request import ExportRequest
from model_profiling.pipeline.schedule import Counts
from model_profiling.platforms.base import Platform

_PROBE = Path(__file__).parents[1] / "models" / "roof_probe.py"
# A launch shares where its memory lies; more than one, so that the best of them counts.
COUNTS = Counts(runs=30, launches=3)


@dataclass(frozen=True)
class Probing:
    """What to measure: each dtype with each number of threads."""

    dtypes: Sequence[str] = DTYPES
    threads: Sequence[int] = (1,)
    counts: Counts = COUNTS
    out: Path | None = None


def measure_roofs(asked: Probing, platform: Platform, on_progress: OnProgress, on_note: OnNote = no_notes) -> Roofs:
    """Measure, and keep the result beside what earlier measurements of the same CPU told."""
    if platform.timing != "measured":
        raise InputError(
            "roofs cannot be measured under an emulator: its times mean nothing", "Leave --platform emulator out."
        )
    with files.scratch_directory("sme2-kit-roofs-") as home:
        found = _measured(asked, home, platform, on_progress, on_note)
    if found is None or not found.cpu:
        raise InputError("the platform does not tell which CPU it has", "Roofs are kept by the CPU's name.")
    path = asked.out or roofs_path(found.cpu)
    earlier = earlier_roofs(found.cpu, on_note) if asked.out is None else None
    kept = earlier.merged(found) if earlier is not None else found
    files.write_bytes(path, roofs_bytes(kept))
    return kept


def earlier_roofs(cpu: str, on_note: OnNote) -> Roofs | None:
    """Return the roofs that are known already; what cannot be read is set aside."""
    try:
        return known_roofs(cpu)
    except InputError as error:
        path = roofs_path(cpu)
        aside = path.with_name(f"{path.name}.old")
        with contextlib.suppress(OSError):
            path.replace(aside)
        on_note(f"{error.message}; it is now {aside}")
        return None


def _measured(asked: Probing, home: Path, platform: Platform, on_progress: OnProgress, on_note: OnNote) -> Roofs | None:
    found: Roofs | None = None
    for dtype in asked.dtypes:
        pte = _probe(dtype, home, on_progress)
        for threads in asked.threads:
            out = home / f"{dtype}-{threads}"
            request = RunRequest(pte, out=out, counts=asked.counts, threads=threads)
            run = measure(request, platform, on_progress, on_note).run
            for name, entry in run.metrics.experiments.items():
                for warning in entry.latency.warnings if entry.latency else ():
                    on_note(f"{dtype}, {run.label(name)}: {warning}")
            shown = {name: (run.profiles[name], run.summary.experiments[name].breakdown) for name in run.shown}
            new = roofs_of(run.manifest, shown)
            found = new if found is None else found.merged(new)
    return found


def _probe(dtype: str, home: Path, on_progress: OnProgress) -> Path:
    """Return the probe program through the ordinary exporter."""
    request = ExportRequest("roof_probe", home / "artifacts", dtype, target=f"{_PROBE}:Probe")
    return from_target(on_progress, force=False)(request, f"export {dtype} probes").paths.pte
