"""`sme2-kit numerics MODEL --dtype int8`: which layer loses the accuracy, and what to do about it."""

import argparse
from pathlib import Path
from typing import TYPE_CHECKING

from model_profiling.base.installation import relative_to_here
from model_profiling.base.printing import say_json, tell
from model_profiling.cli import export as export_command
from model_profiling.cli import platform_flags, shared_flags
from model_profiling.cli.next_step import ending
from model_profiling.cli.progress import progress

if TYPE_CHECKING:
    from model_profiling.analysis.accuracy.numerics import Numerics
    from model_profiling.export.request import ExportRequest

HELP = "show which layer of a model loses the accuracy, layer by layer against eager fp32"


def prepare_parser(parser: argparse.ArgumentParser) -> None:
    export_command.add_model(parser, "a name that `sme2-kit models` lists, path/to/file.py:ClassName, or its .pte")
    export_command.add_options(parser, "numerics")
    shared_flags.add_out(parser, "default: out_<model>/artifacts")
    platform_flags.prepare_parser(parser)
    parser.add_argument("--force", action="store_true", help="export even if nothing changed since the last time")
    parser.add_argument(
        "--no-trial",
        action="store_true",
        help="do not export what would be recommended to see what it gives: remedies are predicted, and said to be",
    )
    parser.add_argument("--json", action="store_true", help="print NAME_numerics.json: every layer on every side")
    parser.add_argument("--verbose", action="store_true", help="show what torch and ExecuTorch print and log")


def run(args: argparse.Namespace) -> int:
    from model_profiling.api.exporting import from_target
    from model_profiling.api.layer_errors import numerics_of
    from model_profiling.report.files.numerics_files import write_picture

    of_program = str(args.target or args.model or "").endswith(".pte")
    request = _of_program(args) if of_program else export_command.export_request(args, "numerics")
    with platform_flags.chosen_platform(args) as platform, progress() as report:
        made = from_target(report, args.force, export_command.say_cached)(request, "export")
        found = numerics_of(request, made, platform, report, trial=not args.no_trial)
    picture = write_picture(found, made.paths)
    if args.json:
        say_json(found)
        return 0
    tell(as_text(found))
    tell(f"  record:    {relative_to_here(made.paths.numerics)}\n")
    tell(f"  picture:   {relative_to_here(picture)}\n")
    tell(ending(following=["run", made.paths.pte]))
    return 0


def _of_program(args: argparse.Namespace) -> "ExportRequest":
    """Return what a .pte was exported from, if the kit did that and the model is still the same."""
    from dataclasses import replace

    from model_profiling.base.errors import InputError
    from model_profiling.export.cache import cached
    from model_profiling.export.command import recorded
    from model_profiling.pipeline.pipeline import export_record
    from model_profiling.store.artifacts import ExportPaths

    paths = ExportPaths(Path(export_command.model_text(args)).resolve())
    if export_command.flags_given(args) or args.out or args.force:
        raise InputError(
            f"{paths.pte.name} is exported already", "Leave the flags of an export out, or give the model."
        )
    record = export_record(paths)
    if record is None or record.request.origin == "memory":
        raise InputError(
            f"{paths.pte.name} does not say which PyTorch model it was exported from",
            "Layers are held against PyTorch: give the model, as to sme2-kit export.",
        )
    asked, home = recorded(record, record.request), Path(record.request.directory)
    target = str(home / asked.target) if record.request.origin == "file" else asked.target
    request = replace(asked, outdir=paths.directory, target=target)
    if cached(request) is None:
        raise InputError(
            f"{paths.pte.name} is not what an export would give now: the model, or the kit, has changed",
            "Give the model, as to sme2-kit export: it is exported again.",
        )
    return request


def as_text(found: "Numerics") -> str:
    from model_profiling.report.blocks import Number
    from model_profiling.report.content import numerics as content
    from model_profiling.report.terminal.text_table import table

    lines = [f"{found.model} ({found.dtype}) on {found.platform}, {len(found.layers)} layers", ""]
    lines += [f"  {sentence}" for sentence in content.sentences(found)]
    rows = [
        tuple(cell.shown if isinstance(cell, Number) else cell if isinstance(cell, str) else cell.text for cell in row)
        for row in content.rows(found, content.WORST)
    ]
    if rows:
        lines += ["", *table([content.COLUMNS, *rows], words=2, left={7, 8}, optional={5, 6})]
        lines += ["", f"  {content.LEGEND}"]
    lines += ["", *(f"  {item}" for item in content.what_to_do(found)), ""]
    return "\n".join(lines) + "\n"
