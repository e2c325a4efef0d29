"""Cost by module and line: every operator is in one place, and the parts add up to the whole."""

import hypothesis.strategies as st
import pytest
from hypothesis import given, settings

from model_profiling.analysis.graph.cost_tree import CostNode, cost_tree
from model_profiling.analysis.timing.breakdown import Breakdown, InstanceTime, SourceLine, Spread
from model_profiling.analysis.timing.profile import Where

NAMES = st.sampled_from(["", "a", "a.b", "a.b.c", "blocks.0", "blocks.1.mlp", "<b>", "x" * 60, ".".join("d" * 400)])
FILES = st.sampled_from(["", "net.py", "/somewhere/net.py", "<script>"])
SOURCES = st.none() | st.builds(
    SourceLine, NAMES, FILES, st.integers(0, 5), st.sampled_from(["", "y = x"]), st.just("op")
)
TIMES = st.floats(0, 1e3, allow_nan=False)


@st.composite
def breakdowns(draw: st.DrawFn) -> Breakdown:
    places: st.SearchStrategy[Where] = st.sampled_from(("delegated", "portable", "runtime"))
    entries = draw(st.lists(st.tuples(st.sampled_from(["Add", "Mul"]), places, TIMES, SOURCES), max_size=25))
    whole = sum(ms for _, _, ms, _ in entries)
    instances = [
        InstanceTime(
            *(
                f"{name} #{row}",
                name,
                "Runtime" if where == "runtime" else "Elementwise",
                "",
                where,
                "",
                "",
                0,
                row,
                ms,
            ),
            share=ms / whole if whole else 0.0,
            spread=Spread(ms, 0.0, ms),
            source=source,
        )
        for row, (name, where, ms, source) in enumerate(entries)
    ]
    return Breakdown(1, whole, [], {}, [], instances)


def check(node: CostNode) -> None:
    if node.children:
        assert node.ms == pytest.approx(sum(child.ms for child in node.children))
        assert node.operators == sum(child.operators for child in node.children)
        keys = [(c.kind, c.name, c.module, c.file, c.line, c.why) for c in node.children]
        assert len(set(keys)) == len(keys), "a part stands twice below another"
    assert (node.kind == "unknown") == bool(node.why)
    assert not node.children or node.kind != "operator"
    for child in node.children:
        check(child)


@settings(deadline=None, max_examples=50)
@given(breakdowns())
def test_parts_add_up_at_every_level_and_no_operator_is_lost_or_counted_twice(breakdown: Breakdown) -> None:
    root = cost_tree(breakdown, "net", "why")
    check(root)
    assert root.ms == pytest.approx(breakdown.execute_ms)
    leaves = [node for _, node in root.walk() if not node.children and node.kind == "operator"]
    assert sum(leaf.operators for leaf in leaves) == sum(e.where != "runtime" for e in breakdown.instances)
    lost = [e for e in breakdown.instances if e.where != "runtime" and (e.source is None or not e.source.file)]
    unknown = [n for _, n in root.walk() if n.kind == "unknown" and n.name == "no source line known"]
    assert sum(node.ms for node in unknown) == pytest.approx(sum(entry.ms for entry in lost))
    # The time of ExecuTorch itself is of no line.
    runtime = [child for child in root.children if child.name == "ExecuTorch runtime"]
    expected = sum(entry.ms for entry in breakdown.instances if entry.where == "runtime")
    assert sum(child.ms for child in runtime) == pytest.approx(expected)
