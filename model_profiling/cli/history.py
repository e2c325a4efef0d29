"""`sme2-kit history`: every run below a folder; since when is it slower, where does the time go, what may go."""

import argparse
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING

from model_profiling.base.printing import say_json, tell, warn
from model_profiling.base.units import counted
from model_profiling.cli import count_flags, platform_flags, shared_flags
from model_profiling.cli.answer import answer
from model_profiling.cli.next_step import ending
from model_profiling.cli.notes import note
from model_profiling.cli.progress import progress

if TYPE_CHECKING:
    from model_profiling.fleet.history.retention import Removable
    from model_profiling.fleet.history.run_history import RunHistory
    from model_profiling.fleet.history.trends import ProgramComparison, Series

HELP = "runs over time: list, trends with steps, regressions that comparing confirms, top operators, SME2 coverage"
_SPELLED = {"start": "--from", "end": "--to", "model": "MODEL|DIR"}
_MOST = 30


def prepare_parser(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "action", choices=tuple(_ACTIONS), nargs="?", default="list", help="what to ask, or to do (default: list)"
    )
    parser.add_argument(
        "model",
        nargs="?",
        metavar="MODEL|DIR",
        help="of trend and bisect: the model, as `list` names it; of runs: the run directory (default: all out_*/runs)",
    )
    which = parser.add_argument_group("which runs")
    which.add_argument(
        "--root", action="append", type=Path, metavar="DIR", help="a folder to look in; may be repeated (default: here)"
    )
    which.add_argument("--model", dest="of_model", metavar="NAME", help="only this model; * stands for anything")
    which.add_argument("--dtype", metavar="NAME", help="only this data type")
    which.add_argument(
        "--label", action="append", default=[], metavar="KEY=VALUE", help="only with this label; also commit, branch"
    )
    which.add_argument("--since", metavar="DATE|90d", help="only from this day on, or of the last days (d), hours (h)")
    which.add_argument("--experiment", metavar="NAME", help="trend, regressions, bisect: only this experiment")
    parser.add_argument("--most", type=int, metavar="N", help=f"list, top: how many to print (default: {_MOST})")
    text = "trend: a page (.html, with .md and .json beside it), .svg or .png; export: .parquet or .csv"
    shared_flags.add_out(parser, text, "FILE")
    parser.add_argument(
        "--confirm", action="store_true", help="regressions: compare the programs around each candidate, side by side"
    )
    parser.add_argument("--again", action="store_true", help="confirm, bisect: measure also what was compared before")
    parser.add_argument("--below", type=float, metavar="PCT", help="coverage: only models with less on SME2")
    for earlier in ("--parquet", "--csv"):
        parser.add_argument(earlier, type=Path, help=argparse.SUPPRESS)
    parser.add_argument("--from", dest="start", metavar="REF", help="bisect: the first program, by label or commit")
    parser.add_argument("--to", dest="end", metavar="REF", help="bisect: the last one")
    parser.add_argument("--older-than", metavar="90d", help="prune: earlier runs before this time")
    parser.add_argument("--keep-last", type=int, metavar="N", help="prune: keep so many runs of each kind")
    parser.add_argument("--yes", action="store_true", help="prune: remove them (default: only say what would go)")
    parser.add_argument("--remove", metavar="LABEL", help="runs: remove this earlier or interrupted run of DIR")
    parser.add_argument("--json", action="store_true", help="print the answer as JSON")
    count_flags.prepare_parser(parser, "of each of two programs", threads=False)
    platform_flags.prepare_parser(parser)


def run(args: argparse.Namespace) -> int:
    count_flags.counts(args)
    _refuse_foreign_flags(args)
    _ACTIONS[args.action][0](args)
    return 0


