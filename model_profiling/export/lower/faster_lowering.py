"""Faster lowering: skips passes and validations whose result is not used.

Measured on a transformer: a tenth of the time went into copies of where nodes come from, and more than a third into
Python code for graphs of which one in a thousand is called. Of a small CNN, half went into tracing graphs again that
nothing had changed, and into registering a kernel for every operator of PyTorch, six times.
"""

import contextlib
from collections.abc import Iterator
from typing import Any

import torch
from torch.export import ExportedProgram
from torch.fx import GraphModule
from torch.fx.graph import _PyTreeCodeGen

from model_profiling.export.host import replaced
from model_profiling.export.lower.unchanged_graphs import skip_unchanged_graphs

# Composite operators by namespace and the names in it, and, under "", all that had been registered by then.
_listed: dict[Any, set[Any]] = {}
_COLLECT = "_collect_all_valid_cia_ops_for_namespace"


@contextlib.contextmanager
def faster_lowering() -> Iterator[None]:
    with contextlib.ExitStack() as all_of_them:
        for saving in (
            *(_shared_provenance, _compiled_when_called, _registered_quickly, _decomposed_where_it_matters),
            _partitioned_without_looking_back,
        ):
            all_of_them.enter_context(saving())
        all_of_them.enter_context(skip_unchanged_graphs())
        yield


@contextlib.contextmanager
def _shared_provenance() -> Iterator[None]:
    """Let nodes share what they come from, which PyTorch copies for every node in every pass."""
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

    with replaced(GraphModule, "recompile", compile_later):
        yield


@contextlib.contextmanager
def _registered_quickly() -> Iterator[None]:
    """Skip work in each decomposition, which lists PyTorch's composite operators and registers kernels for all.

    They are listed again only if there are others, and a kernel is registered without making a type for its signature.
    """
    from torch._export import utils
    from torch._ops import OperatorBase

    composite = torch._C._dispatch_get_registrations_for_dispatch_key("CompositeImplicitAutograd")
    if _listed.get("") != set(composite):
        _listed.clear()
        _listed[""] = set(composite)
    register, collect = OperatorBase.py_impl, getattr(utils, _COLLECT)
    key_type = torch._C.DispatchKey

    def py_impl(operator: Any, key: Any) -> Any:
        if not isinstance(key, key_type) or key == key_type.Python or key in operator.py_kernels:
            return register(operator, key)

        def registered(kernel: Any) -> Any:
            operator.py_kernels[key] = kernel
            operator._dispatch_cache.clear()
            return kernel

        return registered

    def collected(namespace: Any) -> set[Any]:
        # Operators that appear during lowering have been touched, and so are in this list.
        key = namespace.name, tuple(namespace)
        if key not in _listed:
            _listed[key] = collect(namespace)
        return _listed[key]

    with replaced(OperatorBase, "py_impl", py_impl), replaced(utils, _COLLECT, collected):
        yield


@contextlib.contextmanager
def _decomposed_where_it_matters() -> Iterator[None]:
    """Trace a program again after its first decomposition only if it has an operator that would be decomposed.

    ExecuTorch does so itself for backends that do not choose by node.
    """
    decompose = ExportedProgram.run_decompositions
    made: list[ExportedProgram] = []

    def decomposed(program: ExportedProgram, decomp_table: Any = None, **options: Any) -> ExportedProgram:
        known = any(program is each for each in made)
        if known and decomp_table is not None and not options and not _would_change(program, decomp_table):
            return program
        result = decompose(program, decomp_table, **options)
        made[:] = [result]
        return result

    with replaced(ExportedProgram, "run_decompositions", decomposed):
        yield


def _would_change(program: ExportedProgram, table: Any) -> bool:
    nodes = program.graph_module.graph.nodes
    # Control flow has graphs of its own.
    return any(node.op == "get_attr" or (node.op == "call_function" and node.target in table) for node in nodes)


@contextlib.contextmanager
def _partitioned_without_looking_back() -> Iterator[None]:
    """Skip the partitioner's check of its callers, which warns of a way to call it that is not ours. If a caller has no
    file (code of a notebook, of a test's worker), that is a search through all modules, every time."""
    from executorch.backends.xnnpack.partition.xnnpack_partitioner import XnnpackPartitioner

    with replaced(XnnpackPartitioner, "_check_if_called_from_to_backend", lambda self: False):
        yield
