"""The smallest piece of a model whose program is wrong, as a script that needs torch and executorch alone."""

import importlib.metadata
import operator
import platform
from collections.abc import Callable, Collection
from pathlib import Path
from typing import Any

import torch

from model_profiling.base import files
from model_profiling.base.code_path import file_command
from model_profiling.base.programs import run_program
from model_profiling.export.lower.delegation import node_line
from model_profiling.formats.graph_terms import base_name
from model_profiling.platforms.environment import describe_host

# How far around the operator to look.
_MOST_STEPS = 4
# What a script may take, and of constants hold.
_LONGEST_S = 300.0
_MOST_CONSTANTS = 64
_SEEN = "(not run yet)"
_SCRIPT = Path(__file__).with_name("reproduction.txt")


class _UnwritableError(Exception):
    """A value has no place in a script."""


def reproduction(
    program: torch.export.ExportedProgram,
    culprits: Collection[tuple[str, str]],
    goes_wrong: Callable[[torch.nn.Module, tuple[torch.Tensor, ...]], bool],
) -> str:
    """Return a script of the fewest nodes around `culprits` (operator and line) with which it goes wrong; '' if none
    was found."""
    lines = {line for _, line in culprits if line}
    kinds = {base_name(op).strip("_") for op, _ in culprits}
    nodes = [node for node in program.graph.nodes if node.op == "call_function"]
    near = [node for node in nodes if node_line(node) in lines]
    # Lowering may have turned `layer_norm` into `native_layer_norm`; what torch's own modules call has no line.
    names = {node: base_name(str(node.target)).strip("_") for node in near or nodes}
    chosen = [node for node, name in names.items() if any(kind.endswith(name) for kind in kinds)] or near

    def shows(some: Collection[torch.fx.Node]) -> bool:
        try:
            piece, inputs = _piece(program, [node for node in nodes if node in some])
        except _UnwritableError:
            return False
        known: dict[str, Any] = {"torch": torch}
        torch.manual_seed(0)
        exec(f"{piece}\nmodel, inputs = Piece().eval(), ({inputs},)", known)
        return goes_wrong(known["model"], known["inputs"])

    part = set(chosen)
    for _ in range(_MOST_STEPS):
        if part and shows(part):
            break
        part |= {near for node in part for near in (*node.all_input_nodes, *node.users) if near.op == "call_function"}
    else:
        return ""
    for node in sorted(part, key=lambda each: each in chosen):
        if len(part) > 1 and shows(part - {node}):
            part = part - {node}
    piece, inputs = _piece(program, [node for node in nodes if node in part])
    versions = {name: importlib.metadata.version(name) for name in ("torch", "executorch")}
    where = f"{describe_host().get('cpu')} ({platform.machine()}), Python {platform.python_version()}"
    script = _SCRIPT.read_text(encoding="utf-8").format(**versions, where=where, piece=piece, inputs=inputs)
    return script.replace(_SEEN, seen) if (seen := _printed(script)) else ""


def _printed(script: str) -> str:
    """Return what the script says of the error, run as its reader will; '' if it does not see one."""
    with files.scratch_directory("sme2-kit-piece-") as folder:
        files.write_text(folder / "piece.py", script)
        command = file_command(str(folder / "piece.py"))
        done = run_program(command, timeout_s=_LONGEST_S, doing="show what is wrong")
    said = [line for line in done.stdout.splitlines() if line.startswith("largest error")]
    return said[0] if said and done.returncode == 1 else ""


def _piece(program: torch.export.ExportedProgram, nodes: list[torch.fx.Node]) -> tuple[str, str]:
    """Return a module of these nodes as source, and expressions for its inputs."""
    signature = program.graph_signature
    held = {**signature.inputs_to_parameters, **signature.inputs_to_buffers}
    held |= signature.inputs_to_lifted_tensor_constants
    weights, inputs, body = dict[str, str](), dict[str, str](), []
    for node in nodes:
        for each in node.all_input_nodes:
            if each not in nodes and each.name in held:
                value = program.state_dict.get(held[each.name], program.constants.get(held[each.name]))
                weights[each.name] = _constant(value)
            elif each not in nodes:
                inputs[each.name] = _random(each.meta.get("val"))
        body.append(f"        {node.name} = {_call(node, weights)}")
    given = [node for node in nodes if not node.users or any(user not in nodes for user in node.users)]
    if not inputs or not all(isinstance(node.meta.get("val"), torch.Tensor) for node in given):
        raise _UnwritableError
    made = [f"        self.{name} = torch.nn.Buffer({value})" for name, value in weights.items()]
    init = ["    def __init__(self):", "        super().__init__()", *made, ""] if made else []
    head = ["class Piece(torch.nn.Module):", *init, f"    def forward(self, {', '.join(inputs)}):"]
    returned = f"        return ({', '.join(node.name for node in given)},)"
    return "\n".join([*head, *body, returned, ""]), ", ".join(inputs.values())


def _call(node: torch.fx.Node, weights: dict[str, str]) -> str:
    def written(value: Any) -> str:
        if isinstance(value, torch.fx.Node):
            return f"self.{value.name}" if value.name in weights else value.name
        if isinstance(value, (list, tuple)):
            return f"[{', '.join(map(written, value))}]"
        if isinstance(value, torch.device):
            return repr(str(value))
        if value is None or isinstance(value, (bool, int, float, str, torch.dtype, torch.memory_format, torch.layout)):
            return f"float({str(value)!r})" if isinstance(value, float) and value in (1e999, -1e999) else repr(value)
        raise _UnwritableError

    arguments = [*map(written, node.args), *(f"{name}={written(value)}" for name, value in node.kwargs.items())]
    if node.target is operator.getitem:
        return f"{arguments[0]}[{arguments[1]}]"
    if not isinstance(node.target, torch._ops.OpOverload):
        raise _UnwritableError
    return f"torch.ops.{node.target}({', '.join(arguments)})"


def _random(value: Any) -> str:
    """Return an expression for values like those that the model has there."""
    if not isinstance(value, torch.Tensor) or not all(isinstance(size, int) for size in value.shape):
        raise _UnwritableError
    shape, kind = list(value.shape), f", dtype={value.dtype}"
    made = f"torch.randn({shape}{kind})" if value.is_floating_point() else f"torch.zeros({shape}{kind})"
    last = value.dim() == 4 and not value.is_contiguous() and value.is_contiguous(memory_format=torch.channels_last)
    return f"{made}.to(memory_format=torch.channels_last)" if last else made


def _constant(value: Any) -> str:
    if not isinstance(value, torch.Tensor):
        raise _UnwritableError
    if not value.is_floating_point() or value.dim() == 0:
        if value.numel() > _MOST_CONSTANTS:
            raise _UnwritableError
        return f"torch.tensor({value.tolist()}, dtype={value.dtype})"
    low, high = (f"{bound:.3g}" for bound in (value.min().item(), value.max().item()))
    return f"torch.empty({list(value.shape)}).uniform_({low}, {high}).to({value.dtype})"
