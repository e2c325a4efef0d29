"""`sme2-kit check MODEL`: what will XNNPACK take of it, what not and why, before a full export."""

import argparse
from pathlib import Path

from model_profiling.cli.export import (
    add_model,
    chosen_model,
    delegation_lines,
    load_options,
    model_words,
    stage_progress,
)
from model_profiling.cli.next_step import next_command
from model_profiling.export.choices import DTYPES
from model_profiling.saying import say_json, tell

HELP = "show which operators of a model will be delegated, which will not, and why, without a full export"


def prepare_parser(parser: argparse.ArgumentParser) -> None:
    add_model(parser)
    parser.add_argument("--dtype", choices=DTYPES, default="fp32", help="default: %(default)s")
    parser.add_argument("--seed", type=int, default=0, metavar="N", help="for random weights and inputs (default: 0)")
    parser.add_argument("--json", action="store_true", help="print every operator and whether it is delegated as JSON")
    parser.add_argument("--verbose", action="store_true", help="show what torch and ExecuTorch print and log")


def run(args: argparse.Namespace) -> int:
    from sme2_kit.exporting import announcing

    target, name = chosen_model(args)
    loud = args.verbose or getattr(args, "debug", False)
    with stage_progress(plain=loud) as report:
        announce = announcing(report, "check")
        announce("import torch and executorch")
        from model_profiling.export.quiet import kept_off_terminal

        with kept_off_terminal(loud):
            from model_profiling.export.delegation_preview import preview
            from model_profiling.export.exporter import ExportRequest
        options = load_options(args)
        request = ExportRequest(name, Path(), args.dtype, seed=args.seed, loud=loud, target=target, options=options)
        found = preview(request, announce)
    if args.json:
        say_json({"delegation": found.delegation, "nodes": found.nodes, "reasons": found.reasons})
    else:
        tell("\n".join([f"{target} in {args.dtype}", *delegation_lines(found.delegation), ""]))
        tell(next_command("profile", target, "--dtype", args.dtype, *model_words(args)))
    return 0
