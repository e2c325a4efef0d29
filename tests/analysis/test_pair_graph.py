"""Two programs as one graph: every operator of both once, adding up on both sides, and silent about noise."""

import pytest
from hypothesis import given, settings

from model_profiling.analysis.run.program_pair import PairGraph, PairNode, ProgramPair, pair_graph, program_graph
from tests.helpers.program_forge import PROGRAMS, Op, network, pair


def merged(pair: ProgramPair) -> PairGraph:
    found = pair_graph(pair)
    assert found is not None
    return found


def named(found: PairGraph) -> dict[tuple[str, str], PairNode]:
    return {(node.module, node.shown.operator.split(" (")[0]): node for node in found.nodes}


@settings(deadline=None, max_examples=25)
@given(PROGRAMS, PROGRAMS)
def test_every_row_is_in_one_node_and_nodes_add_up_on_both_sides(before: list[Op], after: list[Op]) -> None:
    both = pair(before, after)
    found = merged(both)
    assert [node.id for node in found.nodes] == list(range(len(found.nodes)))
    for side, program in (("before", before), ("after", after)):
        own = [node for each in found.nodes if (node := getattr(each, side)) is not None]
        assert sorted(node.id for node in own) == list(range(len(program) + 1))
        whole = getattr(both.compared.changes, f"{side}_ms")
        assert sum(getattr(node, f"{side}_ms") for node in found.nodes) == pytest.approx(whole)
        # The edges of each program are all there, between its own nodes.
        graph = program_graph(getattr(both, side))
        ids = {node.id: getattr(node, side).id for node in found.nodes if getattr(node, side) is not None}
        edges = {(ids[e.source], ids[e.target]) for e in found.edges if e.side in ("both", side)}
        assert edges == {(edge.source, edge.target) for edge in graph.edges}
    assert len({(edge.source, edge.target) for edge in found.edges}) == len(found.edges)
    for node in found.nodes:
        assert node.part is not None and (node.changed or not node.told)
        assert node.before is None or node.before.id in node.part.before_rows
        assert node.after is None or node.after.id in node.part.after_rows


@settings(deadline=None, max_examples=20)
@given(PROGRAMS)
def test_a_program_with_itself_is_its_own_graph(program: list[Op]) -> None:
    both = pair(program, program)
    found = merged(both)
    assert all(node.side == "both" and not node.aspects for node in found.nodes)
    assert all(edge.side == "both" for edge in found.edges) and len(found.edges) == len(program_graph(both.after).edges)
    assert [node.after.id for node in found.nodes if node.after] == list(range(len(program) + 1))


@pytest.mark.parametrize("linked", [True, False])
def test_of_a_program_against_itself_no_node_claims_a_difference(linked: bool) -> None:
    program = network(10) if linked else [op._replace(code="") for op in network(10)]
    pairs = (pair(program, program, seed=seed, noise=0.02) for seed in range(40))
    assert sum(any(node.changed for node in merged(both).nodes) for both in pairs) <= 2


def test_what_one_program_has_stands_where_it_ran_and_in_its_module() -> None:
    before = network(3)
    after = list(before)
    after[4] = before[4]._replace(name="linear.out", where="portable", ns=400_000)
    after[1:2] = [before[1], before[1]._replace(name="Convert (NC, F32, QS8)", ns=20_000)]
    del after[0]
    found = merged(pair(before, after))
    gone, came = found.nodes[0], named(found)["blocks.0.linear", "Convert"]
    assert (gone.side, gone.module, gone.after_ms) == ("before", "blocks.0.conv", 0.0) and gone.told
    assert came.side == "after" and came.told and came.id == 2
    # What left the delegate has another name, and is the same layer.
    left = named(found)["blocks.1.linear", "linear.out"]
    assert left.side == "both" and {aspect.what for aspect in left.aspects} >= {"delegation"}
    changed = {node.module for node in found.nodes if node.changed}
    assert changed == {"blocks.0.conv", "blocks.0.linear", "blocks.1.linear"}


def test_modules_that_are_inside_another_now_hold_what_went() -> None:
    before = network(3)
    after = [op._replace(module=f"net.{op.module}") for op in before[:7]]
    found = merged(pair(before, after))
    assert {(node.module, node.side) for node in found.nodes if node.side != "both"} == {
        ("net.blocks.2.linear", "before"),
        ("net.blocks.2", "before"),
    }
    assert all(node.module.startswith("net.") for node in found.nodes if node.shown.node == "operator")
