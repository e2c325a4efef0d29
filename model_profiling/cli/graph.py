"""`sme2-kit graph RUN [B]`: the operators of a run, or of two programs as one, as an interactive graph in one page."""

import argparse
import shlex
from pathlib import Path

from model_profiling.cli import shared_flags
from model_profiling.cli.run_argument import resolve_argument

HELP = "show the graph of a run, or of two as one: operators with times, kernels and source lines, by module"


def prepare_parser(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "run", type=Path, metavar="RUN", help="a run directory (DIR@LABEL: an earlier run), or an ETDump"
    )
    parser.add_argument(
        "other",
        nargs="?",
        type=Path,
        metavar="B",
        help="show the graph of both as one, RUN before and B now; each is what compare takes, two .pte among it",
    )
    parser.add_argument(
        "--forecast",
        type=Path,
        metavar="EMULATED",
        help="also show which kernels an emulated run of the same model used (sme2-kit kernels)",
    )
    shared_flags.add_out(parser, "default: graph.html in the run directory; none of two", "FILE")
    parser.add_argument("--open", action="store_true", help="show it in a browser")
    parser.add_argument(
        "--model-explorer",
        action="store_true",
        help="with B: write both graphs and the differences for Google's Model Explorer into the folder --out",
    )
    parser.add_argument("--json", action="store_true", help="print nodes and edges as JSON, and write nothing")


def run(args: argparse.Namespace) -> int:
    from model_profiling.api import Run
    from model_profiling.base.errors import InputError
    from model_profiling.base.printing import say, say_json, warn
    from model_profiling.cli.next_step import ending
    from model_profiling.cli.notes import tell_outdated

    if args.other is not None:
        return _both(args)
    if args.model_explorer:
        raise InputError(
            "--model-explorer is for the graph of two programs", f"Run `sme2-kit report {args.run} --model-explorer`."
        )
    emulated = resolve_argument(args.forecast) if args.forecast else None
    found = Run.open(resolve_argument(args.run, writes=not args.json), emulated=emulated)
    if args.json:
        say_json(found.graphs)
        return 0
    from model_profiling.report.files.report_files import write_graph

    path, outdated = write_graph(found, args.out)
    say(f"{path}\n")
    warn(ending(path))  # standard output has the path alone
    tell_outdated(outdated)
    if args.open:
        _show(path)
    return 0


def _both(args: argparse.Namespace) -> int:
    """Write the graph of two programs as one: the page, or what Model Explorer reads."""
    from model_profiling import api
    from model_profiling.base import files
    from model_profiling.base.errors import InputError
    from model_profiling.base.printing import say, warn
    from model_profiling.base.units import counted
    from model_profiling.cli.next_step import ending
    from model_profiling.cli.progress import progress

    if args.json or args.forecast:
        raise InputError("--json and --forecast are for one run", "Leave them out; `compare --json` has the changes.")
    if args.out is None:
        what = "--out DIR" if args.model_explorer else "--out FILE.html"
        raise InputError("the graph of two programs belongs to neither of them", f"Say where to write: {what}")
    with progress() as report:
        pairs = api.compare(args.run, args.other, on_progress=report).pairs
    if args.model_explorer:
        from model_profiling.report.files.explorer_command import open_explorer, pair_command
        from model_profiling.report.files.pair_explorer import pair_explorer_files

        written = pair_explorer_files(pairs, args.out)
        command = pair_command(written)
        say(f"{args.out}: {counted(len(written), 'file')}\n")
        if args.open:
            open_explorer(command)
        else:
            say(f"  to show them:  {shlex.join(command)}\n")
        return 0
    from model_profiling.report import html

    files.write_text(args.out, html.pair_graph(pairs))
    say(f"{args.out}\n")
    warn(ending(args.out, ["compare", args.run, args.other]))
    if args.open:
        _show(args.out)
    return 0


def _show(page: Path) -> None:
    import webbrowser

    webbrowser.open(page.resolve().as_uri())
