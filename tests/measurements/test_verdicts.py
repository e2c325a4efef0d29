"""Verdicts of real measurements: what is faster is called faster, what is equal is not, and other work is noticed."""

import json
import os
import statistics
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from benchmarks.slowdown import compare_in_turns
from model_profiling.analysis.timing.categories import load_table
from model_profiling.analysis.timing.profile import profiles
from model_profiling.formats import etdump
from model_profiling.store.run_directory import RunDirectory
from tests.conftest import ROOT, kept, kit, needs_hardware, tune_home
from tests.helpers.repeated_verdict import Sighting, judge
from tests.pipeline.test_pipeline import accelerator_for, write_config

Toy = Callable[[str], Path]


def budget(attempt: int) -> str:
    """Seconds, more with each attempt: other work may hide a difference for a while."""
    return str(min(10, 2 + attempt))


def sighting(comparison: dict[str, Any], expected: str) -> Sighting:
    """Compare a verdict with the true one; seeing no difference is no answer, unless that is the truth."""
    shown = {key: comparison[key] for key in ("verdict", "ratio", "low", "high", "contended")}
    silent = comparison["verdict"] == "no difference seen"
    return (None if silent and expected != "no difference seen" else comparison["verdict"] == expected), shown


# A fraction of toy_cnn's work, on any CPU.
SMALL = """
import torch


class Small(torch.nn.Conv2d):
    def __init__(self):
        super().__init__(3, 8, 3)

    def get_example_inputs(self):
        return (torch.zeros(1, 3, 48, 48),)
"""
PROGRAMS = {"small": ("small.py:Small", "fp32"), "slower": ("slower_toy_cnn.py:SlowerToyCNNModel", "fp16")}


def program(config: pytest.Config, otherwise: Path, name: str) -> Path:
    """A .pte to compare with toy_cnn's; exported once, unless the kit's own cache says that something changed."""
    home = kept(config, otherwise, "compared")
    target, dtype = PROGRAMS[name]
    source = home / target.partition(":")[0]
    text = SMALL if name == "small" else (ROOT / "benchmarks" / "slower_toy_cnn.py").read_text()
    if not source.is_file() or source.read_text() != text:
        source.write_text(text)
    done = kit("export", f"{home}/{target}", "--dtype", dtype, "--outdir", home / name, "--json")
    assert done.returncode == 0, done.stderr
    return Path(json.loads(done.stdout)["paths"]["pte"])


def only_comparison(directory: RunDirectory) -> dict[str, Any]:
    (comparison,) = json.loads(directory.metrics_path.read_text())["comparisons"]
    return dict(comparison)


def test_acceleration_on_is_faster_than_off(toy: Toy, runner: Path, tmp_path: Path) -> None:
    accelerator = accelerator_for(runner, "fp16")
    needs_hardware(accelerator in ("fp16arith", "avx512fp16", "sme2"), f"no fp16 accelerator here but {accelerator}")

    def measure(attempt: int) -> Sighting:
        directory = RunDirectory(tmp_path / str(attempt))
        done = kit("run", toy("fp16"), "--output-root", directory.path, "--budget", budget(attempt))
        assert done.returncode == 0, done.stderr
        assert only_comparison(directory)["paired"]
        return sighting(only_comparison(directory), "faster")

    judge(measure)


def test_a_feature_set_against_itself_shows_no_difference(toy: Toy, tmp_path: Path) -> None:
    experiments = [{"name": name, "num_runs": 60, "traced_runs": 5} for name in ("left", "right")]

    def measure(attempt: int) -> Sighting:
        pairs = {"compare_pairs": [["left", "right"]]}
        config = write_config(tmp_path / "c.json", toy("fp16"), tmp_path / str(attempt), experiments, analysis=pairs)
        done = kit("run", "--config", config)
        assert done.returncode == 0, done.stderr
        return sighting(only_comparison(RunDirectory(tmp_path / str(attempt))), "no difference seen")

    judge(measure)


