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
from collections.abc import Iterator, Mapping
from typing import Any

from model_profiling.upstream.patching import Saving, replaced_here
from model_profiling.upstream.reliance import (
    PROVEN_BOTH,
    PROVEN_EXECUTORCH,
    PROVEN_TORCH,
    Reliance,
    changed_source,
    check_reliance,
    unproven_version,
)

# Set to anything but 0, it has models lowered as ExecuTorch does it by itself.
STOCK_VARIABLE = "SME2_KIT_STOCK_LOWERING"
FASTER = "faster"

# Functions that are replaced or whose inner workings are relied on, and the hash of their source.
_WORK = {
    "torch.fx.graph_module:GraphModule.__new__": "9b3b555879e4",
    "torch.fx.graph_module:GraphModule.graph": "635ada845462",
    "torch.fx.graph_module:GraphModule.code": "520d5912f275",
    "torch.fx.graph_module:GraphModule.recompile": "98adb1519c45",
    "torch.fx.graph_module:GraphModule._recompile_submodules": "d8d048e4dfec",
    "torch.fx.graph_module:GraphModule.__reduce__": "479fb053d556",
    "torch.fx.graph_module:GraphModule.__reduce_package__": "4bec0f9856ba",
    "torch.fx.graph_module:GraphModule.__str__": "d116372d3dbd",
    "torch.fx.graph_module:_WrappedCall.__init__": "ca4a7107b65c",
    "torch.fx.traceback:NodeSource.__init__": "99395e7f40a4",
    "torch._ops:OperatorBase.py_impl": "8173bd205b78",
    "torch._export.utils:_materialize_cpp_cia_ops": "51472f6b4e2c",
    "torch._export.utils:_is_preservable_cia_op": "00d78e92c3d6",
    "torch._export.utils:_collect_all_valid_cia_ops_for_namespace": "c26d5cd61983",
    "torch.export.exported_program:ExportedProgram.run_decompositions": "c74cbc17d387",
}
_GRAPHS = {
    "torch.fx.interpreter:Interpreter.call_function": "fb396d3a46b3",
    "torch.export.exported_program:ExportedProgram._validate": "5b915d65c0d3",
    "executorch.exir.pass_base:_ExportPassBase.call": "689e39bb23b9",
    "executorch.exir.pass_base:_ExportPassBase.call_submodule": "d0245b732570",
    "executorch.exir.verification.arg_validator:EdgeOpArgValidator.call_function": "07d8d26f52d6",
    "executorch.backends.xnnpack._passes:XNNPACKPassManager.transform": "18e3bd06d0a9",
}


@contextlib.contextmanager
def faster_lowering() -> Iterator[None]:
    """Lower faster in this block, on this thread; in the stock way where `stock_reason` says why."""
    with contextlib.nullcontext() if stock_reason() else replaced_here(*_savings()):
        yield


def lowering_way() -> str:
    """Return how models are lowered: `faster`, or `stock: ` and the reason."""
    reason = stock_reason()
    return f"stock: {reason}" if reason else FASTER


def stock_reason() -> str:
    """Return why models are lowered in the stock way; '' if they are not."""
    if switched_off():
        return f"{STOCK_VARIABLE} is set"
    failing = (check_reliance(each) for each in RELIANCES)
    return next((each.reason for each in failing if each.state == "fails"), "") or _replaced_since()


def switched_off() -> bool:
    return os.environ.get(STOCK_VARIABLE, "0") not in ("", "0")


def _savings() -> tuple[Saving, ...]:
    from model_profiling.upstream import late_compilation, repeated_work, unchanged_graphs

    return (
        late_compilation.compiled_when_used,
        repeated_work.shared_provenance,
        repeated_work.registered_quickly,
        repeated_work.decomposed_where_it_matters,
        unchanged_graphs.verified_once,
        unchanged_graphs.traced_once,
        unchanged_graphs.shaped_once,
    )


def _found(names: Mapping[str, str]) -> dict[str, Any]:
    """Return the functions of these names, as they are now; of a property, the one that sets or else reads it."""
    found = {}
    for name in names:
        module, _, path = name.partition(":")
        value = operator.attrgetter(path)(importlib.import_module(module))
        found[name] = (value.fset or value.fget) if isinstance(value, property) else value
    return found


@functools.cache
def _checked() -> dict[str, Any]:
    """Return the functions that the checks looked at."""
    return _found({**_WORK, **_GRAPHS})


def _replaced_since() -> str:
    """Return which function other code has replaced since it was checked; ours are passed by, inside of a block."""
    now = _found(_checked())
    other = [name for name, value in _checked().items() if now[name] is not value]
    ours = [name for name in other if getattr(now[name], "__module__", "").startswith(__package__)]
    return f"other code replaced {other[0].replace(':', '.')}" if len(other) > len(ours) else ""


def _check(names: Mapping[str, str]) -> str:
    wrong = unproven_version({"torch": PROVEN_TORCH, "executorch": PROVEN_EXECUTORCH})
    return wrong or changed_source({_checked()[name]: (digest,) for name, digest in names.items()})


_HOW = "the versions, and the source of each function that is replaced or relied on"
STOCK_WAY = "models are lowered in the stock way, which takes longer and gives the same program"
REPEATED_WORK = Reliance(
    "faster-lowering",
    "torch",
    "GraphModule.recompile only sets what a call and `code` read, NodeSource is never changed, OperatorBase.py_impl "
    "only fills a table, run_decompositions changes nothing that its table does not name",
    PROVEN_BOTH,
    _HOW,
    lambda: _check(_WORK),
    STOCK_WAY,
)
UNCHANGED_GRAPHS = Reliance(
    "unchanged-graphs",
    "ExecuTorch, torch",
    "ExportPass.call and ExportedProgram._validate give the same for the same graph, and operators the same shapes for "
    "the same inputs",
    PROVEN_BOTH,
    _HOW,
    lambda: _check(_GRAPHS),
    STOCK_WAY,
)
RELIANCES = (REPEATED_WORK, UNCHANGED_GRAPHS)
