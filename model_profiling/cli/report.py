"""Write a report: Markdown with pictures, an HTML page, single pictures, a trace for Perfetto."""

import argparse
import shlex
from pathlib import Path

from model_profiling import api
from model_profiling.api.definition import takes
from model_profiling.base.errors import InputError
from model_profiling.base.printing import say, warn
from model_profiling.base.units import counted
from model_profiling.cli.answer import ending, tell_outdated
from model_profiling.cli.run_argument import resolve_argument
from model_profiling.store.artifacts import MANIFEST, MODEL_EXPLORER, REPORT
from model_profiling.store.derived import OutdatedFile
from model_profiling.store.run_directory import RunDirectory

TAKES = takes(
    more="paths=ReportedRuns? html open forecast target experiment png theme width model_explorer out=ReportOut title"
)
EXAMPLE = "sme2-kit report out_toy_cnn/runs/linux --html"


def run(args: argparse.Namespace) -> None:
    from model_profiling.report.drawing.drawing_process import DrawingPool
    from model_profiling.report.files.page_files import write_combined
    from model_profiling.report.files.report_files import write_picture, write_report

    paths = [resolve_argument(path, writes=True) for path in args.paths]
    if not paths:
        raise InputError("no run directory", "Give the directory a pipeline wrote to.")
    width = 760 if args.width is None else args.width
    if not 200 <= width <= 4000:
        raise InputError(f"--width {width} is out of range", "Give a number from 200 to 4000.")
    if len(paths) > 1 and any((args.png, args.forecast, args.model_explorer, args.experiment)):
        raise InputError(
            "--png, --forecast, --experiment and --model-explorer take one run directory",
            "Leave them out, or give one directory.",
        )
    if args.model_explorer:
        _model_explorer(paths[0], args)
        return
    if args.target and not args.forecast:
        raise InputError("--target is the machine of a forecast", "Add --forecast EMULATED, or leave it out.")
    for path in paths:
        if not (path / MANIFEST).is_file():
            RunDirectory(path).manifest()  # says what is there instead
    emulated = resolve_argument(args.forecast) if args.forecast else None
    outdated, title, page = list[OutdatedFile](), args.title or "", bool(args.html or args.open)
    of = f"_{args.experiment[0]}" if args.experiment else ""
    # The artist starts up while everything else is imported and read.
    with DrawingPool() as artist:
        first, *others = runs = [
            api.Run.open(path, emulated=emulated, target=args.target, only=args.experiment or ()) for path in paths
        ]
        if others:
            written = write_combined(runs, artist, args.out, title, page)
        elif args.png:
            picture = args.out or first.path / f"{args.png}{of}.png"
            written, outdated = write_picture(first, artist, args.png, picture, args.theme or "light", width)
        else:
            output = args.out or (first.path / REPORT).with_stem(f"report{of}")
            # A name that ends in .html asks for the page and nothing else.
            only_page = output.suffix == ".html"
            written, outdated = write_report(first, artist, output, title, not only_page, page or only_page)
    say("".join(f"{path}\n" for path in written))
    pages = [path for path in written if path.suffix in (".md", ".html")]
    # Standard output has the paths alone.
    warn(ending(pages[-1] if pages else None, ["graph", first.path] if pages and not others else []))
    tell_outdated(outdated)
    if args.open:
        show_page(written[-1])


def _model_explorer(path: Path, args: argparse.Namespace) -> None:
    from model_profiling.report.files.model_explorer import explorer_command
    from model_profiling.report.files.report_files import write_model_explorer

    if args.png or args.html or args.out or args.title or args.experiment:
        raise InputError(
            "--model-explorer writes no report", "Leave --html, --png, --out, --experiment and --title out."
        )
    run = api.Run.open(path, emulated=resolve_argument(args.forecast) if args.forecast else None)
    written, outdated = write_model_explorer(run)
    show_files(args, run.path / MODEL_EXPLORER, written, explorer_command(run, written), outdated)


def show_files(
    args: argparse.Namespace, place: Path, written: list[Path], command: list[str], outdated: list[OutdatedFile]
) -> None:
    """Say where the files for Model Explorer are, and start it or say how to."""
    from model_profiling.report.files.model_explorer import open_explorer

    say(f"{place}: {counted(len(written), 'file')}\n")
    if not args.open:
        say(f"  to show them:  {shlex.join(command)}\n")
    tell_outdated(outdated)
    if args.open:
        open_explorer(command)


def show_page(page: Path) -> None:
    import webbrowser

    webbrowser.open(page.resolve().as_uri())
