"""Runs over time: list, trends with steps, regressions that comparing confirms, top operators, SME2 coverage."""

import argparse
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any

import msgspec

from model_profiling import api
from model_profiling.api.calling import caller
from model_profiling.api.definition import takes
from model_profiling.api.history_api import History
from model_profiling.base import files
from model_profiling.base.errors import InputError, KitError
from model_profiling.base.printing import tell, warn
from model_profiling.base.units import counted, shown_mib
from model_profiling.cli.answer import answer, ending, note, show_result, show_rows
from model_profiling.cli.arguments import chosen_platform, flags_said, said
from model_profiling.cli.progress import progress
from model_profiling.cli.run_argument import tell_interrupted
from model_profiling.report import numbers
from model_profiling.report.blocks import Number, Row
from model_profiling.store import runs
from model_profiling.store.derived import current_fingerprint, read_index
from model_profiling.store.labels import split_labels
from model_profiling.store.run_directory import RunDirectory

if TYPE_CHECKING:
    from model_profiling.fleet.history.bisection import Bisection
    from model_profiling.fleet.history.trends import ProgramComparison, Regression, Series
    from model_profiling.pipeline.schedule import Counts

TAKES = takes(
    more="action=HistoryAction? model=HistoryModel? root of_model dtype=OfDtype label=OfLabels since "
    "experiment=OfExperiment most out=HistoryOut confirm again below start end older_than keep_last yes remove json "
    "@counts @machine"
)
COMMON = "action model root of_model label since most confirm out json"
EXAMPLE = "sme2-kit history trend toy_cnn"
_MOST = 30


def run(args: argparse.Namespace) -> None:
    args.action = args.action or "list"
    _counts(args)
    _refuse_foreign_flags(args)
    _ACTIONS[args.action][0](args)


def _refuse_foreign_flags(args: argparse.Namespace) -> None:
    _, mine = _ACTIONS[args.action]
    whose = {name: [action for action, (_, names) in _ACTIONS.items() if name in names] for name in said(args, _OWN)}
    if wrong := sorted(whose.keys() - {*mine}):
        (flag,) = flags_said(args, [each for each in TAKES if each.name == wrong[0]])
        raise InputError(f"{flag} is not for `history {args.action}`", f"It is for {', '.join(whose[wrong[0]])}.")
    chosen = flags_said(args, [each for each in TAKES if each.name in ("root", "of_model", "dtype", "label")])
    if args.action == "runs" and chosen:
        raise InputError(f"{chosen[0]} is not for `history runs`", "It lists all runs of DIR: use `history list`.")
    if args.action in ("trend", "bisect") and args.model is None and args.of_model is None:
        raise InputError(f"`history {args.action}` needs a model", "`sme2-kit history list` names them.")


def _counts(args: argparse.Namespace) -> "Counts":
    from model_profiling.pipeline.schedule import checked_counts

    return checked_counts(args.runs, args.launches, args.budget_s, None, caller().spelled)


def _history(args: argparse.Namespace) -> History:
    name, labels = split_labels(args.label or ())
    if name is not None:
        raise InputError(f"--label {name[:80]!r} has no value", "Give KEY=VALUE.")
    chosen = {"model": args.model or args.of_model, "platform": args.platform, "dtype": args.dtype, "since": args.since}
    with progress(quiet=bool(args.json)) as report:
        folders = args.root or [Path()]
        found = api.history(*folders, **chosen, labels=labels, experiment=args.experiment, on_progress=report)
    for run in found.found.unreadable[:3] if args.action != "list" else []:
        note(f"{run.path} cannot be read: {run.problem}")
    return found


