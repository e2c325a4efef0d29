"""Operators held against roofs: the numbers fit each other, whatever operators and CPU are; and advice uses them."""

import math

import hypothesis.strategies as st
import msgspec
import pytest
from hypothesis import given, settings

from model_profiling.analysis.advice.finding import FindingKind
from model_profiling.analysis.advice.rules import Evidence, advise
from model_profiling.analysis.compare.comparison import Change, OperatorChange, ProfileComparison, Shift
from model_profiling.analysis.graph.graph import aligned
from model_profiling.analysis.roofs.roof_rates import SHORTEST_MS, Measurement, ProbeResult, Rates, Roofs
from model_profiling.analysis.roofs.roof_table import roof_rows
from model_profiling.analysis.roofs.roofline import GroupWork, Roofline, compute_of_roof, group_work, of_roof, roofline
from model_profiling.analysis.timing.breakdown import Breakdown
from model_profiling.analysis.timing.categories import OperatorClass
from model_profiling.analysis.timing.profile import Instance, Where
from model_profiling.analysis.timing.work import Work
from model_profiling.formats.pte.xnnpack_graph import TRANSPOSE, XnnpackNode, XnnpackValue
from tests.helpers.roof_forge import forged_breakdown, forged_roofs, moving_work, probed, product_work

SIZES = st.integers(1, 4000)
PRODUCTS = st.builds(product_work, SIZES, SIZES, SIZES, st.integers(1, 16))
TIMES = st.floats(0, 50, allow_nan=False)
OPERATORS = st.lists(
    st.one_of(
        st.tuples(st.sampled_from(["conv2d", "fully connected", "depthwise"]), st.none() | PRODUCTS, TIMES),
        st.tuples(st.sampled_from(["transpose", "copy", "binary"]), SIZES.map(lambda n: moving_work(64 * n)), TIMES),
    ),
    min_size=1,
    max_size=12,
)
ROOFS = st.builds(forged_roofs, gops=st.floats(1, 5000), gbps=st.floats(1, 500))


def held(breakdown: Breakdown, roofs: Roofs) -> Roofline:
    return roofline(breakdown, Rates(roofs.measurements[0]), roofs.cpu, roofs.created)


@given(OPERATORS, ROOFS)
@settings(max_examples=40, deadline=None)
def test_rate_roof_and_headroom_fit_each_other(operators: list[tuple[str, object, float]], roofs: Roofs) -> None:
    breakdown = forged_breakdown(operators)  # type: ignore[arg-type]
    found = held(breakdown, roofs)
    for entry in found.operators:
        instance = breakdown.instances[entry.row]
        assert instance.ms >= SHORTEST_MS and instance.work is not None
        assert math.isclose(entry.of_roof * entry.roof, entry.rate, rel_tol=1e-9)
        assert math.isclose(entry.roof_ms, entry.of_roof * instance.ms, rel_tol=1e-9)
        assert entry.headroom_ms >= 0 and math.isclose(entry.headroom_ms, max(0, instance.ms - entry.roof_ms))
        assert (entry.headroom_ms == 0) == (entry.of_roof >= 1)
        assert (entry.unit == "GOP/s") == (instance.work.product is not None)
        alone = of_roof(breakdown, [entry.row], found.by_row)
        assert alone is not None and math.isclose(alone, entry.of_roof, rel_tol=1e-9)
    assert math.isclose(found.headroom_ms, sum(entry.headroom_ms for entry in found.operators), abs_tol=1e-9)
    assert found.headroom_ms <= breakdown.execute_ms + 1e-9
    assert -1e-9 <= found.covered <= 1 + 1e-9
    # Findings are ranked by their time, claim each operator once, and predict nothing.
    findings = advise(evidence(breakdown, roofs))
    shares = [finding.share for finding in findings]
    assert shares == sorted(shares, reverse=True)
    claimed = [row for finding in findings for row in finding.instances]
    assert len(claimed) == len(set(claimed))
    assert all(finding.gain is None and not finding.saved_ms for finding in findings)


