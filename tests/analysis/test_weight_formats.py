"""Which weights get SME2: the format is what the .pte says, kernels are those that ran, and the reason is theirs."""

from pathlib import Path

import msgspec
import pytest

pytest.importorskip("executorch.exir")

from model_profiling.analysis.sme2.coverage import Coverage, coverage
from model_profiling.analysis.sme2.kernel_assignment import KernelEvidence
from model_profiling.analysis.sme2.weight_formats import CHECKED, has_kernel, no_kernel
from model_profiling.pipeline.config import parse_config
from model_profiling.pipeline.pipeline import Pipeline
from model_profiling.platforms.emulator import EmulatorPlatform
from model_profiling.report.blocks import Table
from model_profiling.report.content import kernels as kernel_content
from model_profiling.report.content.kernels import kernel_view
from sme2_kit import Run
from tests.conftest import needs_emulator
from tests.helpers.weight_networks import FORMATS, STORED


@pytest.fixture(scope="module")
def traced(tmp_path_factory: pytest.TempPathFactory) -> Run:
    """One program with layers of every format, run under the emulator with SME2."""
    needs_emulator()
    home = tmp_path_factory.mktemp("formats")
    experiment = {"name": "sme2", "mode": "trace", "num_runs": 1, "warmup": 1}
    raw = {"model": str(STORED), "output_root": str(home / "out"), "experiments": [experiment]}
    done = Pipeline(parse_config(raw, "a test"), EmulatorPlatform(), lambda label, finished, total: None).run()
    return Run.open(done.directory.path)


@pytest.fixture(scope="module")
def covered(traced: Run) -> Coverage:
    found = traced.summary.experiments["sme2"].coverage
    assert found is not None and not found.unknown
    return found


def test_every_linear_layer_has_its_format_and_its_kernels(covered: Coverage) -> None:
    found = {entry.weights: entry for entry in covered.formats}
    assert set(found) == {weights for weights, _ in FORMATS.values()}
    for weights, instructions in FORMATS.values():
        entry = found[weights]
        assert (entry.operators, entry.on_sme2) == (2, len(instructions))
        assert sum(entry.kernels.values()) == 2
        for each in instructions:
            assert [count for kernel, count in entry.kernels.items() if kernel.endswith(each)] == [1]


def test_the_reason_names_the_formats_that_have_kernels(covered: Coverage) -> None:
    why = {entry.weights: entry.why for entry in covered.formats}
    has = "int8-dynamic or per-channel int4 (--dtype int4-channel) has"
    assert (
        why["int4 in groups of 32"]
        == f"XNNPACK does not use an SME2 kernel for groupwise int4 in this ExecuTorch; {has}"
    )
    assert "bf16 is not delegated" in why["bf16"]
    assert "int8 per channel has" in why["int8 per tensor, static activations"]
    for weights, instructions in FORMATS.values():
        assert bool(why[weights]) == (not instructions)
        assert bool(no_kernel(weights, delegated=weights != "bf16")) == (not instructions)


def test_without_a_trace_the_reason_is_said_to_be_known_from_elsewhere(traced: Run) -> None:
    instances = traced.summary.experiments["sme2"].breakdown.instances
    found = coverage(instances, None, ["sme2"], Path(traced.manifest.model.path))
    groups = [operator for operator in found.operators if operator.weights == "int4 in groups of 32"]
    assert len(groups) == 2
    for operator in groups:
        assert operator.level == "unknown"
        assert f"in ExecuTorch {CHECKED} (known, not seen in this run)" in operator.why_not
    assert {entry.on_sme2 for entry in found.formats if entry.weights != "bf16"} == {None}


def test_where_one_layer_of_a_format_runs_on_sme2_the_format_is_not_to_blame(traced: Run) -> None:
    """A later ExecuTorch may have such kernels for some shapes."""
    experiment = traced.summary.experiments["sme2"]
    assert experiment.kernels is not None
    text = "_qsi4c32p4x8_16x4x32_neon_i8mm"
    renamed = _replaced(experiment.kernels, text, "_qsi4c32p_sme2_mopa")
    found = coverage(experiment.breakdown.instances, renamed, ["sme2"], Path(traced.manifest.model.path))
    groups = [operator for operator in found.operators if operator.weights == "int4 in groups of 32"]
    assert sorted(operator.level for operator in groups) == ["NEON dot", "SME2"]
    assert not any("an SME2 kernel for groupwise int4" in operator.why_not for operator in groups)


def _replaced(evidence: KernelEvidence, old: str, new: str) -> KernelEvidence:
    text = msgspec.json.encode(evidence).replace(old.encode(), new.encode())
    return msgspec.json.decode(text, type=KernelEvidence)


def test_terminal_and_reports_show_which_weights_get_sme2(traced: Run, covered: Coverage) -> None:
    section = kernel_content.section(traced)
    assert section is not None
    table = next(block for block in section.blocks if isinstance(block, Table) and block.key == "weights")
    assert [row[0] for row in table.rows] == [entry.weights for entry in covered.formats]
    text = kernel_view(traced)
    for weights, instructions in FORMATS.values():
        assert f"| {weights} | 2 | {len(instructions)} |" in text


def test_a_format_that_nobody_has_looked_at_is_unknown() -> None:
    assert has_kernel("fp16") is True and has_kernel("int4 per channel") is True
    assert has_kernel("int4 in groups of 32") is False and has_kernel("bf16") is False
    assert has_kernel("qcint32") is None
