"""`--rewrite auto`: what it becomes is recorded and makes the same program by name, and each choice has a reason."""

from dataclasses import replace
from pathlib import Path
from typing import Any

import hypothesis.strategies as st
import msgspec
import pytest
from hypothesis import given, settings

pytest.importorskip("executorch.exir")

import torch
from torch import nn

from model_profiling.analysis.sme2.kernel_table import KernelTable, known_table, node_kind
from model_profiling.base.rewrites import AUTO
from model_profiling.cli.export import as_text
from model_profiling.export.cache import cached
from model_profiling.export.check.verification import execute_program
from model_profiling.export.exporter import ExportRequest, export
from model_profiling.export.in_memory import export_module
from model_profiling.export.lower.auto_rewrites import program_counts, taken_from_sme2
from model_profiling.export.lower.lowering import lower
from model_profiling.formats import pte
from model_profiling.formats.pte.dataflow import DataFlow, data_flow
from model_profiling.models.loading import load_model
from model_profiling.models.options import LoadOptions, input_spec
from model_profiling.upstream.reliance import installed_version
from tests.conftest import ROOT, SAMPLED
from tests.helpers.random_layouts import random_network

MODEL = """import torch
from torch import nn


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.stem, self.norm = nn.Conv2d(3, 16, 3, 2, 1), nn.LayerNorm(16)
        self.mix, self.head = nn.Linear(16, 16), nn.Linear(16, 4)

    def forward(self, x):
        y = nn.functional.silu(self.stem(x)).permute(0, 2, 3, 1)
        return self.head(self.mix(self.norm(y)).permute(0, 3, 1, 2).mean((2, 3)))
"""


class Sums(nn.Module):  # type: ignore[misc]
    """A cumulative sum: as a product with a constant it is transposed before and after."""

    def __init__(self) -> None:
        super().__init__()
        self.mix = nn.Linear(64, 64)

    def forward(self, x: Any) -> Any:
        return self.mix(torch.cumsum(x, 1))


def flow_of(path: Path) -> DataFlow:
    program = pte.parse_own(path)
    assert program is not None
    flow = data_flow(program, program.methods[0])
    assert flow is not None
    return flow


def exported(module: Any, example: Any, home: Path, **options: Any) -> Any:
    torch.manual_seed(0)
    return export_module(module.eval(), example, home, **options)


@pytest.mark.parametrize(
    "dtype",
    [
        pytest.param("fp16", marks=pytest.mark.wide),
        *(pytest.param(dtype, marks=[pytest.mark.wide, pytest.mark.again]) for dtype in ("fp32", "int8")),
    ],
)
def test_it_is_the_export_with_the_names_that_it_became(dtype: str, tmp_path: Path) -> None:
    (tmp_path / "net.py").write_text(MODEL)
    options = LoadOptions((input_spec("1,3,32,32"),))
    asked = ExportRequest(
        "net", tmp_path / "auto", dtype, rewrites=(AUTO,), target=f"{tmp_path / 'net.py'}:Net", options=options
    )
    auto = export(asked)
    record = auto.record
    assert record.request is not None
    names = record.request.rewrites
    assert names == sorted(choice.name for choice in record.auto if choice.applied) and AUTO not in names
    assert "norm" in names and ("silu" in names) == (dtype == "fp16")
    assert all(choice.reason for choice in record.auto)
    assert record.request.command.count("--rewrite") == len(names)
    named = export(replace(asked, outdir=tmp_path / "named", rewrites=tuple(names)))
    assert auto.paths.pte.read_bytes() == named.paths.pte.read_bytes()
    again = cached(asked)
    assert again is not None and again.record == record and "rewrites:" in as_text(again)


class Pooled(nn.Module):  # type: ignore[misc]
    """A mean over pixels, which XNNPACK takes in another form."""

    def __init__(self) -> None:
        super().__init__()
        self.conv, self.head = nn.Conv2d(3, 16, 3), nn.Linear(16, 4)

    def forward(self, x: Any) -> Any:
        return self.head(self.conv(x).mean((2, 3)))


def test_what_would_add_to_the_program_is_left_out_and_says_so(tmp_path: Path) -> None:
    x = torch.randn(1, 8, 64)
    auto = exported(Sums(), x, tmp_path / "auto", dtype="fp32", rewrites=(AUTO,))
    (choice,) = auto.record.auto
    assert (choice.name, choice.applied) == ("cumsum", False) and choice.reason == "would add 4.1 kB moved"
    assert auto.record.request.rewrites == []
    # Who names it gets it.
    named = exported(Sums(), x, tmp_path / "named", dtype="fp32", rewrites=(AUTO, "cumsum"))
    assert named.record.request.rewrites == ["cumsum"] and named.record.auto == []
    before, after = (program_counts(flow_of(made.paths.pte)) for made in (auto, named))
    assert after.outside < before.outside and after.moved > before.moved


def check_auto(network: Any, inputs: Any, dtype: str, home: Path) -> None:
    """Whatever the network: none of the counts is larger than without, what was chosen makes one smaller, and it
    answers the same."""
    stock = exported(network, inputs, home / "stock", dtype=dtype)
    auto = exported(network, inputs, home / "auto", dtype=dtype, rewrites=(AUTO,))
    before, after = (program_counts(flow_of(made.paths.pte)) for made in (stock, auto))
    assert all(b <= a for a, b in zip(before, after, strict=True)), auto.record.auto
    assert (before != after) == bool(auto.record.request.rewrites)
    assert {choice.name for choice in auto.record.auto if choice.applied} == set(auto.record.request.rewrites)
    assert stock.record.verification.verdict == auto.record.verification.verdict == "agrees"
    table = known_table(installed_version("executorch"))
    assert table is None or not taken_from_sme2(flow_of(stock.paths.pte), flow_of(auto.paths.pte), table)


