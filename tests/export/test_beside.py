"""Whatever ExecuTorch exports, the kit does: regions with graphs of their own, and faults beside the program."""

import contextlib
import shutil
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("executorch.exir")

import torch
from torch import nn
from torch._higher_order_ops.associative_scan import associative_scan
from torch._higher_order_ops.map import map as mapped
from torch._higher_order_ops.scan import scan
from torch.utils.checkpoint import checkpoint

from model_profiling.base.errors import RunError
from model_profiling.export.in_memory import export_module

Region = Callable[["Net", torch.Tensor], Any]


class Net(nn.Module):  # type: ignore[misc]
    """A convolution whose pixels, as rows, go into a region and come back as channels."""

    def __init__(self, region: Region) -> None:
        super().__init__()
        self.first, self.linear, self.region = nn.Conv2d(3, 8, 3, padding=1), nn.Linear(8, 8), region

    def forward(self, image: torch.Tensor) -> Any:
        rows = self.first(image).relu().flatten(2).transpose(1, 2)
        found = self.region(self, rows)
        return found.transpose(-2, -1) if isinstance(found, torch.Tensor) else found


def autocast(net: Net, rows: torch.Tensor) -> torch.Tensor:
    with torch.autocast("cpu", enabled=False):
        return rows @ rows.transpose(1, 2)


def without_gradients(net: Net, rows: torch.Tensor) -> Any:
    with torch.no_grad():
        return net.linear(rows)


def with_gradients(net: Net, rows: torch.Tensor) -> Any:
    with torch.enable_grad():
        first = net.linear(rows)
        with torch.no_grad():
            second = torch.tanh(first)
        with torch.autocast("cpu", enabled=False):
            return first + second * 2.0


def nobody_reads(net: Net, rows: torch.Tensor) -> torch.Tensor:
    with torch.enable_grad():
        net.linear(rows)
    return rows + 1.0


REGIONS: dict[str, Region] = {
    "autocast": autocast,
    "no_grad": without_gradients,
    "enable_grad": with_gradients,
    "a region that nobody reads": nobody_reads,
    "cond": lambda net, rows: torch.cond(rows.sum() > 0, lambda x: x + 1.0, lambda x: torch.tanh(x) * 2.0, (rows,)),
    "map": lambda net, rows: mapped(lambda row: torch.relu(row) + 1.0, rows[0]),
    "scan": lambda net, rows: scan(lambda sum_, row: (sum_ * 0.5 + row, sum_ + row), torch.zeros(8), rows[0]),
    "associative_scan": lambda net, rows: associative_scan(torch.add, rows[0], 0, combine_mode="generic"),
    "vmap": lambda net, rows: torch.vmap(lambda row: row * 2.0 + row.sum())(rows[0]),
    "checkpoint": lambda net, rows: checkpoint(lambda x: net.linear(x).relu(), rows, use_reentrant=False),
}


def made(region: Region, home: Path, dtype: str = "fp32", **options: Any) -> Any:
    torch.manual_seed(0)
    return export_module(Net(region).eval(), torch.randn(1, 3, 8, 8), home, dtype=dtype, **options).record


WIDE = pytest.mark.wide
# One that is inlined, and one that nothing can write down.
FEW = ("autocast", "cond")


@pytest.mark.parametrize(
    "rewrites",
    [
        pytest.param((), id="as it is"),
        pytest.param(("auto",), id="auto", marks=[WIDE, pytest.mark.again]),
        pytest.param(("layout",), id="layout", marks=WIDE),
    ],
)
@pytest.mark.parametrize("name", [pytest.param(name, marks=[WIDE] * (name not in FEW)) for name in REGIONS])
def test_a_region_with_a_graph_of_its_own_is_exported(name: str, rewrites: tuple[str, ...], tmp_path: Path) -> None:
    record = made(REGIONS[name], tmp_path, rewrites=rewrites)
    assert record.verification.verdict == "agrees", record.verification
    # ExecuTorch has no way to write some of these graphs down; nothing else is left out.
    (left,) = [line for line in record.warnings if "Error" in line] or [""]
    assert bool(left) != any(name.endswith(".etrecord") for name in record.files)
    assert not left or (left.startswith("there is no ETRecord") and "SerializeError" in left and len(left) < 300)


