"""Faster lowering: skips passes and validations whose result is not used, for the thread that exports.

Measured on a transformer: a tenth of the time went into copies of where nodes come from, and more than a third into
Python code for graphs of which one in a thousand is called. Of a small CNN, half went into tracing graphs again that
nothing had changed, and into registering a kernel for every operator of PyTorch, six times. The programs are the same,
byte for byte. What holds for other threads and afterwards is said in patching.py and late_compilation.py.
"""

import contextlib
import functools
import importlib
import operator
import os
from collections.abc import Iterator
from typing import Any, NamedTuple

from model_profiling.upstream.patching import Saving, replaced_here
from model_profiling.upstream.reliance import PROVEN_EXECUTORCH, PROVEN_TORCH, Reliance, check_reliance, unproven

# Set to anything but 0, it has models lowered as ExecuTorch does it by itself.
STOCK_VARIABLE = "SME2_KIT_STOCK_LOWERING"
FASTER = "faster"


class Part(NamedTuple):
    """A saving and what it relies on; `functions` it replaces, or relies on how they work inside."""

    made_by: str
    relies_on: str
    functions: str


# By name; one that does not hold is left out alone.
PARTS = {
    "late-compilation": Part(
        "late_compilation.compiled_when_used",
        "GraphModule.recompile only sets what a call and `code` read",
        "torch.fx.graph_module: GraphModule.__new__ GraphModule.graph GraphModule.code GraphModule.recompile "
        "GraphModule._recompile_submodules GraphModule.__reduce__ GraphModule.__reduce_package__ GraphModule.__str__ "
        "_WrappedCall.__init__",
    ),
    "shared-provenance": Part(
        "repeated_work.shared_provenance", "NodeSource is never changed", "torch.fx.traceback: NodeSource.__init__"
    ),
    "shared-weights": Part(
        "repeated_work.shared_weights",
        "lowering never writes into a weight",
        "torch: Tensor.__deepcopy__ torch.nn: Parameter.__deepcopy__",
    ),
    "operator-lists": Part(
        "repeated_work.registered_quickly",
        "OperatorBase.py_impl only fills a table, and composite operators are others only if their names are",
        "torch._ops: OperatorBase.py_impl torch._export.utils: _materialize_cpp_cia_ops _is_preservable_cia_op "
        "_collect_all_valid_cia_ops_for_namespace",
    ),
    "repeated-decompositions": Part(
        "repeated_work.decomposed_where_it_matters",
        "run_decompositions changes nothing that its table does not name",
        "torch.export.exported_program: ExportedProgram.run_decompositions",
    ),
    "repeated-verifications": Part(
        "unchanged_graphs.verified_once",
        "ExportedProgram._validate gives the same for the same graph",
        "torch.export.exported_program: ExportedProgram._validate",
    ),
    "unchanged-graphs": Part(
        "unchanged_graphs.traced_once",
        "ExportPass.call gives the same for the same graph",
        "executorch.exir.pass_base: _ExportPassBase.call _ExportPassBase.call_submodule "
        "executorch.backends.xnnpack._passes: XNNPACKPassManager.transform",
    ),
    "known-shapes": Part(
        "unchanged_graphs.shaped_once",
        "operators give the same shapes for the same inputs",
        "torch.fx.interpreter: Interpreter.call_function "
        "executorch.exir.verification.arg_validator: EdgeOpArgValidator.call_function",
    ),
}


@contextlib.contextmanager
def faster_lowering() -> Iterator[None]:
    """Lower faster in this block, on this thread; without what `left_out` names."""
    left = left_out()
    with replaced_here(*(_saving(name) for name in PARTS if name not in left)):
        yield


def lowering_way() -> str:
    """Return how models are lowered: `faster`, `faster without ` some savings or `stock`, and the reason."""
    left = left_out()
    way = "stock" if len(left) == len(PARTS) else f"{FASTER} without {', '.join(left)}"
    return f"{way}: {next(iter(left.values()))}" if left else FASTER


def why_slower() -> str:
    """Return one line that says why models are lowered without savings; '' if they have all, or it was asked for."""
    left = {} if switched_off() else left_out()
    how = "in the stock way" if len(left) == len(PARTS) else f"without {', '.join(left)}"
    return f"{next(iter(left.values()))}: models are lowered {how}, {_SAME}" if left else ""


def left_out() -> dict[str, str]:
    """Return why savings are left out, by name."""
    if switched_off():
        return dict.fromkeys(PARTS, f"{STOCK_VARIABLE} is set")
    checks = {each.name: check_reliance(each) for each in RELIANCES}
    reasons = {name: each.reason if each.state == "fails" else _replaced_since(name) for name, each in checks.items()}
    return {name: reason for name, reason in reasons.items() if reason}


def switched_off() -> bool:
    return os.environ.get(STOCK_VARIABLE, "0") not in ("", "0")


def _saving(name: str) -> Saving:
    module, _, function = PARTS[name].made_by.partition(".")
    saving: Saving = getattr(importlib.import_module(f"{__package__}.{module}"), function)
    return saving


def functions_of(saving: str) -> dict[str, Any]:
    """Return the functions that a saving relies on, as they are now; of a property, what sets or else reads it."""
    found, module = {}, ""
    for word in PARTS[saving].functions.split():
        if word.endswith(":"):
            module = word[:-1]
            continue
        value = operator.attrgetter(word)(importlib.import_module(module))
        found[f"{module}.{word}"] = (value.fset or value.fget) if isinstance(value, property) else value
    return found


# Those that the checks looked at.
_checked = functools.cache(functions_of)


def _replaced_since(saving: str) -> str:
    """Return which function other code has replaced since it was checked; ours are passed by, inside of a block."""
    now = functions_of(saving)
    other = [name for name, value in _checked(saving).items() if now[name] is not value]
    theirs = [name for name in other if not getattr(now[name], "__module__", "").startswith(__package__)]
    return f"other code replaced {theirs[0]}" if theirs else ""


def _check(saving: str) -> str:
    wrong = unproven(saving, _checked(saving).values())
    if not wrong:
        _saving(saving)  # which fails if a name that it imports has gone
    return wrong


_SAME = "which takes longer and gives the same program"
RELIANCES = tuple(
    Reliance(
        name,
        ", ".join(project for project in ("ExecuTorch", "torch") if f" {project.lower()}." in f" {part.functions}"),
        part.relies_on,
        f"ExecuTorch {', '.join(PROVEN_EXECUTORCH)}; torch {', '.join(PROVEN_TORCH)}",
        "the versions, and the source of each function that is replaced or relied on",
        f"models are lowered without it, {_SAME}",
        functools.partial(_check, name),
    )
    for name, part in PARTS.items()
)