@settings(max_examples=1 if SAMPLED else 8, deadline=None, derandomize=True)
@given(
    st.lists(st.integers(0, 10**6), min_size=3, max_size=8),
    st.sampled_from([(1, 4, 6, 8), (2, 3, 8, 8)]),
    st.sampled_from(["fp32", "fp16"]),
)
def test_random_networks_never_have_more_of_anything_with_it(
    tmp_path_factory: pytest.TempPathFactory, numbers: list[int], shape: tuple[int, ...], dtype: str
) -> None:
    check_auto(*random_network(numbers, shape), dtype, tmp_path_factory.mktemp("random"))


@pytest.mark.wide
@pytest.mark.again
@pytest.mark.parametrize("name", ["Many", "Means", "Scaled", "Pyramid", "Lookups", "Attending"])
def test_networks_with_much_to_rewrite_never_have_more_of_anything_with_it(name: str, tmp_path: Path) -> None:
    loaded = load_model(f"{ROOT / 'tests' / 'helpers' / 'advice_nets.py'}:{name}", 0, LoadOptions())
    check_auto(loaded.module, loaded.call[0], "fp32", tmp_path)


def test_each_rewrite_is_lowered_once_and_the_chosen_program_not_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    lowered: list[Any] = []

    def counted(*args: Any, **options: Any) -> Any:
        lowered.append(args)
        return lower(*args, **options)

    for place in ("auto_rewrites", "capture_and_lower"):
        monkeypatch.setattr(f"model_profiling.export.lower.{place}.lower", counted)
    made = exported(Pooled(), torch.randn(3, 3, 12, 12), tmp_path, dtype="fp32", rewrites=(AUTO,))
    assert made.record.request.rewrites == ["keepdim"]
    assert len(lowered) == 2, "as it is and with the one rewrite that finds something"


class Scaled(Pooled):
    """A number between two convolutions, too: images are turned for it."""

    def __init__(self) -> None:
        super().__init__()
        self.first = nn.Conv2d(3, 3, 3, padding=1)

    def forward(self, x: Any) -> Any:
        return super().forward(self.first(x) * 2.0)


def test_a_rewrite_with_which_a_program_answers_wrong_is_left_out_and_the_others_stay(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    seen: list[list[str]] = []

    def wrong_with_layout(paths: Any, record: Any, *rest: Any) -> Any:
        outcome = execute_program(paths, record, *rest)
        seen.append(record.request.rewrites)
        if "layout" in record.request.rewrites:
            return replace(outcome, verification=msgspec.structs.replace(outcome.verification, verdict="differs"))
        return outcome

    monkeypatch.setattr("model_profiling.export.exporter.execute_program", wrong_with_layout)
    made = exported(Scaled(), torch.randn(1, 3, 12, 12), tmp_path, dtype="fp32", rewrites=(AUTO,))
    # The second time on other inputs, too.
    assert seen == [["keepdim", "layout"], ["keepdim"], ["keepdim"]] == [*seen[:1], *[made.record.request.rewrites] * 2]
    kept, wrong = made.record.auto
    assert kept.applied and not wrong.applied and "differ" in wrong.reason
    assert made.record.verification.verdict == "agrees"


def test_where_there_is_nothing_to_choose_the_export_says_so(tmp_path: Path) -> None:
    made = exported(nn.Linear(8, 8), torch.randn(4, 8), tmp_path, dtype="fp32", rewrites=(AUTO,))
    assert made.record.request.rewrites == [] == made.record.auto
    assert any(f"--rewrite {AUTO} finds nothing more" in warning for warning in made.record.warnings)


class OnlyLayers(KernelTable, frozen=True):
    """A table in which fully connected layers alone have kernels of SME2."""

    def find(self, kind: Any) -> Any:
        return type("Known", (), {"on_sme2": kind.op == "FullyConnected"})()


def test_products_are_not_taken_from_sme2(tmp_path: Path) -> None:
    class Products(nn.Module):  # type: ignore[misc]
        """A linear layer and a product of as much work, in two sizes."""

        def __init__(self) -> None:
            super().__init__()
            self.small, self.wide = nn.Linear(32, 32), nn.Linear(48, 48)

        def forward(self, x: Any, y: Any) -> Any:
            return self.small(x), torch.bmm(x, x.mT), self.wide(y), torch.bmm(y, y.mT)

    x, y = torch.randn(1, 32, 32), torch.randn(1, 48, 48)
    steps = flow_of(exported(Products(), (x, y), tmp_path, dtype="fp32").paths.pte).steps
    work = [(step, step.node.multiply_accumulates) for step in steps if step.node is not None and node_kind(step.node)]
    small, wide = ([step for step, count in work if count == size**3] for size in (32, 48))
    (linear, products), (wide_linear, wide_products) = (
        sorted(pair, key=lambda step: not step.op.startswith("FullyConnected")) for pair in (small, wide)
    )

    def taken(before: list[Any], after: list[Any]) -> float:
        return taken_from_sme2(
            DataFlow(tuple(before), (), True), DataFlow(tuple(after), (), True), OnlyLayers("", "", [])
        )

    assert taken([linear], [products]) == 1.0
    # What one operator gains does not make up for another that loses.
    assert 0 < taken([linear, wide_products], [products, wide_linear]) < 1
    assert taken([products], [linear]) == 0.0 == taken([linear], [linear])
