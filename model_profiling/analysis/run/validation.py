"""Is a run directory what the pipeline wrote: all files there, hashes right, ETDumps readable, numbers present?"""

from model_profiling.analysis.compare.metrics import Metrics
from model_profiling.analysis.run.staleness import needs_analysis
from model_profiling.analysis.sme2.kernel_assignment import assign_kernels
from model_profiling.base import files
from model_profiling.base.errors import KitError
from model_profiling.formats import etdump
from model_profiling.runner.trace_file import read_trace
from model_profiling.store.artifacts import KERNEL_TRACE
from model_profiling.store.run_directory import ExperimentRecord, Manifest, RunDirectory, experiment_file
from model_profiling.store.runs import interrupted_runs


def problems(directory: RunDirectory) -> list[str]:
    """Return everything that is wrong with a run directory, in words; empty if nothing is."""
    try:
        manifest = directory.manifest()
    except KitError as error:
        if not directory.manifest_path.exists() and any(interrupted_runs(directory.path)):
            return [f"no run of {directory.path} is complete: one was interrupted, and the same command resumes it"]
        return [error.message]
    found = [] if manifest.experiments else ["the manifest lists no experiments"]
    if manifest.status != "complete":
        found.append(f"the run is {manifest.status}; run the pipeline again to finish it")
    for name, record in manifest.experiments.items():
        found += [f"{name}: {problem}" for problem in _experiment_problems(directory, manifest, name, record)]
    return found if needs_analysis(directory) else found + _summary_problems(directory, manifest)


def _experiment_problems(directory: RunDirectory, manifest: Manifest, name: str, record: ExperimentRecord) -> list[str]:
    if record.status != "ok":
        return [f"failed: {record.failure}"]
    home = directory.experiment(name)
    needed = [
        experiment_file(manifest.model.stem, name, record.threads, end) for end in (".etdump", ".log", "_samples.json")
    ]
    found = [f"the manifest does not list {file}" for file in needed if file not in record.files]
    for file, digest in record.files.items():
        if not files.is_file(home / file):
            found.append(f"{file} is missing")
        elif files.sha256(home / file) != digest:
            found.append(f"{file} has changed since the run")
    if found:
        return found
    trace = experiment_file(manifest.model.stem, name, record.threads, KERNEL_TRACE)
    try:
        samples = directory.samples(manifest, name)
        dump = etdump.read(home / needed[0])
        unknown = assign_kernels(read_trace(home / trace), dump).unknown if trace in record.files else ""
    except KitError as error:
        return [error.message]
    executed, expected = len(etdump.nest(dump)), sum(len(turn.ns) for turn in samples.traced)
    if record.runner.kind == "kit" and executed != expected:
        found.append(f"{needed[0]} has {executed} executions, {expected} were traced")
    if record.mode == "timing" and not samples.timed and record.runner.kind == "kit":
        found.append("there are no timed executions")
    if unknown:
        found.append(f"{trace} and {needed[0]} do not fit together, kernels are unknown: {unknown}")
    return found


def _summary_problems(directory: RunDirectory, manifest: Manifest) -> list[str]:
    try:
        metrics = files.read_json(directory.metrics_path, Metrics, "metrics")
    except KitError as error:
        return [error.message]
    found = [
        f"metrics.json has no entry for {name}" for name in manifest.experiments if name not in metrics.experiments
    ]
    for suffix in ("json", "md"):
        path = directory.summary_path(manifest.model.stem, suffix)
        if not path.is_file():
            found.append(f"{path.name} is missing")
    return found
