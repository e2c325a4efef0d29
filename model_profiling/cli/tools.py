"""The learning path's tools: small conversions of one file, each a few lines over the same analysis."""

import argparse
import re
import shlex
import sys
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING

from model_profiling.base.printing import say
from model_profiling.cli import shared_flags
from model_profiling.cli.process import enter
from model_profiling.cli.run_argument import resolve_argument

if TYPE_CHECKING:
    from model_profiling.analysis.timing.profile import Profile


def enter_tool(name: str) -> None:
    """Be the process of a script. Python has put its folder first; it puts the repository's root there instead."""
    enter(command=lambda: main(name))


def main(name: str, argv: list[str] | None = None) -> int:
    """Run one tool by its script's name, with the kit's way to fail."""
    from model_profiling.cli.main import Parser, run_guarded

    prepare, run = _TOOLS[name]
    parser = Parser(prog=f"{name}.py", description=run.__doc__)
    prepare(parser)
    parser.add_argument("--debug", action="store_true", help="show tracebacks")
    args = parser.parse_args(argv)
    return run_guarded(run, args)


def _given(argument: object, flag: object, what: str) -> object:
    from model_profiling.base.errors import InputError

    if (argument is None) == (flag is None):
        raise InputError(f"give {what}, once", "See --help.")
    return argument if argument is not None else flag


def _profile(args: argparse.Namespace) -> "Profile":
    from model_profiling.analysis.timing.categories import load_table
    from model_profiling.analysis.timing.profile import profiles
    from model_profiling.formats import etdump

    path, table = _source(args), load_table(args.categories)
    if path.suffix == ".csv":
        from model_profiling.analysis.run.timeline import read_timeline

        return read_timeline(path, table)
    return profiles(etdump.read(path), table)[0]


def _source(args: argparse.Namespace) -> Path:
    """Return the ETDump or the timeline CSV, however it was given."""
    from model_profiling.base.errors import InputError

    given = [path for path in (args.etdump, args.etdump_flag, args.timeline_csv) if path is not None]
    if len(given) != 1:
        raise InputError("give an .etdump file or a timeline CSV, once", "See --help.")
    return Path(given[0])


def _write(path: Path | None, text: str) -> int:
    from model_profiling.store.derived import write_listed

    if path is None:
        say(text)
    else:
        write_listed(path, text, _typed())
    return 0


def _typed() -> str:
    """Return the command as it was typed."""
    return shlex.join(["python", *sys.argv] if sys.argv[0].endswith(".py") else sys.argv)


def _write_json(path: Path | None, value: object) -> int:
    from model_profiling.base import files

    return _write(path, files.json_bytes(value).decode())


def _one_dump(parser: argparse.ArgumentParser) -> None:
    what = "an ETDump, or a timeline CSV (*_all_runs_timeline.csv)"
    parser.add_argument("etdump", nargs="?", type=Path, metavar="FILE", help=what)
    parser.add_argument("--etdump", dest="etdump_flag", type=Path, metavar="FILE", help="the same as the argument")
    parser.add_argument("--timeline-csv", type=Path, metavar="FILE", help="the same, for a timeline CSV")
    shared_flags.add_out(parser, "default: standard output", "FILE")
    parser.add_argument("--categories", type=Path, metavar="FILE", help="extends or overrides the category table")


def _dump_and_model(parser: argparse.ArgumentParser) -> None:
    _one_dump(parser)
    parser.add_argument(
        "--model",
        type=Path,
        metavar="FILE.pte",
        help="the .pte with the graph (default: the model of the run directory)",
    )


def _etdump_to_csv(args: argparse.Namespace) -> int:
    """Write every operator of every execution of an ETDump as CSV."""
    from model_profiling.report.files.tables import timeline_csv

    profile = _profile(args)
    return _write(args.out, timeline_csv(profile, range(profile.executions)))


def _etdump_to_ops_json(args: argparse.Namespace) -> int:
    """Write where the time of an ETDump goes, by operator, as JSON."""
    from model_profiling.analysis.timing.breakdown import break_down

    return _write_json(args.out, break_down(_profile(args)))


def _categorize_operators(args: argparse.Namespace) -> int:
    """Write the operators of an ETDump with their categories, as JSON."""
    from model_profiling.analysis.timing.breakdown import break_down

    breakdown = break_down(_profile(args))
    operators = {
        entry.category: [o for o in breakdown.operators if o.category == entry.category]
        for entry in breakdown.categories
    }
    return _write_json(args.out, {"categories": breakdown.categories, "operators": operators})


