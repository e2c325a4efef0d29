"""Where a program changes the layout of what it is given or gives back, only because it comes or goes as NCHW.

XNNPACK computes in NHWC. An NCHW input is turned around before anything is done with it, a result before it leaves the
program: a caller who feeds and reads channels-last tensors needs neither.
"""

from model_profiling.base.dtypes import FLOATS
from model_profiling.formats.graph_terms import TO_NCHW, TO_NHWC
from model_profiling.formats.pte.dataflow import DataFlow, FlowTensor
from model_profiling.formats.pte.xnnpack_graph import TRANSPOSE

# What changes a layout outside of delegates.
_PORTABLE_CHANGES = ("dim_order_ops::_to_dim_order_copy.out", "dim_order_ops::_clone_dim_order.out")


def is_inserted(flow: DataFlow, position: int, permutation: tuple[int, ...]) -> bool:
    """Return whether a step is a layout change that XNNPACK's passes put in: no line of the model asked for it."""
    step = flow.steps[position]
    own = step.node is not None and step.op == TRANSPOSE and not step.node.debug_handle
    return own and step.permutation == permutation


def inputs_to_nhwc(flow: DataFlow) -> dict[int, list[int]]:
    """Return the 4-D inputs that every reader turns to NHWC first: for each its place and the steps that do."""
    kept = {result.entered for result in flow.results if result is not None}
    found = {}
    for place, (tensor, readers) in _entering(flow).items():
        turned = all(is_inserted(flow, position, TO_NHWC) for position in readers)
        if turned and place not in kept and tensor.dtype in FLOATS and _worth_turning(tensor.shape):
            found[place] = readers
    return found


def outputs_to_nchw(flow: DataFlow) -> dict[int, int]:
    """Return the 4-D outputs that are turned to NCHW last, for the caller alone: each one's place and step."""
    found = {}
    for place, result in enumerate(flow.results):
        position = _last_maker(flow, result) if result is not None and result.dtype in FLOATS else None
        turned = position is not None and is_inserted(flow, position, TO_NCHW)
        if position is not None and turned and _worth_turning(flow.steps[position].outputs[0].shape):
            found[place] = position
    return found


def changed_inputs(flow: DataFlow) -> set[int]:
    """Return the inputs of which a reader changes the layout before anything else."""
    return {place for place, (_, readers) in _entering(flow).items() if any(changes_layout(flow, p) for p in readers)}


def changed_outputs(flow: DataFlow) -> set[int]:
    """Return the outputs whose layout is changed last."""
    makers = {place: result.source for place, result in enumerate(flow.results) if result is not None}
    return {place for place, made in makers.items() if made >= 0 and changes_layout(flow, _before_converts(flow, made))}


def changes_layout(flow: DataFlow, position: int) -> bool:
    """Return whether a step only writes its values in another order (or, portable, in another dtype)."""
    step = flow.steps[position]
    return bool(step.permutation) or step.op in _PORTABLE_CHANGES


def _worth_turning(shape: tuple[int, ...]) -> bool:
    """Return whether a tensor is 4-D and lies differently as NCHW and as NHWC: more than one channel and one pixel."""
    return len(shape) == 4 and shape[1] > 1 and shape[2] * shape[3] > 1


def _entering(flow: DataFlow) -> dict[int, tuple[FlowTensor, list[int]]]:
    """Return the inputs that are read, by their place, and who reads them.

    A quantized model's first step only converts its input: then those count that read what it makes.
    """
    found: dict[int, tuple[FlowTensor, list[int]]] = {}
    for position, step in enumerate(flow.steps):
        for tensor in step.inputs:
            if tensor.entered is not None:
                readers = found.setdefault(tensor.entered, (tensor, []))[1]
                passed = _converts(flow, position) and flow.readers(position) and position not in flow.returned
                readers += flow.readers(position) if passed else (position,)
    return found


def _last_maker(flow: DataFlow, result: FlowTensor) -> int | None:
    """Return the step that made an output, before a last conversion; None if another step reads it too."""
    position, reader = result.source, -1
    while position >= 0:
        alone = flow.readers(position) == ((reader,) if reader >= 0 else ())
        if not alone or (reader >= 0 and position in flow.returned):
            return None
        if not _converts(flow, position):
            return position
        position, reader = flow.steps[position].inputs[0].source, position
    return None


def _before_converts(flow: DataFlow, position: int) -> int:
    while _converts(flow, position) and flow.steps[position].inputs[0].source >= 0:
        position = flow.steps[position].inputs[0].source
    return position


def _converts(flow: DataFlow, position: int) -> bool:
    step = flow.steps[position]
    return step.node is not None and step.op == "Convert" and bool(step.inputs)
