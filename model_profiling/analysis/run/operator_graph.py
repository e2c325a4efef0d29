"""The program as a graph of the operators that ran, with what is known of each: time, kernels, roof, shapes, source;
one for each experiment of a run that a reader wants to look at.

Its nodes are the rows of a breakdown, ExecuTorch's own time among them, so that they sum to `Method::execute`. Edges
are the data flow of the .pte; what XNNPACK fused is not a node, and edges lead through it. An operator whose place in
the graph cannot be told, and every operator where there is no .pte, is joined to its neighbours in execution order by
edges that say so.
"""

import itertools
import operator
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Literal

import msgspec

from model_profiling.analysis.compare.comparison import Change
from model_profiling.analysis.compare.matching import MOST_MODULES
from model_profiling.analysis.compare.program_changes import common_module
from model_profiling.analysis.graph.graph import ModelGraph, why_unreadable
from model_profiling.analysis.roofs.roofline import OperatorRoof, roofs_by_row
from model_profiling.analysis.run.run_data import RunData
from model_profiling.analysis.run.summary import has_times, model_graph
from model_profiling.analysis.sme2.coverage import Coverage, Level
from model_profiling.analysis.sme2.kernel_assignment import ELIGIBLE
from model_profiling.analysis.timing.breakdown import InstanceTime, SourceLine
from model_profiling.analysis.timing.profile import RUNTIME, Part, Where
from model_profiling.analysis.timing.work import Work
from model_profiling.base.records import record_of
from model_profiling.formats.pte.dataflow import FlowTensor
from model_profiling.store.run_directory import ExperimentRecord

NodeKind = Literal["operator", "runtime", "input", "output"]
_MOST_NEIGHBOURS = 8
_DELEGATE_CALL = "delegate call"
_IN_ORDER = "what feeds what is unknown, and operators are in execution order"
_BARE = f"an ETDump alone does not tell its model: {_IN_ORDER}"
_GONE = f"the .pte is gone, or has changed since: {_IN_ORDER}"
_BRANCHES = f"the .pte's data flow could not be followed (it branches): {_IN_ORDER}"
_NOT_PLACED = "operators could not be matched with the .pte's graph: dashed edges give their execution order only"
_NOT_TRACED = "there is no kernel trace of this experiment"
_OTHER_MODEL = (
    "the emulated run has no kernel trace of these CONV and GEMM operators with SME2 on: nothing is said of it"
)
_OFF = "SME2 is off or absent"


class KernelUse(msgspec.Struct, frozen=True, omit_defaults=True):
    """Whether one CONV or GEMM operator runs on SME2 (None: not known), its kernels, and if it does not, why."""

    on_sme2: bool | None
    level: Literal[Level, ""] = ""
    kernels: list[str] = []
    why_not: str = ""


class GraphNode(msgspec.Struct, frozen=True, omit_defaults=True):
    """One operator at one place of the program. `id` is its row in the breakdown; inputs and outputs of the program
    come after the rows and take no time.

    `ms` and `share` are None where times mean nothing. `module` is where it is drawn: its own, or, if `placed`, the one
    that what it reads and what reads it have in common. `kernels` is what a CONV or GEMM operator ran on here, and
    `emulated` what it runs on in an emulated run of the same model, if one was given.
    """

    id: int
    node: NodeKind
    name: str
    operator: str
    category: Part
    kind: str = ""
    where: Where = "runtime"
    dtype: str = ""
    algorithm: str = ""
    instruction: int = -1
    # Its number in XNNPACK's graph of the .pte.
    program_node: int | None = None
    ms: float | None = None
    share: float | None = None
    module: str = ""
    placed: bool = False
    source: SourceLine | None = None
    # Of the tensors it reads and writes; constants are not among them.
    reads: list[str] = []
    writes: list[str] = []
    work: Work | None = None
    roof: OperatorRoof | None = None
    # Against the other side of the comparison that the graph names.
    change: Change | None = None
    kernels: KernelUse | None = None
    emulated: KernelUse | None = None
    sqnr_db: float | None = None


class GraphEdge(msgspec.Struct, frozen=True, omit_defaults=True):
    """`tensor` is what goes from one node to the other; with `order`, it is only known that the one ran before."""

    source: int
    target: int
    tensor: str = ""
    order: bool = False


class OperatorGraph(msgspec.Struct, frozen=True, tag="operator_graph", tag_field="kind"):
    """One experiment. `before` and `after` are the comparison that `change` of its nodes is of; '' if there is none.

    `notes` say what could not be told. Shapes are in the order of memory: NHWC inside XNNPACK.
    """

    model: str
    experiment: str
    # What reports call the experiment.
    title: str
    execute_ms: float | None
    nodes: list[GraphNode]
    edges: list[GraphEdge]
    before: str = ""
    after: str = ""
    notes: list[str] = []
    schema: int = 1


