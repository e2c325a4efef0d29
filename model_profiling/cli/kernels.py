"""Show which SME2 kernels a model uses, operator by operator, without SME2 hardware."""

import argparse
from pathlib import Path

from model_profiling.api.definition import takes
from model_profiling.api.verbs import kernels
from model_profiling.base import files
from model_profiling.base.errors import InputError
from model_profiling.base.printing import tell
from model_profiling.cli.answer import answer, note, page_of, show_result, tell_outdated
from model_profiling.cli.arguments import chosen_platform
from model_profiling.cli.progress import call, progress

_KEPT = Path()
TAKES = takes(kernels, "model=Program? json make_table executorch=ExecuTorch", without="model")
COMMON = "model levels out platform json"
EXAMPLE = "sme2-kit kernels out_toy_cnn/artifacts/toy_cnn_xnnpack_fp16.pte"


def run(args: argparse.Namespace) -> None:
    args.platform = args.platform or "emulator"
    if (args.model is None) == (args.make_table is None):
        raise InputError("give a MODEL.pte, or --make-table", "For example: sme2-kit kernels out_net/artifacts/net.pte")
    if args.executorch and args.make_table is None:
        raise InputError("--executorch goes with --make-table", "Compare releases with sme2-kit compare --executorch.")
    (_show if args.make_table is None else _make_table)(args)


def _make_table(args: argparse.Namespace) -> None:
    from model_profiling.analysis.sme2.kernel_table import table_path
    from model_profiling.api.table_making import make_table
    from model_profiling.runner.sdk import split_choices

    scratch = files.scratch_directory("sme2-kit-table-")
    with scratch as work, chosen_platform(args) as platform, progress() as report:
        table = make_table(work, platform, split_choices(args.executorch, "--executorch")[:1], report, note)
    path = table_path(table.executorch) if args.make_table == _KEPT else args.make_table
    files.write_json(path, table)
    with_sme2 = sum(bool(row.sme2) for row in table.rows)
    said = f"{len(table.rows)} kinds of operators, {with_sme2} of them with an SME2 kernel"
    answer(args, table, lambda: tell(f"ExecuTorch {table.executorch}: {said}\n  files  {path}\n"))


def _show(args: argparse.Namespace) -> None:
    from model_profiling.report.kernel_view import kernels_data

    found = call(args, kernels)
    tell_outdated(found.save())
    page, following = page_of(found.path), ["forecast", args.model, found.path]
    answer(args, kernels_data(found), lambda: show_result(found.first_screen, page, following))
    found.check()
