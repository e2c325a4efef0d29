"""`sme2-kit graph RUN`: the operators of a run as an interactive graph, in one page that works without a network."""

import argparse
from pathlib import Path

from model_profiling.cli import shared_flags

HELP = "show the graph of a run: operators with times, kernels and source lines, by module and delegate"


def prepare_parser(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "run", type=Path, metavar="RUN", help="a run directory (DIR@LABEL: an earlier run), or an ETDump"
    )
    parser.add_argument(
        "--forecast",
        type=Path,
        metavar="EMULATED",
        help="also show which kernels an emulated run of the same model used (sme2-kit kernels)",
    )
    shared_flags.add_out(parser, "default: graph.html in the run directory", "FILE")
    parser.add_argument("--open", action="store_true", help="show it in a browser")
    parser.add_argument("--json", action="store_true", help="print nodes and edges as JSON, and write nothing")


def run(args: argparse.Namespace) -> int:
    from model_profiling.api import Run
    from model_profiling.base.printing import say, say_json, warn
    from model_profiling.cli.next_step import ending
    from model_profiling.cli.notes import tell_outdated
    from model_profiling.store.runs import resolve

    found = Run.open(resolve(args.run), emulated=resolve(args.forecast) if args.forecast else None)
    if args.json:
        say_json(found.graphs)
        return 0
    from model_profiling.report.files.report_files import write_graph

    path, outdated = write_graph(found, args.out)
    say(f"{path}\n")
    warn(ending(path))  # standard output has the path alone
    tell_outdated(outdated)
    if args.open:
        import webbrowser

        webbrowser.open(path.resolve().as_uri())
    return 0
