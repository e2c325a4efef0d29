"""The pipeline end to end on the real runner: true ratios, nothing lost, nothing half-written."""

import json
import os
import random
import re
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from model_profiling.analysis.compare.metrics import Metrics
from model_profiling.base.files import read_json
from model_profiling.platforms.platform_table import local_name
from model_profiling.platforms.process_platform import list_features
from model_profiling.runner import features
from model_profiling.store.run_directory import RunDirectory, without_threads
from tests.conftest import QUICK, ROOT, SAMPLED, kit, needs_hardware, processes_naming
from tests.helpers.contract_check import check_files
from tests.helpers.waiting import LONGEST_S, until

Toy = Callable[[str], Path]


def write_config(path: Path, model: Path, root: Path, experiments: list[dict[str, Any]], **more: Any) -> Path:
    path.write_text(json.dumps({"model": str(model), "output_root": str(root), "experiments": experiments, **more}))
    return path


def accelerator_for(runner: Path, dtype: str) -> str | None:
    said = list_features([str(runner)])
    assert said is not None
    return features.default_accelerator(said.arch, set(said.present), dtype)


@pytest.fixture(scope="module")
def default_run(toy: Toy, tmp_path_factory: pytest.TempPathFactory) -> RunDirectory:
    """`sme2-kit run MODEL.pte`, nothing else said: what the demo does."""
    root = tmp_path_factory.mktemp("run") / "out"
    done = kit("run", toy("fp16"), "--output-root", root)
    assert done.returncode == 0, done.stderr
    assert "off:" in done.stdout or "no comparison" in done.stderr
    check_files(root)
    return RunDirectory(root)


def test_the_default_run_compares_the_machines_default_accelerator(default_run: RunDirectory, runner: Path) -> None:
    accelerator = accelerator_for(runner, "fp16")
    needs_hardware(accelerator is not None, "no accelerator for fp16 to switch off")
    metrics = read_json(default_run.metrics_path, Metrics, "metrics")
    name = local_name()
    assert set(metrics.experiments) == {f"{name}_{accelerator}_on", f"{name}_{accelerator}_off"}
    (comparison,) = metrics.comparisons
    assert comparison.paired


def test_outputs_agree_with_eager_and_with_each_other(default_run: RunDirectory) -> None:
    metrics = read_json(default_run.metrics_path, Metrics, "metrics")
    assert {agreement.right for agreement in metrics.agreements} >= {"eager"}
    assert all((agreement.cosine or 0) > 0.999 for agreement in metrics.agreements)
    assert all(experiment.nonfinite_outputs == 0 for experiment in metrics.experiments.values())


def test_the_manifest_explains_the_numbers(default_run: RunDirectory) -> None:
    manifest = default_run.manifest()
    assert manifest.status == "complete"
    assert {"cpu", "features", "load_1m_5m_15m", "system"} <= set(manifest.environment)
    for record in manifest.experiments.values():
        assert record.features is not None
        assert record.runner.sha256 and record.runner.compiler and record.runner.executorch
        assert record.latency_source == "untraced executions"
        schedule = manifest.schedules[record.session]
        assert schedule.kind == "alternating launches, interleaved turns"
        assert schedule.launches >= 1 and f"{QUICK['SME2_KIT_BUDGET_S']} s" in schedule.plan
        samples = default_run.samples(manifest, record.name)
        assert len({turn.launch for turn in samples.timed}) == schedule.launches
        assert 0 < len(samples.traced_launches) <= min(8, schedule.launches)
        assert len(schedule.order) == schedule.turns


def test_validate_accepts_a_run_and_notices_what_is_wrong_with_it(default_run: RunDirectory, tmp_path: Path) -> None:
    assert kit("validate", "--results", default_run.path).returncode == 0
    subprocess.run(["cp", "-r", str(default_run.path), str(tmp_path / "copy")], check=True)
    copy = RunDirectory(tmp_path / "copy")
    dump = next(copy.path.glob("*/*.etdump"))
    dump.write_bytes(dump.read_bytes()[:-100])
    next(copy.path.glob("*/*.log")).unlink()
    done = kit("validate", "--results", copy.path)
    assert done.returncode == 1
    assert "has changed since the run" in done.stdout
    assert "is missing" in done.stdout
    assert kit("validate", "--results", tmp_path / "nowhere").returncode == 1