class OperatorFacts(msgspec.Struct, frozen=True):
    """What is known of operators beyond their times, by row; where the .pte is not, `graph` is None."""

    graph: ModelGraph | None = None
    roofs: Mapping[int, OperatorRoof] = {}
    changes: Mapping[int, Change] = {}
    kernels: Mapping[int, KernelUse] = {}
    emulated: Mapping[int, KernelUse] = {}
    sqnr: Mapping[int, float] = {}


def graph_of(
    rows: Sequence[InstanceTime], known: OperatorFacts, timed: bool
) -> tuple[list[GraphNode], list[GraphEdge]]:
    """Return the nodes and edges of one experiment."""
    steps = _steps(rows, known.graph)
    edges = [*_data_edges(known.graph, steps, len(rows)), *_order_edges(rows, steps)]
    modules = _modules(rows, edges)
    nodes = [_node(row, entry, known, steps, modules, timed) for row, entry in enumerate(rows)]
    return [*nodes, *_ends(known.graph, len(rows))], edges


def _steps(rows: Sequence[InstanceTime], graph: ModelGraph | None) -> dict[int, int]:
    """Return the step of the data flow that each row is; another backend's call is one step."""
    if graph is None:
        return {}
    steps = dict(graph.steps)
    detailed = {entry.instruction for entry in rows if entry.where == "delegated"}
    opaque = {step.instruction: at for at, step in enumerate(graph.flow.steps) if step.node is None}
    for row, entry in enumerate(rows):
        if entry.name == _DELEGATE_CALL and entry.where == "runtime" and entry.instruction not in detailed:
            at = opaque.get(entry.instruction)
            if at is not None and at not in graph.rows:
                steps[row] = at
    return steps


def _data_edges(graph: ModelGraph | None, steps: Mapping[int, int], rows: int) -> list[GraphEdge]:
    """Return which operator reads which, through what did not run on its own; the program's ends are nodes."""
    if graph is None:
        return []
    row_of = {step: row for row, step in steps.items()}
    # What a step that did not run on its own hands on: the nodes that its values come from, each with the tensor it
    # left them as.
    passed: dict[int, dict[int, str]] = {}

    def read(tensor: FlowTensor) -> dict[int, str]:
        if tensor.entered is not None:
            return {rows + tensor.entered: describe_tensor(tensor)}
        if tensor.source in row_of:
            return {row_of[tensor.source]: describe_tensor(tensor)}
        return passed.get(tensor.source, {})

    edges: list[GraphEdge] = []
    for position, step in enumerate(graph.flow.steps):
        reads = {source: text for tensor in step.inputs for source, text in read(tensor).items()}
        if position in row_of:
            edges += [GraphEdge(source, row_of[position], text) for source, text in reads.items()]
        else:
            passed[position] = reads
    first = rows + len(_entering(graph))
    for place, result in enumerate(graph.flow.results):
        if result is not None:
            edges += [GraphEdge(source, first + place, text) for source, text in read(result).items()]
    return edges


def _order_edges(rows: Sequence[InstanceTime], steps: Mapping[int, int]) -> list[GraphEdge]:
    """Return operators that have no place in the data flow, between those that ran before and after them.

    Where there is a data flow, within their delegate call: what ran before that may be far away in it.
    """
    ran = [row for row, entry in enumerate(rows) if entry.where != "runtime" or row in steps]
    pairs = [pair for pair in itertools.pairwise(ran) if pair[0] not in steps or pair[1] not in steps]
    near = (
        [(one, other) for one, other in pairs if rows[one].instruction == rows[other].instruction] if steps else pairs
    )
    joined = {row for pair in near for row in pair}
    alone = [pair for pair in pairs if any(row not in steps and row not in joined for row in pair)]
    return [GraphEdge(one, other, order=True) for one, other in sorted({*near, *alone})]


def _modules(rows: Sequence[InstanceTime], edges: Sequence[GraphEdge]) -> list[str]:
    """Return the module to draw each row in. One that has none of its own lies where what it reads and feeds are: in
    the innermost module that holds one of each."""
    count = len(rows)
    own = [entry.source.module if entry.source is not None and entry.where != "runtime" else None for entry in rows]
    reads: list[list[int]] = [[] for _ in rows]
    feeds: list[list[int]] = [[] for _ in rows]
    # Data first: of what ran just before, it may have read nothing.
    for edge in sorted(edges, key=lambda edge: edge.order):
        if edge.source < count and edge.target < count:
            reads[edge.target].append(edge.source)
            feeds[edge.source].append(edge.target)
    before = _reached(own, reads, range(count))
    after = _reached(own, feeds, reversed(range(count)))
    found = []
    for row, mine in enumerate(own):
        shared = (common_module((one, other)) for one in before[row] for other in after[row])
        name = mine if mine is not None else max(shared, key=lambda name: name.count(".") + bool(name), default="")
        found.append(".".join(name.split(".")[:MOST_MODULES]))
    return found