def _refuse_foreign_flags(args: argparse.Namespace) -> None:
    from model_profiling.base.errors import InputError

    own = {name for _, names in _ACTIONS.values() for name in names}
    for name in sorted(own - {*_ACTIONS[args.action][1]}):
        if getattr(args, name) not in (None, False):
            flag = _SPELLED.get(name, f"--{name.replace('_', '-')}")
            whose = [action for action, (_, names) in _ACTIONS.items() if name in names]
            raise InputError(f"{flag} is not for `history {args.action}`", f"It is for {', '.join(whose)}.")
    chosen = {"--root": args.root, "--model": args.of_model, "--dtype": args.dtype, "--label": args.label}
    if args.action == "runs" and (wrong := [flag for flag, value in chosen.items() if value]):
        raise InputError(f"{wrong[0]} is not for `history runs`", "It lists all runs of DIR: use `history list`.")
    if args.action in ("trend", "bisect") and args.model is None and args.of_model is None:
        raise InputError(f"`history {args.action}` needs a model", "`sme2-kit history list` names them.")


def _history(args: argparse.Namespace) -> "RunHistory":
    from model_profiling.base.errors import InputError
    from model_profiling.fleet.history.run_history import Filters, RunHistory, parse_since
    from model_profiling.store.labels import split_labels

    name, labels = split_labels(args.label)
    if name is not None:
        raise InputError(f"--label {name[:80]!r} has no value", "Give KEY=VALUE.")
    first = None if args.since is None else parse_since(args.since)
    filters = Filters(args.model or args.of_model, args.platform, args.dtype, labels, first)
    with progress(quiet=True) if args.json else progress() as report:
        found = RunHistory(args.root or [Path()], filters, report)
    for run in found.unreadable[:3] if args.action != "list" else []:
        note(f"{run.path} cannot be read: {run.problem}")
    return found


def _list(args: argparse.Namespace) -> None:
    from model_profiling.cli.run_lists import show_history

    found = _history(args).runs()
    answer(args, found, lambda: show_history(found, args.most or _MOST, args.root or ()))


def _runs(args: argparse.Namespace) -> None:
    from model_profiling.cli.run_lists import show_runs

    show_runs(None if args.model is None else Path(args.model), args.remove, args)


def _series(args: argparse.Namespace, history: "RunHistory") -> "list[Series]":
    from model_profiling.fleet.history.program_archive import KeptPrograms
    from model_profiling.fleet.history.steps import with_steps

    kept = KeptPrograms(history.search.keeping)
    chosen = [each for each in history.series() if args.experiment in (None, each.experiment)]
    return [with_steps(each, kept) for each in chosen]


def _trend(args: argparse.Namespace) -> None:
    from model_profiling.base.errors import InputError
    from model_profiling.fleet.history.steps import version_changes
    from model_profiling.fleet.history.trends import Trend
    from model_profiling.report.terminal.text_table import table

    found = Trend(_series(args, _history(args)))
    if not found.series:
        raise InputError(
            f"no run of {args.model or args.of_model} has a measured latency", "Emulated runs have none: measure it."
        )
    if args.out is not None:
        from model_profiling.fleet.history.trend_page import write

        written = write(found, args.out)
        if not args.json:
            tell("".join(f"{path}\n" for path in written))
            warn(ending(args.out if args.out.suffix == ".html" else None))
            return
    if args.json:
        say_json(found)
        return
    for series in found.series:
        tell(f"{series.title} on {series.device} ({series.platform}), {len(series.points)} runs\n")
        rows = [("made (UTC)", "label", "commit", "median", "spread", "")]
        steps, changed = {step.index: step for step in series.steps}, version_changes(series.points)
        for place, point in list(enumerate(series.points))[-_MOST:]:
            commit = point.revision.commit[:10] + ("+" if point.revision.dirty else "")
            said = [changed[place]] if place in changed else []
            said += [steps[place].sentence] if place in steps else []
            speed = f"{point.median_ms:.3f} ms", f"{point.spread_ms:.3f} ms"
            rows.append((point.created[:16], point.label, commit, *speed, "; ".join(said)))
        tell("\n".join([*table(rows, words=3, left={5}), ""]) + "\n")