def test_a_finished_run_is_kept_and_analysis_only_runs_nothing(default_run: RunDirectory, toy: Toy) -> None:
    before = default_run.manifest().experiments
    done = kit("run", toy("fp16"), "--output-root", default_run.path, "--verbose")
    assert "ran: nothing" in done.stderr
    assert default_run.manifest().experiments == before
    default_run.metrics_path.unlink()
    assert kit("run", toy("fp16"), "--output-root", default_run.path, "--analysis-only").returncode == 0
    assert default_run.metrics_path.is_file()


def test_another_model_does_not_overwrite_a_run(default_run: RunDirectory, toy: Toy) -> None:
    done = kit("run", toy("int8"), "--output-root", default_run.path)
    assert done.returncode == 2
    assert "holds a run of toy_cnn_xnnpack_fp16" in done.stderr


def test_a_second_run_says_that_it_measured_nothing_and_force_measures_again(toy: Toy, tmp_path: Path) -> None:
    def run(*flags: str) -> tuple[str, list[bytes]]:
        done = kit("run", toy("fp16"), "--output-root", tmp_path / "out", "--runs", 4, "--quiet", *flags)
        assert done.returncode == 0, done.stderr
        return done.stderr, [path.read_bytes() for path in sorted((tmp_path / "out").glob("*/*_samples.json"))]

    _, first = run()
    said, second = run()
    assert "reused existing results from 20" in said and second == first
    said, third = run("--force")
    assert "reused existing" not in said and third != first


def test_another_dtype_gets_a_directory_of_its_own(toy: Toy, tmp_path: Path) -> None:
    artifacts = tmp_path / "out_toy_cnn" / "artifacts"
    shutil.copytree(toy("fp16").parent, artifacts)
    for dtype, folder in (("fp16", local_name()), ("int8", f"{local_name()}-int8"), ("fp16", local_name())):
        done = kit("run", artifacts / f"toy_cnn_xnnpack_{dtype}.pte", "--runs", 2, "--quiet")
        assert done.returncode == 0, done.stderr
        run = RunDirectory(tmp_path / "out_toy_cnn" / "runs" / folder)
        assert run.manifest().model.dtype == dtype
        # Two turns bound no ratio, which is no reason to call the run damaged.
        assert kit("validate", "--results", run.path).returncode == 0


def test_int8_and_fp32_run_too(toy: Toy, tmp_path: Path, runner: Path) -> None:
    for dtype in ("int8", "fp32"):
        done = kit("run", toy(dtype), "--output-root", tmp_path / dtype, "--runs", 8)
        assert done.returncode == 0, done.stderr
        metrics = read_json(RunDirectory(tmp_path / dtype).metrics_path, Metrics, "metrics")
        assert len(metrics.comparisons) == (1 if accelerator_for(runner, dtype) else 0)


def executor_runner(path: Path, runner: Path) -> Path:
    """A runner that, like executor_runner, knows four flags and refuses all others; the real one runs behind it."""
    path.write_text(
        f"""#!/bin/sh
for argument in "$@"; do
  case "$argument" in
    --model_path=*|--num_executions=*|--cpu_threads=*|--etdump_path=*) ;;
    *) echo "ERROR: unknown command line flag '$argument'" >&2; exit 1 ;;
  esac
done
exec {runner} "$@" > /dev/null
"""
    )
    path.chmod(0o755)
    return path


def test_a_foreign_runner_alternates_launches_and_says_so(toy: Toy, tmp_path: Path, runner: Path) -> None:
    foreign = str(executor_runner(tmp_path / "executor_runner", runner))
    experiments = [{"name": f"x_{name}", "runner_path": foreign, "num_runs": 10} for name in ("on", "off")]
    config = write_config(tmp_path / "c.json", toy("fp16"), tmp_path / "out", experiments)
    done = kit("run", "--config", config)
    assert done.returncode == 0, done.stderr
    directory = RunDirectory(tmp_path / "out")
    manifest = directory.manifest()
    for record in manifest.experiments.values():
        assert (record.runner.kind, record.latency_source) == ("foreign", "traced executions")
        assert "launches alternate" in record.notes[0]
        assert manifest.schedules[record.session].kind == "alternating launches"
        samples = directory.samples(manifest, record.name)
        assert sum(len(turn.ns) for turn in samples.traced) == 10
        assert len(samples.traced_launches) == manifest.schedules[record.session].launches == 6
    metrics = read_json(directory.metrics_path, Metrics, "metrics")
    assert metrics.comparisons[0].launch_spread_percent is not None
    for measured in metrics.experiments.values():
        assert measured.startup is None and "foreign" in measured.startup_unknown
        # It is looked at from outside now and then; what is soon over may not have been seen.
        assert "sampled" in measured.memory.peak_source if measured.memory else measured.memory_unknown
    assert kit("validate", "--results", tmp_path / "out").returncode == 0


