"""ONNX Runtime's profile as one of the kit's: times add up, nodes have their lines, and no file breaks a reader."""

import json
from pathlib import Path

import hypothesis.strategies as st
import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings

from model_profiling.analysis.compare import onnx_profile
from model_profiling.analysis.compare.onnx_profile import classify, onnx_side
from model_profiling.analysis.compare.program_changes import OVERHEAD, program_changes
from model_profiling.analysis.timing.breakdown import Breakdown
from model_profiling.analysis.timing.categories import CATEGORIES, ONNX_RULES, PORTABLE_RULES, XNNPACK_RULES
from model_profiling.base.errors import InputError, KitError
from model_profiling.formats import onnx
from tests.helpers.onnx_forge import event, field, model, node, run, sequence, write_profile

pytestmark = pytest.mark.fast
REUSED = settings(deadline=None, max_examples=40, suppress_health_check=[HealthCheck.function_scoped_fixture])
NODES = [("node_conv", "Conv", 50), ("node_relu", "Relu", 7), ("node_linear", "Gemm", 20)]
MODEL = model(
    node("node_conv", "Conv", ["x", "conv.weight"], ["conv"], 10, "conv"),
    node("node_relu", "Relu", ["conv"], ["relu"], 11),
    node("node_linear", "Gemm", ["relu", "head.weight"], ["linear"], 12, "head"),
)


def lines(found: Breakdown) -> list[tuple[str, int]]:
    """Return module and line of every node, 0 where it has none."""
    return [(entry.module, entry.source.line if entry.source else 0) for entry in found.instances[:-1]]


def side(home: Path, exported: bytes, ran: list[tuple[str, str, int]], optimized: bytes = b"") -> Breakdown:
    (home / "net.onnx").write_bytes(exported)
    (home / "made.onnx").write_bytes(optimized)
    profile = write_profile(home / "run.json", sequence(100, ran))
    return onnx_side("net", home / "net.onnx", [profile], home / "made.onnx" if optimized else None, warmup=0).breakdown


@REUSED
@given(st.lists(st.lists(st.integers(0, 10**6), min_size=3, max_size=3), min_size=2, max_size=5), st.integers(0, 5))
def test_times_add_up_to_every_execution_whatever_they_are(tmp_path: Path, times: list[list[int]], gap: int) -> None:
    (tmp_path / "net.onnx").write_bytes(MODEL)
    paths = []
    for launch in range(2):
        events: list[object] = []
        for number, durations in enumerate(times):
            nodes = [(name, op, us) for (name, op, _), us in zip(NODES, durations, strict=True)]
            events += sequence(10**8 * number, nodes, gap)
        paths.append(write_profile(tmp_path / f"{launch}.json", events))
    side = onnx_side("net", tmp_path / "net.onnx", paths)
    profile, found, unlinked = side.profile, side.breakdown, side.unlinked
    whole = [1e3 * (sum(durations) + 4 * gap) for durations in times[1:]] * 2
    assert profile.execute.tolist() == pytest.approx(whole) and not unlinked
    assert profile.times.sum(axis=0) == pytest.approx(profile.execute)
    assert profile.launch.tolist() == [0] * (len(times) - 1) + [1] * (len(times) - 1)
    assert (profile.times >= -1e-6).all() and found.execute_ms == pytest.approx(np.sum(profile.typical) / 1e6)


def test_nodes_have_module_and_line_and_the_rest_is_the_runtime(tmp_path: Path) -> None:
    found = side(tmp_path, MODEL, NODES)
    assert lines(found) == [("conv", 10), ("", 11), ("head", 12)]
    assert [entry.kind for entry in found.instances] == ["conv2d", "clamp", "fully connected", "overhead"]
    assert found.instances[-1].where == "runtime" and found.instances[0].source_line == "me/net.py:10"


