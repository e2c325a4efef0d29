"""`sme2-kit report`: a run for people to look at, as Markdown with pictures, as a page, or as one picture."""

import argparse
import shlex
from pathlib import Path
from typing import TYPE_CHECKING

from model_profiling.base.printing import say, warn
from model_profiling.cli import shared_flags
from model_profiling.cli.run_argument import resolve_argument

if TYPE_CHECKING:
    from model_profiling.api import Run
    from model_profiling.report.drawing.drawing_pool import DrawingPool
    from model_profiling.store.derived import OutdatedFile

HELP = "write a report: Markdown with pictures, an HTML page, single pictures, a trace for Perfetto"
_PICTURES = ("shift", "modules", "latency", "operators", "threads", "roofline")


def prepare_parser(parser: argparse.ArgumentParser) -> None:
    text = "a run directory (DIR@LABEL: an earlier run); several give one combined report"
    shared_flags.add_runs(parser, text, "--run-dir")
    parser.add_argument("--html", action="store_true", help="also write the HTML page (report.html)")
    parser.add_argument("--open", action="store_true", help="write the HTML page and show it in a browser")
    parser.add_argument(
        "--forecast",
        type=Path,
        metavar="EMULATED",
        help="also predict what SME2 would change, from the kernels of an emulated run of the same model",
    )
    parser.add_argument(
        "--target", metavar="NAME", help="with --forecast: the machine with SME2, as of sme2-kit forecast"
    )
    parser.add_argument(
        "--experiment",
        action="append",
        default=[],
        metavar="NAME",
        help="only this experiment and what it is compared with, in report_NAME.md; may be repeated",
    )
    parser.add_argument("--png", choices=_PICTURES, help="write only this picture, at print resolution")
    parser.add_argument("--theme", choices=("light", "dark"), default="light", help="colours of --png (default: light)")
    parser.add_argument(
        "--width", type=int, default=760, metavar="N", help="width of --png in pixels, before scaling (default: 760)"
    )
    parser.add_argument(
        "--model-explorer",
        action="store_true",
        help="write only overlays for Google's Model Explorer and a graph for it; with --open, show them in it",
    )
    shared_flags.add_out(parser, "default: report.md in the run directory", "FILE")
    parser.add_argument("--title", default="", metavar="T", help="default: the model and the platform")


def run(args: argparse.Namespace) -> int:
    from model_profiling.api import Run
    from model_profiling.base.errors import InputError
    from model_profiling.cli.next_step import ending
    from model_profiling.cli.notes import tell_outdated
    from model_profiling.report.drawing.drawing_pool import DrawingPool
    from model_profiling.store.artifacts import MANIFEST
    from model_profiling.store.derived import OutdatedFile
    from model_profiling.store.run_directory import RunDirectory

    paths = [resolve_argument(path, writes=True) for path in shared_flags.given_paths(args)]
    if not paths:
        raise InputError("no run directory", "Give the directory a pipeline wrote to.")
    if not 200 <= args.width <= 4000:
        raise InputError(f"--width {args.width} is out of range", "Give a number from 200 to 4000.")
    alone = (args.png, args.forecast, args.model_explorer, args.experiment)
    if len(paths) > 1 and any(alone):
        raise InputError(
            "--png, --forecast, --experiment and --model-explorer take one run directory",
            "Leave them out, or give one directory.",
        )
    if args.model_explorer:
        return _model_explorer(paths, args)
    if args.target and not args.forecast:
        raise InputError("--target is the machine of a forecast", "Add --forecast EMULATED, or leave it out.")
    for path in paths:
        if not (path / MANIFEST).is_file():
            RunDirectory(path).manifest()  # says what is there instead
    emulated = resolve_argument(args.forecast) if args.forecast else None
    # The artist starts up while everything else is imported and read.
    with DrawingPool() as artist:
        outdated: list[OutdatedFile] = []
        runs = [Run.open(path, emulated=emulated, target=args.target, only=args.experiment) for path in paths]
        if len(runs) > 1:
            from model_profiling.report import combined

            written = combined.write(runs, artist, args.out, args.title, args.html or args.open)
        else:
            written, outdated = _write(runs[0], artist, args)
    say("".join(f"{path}\n" for path in written))
    pages = [path for path in written if path.suffix in (".md", ".html")]
    # Standard output has the paths alone.
    warn(ending(pages[-1] if pages else None, ["graph", runs[0].path] if pages and len(runs) == 1 else []))
    tell_outdated(outdated)
    if args.open:
        import webbrowser

        webbrowser.open(written[-1].resolve().as_uri())
    return 0


def _model_explorer(paths: list[Path], args: argparse.Namespace) -> int:
    from model_profiling.api import Run
    from model_profiling.base.errors import InputError
    from model_profiling.base.units import counted
    from model_profiling.cli.notes import tell_outdated
    from model_profiling.report.files.explorer_command import explorer_command, open_explorer
    from model_profiling.report.files.report_files import write_model_explorer
    from model_profiling.store.artifacts import MODEL_EXPLORER

    if args.png or args.html or args.out or args.title or args.experiment:
        raise InputError(
            "--model-explorer writes no report", "Leave --html, --png, --out, --experiment and --title out."
        )
    run = Run.open(paths[0], emulated=resolve_argument(args.forecast) if args.forecast else None)
    written, outdated = write_model_explorer(run)
    command = explorer_command(run, written)
    say(f"{run.path / MODEL_EXPLORER}: {counted(len(written), 'file')}\n")
    if not args.open:
        say(f"  to show them:  {shlex.join(command)}\n")
    tell_outdated(outdated)
    if args.open:
        open_explorer(command)
    return 0


def _write(run: "Run", artist: "DrawingPool", args: argparse.Namespace) -> "tuple[list[Path], list[OutdatedFile]]":
    from model_profiling.report.files.report_files import write_picture, write_report
    from model_profiling.store.artifacts import REPORT

    of = f"_{args.experiment[0]}" if args.experiment else ""
    if args.png:
        picture = args.out or run.path / f"{args.png}{of}.png"
        return write_picture(run, artist, args.png, picture, args.theme, args.width)
    output = args.out or (run.path / REPORT).with_stem(f"report{of}")
    # A name that ends in .html asks for the page and nothing else.
    only_page = output.suffix == ".html"
    page = args.html or args.open or only_page
    return write_report(run, artist, output, args.title, not only_page, page)