def test_masking_with_a_foreign_runner_is_refused(toy: Toy, tmp_path: Path, runner: Path) -> None:
    foreign = str(executor_runner(tmp_path / "executor_runner", runner))
    experiments = [{"name": "off", "runner_path": foreign, "disable_features": ["sme2"]}]
    done = kit("run", "--config", write_config(tmp_path / "c.json", toy("fp16"), tmp_path / "out", experiments))
    assert done.returncode == 2
    assert "only the kit's runner" in done.stderr


def test_one_failing_experiment_leaves_the_others_finished(toy: Toy, tmp_path: Path) -> None:
    crash = tmp_path / "crash"
    crash.write_text("#!/bin/sh\nkill -SEGV $$\n")
    crash.chmod(0o755)
    experiments = [{"name": "good", "num_runs": 5}, {"name": "bad", "num_runs": 5, "runner_path": str(crash)}]
    config = write_config(
        tmp_path / "c.json", toy("fp16"), tmp_path / "out", experiments, analysis={"compare_pairs": [["bad", "good"]]}
    )
    done = kit("run", "--config", config)
    assert done.returncode == 4
    assert "experiment 'bad' failed" in done.stderr
    assert "SIGSEGV" in done.stderr
    assert "Traceback" not in done.stderr
    manifest = RunDirectory(tmp_path / "out").manifest()
    assert {name: record.status for name, record in manifest.experiments.items()} == {"good": "ok", "bad": "failed"}
    metrics = read_json(RunDirectory(tmp_path / "out").metrics_path, Metrics, "metrics")
    assert metrics.experiments["good"].latency is not None
    assert metrics.comparisons == []
    check_files(tmp_path / "out")


def test_a_failure_never_replaces_a_success(toy: Toy, tmp_path: Path) -> None:
    """Wrong inputs, a changed model that does not load, one side that crashes: the good run stays, whole and valid."""
    root, model = tmp_path / "out", tmp_path / "toy_xnnpack_fp16.pte"
    shutil.copy(toy("fp16"), model)
    crash = tmp_path / "crash"
    crash.write_text("#!/bin/sh\nkill -SEGV $$\n")
    crash.chmod(0o755)

    def run(second: dict[str, Any], **more: Any) -> "subprocess.CompletedProcess[str]":
        experiments = [{"name": "a", "num_runs": 6}, {"name": "b", "num_runs": 6, **second}]
        pairs = {"compare_pairs": [["a", "b"]]}
        return kit(
            "run", "--config", write_config(tmp_path / "c.json", model, root, experiments, analysis=pairs, **more)
        )

    assert run({}).returncode == 0
    # What was measured; the analysis also reads the model, which changes below.
    derived = ("_ops_stats.csv", "_operators.csv")
    measured = [path for path in root.glob("*/*") if path.is_file() and not path.name.endswith(derived)]
    good = {path: path.read_bytes() for path in [root / "manifest.json", *measured]}
    wrong = tmp_path / "wrong.npy"
    wrong.write_bytes(b"no array")
    done = run({}, inputs=[str(wrong)])
    assert done.returncode in (2, 4) and "Earlier results were not replaced" in done.stderr
    done = run({"runner_path": str(crash)})
    assert done.returncode == 4 and "experiment 'b' failed" in done.stderr
    model.write_bytes(model.read_bytes()[:5000])
    assert run({}).returncode == 2
    assert {path: path.read_bytes() for path in good} == good
    assert kit("validate", "--results", root).returncode == 0
    assert any((root / "failed").rglob("*.log"))


# What a runner does instead of what it should, after it has said which features there are.
FAULTS = {
    "crashes": "kill -SEGV $$",
    "ends": "echo partly >&2; exit 77",
    "talks": "echo hello",
    "ends no line": "head -c 3000000 /dev/zero; sleep 1000",
    "is silent": "sleep 1000",
    "crashes later": 'echo x >> $0.count; [ $(wc -l < $0.count) -lt 3 ] && exec $RUNNER "$@"\nkill -SEGV $$',
    "breaks the dump": (
        'for a in "$@"; do case "$a" in --etdump_path=*) d=${a#*=};; esac; done\n'
        '$RUNNER "$@"; [ -z "$d" ] || echo no > "$d"'
    ),
}
_WIDE = [pytest.mark.wide]
# The end of a runner is told in one way, whatever ended it.
_MARKS = {
    "is silent": _WIDE,
    "ends": [*_WIDE, pytest.mark.again],
    "talks": [*_WIDE, pytest.mark.again],
    "ends no line": _WIDE,
}


