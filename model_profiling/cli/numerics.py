"""`sme2-kit numerics MODEL --dtype int8`: which layer loses the accuracy, and what to do about it."""

import argparse
from pathlib import Path
from typing import TYPE_CHECKING

from model_profiling.cli import export as export_command
from model_profiling.cli import platform as platform_flags
from model_profiling.cli.next_step import next_command
from model_profiling.cli.progress import progress
from model_profiling.installation import shown
from model_profiling.saying import say_json, tell

if TYPE_CHECKING:
    from model_profiling.analysis.numerics import Numerics

HELP = "show which layer of a model loses the accuracy, layer by layer against eager fp32"


def prepare_parser(parser: argparse.ArgumentParser) -> None:
    export_command.add_model(parser)
    export_command.add_variant(parser, "fp16", "of the program that is looked at (default: %(default)s)")
    parser.add_argument("--outdir", type=Path, metavar="DIR", help="default: out_<model>/artifacts")
    platform_flags.prepare_parser(parser)
    parser.add_argument("--force", action="store_true", help="export even if nothing changed since the last time")
    parser.add_argument("--json", action="store_true", help="print NAME_numerics.json: every layer on every side")
    parser.add_argument("--verbose", action="store_true", help="show what torch and ExecuTorch print and log")


def run(args: argparse.Namespace) -> int:
    from model_profiling.report.numerics_files import write_picture
    from sme2_kit.exporting import from_target
    from sme2_kit.layer_errors import numerics_of

    args.config = None  # what a platform asks for: there is none here
    request = export_command.requested(args)
    with platform_flags.chosen_platform(args) as platform, progress() as report:
        made = from_target(report, args.force, export_command.say_cached)(request, "export")
        found = numerics_of(request, made, platform, report)
    picture = write_picture(found, made.paths)
    if args.json:
        say_json(found)
        return 0
    tell(as_text(found))
    tell(f"  record:    {shown(made.paths.numerics)}\n")
    tell(f"  picture:   {shown(picture)}\n")
    tell(next_command("run", made.paths.pte, "--html"))
    return 0


def as_text(found: "Numerics") -> str:
    from model_profiling.report.blocks import Name, Number
    from model_profiling.report.content import numerics as content
    from model_profiling.report.terminal_table import table

    lines = [f"{found.model} ({found.dtype}) on {found.platform}, {len(found.layers)} layers", ""]
    lines += [f"  {sentence}" for sentence in content.sentences(found)]
    rows = [
        tuple(cell.shown if isinstance(cell, Number) else cell.text if isinstance(cell, Name) else cell for cell in row)
        for row in content.rows(found, content.WORST)
    ]
    if rows:
        lines += ["", *table([content.COLUMNS, *rows], words=2, left={7, 8}, optional={5, 6})]
        lines += ["", f"  {content.LEGEND}"]
    lines += ["", *(f"  {item}" for item in content.what_to_do(found)), ""]
    return "\n".join(lines) + "\n"