def _regressions(args: argparse.Namespace) -> None:
    from model_profiling.fleet.history.trends import Regression

    history = _history(args)
    series = _series(args, history)
    if args.confirm:
        series = _confirmed(args, history, series)
    found = [
        Regression(each.title, each.model, each.platform, each.device, step) for each in series for step in each.steps
    ]
    found.sort(key=lambda entry: (entry.step.state != "confirmed", -entry.step.percent))
    if args.json:
        say_json(found)
        return
    if not found:
        models = counted(len({each.model for each in series}), "model")
        tell(f"no steps in {len(series)} series of {models}\n")
    for entry in found:
        tell(f"{entry.series} on {entry.device}, {entry.step.created[:16]}\n  {entry.step.sentence}\n")
        if entry.step.state == "confirmed" and entry.step.comparison is not None:
            _show_changes(entry.step.comparison)
    if any(entry.step.state == "candidate" for entry in found):
        tell("\nA candidate is no regression: --confirm compares its programs side by side.\n")


def _confirmed(args: argparse.Namespace, history: "RunHistory", series: "list[Series]") -> "list[Series]":
    """Return the same series after their candidates were compared, as far as this device can."""
    from model_profiling.base.errors import KitError
    from model_profiling.fleet.history.bisection import Measurer
    from model_profiling.fleet.history.program_archive import KeptPrograms

    kept = KeptPrograms(history.search.keeping)
    states = ("candidate", "confirmed", "refuted") if args.again else ("candidate",)
    waiting = [(each, step) for each in series for step in each.steps if step.state in states]
    if not waiting:
        return series
    args.config = None
    with platform_flags.chosen_platform(args) as platform, progress() as report:
        measurer = Measurer(kept, platform, report, count_flags.counts(args), args.again)
        for each, step in waiting:
            try:
                measurer.compare(each, step.before_sha256, step.after_sha256)
            except KitError as error:
                note(f"{each.title}, {step.created[:16]}: {error.message}. {error.hint}")
    return _series(args, history)


def _bisect(args: argparse.Namespace) -> None:
    from model_profiling.base.errors import InputError
    from model_profiling.fleet.history import bisection
    from model_profiling.fleet.history.program_archive import KeptPrograms

    history = _history(args)
    series = _series(args, history)
    kept = KeptPrograms(history.search.keeping)
    if not series:
        raise InputError(f"no run of {args.model or args.of_model} has a measured latency", "Measure it first.")
    # The series with the largest step up, else the one with most programs.
    chosen = max(series, key=lambda each: (max((s.percent for s in each.steps), default=0.0), len(each.points)))
    places = bisection.kept_points(chosen, kept)
    points = chosen.points
    if args.start is not None:
        places = [place for place in places if place >= _place(chosen, args.start, first=True)]
    if args.end is not None:
        places = [place for place in places if place <= _place(chosen, args.end, first=False)]
    args.config = None
    with platform_flags.chosen_platform(args) as platform, progress() as report:
        measurer = bisection.Measurer(kept, platform, report, count_flags.counts(args), args.again)
        found = bisection.bisect(chosen, places, measurer.compare)
    if args.json:
        say_json(found)
        return
    tell(f"{found.series}: {found.sentence}\n")
    for record in found.comparisons:
        sides = [next(p for p in points if p.sha256 == sha256).label for sha256 in (record.before, record.after)]
        tell(f"  {sides[0]} against {sides[1]}: {bisection.format_change(record)}, {record.latency.verdict}\n")
    if found.after_sha256:
        _show_changes(found.comparisons[-1])


def _show_changes(record: "ProgramComparison") -> None:
    """Print which lines of the later program take another time; an earlier kit did not trace it."""
    from model_profiling.report.terminal import changes_text

    if record.changes is not None:
        changes_text.show_changes(record.changes, most=3)