@given(OPERATORS, ROOFS, st.data())
@settings(max_examples=40, deadline=None)
def test_work_of_several_operators_is_the_sum_or_not_known(
    operators: list[tuple[str, object, float]], roofs: Roofs, data: st.DataObject
) -> None:
    breakdown = forged_breakdown(operators)  # type: ignore[arg-type]
    by_row = held(breakdown, roofs).by_row
    rows = data.draw(st.lists(st.integers(0, len(operators) - 1), min_size=1, unique=True))
    found = group_work(breakdown, rows, by_row)
    works = [breakdown.instances[row].work for row in rows]
    if None in works:
        assert found.multiply_accumulates is found.bytes_read is found.rate is None
    else:
        assert found.multiply_accumulates == sum(work.multiply_accumulates for work in works if work)
        assert found.weight_bytes == sum(work.weight_bytes for work in works if work)
    if not any(row in by_row for row in rows):
        assert found.of_roof is found.headroom_ms is None
    if len({work.product if work else None for work in works}) > 1:
        assert found.m is found.n is found.k is found.count is None


def test_a_group_of_which_too_little_is_known_has_no_part_of_its_roof() -> None:
    breakdown = forged_breakdown([("conv2d", product_work(512, 64, 64), 1.0), ("conv2d", None, 1.0)])
    by_row = held(breakdown, forged_roofs()).by_row
    assert of_roof(breakdown, [0], by_row) is not None and of_roof(breakdown, [0, 1], by_row) is None
    assert group_work(breakdown, [1], by_row) == GroupWork()


def evidence(breakdown: Breakdown, roofs: Roofs | None, comparison: ProfileComparison | None = None) -> Evidence:
    found = None if roofs is None else held(breakdown, roofs)
    return Evidence(breakdown, comparison, roofline=found)


def at(part: float, gops: float = 100.0, m: int = 1024, n: int = 64, k: int = 64) -> tuple[str, object, float]:
    """A convolution that runs at this part of the best rate."""
    work = product_work(m, n, k)
    return "conv2d", work, 2 * work.multiply_accumulates / (part * gops) / 1e6


@pytest.mark.parametrize("part", [0.1, 0.51, 0.77, 0.97])
def test_a_part_of_its_roof_is_no_finding(part: float) -> None:
    breakdown = forged_breakdown([at(part)])  # type: ignore[list-item]
    assert not advise(evidence(breakdown, forged_roofs(gbps=1e4)))


def untouched(breakdown: Breakdown) -> ProfileComparison:
    changes = []
    for row, entry in enumerate(breakdown.instances):
        change = Change(entry.name, entry.ms, entry.ms, entry.share, entry.share, 1.0, 0.99, 1.01)
        changes.append(
            OperatorChange(entry.name, entry.name, entry.category, entry.kind, "delegated", 0, change, row, row)
        )
    whole = Change("", 1, 1, 1, 1, 1, 1, 1)
    return ProfileComparison("off", "on", True, whole, [], changes, Shift("CONV", "CONV", 1, 1, False, ""), changes)


def test_what_was_not_accelerated_has_no_gain_that_nobody_measured() -> None:
    breakdown = forged_breakdown([at(0.7)])  # type: ignore[list-item]
    for roofs in (forged_roofs(gbps=1e4), None):
        (finding,) = advise(evidence(breakdown, roofs, untouched(breakdown)))
        assert finding.rule is FindingKind.NOT_ACCELERATED and finding.gain is None and finding.label == "suggestion"


def test_compute_is_at_the_roof_only_if_nearly_all_of_it_is_known() -> None:
    known = forged_breakdown([at(0.96), ("transpose", moving_work(1 << 20), 0.5)])  # type: ignore[list-item]
    assert compute_of_roof(known, held(known, forged_roofs(gbps=1e4)).by_row) == {"CONV": pytest.approx(0.96)}
    partly = forged_breakdown([at(0.96), ("conv2d", None, 1.0)])  # type: ignore[list-item]
    assert compute_of_roof(partly, held(partly, forged_roofs(gbps=1e4)).by_row) == {}


def test_a_table_of_roofs_has_the_best_of_each_kind_and_says_what_the_clock_leaves_open() -> None:
    (row,) = roof_rows(forged_roofs(gops=80, gbps=5))
    rates = [best.rate for best in (row.matrix, row.convolution, row.depthwise, row.copy[2]) if best is not None]
    assert rates == pytest.approx([80, 80, 40, 5])
    assert row.copy[:2] == [None, None] and row.transpose[:2] == [None, None]
    assert row.matrix is not None and row.depthwise is not None
    assert row.matrix.spread_percent == pytest.approx(100 * 0.001 / 1.01)
    assert row.depthwise.spread_percent == pytest.approx(100 * 0.0005 / (4 * 3136 * 9 * 64 / 80 / 1e6)), "the clock"


