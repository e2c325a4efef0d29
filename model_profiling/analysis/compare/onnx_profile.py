"""ONNX Runtime's profiles as one of the kit: every node's time in every execution, its line, its kind and its work.

What an execution took beyond its nodes is ONNX Runtime's own time and its profiler's, which writes between them.
"""

import re
from collections.abc import Iterator, Sequence
from math import prod
from pathlib import Path

import msgspec
import numpy as np

from model_profiling.analysis.compare.program_changes import ProfiledProgram
from model_profiling.analysis.graph.sources import UNLINKED
from model_profiling.analysis.timing.breakdown import SourceLine, break_down
from model_profiling.analysis.timing.categories import ONNX_RULES, UNKNOWN, OperatorClass
from model_profiling.analysis.timing.profile import NO_CHAIN, Instance, Profile
from model_profiling.analysis.timing.work import BITS, ONNX_ELEMENTS, Product, Work
from model_profiling.base.errors import InputError, KitError
from model_profiling.base.records import by_key
from model_profiling.formats import onnx

# What ONNX Runtime's optimizer adds to the name of a node, or of an output, for what it puts in their place.
_ADDED = re.compile(r"(?:(?:_bn|_mul)?_nchwc|/\w+Fusion/?|_token_\d+)$")
_BEFORE = re.compile(r"^(?:fused |Inserted(?:PrecisionFree)?Cast_)")
# What gives a result the shape or layout back that it had before: it is of what made the result.
_SHAPED_BACK = ("gemm_output_reshape", "ReorderOutput")
_BLOCKED = re.compile(r"_nchwc(?:_token_\d+)?$")
_KINDS = {name: OperatorClass(row.category, row.kind) for row in ONNX_RULES for name in row.names}
# So many nodes at most become one: a convolution, its addition and its activation.
_MOST_FUSED = 4
# ONNX Runtime's types by the names of XNNPACK.
_DTYPES = {"float": "F32", "float16": "F16", "bfloat16": "BF16", "int8": "QS8", "uint8": "QU8"}
_CONVOLUTIONS = ("Conv", "FusedConv")
_PRODUCTS = ("Gemm", "FusedGemm", "MatMul", "FusedMatMul")
_OWN = Instance("ONNX Runtime", "ONNX Runtime", "runtime", NO_CHAIN, 0, OperatorClass("Other", "overhead"))


def onnx_side(
    name: str, onnx_file: Path, profiles: Sequence[Path], optimized: Path | None = None, warmup: int = 1
) -> ProfiledProgram:
    """Return an .onnx file with the times of its nodes.

    Each profile is of one launch, whose first `warmup` executions are left out. `optimized` is what ONNX Runtime made
    of the file (`SessionOptions.optimized_model_filepath`); without it, some of the nodes that it put in have no line.
    """
    launches = [onnx.read_profile(path)[warmup:] for path in profiles]
    for path, launch in zip(profiles, launches, strict=True):
        if not launch:
            raise InputError(f"{path} has no whole execution after {warmup} of warm-up", "Measure more executions.")
    executions = [execution for launch in launches for execution in launch]
    if not executions:
        raise InputError(f"there is no profile of {onnx_file}", "Measure it with profiling enabled.")
    nodes = executions[0].nodes
    executions = [_in_order_of(executions[0], execution) for execution in executions]
    if any(_signature(execution) != _signature(executions[0]) for execution in executions):
        raise InputError(
            f"executions of {onnx_file.name} ran different nodes or sizes, which cannot be added up",
            "Measure with the same inputs in all executions.",
        )
    launch_of = np.repeat(np.arange(len(launches)), [len(launch) for launch in launches])
    profile = _profile(executions, launch_of)
    lines, unlinked = _lines(onnx_file, optimized, nodes)
    works = {row: work for row, node in enumerate(nodes) if (work := _work(node)) is not None}
    return ProfiledProgram(name, profile, break_down(profile, lines, works), unlinked)


def _in_order_of(first: onnx.OrtExecution, execution: onnx.OrtExecution) -> onnx.OrtExecution:
    """Return an execution with its nodes in the order of the first one: branches run in any order, by the session."""
    wanted, own = _signature(first), _signature(execution)
    if own == wanted:
        return execution
    places = by_key((own[place], place) for place in reversed(range(len(own))))
    order = [found.pop() for node in wanted if (found := places.get(node))]
    if not len(order) == len(wanted) == len(own):
        return execution
    return msgspec.structs.replace(
        execution,
        nodes=[execution.nodes[place] for place in order],
        own_us=[execution.own_us[place] for place in order],
        start_us=[execution.start_us[place] for place in order],
    )


def _signature(execution: onnx.OrtExecution) -> list[onnx.OrtNode]:
    """Return the nodes without the numbers that ONNX Runtime makes names unique with."""
    return [msgspec.structs.replace(node, name=_ADDED.sub("", node.name)) for node in execution.nodes]


