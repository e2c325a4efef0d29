"""Work that lowering does over and over with the same result: provenance, weights, registrations, decompositions."""

import copy
from collections.abc import Callable, Iterator
from threading import get_ident
from typing import Any

import torch
from torch._export import utils
from torch._ops import OperatorBase
from torch.export import ExportedProgram
from torch.fx.traceback import NodeSource

from model_profiling.upstream.patching import Block, Replacement


def shared_provenance(block: Block) -> Iterator[Replacement]:
    """Let nodes share what they come from, which PyTorch copies for every node in every pass."""
    stock = getattr(NodeSource, "__deepcopy__", _copied)

    def deepcopied(source: NodeSource, memo: dict[int, Any]) -> NodeSource:
        return source if get_ident() == block.thread else stock(source, memo)

    yield Replacement(NodeSource, "__deepcopy__", deepcopied)


def _copied(source: Any, memo: dict[int, Any]) -> Any:
    """Copy an object as `copy.deepcopy` copies one whose class does not say how."""
    make, arguments, state = source.__reduce_ex__(4)[:3]
    made = memo[id(source)] = make(*arguments)
    vars(made).update(copy.deepcopy(state, memo))
    return made


def shared_weights(block: Block) -> Iterator[Replacement]:
    """Let copies of a program share its weights: no pass writes into one, it puts another in its place."""
    for kind in (torch.Tensor, torch.nn.Parameter):

        def deepcopied(tensor: Any, memo: dict[int, Any], kind: Any = kind, stock: Any = kind.__deepcopy__) -> Any:
            return tensor if get_ident() == block.thread and type(tensor) is kind else stock(tensor, memo)

        yield Replacement(kind, "__deepcopy__", deepcopied)


def registered_quickly(block: Block) -> Iterator[Replacement]:
    """Skip work in each decomposition, which lists PyTorch's composite operators and registers kernels for all.

    They are looked up in C++ once, listed again only if a namespace has others, and asked first what few of them are;
    a kernel is registered without making a type for its signature.
    """
    register, look_up, belongs = OperatorBase.py_impl, utils._materialize_cpp_cia_ops, utils._is_preservable_cia_op
    collect: Callable[[Any], set[Any]] = utils._collect_all_valid_cia_ops_for_namespace
    key_type = torch._C.DispatchKey
    # Composite operators by namespace and the names in it.
    listed: dict[Any, set[Any]] = block.remember({})
    looked_up: list[Any] = block.remember([])

    def py_impl(operator: Any, key: Any) -> Any:
        plain = isinstance(key, key_type) and key != key_type.Python and key not in operator.py_kernels
        if get_ident() != block.thread or not plain:
            return register(operator, key)

        def registered(kernel: Any) -> Any:
            operator.py_kernels[key] = kernel
            operator._dispatch_cache.clear()
            return kernel

        return registered

    def collected(op_namespace: Any) -> set[Any]:
        if get_ident() != block.thread:
            return collect(op_namespace)
        # Operators that appear during lowering have been touched, and so are in this list.
        key = op_namespace.name, tuple(op_namespace)
        if key not in listed:
            listed[key] = collect(op_namespace)
        return listed[key]

    def looked_up_once() -> None:
        if get_ident() != block.thread:
            look_up()
            return
        if not looked_up:
            look_up()
            looked_up.append(True)

    def composite_first(operator: Any) -> Any:
        if get_ident() != block.thread:
            return belongs(operator)
        # Those that the dispatcher does not know cannot be asked.
        known = torch._C._dispatch_has_kernel(operator.name())
        return known and utils._is_cia_op(operator) and utils._check_valid_to_preserve(operator)

    yield Replacement(OperatorBase, "py_impl", py_impl)
    yield Replacement(utils, "_materialize_cpp_cia_ops", looked_up_once)
    yield Replacement(utils, "_is_preservable_cia_op", composite_first)
    yield Replacement(utils, "_collect_all_valid_cia_ops_for_namespace", collected)


def decomposed_where_it_matters(block: Block) -> Iterator[Replacement]:
    """Trace a program again after its first decomposition only if it has an operator that would be decomposed.

    ExecuTorch does so itself for backends that do not choose by node.
    """
    decompose = ExportedProgram.run_decompositions
    made: list[ExportedProgram] = block.remember([])

    def decomposed(program: ExportedProgram, decomp_table: Any = None, *args: Any, **options: Any) -> ExportedProgram:
        if get_ident() != block.thread:
            return decompose(program, decomp_table, *args, **options)
        known = any(program is each for each in made)
        plain = decomp_table is not None and not args and not options
        if known and plain and not _would_change(program, decomp_table):
            return program
        result = decompose(program, decomp_table, *args, **options)
        made[:] = [result]
        return result

    yield Replacement(ExportedProgram, "run_decompositions", decomposed)


def _would_change(program: ExportedProgram, table: Any) -> bool:
    nodes = program.graph_module.graph.nodes
    # Control flow has graphs of its own.
    return any(node.op == "get_attr" or (node.op == "call_function" and node.target in table) for node in nodes)