def _list(args: argparse.Namespace) -> None:
    found = list(_history(args).runs)
    rows: list[Row] = []
    for run in found[: args.most or None]:
        speeds = ", ".join(f"{ms:.3f} ms {name}" for name, ms in run.median_ms.items()) or "none"
        what = f"unreadable: {run.problem}" if run.problem else speeds
        commit = run.revision.commit[:10] + ("+" if run.revision.dirty else "")
        rows.append((run.created[:16], run.model, run.dtype, run.platform, run.label, commit, what, str(run.path)))
    columns = ("made (UTC)", "model", "dtype", "platform", "label", "commit", "median latency", "path")
    measured = next((run.model for run in found if run.median_ms), None)
    roots = [word for root in args.root or () for word in ("--root", root)]
    none = "no runs here: measure one with sme2-kit run, or give a folder with --root\n"
    words = ["history", "trend", measured, *roots] if measured else []
    answer(args, found, lambda: show_rows(columns, rows, none, args.most, words))


def _runs(args: argparse.Namespace) -> None:
    """List the runs of a directory, or of all below out_*/runs; or remove one by its label, never the latest."""
    directory = None if args.model is None else Path(args.model)
    if directory is not None and not directory.is_dir():
        raise InputError(f"run directory {directory} does not exist", "Give the directory a pipeline wrote to.")
    if args.remove is not None:
        if directory is None:
            raise InputError("--remove needs a run directory", "For example: sme2-kit history runs DIR --remove LABEL")
        removed = runs.remove(directory, args.remove)
        answer(args, {"removed": str(removed)}, lambda: tell(f"removed {removed}\n"))
        return
    roots = [directory] if directory is not None else runs.find_runs_below(Path())
    if directory is not None and not runs.list_runs(directory):
        roots = runs.roots_below(directory)
    for root in roots:
        tell_interrupted(root)
    found = {str(root): [_as_data(str(root), entry) for entry in runs.list_runs(root)] for root in roots}
    none = "no runs here: measure one with sme2-kit run, or give the directory of one\n"
    listed = [entry for entries in found.values() for entry in entries]
    answer(args, listed, lambda: tell("".join(_as_text(*each) for each in found.items()) if listed else none))


def _as_data(root: str, entry: runs.RunListing) -> dict[str, Any]:
    return {"directory": root, **msgspec.to_builtins(entry), "median_ms": _medians(entry.path)}


def _as_text(root: str, entries: list[dict[str, Any]]) -> str:
    from model_profiling.report.text_table import table

    rows = [("label", "", "made (UTC)", "model", "dtype", "threads", "experiments", "status", "median latency")]
    for each in entries:
        medians, made = each["median_ms"], each["created"][:19].replace("T", " ")
        speeds = ", ".join(f"{ms:.3f} ms {name}" for name, ms in (medians or {}).items()) or "none"
        latency = "-" if each["path"] is None else "not analysed" if medians is None else speeds
        threads, count = ", ".join(map(str, each["threads"])), str(len(each["experiments"]))
        about = (each["label"], each["kind"], made, each["model"], each["dtype"], threads, count, each["status"])
        rows.append((*about, latency))
    return "\n".join([root, *table(rows, words=len(rows[0])), ""]) + "\n"


def _medians(path: str | None) -> dict[str, float] | None:
    """Return each experiment's median from metrics.json; None if there is none of the run as it is now."""
    if path is None:
        return None
    directory = RunDirectory(Path(path))
    try:
        metrics = files.read_json(directory.metrics_path, dict[str, Any], "metrics")
        if metrics.get("sources") != current_fingerprint(directory, read_index(directory)):
            return None
        medians = {n: e["latency"]["median_ms"] for n, e in metrics["experiments"].items() if e["latency"]}
        return {str(name): float(ms) for name, ms in medians.items()}
    except (KitError, KeyError, TypeError, ValueError, AttributeError):
        return None


def _trend(args: argparse.Namespace) -> None:
    from model_profiling.fleet.history.trend_page import page_report

    history = _history(args)
    if not history.series:
        raise InputError(
            f"no run of {args.model or args.of_model} has a measured latency", "Emulated runs have none: measure it."
        )
    written = [] if args.out is None else history.report(args.out)
    if written and not args.json:
        tell("".join(f"{path}\n" for path in written))
        warn(ending(args.out if args.out.suffix == ".html" else None))
    else:
        answer(args, history.trend, lambda: show_result(page_report(history.trend, Path())))


