"""`sme2-kit export`: PyTorch model in, .pte and everything the other stages need out."""

from __future__ import annotations

import argparse
import contextlib
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from model_profiling.export.exporter import ExportResult

HELP = "turn a PyTorch model into a .pte that can be profiled"


def prepare_parser(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--model", required=True, metavar="NAME", help="a name that `sme2-kit models` lists")
    parser.add_argument("--dtype", choices=("fp32", "fp16", "int8"), default="fp32", help="default: %(default)s")
    parser.add_argument(
        "--backend",
        choices=("xnnpack", "portable"),
        default="xnnpack",
        help="portable leaves every operator to ExecuTorch's reference kernels (default: %(default)s)",
    )
    parser.add_argument("--outdir", type=Path, metavar="DIR", help="default: out_<model>/artifacts")
    parser.add_argument("--save-graph", action="store_true", help="also write graph.json, the lowered graph")
    parser.add_argument(
        "--memory-format",
        choices=("contiguous", "channels_last"),
        default="contiguous",
        help="layout of the model and its 4-D inputs (default: %(default)s)",
    )
    parser.add_argument("--seed", type=int, default=0, metavar="N", help="for random weights and inputs (default: 0)")
    parser.add_argument("--json", action="store_true", help="print the result as JSON")
    parser.add_argument("--verbose", action="store_true", help="show what torch and ExecuTorch print and log")


def run(args: argparse.Namespace) -> int:
    from model_profiling.errors import SetupError
    from model_profiling.models.lookup import check_name

    check_name(args.model)
    outdir = args.outdir or Path(f"out_{args.model}") / "artifacts"
    loud = args.verbose or getattr(args, "debug", False)
    with _progress(plain=loud) as announce:
        announce("import torch and executorch")
        from model_profiling.export.quiet import kept_off_terminal

        try:
            with kept_off_terminal(loud):
                from model_profiling.export.exporter import ExportRequest, export
        except ModuleNotFoundError as error:
            raise SetupError(
                f"exporting needs {error.name}, which is not installed", "pip install 'executorch-sme2-kit[export]'"
            ) from error
        result = export(
            ExportRequest(
                args.model,
                outdir,
                args.dtype,
                args.backend,
                args.memory_format,
                args.seed,
                save_graph=args.save_graph,
                loud=loud,
            ),
            announce,
        )
    sys.stdout.write(_as_json(result) if args.json else _as_text(result))
    return 0


@contextlib.contextmanager
def _progress(plain: bool) -> Iterator[Callable[[str], None]]:
    """Show the current stage on stderr: one live line on a terminal, a line a stage elsewhere."""
    from rich.console import Console

    # Bound to stderr as it is now, because stderr is redirected while torch talks.
    console = Console(file=sys.stderr, highlight=False, markup=False)
    if plain or not console.is_terminal:
        yield lambda stage: console.print(f"export: {stage}")
        return
    with console.status("export") as status:
        yield lambda stage: status.update(f"export: {stage}")


def _as_json(result: ExportResult) -> str:
    import msgspec

    paths = result.paths
    named = {"pte": paths.pte, "etrecord": paths.etrecord, "meta": paths.meta, "inputs": paths.inputs}
    named["expected"] = paths.expected
    value = {"paths": {name: str(path) for name, path in named.items()}, "record": result.record}
    return msgspec.json.format(msgspec.json.encode(value)).decode() + "\n"


def _as_text(result: ExportResult) -> str:
    """Say where the .pte is, what is delegated in it, and what is not and why."""
    record, delegation = result.record, result.record.delegation
    seconds = sum(record.stage_seconds.values())
    lines = [
        f"{result.paths.pte}  ({record.dtype}, {record.backend}, {seconds:.1f} s)",
        f"  delegated: {delegation.delegated_nodes} nodes in {delegation.delegate_calls} delegate calls",
        f"  portable:  {delegation.portable_nodes} nodes",
        *(f"    {left.count} x {left.op}: {left.reason}" for left in delegation.not_delegated),
        f"  weights:   {record.weights}",
        *(f"  warning:   {warning}" for warning in record.warnings),
    ]
    return "\n".join(lines) + "\n"
