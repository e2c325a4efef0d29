"""`sme2-kit report`: a run for people to look at, as Markdown with pictures, as a page, or as one picture."""

import argparse
import sys
from pathlib import Path

HELP = "write a report: Markdown with pictures, an HTML page, single pictures, a trace for Perfetto"
_PICTURES = ("shift", "latency", "operators")


def prepare_parser(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "paths", nargs="*", type=Path, metavar="DIR", help="a run directory; several are put side by side"
    )
    parser.add_argument(
        "--run-dir", action="append", type=Path, default=[], metavar="DIR", help="the same as DIR; may be repeated"
    )
    parser.add_argument("--html", action="store_true", help="also write the HTML page (report.html)")
    parser.add_argument("--open", action="store_true", help="write the HTML page and show it in a browser")
    parser.add_argument("--png", choices=_PICTURES, help="write only this picture, at paper quality")
    parser.add_argument("--theme", choices=("light", "dark"), default="light", help="colours of --png (light)")
    parser.add_argument("--width", type=int, default=760, metavar="N", help="width of --png before scaling (760)")
    parser.add_argument("--output", "-o", type=Path, metavar="FILE", help="default: report.md in the run directory")
    parser.add_argument("--title", default="", metavar="T", help="default: the model and the platform")


def run(args: argparse.Namespace) -> int:
    from model_profiling.errors import InputError
    from model_profiling.report import combined, writing

    paths = [*args.run_dir, *args.paths]
    if not paths:
        raise InputError("no run directory", "Give the directory a pipeline wrote to.")
    if not 200 <= args.width <= 4000:
        raise InputError(f"--width {args.width} is out of range", "Give a number from 200 to 4000.")
    if len(paths) > 1:
        if args.html or args.open or args.png:
            raise InputError(
                "--html, --open and --png take one run directory", "Leave them out, or give one directory."
            )
        return _say(combined.write(paths, args.output, args.title))
    if args.png:
        output = args.output or paths[0] / f"{args.png}.png"
        return _say([writing.write_picture(paths[0], args.png, output, args.theme, args.width)])
    output = args.output or paths[0] / writing.MARKDOWN
    # A name that ends in .html asks for the page and nothing else.
    only_page = output.suffix == ".html"
    page = args.html or args.open or only_page
    written = writing.write_report(paths[0], output, args.title, markdown=not only_page, page=page)
    if args.open:
        import webbrowser

        webbrowser.open(written[-1].resolve().as_uri())
    return _say(written)


def _say(written: list[Path]) -> int:
    sys.stdout.write("".join(f"{path}\n" for path in written))
    return 0
