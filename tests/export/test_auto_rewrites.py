"""`--rewrite auto`: what it becomes is recorded and makes the same program by name, and each choice has a reason."""

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import msgspec
import pytest

pytest.importorskip("executorch.exir")

import torch
from torch import nn

from model_profiling.analysis.movement.typical_prices import typical_ns
from model_profiling.analysis.sme2.kernel_table import KernelLookup
from model_profiling.base.rewrites import AUTO, REWRITES
from model_profiling.export.check.verification import execute_program
from model_profiling.export.in_memory import export_module
from model_profiling.export.lower.auto_rewrites import taken_from_sme2
from model_profiling.formats.pte import program as pte
from model_profiling.formats.pte.dataflow import DataFlow, data_flow
from tests.conftest import kit

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
    """A cumulative sum over `size` values: as a product with a constant that grows with its square."""

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
    shape = ["--input-shape", "1,3,32,32", "--dtype", dtype]
    done = kit("export", "net.py:Net", *shape, "--rewrite", "auto", "--outdir", "auto", "--json", cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    record = json.loads(done.stdout)["record"]
    names = record["request"]["rewrites"]
    assert names == sorted(choice["name"] for choice in record["auto"] if choice["applied"]) and AUTO not in names
    assert "keepdim" in names and ("silu" in names) == (dtype == "fp16")
    assert all(choice["reason"] for choice in record["auto"])
    assert record["request"]["command"].count("--rewrite") == len(names)
    by_name = [word for name in names for word in ("--rewrite", name)]
    assert kit("export", "net.py:Net", *shape, *by_name, "--outdir", "named", cwd=tmp_path).returncode == 0
    auto, named = (next((tmp_path / home).glob("*.pte")).read_bytes() for home in ("auto", "named"))
    assert auto == named
    again = kit("export", "net.py:Net", *shape, "--rewrite", "auto", "--outdir", "auto", cwd=tmp_path)
    assert "choose rewrites" not in again.stderr and "rewrites:" in again.stdout


def test_what_would_cost_time_is_left_out_and_says_so(tmp_path: Path) -> None:
    short = exported(Sums(), torch.randn(1, 8, 64), tmp_path / "short", dtype="fp32", rewrites=(AUTO,))
    long = exported(Sums(), torch.randn(1, 256, 64), tmp_path / "long", dtype="fp32", rewrites=(AUTO,))
    assert short.record.request.rewrites == ["cumsum"]
    assert long.record.request.rewrites == []
    (choice,) = long.record.auto
    assert (choice.name, choice.applied) == ("cumsum", False) and "times as long" in choice.reason
    # Who names it gets it.
    forced = exported(Sums(), torch.randn(1, 256, 64), tmp_path / "forced", dtype="fp32", rewrites=(AUTO, "cumsum"))
    assert forced.record.request.rewrites == ["cumsum"] and forced.record.auto == []
    assert typical_ns(flow_of(forced.paths.pte)) > typical_ns(flow_of(long.paths.pte))


def test_a_program_that_answers_wrong_with_them_is_exported_without(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    seen: list[list[str]] = []

    def first_wrong(paths: Any, record: Any, *rest: Any) -> Any:
        outcome = execute_program(paths, record, *rest)
        seen.append(record.request.rewrites)
        if record.request.rewrites:
            wrong = msgspec.structs.replace(outcome.verification, verdict="differs")
            return replace(outcome, verification=wrong)
        return outcome

    monkeypatch.setattr("model_profiling.export.exporter.execute_program", first_wrong)
    made = exported(Sums(), torch.randn(1, 8, 64), tmp_path, dtype="fp32", rewrites=(AUTO,))
    assert seen == [["cumsum"], []] and made.record.request.rewrites == []
    (choice,) = made.record.auto
    assert not choice.applied and "differ" in choice.reason
    assert made.record.verification.verdict == "agrees"


def test_where_there_is_nothing_to_choose_the_export_says_so(tmp_path: Path) -> None:
    made = exported(nn.Linear(8, 8), torch.randn(4, 8), tmp_path, dtype="fp32", rewrites=(AUTO,))
    assert made.record.request.rewrites == [] == made.record.auto
    assert any(f"--rewrite {AUTO} finds nothing more" in warning for warning in made.record.warnings)


def test_products_are_not_taken_from_sme2(tmp_path: Path) -> None:
    class Linear(nn.Module):  # type: ignore[misc]
        def __init__(self) -> None:
            super().__init__()
            self.mix = nn.Linear(32, 32)

        def forward(self, x: Any) -> Any:
            return self.mix(x)

    class Products(nn.Module):  # type: ignore[misc]
        def forward(self, x: Any) -> Any:
            return torch.bmm(x, x.transpose(1, 2))

    linear = flow_of(exported(Linear(), torch.randn(1, 32, 32), tmp_path / "a", dtype="fp32").paths.pte)
    products = flow_of(exported(Products(), torch.randn(1, 32, 32), tmp_path / "b", dtype="fp32").paths.pte)

    class OnlyLayers(KernelLookup):
        """A table in which fully connected layers alone have kernels of SME2."""

        def __init__(self) -> None:
            pass

        def find(self, kind: Any) -> Any:
            return type("Known", (), {"on_sme2": kind.op == "FullyConnected"})()

    assert taken_from_sme2(linear, products, OnlyLayers()) == 1.0
    assert taken_from_sme2(products, linear, OnlyLayers()) == 0.0 == taken_from_sme2(linear, linear, OnlyLayers())


def test_every_rewrite_can_be_chosen() -> None:
    from model_profiling.export.options import OPTIONS

    (row,) = [row for row in OPTIONS if row.name == "rewrites"]
    assert set(row.choices) == {*REWRITES, AUTO}
