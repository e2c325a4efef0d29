"""Every model in every dtype it lists: exported, held against eager, run with acceleration on and off.

`make test-models` runs these. Two worker processes share the work, because an export keeps one core busy and a CI
machine has two or more.
"""

import os
import re
from collections.abc import Iterator
from concurrent.futures import Future, ProcessPoolExecutor
from multiprocessing import get_context
from pathlib import Path

import pytest

from model_profiling.analysis.categories import UNKNOWN
from model_profiling.models import registered_models
from tests.conftest import kit

pytestmark = pytest.mark.models

# Full size takes minutes of emulation or of eager fp16; the graph is the same.
SMALLER = {"edgetam_image_encoder": (("resolution", 128),)}
# The long ones first, so that no worker is left alone with one of them at the end.
SLOW_TO_EXPORT = ("efficient_sam", "edgetam_image_encoder", "deit_tiny", "mobilenet_v3_small")
# What every other test exports and runs all the time.
KNOWN = (("toy_cnn", "fp16"), ("toy_cnn", "int8"))
CASES = sorted(
    (
        (name, dtype)
        for name, model in registered_models().items()
        for dtype in model.dtypes
        if (name, dtype) not in KNOWN
    ),
    key=lambda case: (SLOW_TO_EXPORT.index(case[0]) if case[0] in SLOW_TO_EXPORT else len(SLOW_TO_EXPORT), case),
)
# Of each architecture one, in turns of dtype; the largest would take minutes of emulation.
EMULATED = (
    ("toy_cnn", "fp32"),
    ("mobilenet_v3_small", "fp32"),
    ("resnet8", "int8"),
    ("ds_cnn", "fp16"),
    ("llm_block_decode", "int4"),
    ("edgetam_image_encoder", "fp32"),
)
# Beside the other tests, with what they leave of the processor.
PATIENCE_S = 1800


def profile(name: str, dtype: str, home: Path) -> dict[str, str]:
    """Export, verify, run on and off, find a category for each operator; return each agreement's verdict."""
    import torch

    from model_profiling.export.exporter import ExportRequest, export
    from model_profiling.export.verify import verify
    from model_profiling.models.loading import LoadOptions
    from model_profiling.pipeline.defaults import default_config
    from model_profiling.pipeline.pipeline import Pipeline
    from model_profiling.pipeline.schedule import Counts
    from model_profiling.platforms.local import LocalPlatform
    from model_profiling.report import results

    torch.set_num_threads(1)
    options = LoadOptions(settings=SMALLER.get(name, ()))
    result = export(ExportRequest(name, home / name / dtype, dtype, options=options))
    verify(result)
    platform = LocalPlatform()
    config, _ = default_config(result.paths.pte, platform, home / name / "runs" / dtype, Counts(runs=1))
    directory = Pipeline(config, platform, lambda label, done, total: None).run().directory
    summary = results.refreshed(directory).summary
    metrics = summary.metrics
    assert metrics is not None
    operators = [entry for experiment in summary.experiments.values() for entry in experiment.breakdown.operators]
    assert [entry.operator for entry in operators if entry.kind == UNKNOWN] == []
    return {f"{entry.left} vs {entry.right}": entry.verdict for entry in metrics.agreements}


Outcomes = dict[tuple[str, str], "Future[dict[str, str]]"]


@pytest.fixture(scope="module")
def home(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("zoo")


@pytest.fixture(scope="module")
def outcomes(home: Path, request: pytest.FixtureRequest) -> Iterator[Outcomes]:
    """Start what the selected tests ask for, all of it at once."""
    wanted = {item.callspec.id for item in request.session.items if hasattr(item, "callspec")}
    with ProcessPoolExecutor(min(2, os.cpu_count() or 1), mp_context=get_context("spawn")) as pool:
        yield {case: pool.submit(profile, *case, home) for case in CASES if f"{case[0]}-{case[1]}" in wanted}


@pytest.mark.parametrize(("name", "dtype"), CASES)
def test_a_model_exports_and_answers_alike_with_acceleration_on_and_off(
    name: str, dtype: str, outcomes: Outcomes
) -> None:
    verdicts = outcomes[name, dtype].result(timeout=PATIENCE_S)
    assert verdicts and set(verdicts.values()) == {"agrees"}, verdicts


@pytest.mark.parametrize(("name", "dtype"), EMULATED)
def test_sme2_coverage_under_the_emulator(
    name: str, dtype: str, outcomes: Outcomes, home: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    outcomes[name, dtype].result(timeout=PATIENCE_S)
    pte = home / name / dtype / f"{name}_xnnpack_{dtype}.pte"
    done = kit("kernels", pte, "--output-root", home / "emulated" / name)
    assert done.returncode == 0, done.stderr
    found = re.search(r"emulator_sme2: SME2 runs (\d+) of (\d+) eligible operators", done.stdout)
    assert found is not None and 0 < int(found[1]) <= int(found[2]), done.stdout
    with capfd.disabled():
        os.write(1, done.stdout.encode())