def test_a_fused_node_is_of_the_line_of_what_it_replaced(tmp_path: Path) -> None:
    """By what ONNX Runtime leaves in its name: that of a node, or of the last output with the blocked layout."""
    ran = [
        ("relu_nchwc", "Conv", 50),
        ("ReorderOutput_token_7", "ReorderOutput", 3),
        ("gemm_input_reshape", "Reshape", 1),
        ("fused node_linear/MatMulAddFusion_token_3", "Gemm", 20),
        ("gemm_output_reshape_token_2", "Reshape", 1),
    ]
    assert lines(side(tmp_path, MODEL, ran)) == [("conv", 10), ("", 0), ("", 0), ("head", 12), ("head", 12)]


def test_the_optimized_graph_tells_the_lines_of_nodes_without_a_name(tmp_path: Path) -> None:
    ran = [("relu_nchwc", "Conv", 50), ("ReorderOutput", "ReorderOutput", 3), ("Cast_9", "Cast", 1)]
    ran += [("Erf_8", "Erf", 1), ("Mul_7", "Mul", 2)]
    made = model(
        node("relu_nchwc", "Conv", ["x"], ["blocked"]),
        node("ReorderOutput", "ReorderOutput", ["blocked"], ["relu"]),
        node("", "Cast", ["relu"], ["wide"]),
        node("", "Erf", ["wide"], ["inner"]),
        node("", "Mul", ["inner"], ["linear"]),
    )
    assert lines(side(tmp_path, MODEL, ran, made)) == [("conv", 10), ("conv", 10), *[("head", 12)] * 3]


def test_a_folded_normalization_is_of_the_module_that_has_the_weights(tmp_path: Path) -> None:
    exported = model(node("node_conv", "Conv", ["x", "a.conv.weight"], ["y"], 10, "a.norm", rewritten=True))
    assert lines(side(tmp_path, exported, [("node_conv", "Conv", 9)])) == [("a.conv", 10)]


def test_a_model_without_properties_says_why_it_has_no_lines(tmp_path: Path) -> None:
    profile = write_profile(tmp_path / "run.json", sequence(0, NODES))
    for name, data, why in (
        ("own.onnx", model(node("node_conv", "Conv")), "does not tell its PyTorch lines"),
        ("cut.onnx", MODEL[:-20], "is not a readable ONNX model"),
        ("other.onnx", model(node("a", "Conv", line=3)), "the nodes that ran are not those of other.onnx"),
        ("twice.onnx", model(*[node("node_conv", "Conv", line=3)] * 2), "are not those of twice.onnx"),
    ):
        (tmp_path / name).write_bytes(data)
        side = onnx_side("net", tmp_path / name, [profile], warmup=0)
        found, unlinked = side.breakdown, side.unlinked
        assert why in unlinked and lines(found) == [("", 0)] * 3 and found.execute_ms > 0


def test_a_branch_is_not_counted_in_the_node_that_holds_it(tmp_path: Path) -> None:
    inside = field(1, node("node_sin", "Sin", ["x"], ["y"], 21, "b"))
    (tmp_path / "net.onnx").write_bytes(model(node("node_if", "If", ["x"], ["z"], 20, inside=inside)))
    events = [event("node_sin", "Sin", 11, 60), event("node_if", "If", 10, 70), run(5, 100)]
    side = onnx_side("net", tmp_path / "net.onnx", [write_profile(tmp_path / "run.json", events)], warmup=0)
    profile, found = side.profile, side.breakdown
    assert profile.times[:, 0].tolist() == [60_500, 10_500, 29_000]
    assert lines(found) == [("b", 21), ("", 20)]


def test_executions_that_cannot_be_added_up_are_refused(tmp_path: Path) -> None:
    (tmp_path / "net.onnx").write_bytes(MODEL)
    other = [*sequence(0, NODES), *sequence(500, [*NODES[:1], ("node_tanh", "Tanh", 7), NODES[2]])]
    overlapping = [event("a", "Conv", 10, 50), event("b", "Conv", 30, 50), run(0, 100)]
    outside = [event("a", "Conv", 10, 500), run(0, 100)]
    sizes = [event("a", "Conv", 5, 9, [1, 3]), run(0, 20), event("a", "Conv", 35, 9, [2, 3]), run(30, 20)]
    for events, why in (
        (other, "ran different nodes"),
        (sizes, "ran different nodes or sizes"),
        (overlapping, "ran at the same time"),
        (outside, "ran at the same time"),
        ([], "has no whole execution"),
        (sequence(0, NODES)[:-1], "has no whole execution"),
    ):
        with pytest.raises(InputError, match=why):
            onnx_side("net", tmp_path / "net.onnx", [write_profile(tmp_path / "run.json", events)], warmup=0)