def test_a_real_slowdown_of_five_percent_is_found(toy: Toy, pytestconfig: pytest.Config, tmp_path: Path) -> None:
    slower = program(pytestconfig, tmp_path, "slower")

    def measure(attempt: int) -> Sighting:
        found = compare_in_turns(toy("fp16"), slower, tmp_path / str(attempt), min(600, 120 * 2**attempt))
        told = None if found.verdict == "no difference seen" else found.verdict == "slower"
        return told, f"{found.verdict}, {found.ratio:.3f} ({found.low} to {found.high})"

    judge(measure)


def test_two_programs_are_measured_in_turns_and_judged(toy: Toy, pytestconfig: pytest.Config, tmp_path: Path) -> None:
    small = program(pytestconfig, tmp_path, "small")

    def measure(attempt: int) -> Sighting:
        words = ("compare", small, toy("fp32"), "--fail-if-slower", 5, "--json", "--budget", budget(attempt))
        done = kit(*words)
        (found,) = json.loads(done.stdout)
        assert found["latency"]["paired"]
        assert {change["name"] for change in found["profile"]["categories"]} >= {"CONV", "GEMM", "Data Movement"}
        right, shown = sighting(found["latency"], "slower")
        # A gate does not judge what a busy machine measured.
        if found["latency"]["contended"]:
            return None, shown
        return right and done.returncode == 1 and "slower by more than 5 %" in done.stderr, shown

    judge(measure)


@pytest.mark.wide
def test_tune_finds_the_win_that_toy_cnn_has(pytestconfig: pytest.Config, tmp_path: Path) -> None:
    """The window partition and the mean of toy_cnn change the layout for nothing, which costs a few percent."""
    home = tune_home(pytestconfig, tmp_path)

    def measure(attempt: int) -> Sighting:
        for measured in home.glob("round-*.json"):
            measured.unlink()
        environment = {"SME2_KIT_BUDGET_S": budget(attempt)}
        done = kit("tune", "toy_cnn", "--dtype", "fp32", "--json", "--out", home, cwd=tmp_path, env=environment)
        assert done.returncode == 0, done.stderr
        result = json.loads(done.stdout)
        tried = {entry["name"]: entry for entry in result["tried"]}
        found = tried["fp32+auto"]["comparison"]
        shown = f"winner {result['winner']}, auto {found['low']} to {found['high']}"
        if result["winner"]:
            winner = tried[result["winner"]]
            assert winner["comparison"]["low"] > 1 and winner["agreement"]["verdict"] == "agrees"
        slower = found["high"] is not None and found["high"] < 1
        return (True if found["low"] > 1 and result["winner"] else False if slower else None), shown

    judge(measure)


@pytest.mark.wide
def test_tune_keeps_int8_but_for_the_layers_that_it_ruins(tmp_path: Path) -> None:
    """Two cheap layers of the example lose all accuracy in int8; the others take the time."""
    example = ROOT / "docs" / "examples" / "digits"
    metric = ("--metric", f"{example / 'eval.py'}:score", "--data", f"{example / 'eval.py'}:samples")
    words = ("tune", f"{example / 'net.py'}:Digits", *metric, "--max-drop", 0.03, "--out", "tuned", "--json")

    def measure(attempt: int) -> Sighting:
        done = kit(*words, cwd=tmp_path, env={"SME2_KIT_BUDGET_S": budget(attempt)})
        assert done.returncode == 0, done.stderr
        result = json.loads(done.stdout)
        winner = next((entry for entry in result["tried"] if entry["name"] == result["winner"]), None)
        if winner is None:
            return None, "nothing is told"
        assert winner["metric"]["high"] <= 0.03
        right = winner["dtype"] == "int8" and set(winner["keep_fp32"]) == {"first", "second"}
        saved = [layer["saved"] for layer in result["metric"]["kept"]]
        return right and min(saved) > 0.3, f"{winner['name']}, {saved}"

    judge(measure)


def busy_loops(count: int) -> list["subprocess.Popen[bytes]"]:
    return [subprocess.Popen([sys.executable, "-c", "while True: pass"]) for _ in range(count)]


