"""Every kernel call of a trace belongs to the operator that made it, or is said to be unknown; never is it 0 %."""

import itertools
import json
import os
import shutil
from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path

import hypothesis.strategies as st
import msgspec
import pytest
from hypothesis import HealthCheck, given, settings

pytest.importorskip("executorch.exir")

from model_profiling.analysis.run.dumps import AnalysisSummary
from model_profiling.analysis.sme2.coverage import Coverage
from model_profiling.analysis.sme2.kernel_assignment import KernelEvidence, assign_kernels
from model_profiling.base.files import read_json
from model_profiling.formats import etdump
from model_profiling.pipeline.config import parse_config
from model_profiling.pipeline.pipeline import Pipeline
from model_profiling.platforms.emulator import EmulatorPlatform
from model_profiling.report.kernel_view import Kernels
from model_profiling.runner.trace_file import Calls, Invocation, Mark, Trace, read_trace
from model_profiling.store.run_directory import RunDirectory
from sme2_kit import Run
from tests.conftest import kit, needs_emulator
from tests.helpers.kernel_networks import program

EXECUTIONS, WARMUP = 2, 1
# How many CONV and GEMM operators each network has, and how many of them run on SME2.
CASES = {
    ("cats", "fp32"): (14, 14),
    ("random", "fp32"): (15, 15),
    ("pieces", "fp32"): (15, 15),
    ("bicubic", "fp32"): (2, 2),
    ("unet", "int8"): (7, 7),
    ("yolo", "fp16"): (7, 3),
    ("delegates", "fp32"): (8, 8),
}


pytestmark = pytest.mark.wide
# Alike in what they ask of the kit.
AGAIN = ("bicubic", "unet")
NETWORKS = [pytest.param(*case, marks=[pytest.mark.again] * (case[0] in AGAIN)) for case in CASES]


@pytest.fixture(scope="module", autouse=True)
def emulator() -> None:
    needs_emulator()


class Traced:
    """A network of the family, run under the emulator with SME2, and what the kit makes of it."""

    def __init__(self, home: Path, name: str, dtype: str) -> None:
        self.pte = home / f"{name}_{dtype}.pte"
        self.pte.write_bytes(program(name, dtype))
        experiment = {"name": "sme2", "mode": "trace", "num_runs": EXECUTIONS, "warmup": WARMUP}
        raw = {"model": str(self.pte), "output_root": str(home / name), "experiments": [experiment]}
        config = parse_config(raw, "a test")
        self.directory = Pipeline(config, EmulatorPlatform(), lambda label, done, total: None).run().directory
        found = Run.open(self.directory.path).summary.experiments["sme2"]
        assert found.kernels is not None and found.coverage is not None
        self.evidence: KernelEvidence = found.kernels
        self.coverage: Coverage = found.coverage
        self.dump = etdump.read(Path(found.etdump))
        self.trace = read_trace(next(self.directory.path.rglob("*_kernel_trace.txt")))


@pytest.fixture(scope="module")
def traced(tmp_path_factory: pytest.TempPathFactory) -> Callable[[str, str], Traced]:
    made: dict[tuple[str, str], Traced] = {}
    home = tmp_path_factory.mktemp("networks")

    def get(name: str, dtype: str) -> Traced:
        if (name, dtype) not in made:
            made[name, dtype] = Traced(home, name, dtype)
        return made[name, dtype]

    return get


Get = Callable[[str, str], Traced]


@pytest.mark.parametrize(("name", "dtype"), NETWORKS)
def test_every_call_belongs_to_the_operator_that_made_it(traced: Get, name: str, dtype: str) -> None:
    run = traced(name, dtype)
    assert not run.evidence.unknown and not run.coverage.unknown
    in_trace: Counter[str] = Counter()
    for entry in run.trace:
        if isinstance(entry, Calls):
            in_trace[entry.kernel] += entry.count
    operators = Counter[str]()
    for call in (call for operator in run.evidence.operators for call in operator.kernels):
        operators[call.kernel] += call.calls or 0
    elsewhere = Counter({call.kernel: call.calls for call in run.evidence.at_load})
    elsewhere.update({call.kernel: call.calls for call in run.evidence.unassigned})
    assert operators + elsewhere == in_trace
    # Warm-up runs the same kernels as the executions of the dump do, and there are no calls between.
    warm = Counter({call.kernel: call.calls for call in run.evidence.unassigned})
    assert {kernel: calls * EXECUTIONS for kernel, calls in warm.items()} == operators
    for operator in run.evidence.operators:
        if any("matmul" in call.kernel for call in operator.kernels):
            assert operator.name.startswith(("Convolution", "Deconvolution", "Fully Connected", "Batch Matrix"))


