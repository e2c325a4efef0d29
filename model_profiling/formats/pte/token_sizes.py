"""The sizes of one execution, where a program only has upper bounds: a language model that reads `tokens` tokens.

A .pte does not say which dimension of a tensor varies. The bound of the tokens is not a size that anything else has, as
a rule (ExecuTorch's exporters take the context less one); where a weight has it too, nothing is said.
"""

from dataclasses import replace

from model_profiling.formats.graph_terms import CONSTANT
from model_profiling.formats.pte.dataflow import DataFlow, FlowStep, FlowTensor
from model_profiling.formats.pte.program import Method
from model_profiling.formats.pte.xnnpack_graph import XnnpackNode, XnnpackValue


def token_bound(method: Method) -> int | None:
    """Return how many tokens a method takes at most, if it takes any number up to that; None if its sizes are fixed."""
    ids = method.inputs[0] if method.inputs else None
    return ids.sizes[-1] if ids is not None and ids.dynamic and ids.sizes else None


def set_token_sizes(flow: DataFlow, bound: int, tokens: int) -> DataFlow:
    """Return the data flow of an execution on `tokens` tokens; as it was where a size cannot be told from the bound."""
    constants = [tensor for step in flow.steps for tensor in step.inputs if tensor.source == CONSTANT]
    if any(bound in tensor.shape for tensor in constants):
        return flow

    def shape(sizes: tuple[int, ...]) -> tuple[int, ...]:
        return tuple(tokens if size == bound else size for size in sizes)

    def tensor(each: FlowTensor) -> FlowTensor:
        return each if each.source == CONSTANT else replace(each, shape=shape(each.shape))

    def value(each: XnnpackValue) -> XnnpackValue:
        return each if each.constant else replace(each, shape=shape(each.shape))

    def node(each: XnnpackNode | None) -> XnnpackNode | None:
        if each is None:
            return None
        return replace(each, inputs=tuple(map(value, each.inputs)), outputs=tuple(map(value, each.outputs)))

    def step(each: FlowStep) -> FlowStep:
        inputs, outputs = tuple(map(tensor, each.inputs)), tuple(map(tensor, each.outputs))
        return replace(each, node=node(each.node), inputs=inputs, outputs=outputs)

    return DataFlow(tuple(map(step, flow.steps)), flow.results, True)
