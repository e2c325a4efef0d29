"""check tells which transposes and copies an export needs and why, and how many a rewrite would remove."""

from collections.abc import Callable
from pathlib import Path

import pytest

pytest.importorskip("executorch.exir")

from model_profiling.analysis.movement.layout_reasons import LayoutReasons, MoveGroup
from model_profiling.cli.check import layout_lines
from model_profiling.export.exporter import ExportRequest
from model_profiling.export.lower.delegation_preview import DelegationPreview, preview
from tests.conftest import ROOT

NETS = ROOT / "tests" / "helpers" / "layout_nets.py"
Checking = Callable[..., DelegationPreview]


@pytest.fixture(scope="module")
def checked() -> Checking:
    """Check a network, once in each way."""
    known: dict[tuple[str, tuple[str, ...], str], DelegationPreview] = {}

    def check(name: str, *rewrites: str, io_layout: str = "contiguous") -> DelegationPreview:
        way = (name, rewrites, io_layout)
        if way not in known:
            target = f"{NETS}:{name}"
            request = ExportRequest(name, Path(), target=target, rewrites=rewrites, io_layout=io_layout, dtype="fp32")
            known[way] = preview(request, lambda stage: None)
        return known[way]

    return check


def line_of(text: str) -> str:
    """The line of the networks that has this text, as check names it."""
    number = next(n for n, line in enumerate(NETS.read_text().splitlines(), 1) if text in line)
    return f"tests/helpers/layout_nets.py:{number}"


def about(found: LayoutReasons, word: str) -> list[MoveGroup]:
    return [group for group in found.transposes if word in group.reason]


_ALIKE = [pytest.param(name, marks=pytest.mark.again) for name in ("Joined", "Between", "Pixels", "Windows")]


@pytest.mark.wide
@pytest.mark.parametrize("name", ["Scaled", "Ranked", "Heads", *_ALIKE])
def test_as_many_transposes_go_as_was_predicted(checked: Checking, name: str) -> None:
    before, after = checked(name).layout, checked(name, "layout").layout
    assert before.removable is not None and after.removable is None
    removed = before.count - after.count
    assert before.removable == max(0, removed)
    for found in (before, after):
        # Each is one input's, one output's, or has a line of the model, and a size.
        assert all(group.bytes and group.lines and group.reason for group in found.transposes)


@pytest.mark.wide
def test_what_is_left_is_explained(checked: Checking) -> None:
    scaled = checked("Scaled", "layout").layout
    assert [group.count for group in scaled.transposes] == [1, 1] and not scaled.copies
    assert all("--io-layout channels_last" in group.hint for group in scaled.transposes)
    assert not checked("Scaled", "layout", io_layout="channels_last").layout.transposes

    heads = checked("Heads", "layout").layout
    assert sum(group.count for group in about(heads, "matrix multiplication")) == heads.count - 2
    merged = {line_of("torch.matmul(weights, q).transpose(1, 2)"), line_of("y.transpose(1, 2).reshape")}
    assert set(about(heads, "after a matrix multiplication")[0].lines) <= merged

    ranked = checked("Ranked", "layout").layout
    around = about(ranked, "aten.topk is not delegated")
    assert sum(group.count for group in around) == ranked.count - 2
    assert all(group.lines == [line_of("torch.topk")] for group in around)


def test_an_operator_outside_the_delegate_is_the_reason_even_if_it_minds_no_order(checked: Checking) -> None:
    found = about(checked("Between").layout, "aten.erf is not delegated")
    assert sum(group.count for group in found) == 2


def test_copies_are_listed_by_kind_with_their_size_and_line(checked: Checking) -> None:
    found = {group.reason: group for group in checked("Joined", "layout").layout.copies}
    assert {kind: group.count for kind, group in found.items()} == {"slice": 2, "concatenation": 1, "padding": 1}
    assert found["concatenation"].bytes == 8 * 8 * 8 * 4
    assert found["padding"].lines == [line_of("functional.pad(x")]


def test_check_says_it_in_words(checked: Checking) -> None:
    text = "\n".join(layout_lines(checked("Scaled").layout))
    assert "transposes: 4, " in text and "--rewrite layout removes 2 of them" in text
    assert line_of("* 2.0") in text
    assert "layout removes" not in "\n".join(layout_lines(checked("Scaled", "layout").layout))
