"""Where two programs differ: matched by where their operators come from, adding up, and silent about noise."""

from pathlib import Path

import hypothesis.strategies as st
import msgspec
import numpy as np
import pytest
from hypothesis import given, settings

from model_profiling.analysis.compare.aspects import aspects_of
from model_profiling.analysis.compare.program_changes import (
    PartChange,
    ProgramChanges,
    ProgramOrigin,
    program_changes,
    with_kernels,
)
from model_profiling.analysis.run.selection import operator_origins
from model_profiling.analysis.timing.work import Product, Work
from tests.helpers.program_forge import FC, PROGRAMS, TRANSPOSE, Op, changes, network, side


def by_line(found: ProgramChanges) -> dict[tuple[str, str], PartChange]:
    return {(part.module, part.code): part for part in found.parts}


def aspects(part: PartChange) -> dict[str, tuple[str, str]]:
    return {aspect.what: (aspect.before, aspect.after) for aspect in part.aspects}


def check_books(found: ProgramChanges, before: list[Op], after: list[Op]) -> None:
    """Every operator is in one part, and parts and modules add up to the whole on both sides."""
    for entries in (found.parts, found.modules):
        for name in ("before_ms", "after_ms", "difference_ms"):
            assert sum(getattr(entry, name) for entry in entries) == pytest.approx(getattr(found, name), abs=1e-9)
    for program, rows in ((before, "before_rows"), (after, "after_rows")):
        assert sorted(row for part in found.parts for row in getattr(part, rows)) == list(range(len(program) + 1))


@settings(deadline=None, max_examples=25)
@given(PROGRAMS, PROGRAMS)
def test_parts_add_up_whatever_the_programs_are(before: list[Op], after: list[Op]) -> None:
    found = changes(before, after)
    check_books(found, before, after)
    for part in found.parts:
        assert part.matched in ("only before", "only after") or (part.before_rows and part.after_rows)
        assert (part.matched == "only before") == (not part.after_rows)
        assert (part.matched == "only after") == (not part.before_rows)


@settings(deadline=None, max_examples=25)
@given(PROGRAMS, st.randoms(use_true_random=False))
def test_a_program_is_matched_with_itself_in_any_order_of_its_lines(program: list[Op], order: object) -> None:
    """Lines are found again wherever they are executed, and of equal operators nothing came or went."""
    named = [op._replace(code=f"line {n}", line=n) for n, op in enumerate(program)]
    shuffled = list(named)
    order.shuffle(shuffled)  # type: ignore[attr-defined]
    found = changes(named, shuffled)
    for part in found.parts:
        if part.matched != "runtime":
            assert part.matched == "line" and not part.aspects
            assert [named[row] for row in part.before_rows] == [shuffled[row] for row in part.after_rows]


@pytest.mark.parametrize("linked", [True, False])
def test_of_a_program_against_itself_nothing_is_claimed(linked: bool) -> None:
    """In 95 of 100 repeats, however many lines there are; with lines and without."""
    program = network(15) if linked else [op._replace(code="") for op in network(15)]
    claims = sum(
        bool(found.told) or any(module.told for module in found.modules)
        for found in (changes(program, program, seed, noise=0.02) for seed in range(60))
    )
    assert claims <= 3


def test_moved_lines_and_renamed_files_are_the_same_lines() -> None:
    moved = [op._replace(line=op.line + 7, file="renamed.py") for op in network(4)]
    found = changes(network(4), moved)
    assert {part.matched for part in found.parts} == {"line", "runtime"} and not found.told


def test_a_model_inside_another_is_the_same_model_and_an_edited_line_the_same_line() -> None:
    inside = [op._replace(module=f"net.{op.module}") for op in network(4)]
    inside[4] = inside[4]._replace(name="Max Pooling (NHWC, F32)", code="y = pool(x)", ns=90_000)
    found = changes(network(4), inside)
    assert {part.matched for part in found.parts} == {"line", "module", "runtime"}
    assert [part.code for part in found.told] == ["y = pool(x)"]
    edited = list(network(4))
    edited[5] = edited[5]._replace(name="Max Pooling (NHWC, F32)", code="return pool(x)", ns=90_000)
    found = changes(network(4), edited)
    assert {part.matched for part in found.parts} == {"line", "module", "runtime"}
    assert [part.code for part in found.told] == ["return pool(x)"]


def test_traced_kernels_that_changed_are_said_of_their_line() -> None:
    found = with_kernels(changes(network(2), network(2)), {3: (["kai_run_neon"], ["kai_run_sme2"])})
    (part,) = [part for part in found.parts if part.aspects]
    assert part.module == "blocks.1.conv" and aspects(part)["kernels"] == ("kai_run_neon", "kai_run_sme2")


def test_the_changed_block_is_named_first_and_no_other() -> None:
    program = network(6)
    wide = [op._replace(ns=op.ns * 2, rows=128) if op.module.startswith("blocks.3.") else op for op in program]
    found = changes(program, wide)
    assert {part.module for part in found.told} == {"blocks.3.conv", "blocks.3.linear"}
    assert found.parts[0].module == "blocks.3.conv" and found.parts[0].difference_ms == pytest.approx(0.08, rel=0.1)
    assert aspects(found.parts[0])["shape"] == ("64 x 64 by 64 x 64", "128 x 64 by 64 x 64")
    assert found.modules[0].module == "blocks.3" and found.modules[0].told
    low, high = found.parts[0].low_ms, found.parts[0].high_ms
    assert low is not None and high is not None and 0 < low < found.parts[0].difference_ms < high


