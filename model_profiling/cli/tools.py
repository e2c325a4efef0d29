"""The learning path's tools: small conversions of one file, each a few lines over the same analysis."""

import argparse
import re
import shlex
import sys
from collections.abc import Callable
from pathlib import Path

from model_profiling import api
from model_profiling.analysis.compare.comparison import compare_profiles
from model_profiling.analysis.compare.program_changes import ProfiledProgram
from model_profiling.analysis.sme2.xnntrace import read_kernels, read_log
from model_profiling.analysis.timing.breakdown import break_down
from model_profiling.analysis.timing.categories import load_table
from model_profiling.analysis.timing.latency import compare, summarise
from model_profiling.analysis.timing.profile import Profile, profiles
from model_profiling.api.definition import find
from model_profiling.base import files
from model_profiling.base.errors import InputError
from model_profiling.base.printing import say
from model_profiling.cli.answer import tell_outdated
from model_profiling.cli.arguments import Parser, prepare
from model_profiling.cli.main import guarded
from model_profiling.cli.run_argument import resolve_argument
from model_profiling.formats import etdump
from model_profiling.report.files.tables import changes_csv, kernels_csv, operators_csv, timeline_csv
from model_profiling.store.derived import write_listed
from model_profiling.store.run_directory import RunDirectory


def main(name: str, argv: list[str] | None = None) -> int:
    """Run one tool by its script's name, with the kit's way to fail."""
    names, run = _TOOLS[name]
    parser = Parser(prog=f"{name}.py", description=run.__doc__)
    prepare(parser, find(names))
    parser.add_argument("--debug", action="store_true", help="show tracebacks")
    return guarded(lambda: run(parser.parse_args(argv)), sys.argv[1:] if argv is None else argv)


def _profile(args: argparse.Namespace) -> Profile:
    path, table = _source(args), load_table(args.categories)
    if path.suffix == ".csv":
        from model_profiling.analysis.run.dumps import read_timeline

        return read_timeline(path, table)
    return profiles(etdump.read(path), table)[0]


def _source(args: argparse.Namespace) -> Path:
    """Return the ETDump or the timeline CSV, however it was given."""
    given = [path for path in (args.etdump, args.timeline_csv) if path is not None]
    if len(given) != 1:
        raise InputError("give an .etdump file or a timeline CSV, once", "See --help.")
    return Path(given[0])


def _write_listed(path: Path, text: str) -> None:
    """Write a file that its run directory knows the command of."""
    write_listed(path, text, shlex.join(["python", *sys.argv] if sys.argv[0].endswith(".py") else sys.argv))


def _write(path: Path | None, text: str) -> None:
    if path is None:
        say(text)
    else:
        _write_listed(path, text)


def _write_json(path: Path | None, value: object) -> None:
    _write(path, files.json_bytes(value).decode())


def _etdump_to_csv(args: argparse.Namespace) -> None:
    """Write every operator of every execution of an ETDump as CSV."""
    profile = _profile(args)
    _write(args.out, timeline_csv(profile, range(profile.executions)))


def _etdump_to_ops_json(args: argparse.Namespace) -> None:
    """Write where the time of an ETDump goes, by operator, as JSON."""
    _write_json(args.out, break_down(_profile(args)))


def _categorize_operators(args: argparse.Namespace) -> None:
    """Write the operators of an ETDump with their categories, as JSON."""
    found = break_down(_profile(args))
    operators = {
        part.category: [o for o in found.operators if o.category == part.category] for part in found.categories
    }
    _write_json(args.out, {"categories": found.categories, "operators": operators})


def _analyze_transpose_patterns(args: argparse.Namespace) -> None:
    """Write the data movement of an ETDump: chains, pairs that cancel, and what each costs, as JSON."""
    from model_profiling.analysis.graph.graph import read_graph
    from model_profiling.analysis.movement.movement import data_movement
    from model_profiling.formats import pte

    profile = _profile(args)
    if args.model is not None:
        pte.read(args.model)  # what the user names must be readable; what is found by itself need not be
    model = args.model or _model_behind(_source(args))
    graph = read_graph(profile.instances, model) if model is not None else None
    _write_json(args.out, data_movement(break_down(profile), graph))


def _model_behind(dump: Path) -> Path | None:
    """Return the .pte that a dump in a run directory came from, if it is still there unchanged."""
    try:
        return RunDirectory(dump.resolve().parents[1]).manifest().model.file()
    except InputError:
        return None


def _robust_latency_analysis(args: argparse.Namespace) -> None:
    """Write robust latency statistics of each experiment, or of one or two timeline CSVs, as JSON."""
    from model_profiling.analysis.run.selection import choose

    if args.timeline_csv is None and str(args.path).endswith(".csv"):
        args.timeline_csv, args.path = Path(args.path), None
    if args.timeline_csv is not None:
        _latency_of_timelines(args)
        return
    if args.path is None:
        raise InputError("give a run directory or an .etdump, once", "See --help.")
    sides = choose(str(resolve_argument(args.path, writes=args.out is not None))).items()
    stats = {n: {"latency_source": s.latency_source, "latency": summarise(s.turns)} for n, s in sides if s.turns}
    _write_json(args.out, stats)


