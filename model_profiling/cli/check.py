"""`sme2-kit check MODEL`: what XNNPACK will take of it and what not, what will be moved, and why; writes nothing."""

import argparse
from pathlib import Path
from typing import TYPE_CHECKING

from model_profiling.base.printing import say_json, tell
from model_profiling.base.units import counted, shown_bytes
from model_profiling.cli.export import add_model, add_options, delegation_lines, export_request, relative_source
from model_profiling.cli.next_step import ending
from model_profiling.cli.progress import progress

if TYPE_CHECKING:
    from model_profiling.analysis.movement.layout_reasons import LayoutReasons, MoveGroup
    from model_profiling.export.lower.delegation_preview import DelegationPreview

HELP = "show which operators of a model will be delegated, and which transposes and copies it needs, and why"

_MOST_LINES = 3


def prepare_parser(parser: argparse.ArgumentParser) -> None:
    add_model(parser)
    add_options(parser, "check")
    parser.add_argument("--json", action="store_true", help="print operators, transposes and copies as JSON")
    parser.add_argument("--verbose", action="store_true", help="show what torch and ExecuTorch print and log")


def run(args: argparse.Namespace) -> int:
    from model_profiling.api.exporting import stage_listener
    from model_profiling.export.command import typed

    request = export_request(args, "check", Path())
    with progress(plain=request.loud) as report:
        announce = stage_listener(report, "check")
        announce("import torch and executorch")
        from model_profiling.export.quiet import kept_off_terminal

        with kept_off_terminal(request.loud):
            from model_profiling.export.lower.delegation_preview import preview
        found = preview(request, announce)
    if args.json:
        say_json(
            {
                "delegation": found.delegation,
                "nodes": found.nodes,
                "reasons": found.reasons,
                "layout": found.layout,
                "warnings": found.warnings,
                "missing_operators": found.missing,
            }
        )
    else:
        warnings = [f"  warning:   {warning}" for warning in found.warnings]
        lines = [f"{request.target} in {request.dtype}", *delegation_lines(found.delegation), *missing_lines(found)]
        tell("\n".join([*lines, *layout_lines(found.layout), *warnings, ""]))
        if found.missing:
            return 0  # what an export of it would refuse is no next step
        tell(ending(following=["profile", *typed(request)[2:]]))
    return 0


def missing_lines(found: "DelegationPreview") -> list[str]:
    """Return the operators that the kit's runner lacks, each with its lines; or that nobody could look."""
    if found.missing is None:
        return [f"  runner:    not known which operators it has ({found.no_runner})"]
    lines = [f"    {left.op}{f' (at {_places(left.sources)})' if left.sources else ''}" for left in found.missing]
    lacks = "  not in the runner, so that an export would fail (write the model without, or use a runner of your own):"
    return [lacks, *lines] if lines else []


def layout_lines(layout: "LayoutReasons") -> list[str]:
    """Return what is moved, by reason, and how much of it a rewrite would remove."""
    note = [f"  note:      {layout.note}"] if layout.note else []
    if layout.note and not layout.transposes and not layout.copies:
        return note
    lines = [f"  transposes: {layout.count}{_whole(layout.transposes)}", *map(_line, layout.transposes)]
    if layout.removable:
        where = f" (at {_places(layout.removable_at)})" if layout.removable_at else ""
        lines.append(f"    --rewrite layout removes {layout.removable} of them{where}")
    copies = sum(group.count for group in layout.copies)
    return [*lines, f"  copies:    {copies}{_whole(layout.copies)}", *map(_line, layout.copies), *note]


def _line(group: "MoveGroup") -> str:
    where = f" (at {_places(group.lines)})" if group.lines else ""
    hint = f"; {group.hint}" if group.hint else ""
    size = f"{shown_bytes(group.bytes)}: " if group.bytes is not None else ""
    return f"    {group.count} x {size}{group.reason}{where}{hint}"


def _places(lines: list[str]) -> str:
    more = f" and {counted(len(lines) - _MOST_LINES, 'more line')}" if len(lines) > _MOST_LINES else ""
    return f"{', '.join(map(relative_source, lines[:_MOST_LINES]))}{more}"


def _whole(groups: "list[MoveGroup]") -> str:
    known = [group.bytes for group in groups if group.bytes is not None]
    return f", {shown_bytes(sum(known))} written" if groups and len(known) == len(groups) else ""