def test_a_wider_depthwise_convolution_has_more_products_of_one_size() -> None:
    row = side("A", network(1), np.random.default_rng(0)).breakdown.instances[0]
    narrow, wide = (
        msgspec.structs.replace(row, work=Work("fp32", 0, count, count, Product(2304, 1, 9, count)))
        for count in (64, 192)
    )
    (found,) = aspects_of([narrow], [wide])
    assert (found.what, found.before) == ("shape", "64 of 2304 x 9 by 9 x 1")
    assert found.after == "192 of 2304 x 9 by 9 x 1"


def test_one_operator_and_three_are_one_line() -> None:
    """Quantized, a line has conversions around what it computes; a layout change inserts a transpose before it."""
    before = network(2)
    line = before[0]
    converted = [
        line._replace(name="Convert (NC, F32, QS8)", ns=20_000),
        line._replace(name="Convolution (NHWC, QC8) IGEMM"),
    ]
    found = changes(before, [Op(TRANSPOSE, 30_000), *converted, *before[1:]])
    part = by_line(found)["blocks.0.conv", "x = self.conv(x)"]
    assert len(part.before_rows) == 1 and len(part.after_rows) == 3 and part.told
    told = aspects(part)
    assert told["operators"] == ("", "Transpose, Convert") and told["count"] == ("1", "3")
    assert told["dtype"][0] == "F32" and "QC8" in told["dtype"][1]
    assert [part.module for part in found.told] == ["blocks.0.conv"]


def test_what_left_the_delegate_and_what_got_another_kernel_is_said() -> None:
    before = network(2)
    after = list(before)
    after[1] = before[1]._replace(name="linear.out", where="portable", ns=400_000)
    after[3] = before[3]._replace(name="Convolution (NHWC, PF32) IGEMM", ns=20_000)
    found = by_line(changes(before, after))
    assert aspects(found["blocks.0.linear", "y = self.linear(x)"])["delegation"] == ("delegated", "portable")
    assert set(aspects(found["blocks.1.conv", "x = self.conv(x)"])) == {"kernels"}


def test_what_has_no_counterpart_is_matched_with_nothing() -> None:
    before = [*network(2), Op("Softmax (NC, F32)", 90_000, "attention", "a = softmax(x)", 30)]
    after = [*network(2), Op("Max Pooling (NHWC, F32)", 70_000, "pool", "p = self.pool(x)", 40, rows=32)]
    found = by_line(changes(before, after))
    gone, new = found["attention", "a = softmax(x)"], found["pool", "p = self.pool(x)"]
    assert (gone.matched, gone.after_ms, gone.told) == ("only before", 0.0, True)
    assert (new.matched, new.before_ms, new.told) == ("only after", 0.0, True)
    assert aspects(gone)["operators"] == ("Softmax", "")


@pytest.mark.parametrize("inside", [["", ""], [".0", ".1"]])
def test_a_layer_that_was_replaced_is_the_same_module(inside: list[str]) -> None:
    """`conv` became two operators of its own, or a Sequential of two."""
    before = network(3)
    pair = [Op(FC, 30_000, f"blocks.1.conv{end}", f"x = new{n}(x)", 50 + n, rows=7) for n, end in enumerate(inside)]
    found = changes(before, [*before[:3], *pair, *before[4:]])
    assert {part.module for part in found.told} == {"blocks.1.conv"}
    if inside[0]:
        assert found.told[0].matched == "module" and len(found.told[0].after_rows) == 2


def test_without_source_lines_on_one_side_kind_and_shape_in_order_decide_and_it_is_said() -> None:
    after = [op._replace(code="", ns=op.ns * (3 if n == 3 else 1)) for n, op in enumerate(network(4))]
    found = changes(network(4), after)
    assert found.notes and "matched by kind of work and shape" in found.notes[0] and "B" in found.notes[0]
    assert [part.module for part in found.told] == ["blocks.1.conv"]
    fewer = changes(network(4), after[:9])
    assert {part.matched for part in fewer.parts if part.module.startswith("blocks.3")} == {"only before"}


def test_without_source_lines_a_wider_layer_among_equal_ones_is_found_in_its_place() -> None:
    bare = [op._replace(code="") for op in network(9)]
    after = [op._replace(rows=128, ns=2 * op.ns) if n in (6, 12) else op for n, op in enumerate(bare)]
    found = changes(bare, [*after[:20], *after[21:]])
    assert sorted(part.before_rows for part in found.told if part.after_rows) == [[6], [12]]
    assert [part.before_rows for part in found.parts if part.matched == "only before"] == [[20]]


def test_lines_are_remembered_where_the_program_is_gone(tmp_path: Path) -> None:
    made = side("A", network(2), np.random.default_rng(0))
    profile, breakdown = made.profile, made.breakdown
    file = tmp_path / "analysis_summary.json"
    file.write_bytes(msgspec.json.encode({"experiments": {"on": {"breakdown": breakdown}}}))
    found = operator_origins(ProgramOrigin(None, analysis=file, experiment="on"), profile)
    assert found.lines[0].module == "blocks.0.conv" and len(found.lines) == 6 and found.works and not found.unlinked
    other = side("B", network(3), np.random.default_rng(0)).profile
    for origin, measured in (
        (ProgramOrigin(None, analysis=file, experiment="on"), other),
        (ProgramOrigin(None, analysis=file, experiment="off"), profile),
        (ProgramOrigin(None, analysis=tmp_path / "none.json", experiment="on"), profile),
        (None, profile),
    ):
        unknown = operator_origins(origin, measured)
        assert not unknown.lines and not unknown.works and unknown.unlinked


def test_too_few_launches_claim_nothing_and_say_so() -> None:
    generator = np.random.default_rng(0)
    before, after = (side(name, network(2), generator, launches=1) for name in "AB")
    found = program_changes(before, after, True)
    assert not found.told and any("too few launches" in note for note in found.notes)