@pytest.mark.parametrize(("name", "dtype"), NETWORKS)
def test_every_execution_has_the_same_kernels_and_those_of_matrix_operators_are_of_sme2(
    traced: Get, name: str, dtype: str
) -> None:
    operators = traced(name, dtype).evidence.operators
    each = [[(x.name, x.instruction, x.kernels) for x in operators if x.execution == n] for n in range(EXECUTIONS)]
    assert len(operators) == EXECUTIONS * len(each[0])
    assert all(execution == each[0] for execution in each)
    # SME2 runs the matrix operators.
    coverage = traced(name, dtype).coverage
    assert (coverage.eligible, coverage.on_sme2) == CASES[name, dtype]
    for operator in coverage.operators:
        assert operator.level == "SME2" or "depthwise" in operator.why_not or dtype != "fp32"


def test_the_etdump_of_a_trace_run_has_no_times_even_by_itself(traced: Get) -> None:
    shown = kit("analyze", traced("delegates", "fp32").dump.path)
    assert shown.returncode == 0, shown.stderr
    assert " ms" not in shown.stdout and "this ETDump is from a kernel trace run" in shown.stdout


def damaged(trace: Trace) -> Iterator[Trace]:
    """The trace with one mark or delegate gone, twice there, told another time, or in the place of its neighbour."""
    for position, entry in enumerate(trace):
        before, after = trace[:position], trace[position + 1 :]
        if isinstance(entry, Calls):
            continue
        yield before + after
        yield [*before, entry, entry, *after]
        if isinstance(entry, Mark):
            yield [*before, Mark(entry.told_ns + 1000), *after]
        if after and not isinstance(after[0], Calls):
            yield [*before, after[0], entry, *after[1:]]


def test_a_damaged_trace_is_unknown_or_assigned_as_before(traced: Get) -> None:
    """Which of the two depends on what is damaged: a mark inside a cat, or of the warm-up, decides nothing."""
    run = traced("delegates", "fp32")
    answers = Counter[bool]()
    for trace in damaged(run.trace):
        found = assign_kernels(trace, run.dump)
        answers[bool(found.unknown)] += 1
        if found.unknown:
            assert found.operators == []
            assert any("matmul" in call.kernel for call in found.unassigned)
        else:
            assert found.operators == run.evidence.operators
    assert answers[True] and answers[False]


def invocations(trace: Trace) -> list[Trace]:
    """The runs of delegates in a trace, each with its marks and calls."""
    starts = [position for position, entry in enumerate(trace) if isinstance(entry, Invocation)]
    return [trace[low:high] for low, high in itertools.pairwise([*starts, len(trace)])]


