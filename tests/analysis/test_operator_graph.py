"""The graph of a run: every row is a node, times sum to the whole, and edges are the data flow of the .pte."""

import itertools
import json
import shutil
from collections.abc import Iterable
from pathlib import Path

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from model_profiling.analysis.graph.graph import ModelGraph
from model_profiling.analysis.run.operator_graph import OperatorFacts, OperatorGraph, graph_of
from model_profiling.analysis.timing.breakdown import InstanceTime, SourceLine, Spread
from model_profiling.base import files
from model_profiling.formats.pte.dataflow import DataFlow, FlowStep, FlowTensor
from model_profiling.store.run_directory import RunDirectory
from sme2_kit import Run
from tests.conftest import kit
from tests.helpers.contract_check import check_printed


@pytest.fixture(scope="module")
def graphs(measured_run: Path) -> list[OperatorGraph]:
    return Run.open(measured_run).graphs


def test_nodes_are_the_rows_of_the_breakdown_and_sum_to_execute(
    measured_run: Path, graphs: list[OperatorGraph]
) -> None:
    run = Run.open(measured_run)
    assert {graph.experiment for graph in graphs} == set(run.summary.experiments)
    for graph in graphs:
        breakdown = run.summary.experiments[graph.experiment].breakdown
        rows = [node for node in graph.nodes if node.node in ("operator", "runtime")]
        assert [(node.name, node.ms) for node in rows] == [(entry.name, entry.ms) for entry in breakdown.instances]
        assert sum(node.ms or 0.0 for node in graph.nodes) == pytest.approx(breakdown.execute_ms, rel=1e-9)
        assert sum(node.share or 0.0 for node in graph.nodes) == pytest.approx(1, rel=1e-9)
        assert [node.id for node in rows] == list(range(len(rows)))


def test_what_the_reader_wants_faster_comes_first_with_the_change_against_the_other_side(
    graphs: list[OperatorGraph],
) -> None:
    on, off = graphs
    assert (on.experiment, off.experiment) == (on.after, on.before) == (off.after, off.before)
    conv = next(node for node in on.nodes if node.name.startswith("Convolution"))
    assert conv.change is not None and conv.change.after_ms == conv.ms


def test_edges_lead_from_the_input_through_every_operator_to_the_output(graphs: list[OperatorGraph]) -> None:
    graph = graphs[0]
    (first,) = [node.id for node in graph.nodes if node.node == "input"]
    (last,) = [node.id for node in graph.nodes if node.node == "output"]
    reached = {first}
    for edge in sorted(graph.edges, key=lambda edge: edge.target):
        assert not edge.order, "toy_cnn is matched with its .pte throughout"
        reached |= {edge.target} if edge.source in reached else set()
    operators = {node.id for node in graph.nodes if node.node == "operator"}
    assert operators | {first, last} == reached
    adds = [node.id for node in graph.nodes if node.operator.startswith("Add")]
    assert [sum(edge.target == add for edge in graph.edges) for add in adds] == [2] * len(adds), "a residual reads two"


def test_a_node_knows_shapes_source_line_and_that_sme2_was_not_there(graphs: list[OperatorGraph]) -> None:
    convs = [node for node in graphs[0].nodes if node.category == "CONV"]
    assert convs
    for node in convs:
        assert node.reads and node.writes and node.work is not None
        assert node.source is not None and node.source.file.endswith("model.py") and node.source.line > 0
        assert node.kernels is not None and node.kernels.on_sme2 is False and node.kernels.why_not


def test_without_its_pte_operators_are_in_execution_order_and_the_graph_says_so(
    measured_run: Path, tmp_path: Path
) -> None:
    moved = tmp_path / "run"
    shutil.copytree(measured_run, moved)
    manifest = RunDirectory(moved).manifest()
    manifest = msgspec.structs.replace(
        manifest, model=msgspec.structs.replace(manifest.model, path=str(tmp_path / "gone.pte"))
    )
    files.write_json(moved / "manifest.json", manifest)
    for graph in Run.open(moved).graphs:
        operators = [node.id for node in graph.nodes if node.node == "operator"]
        assert [(edge.source, edge.target) for edge in graph.edges] == list(itertools.pairwise(operators))
        assert all(edge.order for edge in graph.edges)
        assert any("execution order" in note for note in graph.notes)
        assert sum(node.ms or 0.0 for node in graph.nodes) == pytest.approx(graph.execute_ms)


def test_a_bare_etdump_has_a_graph_too(measured_run: Path) -> None:
    dump = next(measured_run.glob("*/*.etdump"))
    (graph,) = Run.open(dump).graphs
    assert sum(node.ms or 0.0 for node in graph.nodes) == pytest.approx(graph.execute_ms)
    assert all(edge.order for edge in graph.edges)


