"""The dtype of a program is what is in it: under any name, in any method, mixed or not."""

import os
import shutil
import tracemalloc
from pathlib import Path
from typing import Any

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import nn

from model_profiling.base.errors import InputError
from model_profiling.export.in_memory import export_module
from model_profiling.formats.pte.dtypes import program_dtype
from model_profiling.pipeline.defaults import default_config
from model_profiling.pipeline.pipeline import Pipeline
from model_profiling.pipeline.schedule import Counts
from model_profiling.platforms.platform_table import Choice, chosen
from model_profiling.report.content import first_screen as headline
from model_profiling.store.run_directory import ModelRecord
from model_profiling.upstream.faster_lowering import faster_lowering
from sme2_kit import open_run
from tests.conftest import kit
from tests.helpers.llm_programs import stored
from tests.helpers.weight_networks import STORED

DTYPES = ("fp32", "fp16", "int8", "int8-dynamic", "int4", "int4-channel")
NAMES = [*(f"x_{dtype}" for dtype in DTYPES), "m", "net_xnnpack_fp32", "fp16", "a b_int8"]


def layers() -> nn.Module:
    torch.manual_seed(0)
    return nn.Sequential(nn.Linear(64, 128), nn.ReLU(), nn.Linear(128, 64))


@pytest.fixture(scope="module")
def programs(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    """Linear layers in every dtype that the kit exports, beside their records."""
    home = tmp_path_factory.mktemp("dtypes")
    x = torch.randn(8, 64)
    return {dtype: export_module(layers(), x, home / dtype, dtype=dtype).paths.pte for dtype in DTYPES}


def renamed(pte: Path, home: Path, name: str) -> Path:
    home.mkdir(exist_ok=True)
    return Path(shutil.copy(pte, home / f"{name}.pte"))


def test_a_program_switches_the_same_under_any_name(programs: dict[str, Path], tmp_path: Path) -> None:
    platform = chosen(Choice())
    for dtype, pte in programs.items():
        assert program_dtype(pte).main == dtype and program_dtype(pte).shares == {dtype: 1.0}
        asked = default_config(pte, platform, tmp_path)[0].experiments
        for name in NAMES:
            copy = renamed(pte, tmp_path / dtype, name)
            assert program_dtype(copy) == program_dtype(pte)
            assert default_config(copy, platform, tmp_path)[0].experiments == asked, (dtype, name)


def test_the_whole_run_of_a_program_with_a_misleading_name_is_that_of_the_right_one(
    programs: dict[str, Path], tmp_path: Path
) -> None:
    said = []
    for name in ("x_fp16", "x_int8"):
        run = measured(renamed(programs["fp16"], tmp_path, name), tmp_path / name)
        model, records = run.manifest.model, run.manifest.experiments
        said.append((model.dtype, model.dtypes, [(r.name, r.disable_features) for r in records.values()]))
        assert headline.title(run).endswith(", fp16")
    assert said[0] == said[1] and said[0][0] == "fp16"


def measured(pte: Path, out: Path) -> Any:
    done = kit("run", pte, "--output-root", out, "--runs", 4, "--launches", 2, "--startup-launches", 0)
    assert done.returncode == 0, done.stderr
    return open_run(out)


class Partly(nn.Module):  # type: ignore[misc]
    """Layers of known work: `kept` does a quarter of it."""

    def __init__(self) -> None:
        super().__init__()
        self.many = nn.Linear(64, 192)
        self.kept = nn.Linear(192, 64)
        self.more = nn.Linear(64, 384)

    def forward(self, x: Any) -> Any:
        return self.more(torch.relu(self.kept(torch.relu(self.many(x)))))


@pytest.mark.wide
@pytest.mark.parametrize("dtype", ["fp16", pytest.param("int8", marks=pytest.mark.again)])
def test_layers_that_are_kept_make_a_mixed_program_whose_main_dtype_decides(dtype: str, tmp_path: Path) -> None:
    pte = export_module(Partly(), torch.randn(8, 64), tmp_path, dtype=dtype, keep_fp32=("kept",)).paths.pte
    assert program_dtype(pte).main == dtype
    assert program_dtype(pte).shares == {dtype: 0.75, "fp32": 0.25}
    run = measured(pte, tmp_path / "run")
    words = f"mixed: 75 % of the work in {dtype}, 25 % in fp32"
    assert words in headline.title(run)
    assert run.manifest.model.export is not None and run.manifest.model.asked_dtype == dtype
    # What is left of the dtype that was asked for is not what decides.
    rest = export_module(Partly(), torch.randn(8, 64), tmp_path / "b", dtype=dtype, keep_fp32=("kept", "more"))
    assert program_dtype(rest.paths.pte).main == "fp32" and rest.record.dtype == dtype
    plain = export_module(Partly(), torch.randn(8, 64), tmp_path / "c", dtype="fp32").paths.pte
    platform = chosen(Choice())
    ours, theirs = (default_config(each, platform, tmp_path)[0].experiments for each in (rest.paths.pte, plain))
    assert ours == theirs


def test_every_weight_format_counts_as_what_it_is() -> None:
    found = program_dtype(STORED)
    each = dict.fromkeys(("fp32", "fp16", "bf16", "int8-dynamic", "int4", "int4-channel"), 0.125)
    assert found.shares == {"int8": 0.25, **each} and found.main == "int8"


@pytest.mark.parametrize("form", ["custom", "plain", "two_methods", "each_position"])
def test_language_models_are_what_their_layers_are(form: str) -> None:
    assert program_dtype(stored(form)).main == "fp32"


def test_methods_that_differ_are_told_apart(tmp_path: Path) -> None:
    """A program whose methods compute in different dtypes: the one that is run decides."""
    from executorch.backends.xnnpack.partition.xnnpack_partitioner import XnnpackPartitioner
    from executorch.exir import to_edge_transform_and_lower

    narrow = torch.export.export(layers().half(), (torch.randn(8, 64).half(),))
    wide = torch.export.export(layers(), (torch.randn(24, 64),))
    with faster_lowering():
        edge = to_edge_transform_and_lower(
            {"encode": narrow, "decode": wide}, partitioner={n: [XnnpackPartitioner()] for n in ("encode", "decode")}
        )
        (tmp_path / "both_int8.pte").write_bytes(edge.to_executorch().buffer)
    pte = tmp_path / "both_int8.pte"
    assert program_dtype(pte).shares == {"fp32": 0.75, "fp16": 0.25}
    assert program_dtype(pte, ["encode"]).shares == {"fp16": 1.0}
    assert program_dtype(pte, ["decode"]).shares == {"fp32": 1.0}
    platform = chosen(Choice())
    for method, dtype in (("encode", "fp16"), ("decode", "fp32")):
        config, _ = default_config(pte, platform, tmp_path / method, Counts(2, 1, startup_launches=0), method=method)
        manifest = Pipeline(config, platform, lambda *_: None).run().manifest
        assert manifest.model.dtype == dtype


@pytest.mark.parametrize("dtype", ["fp32", "fp16"])
def test_without_xnnpack_tensors_tell_and_without_products_bytes(dtype: str, tmp_path: Path) -> None:
    pte = export_module(layers(), torch.randn(8, 64), tmp_path, dtype=dtype, backend="portable").paths.pte
    assert program_dtype(pte).shares == {dtype: 1.0}
    for backend in ("portable", "xnnpack"):
        made = export_module(nn.Sigmoid(), torch.randn(8, 64), tmp_path / backend, dtype=dtype, backend=backend)
        assert program_dtype(made.paths.pte).shares == {dtype: 1.0}


def test_a_large_program_takes_little_memory(tmp_path: Path) -> None:
    large = Path(shutil.copy(STORED, tmp_path / "m.pte"))
    os.truncate(large, 250 << 20)
    tracemalloc.start()
    try:
        assert program_dtype(large).main == "int8"
        assert tracemalloc.get_traced_memory()[1] < 32 << 20
    finally:
        tracemalloc.stop()


def test_running_a_damaged_program_is_an_error_message(tmp_path: Path) -> None:
    damaged = tmp_path / "x_fp16.pte"
    damaged.write_bytes(STORED.read_bytes()[:2000])
    with pytest.raises(InputError, match=r"not a readable \.pte"):
        default_config(damaged, chosen(Choice()), None)
    done = kit("run", damaged, "--output-root", tmp_path / "out")
    assert done.returncode == 2 and "not a readable .pte" in done.stderr


@given(st.dictionaries(st.sampled_from(DTYPES), st.floats(0.001, 1), min_size=1))
def test_what_is_said_of_a_mix_names_every_dtype_that_does_a_percent_of_the_work(work: dict[str, float]) -> None:
    whole = sum(work.values())
    shares = {name: value / whole for name, value in sorted(work.items(), key=lambda item: -item[1])}
    words = ModelRecord("", "", "", 0, next(iter(shares)), dtypes=shares).dtype_words
    assert words.startswith("mixed: ") == (sum(share >= 0.005 for share in shares.values()) > 1)
    assert all(f" in {name}" in words for name, share in shares.items() if share >= 0.005 and "mixed" in words)
