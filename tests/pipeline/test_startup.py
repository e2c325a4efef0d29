"""Start-up and memory of real processes: they agree with the system, and what is wrong with a model is found."""

import json
import re
import shutil
import subprocess
import xml.etree.ElementTree as ET
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch

pytest.importorskip("executorch.exir")

import sme2_kit
from model_profiling.analysis.advice.finding import FindingKind
from model_profiling.analysis.process.memory import program_memory
from model_profiling.analysis.run.run_view import RunView
from model_profiling.base.errors import InputError
from model_profiling.base.files import sha256
from model_profiling.cli.main import main
from model_profiling.export.in_memory import export_module
from model_profiling.report import markdown
from model_profiling.report.content import whole as content
from model_profiling.store.run_directory import Samples
from tests.conftest import ROOT, kit
from tests.helpers import preloaded
from tests.helpers.contract_check import check_files
from tests.helpers.distorted_clock import true_clock
from tests.helpers.screens import flat, whole_text
from tests.pipeline.test_runs import TINY_NET
from tests.runner.test_runner import call, event, events

MIB = 1 << 20
_NETS = f"""{TINY_NET}
class Wide(torch.nn.Module):
    '''Two delegates around a cumulative sum, each with 200 MB between two convolutions.'''
    def __init__(self):
        super().__init__()
        self.out = torch.nn.Conv2d(1, 200, 1)
        self.back = torch.nn.Conv2d(200, 1, 1)

    def forward(self, x):
        x = self.back(self.out(x).relu())
        x = torch.cumsum(x, dim=2) * 0.001
        return self.back(self.out(x).relu())
"""


@pytest.fixture(scope="module")
def nets(tmp_path_factory: pytest.TempPathFactory) -> Callable[[str], Path]:
    home = tmp_path_factory.mktemp("nets")
    (home / "nets.py").write_text(_NETS)
    for name, shape in (("Tiny", "1,3,16,16"), ("Wide", "1,1,512,512")):
        words = f"export {home / 'nets.py'}:{name} --input-shape {shape} --dtype fp32 --outdir {home / name}".split()
        assert main(words) == 0
    return lambda name: next((home / name).glob("*.pte"))


def measured(home: Path, model: Path, experiments: list[dict[str, Any]], **more: Any) -> RunView:
    """A run of these experiments, short unless they say otherwise."""
    few = {"num_runs": 12, "launches": 6, "warmup": 3, "startup_launches": 6, "traced_runs": 1}
    raw = {
        "model": str(model),
        "output_root": str(home / "out"),
        "experiments": [{**few, **experiment} for experiment in experiments],
        **more,
    }
    (home / "config.json").write_text(json.dumps(raw))
    with true_clock():  # what a process says of its start is compared with what its parent saw
        done = kit("run", "--config", home / "config.json", "--quiet")
    assert done.returncode == 0, done.stderr
    return RunView.open(home / "out")


@pytest.fixture(scope="module")
def tiny_run(nets: Callable[[str], Path], tmp_path_factory: pytest.TempPathFactory) -> RunView:
    """One network as it is, with other options and a cold page cache, and with a library that leaks."""
    home = tmp_path_factory.mktemp("tiny_run")
    leak = preloaded.before(preloaded.leaking(home))
    return measured(
        home,
        nets("Tiny"),
        [
            {"name": "sound"},
            {"name": "cold", "page_cache": "cold", "workspace": "disabled", "weight_cache": True},
            {"name": "leaky", "launch_prefix": leak},
        ],
        analysis={"compare_pairs": [["sound", "cold"], ["sound", "leaky"]]},
    )


@pytest.fixture(scope="module")
def wide_run(nets: Callable[[str], Path], tmp_path_factory: pytest.TempPathFactory) -> RunView:
    few = {"num_runs": 1, "launches": 1, "startup_launches": 1, "warmup": 1}
    names = {"shared": "global", "apart": "disabled"}
    experiments = [{"name": name, "workspace": how, **few} for name, how in names.items()]
    return measured(tmp_path_factory.mktemp("wide_run"), nets("Wide"), experiments)


def samples_of(run: RunView, name: str) -> Samples:
    return run.run_directory.samples(run.manifest, name)


# The numbers are the system's