KINDS = ["GELU (NC)", "TanH (NC)", "Sigmoid (NC)", "Softmax (NC, F16)", "Add (ND)", "Transpose (ND, X16)"]


def only(operator: str, work: Work, gbps: float, where: Where = "delegated") -> Rates:
    """Rates that know one kind of operator, and how fast memory is."""
    copied = moving_work(1 << 22)
    probes = [probed("copy", copied, copied.bytes / 40 / 1e6, "Copy (NC, X16)")]
    entry = ProbeResult(operator, "Elementwise", "unary", work, work.bytes / gbps / 1e6, 1.0, 0.0, where)
    return Rates(Measurement("fp16", 1, [], [], 30, 0.0, [*probes, entry]))


def ran(operator: str, work: Work, ms: float, where: Where = "delegated") -> Breakdown:
    breakdown = forged_breakdown([("binary", work, ms)])
    entry = msgspec.structs.replace(breakdown.instances[0], operator=operator, where=where)
    return msgspec.structs.replace(breakdown, instances=[entry])


@given(st.sampled_from(KINDS), st.sampled_from(KINDS), st.integers(16, 22), st.integers(15, 26), st.floats(0.5, 30))
def test_an_operator_is_held_against_its_own_kind_or_nothing(
    probe: str, operator: str, probe_size: int, size: int, gbps: float
) -> None:
    """However slow a kind is against memory: at the rate of its own probe it is at its roof."""
    rates, work = only(probe, moving_work(1 << probe_size), gbps), moving_work(1 << size)
    breakdown = ran(operator, work, max(SHORTEST_MS, work.bytes / gbps / 1e6))
    found = roofline(breakdown, rates, "", "")
    if probe == operator and (size >= probe_size - 1 or work.bytes / gbps / 1e6 >= 0.01):
        assert [entry.roof for entry in found.operators] == [pytest.approx(gbps)]
        (entry,) = found.operators
        assert entry.bound == ("memory" if gbps > 40 / 1.5 else "compute")
    else:
        assert not found.operators, "a roof of another kind, or of much larger operators, is none"
    assert not advise(Evidence(breakdown, roofline=found))


@given(st.sampled_from(["portable", "delegated"]), st.sampled_from(["portable", "delegated"]))
def test_portable_and_delegated_operators_are_never_held_against_each_other(probe: Where, where: Where) -> None:
    rates, work = only("gelu", moving_work(1 << 18), 3.0, probe), moving_work(1 << 18)
    assert (rates.best_ms("gelu", "unary", work, where) is not None) == (probe == where)
    assert len(roofline(ran("gelu", work, 1.0, where), rates, "", "").operators) == (probe == where)


@given(st.sampled_from([9, 25, 49]), st.sampled_from([9, 25, 49]), st.sampled_from(["depthwise", "conv2d"]))
def test_a_depthwise_convolution_is_held_against_its_own_window(probe: int, window: int, kind: str) -> None:
    """Also where XNNPACK has no kernel for the window, and computes it as a product of many groups."""
    dense = product_work(1024, 256, 256)
    works = [product_work(784, 1, k, 64) for k in (probe, window)]
    ms = [2 * work.multiply_accumulates / 2 / 1e6 for work in works]
    probes = [probed("conv2d", dense, 0.1), probed(kind, works[0], ms[0])]
    rates = Rates(Measurement("fp16", 1, [], [], 30, 0.0, probes))
    found = roofline(forged_breakdown([(kind, works[1], ms[1])]), rates, "", "").operators
    near = probe == window or (kind == "conv2d" and {probe, window} == {25, 49})
    assert [entry.of_roof for entry in found] == ([pytest.approx(1)] if near else [])


