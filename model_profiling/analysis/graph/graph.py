"""The model's graph with the rows of a profile put on it: which operator of a trace feeds which.

Time tells the order of operators and nothing else; what feeds what is in the .pte. Portable operators are found there
by their instruction, delegated ones by the node of XNNPACK's graph that they are aligned with. What cannot be found has
no place in the graph, and nothing is said of it.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from model_profiling.analysis.graph.alignment import Operator, aligned
from model_profiling.base.errors import KitError
from model_profiling.formats import pte
from model_profiling.formats.graph_terms import TO_NCHW, TO_NHWC
from model_profiling.formats.pte.borders import is_inserted
from model_profiling.formats.pte.dataflow import DataFlow, FlowStep, data_flow
from model_profiling.formats.pte.sequence import set_token_sizes, token_bound
from model_profiling.formats.pte.xnnpack_graph import XnnpackNode


@dataclass(frozen=True)
class ModelGraph:
    """`steps` leads from a row of the profile to its step of the data flow, `rows` back."""

    flow: DataFlow
    steps: dict[int, int]
    rows: dict[int, int]

    def step(self, row: int) -> FlowStep | None:
        return self.flow.steps[self.steps[row]] if row in self.steps else None

    def feeding(self, region: set[int]) -> set[int]:
        """Return the inserted changes to NCHW that only these steps read."""
        sources = {tensor.source for position in region for tensor in self.flow.steps[position].inputs}
        return {
            source
            for source in sources - region
            if source >= 0
            and is_inserted(self.flow, source, TO_NCHW)
            and source not in self.flow.returned
            and set(self.flow.readers(source)) <= region
        }

    def taking(self, region: set[int]) -> set[int]:
        """Return the inserted changes to NHWC that read what these steps make."""
        readers = {reader for position in region for reader in self.flow.readers(position)}
        return {reader for reader in readers - region if is_inserted(self.flow, reader, TO_NHWC)}

    def round_trip(self, region: set[int], reduces: bool) -> set[int]:
        """Return the rows of inserted layout changes that would go if these steps were done inside the delegate.

        It works in NHWC. Out of it and back into it again is a detour if everything that comes out of the steps goes
        back; if the steps leave nothing of the image (a mean over its pixels), nothing has to come back.
        """
        before, after = self.feeding(region), self.taking(region)
        exits = {position for position in region if not set(self.flow.readers(position)) <= region}
        leaves = bool(region & self.flow.returned) or any(
            not set(self.flow.readers(position)) <= region | after for position in exits
        )
        if not before or (leaves and not reduces):
            return set()
        return {self.rows[position] for position in before | after if position in self.rows}


def why_unreadable(model: Path | None) -> str:
    """Return why a program that is there cannot be read; '' if it can, or if there is none."""
    try:
        if model is not None:
            pte.read(model)
    except KitError as error:
        return error.message
    return ""


def read_graph(
    operators: Sequence[Operator], model: Path, method: str = "forward", tokens: int | None = None
) -> ModelGraph | None:
    """Put operators onto the graph of their .pte; None if the file is not there, not readable, or branches.

    A program that takes any number of tokens has the sizes of an execution on `tokens` of them.
    """
    try:
        program = pte.read(model)
        chosen = program.method(method)
        flow = data_flow(program, chosen) if chosen is not None else None
        bound = token_bound(chosen) if chosen is not None and tokens is not None else None
        if flow is not None and bound is not None and tokens is not None:
            flow = set_token_sizes(flow, bound, tokens)
    except KitError:
        return None
    return _placed(operators, flow) if flow is not None else None


def _placed(operators: Sequence[Operator], flow: DataFlow) -> ModelGraph:
    portable = {step.instruction: position for position, step in enumerate(flow.steps) if step.node is None}
    nodes: dict[int, list[XnnpackNode]] = {}
    places: dict[tuple[int, int], int] = {}
    for position, step in enumerate(flow.steps):
        if step.node is not None:
            nodes.setdefault(step.instruction, []).append(step.node)
            places[step.instruction, step.node.index] = position
    steps = {row: places[operators[row].instruction, node.index] for row, node in aligned(operators, nodes).items()}
    for row, operator in enumerate(operators):
        if operator.where == "portable" and operator.instruction in portable:
            position = portable[operator.instruction]
            # A dump leaves the namespace out: `_to_dim_order_copy.out` is `dim_order_ops::_to_dim_order_copy.out`.
            if flow.steps[position].op.split("::")[-1] == operator.operator.split("::")[-1]:
                steps[row] = position
    return ModelGraph(flow, steps, {position: row for row, position in steps.items()})
