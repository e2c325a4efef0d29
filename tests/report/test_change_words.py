"""What is said of two programs that differ: a list that adds up, and no claim about noise."""

import msgspec
import pytest

from model_profiling.analysis.compare.aspects import Aspect, What
from model_profiling.analysis.compare.program_changes import largest
from model_profiling.report import change_words
from tests.helpers.program_forge import changes, network


@pytest.mark.parametrize("most", [1, 3, 20])
def test_the_rows_add_up_to_the_whole(most: int) -> None:
    wide = [op._replace(ns=op.ns * 2) if op.module.startswith(("blocks.1.", "blocks.2.")) else op for op in network(6)]
    *rows, whole = change_words.difference_rows(changes(network(6), wide), most)
    assert len(rows) == min(most, 4) + (most < 4) + 1 and all(row.parts for row in rows)
    shown = sum(float(row.difference.split(" ")[0]) for row in rows)
    assert shown == pytest.approx(float(whole.difference.split(" ")[0]), abs=0.0005 * (len(rows) + 1))
    assert sum(row.before_ms for row in rows) == pytest.approx(whole.before_ms)


def test_an_operator_is_never_said_under_the_name_that_the_other_runtime_gives_it() -> None:
    before, sides = network(1), ("ExecuTorch", "ONNX Runtime")
    named = changes(before, [op._replace(name=f"{op.name} node_7") for op in before])
    said = {change_words.in_both(part, sides) for part in named.parts}
    assert said == {"the same kinds of operators in both"}


def test_of_the_same_program_there_is_one_line() -> None:
    assert "~ in all of the 10 parts" in change_words.unchanged_sentence(changes(network(3), network(3)))


def test_what_differs_in_more_than_time_is_listed_and_not_claimed() -> None:
    after = [
        op._replace(name=op.name.replace("F32", "F16")) if op.module == "blocks.1.conv" else op for op in network(3)
    ]
    found = changes(network(3), after)
    first, others, _ = change_words.difference_rows(found, 5)
    assert not found.told and first.difference.startswith("~ (") and "dtype F32 -> F16" in first.what
    assert others.name == "9 other parts, each ~"


def test_changes_are_listed_with_what_changed_and_by_module_where_they_are_many() -> None:
    found = changes(network(6), [op._replace(ns=op.ns * 2, rows=128) for op in network(6)])
    rows = change_words.difference_rows(found, 6)
    names = " ".join(row.name for row in rows)
    assert "smaller changes" in names and "all of it" in names and change_words.module_rows(found, 5)
    assert any("size 64 x 64 by 64 x 64 -> 128 x 64 by 64 x 64" in row.what for row in rows)


@pytest.mark.parametrize(
    ("what", "before", "after", "said"),
    [
        ("dtype", "F32", "QC8", "dtype F32 -> QC8"),
        ("operators", "Transpose", "", "Transpose went"),
        ("operators", "", "2 x Convert", "2 x Convert came"),
        ("operators", "Fully Connected", "Deconvolution", "Fully Connected -> Deconvolution"),
        ("delegation", "delegated", "portable", "left the delegate"),
        ("delegation", "portable", "delegated", "delegated now"),
        ("delegation", "delegated", "partly delegated", "delegated -> partly delegated"),
        ("count", "3", "1", "3 -> 1 operator"),
        ("layout", "NCHW", "NHWC", "layout NCHW -> NHWC"),
        ("kernels", "", "kai_sme2", "kernel - -> kai_sme2"),
        ("shape", "4 values", "8 values", "size 4 values -> 8 values"),
    ],
)
def test_every_aspect_has_its_words(what: What, before: str, after: str, said: str) -> None:
    assert change_words.aspect_text(Aspect(what, before, after)) == said


@pytest.mark.parametrize("most", [1, 3, 50])
def test_the_largest_changes_are_kept_in_few_parts_that_add_up(most: int) -> None:
    found = changes(network(6), [op._replace(ns=op.ns * 2) if "conv" in op.module else op for op in network(6)])
    kept = largest(found, most)
    assert len(kept.parts) == min(most, 6) + 1 and sum(part.parts for part in kept.parts) == len(found.parts)
    assert sum(module.parts for module in kept.modules) == len(found.parts)
    for name in ("before_ms", "after_ms", "difference_ms"):
        for rows in (kept.parts, kept.modules):
            assert sum(getattr(row, name) for row in rows) == pytest.approx(getattr(found, name))
    assert kept.told == [msgspec.structs.replace(p, before_rows=[], after_rows=[]) for p in found.told[:most]]
    *_, others, whole = change_words.difference_rows(kept, 3)
    assert others.name.endswith("other parts") and whole.name == "all of it"


def test_of_the_same_program_the_largest_changes_are_none() -> None:
    kept = largest(changes(network(3), network(3)))
    assert not kept.different and change_words.largest_sentence(kept) == ""
    assert "~ in all of the 10 parts" in change_words.unchanged_sentence(kept)