@WIDE
@pytest.mark.parametrize("name", ["autocast", "enable_grad", "cond"])
@pytest.mark.parametrize("dtype", ["fp16", "int8"])
def test_regions_are_exported_in_other_dtypes(name: str, dtype: str, tmp_path: Path) -> None:
    assert made(REGIONS[name], tmp_path, dtype).verification.verdict == "agrees"


def test_outputs_that_numpy_has_no_dtype_for_are_not_compared_and_that_is_said(tmp_path: Path) -> None:
    record = made(lambda net, rows: rows.to(torch.bfloat16), tmp_path)
    assert record.verification.status == "verified" and "dtype" in record.verification.reason
    assert not record.verification.verdict and record.outputs[0].dtype == "bfloat16"


def fails(*_: Any, **__: Any) -> Any:
    raise RuntimeError("injected\nby a test")


@contextlib.contextmanager
def fails_inside() -> Iterator[None]:
    yield
    fails()


# What an export does beside the program, and what is said without it.
OPTIONAL = {
    "executorch.devtools.ETRecord.save": "there is no ETRecord",
    "model_profiling.export.rewrites.layout.find": "whether --rewrite layout would change something is not known",
    "model_profiling.export.exporter.find_sequence": "whether it is a language model is not known",
    "model_profiling.export.exporter.needless_lines": "which layout changes lowering could save is not known",
    "model_profiling.export.check.second_sample.execute_program": "the program was not executed",
    "model_profiling.export.prepare.samples.run_eagerly": "what the dtype alone costs is not known",
}


@pytest.fixture(scope="module")
def whole(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Any]:
    """An export from which nothing was left out, and its record."""
    home = tmp_path_factory.mktemp("whole")
    return home, made(without_gradients, home, "fp16")


@pytest.mark.parametrize("part", OPTIONAL)
def test_what_fails_beside_the_program_is_left_out_and_said(
    part: str, whole: tuple[Path, Any], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    home, earlier = whole
    shutil.copytree(home, tmp_path, dirs_exist_ok=True)
    assert not earlier.warnings
    monkeypatch.setattr(part, fails)
    record = made(without_gradients, tmp_path, "fp16")
    assert record.warnings == [next(line for line in record.warnings if line.startswith(OPTIONAL[part]))]
    assert record.warnings[0].endswith("(RuntimeError: injected)")
    executed = "execute_program" not in part
    assert record.verification.verdict == ("agrees" if executed else "")
    assert (tmp_path / "net_xnnpack_fp16.pte").is_file()
    # Of an earlier export nothing is left that could be taken for a part of this one.
    assert (tmp_path / "net_xnnpack_fp16.pte.etrecord").exists() == ("ETRecord" not in part)
    assert {path for path in earlier.files if "ETRecord" not in part or "etrecord" not in path} == set(record.files)


@pytest.mark.wide
def test_what_cannot_be_lowered_faster_is_lowered_in_the_stock_way(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("model_profiling.export.lower.lowering.faster_lowering", fails_inside)
    record = made(without_gradients, tmp_path)
    assert record.lowering == "stock: the faster way failed (RuntimeError: injected)"
    assert record.warnings == ["the faster lowering is left out (RuntimeError: injected)"]
    assert record.verification.verdict == "agrees"


def test_what_the_system_refuses_and_what_the_program_needs_is_an_error(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("model_profiling.export.lower.lowering.list_nodes", fails)
    with pytest.raises(RunError, match="injected"):
        made(without_gradients, tmp_path)
    assert not list(tmp_path.glob("*.pte"))
