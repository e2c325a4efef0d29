"""Which derived files of a run directory are not of the run as it is now: outdated, edited, or of unknown origin."""

from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path

from model_profiling.analysis.run.run_data import ETRECORD_INPUT, RunData
from model_profiling.base import files
from model_profiling.base.errors import KitError
from model_profiling.store import artifacts
from model_profiling.store.derived import (
    DerivedFile,
    DerivedIndex,
    current_fingerprint,
    fingerprint,
    inside,
    read_index,
    renew_command,
    stamps,
)
from model_profiling.store.run_directory import RunDirectory

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
        index = read_index(directory)
        current = current_fingerprint(directory, index)
        found = Staleness([*_changed_inputs(directory, index)], needs_analysis(directory))
    except KitError as error:
        return Staleness([f"{error.message}; `{renew_command(_ANALYZE, directory)}` writes it again"])
    for name, entry in (index.files if index else {}).items():
        path = inside(directory, name)
        if path is not None and files.is_file(path):
            found.stale += _problem(directory, index, name, path, entry, current)
    for path, renew in _unlisted(directory, index):
        name, inside_it = path.relative_to(directory.path).as_posix(), stamps(path)
        if inside_it and current not in inside_it:
            found.stale.append(_outdated(name, renew_command(renew, directory)))
        elif not inside_it:
            found.stale.append(
                f"{name} has no known origin: derived.json does not list it; "
                f"remove it, or `{renew_command(renew, directory)}` writes it again"
            )
    return found


def _changed_inputs(directory: RunDirectory, index: DerivedIndex | None) -> Iterator[str]:
    """Yield what a new report would be made from instead of what the last one was."""
    if index is None or index.inputs is None:
        return
    now = RunData.open(directory.path)
    renew = renew_command(_ANALYZE, directory)
    for name in sorted({name for name, _ in index.inputs.items() ^ now.inputs.items()}):
        if name in now.inputs or name != ETRECORD_INPUT:  # it is not there on another machine: all is as it was
            yield f"results and reports are stale: the {name} has changed since; `{renew}` makes them again"


def needs_analysis(directory: RunDirectory) -> bool:
    """Return whether results are still to be derived from the run: there are none, nor a record that there were."""
    try:
        index = read_index(directory)
        entry = index.files.get(artifacts.METRICS) if index else None
        return not directory.metrics_path.exists() and (
            entry is None or entry.sources != current_fingerprint(directory, index)
        )
    except KitError:
        return False


def copy_problem(directory: RunDirectory, path: Path) -> str:
    """Return what is wrong with a report or picture elsewhere; '' if made from the run as it is now."""
    if not path.is_file():
        return f"{path} does not exist"
    found = stamps(path)
    if not found:
        return f"{path} has no known origin: it contains no fingerprint of a run"
    try:
        current = current_fingerprint(directory, read_index(directory))
    except KitError as error:
        return f"{path} cannot be checked: {error.message}"
    if current not in found:
        return f"{path} was made from another run, or from an earlier state of this one"
    return ""


def _problem(
    directory: RunDirectory, index: DerivedIndex | None, name: str, path: Path, entry: DerivedFile, current: str
) -> list[str]:
    renew = renew_command(entry.renew, directory)
    if entry.sources != current:
        return [_outdated(name, renew)]
    if files.sha256(path) != entry.sha256:
        return [f"{name} was changed after it was written; `{renew}` writes it again"]
    for other, sources in entry.others.items():
        path = directory.path / other
        if index and _identity(path, index.kit) not in ("", sources):
            return [f"{name} is stale: {path} has changed since; `{renew}` makes it again"]
    return []


def _identity(other: Path, kit: str) -> str:
    """Return the fingerprint of another run, or of a file; '' where there is none, as on another machine."""
    try:
        if not files.is_file(other / artifacts.MANIFEST):
            return files.identity(other)
        run = RunData.open(other)
        return fingerprint(run.run_directory, run.inputs, kit)
    except KitError:
        return "damaged"


def _outdated(name: str, renew: str) -> str:
    return f"{name} is stale: it was made from an earlier state of this run; `{renew}` makes it again"


def _unlisted(directory: RunDirectory, index: DerivedIndex | None) -> Iterator[tuple[Path, str]]:
    """Yield files named like derived ones that the index does not list, and the command that makes them."""
    listed = index.files if index else {}
    kinds = ((_RESULTS, _ANALYZE), (_REPORTS, "sme2-kit report {dir} --html"), (_GRAPHS, "sme2-kit graph {dir}"))
    for patterns, renew in kinds:
        for path in sorted(path for pattern in patterns for path in directory.path.glob(pattern)):
            if path.is_file() and path.relative_to(directory.path).as_posix() not in listed:
                yield path, renew
