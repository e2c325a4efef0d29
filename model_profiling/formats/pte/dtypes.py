"""Which dtype a program computes in, from what is in the .pte: XNNPACK's nodes and portable kernels, never a name.

The work of an operator is its multiply-accumulates; where nothing multiplies matrices, the bytes of its tensors.
"""

from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass
from math import prod
from pathlib import Path

from model_profiling.base.dtypes import OF_ACTIVATIONS, OF_INTEGERS, OF_TENSORS, OF_WEIGHTS, UNKNOWN
from model_profiling.base.file_memo import FileMemo
from model_profiling.formats.graph_terms import base_name
from model_profiling.formats.pte import DELEGATE, KERNEL, SCALAR_BYTES, Method, Program, TensorSpec, read, why_unknown
from model_profiling.formats.pte.xnnpack_graph import BACKEND, XnnpackNode, XnnpackValue, graphs

# These change a dtype and compute in none.
_CONVERSIONS = ("quantize", "dequantize", "choose_qparams", "_to_copy", "_to_dim_order_copy")
# Portable products, and where the left matrix is among their tensors.
_PRODUCTS = {"mm": 0, "bmm": 0, "mv": 0, "linear": 0, "matmul": 0, "addmm": 1, "baddbmm": 1, "addmv": 1}


@dataclass(frozen=True)
class ProgramDtype:
    """`shares` has which part of the work uses each dtype, the largest first.

    `main` is the dtype of most of the work that CPU features change: of XNNPACK's products, where it has some.
    """

    main: str
    shares: dict[str, float]


# What operators do, by what is counted and dtype: multiply-accumulates, bytes of floating-point and of whole numbers.
_Work = Counter[tuple[str, str]]
_COUNTED = _PRODUCTS_OF, _BYTES_OF, _INTEGERS_OF = ("products", "bytes", "integers")


def program_dtype(path: Path, methods: Iterable[str] = ()) -> ProgramDtype:
    """Return the dtype of a program, or of its named methods; a file that cannot be read is an error.

    With an ExecuTorch whose files the kit does not know, it is unknown.
    """
    if why_unknown():
        return ProgramDtype(UNKNOWN, {})
    known = _by_method(path)
    # What XNNPACK does, and what all else does.
    chosen = [known[name] for name in methods if name in known] or list(known.values())
    delegated, other = (sum((both[side] for both in chosen), _Work()) for side in (0, 1))
    counted = next((found for what in _COUNTED if (found := _by_dtype(delegated + other, what))), Counter[str]())
    total = sum(counted.values())
    shares = {dtype: work / total for dtype, work in counted.most_common()}
    main = next((dtype for dtype, _ in (_by_dtype(delegated, _PRODUCTS_OF) or counted).most_common(1)), UNKNOWN)
    return ProgramDtype(main, shares)


def _by_dtype(work: _Work, what: str) -> Counter[str]:
    return +Counter({dtype: count for (counted, dtype), count in work.items() if counted == what})


@FileMemo
def _by_method(path: Path) -> dict[str, tuple[_Work, _Work]]:
    program = read(path)
    return {method.name: (_delegated(program, method), _outside(method)) for method in program.methods}


def _delegated(program: Program, method: Method) -> _Work:
    found = _Work()
    for graph in graphs(program, method).values():
        for node in graph.nodes:
            dtype = node_dtype(node)
            if dtype and node.op != "Convert":
                found[_PRODUCTS_OF, dtype] += node.multiply_accumulates
                sized = [(OF_ACTIVATIONS[v.dtype], v) for v in _tensors(node) if v.dtype in OF_ACTIVATIONS]
                found[_BYTES_OF, dtype] += sum(prod(v.shape) * row.element_bytes for row, v in sized)
    return found


def node_dtype(node: XnnpackNode) -> str:
    """Return what an XNNPACK node computes in, as the kit calls it; '' for what is not known."""
    for value in node.inputs[1:2]:
        # Weights of four bits tell more than what they are multiplied with.
        if value.constant and value.dtype in OF_WEIGHTS:
            return OF_WEIGHTS[value.dtype].name
    row = next((OF_ACTIVATIONS.get(value.dtype) for value in _tensors(node) if not value.constant), None)
    return row.name if row is not None else ""


def _tensors(node: XnnpackNode) -> tuple[XnnpackValue, ...]:
    return (*node.inputs, *node.outputs)


def _outside(method: Method) -> _Work:
    """Return what portable kernels and the delegates of other backends do, as far as their tensors tell."""
    found = _Work()
    for step in method.instructions:
        name = base_name(step.name)
        if step.kind not in (KERNEL, DELEGATE) or step.name == BACKEND or name.startswith(_CONVERSIONS):
            continue
        tensors = [t for number in step.arguments if isinstance(t := method.values[number], TensorSpec)]
        floats = [tensor for tensor in tensors if tensor.dtype in OF_TENSORS]
        if floats:
            dtype = OF_TENSORS[floats[0].dtype].name
            found[_PRODUCTS_OF, dtype] += _multiply_accumulates(name, floats) if step.kind == KERNEL else 0
            found[_BYTES_OF, dtype] += sum(prod(tensor.sizes) * SCALAR_BYTES[tensor.dtype] for tensor in floats)
        for tensor in tensors:
            if not floats and tensor.dtype in OF_INTEGERS:
                found[_INTEGERS_OF, OF_INTEGERS[tensor.dtype].name] += prod(tensor.sizes)
    return found


def _multiply_accumulates(name: str, tensors: list[TensorSpec]) -> int:
    """Count those of a portable kernel whose last tensor is its result; 0 for what multiplies no matrices."""
    out = tensors[-1].sizes
    if name == "convolution" and len(tensors) > 2 and tensors[1].sizes:
        source, weights = tensors[0].sizes, tensors[1].sizes
        # Each weight of an output channel meets each position of the output; transposed, of the input.
        transposed = len(source) > 1 and len(out) > 1 and weights[0] == source[1] and weights[0] != out[1]
        return prod(source if transposed else out) * prod(weights[1:])
    place = _PRODUCTS.get(name)
    if place is None or place + 1 >= len(tensors) or not tensors[place].sizes:
        return 0
    return prod(out) * tensors[place].sizes[-1]