def test_shapes_tell_the_kind_of_a_convolution_and_the_work_of_a_product(tmp_path: Path) -> None:
    (tmp_path / "net.onnx").write_bytes(MODEL)
    events = [
        event("a", "Conv", 10, 5, [1, 8, 4, 4], [8, 1, 3, 3], out=[1, 8, 4, 4]),
        event("b", "FusedConv", 20, 5, [1, 8, 4, 4], [16, 8, 1, 1], out=[1, 16, 4, 4]),
        event("c", "Conv", 30, 5, [1, 8, 4, 4], [6, 4, 3, 3], out=[1, 6, 2, 2]),
        event("d", "Gemm", 40, 5, [4, 8], [10], out=[4, 10]),
        event("e", "MatMul", 50, 5, [2, 4, 8], [2, 8, 6], out=[2, 4, 6]),
        event("f", "ConvTranspose", 60, 5, [1, 8, 4, 4], [8, 6, 2, 2], out=[1, 6, 8, 8]),
        event("g", "Mul", 70, 5, [2, 4], [2, 4], out=[2, 4]),
        event("h", "Conv", 80, 5, [1, 8, 4, 4], out=[1, 8, 4, 4]),
    ]
    profile = write_profile(tmp_path / "run.json", [*events, run(0, 100)])
    found = onnx_side("net", tmp_path / "net.onnx", [profile], warmup=0).breakdown.instances
    kinds = ["depthwise", "pointwise", "conv2d", "fully connected", "batch matmul", "deconvolution", "binary", "conv2d"]
    assert [entry.kind for entry in found[:-1]] == kinds
    products = [entry.work.product if entry.work else None for entry in found[:-1]]
    counted = [(p.m, p.n, p.k, p.count) if p else None for p in products]
    assert counted[:4] == [(16, 1, 9, 8), (16, 16, 8, 1), (4, 3, 36, 2), (4, 10, 8, 1)]
    assert counted[4:] == [(4, 6, 8, 2), (16, 24, 8, 1), None, None]
    assert found[6].work is not None and found[6].work.elements == 24 and found[7].work is None