def test_the_peak_is_what_the_system_says_of_the_same_process(
    runner: Path, nets: Callable[[str], Path], tmp_path: Path
) -> None:
    words = (runner, "--model_path", nets("Wide"), "--warmup=1", "--num_executions=2", "--cpu_threads=1")
    ours = []
    gnu = [found for found in [shutil.which("time")] if found and call(found, "-v", "true").returncode == 0]
    for watch in (str(preloaded.peak_of(tmp_path)), *gnu):
        flags = ("-v",) if Path(watch).name == "time" else ()
        done = call(watch, *flags, *words)
        said = re.search(r"(?:peak|Maximum resident set size \(kbytes\):) (\d+)", done.stderr)
        assert done.returncode == 0 and said, done.stderr
        ours.append(event(done, "done")["peak"])
        assert ours[-1] == pytest.approx(int(said[1]) * 1024, rel=0.02)
    assert ours[0] > 200 * MIB


def test_the_parts_of_a_start_add_up_to_the_life_of_its_process(tiny_run: RunView) -> None:
    for name in ("sound", "cold"):
        starts = samples_of(tiny_run, name).starts
        assert len(starts) == 6
        for each in starts:
            assert each.before_load_ns + each.load_ns + each.first_ns <= each.first_result_ns
            assert 0 < each.program_ns + each.method_ns <= each.load_ns
            assert 0 < each.first_result_ns < each.life_ns
            assert each.runs == 1
    start = tiny_run.metrics.experiments["sound"].startup
    assert start is not None and start.launches == 6 and start.first_result.low_ms is not None
    assert tiny_run.metrics.startup_comparisons[0].first_result.paired


def test_reading_the_account_of_memory_is_in_no_timed_execution(
    runner: Path, nets: Callable[[str], Path], tmp_path: Path
) -> None:
    """To read it takes an hour by this clock; an execution takes none."""
    slow = preloaded.before(preloaded.slow_account(tmp_path))
    words = (runner, "--model_path", nets("Tiny"), "--paced", "--warmup=2", "--cpu_threads=1")
    done = call(*slow, *words, stdin="run 4\nrun 4\nrun 4\nquit\n")
    times = [line["ns"] for line in events(done) if line["event"] == "run"]
    hour = 3600 * 10**9
    assert len(times) == 12 and max(times) < hour
    # It did read: before and after loading, after the first inference, after warm-up, after each turn, and at the end.
    assert event(done, "done")["life_ns"] > 7 * hour
    assert event(done, "ready")["load_ns"] < hour and event(done, "ready")["warmup_ns"][0] < hour


def test_a_cold_page_cache_is_what_the_system_says_and_not_what_was_asked_for(tiny_run: RunView, runner: Path) -> None:
    dropped = event(call(runner, "--model_path", tiny_run.manifest.model.path, "--drop_cache"), "ready")
    possible = dropped["cached_percent"] == 0
    starts = [tiny_run.metrics.experiments[name].startup for name in ("sound", "cold")]
    assert [start.page_cache for start in starts if start] == ["warm", "cold" if possible else "warm"]
    caveats = tiny_run.metrics.startup_comparisons[0].first_result.caveats
    assert any("page cache was warm before and cold after" in caveat for caveat in caveats) == possible


# XNNPACK's options


@pytest.mark.wide
def test_options_reach_xnnpack_and_the_manifest_and_change_what_they_should(
    tiny_run: RunView, wide_run: RunView
) -> None:
    records = tiny_run.manifest.experiments
    assert (records["cold"].workspace, records["cold"].weight_cache) == ("disabled", "on")
    assert records["sound"].workspace and records["sound"].weight_cache
    shared, apart = (wide_run.metrics.experiments[name] for name in ("shared", "apart"))
    assert (shared.workspace, apart.workspace) == ("global", "disabled")
    assert shared.memory is not None and apart.memory is not None
    # Two delegates of 200 MB each, of which only one executes at a time.
    assert apart.memory.peak_bytes - shared.memory.peak_bytes > 150 * MIB


# What is wrong is found


def test_a_first_inference_that_allocates_much_is_found(wide_run: RunView) -> None:
    for name in ("shared", "apart"):
        memory = wide_run.metrics.experiments[name].memory
        assert memory is not None and memory.first_inference_bytes is not None and not memory.leak
        assert memory.first_inference_bytes > 195 * MIB
        assert wide_run.metrics.program is not None and wide_run.metrics.program.planned_bytes < 10 * MIB
        (finding,) = [
            f for f in wide_run.summary.experiments[name].advice if f.rule is FindingKind.FIRST_INFERENCE_MEMORY
        ]
        assert finding.gain == 1 and finding.label == "measurement" and "MiB" in finding.measured


