"""Every model in every dtype it lists: exported, held against eager, run with acceleration on and off.

`make test-models` runs these, on all processors: nothing is judged by its time.
"""

import re
from pathlib import Path

import msgspec
import pytest

from model_profiling.analysis.timing.categories import UNKNOWN
from model_profiling.models import registered_models
from tests.conftest import kit

pytestmark = pytest.mark.models

# Full size takes minutes of emulation, lowering or eager fp16; the graph has the same operators.
SMALLER: dict[str, tuple[tuple[str, int], ...]] = {
    "smollm2_135m": (("layers", 1), ("context", 512)),
    "qwen3_0_6b": (("layers", 1), ("context", 512)),
    "llm_block_prefill": (("tokens", 32), ("width", 256)),
    "llm_block_decode": (("tokens", 32), ("width", 256)),
    "deit_tiny": (("blocks", 1),),
    "efficient_sam": (("blocks", 1), ("resolution", 128)),
    "edgetam_image_encoder": (("resolution", 128),),
    "mobile_sam": (("resolution", 128),),
    "squeeze_sam": (("resolution", 64), ("levels", 3)),
}
# The long ones first, so that no worker is left alone with one of them at the end.
SLOW_TO_EXPORT = (
    "qwen3_0_6b",
    "smollm2_135m",
    "efficient_sam",
    "mobile_sam",
    "edgetam_image_encoder",
    "squeeze_sam",
    "deit_tiny",
    "mobilenet_v3_small",
)
# Their operators are those of others here, of test_llm.py (language models) or test_islands.py (nearest upsampling).
ONLY_AGAIN = (
    *("mobile_sam", "efficient_sam", "edgetam_image_encoder", "mobilenet_v1_025"),
    *("qwen3_0_6b", "smollm2_135m", "llm_block_prefill"),
)
# What every other test exports and runs all the time.
KNOWN = (("toy_cnn", "fp32"), ("toy_cnn", "fp16"), ("toy_cnn", "int8"))
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
EMULATED = (("resnet8", "int8"), ("ds_cnn", "fp16"), ("llm_block_decode", "int4"))
# Left to `make test-models`.
EMULATED_AGAIN = (("mobilenet_v3_small", "fp32"), ("edgetam_image_encoder", "fp32"))


def again(name: str, dtype: str) -> bool:
    """Whether CI leaves it to `make test-models`: it has one dtype of a model, and of the smallest all."""
    first = next((case for case in EMULATED if case[0] == name), (name, "fp32"))
    return name in ONLY_AGAIN or ((name, dtype) != first and not name.startswith("toy_cnn"))


def profile(name: str, dtype: str, home: Path) -> dict[str, str]:
    """Export, verify, run on and off, find a category for each operator; return each agreement's verdict."""
    import torch

    from model_profiling.export.exporter import ExportRequest, export
    from model_profiling.models.loading import LoadOptions
    from model_profiling.pipeline.defaults import default_config
    from model_profiling.pipeline.pipeline import Pipeline
    from model_profiling.pipeline.schedule import Counts
    from model_profiling.platforms.process_platform import LocalPlatform
    from sme2_kit import Run
    from tests.helpers.in_process import verify

    torch.set_num_threads(1)
    options = LoadOptions(settings=SMALLER.get(name, ()))
    result = export(ExportRequest(name, home / name / dtype, dtype, options=options))
    verify(result)
    platform = LocalPlatform()
    config, _ = default_config(
        result.paths.pte, platform, home / name / "runs" / dtype, Counts(runs=1, launches=1, startup_launches=0)
    )
    # What is asked is whether it runs and answers; the largest take seconds for one execution.
    once = [msgspec.structs.replace(experiment, warmup=0, traced_runs=1) for experiment in config.experiments]
    config = msgspec.structs.replace(config, experiments=once)
    directory = Pipeline(config, platform, lambda label, done, total: None).run().directory
    run = Run.open(directory.path)
    run.save()
    summary, metrics = run.summary, run.metrics
    operators = [entry for experiment in summary.experiments.values() for entry in experiment.breakdown.operators]
    assert [entry.operator for entry in operators if entry.kind == UNKNOWN] == []
    return {f"{entry.left} vs {entry.right}": entry.verdict for entry in metrics.agreements}


@pytest.mark.parametrize(
    ("name", "dtype"), [pytest.param(*case, marks=[pytest.mark.again] if again(*case) else []) for case in CASES]
)
def test_a_model_answers_alike_with_acceleration_on_and_off_and_uses_sme2(
    name: str, dtype: str, tmp_path: Path
) -> None:
    verdicts = profile(name, dtype, tmp_path)
    assert verdicts and set(verdicts.values()) == {"agrees"}, verdicts
    if (name, dtype) in EMULATED:
        assert_uses_sme2(tmp_path / name / dtype / f"{name}_xnnpack_{dtype}.pte", tmp_path)


@pytest.mark.again
@pytest.mark.parametrize(("name", "dtype"), EMULATED_AGAIN)
def test_a_large_model_uses_sme2(name: str, dtype: str, tmp_path: Path) -> None:
    from model_profiling.export.exporter import ExportRequest, export
    from model_profiling.models.loading import LoadOptions

    options = LoadOptions(settings=SMALLER.get(name, ()))
    assert_uses_sme2(export(ExportRequest(name, tmp_path / "export", dtype, options=options)).paths.pte, tmp_path)


def assert_uses_sme2(pte: Path, home: Path) -> None:
    done = kit("kernels", pte, "--level", "sme2", "--output-root", home / "emulated")
    assert done.returncode == 0, done.stderr
    found = re.search(r"(\d+) of (\d+) CONV and GEMM operators", done.stdout)
    assert found is not None and 0 < int(found[1]) <= int(found[2]), done.stdout


def test_every_emulated_case_is_one_that_is_exported() -> None:
    assert {*EMULATED, *EMULATED_AGAIN} <= set(CASES)