def _regressions(args: argparse.Namespace) -> None:
    history = _history(args)
    if args.confirm and _confirm(args, history):
        history = _history(args)
    found = sorted(history.steps, key=lambda entry: (entry.step.state != "confirmed", -entry.step.percent))
    answer(args, found, lambda: _show_steps(found, history))


def _show_steps(found: "list[Regression]", history: History) -> None:
    if not found:
        models = counted(len({each.model for each in history.series}), "model")
        tell(f"no steps in {len(history.series)} series of {models}\n")
    for entry in found:
        tell(f"{entry.series} on {entry.device}, {entry.step.created[:16]}\n  {entry.step.sentence}\n")
        if entry.step.state == "confirmed" and entry.step.comparison is not None:
            _show_changes(entry.step.comparison)
    if any(entry.step.state == "candidate" for entry in found):
        tell("\nA candidate is no regression: --confirm compares its programs side by side.\n")


def _confirm(args: argparse.Namespace, history: History) -> bool:
    """Compare the programs around candidates, as far as this device can; return whether there are any."""
    from model_profiling.fleet.history.bisection import Measurer

    states = ("candidate", "confirmed", "refuted") if args.again else ("candidate",)
    waiting = [(each, step) for each in history.series for step in each.steps if step.state in states]
    if not waiting:
        return False
    with chosen_platform(args) as platform, progress() as report:
        measurer = Measurer(history.kept, platform, report, _counts(args), bool(args.again))
        for each, step in waiting:
            try:
                measurer.compare(each, step.before_sha256, step.after_sha256)
            except KitError as error:
                note(f"{each.title}, {step.created[:16]}: {error.message}. {error.hint}")
    return True


def _bisect(args: argparse.Namespace) -> None:
    from model_profiling.fleet.history import bisection

    history = _history(args)
    if not history.series:
        raise InputError(f"no run of {args.model or args.of_model} has a measured latency", "Measure it first.")
    # The series with the largest step up, else the one with most programs.
    chosen = max(history.series, key=lambda each: (max((s.percent for s in each.steps), default=0.0), len(each.points)))
    first = 0 if args.start is None else _place(chosen, args.start, first=True)
    last = len(chosen.points) if args.end is None else _place(chosen, args.end, first=False)
    places = [place for place in bisection.kept_points(chosen, history.kept) if first <= place <= last]
    with chosen_platform(args) as platform, progress() as report:
        measurer = bisection.Measurer(history.kept, platform, report, _counts(args), bool(args.again))
        found = bisection.bisect(chosen, places, measurer.compare)
    answer(
        args, found, lambda: _show_bisection(found, {point.sha256: point.label for point in reversed(chosen.points)})
    )


def _show_bisection(found: "Bisection", labels: dict[str, str]) -> None:
    from model_profiling.fleet.history.bisection import format_change

    tell(f"{found.series}: {found.sentence}\n")
    for record in found.comparisons:
        sides = f"{labels[record.before]} against {labels[record.after]}"
        tell(f"  {sides}: {format_change(record)}, {record.latency.verdict}\n")
    if found.after_sha256:
        _show_changes(found.comparisons[-1])


def _show_changes(record: "ProgramComparison") -> None:
    """Print which lines of the later program take another time; an earlier kit did not trace it."""
    from model_profiling.report.change_words import largest_sentence

    if record.changes is not None and (said := largest_sentence(record.changes)):
        tell(f"  largest changes: {said}\n")


def _place(series: "Series", reference: str, first: bool) -> int:
    """Return the point that a label, or the beginning of a commit or hash, means."""
    fitting = [
        place
        for place, point in enumerate(series.points)
        if reference == point.label
        or (len(reference) >= 4 and (point.revision.commit.startswith(reference) or point.sha256.startswith(reference)))
    ]
    if not fitting:
        raise InputError(f"no run of {series.title} is called {reference[:80]!r}", "Give its label or its commit.")
    return fitting[0] if first else fitting[-1]