@pytest.mark.parametrize("threads", [1, 2])
def test_other_work_on_the_machine_is_noticed(threads: int, toy: Toy, tmp_path: Path) -> None:
    """How many executions it interrupts is the system's affair; that some are interrupted is not overlooked."""
    needs_hardware((os.cpu_count() or 1) >= threads, f"{threads} CPUs")

    def measure(attempt: int) -> Sighting:
        directory = RunDirectory(tmp_path / str(attempt))
        others = busy_loops(3 * (os.cpu_count() or 1))
        try:
            # Turns of ten executions, longer than what the system lets anyone have undisturbed.
            words = ("--output-root", directory.path, "--runs", 120, "--threads", threads, "--quiet")
            done = kit("run", toy("fp16"), *words)
        finally:
            for other in others:
                other.kill()
                other.wait()
        assert done.returncode == 0, done.stderr
        manifest = directory.manifest()
        taken = [turn for name in manifest.experiments for turn in directory.samples(manifest, name).timed]
        share = sum(turn.preempted for turn in taken) / sum(len(turn.ns) for turn in taken)
        return share > 0.05, f"{share:.0%} of the executions"

    judge(measure)


def test_the_parts_of_a_start_add_up_to_its_first_result(toy: Toy, tmp_path: Path) -> None:
    def measure(attempt: int) -> Sighting:
        directory = RunDirectory(tmp_path / str(attempt))
        words = ("--runs", 6, "--startup-launches", 6, "--quiet")
        done = kit("run", toy("fp16"), "--output-root", directory.path, *words)
        assert done.returncode == 0, done.stderr
        manifest = directory.manifest()
        starts = [start for name in manifest.experiments for start in directory.samples(manifest, name).starts]
        # What lies between: reading clocks and accounts. One launch may have been interrupted there.
        known = [(each.before_load_ns + each.load_ns + each.first_ns) / each.first_result_ns for each in starts]
        return 0.98 < statistics.median(known) <= 1, f"{statistics.median(known):.3f} of {len(known)} starts"

    judge(measure)


# Operators of less than a microsecond, all in one delegate: what is written of each takes longer than the operator.
TINY = """
import torch


class Tiny(torch.nn.Module):
    def forward(self, x):
        for _ in range(100):
            x = (x + 1.5).transpose(0, 1)
        return x

    def get_example_inputs(self):
        return (torch.zeros(4, 4),)
"""


@pytest.mark.skipif(sys.platform != "linux", reason="hardware: the clock stops on Linux only")
def test_what_the_tracer_writes_is_no_time_of_the_program(tmp_path: Path) -> None:
    (tmp_path / "tiny.py").write_text(TINY)
    made = kit("export", "tiny.py:Tiny", "--dtype", "fp32", "--out", "made", "--json", cwd=tmp_path)
    pte = tmp_path / json.loads(made.stdout)["paths"]["pte"]

    def measure(attempt: int) -> Sighting:
        done = kit("run", pte, "--out", tmp_path / str(attempt), "--runs", 60, "--quiet", "--no-html")
        assert done.returncode == 0, done.stderr
        directory = RunDirectory(tmp_path / str(attempt))
        found = json.loads(directory.metrics_path.read_text())["experiments"]
        overheads = [x for each in found.values() if (x := each["tracer_overhead_percent"]) is not None]
        # Reading the clock takes as long as some of them; to write took twice as long as the whole program.
        return (max(overheads) < 80 if overheads else None), overheads

    judge(measure)


@pytest.mark.skipif(sys.platform != "linux", reason="hardware: the clock stops on Linux only")
def test_operators_do_not_take_longer_because_others_compute(runner: Path, toy: Toy, tmp_path: Path) -> None:
    """Beside busy loops executions are interrupted, and operators take no longer: single ones and all together."""
    dump = tmp_path / "a.etdump"

    def means(loops: int) -> dict[str, float]:
        others = busy_loops(loops)
        try:
            flags = ("--num_executions=60", "--warmup=5", "--cpu_threads=1", f"--etdump_path={dump}")
            subprocess.run([runner, f"--model_path={toy('fp32')}", *flags], check=True, capture_output=True)
        finally:
            for other in others:
                other.kill()
                other.wait()
        (profile,) = profiles(etdump.read(dump), load_table())
        totals = profile.times.mean(axis=1)
        return {"whole": float(totals.sum()), "largest": float(totals.max())}

    def measure(attempt: int) -> Sighting:
        alone, beside = means(0), means(os.cpu_count() or 1)
        longer = {part: beside[part] / alone[part] for part in alone}
        return max(longer.values()) < 1.2, longer

    judge(measure)
