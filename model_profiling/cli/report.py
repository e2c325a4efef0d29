"""`sme2-kit report`: a run for people to look at, as Markdown with pictures, as a page, or as one picture."""

import argparse
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING

from model_profiling.saying import say

if TYPE_CHECKING:
    from model_profiling.derived import Outdated
    from model_profiling.report.drawing import Artist

HELP = "write a report: Markdown with pictures, an HTML page, single pictures, a trace for Perfetto"
_PICTURES = ("shift", "latency", "operators")


def prepare_parser(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "paths",
        nargs="*",
        type=Path,
        metavar="DIR",
        help="a run directory (DIR@LABEL: an earlier run); several are side by side",
    )
    parser.add_argument(
        "--run-dir", action="append", type=Path, default=[], metavar="DIR", help="the same as DIR; may be repeated"
    )
    parser.add_argument("--html", action="store_true", help="also write the HTML page (report.html)")
    parser.add_argument("--open", action="store_true", help="write the HTML page and show it in a browser")
    parser.add_argument(
        "--forecast",
        type=Path,
        metavar="EMULATED",
        help="also predict what SME2 would change, from the kernels of an emulated run of the same model",
    )
    parser.add_argument("--png", choices=_PICTURES, help="write only this picture, at paper quality")
    parser.add_argument("--theme", choices=("light", "dark"), default="light", help="colours of --png (light)")
    parser.add_argument("--width", type=int, default=760, metavar="N", help="width of --png before scaling (760)")
    parser.add_argument("--output", "-o", type=Path, metavar="FILE", help="default: report.md in the run directory")
    parser.add_argument("--title", default="", metavar="T", help="default: the model and the platform")


def run(args: argparse.Namespace) -> int:
    from model_profiling.artifacts import MANIFEST
    from model_profiling.derived import Outdated, notes
    from model_profiling.errors import InputError
    from model_profiling.report.drawing import Artist
    from model_profiling.report.printing import print_notes
    from model_profiling.runs import resolve

    paths = [resolve(path) for path in [*args.run_dir, *args.paths]]
    args.forecast = resolve(args.forecast) if args.forecast else None
    if not paths:
        raise InputError("no run directory", "Give the directory a pipeline wrote to.")
    if not 200 <= args.width <= 4000:
        raise InputError(f"--width {args.width} is out of range", "Give a number from 200 to 4000.")
    if len(paths) > 1 and (args.html or args.open or args.png or args.forecast):
        raise InputError(
            "--html, --open, --png and --forecast take one run directory", "Leave them out, or give one directory."
        )
    for path in paths:
        if not (path / MANIFEST).is_file():
            raise InputError(f"{path} holds no run", "Give the directory a pipeline wrote to.")
    outdated: list[Outdated] = []
    # The artist starts up while everything else is imported and read.
    with Artist() as artist:
        if args.png:
            written = [_picture(artist, paths[0], args, outdated.append)]
        elif len(paths) > 1:
            from model_profiling.report import combined

            written = combined.write(artist, paths, args.output, args.title)
        else:
            written = _report(artist, paths[0], args, outdated.append)
    _say(written)
    print_notes(notes(outdated))
    return 0


def _picture(artist: "Artist", path: Path, args: argparse.Namespace, tell: "Callable[[Outdated], None]") -> Path:
    from model_profiling.report import writing

    output = args.output or path / f"{args.png}.png"
    return writing.write_picture(artist, path, args.png, output, args.theme, args.width, tell)


def _report(artist: "Artist", path: Path, args: argparse.Namespace, tell: "Callable[[Outdated], None]") -> list[Path]:
    from model_profiling.artifacts import REPORT
    from model_profiling.report import writing

    output = args.output or path / REPORT
    # A name that ends in .html asks for the page and nothing else.
    only_page = output.suffix == ".html"
    page = args.html or args.open or only_page
    written = writing.write_report(artist, path, output, args.title, not only_page, page, args.forecast, tell)
    if args.open:
        import webbrowser

        webbrowser.open(written[-1].resolve().as_uri())
    return written


def _say(written: list[Path]) -> None:
    say("".join(f"{path}\n" for path in written))