def _analyze_transpose_patterns(args: argparse.Namespace) -> int:
    """Write the data movement of an ETDump: chains, pairs that cancel, and what each costs, as JSON."""
    from model_profiling.analysis.graph.graph import read_graph
    from model_profiling.analysis.movement.movement import data_movement
    from model_profiling.analysis.timing.breakdown import break_down
    from model_profiling.formats import pte

    profile = _profile(args)
    if args.model is not None:
        pte.read(args.model)  # what the user names must be readable; what is found by itself need not be
    model = args.model or _model_behind(_source(args))
    graph = read_graph(profile.instances, model) if model is not None else None
    return _write_json(args.out, data_movement(break_down(profile), graph))


def _model_behind(dump: Path) -> Path | None:
    """Return the .pte that a dump in a run directory came from, if it is still there unchanged."""
    from model_profiling.base.errors import InputError
    from model_profiling.store.run_directory import RunDirectory

    try:
        return RunDirectory(dump.resolve().parents[1]).manifest().model.file()
    except InputError:
        return None


def _runs(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "path", nargs="?", metavar="PATH", help="run directory, DIR:EXPERIMENT, .etdump or timeline CSV"
    )
    parser.add_argument("--run-dir", help=argparse.SUPPRESS)
    parser.add_argument("--timeline-csv", type=Path, metavar="A", help="a *_all_runs_timeline.csv instead")
    parser.add_argument("--compare", type=Path, metavar="B", help="another timeline CSV, to compare with the first")
    parser.add_argument("--name", "--name1", default="A", help="what to call the first CSV (default: A)")
    parser.add_argument("--name2", default="B", help="what to call the second (default: B)")
    parser.add_argument("--output-dir", type=Path, help=argparse.SUPPRESS)  # NAME_robust_stats.json goes there
    shared_flags.add_out(parser, "default: standard output", "FILE")
    parser.add_argument("--verbose", action="store_true", help="also print the comparison as a sentence")


def _robust_latency_analysis(args: argparse.Namespace) -> int:
    """Write robust latency statistics of each experiment, or of one or two timeline CSVs, as JSON."""
    from model_profiling.analysis.run.selection import choose
    from model_profiling.analysis.timing.latency import summarise

    if args.timeline_csv is None and str(args.path).endswith(".csv"):
        args.timeline_csv, args.path = Path(args.path), None
    if args.timeline_csv is not None:
        return _latency_of_timelines(args)
    given = str(_given(args.path, args.run_dir, "a run directory or an .etdump"))
    chosen = choose(str(resolve_argument(given, writes=args.out is not None)))
    stats = {
        name: {"latency_source": side.latency_source, "latency": summarise(side.turns)}
        for name, side in chosen.items()
        if side.turns
    }
    return _write_json(args.out, stats)


def _latency_of_timelines(args: argparse.Namespace) -> int:
    """Return latency from timelines: executions with the tracer attached, as their source says."""
    from model_profiling.analysis.run.timeline import read_turns
    from model_profiling.analysis.timing.categories import load_table
    from model_profiling.analysis.timing.latency import compare, summarise
    from model_profiling.report.words import comparison_sentence

    if args.path is not None or args.run_dir is not None:
        _given(args.path or args.run_dir, args.timeline_csv, "a run directory or a timeline CSV")
    table = load_table(None)
    sides = {args.name: read_turns(args.timeline_csv, table)}
    if args.compare is not None:
        second = args.name2 if args.name2 != args.name else f"{args.name2} (2)"
        sides[second] = read_turns(args.compare, table)
    found: dict[str, object] = {
        name: {"latency_source": "traced executions", "latency": summarise(turns)} for name, turns in sides.items()
    }
    if len(sides) == 2:
        before, after = sides.items()
        comparison = compare(before, after, paired=False)
        found["comparison"] = comparison
        if args.verbose:
            say(f"{comparison_sentence(comparison)}\n")
    output = args.out
    if args.output_dir is not None:
        output = args.output_dir / f"{re.sub(r'[^A-Za-z0-9_.-]', '_', args.name)}_robust_stats.json"
    return _write_json(output, found)