def _top(args: argparse.Namespace) -> None:
    found = list(_history(args).top)
    rows: list[Row] = [
        (
            entry.operator,
            entry.category,
            Number(numbers.ms(entry.ms), entry.ms),
            Number(numbers.share(entry.share), entry.share),
            Number(str(entry.models), entry.models),
            f"{entry.most_in}, {numbers.ms(entry.most_ms)}",
        )
        for entry in found[: args.most or _MOST]
    ]
    columns = ("operator", "category", "time", "share", "models", "most in")
    none = "no measured run has an analysis: see sme2-kit analyze\n"
    answer(args, found, lambda: show_rows(columns, rows, none, args.most))


def _coverage(args: argparse.Namespace) -> None:
    limit = args.below
    found = [e for e in _history(args).coverage if limit is None or e.percent is None or e.percent < limit]
    rows: list[Row] = []
    for entry in found:
        percent = Number("unknown" if entry.percent is None else f"{entry.percent:.1f} %", entry.percent)
        rows.append((entry.model, entry.dtype, entry.variant, percent, entry.path or entry.unknown))
    none = "every model is above that\n" if limit is not None else "no runs here\n"
    answer(args, found, lambda: show_rows(("model", "dtype", "variant", "on SME2", "as told by"), rows, none))


def _export(args: argparse.Namespace) -> None:
    from model_profiling.fleet.history.history_records import write_rows

    path = args.out
    if path is None or path.suffix not in (".parquet", ".csv"):
        raise InputError("`history export` needs --out FILE.parquet or --out FILE.csv", "Give one of the two.")
    rows = _history(args).measurements
    write_rows(rows, path, parquet=path.suffix == ".parquet")
    answer(args, {"file": str(path), "rows": len(rows)}, lambda: tell(f"{path}: {len(rows)} rows\n"))


def _prune(args: argparse.Namespace) -> None:
    from model_profiling.fleet.history.retention import removable, remove
    from model_profiling.fleet.history.run_history import parse_since

    if args.older_than is None and args.keep_last is None:
        raise InputError("`history prune` needs --older-than or --keep-last", "For example: --older-than 90d")
    if args.keep_last is not None and args.keep_last < 0:
        raise InputError(f"--keep-last {args.keep_last} is not a count", "Give 0 or more.")
    before = None if args.older_than is None else parse_since(args.older_than)
    found = removable(_history(args).found, before, args.keep_last)
    problems = remove(found) if args.yes else []
    size = shown_mib(sum(entry.bytes for entry in found))
    lines = [*(f"{entry.what} {entry.path} ({entry.why})" for entry in found)]
    lines.append(f"removed {size}" if args.yes else f"would remove {size}: add --yes to do it")
    text = "\n".join([*lines, ""]) if found else "nothing to remove\n"
    answer(args, {"removed": bool(args.yes), "entries": found, "problems": problems}, lambda: tell(text))
    for problem in problems:
        note(f"not removed: {problem}")


_MEASURING = ("runs", "launches", "budget_s")
# What carries each action out, and which flags it takes beside those that choose runs.
_ACTIONS: dict[str, tuple[Callable[[argparse.Namespace], None], tuple[str, ...]]] = {
    "list": (_list, ("most",)),
    "runs": (_runs, ("model", "remove")),
    "trend": (_trend, ("model", "out", "experiment")),
    "regressions": (_regressions, ("confirm", "again", "experiment", *_MEASURING)),
    "top": (_top, ("most",)),
    "coverage": (_coverage, ("below",)),
    "export": (_export, ("out",)),
    "bisect": (_bisect, ("model", "start", "end", "again", "experiment", *_MEASURING)),
    "prune": (_prune, ("older_than", "keep_last", "yes")),
}
_OWN = {name for _, names in _ACTIONS.values() for name in names}