def _reached(own: Sequence[str | None], neighbours: Sequence[list[int]], order: Iterable[int]) -> list[list[str]]:
    """Return the nearest modules that each row is joined with in one direction, a few at most."""
    found: list[list[str]] = [[] for _ in own]
    for row in order:
        mine = own[row]
        near = (name for other in neighbours[row] for name in found[other]) if mine is None else (mine,)
        found[row] = list(dict.fromkeys(itertools.islice(near, _MOST_NEIGHBOURS)))
    return found


def _node(
    row: int, entry: InstanceTime, known: OperatorFacts, steps: Mapping[int, int], modules: Sequence[str], timed: bool
) -> GraphNode:
    step = known.graph.flow.steps[steps[row]] if known.graph is not None and row in steps else None
    bound = known.graph is not None and entry.instruction in known.graph.flow.unfixed
    # Constants are not among what it reads.
    read = [x for x in step.inputs if x.source >= 0 or x.entered is not None] if step is not None else []
    runs = entry.where != "runtime"
    return record_of(
        GraphNode,
        entry,
        id=row,
        node="operator" if runs or step is not None else "runtime",
        program_node=step.node.index if step is not None and step.node is not None else None,
        ms=entry.ms if timed else None,
        share=entry.share if timed else None,
        module=modules[row] if runs else "",
        placed=runs and entry.source is None and bool(modules[row]),
        source=entry.source if runs else None,
        reads=[describe_tensor(tensor, bound) for tensor in read],
        writes=[describe_tensor(tensor, bound) for tensor in step.outputs] if step else [],
        roof=known.roofs.get(row),
        change=known.changes.get(row),
        kernels=known.kernels.get(row),
        emulated=known.emulated.get(row),
        sqnr_db=known.sqnr.get(row),
    )


def _ends(graph: ModelGraph | None, rows: int) -> list[GraphNode]:
    """Return what enters the program, as far as something reads it, and what leaves it."""
    if graph is None:
        return []
    entering = _entering(graph)
    nodes = [
        GraphNode(rows + place, "input", f"input {place}", "input", RUNTIME, writes=[text])
        for place, text in enumerate(entering)
        if text
    ]
    for place, result in enumerate(graph.flow.results, rows + len(entering)):
        if result is not None:
            name = f"output {place - rows - len(entering)}"
            nodes.append(GraphNode(place, "output", name, "output", RUNTIME, reads=[describe_tensor(result)]))
    return nodes


def _entering(graph: ModelGraph) -> list[str]:
    """Return the inputs of the program up to the last that something reads; '' for one that nothing does."""
    read = [tensor for step in graph.flow.steps for tensor in step.inputs]
    tensors = {
        t.entered: describe_tensor(t) for t in (*read, *graph.flow.results) if t is not None and t.entered is not None
    }
    return [tensors.get(place, "") for place in range(max(tensors, default=-1) + 1)]


def describe_tensor(tensor: FlowTensor, bound: bool = False) -> str:
    """Return `1 x 32 x 32 x 16 fp16`; of sizes that are set when it runs, what they are at most, if that is known."""
    if not tensor.shape:
        return f"scalar or of no fixed size, {tensor.dtype}"
    return f"{'up to ' if bound else ''}{' x '.join(map(str, tensor.shape))} {tensor.dtype}"


def graph_experiments(run: RunData) -> list[str]:
    """Return the experiments to show: what a reader wants faster first, then what it is compared with."""
    experiments = run.summary.experiments
    if run.path.is_file() or not run.measured:
        covered = {name: (e.coverage.on_sme2 or 0) if e.coverage else 0 for name, e in experiments.items()}
        return sorted(experiments, key=lambda name: -covered[name])
    compared = [c for c in run.summary.comparisons if not run.repeats(c.before, c.after)]
    return list(dict.fromkeys([*run.of_interest, *(c.before for c in compared)]))