def _latency_of_timelines(args: argparse.Namespace) -> None:
    """Return latency from timelines: executions with the tracer attached, as their source says."""
    from model_profiling.analysis.run.dumps import read_turns
    from model_profiling.report.words import comparison_sentence

    if args.path is not None:
        raise InputError("give a run directory or a timeline CSV, once", "See --help.")
    table, first, second = load_table(None), args.name or "A", args.name2 or "B"
    sides = {first: read_turns(args.timeline_csv, table)}
    if args.compare is not None:
        sides[second if second != first else f"{second} (2)"] = read_turns(args.compare, table)
    found: dict[str, object] = {
        name: {"latency_source": "traced executions", "latency": summarise(turns)} for name, turns in sides.items()
    }
    if len(sides) == 2:
        before, after = sides.items()
        found["comparison"] = comparison = compare(before, after, paired=False)
        if args.verbose:
            say(f"{comparison_sentence(comparison)}\n")
    output = args.out
    if args.output_dir is not None:
        output = args.output_dir / f"{re.sub(r'[^A-Za-z0-9_.-]', '_', first)}_robust_stats.json"
    _write_json(output, found)


def _analyze_etdump_csv(args: argparse.Namespace) -> None:
    """Tell which operators of a timeline CSV take the time, and how a second one differs."""
    from model_profiling.analysis.run.dumps import AnalysisSummary, analysed_profile, read_timeline
    from model_profiling.report.content.dumps import report
    from model_profiling.report.terminal import show

    given = [(args.name or "A", args.timeline_csv), (args.name2 or "B", args.compare)]
    table = load_table(args.categories)
    sides = [(name, read_timeline(path, table)) for name, path in given if path is not None]
    experiments = {name: analysed_profile(profile) for name, profile in sides}
    comparisons = []
    if len(sides) == 2:
        before, after = [ProfiledProgram(name, profile, break_down(profile)) for name, profile in sides]
        comparisons = [compare_profiles(before, after, paired=False)]
    summary = AnalysisSummary("", "", "", experiments, comparisons, None, [])
    show(report(summary), "whole" if args.verbose else "short")
    if args.out is not None:
        _write_listed(args.out / "operator_analysis.json", files.json_bytes(summary).decode())
        for name, experiment in experiments.items():
            file = re.sub(r"[^A-Za-z0-9_.-]", "_", name)
            _write_listed(args.out / f"{file}_ops_stats.csv", operators_csv(experiment.breakdown))
        for comparison in comparisons:
            _write_listed(args.out / "operator_comparison.csv", changes_csv(comparison))


def _xnntrace_to_kernels(args: argparse.Namespace) -> None:
    """Write the kernels a trace-enabled runner's log names, as JSON or CSV."""
    if args.log is None:
        raise InputError("give a log, once", "See --help.")
    kernels = read_log(args.log)
    if args.out is not None and args.out.suffix == ".csv":
        return _write(args.out, kernels_csv(kernels))
    return _write_json(args.out, {"log": str(args.log), "kernels": kernels})


def _generate_kernel_view(args: argparse.Namespace) -> None:
    """Write which kernels ran, side by side for several logs or by operator for a run directory, as Markdown."""
    from model_profiling.analysis.run.validation import verify_kernels
    from model_profiling.report.content.kernels import kernel_view
    from model_profiling.report.kernel_view import log_view

    named = {"SME2 on": args.sme2_on, "SME2 off": args.sme2_off}
    sides = {path.stem: path for path in args.sources} | {name: path for name, path in named.items() if path}
    if not sides:
        raise InputError("there is nothing to show", "Give trace logs, kernel CSVs or a run directory.")
    only = resolve_argument(args.sources[0], writes=True) if len(args.sources) == len(sides) == 1 else None
    if only is None or not only.is_dir():
        _write(args.out, log_view({name: read_kernels(path) for name, path in sides.items()}))
        return
    run = api.Run.open(only)
    tell_outdated(run.save())
    if not any(experiment.coverage for experiment in run.summary.experiments.values()):
        raise InputError(f"{only} has no trace run", "Run an experiment with `mode: trace`.")
    _write(args.out, kernel_view(run))
    verify_kernels(run.summary)


_DUMP = "etdump=Dump? timeline_csv out=ToolOut categories"
_TWO = "compare=OtherTimeline name=FirstName name2=SecondName"
_TOOLS: dict[str, tuple[str, Callable[[argparse.Namespace], None]]] = {
    "etdump_to_csv": (_DUMP, _etdump_to_csv),
    "etdump_to_ops_json": (_DUMP, _etdump_to_ops_json),
    "categorize_operators": (_DUMP, _categorize_operators),
    "analyze_transpose_patterns": (f"{_DUMP} model=GraphProgram", _analyze_transpose_patterns),
    "robust_latency_analysis": (
        f"path=RunOrTimeline? timeline_csv {_TWO} output_dir out=StatsOut verbose",
        _robust_latency_analysis,
    ),
    "xnntrace_to_kernels": ("log=TraceLog? out=KernelListOut", _xnntrace_to_kernels),
    "generate_kernel_view": ("sources=Sources? sme2_on=OnLog sme2_off=OffLog out=ToolOut", _generate_kernel_view),
    "analyze_etdump_csv": (
        f"timeline_csv=FirstTimeline! {_TWO} out=TimelinesOut categories verbose",
        _analyze_etdump_csv,
    ),
}
