"""Show the graph of a run, or of two as one: operators with times, kernels and source lines, by module."""

import argparse

from model_profiling import api
from model_profiling.api.definition import takes
from model_profiling.base import files
from model_profiling.base.errors import InputError
from model_profiling.base.printing import say, say_json, warn
from model_profiling.cli.answer import ending, tell_outdated
from model_profiling.cli.progress import progress
from model_profiling.cli.report import show_files, show_page
from model_profiling.cli.run_argument import resolve_argument

TAKES = takes(more="run=RunOrDump! other=OtherGraph? forecast out=GraphOut open model_explorer json")
EXAMPLE = "sme2-kit graph out_toy_cnn/runs/linux"


def run(args: argparse.Namespace) -> None:
    if args.other is not None:
        _both(args)
        return
    if args.model_explorer:
        raise InputError(
            "--model-explorer is for the graph of two programs", f"Run `sme2-kit report {args.run} --model-explorer`."
        )
    emulated = resolve_argument(args.forecast) if args.forecast else None
    found = api.Run.open(resolve_argument(args.run, writes=not args.json), emulated=emulated)
    if args.json:
        say_json(found.graphs)
        return
    from model_profiling.report.files.report_files import write_graph

    path, outdated = write_graph(found, args.out)
    say(f"{path}\n")
    warn(ending(path))  # standard output has the path alone
    tell_outdated(outdated)
    if args.open:
        show_page(path)


def _both(args: argparse.Namespace) -> None:
    """Write the graph of two programs as one: the page, or what Model Explorer reads."""
    if args.json or args.forecast:
        raise InputError("--json and --forecast are for one run", "Leave them out; `compare --json` has the changes.")
    if args.out is None:
        what = "--out DIR" if args.model_explorer else "--out FILE.html"
        raise InputError("the graph of two programs belongs to neither of them", f"Say where to write: {what}")
    with progress() as report:
        pairs = api.compare(args.run, args.other, on_progress=report).pairs
    if args.model_explorer:
        from model_profiling.report.files.model_explorer import pair_command, pair_explorer_files

        written = pair_explorer_files(pairs, args.out)
        show_files(args, args.out, written, pair_command(written), [])
        return
    from model_profiling.report import html

    files.write_text(args.out, html.pair_graph(pairs))
    say(f"{args.out}\n")
    warn(ending(args.out, ["compare", args.run, args.other]))
    if args.open:
        show_page(args.out)