def _place(series: "Series", reference: str, first: bool) -> int:
    """Return the point that a label, or the beginning of a commit or hash, means."""
    from model_profiling.base.errors import InputError

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
    from model_profiling.report.terminal.text_table import table

    found = _history(args).top()
    if args.json:
        say_json(found)
        return
    if not found:
        tell("no measured run has an analysis: see sme2-kit analyze\n")
        return
    rows = [("operator", "category", "time", "share", "models", "most in")]
    for entry in found[: args.most or _MOST]:
        most = f"{entry.most_in}, {entry.most_ms:.3f} ms"
        numbers = (f"{entry.ms:.3f} ms", f"{entry.share:.1%}", str(entry.models))
        rows.append((entry.operator, entry.category, *numbers, most))
    tell("\n".join(table(rows, words=2, left={5}, optional={5})) + "\n")


def _coverage(args: argparse.Namespace) -> None:
    from model_profiling.report.terminal.text_table import table

    limit = args.below
    found = [e for e in _history(args).coverage() if limit is None or e.percent is None or e.percent < limit]
    if args.json:
        say_json(found)
        return
    if not found:
        tell("every model is above that\n" if limit is not None else "no runs here\n")
        return
    rows = [("model", "dtype", "variant", "on SME2", "as told by")]
    for entry in found:
        percent = "unknown" if entry.percent is None else f"{entry.percent:.1f} %"
        rows.append((entry.model, entry.dtype, entry.variant, percent, entry.path or entry.unknown))
    tell("\n".join(table(rows, words=3, left={4})) + "\n")


def _export(args: argparse.Namespace) -> None:
    from model_profiling.base.errors import InputError
    from model_profiling.fleet.history import table_export

    given = [path for path in (args.out, args.parquet, args.csv) if path is not None]
    of_known_kind = args.out is None or args.out.suffix in (".parquet", ".csv")
    if len(given) != 1 or not of_known_kind:
        raise InputError("`history export` needs --out FILE.parquet or --out FILE.csv", "Give one of the two.")
    rows, path = _history(args).rows(), given[0]
    table_export.write(rows, path, parquet=path is args.parquet or (path is args.out and path.suffix == ".parquet"))
    answer(args, {"file": str(path), "rows": len(rows)}, lambda: tell(f"{path}: {len(rows)} rows\n"))


def _prune(args: argparse.Namespace) -> None:
    from model_profiling.base.errors import InputError
    from model_profiling.fleet.history import retention
    from model_profiling.fleet.history.run_history import parse_since

    if args.older_than is None and args.keep_last is None:
        raise InputError("`history prune` needs --older-than or --keep-last", "For example: --older-than 90d")
    if args.keep_last is not None and args.keep_last < 0:
        raise InputError(f"--keep-last {args.keep_last} is not a count", "Give 0 or more.")
    history = _history(args)
    before = None if args.older_than is None else parse_since(args.older_than)
    found = retention.removable(history.every, history.chosen(), history.search, before, args.keep_last)
    problems = retention.remove(found) if args.yes else []
    told = {"removed": args.yes, "entries": found, "problems": problems}
    answer(args, told, lambda: tell(_pruned(found, args.yes)))
    for problem in problems:
        note(f"not removed: {problem}")


def _pruned(found: "list[Removable]", removed: bool) -> str:
    from model_profiling.base.units import shown_mib

    if not found:
        return "nothing to remove\n"
    size = shown_mib(sum(entry.bytes for entry in found))
    last = f"removed {size}" if removed else f"would remove {size}: add --yes to do it"
    return "\n".join([*(f"{entry.what} {entry.path} ({entry.why})" for entry in found), last]) + "\n"


_MEASURING = ("runs", "launches", "budget")
# What carries each action out, and which flags it takes beside those that choose runs.
_ACTIONS: dict[str, tuple[Callable[[argparse.Namespace], None], tuple[str, ...]]] = {
    "list": (_list, ("most",)),
    "runs": (_runs, ("model", "remove")),
    "trend": (_trend, ("model", "out", "experiment")),
    "regressions": (_regressions, ("confirm", "again", "experiment", *_MEASURING)),
    "top": (_top, ("most",)),
    "coverage": (_coverage, ("below",)),
    "export": (_export, ("out", "parquet", "csv")),
    "bisect": (_bisect, ("model", "start", "end", "again", "experiment", *_MEASURING)),
    "prune": (_prune, ("older_than", "keep_last", "yes")),
}
