"""`sme2-kit kernels MODEL.pte`: will this model use SME2, with which kernels, and which operators will not?"""

import argparse
from pathlib import Path

from model_profiling.base.printing import tell
from model_profiling.cli import platform_flags, shared_flags, version_flags
from model_profiling.cli.answer import answer
from model_profiling.cli.command_line import command_line
from model_profiling.cli.next_step import ending, page_of
from model_profiling.cli.notes import note, tell_outdated
from model_profiling.cli.progress import progress

_KEPT = Path()
HELP = "show which SME2 kernels a model uses, operator by operator, without SME2 hardware"


def prepare_parser(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("model", type=Path, metavar="MODEL.pte", nargs="?", help="the model")
    shared_flags.add_out(parser, "default: out_<model>/runs/emulator, or <platform>_kernels")
    parser.add_argument(
        "--level",
        action="append",
        choices=("neon", "sme1", "sme2"),
        help="only a CPU of this level; may be repeated (default: all, to compare their outputs)",
    )
    parser.add_argument(
        "--json", action="store_true", help="print kernels.json: features, coverage and the kernels of each operator"
    )
    parser.add_argument(
        "--make-table",
        nargs="?",
        type=Path,
        const=_KEPT,
        metavar="FILE",
        help="instead of a model: emulate all kinds of operators, and write the table of known kernels of this "
        "ExecuTorch, which every run is then held against",
    )
    version_flags.prepare_parser(parser, "with --make-table, one")
    platform_flags.prepare_parser(parser)
    parser.set_defaults(platform="emulator")


def run(args: argparse.Namespace) -> int:
    from model_profiling.base.errors import InputError

    if (args.model is None) == (args.make_table is None):
        raise InputError("give a MODEL.pte, or --make-table", "For example: sme2-kit kernels out_net/artifacts/net.pte")
    if args.executorch and args.make_table is None:
        raise InputError("--executorch goes with --make-table", "Compare releases with sme2-kit compare --executorch.")
    return _make_table(args) if args.make_table is not None else _show(args)


def _make_table(args: argparse.Namespace) -> int:
    from model_profiling.analysis.sme2.kernel_table import table_path
    from model_profiling.api.table_making import make_table
    from model_profiling.base import files

    with (
        files.scratch_directory("sme2-kit-table-") as work,
        platform_flags.chosen_platform(args) as platform,
        progress() as report,
    ):
        table = make_table(work, platform, version_flags.choices(args)[:1], report, note)
    path = table_path(table.executorch) if args.make_table == _KEPT else args.make_table
    files.write_json(path, table)
    with_sme2 = sum(bool(row.sme2) for row in table.rows)
    said = f"{len(table.rows)} kinds of operators, {with_sme2} of them with an SME2 kernel"
    return answer(args, table, lambda: tell(f"ExecuTorch {table.executorch}: {said}\n  files  {path}\n"))


def _show(args: argparse.Namespace) -> int:
    from model_profiling.api.measuring import kernels_request, measure
    from model_profiling.report.kernel_view import kernels_data
    from model_profiling.report.terminal import run_text

    with platform_flags.chosen_platform(args, args.model) as platform, progress() as report:
        asked = kernels_request(args.model, platform, args.level, args.out, command_line(args))
        measured = measure(asked, platform, report, note)
    found = measured.run
    tell_outdated(found.save())
    found.check_outputs()
    answer(args, kernels_data(found), lambda: run_text.show_evidence(found, measured.remark))
    if not args.json:
        tell(ending(page_of(found.path), ["forecast", args.model, found.path]))
    found.check()
    return 0
