"""What rewrites share: one node of an exported program takes another's place."""

from typing import Any

import torch


def take_place(program: torch.export.ExportedProgram, old: Any, new: Any) -> None:
    """Let everybody who used `old` use `new`, the program's own signature too; `new` may go on using `old`."""
    old.replace_all_uses_with(new, delete_user_cb=lambda user: user is not new)
    for spec in program.graph_signature.output_specs:
        if getattr(spec.arg, "name", None) == old.name:
            spec.arg.name = new.name
