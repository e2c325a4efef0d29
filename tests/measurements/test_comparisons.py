"""Verdicts of comparisons between formats, versions of ExecuTorch and runtimes."""

import json
from dataclasses import replace
from pathlib import Path

import pytest

from model_profiling import api
from model_profiling.tune.formats import results
from tests.conftest import kit, needs_hardware
from tests.helpers.prefixes import prefix, slow_prefix
from tests.helpers.repeated_verdict import Sighting, judge
from tests.measurements.test_verdicts import Toy, budget, sighting
from tests.runtimes.test_runtimes import NET, by_name, needs_packages
from tests.tune.test_formats import bench


def test_attention_in_an_operator_of_its_own_is_faster_than_from_parts(tmp_path: Path) -> None:
    asked = bench(tmp_path)

    def measure(attempt: int) -> Sighting:
        found = results(replace(asked, request=replace(asked.request, force=attempt > 0)))
        compared = found["plain"].phases[1].comparison
        assert compared is not None
        told = None if compared.verdict == "no difference seen" else compared.verdict == "slower"
        return told and found["fp32"].pareto, f"{compared.verdict}, {compared.ratio:.3f}"

    judge(measure)


def test_a_slowed_library_is_found(toy: Toy, tmp_path: Path) -> None:
    """XNNPACK asks for threads outside its operators: the runtime is what takes longer."""
    needs_hardware(Path("/proc/self").exists(), "Linux")
    good, slow = prefix(tmp_path / "good"), slow_prefix(tmp_path / "slow", delay_ns=300_000)
    words = ("compare", toy("fp32"), "--executorch", f"{good},{slow}", "--fail-if-slower", 5, "--json")

    def measure(attempt: int) -> Sighting:
        done = kit(*words, "--budget", budget(attempt))
        (found,) = json.loads(done.stdout)
        assert found["outputs"]["max_abs_error"] == 0
        right, shown = sighting(found["latency"], "slower")
        (runtime,) = (change for change in found["profile"]["categories"] if change["name"] == "Runtime")
        if found["latency"]["contended"] or runtime["high"] is None:
            return None, shown
        return right and done.returncode == 1 and runtime["high"] < 0.5, (shown, runtime)

    judge(measure)


@pytest.mark.wide
def test_two_processes_of_one_runtime_make_no_claim(tmp_path: Path) -> None:
    needs_packages("onnx", "onnxscript", "onnxruntime")
    pte = Path(api.export(NET, out=tmp_path / "net", dtype="fp32", input_shapes=["2,8"]).paths.pte)

    def measure(attempt: int) -> Sighting:
        found = api.compare_runtimes(pte, runtimes=["onnxruntime", "onnxruntime"], runs=36, launches=12)
        compared = by_name(found)["onnxruntime_2"].comparison
        assert compared is not None
        told = None if not compared.reliable else compared.verdict == "no difference seen"
        return told, f"{compared.verdict}, {compared.ratio:.3f} ({compared.low} to {compared.high})"

    judge(measure)
