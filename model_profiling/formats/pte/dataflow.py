"""Which operator feeds which, through the whole method: portable instructions and the nodes inside XNNPACK's delegates.

A value of the method is written by one instruction and read by later ones; a delegate's graph takes values of the
method in and hands others out by their place among the call's arguments. Programs that jump (`torch.cond`) may write a
value in two places: their data flow is not given.
"""

from collections.abc import Iterable
from dataclasses import dataclass
from functools import cached_property

from model_profiling.base.dtypes import OF_TENSORS
from model_profiling.formats.graph_terms import CONSTANT, ELSEWHERE, INPUT
from model_profiling.formats.pte import DELEGATE, KERNEL, Instruction, Method, Program, TensorSpec, xnnpack_graph
from model_profiling.formats.pte.xnnpack_graph import XnnpackGraph, XnnpackNode

_PERMUTES = ("aten::permute_copy.out", "aten::transpose_copy.int_out", "aten::t_copy.out")
# Tensors of which XNNPACK has a type are called as it calls them.
_FLOATS = {floats: row.name for floats, row in OF_TENSORS.items() if row.activations}


@dataclass(frozen=True, slots=True)
class FlowTensor:
    """What a step reads or writes. `shape` is in the order of memory, outermost first; () also if it is not fixed.

    `entered` is its place among the method's inputs, if it is one of them.
    """

    source: int
    dtype: str
    shape: tuple[int, ...]
    entered: int | None = None


@dataclass(frozen=True, slots=True)
class FlowStep:
    """One operator. `node` is the XNNPACK node it is, None for a portable instruction or another backend's call.

    `permutation` is a transpose's, in the order of memory: dimension i of the output is dimension permutation[i] of
    the input. It is () for all other operators, and for a transpose of a tensor that is not in its usual order.
    """

    instruction: int
    node: XnnpackNode | None
    op: str
    inputs: tuple[FlowTensor, ...]
    outputs: tuple[FlowTensor, ...]
    permutation: tuple[int, ...] = ()


@dataclass(frozen=True)
class DataFlow:
    """The steps of a method in order; `results` are its outputs, None for what is not a tensor.

    `fixed` says that every size is known before it runs; otherwise those in delegates are upper bounds: in the calls
    `unfixed`, by their instruction.
    """

    steps: tuple[FlowStep, ...]
    results: tuple[FlowTensor | None, ...]
    fixed: bool
    unfixed: frozenset[int] = frozenset()

    @cached_property
    def returned(self) -> frozenset[int]:
        """The steps whose results leave the method."""
        return frozenset(result.source for result in self.results if result is not None and result.source >= 0)

    @cached_property
    def consumers(self) -> dict[int, tuple[int, ...]]:
        """The steps that read what a step (or INPUT) made, in order."""
        found: dict[int, dict[int, None]] = {}
        for position, step in enumerate(self.steps):
            for tensor in step.inputs:
                found.setdefault(tensor.source, {})[position] = None
        return {source: tuple(readers) for source, readers in found.items()}

    def readers(self, position: int) -> tuple[int, ...]:
        return self.consumers.get(position, ())


def data_flow(program: Program, method: Method) -> DataFlow | None:
    """Follow every value of a method from the operator that makes it to those that read it; None if it branches."""
    if any(step.kind not in (KERNEL, DELEGATE, "FreeCall") or step.chain for step in method.instructions):
        return None
    graphs = xnnpack_graph.graphs(program, method)
    walk = _Walk(method)
    for instruction in method.instructions:
        if instruction.kind == KERNEL:
            walk.kernel(instruction)
        elif instruction.index in graphs:
            walk.delegate(instruction, graphs[instruction.index])
        elif instruction.kind == DELEGATE:
            walk.opaque(instruction)
    results = tuple(walk.tensor(number) for number in method.returns)
    dynamic = {n for n, value in enumerate(method.values) if isinstance(value, TensorSpec) and value.dynamic}
    unfixed = {step.index for step in method.instructions if not dynamic.isdisjoint(step.arguments)}
    return DataFlow(tuple(walk.steps), results, not dynamic, frozenset(unfixed))