def faulty(path: Path, runner: Path, fault: str) -> str:
    path.write_text(f'#!/bin/sh\nRUNNER={runner}\n[ "$1" = --list_features ] && exec $RUNNER "$@"\n{FAULTS[fault]}\n')
    path.chmod(0o755)
    return str(path)


def named_files(text: str, below: Path) -> list[Path]:
    """Every path in a text that leads below a directory."""
    return [Path(word.rstrip(".,;:)'")) for word in re.findall(rf"{re.escape(str(below))}/\S+", text)]


@pytest.mark.parametrize("fault", [pytest.param(fault, marks=_MARKS.get(fault, [])) for fault in FAULTS])
def test_the_files_that_a_failure_names_are_there(fault: str, toy: Toy, tmp_path: Path, runner: Path) -> None:
    """In a new directory, in one with a good run, as the only experiment and as the second, and where a good run is."""
    bad = {"name": "bad", "runner_path": faulty(tmp_path / "runner", runner, fault), "num_runs": 4, "launches": 2}
    good = {"name": "good", "num_runs": 4, "launches": 2}
    both = {"analysis": {"compare_pairs": [["good", "bad"]]}, "timeout_s": 1 if fault == "is silent" else 60}
    root = tmp_path / "out"
    config = write_config(tmp_path / "c.json", toy("fp16"), root, [bad], timeout_s=both["timeout_s"])
    second = write_config(tmp_path / "d.json", toy("fp16"), root, [good, bad], **both)
    alone = write_config(tmp_path / "e.json", toy("fp16"), root, [{**good, "name": "bad"}])
    # The last finds a good run, which a failure does not replace.
    for path in (config, second, alone, config):
        (tmp_path / "runner.count").unlink(missing_ok=True)
        done = kit("run", "--config", path)
        assert (done.returncode == 0) == (path == alone), done.stderr
        said = {"ends no line": "wrote a line of more than 1 MB", "is silent": "no output from the runner for 1 s"}
        assert path == alone or said.get(fault, "") in done.stderr
        told = done.stderr + (root / "manifest.json").read_text()
        assert all(named.exists() for named in named_files(told, root)), told
        log = fault not in ("is silent", "breaks the dump") and path != alone
        assert log == ("Its log is " in done.stderr), done.stderr


def test_the_log_of_programs_that_are_compared_stays_where_the_error_says(tmp_path: Path) -> None:
    import torch

    from model_profiling.export.in_memory import export_module

    class Looks(torch.nn.Module):  # type: ignore[misc]
        def __init__(self) -> None:
            super().__init__()
            self.table = torch.nn.Embedding(1, 8)

        def forward(self, index: Any) -> Any:
            return self.table(index)

    exported = export_module(Looks(), torch.zeros(1, dtype=torch.int64), tmp_path / "made", dtype="fp32").paths.pte
    # Without its sample it is given ones, and there is no row 1.
    pte, scratch = Path(shutil.copy(exported, tmp_path / "m.pte")), tmp_path / "scratch"
    scratch.mkdir()
    done = kit("compare", pte, pte, "--runs", 4, env={"TMPDIR": str(scratch)})
    assert done.returncode == 4 and "Its log is " in done.stderr, done.stderr
    (log,) = named_files(done.stderr, scratch)
    assert log.read_text()
    assert [path for path in scratch.rglob("*") if path.is_file()] == [log]


def test_two_pipelines_do_not_share_a_directory(toy: Toy, tmp_path: Path) -> None:
    from model_profiling.base.files import locked

    with locked(tmp_path / "out", "pipeline"):
        done = kit("run", toy("fp16"), "--output-root", tmp_path / "out")
    assert done.returncode == 3
    assert "another pipeline" in done.stderr