def test_graph_json_prints_what_python_has(measured_run: Path, graphs: list[OperatorGraph]) -> None:
    done = kit("graph", measured_run, "--json")
    assert done.returncode == 0, done.stderr
    printed = json.loads(done.stdout)
    assert msgspec.convert(printed, list[OperatorGraph]) == graphs
    for graph in printed:
        check_printed("operator_graph", graph)


def test_a_bare_etdump_needs_a_place_to_write_to(measured_run: Path) -> None:
    done = kit("graph", next(measured_run.glob("*/*.etdump")))
    assert done.returncode == 2 and "--out" in done.stderr


# Random programs: every step reads some earlier ones, and only some of them are operators that ran.
@st.composite
def programs(draw: st.DrawFn) -> tuple[list[InstanceTime], ModelGraph]:
    count = draw(st.integers(1, 12))
    steps: list[FlowStep] = []
    rows: list[InstanceTime] = []
    placed: dict[int, int] = {}
    for position in range(count):
        sources = draw(st.lists(st.integers(-1, position - 1), max_size=3))
        inputs = tuple(FlowTensor(source, "fp32", (1,), 0 if source < 0 else None) for source in sources)
        steps.append(FlowStep(position, None, f"aten::op{position}.out", inputs, (FlowTensor(position, "fp32", (1,)),)))
        kind = draw(st.sampled_from(("ran", "fused", "lost")))
        if kind != "fused":
            module = draw(st.sampled_from((None, "", "a", "a.b", "a.c", "d")))
            source = SourceLine(module, "net.py", 1, "", "") if module is not None else None
            if kind == "ran":
                placed[len(rows)] = position
            rows.append(_row(f"op{position}.out", position, source))
    sources = draw(st.lists(st.integers(-1, count - 1), max_size=2))
    results = tuple(FlowTensor(source, "fp32", (1,), 0 if source < 0 else None) for source in sources)
    flow = DataFlow(tuple(steps), results, True)
    return rows, ModelGraph(flow, placed, {step: row for row, step in placed.items()})


def _row(name: str, instruction: int, source: SourceLine | None) -> InstanceTime:
    nothing = Spread(0.0, 0.0, 0.0)
    return InstanceTime(name, name, "Other", "", "portable", "", "", 0, instruction, 1.0, 0.1, nothing, source)


@given(programs())
def test_an_edge_is_a_way_through_what_did_not_run_on_its_own(made: tuple[list[InstanceTime], ModelGraph]) -> None:
    rows, model = made
    nodes, edges = graph_of(rows, OperatorFacts(graph=model), timed=True)
    steps = model.flow.steps

    def origins(tensors: Iterable[FlowTensor | None]) -> set[int]:
        """The rows, or the input, that tensors come from, by definition."""
        found: set[int] = set()
        for tensor in tensors:
            if tensor is not None and tensor.source < 0:
                found.add(len(rows))
            elif tensor is not None:
                there = tensor.source in model.rows
                found |= {model.rows[tensor.source]} if there else origins(steps[tensor.source].inputs)
        return found

    expected = {(source, row) for row, at in model.steps.items() for source in origins(steps[at].inputs)}
    outputs = [node.id for node in nodes if node.node == "output"]
    for output, result in zip(outputs, model.flow.results, strict=True):
        expected |= {(source, output) for source in origins([result])}
    assert {(edge.source, edge.target) for edge in edges if not edge.order} == expected
    known = {node.id for node in nodes}
    assert len(known) == len(nodes)
    assert all({edge.source, edge.target} <= known for edge in edges)
    lost = set(range(len(rows))) - set(model.steps)
    joined = {row for edge in edges if edge.order for row in (edge.source, edge.target)}
    assert len(rows) == 1 or lost <= joined, "what has no place in the data flow lies between its neighbours"
    assert sum(node.ms or 0.0 for node in nodes) == pytest.approx(sum(row.ms for row in rows))


@given(programs())
def test_an_operator_without_a_line_is_drawn_where_a_module_holds_what_it_reads_and_feeds(
    made: tuple[list[InstanceTime], ModelGraph],
) -> None:
    rows, model = made
    nodes, _ = graph_of(rows, OperatorFacts(graph=model), timed=False)
    modules = {row.source.module for row in rows if row.source is not None}
    for node, row in zip(nodes, rows, strict=False):
        assert node.ms is None
        if row.source is not None:
            assert (node.module, node.placed) == (row.source.module, False)
        else:
            held = [m for m in modules if m == node.module or m.startswith(f"{node.module}.")]
            assert node.module == "" or held