class _Walk:
    """Goes through the instructions and remembers which step made each value last."""

    def __init__(self, method: Method) -> None:
        self.values = method.values
        self.steps: list[FlowStep] = []
        self.made = dict.fromkeys(method.takes, INPUT)
        self.entered = {number: place for place, number in enumerate(method.takes)}

    def source(self, number: int) -> int:
        value = self.values[number]
        made = self.made.get(number)
        if made is None:
            return CONSTANT if isinstance(value, TensorSpec) and value.constant else ELSEWHERE
        return made

    def tensor(self, number: int, made: int | None = None) -> FlowTensor | None:
        """Return a value as it is now, or as the step `made` makes it; None if it is not a tensor."""
        value = self.values[number]
        if not isinstance(value, TensorSpec):
            return None
        source = self.source(number) if made is None else made
        entered = self.entered.get(number) if source == INPUT else None
        return FlowTensor(source, _FLOATS.get(value.dtype, value.dtype), _in_memory(value), entered)

    def kernel(self, instruction: Instruction) -> None:
        """Add a portable operator: its results come last, once more after having been named among its arguments."""
        arguments = instruction.arguments
        results = _results(arguments, self.values)
        taken = arguments if _in_place(instruction.name) else [number for number in arguments if number not in results]
        inputs = tuple(self._tensors(taken))
        outputs = tuple(self._tensors(results, len(self.steps)))
        permutation = self._permutation(instruction, arguments) if instruction.name in _PERMUTES else ()
        self.steps.append(FlowStep(instruction.index, None, instruction.name, inputs, outputs, permutation))
        self._write(results + (arguments[:1] if _in_place(instruction.name) else ()))

    def delegate(self, instruction: Instruction, graph: XnnpackGraph) -> None:
        """Add the nodes of an XNNPACK graph, which number their values on their own."""
        inside: dict[int, int] = {}
        leaving: dict[int, int] = {}
        for node in graph.nodes:
            position = len(self.steps)
            inputs = tuple(self._read(v, inside, instruction) for v in node.inputs)
            outputs = tuple(FlowTensor(position, v.dtype, v.shape) for v in node.outputs)
            self.steps.append(FlowStep(instruction.index, node, node.op, inputs, outputs, node.permutation))
            for value in node.outputs:
                inside[value.number] = position
                if value.external is not None and value.external < len(instruction.arguments):
                    leaving[instruction.arguments[value.external]] = position
        self.made |= leaving

    def opaque(self, instruction: Instruction) -> None:
        """Add another backend's call as one step: it makes what nobody made before."""
        results = tuple(number for number in instruction.arguments if self.source(number) == ELSEWHERE)
        taken = [number for number in instruction.arguments if number not in results]
        inputs, outputs = tuple(self._tensors(taken)), tuple(self._tensors(results, len(self.steps)))
        self.steps.append(FlowStep(instruction.index, None, instruction.name, inputs, outputs))
        self._write(results)

    def _read(self, value: xnnpack_graph.XnnpackValue, inside: dict[int, int], instruction: Instruction) -> FlowTensor:
        """Return what a node of a delegate reads: from another node, from outside, or a constant of its own."""
        if value.number in inside:
            return FlowTensor(inside[value.number], value.dtype, value.shape)
        if value.external is not None and value.external < len(instruction.arguments):
            number = instruction.arguments[value.external]
            source = self.source(number)
            return FlowTensor(source, value.dtype, value.shape, self.entered.get(number) if source == INPUT else None)
        return FlowTensor(CONSTANT if value.constant else ELSEWHERE, value.dtype, value.shape)

    def _write(self, results: Iterable[int]) -> None:
        # A step writes after it has read, so its own number is that of the last step.
        self.made |= dict.fromkeys(results, len(self.steps) - 1)

    def _tensors(self, numbers: Iterable[int], made: int | None = None) -> Iterable[FlowTensor]:
        """Yield the tensors behind some values, those of lists among them."""
        for number in numbers:
            value, tensor = self.values[number], self.tensor(number, made)
            if tensor is not None:
                yield tensor
            elif isinstance(value, tuple):
                known = [each for each in value if 0 <= each < len(self.values)]
                yield from self._tensors((each for each in known if isinstance(self.values[each], TensorSpec)), made)

    def _permutation(self, instruction: Instruction, arguments: tuple[int, ...]) -> tuple[int, ...]:
        source = self.values[arguments[0]] if arguments else None
        if not isinstance(source, TensorSpec) or tuple(sorted(source.dim_order)) != source.dim_order:
            return ()
        rank = len(source.sizes)
        if instruction.name == "aten::permute_copy.out":
            listed = self.values[arguments[1]] if len(arguments) > 1 else None
            known = listed if isinstance(listed, tuple) else ()
            dims = [self.values[number] for number in known if 0 <= number < len(self.values)]
            order = tuple(dim % rank for dim in dims if isinstance(dim, int) and rank)
            return order if sorted(order) == list(range(rank)) else ()
        if rank < 2:
            return ()
        pair = (0, 1) if instruction.name == "aten::t_copy.out" else tuple(self.values[n] for n in arguments[1:3])
        if len(pair) != 2 or not all(isinstance(dim, int) for dim in pair):
            return ()
        first, second = (int(dim) % rank for dim in pair if isinstance(dim, int))
        swapped = {first: second, second: first}
        return tuple(swapped.get(dim, dim) for dim in range(rank))


def _results(arguments: tuple[int, ...], values: tuple[object, ...]) -> tuple[int, ...]:
    """Return what a kernel returns: `(a, b, out, out)` names each result once more at the end, a list by its items.

    Of several results, which are arguments of their own, the list of them comes last: `(a, values, indices, list)`.
    """
    last = values[arguments[-1]] if arguments else None
    if isinstance(last, tuple) and last and last == arguments[-1 - len(last) : -1]:
        return last
    for count in range(len(arguments) // 2, 0, -1):
        if arguments[-2 * count : -count] == arguments[-count:]:
            return arguments[-count:]
    for number in arguments:
        items = values[number]
        if isinstance(items, tuple) and items and items == arguments[-len(items) :]:
            return items
    return arguments[-1:]


def _in_place(name: str) -> bool:
    return name.split(".")[0].endswith("_")


def _in_memory(tensor: TensorSpec) -> tuple[int, ...]:
    """Return the sizes in the order of memory; () if they are not fixed."""
    if tensor.dynamic or len(tensor.dim_order) != len(tensor.sizes):
        return ()
    return tuple(tensor.sizes[dim] if dim < len(tensor.sizes) else 0 for dim in tensor.dim_order)