@given(data=st.data())
@settings(max_examples=25, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
def test_executions_that_fill_a_cache_change_nothing(traced: Get, data: st.DataObject) -> None:
    """Whatever ran before the executions of the dump, of this program or another, and however often."""
    run, other = traced("cats", "fp32"), traced("delegates", "fp32")
    before = [*invocations(run.trace), *invocations(other.trace)]
    chosen = data.draw(st.lists(st.sampled_from(range(len(before))), max_size=12))
    load = run.trace[: run.trace.index(Invocation())]
    filled = [*load, *(entry for each in chosen for entry in before[each]), *run.trace[len(load) :]]
    found = assign_kernels(filled, run.dump)
    assert not found.unknown
    assert found.operators == run.evidence.operators and found.at_load == run.evidence.at_load


def test_a_trace_of_another_run_is_unknown(traced: Get) -> None:
    one, other = traced("cats", "fp32"), traced("delegates", "fp32")
    assert assign_kernels(one.trace, other.dump).unknown
    assert assign_kernels(other.trace, one.dump).unknown
    # The same network, but the executions before the dump's.
    last = max(position for position, entry in enumerate(one.trace) if isinstance(entry, Invocation))
    assert assign_kernels(one.trace[:last], one.dump).unknown


def test_a_trace_without_delegate_calls_is_unknown(traced: Get, tmp_path: Path) -> None:
    run = traced("cats", "fp32")
    path = tmp_path / "trace.txt"
    path.write_text("kai_run_x 1\n- 100\nkai_run_matmul_x_sme2_mopa 9\n- 200\nend\n")
    found = assign_kernels(read_trace(path), run.dump)
    assert "the kernel trace has 0 delegate calls, the ETDump" in found.unknown
    calls = {call.kernel: call.calls for call in found.at_load}
    assert calls == {"kai_run_x": 1, "kai_run_matmul_x_sme2_mopa": 9}


def test_kernels_of_a_network_with_cats_and_delegates_from_the_command_line(traced: Get, tmp_path: Path) -> None:
    done = kit("kernels", traced("delegates", "fp32").pte, "--output-root", tmp_path)
    assert done.returncode == 0, done.stderr
    shown = " ".join(done.stdout.split())
    assert "Coverage 100 % of the multiply-accumulates, 8 of 8 CONV and GEMM operators" in shown
    assert "emulator_sme1 SME2 runs 0 of 8 eligible operators, 0% of the multiply-accumulates (and SME " in shown
    assert kit("validate", "--results", tmp_path).returncode == 0


@pytest.fixture(scope="module")
def mismatched(traced: Get, tmp_path_factory: pytest.TempPathFactory) -> tuple[RunDirectory, str, str, int]:
    """`sme2-kit kernels` where every trace loses the mark at which its first operator ended."""
    home = tmp_path_factory.mktemp("mismatched")
    real = shutil.which("qemu-aarch64") or shutil.which("qemu-aarch64-static")
    lossy = home / "bin" / "qemu-aarch64"
    lossy.parent.mkdir()
    lossy.write_text(
        f'#!/bin/sh\n{real} "$@"; code=$?\n'
        'for word; do case "$word" in SME2_KIT_KERNEL_TRACE=*) sed -i "/^- 3000$/d" "${word#*=}";; esac; done\n'
        "exit $code\n"
    )
    lossy.chmod(0o755)
    environment = {"PATH": f"{lossy.parent}{os.pathsep}{os.environ['PATH']}"}
    done = kit("kernels", traced("delegates", "fp32").pte, "--output-root", home / "out", "--json", env=environment)
    return RunDirectory(home / "out"), done.stdout, done.stderr, done.returncode


def test_where_trace_and_dump_do_not_match_the_answer_is_unknown(
    mismatched: tuple[RunDirectory, str, str, int],
) -> None:
    directory, stdout, stderr, code = mismatched
    assert code == 4
    assert "unknown" in stderr and "fix:" in stderr
    data = json.loads(stdout)
    for experiment in data["experiments"].values():
        coverage = experiment["coverage"]
        assert coverage["unknown"] and coverage["on_sme2"] is None and coverage["work_on_sme2"] is None
        assert {operator["level"] for operator in coverage["operators"]} == {"unknown"}
    seen = data["experiments"]["emulator_sme2"]["coverage"]["unassigned"]
    assert any("sme2_mopa" in call["kernel"] and call["calls"] > 0 for call in seen)
    found = msgspec.json.decode(stdout, type=Kernels)
    assert any(each.coverage.unknown for each in found.experiments.values())
    summary = read_json(directory.analysis_path, AnalysisSummary, "analysis")
    headline = summary.experiments["emulator_sme2"].coverage
    assert headline is not None and "calls of SME2 matrix kernels were traced" in headline.headline


def test_every_report_says_unknown_and_none_says_zero(mismatched: tuple[RunDirectory, str, str, int]) -> None:
    directory = mismatched[0]
    shown = kit("analyze", directory.path)
    report = kit("report", directory.path)
    assert report.returncode == 0, report.stderr
    texts = [shown.stdout, (directory.path / "kernel_view.md").read_text(), (directory.path / "report.md").read_text()]
    texts.append(next(directory.path.glob("*_pipeline_summary.md")).read_text())
    assert "sme2_mopa" in shown.stdout
    for text in texts:
        assert "is unknown: " in text
        assert "SME2 runs 0" not in text and "0%" not in text and "0 %" not in text
    complaint = kit("validate", "--results", directory.path)
    assert complaint.returncode != 0
    assert "do not fit together" in complaint.stdout + complaint.stderr


def test_no_forecast_is_made_of_unknown_kernels(
    mismatched: tuple[RunDirectory, str, str, int], measured_run: Path
) -> None:
    done = kit("forecast", measured_run, mismatched[0].path)
    assert done.returncode == 2
    assert "is unknown" in done.stderr