def operator_graph(run: RunData, experiment: str) -> OperatorGraph:
    """Return one experiment's graph, with all that the run knows of each operator."""
    analysis = run.summary.experiments[experiment]
    rows, bare = analysis.breakdown.instances, run.path.is_file()
    timed = analysis.breakdown.execute_ms > 0 and (bare or has_times(run.manifest, experiment))
    program = None if bare else run.manifest.model.file()
    model = model_graph(run.manifest, experiment, run.profiles[experiment], program) if program is not None else None
    comparison = next((c for c in run.summary.comparisons if experiment in (c.before, c.after)), None)
    row_of = operator.attrgetter("after_row" if comparison and experiment == comparison.after else "before_row")
    emulated, of_emulated = _emulated(run, experiment)
    known = OperatorFacts(
        graph=model,
        roofs=roofs_by_row(analysis.roofline),
        changes={row_of(each): each.change for each in comparison.operators} if comparison else {},
        kernels={} if bare else _kernels(run, experiment),
        emulated=emulated,
        sqnr=run.sqnr(experiment),
    )
    nodes, edges = graph_of(rows, known, timed)
    return OperatorGraph(
        model=run.summary.model or run.path.stem,
        experiment=experiment,
        title=run.label(experiment),
        execute_ms=analysis.breakdown.execute_ms if timed else None,
        nodes=nodes,
        edges=edges,
        before=comparison.before if comparison else "",
        after=comparison.after if comparison else "",
        notes=[*why_in_order(model, rows, program, bare), *of_emulated],
    )


def why_in_order(model: ModelGraph | None, rows: list[InstanceTime], program: Path | None, bare: bool) -> list[str]:
    """Return what could not be told of the data flow; `bare` means that there is a dump and nothing else."""
    if model is None:
        unread = why_unreadable(program)
        return [_BARE if bare else _GONE if program is None else f"{unread}: {_IN_ORDER}" if unread else _BRANCHES]
    lost = sum(entry.where != "runtime" and row not in model.steps for row, entry in enumerate(rows))
    return [f"{lost} of {sum(entry.where != 'runtime' for entry in rows)} {_NOT_PLACED}"] if lost else []


def _kernels(run: RunData, experiment: str) -> dict[int, KernelUse]:
    """Return what each CONV and GEMM operator ran on, by a kernel trace of this experiment or one like it."""
    record, rows = run.manifest.experiments[experiment], _eligible(run, experiment)
    for other, analysis in run.summary.experiments.items():
        alike = other == experiment or _alike(record, run.manifest.experiments[other])
        if alike and analysis.coverage is not None and (found := _of_coverage(rows, analysis.coverage)):
            return found
    if record.features is not None and "sme2" not in record.features.active:
        return dict.fromkeys(rows, KernelUse(False, why_not=_OFF))
    return dict.fromkeys(rows, KernelUse(None, why_not=_NOT_TRACED))


def _alike(one: ExperimentRecord, other: ExperimentRecord) -> bool:
    """Return whether two experiments choose the same kernels: all but how they were observed is the same."""
    active = [set(x.features.active) if x.features is not None else None for x in (one, other)]
    same = one.phase_kind == other.phase_kind and one.method == other.method
    return same and active[0] is not None and active[0] == active[1]


def _emulated(run: RunData, experiment: str) -> tuple[dict[int, KernelUse], list[str]]:
    """Return what each operator runs on in the emulated run that was given, with SME2 on; and what to know of that."""
    if run.emulated is None:
        return {}, []
    ours, theirs = run.manifest.model, run.emulated.manifest.model
    kind = run.manifest.experiments[experiment].phase_kind
    for name, record in run.emulated.manifest.experiments.items():
        analysis = run.emulated.summary.experiments.get(name)
        on = record.features is not None and "sme2" in record.features.active
        if analysis is not None and analysis.coverage is not None and on and record.phase_kind == kind:
            # Kernels depend on the dtype, which the order of operators does not tell.
            same = _of_coverage(_eligible(run, experiment), analysis.coverage) if ours.dtype == theirs.dtype else {}
            other = f"kernels with SME2 are of {theirs.stem}: another .pte with the same operators"
            return (same, [other] if ours.sha256 != theirs.sha256 else []) if same else ({}, [_OTHER_MODEL])
    return {}, [_OTHER_MODEL]


def _eligible(run: RunData, experiment: str) -> dict[int, InstanceTime]:
    rows = run.summary.experiments[experiment].breakdown.instances
    return {row: entry for row, entry in enumerate(rows) if entry.category in ELIGIBLE}


def _of_coverage(rows: Mapping[int, InstanceTime], coverage: Coverage) -> dict[int, KernelUse]:
    """Return operators by row; nothing if those of the trace are others, or in another order."""
    if not coverage.is_of(rows.values()):
        return {}
    return {
        row: KernelUse(
            None if x.level == "unknown" else x.level == "SME2", x.level, [c.kernel for c in x.kernels], x.why_not
        )
        for row, x in zip(rows, coverage.operators, strict=True)
    }
