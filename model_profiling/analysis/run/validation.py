"""Is a run directory what the pipeline wrote: all files there, hashes right, ETDumps readable, numbers present?"""

from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path

from model_profiling.analysis.compare.metrics import Metrics
from model_profiling.analysis.run.dumps import AnalysisSummary
from model_profiling.analysis.run.run_data import ETRECORD_INPUT, RunData
from model_profiling.analysis.sme2.coverage import CoveredOperator
from model_profiling.analysis.sme2.kernel_assignment import assign_kernels
from model_profiling.base import files
from model_profiling.base.errors import KitError, RunError
from model_profiling.formats import etdump
from model_profiling.runner.trace_file import read_trace
from model_profiling.store import artifacts, derived
from model_profiling.store.artifacts import KERNEL_TRACE
from model_profiling.store.run_directory import ExperimentRecord, Manifest, RunDirectory, experiment_file
from model_profiling.store.runs import interrupted_runs

_RESULTS = (
    *(artifacts.METRICS, artifacts.ANALYSIS_SUMMARY, artifacts.KERNELS, artifacts.KERNEL_VIEW),
    *("*_pipeline_summary.json", "*_pipeline_summary.md"),
    *("*/*_timeline.csv", "*/*_ops_stats.csv", "*/*_operators.csv", "*/*_robust_stats.json"),
)
_ANALYZE = "sme2-kit analyze {dir}"
_REPORTS = (artifacts.REPORT, artifacts.REPORT_PAGE, artifacts.TRACE, "report_charts/*")
_GRAPHS = (artifacts.GRAPH_PAGE,)


@dataclass
class Staleness:
    """What is wrong with derived files, in words.

    `awaited`: the run was not analysed since it was measured, as after a kill. That is no damage, it can be done.
    """

    stale: list[str] = field(default_factory=list)
    awaited: bool = False


def check_staleness(directory: RunDirectory) -> Staleness:
    """Look at every derived file of a run directory."""
    try:
        index = derived.read_index(directory)
        current = derived.current_fingerprint(directory, index)
        found = Staleness([*_changed_inputs(directory, index)], needs_analysis(directory))
    except KitError as error:
        return Staleness([f"{error.message}; `{derived.renew_command(_ANALYZE, directory)}` writes it again"])
    found.stale += [*_stale_files(directory, index, current), *_unlisted(directory, index, current)]
    return found


def _changed_inputs(directory: RunDirectory, index: derived.DerivedIndex | None) -> Iterator[str]:
    """Yield what a new report would be made from instead of what the last one was."""
    if index is None or index.inputs is None:
        return
    now = RunData.open(directory.path)
    renew = derived.renew_command(_ANALYZE, directory)
    for name in sorted({name for name, _ in index.inputs.items() ^ now.inputs.items()}):
        if name in now.inputs or name != ETRECORD_INPUT:  # it is not there on another machine: all is as it was
            yield f"results and reports are stale: the {name} has changed since; `{renew}` makes them again"


def needs_analysis(directory: RunDirectory) -> bool:
    """Return whether results are still to be derived from the run: there are none, nor a record that there were."""
    try:
        index = derived.read_index(directory)
        entry = index.files.get(artifacts.METRICS) if index else None
        return not directory.metrics_path.exists() and (
            entry is None or entry.sources != derived.current_fingerprint(directory, index)
        )
    except KitError:
        return False


def copy_problem(directory: RunDirectory, path: Path) -> str:
    """Return what is wrong with a report or picture elsewhere; '' if made from the run as it is now."""
    if not path.is_file():
        return f"{path} does not exist"
    found = derived.stamps(path)
    if not found:
        return f"{path} has no known origin: it contains no fingerprint of a run"
    try:
        current = derived.current_fingerprint(directory, derived.read_index(directory))
    except KitError as error:
        return f"{path} cannot be checked: {error.message}"
    if current not in found:
        return f"{path} was made from another run, or from an earlier state of this one"
    return ""