def test_a_leak_is_found_and_nothing_else_is_called_one(tiny_run: RunView) -> None:
    found = {name: each.memory for name, each in tiny_run.metrics.experiments.items()}
    assert {name: memory.leak for name, memory in found.items() if memory} == {
        "sound": False,
        "cold": False,
        "leaky": True,
    }
    leaky = found["leaky"]
    assert leaky is not None and leaky.growth_per_execution_bytes == pytest.approx(MIB, rel=0.05)
    assert tiny_run.summary.experiments["leaky"].advice[0].rule is FindingKind.MEMORY_GROWTH
    shown = flat(whole_text(tiny_run))
    report = markdown.render(content.report(tiny_run), {})
    for text in (shown, report):
        assert (
            text.count("with every inference: a leak") >= 1
            and "start-up" in text.lower()
            and "peak memory" in text.lower()
        )


# What is shown


def test_every_file_keeps_its_contract_and_the_report_says_what_was_in_force(tiny_run: RunView) -> None:
    check_files(tiny_run.path)
    text = markdown.render(content.report(tiny_run), {})
    section = text[text.index("## Start-up and memory") :]
    for words in ("method load, with packing", "after the first inference", "planned arena, memory id 1", "presets"):
        assert words in section
    assert "memory use" not in text[text.index("## What was not measured") :]


def test_without_weights_loading_is_not_said_to_pack(tmp_path: Path) -> None:
    pte = export_module(torch.nn.Sigmoid(), torch.randn(1, 4096), tmp_path / "made", dtype="fp32").paths.pte
    run = measured(tmp_path, pte, [{"name": "only", "num_runs": 2, "launches": 2, "startup_launches": 2}])
    assert "loading adds" in (shown := whole_text(run))
    assert "with packing" not in shown and "with packing" not in markdown.render(content.report(run), {})


def test_what_the_file_says_by_itself_adds_up_to_its_size(nets: Callable[[str], Path]) -> None:
    for name, weights in (("Tiny", 4 * (8 * 3 * 9 + 8)), ("Wide", 4 * (200 + 200 + 200 + 1))):
        program = program_memory(nets(name))
        assert program is not None
        assert weights <= program.all_constant_bytes <= nets(name).stat().st_size
        assert [arena.memory_id for arena in program.arenas] == [1]
    assert program_memory(None) is None and program_memory(ROOT / "README.md") is None


def test_start_up_can_be_left_out_and_odd_counts_are_refused(nets: Callable[[str], Path], tmp_path: Path) -> None:
    run = sme2_kit.run(nets("Tiny"), runs=6, launches=2, startup_launches=0, out=tmp_path / "out")
    assert len(run.startup) == 0 and all(row.peak_bytes and not row.unknown for row in run.memory)
    assert all("startup_launches is 0" in each.startup_unknown for each in run.metrics.experiments.values())
    assert "made for it (`startup_launches` is 0)" in markdown.render(content.report(run), {})
    for count in (-1, 100_000):
        with pytest.raises(InputError, match="startup_launches must be"):
            sme2_kit.run(nets("Tiny"), startup_launches=count, out=tmp_path / "none")
    with pytest.raises(InputError, match="page_cache"):
        sme2_kit.run(nets("Tiny"), page_cache="hot", out=tmp_path / "none")  # type: ignore[arg-type]
    assert not (tmp_path / "none").exists()


def test_python_has_both_as_rows(tiny_run: RunView) -> None:
    run = sme2_kit.open_run(tiny_run.path)
    parts = [row for row in run.startup if row.experiment == "sound"]
    assert [row.part for row in parts] == [
        *("process", "program", "method", "inputs", "first_inference", "first_result", "ending")
    ]
    assert all(row.launches == 6 for row in parts)
    assert {row["experiment"]: row["leak"] for row in run.memory.to_dicts()} == {
        "sound": False,
        "cold": False,
        "leaky": True,
    }


# Gates


def _changed(source: RunView, home: Path, change: Callable[[dict[str, Any]], None]) -> Path:
    """A copy of a run with other processes, which its manifest knows of."""
    subprocess.run(["cp", "-r", str(source.path), str(home)], check=True)
    manifest = json.loads((home / "manifest.json").read_text())
    for path in home.glob("*/*_samples.json"):
        raw = json.loads(path.read_text())
        change(raw)
        for turn in raw["timed"]:
            turn["preempted"] = 0
        path.write_text(json.dumps(raw))
        manifest["experiments"][path.parent.name]["files"][path.name] = sha256(path)
    (home / "manifest.json").write_text(json.dumps(manifest))
    return home


