"""`--io-layout channels_last`: what is turned around at the program's border only for the caller no longer is."""

import shutil
import subprocess
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("executorch.exir")

import torch
from torch import nn
from torch.nn import functional

from model_profiling.analysis.accuracy.agreement import agreement_of, expected_outputs, read_outputs
from model_profiling.analysis.run.run_view import RunView
from model_profiling.base import files
from model_profiling.cli.export import as_text
from model_profiling.export.in_memory import export_module
from model_profiling.export.request import ExportResult
from model_profiling.formats import pte
from model_profiling.formats.pte.borders import changed_inputs, changes_layout, outputs_to_nchw
from model_profiling.formats.pte.dataflow import DataFlow, data_flow
from model_profiling.pipeline.pipeline import sample_inputs
from model_profiling.report.blocks import Table
from model_profiling.report.content import method
from model_profiling.store.artifacts import ExportMeta, TensorFile
from tests.conftest import ROOT
from tests.helpers.in_process import verify

CHANNELS_LAST = [0, 2, 3, 1]


class Net(nn.Module):  # type: ignore[misc]
    """Layers to use."""

    def __init__(self) -> None:
        super().__init__()
        self.first = nn.Conv2d(3, 8, 3, padding=1)
        self.second = nn.Conv2d(8, 8, 3, padding=1)
        self.third = nn.Conv2d(8, 8, 1)
        self.linear = nn.Linear(8, 8)


class Single(Net):
    """Graphs rename what is called like a builtin."""

    def forward(self, input: Any) -> Any:
        return self.first(input)


class Sized(Single):
    """Exported for several batches and heights; the runner feeds the largest."""


class Quantized(Net):
    """Every result is XNNPACK's own, in NHWC; one is used inside too.

    No operator in float reads a result: ExecuTorch 1.5.1 gives it the caller's layout, and computes wrongly.
    """

    def forward(self, image: Any) -> Any:
        x = torch.relu(self.first(image))
        y = self.second(x)
        return x, torch.cat([x, y], 1), functional.max_pool2d(y, 2)


class Turned(Net):
    """More of them, and one is returned twice."""

    def forward(self, image: Any) -> Any:
        x = torch.relu(self.first(image))
        y = self.second(x)
        return x, x + y, torch.cat([x, y], 1), functional.interpolate(y, scale_factor=2, mode="bilinear"), y, y


class Mixed(Net):
    """One result of each kind that gains nothing in channels-last, and one that gains: the last."""

    def forward(self, image: Any, other: Any) -> Any:
        x = torch.relu(self.first(image))
        y = self.second(x)
        flat = self.linear(y.permute(0, 2, 3, 1)).reshape(2, 8, 4, 16)
        one, pixel = y[:, :1], functional.adaptive_avg_pool2d(y, 1)
        return other, torch.cumsum(x, 1), flat, one, pixel, y.flatten(1), self.third(y)


class Shared(Net):
    """Quantized, the first result has a transpose for the caller alone, which lowering moves and does not remove."""

    def forward(self, image: Any) -> Any:
        y = self.first(image)
        return y, y.mean((2, 3)), self.third(y)


class Plain(Net):
    """Nothing has a layout that another could be better than."""

    def forward(self, image: Any) -> Any:
        return image * 2.0 + 1.0


MADE = [
    (Turned, "fp32"),
    (Mixed, "fp32"),
    *(pytest.param(case, marks=pytest.mark.wide) for case in ((Quantized, "int8"), (Sized, "fp16"), (Shared, "int8"))),
]
# Those of which not every input and output gains.
WANTED = {"mixed": ["input 0", "output 6"], "shared": ["input 0", "output 2"]}


def made(net: type[Net], home: Path, **options: Any) -> ExportResult:
    torch.manual_seed(0)
    inputs = tuple(torch.randn(2, 3, 8, 8) for _ in range(2 if net is Mixed else 1))
    if net is Sized:
        dim = torch.export.Dim
        options["dynamic_shapes"] = ({0: dim("batch", min=1, max=2), 2: dim("height", min=4, max=8)},)
    return export_module(net(), inputs, home, **{"io_layout": "channels_last", "dtype": "fp32", **options})


@pytest.fixture(scope="module", params=MADE, ids=lambda case: f"{case[0].__name__}-{case[1]}")
def offered(request: Any, tmp_path_factory: pytest.TempPathFactory) -> ExportResult:
    """Each network in its dtypes, with the option."""
    net, dtype = request.param
    return made(net, tmp_path_factory.mktemp("io_layout"), dtype=dtype)


