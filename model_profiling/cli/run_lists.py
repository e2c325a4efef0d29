"""Runs as `sme2-kit history` lists them: all below some folders, or those of one directory, the earlier ones too."""

import argparse
from collections.abc import Iterable, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING

from model_profiling.base.printing import tell
from model_profiling.cli.answer import answer
from model_profiling.cli.next_step import ending
from model_profiling.cli.run_argument import tell_interrupted

if TYPE_CHECKING:
    from model_profiling.fleet.history.history_records import HistoryRun
    from model_profiling.store.runs import RunListing

_HEADER = ("label", "", "made (UTC)", "model", "dtype", "threads", "experiments", "status", "median latency")


def show_history(found: "Sequence[HistoryRun]", most: int, roots: Iterable[Path]) -> None:
    """List runs, the latest first, whatever folder they are in."""
    from model_profiling.report.terminal.text_table import table

    if not found:
        tell("no runs here: measure one with sme2-kit run, or give a folder with --root\n")
        return
    rows = [("made (UTC)", "model", "dtype", "platform", "label", "commit", "median latency", "path")]
    for run in found[:most]:
        speeds = ", ".join(f"{ms:.3f} ms {name}" for name, ms in run.median_ms.items()) or "none"
        what = f"unreadable: {run.problem}" if run.problem else speeds
        commit = run.revision.commit[:10] + ("+" if run.revision.dirty else "")
        rows.append((run.created[:16], run.model, run.dtype, run.platform, run.label, commit, what, run.path))
    more = [f"  and {len(found) - most} more (--most {len(found)})"] if len(found) > most else []
    tell("\n".join([*table(rows, words=len(rows[0]), optional={4, 5}), *more, ""]))
    measured = next((run.model for run in found if run.median_ms), None)
    words = ["history", "trend", measured, *(word for root in roots for word in ("--root", root))]
    tell(ending(following=words if measured else []))


def show_runs(directory: Path | None, remove: str | None, args: argparse.Namespace) -> None:
    """List the runs of a directory, or of all below out_*/runs; or remove one by its label, never the latest."""
    from model_profiling.base.errors import InputError
    from model_profiling.store import runs

    if directory is not None and not directory.is_dir():
        raise InputError(f"run directory {directory} does not exist", "Give the directory a pipeline wrote to.")
    if remove is not None:
        if directory is None:
            raise InputError("--remove needs a run directory", "For example: sme2-kit history runs DIR --remove LABEL")
        removed = runs.remove(directory, remove)
        answer(args, {"removed": str(removed)}, lambda: tell(f"removed {removed}\n"))
        return
    roots = [directory] if directory is not None else runs.find_runs_below(Path())
    if directory is not None and not runs.list_runs(directory):
        roots = runs.roots_below(directory)
    for root in roots:
        tell_interrupted(root)
    found = {str(root): runs.list_runs(root) for root in roots}
    text = "".join(_as_text(root, entries) for root, entries in found.items() if any(found.values()))
    none = "no runs here: measure one with sme2-kit run, or give the directory of one\n"
    data = [_as_data(root, entry) for root, entries in found.items() for entry in entries]
    answer(args, data, lambda: tell(text or none))


def _as_data(root: str, entry: "RunListing") -> dict[str, object]:
    path = str(entry.path) if entry.path else None
    return {"directory": root, **asdict(entry), "path": path, "median_ms": _medians(entry)}


def _as_text(root: str, entries: "list[RunListing]") -> str:
    from model_profiling.report.terminal.text_table import table

    rows = [_HEADER] + [_row(entry) for entry in entries]
    return "\n".join([root, *table(rows, words=len(_HEADER)), ""]) + "\n"


def _row(entry: "RunListing") -> tuple[str, ...]:
    medians = _medians(entry)
    speeds = "not analysed" if medians is None else ", ".join(f"{ms:.3f} ms {name}" for name, ms in medians.items())
    return (
        entry.label,
        entry.kind,
        entry.created[:19].replace("T", " "),
        entry.model,
        entry.dtype,
        ", ".join(map(str, entry.threads)),
        str(len(entry.experiments)),
        entry.status,
        (speeds or "none") if entry.path else "-",
    )


def _medians(entry: "RunListing") -> dict[str, float] | None:
    """Return each experiment's median from metrics.json; None if there is none of the run as it is now."""
    from typing import Any

    from model_profiling.base import files
    from model_profiling.base.errors import KitError
    from model_profiling.store.derived import current_fingerprint, read_index
    from model_profiling.store.run_directory import RunDirectory

    if entry.path is None:
        return None
    directory = RunDirectory(entry.path)
    try:
        metrics = files.read_json(directory.metrics_path, dict[str, Any], "metrics")
        if metrics.get("sources") != current_fingerprint(directory, read_index(directory)):
            return None
        medians = {n: e["latency"]["median_ms"] for n, e in metrics["experiments"].items() if e["latency"]}
        return {str(name): float(ms) for name, ms in medians.items()}
    except (KitError, KeyError, TypeError, ValueError, AttributeError):
        return None
