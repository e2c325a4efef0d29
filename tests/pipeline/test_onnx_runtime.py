"""One network in ExecuTorch and in ONNX Runtime, compared by module and line. Nothing is said of times: these tests run
beside others."""

import importlib.util
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import pytest

from model_profiling.analysis.compare.onnx_profile import classify, onnx_side
from model_profiling.analysis.compare.program_changes import PartChange, ProgramChanges, program_changes
from model_profiling.analysis.run.selection import choose
from tests.conftest import ROOT, kit, needs
from tests.helpers.waiting import LONGEST_S

pytestmark = pytest.mark.wide
# With and without convolutions in a layout of ONNX Runtime's own.
LEVELS = ("ORT_ENABLE_ALL", "ORT_ENABLE_EXTENDED")
NET = """
import torch
import torch.nn.functional as F
from torch import nn


class Block(nn.Module):
    def __init__(self, width):
        super().__init__()
        self.depthwise = nn.Conv2d(width, width, 3, padding=1, groups=width)
        self.norm = nn.BatchNorm2d(width)
        self.pointwise = nn.Conv2d(width, width, 1)

    def forward(self, x):
        y = self.depthwise(x)
        y = self.norm(y)
        y = F.relu(y)
        return x + F.hardswish(self.pointwise(y))


class Attention(nn.Module):
    def __init__(self, width):
        super().__init__()
        self.norm, self.both, self.out = nn.LayerNorm(width), nn.Linear(width, 2 * width), nn.Linear(width, width)

    def forward(self, x):
        y = self.both(self.norm(x))
        weights = torch.softmax(torch.matmul(y, y.transpose(1, 2)), dim=-1)
        return x + self.out(torch.matmul(weights, x))


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.stem = nn.Conv2d(3, 16, 3, stride=2, padding=1)
        self.blocks = nn.Sequential(Block(16), Block(16))
        self.attention, self.head = Attention(16), nn.Linear(16, 10)

    def get_example_inputs(self):
        return (torch.randn(1, 3, 64, 64),)

    def forward(self, image):
        x = F.gelu(self.stem(image))
        x = self.blocks(x)
        x = F.interpolate(x, scale_factor=2.0, mode="bilinear", align_corners=False)
        x = F.max_pool2d(x, 4)
        x = x.flatten(2).transpose(1, 2)
        x = self.attention(x)
        x = x.mean(dim=1)
        return self.head(x)
"""


def installed(*names: str) -> bool:
    return all(importlib.util.find_spec(name) is not None for name in names)


@pytest.fixture(scope="module")
def home(tmp_path_factory: pytest.TempPathFactory) -> Path:
    needs(installed("onnx", "onnxscript", "onnxruntime"), "onnxruntime")
    home = tmp_path_factory.mktemp("runtimes")
    (home / "net.py").write_text(NET)
    for words in (
        ("export", home / "net.py:Net", "--dtype", "fp32", "--outdir", home / "pte"),
        ("run", home / "pte" / "net_xnnpack_fp32.pte", "--launches", 6, "--runs", 12, "--outdir", home / "run"),
    ):
        done = kit(*words)
        assert done.returncode == 0, done.stderr
    script = ROOT / "tests" / "helpers" / "ort_profile.py"
    command = [sys.executable, str(script), str(home / "net.py"), str(home), "6", "3", *LEVELS]
    done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=LONGEST_S)
    assert done.returncode == 0, done.stderr
    return home


def compared(home: Path, level: str, optimized: bool) -> ProgramChanges:
    folder, profiles = home / level, sorted((home / level).glob("launch-*.json"))
    before = replace(next(iter(choose(str(home / "run")).values())), name="executorch").profiled()
    made = folder / "optimized.onnx" if optimized else None
    after = onnx_side("onnxruntime", folder / "net.onnx", profiles, made)
    assert not before.unlinked and not after.unlinked
    assert len(after.profile.launches) == 6 and after.profile.executions == 18
    return program_changes(before, after, False)


@pytest.mark.parametrize(
    ("level", "optimized"),
    [(LEVELS[0], True), *(pytest.param(level, False, marks=pytest.mark.again) for level in LEVELS[1:])],
)
def test_both_are_compared_by_module_and_line(home: Path, level: str, optimized: bool) -> None:
    found = compared(home, level, optimized)
    for entries in (found.parts, found.modules):
        for name in ("before_ms", "after_ms"):
            assert sum(getattr(entry, name) for entry in entries) == pytest.approx(getattr(found, name), rel=1e-6)
    assert not found.notes and all(part.low_ms is not None for part in found.parts)
    by_module: dict[str, list[PartChange]] = {}
    for part in found.parts:
        by_module.setdefault(part.module, []).append(part)
    # What has weights is found in both, fused or not, and is the same kind of work.
    layers = [f"blocks.{n}.{name}" for n in (0, 1) for name in ("depthwise", "pointwise")]
    for module in ("stem", *layers, "attention.norm", "attention.both", "attention.out", "head"):
        assert any(part.before_rows and part.after_rows for part in by_module[module]), (module, found.parts)
    for code in ("F.interpolate", "F.max_pool2d", "x.mean", "torch.softmax"):
        assert any(code in part.code and part.matched == "line" for part in found.parts), (code, found.parts)
    alone = [part for part in found.parts if part.matched == "only before"]
    assert sum(len(part.before_rows) for part in alone) < 0.2 * sum(len(part.before_rows) for part in found.parts), (
        alone
    )
    assert not [aspect for part in found.parts for aspect in part.aspects if aspect.what == "delegation"]


def test_every_operator_type_of_onnx_is_in_the_table_or_is_rare() -> None:
    """What the table leaves out is sequences, optionals, texts, images and losses, which are no work of a network."""
    needs(installed("onnx"), "onnx")
    from onnx import defs

    types = {schema.name for schema in defs.get_all_schemas_with_history() if not schema.domain}
    left_out = {name for name in types if not classify(name).known}
    rare = ("Sequence", "Optional", "String", "Loss", "Image", "Regex", "TfIdf", "Det")
    assert {name for name in left_out if not any(word in name for word in rare)} == set()
    assert all(classify(name).category == "Other" for name in left_out)