def _two_timelines(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--timeline-csv", type=Path, required=True, metavar="A", help="a *_all_runs_timeline.csv")
    parser.add_argument("--compare", type=Path, metavar="B", help="another one, to compare with")
    parser.add_argument("--name1", default="A", help="what to call the first (default: A)")
    parser.add_argument("--name2", default="B", help="what to call the second (default: B)")
    shared_flags.add_out(parser, "write operator tables and the comparison there")
    parser.add_argument("--categories", type=Path, metavar="FILE", help="extends or overrides the category table")
    parser.add_argument("--verbose", action="store_true", help="print all operators, not the top ones")


def _analyze_etdump_csv(args: argparse.Namespace) -> int:
    """Tell which operators of a timeline CSV take the time, and how a second one differs."""
    from model_profiling.analysis.run.timeline import read_timeline
    from model_profiling.analysis.timing.categories import load_table
    from model_profiling.report.files.timelines import report_timelines
    from model_profiling.store.derived import write_listed

    table = load_table(args.categories)
    sides = [(args.name1, read_timeline(args.timeline_csv, table))]
    if args.compare is not None:
        sides.append((args.name2, read_timeline(args.compare, table)))
    report_timelines(sides, args.out, args.verbose, lambda path, text: write_listed(path, text, _typed()))
    return 0


def _one_log(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("log", nargs="?", type=Path, metavar="LOG", help="the log of a trace-enabled runner")
    parser.add_argument("--xnntrace", type=Path, metavar="LOG", help="the same as the argument")
    shared_flags.add_out(parser, "a name that ends in .csv asks for CSV (default: stdout)", "FILE")


def _xnntrace_to_kernels(args: argparse.Namespace) -> int:
    """Write the kernels a trace-enabled runner's log names, as JSON or CSV."""
    from model_profiling.analysis.sme2.xnntrace import read_log
    from model_profiling.report.files.tables import kernels_csv

    log = Path(str(_given(args.log, args.xnntrace, "a log")))
    kernels = read_log(log)
    if args.out is not None and args.out.suffix == ".csv":
        return _write(args.out, kernels_csv(kernels))
    return _write_json(args.out, {"log": str(log), "kernels": kernels})


def _logs_or_run(parser: argparse.ArgumentParser) -> None:
    what = "trace logs, kernel CSVs of xnntrace_to_kernels.py, or one run directory"
    parser.add_argument("sources", nargs="*", type=Path, metavar="SOURCE", help=what)
    parser.add_argument("--sme2-on", type=Path, metavar="FILE", help="the log or CSV with SME2")
    parser.add_argument("--sme2-off", type=Path, metavar="FILE", help="the log or CSV without")
    shared_flags.add_out(parser, "default: standard output", "FILE")


def _generate_kernel_view(args: argparse.Namespace) -> int:
    """Write which kernels ran, side by side for several logs or by operator for a run directory, as Markdown."""
    from model_profiling.analysis.run.output_checks import verify_kernels
    from model_profiling.analysis.sme2.xnntrace import read_kernels
    from model_profiling.api import Run
    from model_profiling.base.errors import InputError
    from model_profiling.cli.notes import tell_outdated
    from model_profiling.report.kernel_view import kernel_view, log_view

    named = {"SME2 on": args.sme2_on, "SME2 off": args.sme2_off}
    sides = {path.stem: path for path in args.sources} | {name: path for name, path in named.items() if path}
    if not sides:
        raise InputError("there is nothing to show", "Give trace logs, kernel CSVs or a run directory.")
    only = resolve_argument(args.sources[0], writes=True) if len(args.sources) == len(sides) == 1 else None
    if only is not None and only.is_dir():
        run = Run.open(only)
        tell_outdated(run.save())
        summary = run.summary
        if not any(experiment.coverage for experiment in summary.experiments.values()):
            raise InputError(f"{only} has no trace run", "Run an experiment with `mode: trace`.")
        written = _write(args.out, kernel_view(summary))
        verify_kernels(summary)
        return written
    return _write(args.out, log_view({name: read_kernels(path) for name, path in sides.items()}))


Prepare = Callable[[argparse.ArgumentParser], None]
_TOOLS: dict[str, tuple[Prepare, Callable[[argparse.Namespace], int]]] = {
    "etdump_to_csv": (_one_dump, _etdump_to_csv),
    "etdump_to_ops_json": (_one_dump, _etdump_to_ops_json),
    "categorize_operators": (_one_dump, _categorize_operators),
    "analyze_transpose_patterns": (_dump_and_model, _analyze_transpose_patterns),
    "robust_latency_analysis": (_runs, _robust_latency_analysis),
    "xnntrace_to_kernels": (_one_log, _xnntrace_to_kernels),
    "generate_kernel_view": (_logs_or_run, _generate_kernel_view),
    "analyze_etdump_csv": (_two_timelines, _analyze_etdump_csv),
}