@pytest.mark.skipif(sys.platform == "darwin", reason="hardware: this is the right host for it")
def test_a_platform_on_the_wrong_host_names_the_right_one(toy: Toy) -> None:
    done = subprocess.run(
        [sys.executable, ROOT / "model_profiling/scripts/mac_pipeline.py", toy("fp16")],
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 3
    assert "linux_pipeline.py" in done.stderr


def json_files(root: Path) -> list[Path]:
    return [path for path in root.rglob("*.json") if ".partial" not in path.parts]


@pytest.mark.wide
def test_killed_at_any_moment_nothing_finished_is_lost_and_no_json_is_broken(toy: Toy, tmp_path: Path) -> None:
    root = tmp_path / "out"
    experiments = [{"name": f"e{i}", "num_runs": 30, "num_threads": 1 + i % 2} for i in range(4)]
    config = write_config(tmp_path / "c.json", toy("fp16"), root, experiments)
    command = [sys.executable, "-m", "model_profiling", "run", "--config", str(config)]
    environment = {**os.environ, "PYTHONPATH": str(ROOT)}
    chance = random.Random(0)
    finished: dict[str, Any] = {}
    for moment in range(3 if SAMPLED else 10):
        process = subprocess.Popen(command, env=environment, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
        time.sleep(chance.uniform(0.05, 1.6))
        process.send_signal(signal.SIGINT if moment % 3 == 2 else signal.SIGKILL)
        process.wait(timeout=LONGEST_S)
        for path in json_files(root):
            json.loads(path.read_text())
        if (root / "manifest.json").exists():
            now = {name: r.files for name, r in RunDirectory(root).manifest().experiments.items() if r.status == "ok"}
            assert finished.items() <= now.items()
            finished = now
    assert subprocess.run(command, env=environment, capture_output=True, check=False).returncode == 0
    complete = {name: record.files for name, record in RunDirectory(root).manifest().experiments.items()}
    assert finished.items() <= complete.items()
    assert set(complete) == {"e0", "e1", "e2", "e3"}
    assert kit("validate", "--results", root).returncode == 0


def test_no_runner_outlives_a_killed_pipeline(toy: Toy, tmp_path: Path) -> None:
    model = shutil.copy(toy("fp16"), tmp_path / "long.pte")
    config = write_config(tmp_path / "c.json", Path(model), tmp_path / "out", [{"name": "long", "num_runs": 100000}])
    process = subprocess.Popen(
        [sys.executable, "-m", "model_profiling", "run", "--config", str(config)],
        env={**os.environ, "PYTHONPATH": str(ROOT)},
        stderr=subprocess.DEVNULL,
    )

    def runners() -> list[str]:
        return processes_naming(f"model_path={model}")

    until(runners)
    process.kill()
    process.wait()
    # A turn of this run is long; each runner ends when its turn does and finds nobody listening.
    until(lambda: not runners())


@pytest.mark.wide
@pytest.mark.skipif(sys.platform != "linux", reason="hardware: setarch is Linux's")
def test_one_memory_layout_is_not_taken_for_many(toy: Toy, tmp_path: Path) -> None:
    experiments = [{"name": name, "num_runs": 6, "traced_runs": 1} for name in ("left", "right")]
    config = write_config(tmp_path / "c.json", toy("fp16"), tmp_path / "out", experiments)
    command = ["setarch", "-R", sys.executable, "-m", "model_profiling", "run", "--config", str(config)]
    environment = {**os.environ, "PYTHONPATH": str(ROOT)}
    done = subprocess.run(command, env=environment, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    assert "holds for one memory layout" in " ".join(done.stdout.split())


def test_several_numbers_of_threads_take_turns_and_are_compared(toy: Toy, tmp_path: Path) -> None:
    root = tmp_path / "out"
    done = kit("run", toy("fp16"), "--threads", "1,2", "--runs", 12, "--output-root", root, "--verbose")
    assert done.returncode == 0, done.stderr
    assert "\nThreads: " in done.stdout
    manifest = RunDirectory(root).manifest()
    records = manifest.experiments
    assert {record.threads for record in records.values()} == {1, 2}
    assert all(without_threads(name, record.threads)[1] for name, record in records.items())
    (schedule,) = manifest.schedules.values()
    timed = {f"{name}:timed" for name in records}
    together = [turn for turn in schedule.order if timed & set(turn)]
    assert together and all(set(turn) == timed for turn in together)
    assert all(record.cpus > 0 for record in records.values())
    for name, record in records.items():
        assert bool(RunDirectory(root).samples(manifest, name).starts) == (record.threads == 1)
    metrics = json.loads((root / "metrics.json").read_text())
    for curve in metrics["scaling"]["curves"]:
        assert [point["threads"] for point in curve["points"]] == [1, 2]
        assert all(point["median_ms"] > 0 for point in curve["points"])
    # A number that was measured before is not measured again.
    again = kit("run", toy("fp16"), "--threads", "1,2", "--runs", 12, "--output-root", root, "--quiet")
    assert again.returncode == 0 and "reused existing results" in again.stderr
