"""The table of known kernels says what an emulated CPU runs, of networks that it was not made from; else "unknown"."""

import json
import random
from pathlib import Path

import msgspec
import pytest
import torch
from torch import Tensor, nn
from torch.nn import functional

pytest.importorskip("executorch.exir")

import sme2_kit
from model_profiling.analysis.run.run_forecasts import table_differences, traced_operators
from model_profiling.analysis.sme2 import kernel_table
from model_profiling.analysis.sme2.coverage import known_coverage
from model_profiling.analysis.sme2.kernel_table import (
    KernelTable,
    MatrixNode,
    known_table,
    shipped_tables,
)
from model_profiling.analysis.sme2.target import Target, read_target
from model_profiling.base import files
from model_profiling.base.dtypes import NAMES
from model_profiling.base.errors import InputError
from tests.conftest import ROOT, needs_emulator

TABLES = ROOT / "model_profiling" / "kernel_tables"
CASES = [("fp32", 1), ("fp16", 4), ("int8", 3)]
OTHERS = [(dtype, seed) for seed in range(4, 7) for dtype in NAMES if (dtype, seed) not in CASES]
POINTWISE = MatrixNode("Conv2d", "fp16", "fp32", "fp16", "pointwise", "several")
DEPTHWISE = MatrixNode("DepthwiseConv2d", "fp32", "fp32", "fp32", "", "several")
WIDE = [pytest.mark.wide, pytest.mark.again]