def _larger(raw: dict[str, Any]) -> None:
    for process in raw["processes"]:
        process["peak"] = int(process["peak"] * 1.2)


def _slower(raw: dict[str, Any]) -> None:
    for process in raw["starts"]:
        process["first_result_ns"] *= 3


def _cold(raw: dict[str, Any]) -> None:
    for process in raw["starts"]:
        process["cached_percent"] = 0


def _without(raw: dict[str, Any]) -> None:
    raw["starts"] = []


def test_gates_judge_start_up_and_memory_and_every_output_says_so(tiny_run: RunView, tmp_path: Path) -> None:
    limits = ("--fail-if-startup-slower", 50, "--fail-if-memory-above", 5)
    same, larger, slower = (
        _changed(tiny_run, tmp_path / name, change)
        for name, change in (("same", lambda raw: None), ("larger", _larger), ("slower", _slower))
    )
    files = ("--junit", tmp_path / "j.xml", "--summary", tmp_path / "s.md")
    assert kit("compare", same, larger, "--fail-if-startup-slower", 50).returncode == 0
    done = kit("compare", same, larger, *limits, *files)
    assert done.returncode == 1, done.stderr
    assert done.stderr.count("is above the peak memory of its baseline by more than 5 %") == 3
    assert done.stderr.count("is not slower to its first result by more than 50 %") == 3
    assert "peak memory of B:sound is 20.0 % above" in done.stdout
    suite = ET.parse(tmp_path / "j.xml").getroot()
    assert (suite.get("tests"), suite.get("failures")) == ("9", "3")
    names = [case.get("name") or "" for case in suite.iter("testcase") if case.find("failure") is not None]
    assert all(name.endswith(": peak memory") for name in names)
    assert (tmp_path / "s.md").read_text().count("| FAIL: peak memory |") == 3
    done = kit("compare", same, slower, *limits)
    assert done.returncode == 1 and done.stderr.count("is slower to its first result by more than 50 %") == 3


def test_a_gate_without_evidence_is_an_error_and_not_a_pass(tiny_run: RunView, tmp_path: Path) -> None:
    same, bare = (
        _changed(tiny_run, tmp_path / name, change) for name, change in (("same", lambda raw: None), ("bare", _without))
    )
    done = kit("compare", same, bare, "--fail-if-startup-slower", 10)
    assert done.returncode == 2 and "no start-up to judge; after: no launches were made" in done.stderr, done.stderr
    cold = _changed(tiny_run, tmp_path / "cold", _cold)
    done = kit("compare", f"{same}:sound", f"{cold}:sound", "--fail-if-startup-slower", 10)
    assert done.returncode == 2 and "page cache was warm before and cold after" in done.stderr
    manifest = json.loads((bare / "manifest.json").read_text())
    manifest["experiments"]["sound"]["weight_cache"] = "on"
    (bare / "manifest.json").write_text(json.dumps(manifest))
    done = kit("compare", same, bare, "--fail-if-memory-above", 10)
    assert done.returncode == 2 and "weight cache of 'sound' was off in the baseline and is on" in done.stderr
    good = ROOT / "tests" / "data" / "known_good_run"
    old = shutil.copytree(good, tmp_path / "old")
    done = kit("compare", good, old, "--fail-if-memory-above", 10)
    assert (
        done.returncode == 2
        and "no peak memory to judge; before: nobody could look at the runner's memory" in done.stderr
    )
    for flag in ("--fail-if-memory-above", "--fail-if-startup-slower"):
        assert kit("compare", same, bare, f"{flag}=-1").returncode == 2


def test_two_programs_are_started_for_the_gate(nets: Callable[[str], Path], tmp_path: Path) -> None:
    """The same program twice: start-up is measured because it is judged, memory anyway."""
    copy = shutil.copytree(nets("Tiny").parent, tmp_path / "copy") / nets("Tiny").name
    limits = ("--fail-if-memory-above", 20, "--fail-if-startup-slower", 400)
    done = kit("compare", nets("Tiny"), copy, "--runs", 6, "--launches", 6, *limits)
    assert done.returncode == 0, done.stderr
    assert "is not above the peak memory" in done.stderr and "time to the first result" in done.stdout
    (found,) = sme2_kit.compare(nets("Tiny"), copy, runs=6, launches=6)
    assert found.startup is None and found.after is not None and found.after.memory is not None
    assert found.memory is not None and found.memory.low_percent is not None and found.memory.processes == 6