def _profile(executions: Sequence[onnx.OrtExecution], launch_of: "np.typing.NDArray[np.int64]") -> Profile:
    """Return all times. A clock of whole microseconds cuts half of one off on average, which is not the runtime's."""
    nodes = executions[0].nodes
    shape = len(executions), len(nodes)
    own = np.array([execution.own_us for execution in executions], dtype=np.float64).reshape(shape).T
    starts = np.array([execution.start_us for execution in executions], dtype=np.float64).reshape(shape).T
    whole = np.array([execution.whole_us for execution in executions], dtype=np.float64)
    own = own + np.minimum(0.5, (whole - own.sum(axis=0)) / max(1, len(nodes)))
    times = 1e3 * np.vstack([own, whole - own.sum(axis=0)])
    instances = []
    for place, node in enumerate(nodes):
        operator = f"{node.op_type} (NCHWc)" if _BLOCKED.search(node.name) else node.op_type
        name = f"{operator} {node.name}".strip()
        instances.append(Instance(name, operator, "portable", NO_CHAIN, place, _class(node)))
    return Profile(
        (*instances, _OWN), times, 1e3 * np.vstack([starts, np.zeros(len(whole))]), times.sum(axis=0), launch_of
    )


def _class(node: onnx.OrtNode) -> OperatorClass:
    """Return category and kind; of convolutions and products the kind that their shapes tell."""
    found = classify(node.op_type)
    kind, shapes = found.kind, [tensor.shape for tensor in node.inputs]
    if node.op_type in _CONVOLUTIONS and (groups := _groups(shapes)):
        kind = "depthwise" if groups > 1 and groups == shapes[0][1] else kind
        kind = "pointwise" if groups == 1 and prod(shapes[1][2:]) == 1 else kind
    elif node.op_type in _PRODUCTS and (len(shapes) < 2 or len(shapes[1]) <= 2):
        kind = "fully connected"
    dtype = _DTYPES.get(node.inputs[0].dtype, "") if node.inputs and found.category != "Data Movement" else ""
    return OperatorClass(found.category, kind, dtype)


def _groups(shapes: Sequence[tuple[int, ...]]) -> int:
    """Return the groups of a convolution; 0 where its weights are not known."""
    if len(shapes) < 2 or not 3 <= len(shapes[0]) == len(shapes[1]) or not shapes[1][1]:
        return 0
    return shapes[0][1] // shapes[1][1]


def _work(node: onnx.OrtNode) -> Work | None:
    """Return what a node has to do, as far as shapes in the profile tell; those of packed weights are not there."""
    if not node.inputs or not node.outputs:
        return None
    element = ONNX_ELEMENTS.get(node.inputs[0].dtype, node.inputs[0].dtype)
    product, sizes = _product(node), [_bytes(tensor) for tensor in (*node.inputs, *node.outputs)]
    kind = _class(node).kind
    if element not in BITS or None in sizes or (classify(node.op_type).category in ("CONV", "GEMM") and not product):
        return None
    known = [size or 0 for size in sizes]
    read, written = known[: len(node.inputs)], sum(known[len(node.inputs) :])
    if product is None or kind == "batch matmul":
        macs = product.multiply_accumulates if product else 0
        return Work(element, 0, sum(read), written, product, macs)
    weights = product.n * product.k * product.count * BITS[element] // 8
    return Work(element, weights, read[0], written, product, product.multiply_accumulates)


def _bytes(tensor: onnx.OrtTensor) -> int | None:
    bits = BITS.get(ONNX_ELEMENTS.get(tensor.dtype, tensor.dtype))
    return None if bits is None else prod(tensor.shape) * bits // 8