def _stale_files(directory: RunDirectory, index: derived.DerivedIndex | None, current: str) -> Iterator[str]:
    """Yield what is wrong with the files that the index lists, if they are there."""
    if index is None:
        return
    for name, entry in index.files.items():
        path, renew = derived.inside(directory, name), derived.renew_command(entry.renew, directory)
        if path is None or not files.is_file(path):
            continue
        others = ((directory.path / other, sources) for other, sources in entry.others.items())
        if entry.sources != current:
            yield _outdated(name, renew)
        elif files.sha256(path) != entry.sha256:
            yield f"{name} was changed after it was written; `{renew}` writes it again"
        elif other := next((at for at, sources in others if _identity(at, index.kit) not in ("", sources)), None):
            yield f"{name} is stale: {other} has changed since; `{renew}` makes it again"


def _identity(other: Path, kit: str) -> str:
    """Return the fingerprint of another run, or of a file; '' where there is none, as on another machine."""
    try:
        if not files.is_file(other / artifacts.MANIFEST):
            return files.identity(other)
        run = RunData.open(other)
        return derived.fingerprint(run.run_directory, run.inputs, kit)
    except KitError:
        return "damaged"


def _outdated(name: str, renew: str) -> str:
    return f"{name} is stale: it was made from an earlier state of this run; `{renew}` makes it again"


def _unlisted(directory: RunDirectory, index: derived.DerivedIndex | None, current: str) -> Iterator[str]:
    """Yield what is wrong with files that are named like derived ones and that the index does not list."""
    listed = index.files if index else {}
    kinds = ((_RESULTS, _ANALYZE), (_REPORTS, "sme2-kit report {dir} --html"), (_GRAPHS, "sme2-kit graph {dir}"))
    for patterns, command in kinds:
        renew = derived.renew_command(command, directory)
        for path in sorted(path for pattern in patterns for path in directory.path.glob(pattern)):
            name = path.relative_to(directory.path).as_posix()
            if not path.is_file() or name in listed:
                continue
            stamps = derived.stamps(path)
            if not stamps:
                why = f"{name} has no known origin: derived.json does not list it"
                yield f"{why}; remove it, or `{renew}` writes it again"
            elif current not in stamps:
                yield _outdated(name, renew)


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


def verify_outputs(summary: AnalysisSummary) -> None:
    """Raise if two rungs, or a rung and eager PyTorch, part by more than the dtype explains."""
    if summary.metrics is None:
        return
    for agreement in summary.metrics.agreements:
        if agreement.verdict == "differs":
            raise RunError(
                f"outputs of {agreement.left} and {agreement.right} differ by "
                f"{agreement.error_of_reference}, more than {summary.dtype} explains",
                f"Results diverge at or after {_suspect(summary, agreement.left, agreement.right)}.",
            )


def verify_kernels(summary: AnalysisSummary) -> None:
    """Raise if kernels were traced and it is unknown which operators called them."""
    for name, experiment in summary.experiments.items():
        if experiment.kernels is None:
            continue
        reason = experiment.kernels.unknown or (experiment.coverage.unknown if experiment.coverage else "")
        if reason:
            raise RunError(
                f"which operators of {name} called which kernels is unknown: {reason}",
                "Run it again, into another directory (--out); kernels.json has the kernels by name. "
                "If it happens again, please report it with the .pte.",
            )


def _suspect(summary: AnalysisSummary, left: str, right: str) -> str:
    """Return the first operator that runs another kernel on the two sides: as much as outputs and kernels can tell."""
    sides = [summary.experiments[name].coverage for name in (left, right) if name in summary.experiments]
    if len(sides) == 2 and sides[0] is not None and sides[1] is not None:
        for ours, theirs in zip(sides[0].operators, sides[1].operators, strict=False):
            if _runs_as(ours) != _runs_as(theirs):
                return f"{theirs.name} (instruction {theirs.instruction}), the first operator with another kernel"
    return "an operator that kernel names do not identify; compare intermediate outputs"


def _runs_as(operator: CoveredOperator) -> tuple[str, list[str]]:
    return operator.dtype, [call.kernel for call in operator.kernels]