def test_two_runtimes_are_compared_by_line_and_neither_is_called_the_other(tmp_path: Path) -> None:
    (tmp_path / "net.onnx").write_bytes(MODEL)
    faster = [(name, op, us // 2) for name, op, us in NODES]
    sides = []
    for name, nodes in (("a", NODES), ("b", faster)):
        events = [each for start in range(0, 3000, 500) for each in sequence(start, nodes)]
        paths = [write_profile(tmp_path / f"{name}{launch}.json", events) for launch in range(6)]
        sides.append(onnx_side(name, tmp_path / "net.onnx", paths))
    found = program_changes(sides[0], sides[1], False)
    assert {part.matched for part in found.parts} == {"line", "runtime"} and not found.notes
    assert {module.module for module in found.modules} == {"conv", "head", "the model's own lines", OVERHEAD}
    # A clock of whole microseconds does not tell 7 from 3 by less than itself.
    assert all(part.told and part.low_ms is not None and part.low_ms < part.difference_ms for part in found.parts[:2])


def test_the_table_of_operator_types_uses_the_words_of_the_other_tables_and_names_each_type_once() -> None:
    names = [name for row in ONNX_RULES for name in row.names]
    assert len(names) == len(set(names)) and {row.category for row in ONNX_RULES} == set(CATEGORIES)
    words = {(rule.category, rule.kind) for rule in (*XNNPACK_RULES, *PORTABLE_RULES)}
    own = {("GEMM", "recurrent"), ("Other", "control")}
    assert {(row.category, row.kind) for row in ONNX_RULES} - own <= words
    assert classify("NeverHeardOf").category == "Other" and not classify("NeverHeardOf").known


@REUSED
@given(st.integers(0, len(MODEL)), st.binary(max_size=12), st.integers(0, len(MODEL)))
def test_a_damaged_model_is_read_or_refused(tmp_path: Path, at: int, garbage: bytes, end: int) -> None:
    path = tmp_path / "net.onnx"
    for data in (MODEL[:at] + garbage + MODEL[at + len(garbage) :], MODEL[:end], garbage, MODEL[:at] + garbage):
        path.write_bytes(data)
        try:
            found = onnx.read(path)
        except KitError as error:
            assert error.hint
        else:
            assert all(isinstance(each.name, str) and each.line >= 0 for each in found)


def test_a_model_nested_without_end_or_with_absurd_sizes_is_refused(tmp_path: Path) -> None:
    graph = b""
    for _ in range(40):
        graph = field(1, node("n", "If", inside=graph or field(2, "g")))
    path = tmp_path / "net.onnx"
    for data, why in (
        (field(7, graph), "nested too deeply"),
        (b"\x3a\xff\xff\xff\xff\xff\xff\xff\xff\x7f", "not a field, or is cut off"),
        (b"\x3a" + b"\xff" * 12, "the number at byte"),
        (b"", "it has no graph"),
        (b"<html>", "not a field"),
        (b" " * (4 << 20), "more fields than a model has"),
        (b"\n\0" * (4 << 20), "more fields than a model has"),
    ):
        path.write_bytes(data)
        with pytest.raises(onnx.OnnxError, match=why):
            onnx.read(path)
    with pytest.raises(onnx.OnnxError, match="does not exist"):
        onnx.read(tmp_path / "none.onnx")


VALUES = st.recursive(
    st.none() | st.booleans() | st.integers() | st.just(10**400) | st.floats() | st.text(max_size=5),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=5), inner, max_size=3),
    max_leaves=6,
)


@REUSED
@given(st.data())
def test_a_damaged_profile_is_read_or_refused(tmp_path: Path, data: st.DataObject) -> None:
    (tmp_path / "net.onnx").write_bytes(MODEL)
    events = [*sequence(0, NODES), *sequence(500, NODES)]
    chosen = events[data.draw(st.integers(0, len(events) - 1))]
    target = chosen["args"] if data.draw(st.booleans()) and chosen["args"] else chosen
    key = data.draw(st.sampled_from(sorted(target)))
    if data.draw(st.booleans()):
        target[key] = data.draw(VALUES)
    else:
        del target[key]
    text = json.dumps(events).encode()
    path = tmp_path / "run.json"
    path.write_bytes(text[: data.draw(st.sampled_from([len(text), len(text) // 2, 1]))])
    try:
        side = onnx_side("net", tmp_path / "net.onnx", [path], warmup=0)
        profile, found = side.profile, side.breakdown
    except KitError as error:
        assert error.hint
    else:
        assert profile.times.sum(axis=0) == pytest.approx(profile.execute) and np.isfinite(found.execute_ms)


def test_branches_that_a_launch_runs_in_another_order_are_the_same_nodes() -> None:
    tensor = onnx.OrtTensor("float", (1, 4))
    left, right = (onnx.OrtNode(name, "Relu", (tensor,), (tensor,)) for name in ("left", "right"))
    first = onnx.OrtExecution([left, right, right], [1, 2, 3], [0, 1, 3], 6)
    other = onnx.OrtExecution([right, right, left], [20, 30, 10], [0, 20, 50], 60)
    found = onnx_profile._in_order_of(first, other)
    assert (found.nodes, found.own_us, found.start_us) == ([left, right, right], [10, 20, 30], [50, 0, 20])
    strange = onnx.OrtExecution([right, left, left], [1, 1, 1], [0, 1, 2], 3)
    assert onnx_profile._in_order_of(first, strange) is strange