def _product(node: onnx.OrtNode) -> Product | None:
    """Return the matrix product of a node, counted as those of a .pte are."""
    shapes, out = [tensor.shape for tensor in node.inputs], node.outputs[0].shape
    if node.op_type in _CONVOLUTIONS and (groups := _groups(shapes)) and len(out) == len(shapes[0]):
        return Product(out[0] * prod(out[2:]), out[1] // groups, prod(shapes[1][1:]), groups)
    if node.op_type == "ConvTranspose" and len(shapes) > 1 and 3 <= len(shapes[0]) == len(shapes[1]) and len(out) > 2:
        positions, window = shapes[0][0] * prod(shapes[0][2:]), prod(shapes[1][2:])
        groups = out[1] // shapes[1][1] if shapes[1][1] else 0
        return Product(positions, window * shapes[1][1], shapes[0][1] // groups, groups) if groups else None
    if node.op_type in _PRODUCTS and len(out) >= 2 and shapes[0]:
        rows = prod(out[:-1])
        if _class(node).kind == "fully connected":
            return Product(rows, out[-1], prod(shapes[0]) // max(1, rows))
        return Product(out[-2], out[-1], shapes[0][-1], prod(out[:-2]))
    return None


def _lines(onnx_file: Path, optimized: Path | None, nodes: Sequence[onnx.OrtNode]) -> tuple[dict[int, SourceLine], str]:
    """Return the line of each node that ran, by its row, and why none has one."""
    try:
        exported = onnx.read(onnx_file)
        made = onnx.read(optimized) if optimized is not None else ()
    except KitError as error:
        return {}, f"{error.message}: {UNLINKED}"
    if not any(node.linked for node in exported):
        return (
            {},
            f"{onnx_file.name} does not tell its PyTorch lines, as torch.onnx.export(dynamo=True) does: {UNLINKED}",
        )
    origins = _origins(nodes, exported, made)
    lines = {
        row: SourceLine(node.module, node.file, node.line, node.code, node.op_type)
        for row, node in origins.items()
        if node.linked
    }
    return lines, "" if lines else f"the nodes that ran are not those of {onnx_file.name}: {UNLINKED}"


def _origins(
    nodes: Sequence[onnx.OrtNode], exported: Sequence[onnx.OnnxNode], optimized: Sequence[onnx.OnnxNode]
) -> dict[int, onnx.OnnxNode]:
    """Return the exported node that each node that ran is, or was put in the place of: by its name, else by its
    outputs, which the optimizer keeps; what it inserted is of what uses it."""
    by_name = _unique([(node.name, node) for node in exported])
    by_output = _unique([(output, node) for node in exported for output in node.outputs])
    ran = _as_optimized(nodes, optimized)
    made_by = {name: row for row, node in ran.items() for name in node.outputs}
    found: dict[int, onnx.OnnxNode] = {}
    taken: set[str] = set()
    for row, node in enumerate(nodes):
        if node.name.startswith(_SHAPED_BACK):
            maker = made_by.get(next(iter(ran[row].inputs), ""), -1) if row in ran else row - 1
            if maker in found and (row in ran or nodes[maker].op_type == "Gemm"):
                found[row] = found[maker]
            continue
        names = [*_names(node.name), *(ran[row].outputs if row in ran else ())]
        origin = next((by_name[name] for name in names if name in by_name), None)
        if origin is None:
            last = next((by_output[name] for name in names if name in by_output), None)
            origin = _replaced(last, node.op_type, by_output, taken) if last is not None else None
        if origin is not None:
            found[row] = origin
            taken.update(origin.outputs)
    used_by = {name: row for row in reversed(range(len(nodes))) if row in ran for name in ran[row].inputs}
    for row in reversed(range(len(nodes))):
        user = next((used_by[name] for name in ran[row].outputs if name in used_by), None) if row in ran else None
        if row not in found and user in found:
            found[row] = found[user]
    return found


def _names(name: str) -> Iterator[str]:
    """Yield a name, and what is left of it without each thing that the optimizer added."""
    name = _BEFORE.sub("", name)
    while True:
        yield name
        shorter = _ADDED.sub("", name)
        if shorter == name:
            return
        name = shorter


def _as_optimized(nodes: Sequence[onnx.OrtNode], optimized: Sequence[onnx.OnnxNode]) -> dict[int, onnx.OnnxNode]:
    """Return the node of the optimized graph that each node that ran is. They run in the order of the file, where some
    have no name; what runs none or several times does not, and is found by name."""
    if [node.op_type for node in nodes] == [node.op_type for node in optimized]:
        return dict(enumerate(optimized))
    by_name = _unique([(node.name, node) for node in optimized])
    return {row: by_name[node.name] for row, node in enumerate(nodes) if node.name in by_name}


def _unique(named: Sequence[tuple[str, onnx.OnnxNode]]) -> dict[str, onnx.OnnxNode]:
    """Return nodes by name; a name that several have, in subgraphs, tells none of them."""
    found: dict[str, onnx.OnnxNode] = {}
    twice = {name for name, node in named if found.setdefault(name, node) is not node}
    return {name: node for name, node in found.items() if name and name not in twice}


def _replaced(last: onnx.OnnxNode, op_type: str, by_output: dict[str, onnx.OnnxNode], taken: set[str]) -> onnx.OnnxNode:
    """Return what did the work of a fused node that is named after its last output: the convolution before the ReLU."""
    wanted, near = op_type.removeprefix("Fused"), [last]
    for _ in range(_MOST_FUSED if classify(op_type).category in ("CONV", "GEMM") else 0):
        for node in near:
            if node.op_type == wanted and not taken.intersection(node.outputs):
                return node
        near = [by_output[name] for node in near for name in node.inputs if name in by_output][:_MOST_FUSED]
    return last


def classify(op_type: str) -> OperatorClass:
    """Return the category and kind of work of an operator type; of one that is not in the table, Other."""
    return _KINDS.get(op_type, OperatorClass("Other", UNKNOWN))