def flow_of(result: ExportResult) -> DataFlow:
    program = pte.read(result.paths.pte)
    flow = data_flow(program, program.methods[0])
    assert flow is not None
    return flow


def changes(result: ExportResult) -> int:
    flow = flow_of(result)
    return sum(changes_layout(flow, position) for position in range(len(flow.steps)))


def turned(entries: list[TensorFile]) -> list[bool]:
    return [entry.dim_order == CHANNELS_LAST for entry in entries]


def test_a_tensor_is_channels_last_where_that_saves_a_transpose_and_only_there(offered: ExportResult) -> None:
    record = offered.record
    if record.model in WANTED:
        assert record.channels_last == WANTED[record.model] and ", ".join(record.channels_last) in as_text(offered)
    else:
        assert changes(offered) == 0 and all(turned([*record.inputs, *record.outputs]))
    assert record.io_layout == "channels_last" and not any("--io-layout" in text for text in record.warnings)
    border = flow_of(offered)
    assert not changed_inputs(border) and not outputs_to_nchw(border)


def test_the_record_says_what_the_program_says_and_the_program_answers_as_eager_does(offered: ExportResult) -> None:
    forward = pte.read(offered.paths.pte).methods[0]
    for entries, specs in ((offered.record.inputs, forward.inputs), (offered.record.outputs, forward.outputs)):
        assert [entry.dim_order for entry in entries] == [list(spec.dim_order) for spec in specs if spec]
    verify(offered)


def test_a_run_is_held_against_eager_in_the_right_order(runner: Path, offered: ExportResult, tmp_path: Path) -> None:
    record = offered.record
    inputs = ",".join(map(str, sample_inputs(offered.paths, record)))
    command: list[str | Path] = [
        runner,
        f"--model_path={offered.paths.pte}",
        f"--inputs={inputs}",
        f"--output_file={tmp_path / 'out'}",
    ]
    subprocess.run(command, check=True, capture_output=True)
    ours = read_outputs(tmp_path / "out", record.outputs)
    eager = expected_outputs(offered.paths.directory, record)
    right = agreement_of("run", ours, "eager", eager, record.dtype, record.dtype_cost)
    assert right is not None and right.verdict == "agrees"
    # Read as they lie in memory they do not agree: nobody takes one order for the other.
    stored = [
        array.transpose(0, 2, 3, 1).reshape(array.shape) if last else array
        for array, last in zip(ours, turned(record.outputs), strict=True)
    ]
    wrong = agreement_of("run", stored, "eager", eager, record.dtype, record.dtype_cost)
    assert wrong is not None and wrong.verdict == "differs"


@pytest.mark.parametrize(
    ("net", "options"),
    [(Plain, {}), (Single, {"delegation": "per-op"}), (Single, {"backend": "portable"})],
    ids=["nothing to turn", "a delegate for each operator", "no delegate"],
)
def test_where_nothing_is_saved_nothing_changes_and_that_is_said(net: Any, options: Any, tmp_path: Path) -> None:
    result = made(net, tmp_path, **options)
    assert "--io-layout channels_last changed nothing: " in result.record.warnings[-1]
    assert result.record.channels_last == []
    verify(result)


def test_a_record_of_contiguous_tensors_claims_nothing() -> None:
    seed = ROOT / "tests" / "data" / "fuzz_seeds" / "export_meta.json"
    (record, *_) = files.read_json(seed, ExportMeta, "export record").exports.values()
    assert record.io_layout == record.inputs[0].layout == "contiguous" and record.channels_last == []


def test_a_report_names_what_is_channels_last(tmp_path: Path) -> None:
    known = ROOT / "tests" / "data" / "known_good_run"
    assert "channels-last in memory" not in rows_of(RunView.open(known))
    shutil.copytree(known, tmp_path / "run")
    manifest = files.read_json(known / "manifest.json", dict[str, Any], "manifest")
    manifest["model"]["export"]["inputs"][0]["dim_order"] = CHANNELS_LAST
    files.write_json(tmp_path / "run" / "manifest.json", manifest)
    assert rows_of(RunView.open(tmp_path / "run"))["channels-last in memory"].startswith("input 0; ")


def rows_of(run: RunView) -> dict[str, str]:
    blocks = method.environment(run).blocks
    (table,) = [block for block in blocks if isinstance(block, Table) and block.key == "environment"]
    return {str(row[0]): str(row[1]) for row in table.rows}
