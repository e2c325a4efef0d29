"""Show which operators of a model will be delegated, and which transposes and copies it needs, and why."""

import argparse
from typing import TYPE_CHECKING

from model_profiling.api.definition import takes
from model_profiling.base.printing import say_json, tell
from model_profiling.base.records import record_of
from model_profiling.base.units import shown_bytes
from model_profiling.cli.answer import ending
from model_profiling.cli.export import at_places, delegation_lines, export_request
from model_profiling.cli.progress import progress

if TYPE_CHECKING:
    from model_profiling.analysis.movement.layout_reasons import LayoutReasons, MoveGroup
    from model_profiling.export.lower.delegation_preview import DelegationPreview

TAKES = takes(more="model=Model? @check json verbose")
COMMON = "model input_shapes settings dtype rewrites json verbose"
EXAMPLE = "sme2-kit check toy_cnn --dtype fp16"

_MOST_LINES = 3


def run(args: argparse.Namespace) -> None:
    from model_profiling.api.exporting import stage_listener
    from model_profiling.export.request import typed

    request = export_request(args, "check")
    with progress(plain=request.loud) as report:
        announce = stage_listener(report, "check")
        announce("import torch and executorch")
        from model_profiling.export.quiet import kept_off_terminal

        with kept_off_terminal(request.loud):
            from model_profiling.export.lower.delegation_preview import preview
        found = preview(request, announce)
    if args.json:
        from model_profiling.api.answers import Checked

        say_json(record_of(Checked, found, missing_operators=found.missing))
    else:
        warnings = [f"  warning:   {warning}" for warning in found.warnings]
        lines = [f"{request.target} in {request.dtype}", *delegation_lines(found.delegation), *missing_lines(found)]
        tell("\n".join([*lines, *layout_lines(found.layout), *warnings, ""]))
        if found.missing:
            return  # what an export of it would refuse is no next step
        tell(ending(following=["profile", *typed(request)[2:]]))


def missing_lines(found: "DelegationPreview") -> list[str]:
    """Return the operators that the kit's runner lacks, each with its lines; or that nobody could look."""
    if found.missing is None:
        return [f"  runner:    not known which operators it has ({found.no_runner})"]
    lines = [f"    {left.op}{_at(left.sources)}" for left in found.missing]
    lacks = "  not in the runner, so that an export would fail (write the model without, or use a runner of your own):"
    return [lacks, *lines] if lines else []


def layout_lines(layout: "LayoutReasons") -> list[str]:
    """Return what is moved, by reason, and how much of it a rewrite would remove."""
    note = [f"  note:      {layout.note}"] if layout.note else []
    if layout.note and not layout.transposes and not layout.copies:
        return note
    lines = [f"  transposes: {layout.count}{_whole(layout.transposes)}", *map(_line, layout.transposes)]
    if layout.removable:
        lines.append(f"    --rewrite layout removes {layout.removable} of them{_at(layout.removable_at)}")
    copies = sum(group.count for group in layout.copies)
    return [*lines, f"  copies:    {copies}{_whole(layout.copies)}", *map(_line, layout.copies), *note]


def _line(group: "MoveGroup") -> str:
    hint = f"; {group.hint}" if group.hint else ""
    size = f"{shown_bytes(group.bytes)}: " if group.bytes is not None else ""
    return f"    {group.count} x {size}{group.reason}{_at(group.lines)}{hint}"


def _at(lines: list[str]) -> str:
    return at_places(lines, _MOST_LINES, "line")


def _whole(groups: "list[MoveGroup]") -> str:
    known = [group.bytes for group in groups if group.bytes is not None]
    return f", {shown_bytes(sum(known))} written" if groups and len(known) == len(groups) else ""