class RandomNetwork(nn.Module):  # type: ignore[misc]
    """Convolutions of any kind on an image, then attention and linear layers on its positions, then one row."""

    def __init__(self, seed: int) -> None:
        super().__init__()
        torch.manual_seed(seed)
        pick = random.Random(seed)
        self.image, channels = nn.ModuleList(), 3
        for _ in range(pick.randint(4, 6)):
            layer, channels = _convolution(pick, channels)
            self.image.append(layer)
        self.inner = pick.choice((32, 64, 96))
        self.narrow = nn.Conv2d(channels, self.inner, 1, bias=pick.random() < 0.5)
        self.query, self.key = (nn.Linear(self.inner, self.inner, bias=pick.random() < 0.5) for _ in range(2))
        self.mix = nn.Parameter(torch.randn(1, self.inner, pick.choice((3, 8, 33))))
        self.head = nn.Linear(self.mix.shape[-1], pick.choice((1, 2, 10)))
        self.heads = pick.choice((1, 2, 4))

    def forward(self, x: Tensor) -> Tensor:
        for layer in self.image:
            x = functional.relu(layer(x))
        rows = self.narrow(x).flatten(2).transpose(1, 2)
        size = (1, -1, self.heads, self.inner // self.heads)
        query, key = (side(rows).view(size).transpose(1, 2) for side in (self.query, self.key))
        rows = (torch.softmax(query @ key.transpose(2, 3), -1) @ query).transpose(1, 2).flatten(2)
        return self.head(torch.bmm(rows, self.mix).mean(1))


def _convolution(pick: random.Random, channels: int) -> tuple[nn.Module, int]:
    out, bias = pick.choice((1, 2, 5, 8, 12, 16, 31, 48)), pick.random() < 0.7
    size = pick.choice((1, 1, 2, 3, 3, 5))
    match pick.choice(("plain", "plain", "plain", "depthwise", "grouped", "transposed")):
        case "depthwise":
            return nn.Conv2d(channels, channels, 3, padding=1, groups=channels, bias=bias), channels
        case "grouped" if channels % 2 == 0:
            return nn.Conv2d(channels, 2 * out, size, padding=size // 2, groups=2, bias=bias), 2 * out
        case "transposed":
            return nn.ConvTranspose2d(channels, out, 2, stride=pick.choice((1, 2)), bias=bias), out
    stride, padding = pick.choice((1, 1, 2)), pick.choice((size // 2, size // 2, size))
    return nn.Conv2d(channels, out, size, stride=stride, padding=padding, bias=bias), out


@pytest.mark.wide
@pytest.mark.parametrize(
    ("dtype", "seed"),
    [
        CASES[0],
        *(pytest.param(*case, marks=pytest.mark.wide) for case in CASES[1:]),
        *(pytest.param(*case, marks=WIDE) for case in OTHERS),
    ],
    ids=str,
)
def test_it_says_what_an_emulated_cpu_runs(dtype: str, seed: int, tmp_path: Path) -> None:
    needs_emulator()
    network = RandomNetwork(seed).eval()
    made = sme2_kit.export(network, torch.randn(1, 3, 12, 12), dtype=dtype, out=tmp_path / "made", name="any")
    run = sme2_kit.kernels(made, out=tmp_path / "run")
    found = table_differences(run)
    assert [entry for entry in found if entry.state == "differs"] == []
    assert len(found) <= 0.05 * traced_operators(run), found


def test_it_is_of_every_version_that_is_tested_and_has_every_dtype() -> None:
    assert {"1.5.0", "1.5.1"} <= set(shipped_tables())
    for version in shipped_tables():
        table = files.read_json(TABLES / f"{version}.json", KernelTable, "kernel table")
        assert table.executorch == version
        assert {dtype for row in table.rows for dtype in row.dtypes} == set(NAMES)
        nodes = [row.node for row in table.rows]
        assert nodes == sorted(set(nodes))
        for row in table.rows:
            assert all("_sme2_" in kernel or kernel in row.neon for kernel in row.sme2)
            assert all("_sme_" in kernel or kernel in row.neon for kernel in row.sme1)
            assert all("_neon" in kernel for kernel in row.neon)


def test_what_it_does_not_have_is_unknown_and_never_without_a_kernel(tmp_path: Path) -> None:
    made = sme2_kit.export(nn.Linear(8, 8).eval(), torch.randn(4, 8), dtype="fp32", out=tmp_path, name="one")
    run = sme2_kit.run(made, runs=3, launches=1, out=tmp_path / "run")
    assert [(answer.on_sme2, answer.not_known) for answer in run.sme2] == [(1, 0)]
    instances = run.summary.experiments[run.sme2[0].experiment].breakdown.instances
    for table in (kernel_table.why_no_table("9.9.9"), KernelTable("1.5.1", "", [])):
        covered = known_coverage(instances, table, made.paths.pte, "fp32")
        assert covered.on_sme2 is None and covered.unknown and covered.operators[0].level == "unknown"
        assert (kernel_table.MAKE in covered.unknown) == isinstance(table, str)
    made.paths.pte.write_bytes(b"another program")
    (answer,) = sme2_kit.open_run(run.path).sme2
    assert answer.on_sme2 is None and "has changed" in answer.unknown and answer.forecast is None


def test_a_dtype_that_has_a_kernel_is_named_where_this_one_has_none() -> None:
    table = known_table("1.5.1")
    assert table is not None
    row = table.find(POINTWISE)
    assert row is not None and not row.sme2
    assert {"fp32", "int8"} <= set(table.dtypes_with_sme2(POINTWISE))
    assert table.find(DEPTHWISE) is not None and not table.dtypes_with_sme2(DEPTHWISE)


def test_a_users_table_counts_first_and_a_wrong_one_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SME2_KIT_CACHE", str(tmp_path))
    own = KernelTable("1.5.1", "an emulator", [])
    files.write_json(kernel_table.table_path("1.5.1"), own)
    found = known_table("1.5.1")
    assert found is not None and found.find(MatrixNode("Conv2d", "fp32", "fp32", "fp32", "window", "several")) is None
    files.write_json(kernel_table.table_path("1.5.0"), own)
    with pytest.raises(InputError, match="is of ExecuTorch"):
        known_table("1.5.0")
    assert known_table("../1.5.1") is None and known_table("") is None


class Depthwise(nn.Module):  # type: ignore[misc]
    def __init__(self) -> None:
        super().__init__()
        self.layer = nn.Conv2d(8, 8, 3, groups=8)

    def forward(self, x: Tensor) -> Tensor:
        return self.layer(x).relu()


@pytest.mark.parametrize("dtype", ["fp32", "fp16", "int8"])
def test_a_network_without_any_sme2_kernel_is_predicted_at_one(dtype: str, tmp_path: Path) -> None:
    made = sme2_kit.export(Depthwise().eval(), torch.randn(1, 8, 9, 9), dtype=dtype, out=tmp_path, name="none")
    run = sme2_kit.run(made, runs=3, launches=1, out=tmp_path / "run")
    (answer,) = run.sme2
    assert (answer.eligible, answer.on_sme2, answer.work_on_sme2) == (1, 0, 0)
    assert answer.forecast is not None and answer.forecast.speedups == [1.0]
    assert "depthwise" in answer.without[0].why and not answer.without[0].change


def test_a_node_is_described_in_words_and_one_channel_is_not_called_depthwise() -> None:
    assert POINTWISE.words() == "1x1 convolution in fp16"
    assert msgspec.structs.replace(POINTWISE, op="FullyConnected", activations="qdint8", form="").words() == (
        "fully connected layer in int8 with activations quantized as it runs"
    )
    assert DEPTHWISE.words() == "depthwise convolution in fp32"
    assert DEPTHWISE.words(one_channel=True) == "convolution in fp32 of one input channel"


def test_why_there_is_no_kernel_is_data_of_each_version() -> None:
    """What XNNPACK does not use is said of XNNPACK, with what is known of that version; and nothing of another one."""
    for version in shipped_tables():
        table = known_table(version)
        assert table is not None
        assert "KleidiAI has one for 3x3" in table.why_unused(DEPTHWISE)
        groupwise = MatrixNode("FullyConnected", "qdint8", "qbint4", "fp32", "", "one")
        assert "KleidiAI has one" in table.why_unused(groupwise)
        assert table.why_unused(msgspec.structs.replace(DEPTHWISE, op="ConvTranspose2d")) == ""
    assert KernelTable("9.9.9", "", []).why_unused(DEPTHWISE) == ""


def test_a_cpu_with_sme_alone_runs_other_kernels(tmp_path: Path) -> None:
    """What has an SME2 kernel has one of SME as well, and a target may be of a CPU that has no other."""
    for version in shipped_tables():
        rows = json.loads((TABLES / f"{version}.json").read_text())["rows"]
        for row in rows:
            assert any("_sme2_" in name for name in row["sme2"]) == any("_sme_" in name for name in row["sme1"])
    target = read_target("apple_m4")
    assert isinstance(target, Target)
    files.write_json(tmp_path / "sme1.json", msgspec.structs.replace(target, name="sme1", level="sme1"))
    assert read_target(tmp_path / "sme1.json").level == "sme1"
