"""Lowering without what nobody needs of it: PyTorch's passes copy and compile graphs that are never run.

Measured on a transformer: a tenth of the time went into copies of where nodes come from, and more than a third into
Python code for graphs of which one in a thousand is called.
"""

import contextlib
from collections.abc import Iterator
from typing import Any

from torch.fx import GraphModule
from torch.fx.graph import _PyTreeCodeGen


@contextlib.contextmanager
def faster_lowering() -> Iterator[None]:
    with _shared_provenance(), _compiled_when_called():
        yield


@contextlib.contextmanager
def _shared_provenance() -> Iterator[None]:
    """Let nodes share what they come from. Every pass makes PyTorch copy it for every node, with all that came
    before."""
    from torch.fx.traceback import NodeSource

    NodeSource.__deepcopy__ = lambda self, memo: self
    try:
        yield
    finally:
        del NodeSource.__deepcopy__


@contextlib.contextmanager
def _compiled_when_called() -> Iterator[None]:
    """Put off compiling a graph until it is called or its code is asked for, which may be long after."""
    compile_now = GraphModule.recompile

    def compile_later(module: GraphModule) -> None:
        codegen = module.graph._codegen
        if isinstance(codegen, _PyTreeCodeGen):
            module._in_spec, module._out_spec = codegen.pytree_info.in_spec, codegen.pytree_info.out_spec
        for name, value in (("_code", ""), ("_lineno_map", None), ("_prologue_start", 0)):
            module.__dict__.setdefault(name, value)
        # Every graph has a class of its own.
        type(module).forward = _compiled_first
        type(module).code = property(_code)

    def _compiled_first(module: GraphModule, *inputs: Any, **keywords: Any) -> Any:
        _code(module)
        return module(*inputs, **keywords)

    def _code(module: GraphModule) -> str:
        if "code" in vars(type(module)):
            del type(module).code
        compile_now(module)
        return str(module.code)

    GraphModule.recompile = compile_later
    try:
        yield
    finally:
        GraphModule.recompile = compile_now