@given(st.sampled_from(["fp32", "fp16", "qint8"]), st.sampled_from(["fp32", "fp16"]))
def test_the_best_time_in_a_dtype_is_that_of_its_own_probes(element: str, other: str) -> None:
    """What a change of dtype would take is read off the probes in that dtype, whichever program had them."""
    slow, fast = (only("GELU (NC)", moving_work(1 << 18, name), rate) for name, rate in ((element, 3.0), (other, 6.0)))
    both = Rates(slow.measurement, fast.measurement)
    found = both.best_ms("GELU", "activation", moving_work(1 << 18, other))
    rate = 3.0 if element == other else 6.0
    assert found == pytest.approx(moving_work(1 << 18, other).bytes / rate / 1e6)
    assert both.best_ms("GELU", "activation", moving_work(1 << 18, "bf16")) is None


@given(PRODUCTS, st.floats(1, 5000))
def test_the_best_time_of_a_product_is_never_less_than_memory_allows(work: Work, gops: float) -> None:
    rates = Rates(forged_roofs(gops=gops).measurements[0])
    found = rates.best_ms("Fully Connected (NC, F16)", "fully connected", work)
    assert found is not None and found >= (rates.memory_ms(work) or 0)


TRANSPOSE_NAME = "Transpose (ND, X32)"
RAN = Instance(TRANSPOSE_NAME, TRANSPOSE_NAME, "delegated", 0, 0, OperatorClass("Data Movement", "transpose"))


@given(st.lists(st.sampled_from(["fused", "kept", "read twice", "first input", "other axes", "output"]), max_size=12))
@settings(max_examples=40, deadline=None)
def test_a_transpose_that_became_a_flag_hides_no_other(cases: list[str]) -> None:
    """XNNPACK runs one transpose less for each that a batch matrix multiplication takes as its second input."""
    nodes: list[XnnpackNode] = []
    expected = []
    for number, case in enumerate(cases):
        source, out, product = (XnnpackValue("fp32", (2, 4, 4), False, 10 * number + place) for place in (1, 2, 3))
        if case == "output":
            out = XnnpackValue("fp32", (2, 4, 4), False, 10 * number + 2, external=number)
        permutation = (1, 0, 2) if case == "other axes" else (0, 2, 1)
        node = XnnpackNode(len(nodes), TRANSPOSE, 0, (source,), (out,), permutation=permutation)
        nodes.append(node)
        if case != "fused":
            expected.append(node)
        inputs = (out, source) if case == "first input" else (source, out)
        if case != "kept":
            nodes.append(XnnpackNode(len(nodes), "BatchMatrixMultiply", 0, inputs, (product,)))
        if case == "read twice":
            nodes.append(XnnpackNode(len(nodes), "Abs", 0, (out,), (product,)))
    found = aligned([RAN for _ in expected], {0: nodes})
    assert [found.get(place) for place in range(len(expected))] == expected
    if expected:
        # One more ran than the graph explains: which is which is not known, and nothing is guessed.
        assert aligned([RAN for _ in range(len(cases) + 1)], {0: nodes}) == {}


RESHAPE, FULLY = "Static Reshape (NC)", "Fully Connected (NC, F32) GEMM"
MERGED = Instance(RESHAPE, RESHAPE, "delegated", 0, 0, OperatorClass("Data Movement", "reshape"))
BETWEEN = Instance(FULLY, FULLY, "delegated", 0, 0, OperatorClass("GEMM", "fully connected"))


@given(st.lists(st.tuples(st.integers(0, 3), st.booleans()), min_size=1, max_size=8))
@settings(max_examples=25, deadline=None)
def test_where_some_operators_were_merged_those_between_others_are_still_found(gaps: list[tuple[int, bool]]) -> None:
    """Reshapes in a row may run as one; between two layers that are known, as many as there are nodes are those."""
    value = XnnpackValue("fp32", (4, 4), False, 0)
    nodes: list[XnnpackNode] = []
    ran: list[Instance] = []
    expected: dict[int, XnnpackNode] = {}
    for count, merged in gaps:
        nodes.append(XnnpackNode(len(nodes), "FullyConnected", 0, (value,), (value,)))
        expected[len(ran)] = nodes[-1]
        ran.append(BETWEEN)
        run = 1 if merged and count > 1 else count
        for n in range(count):
            nodes.append(XnnpackNode(len(nodes), "StaticReshape", 0, (value,), (value,)))
            if run == count:
                expected[len(ran) + n] = nodes[-1]
        ran += [MERGED] * run
    assert aligned(ran, {0: nodes}) == expected
