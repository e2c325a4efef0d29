"""`sme2-kit check MODEL`: what will XNNPACK take of it, what not and why, before a full export."""

import argparse
from pathlib import Path
from typing import TYPE_CHECKING

from model_profiling.cli.export import add_model, chosen_model, load_options, stage_progress
from model_profiling.export.choices import DTYPES
from model_profiling.saying import say

if TYPE_CHECKING:
    from model_profiling.export.delegation_preview import DelegationPreview

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
        log = Path(f"out_{name}") / "check.log"
        options = load_options(args)
        request = ExportRequest(name, Path(), args.dtype, seed=args.seed, loud=loud, target=target, options=options)
        found = preview(request, log, announce)
    say(_as_json(found) if args.json else _as_text(target, args.dtype, found))
    return 0


def _as_json(found: "DelegationPreview") -> str:
    import msgspec

    value = {"delegation": found.delegation, "nodes": found.nodes, "reasons": found.reasons}
    return msgspec.json.format(msgspec.json.encode(value)).decode() + "\n"


def _as_text(target: str, dtype: str, found: "DelegationPreview") -> str:
    """Both sides of the cut; of what stays out, the operator, the reason and the model's lines."""
    delegation = found.delegation
    lines = [
        f"{target} in {dtype}",
        f"  delegated: {delegation.delegated_nodes} operators in {delegation.delegate_calls} delegate calls",
        f"  portable:  {delegation.portable_nodes} operators",
    ]
    for left in delegation.not_delegated:
        sources = [node.source for node in found.nodes if node.delegate is None and node.op == left.op and node.source]
        distinct = list(dict.fromkeys(sources))
        more = f" and {len(distinct) - 2} more places" if len(distinct) > 2 else ""
        where = f" (at {', '.join(distinct[:2])}{more})" if distinct else ""
        lines.append(f"    {left.count} x {left.op}: {left.reason}{where}")
    return "\n".join(lines) + "\n"
