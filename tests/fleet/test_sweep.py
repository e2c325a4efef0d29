"""Sweeps: what is finished is kept, whatever kills them; a measurement has its target alone; a failure stops nobody."""

import contextlib
import dataclasses
import errno
import json
import os
import random
import shutil
import signal
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any

import jsonschema
import msgspec
import pytest

import sme2_kit
from model_profiling.analysis.run.validation import problems
from model_profiling.base import files
from model_profiling.base.errors import InputError
from model_profiling.base.programs import StartError
from model_profiling.cli.export import export_request
from model_profiling.cli.main import main, make_parser
from model_profiling.export.cache import describe
from model_profiling.fleet.sweep import executor as executors
from model_profiling.fleet.sweep import sweep as journal
from model_profiling.fleet.sweep.executor import (
    OWN,
    FinishedJob,
    JobOutcome,
    Ledger,
    LocalExecutor,
    Queue,
    failure_of,
    lane_of,
)
from model_profiling.fleet.sweep.jobs import Jobs, SweepFolder
from model_profiling.fleet.sweep.portfolio import report as portfolio_report
from model_profiling.fleet.sweep.result import CellResult, SweepResult, read_results
from model_profiling.fleet.sweep.sweep import adopt_export
from model_profiling.fleet.sweep.sweep_file import SweepTarget, cells, parse
from model_profiling.fleet.sweep.task import pack, unpack
from model_profiling.platforms import locks
from model_profiling.platforms.locks import Busy, Claim, Claims
from model_profiling.store.run_directory import ExperimentRecord, RunDirectory
from tests.conftest import QUICK, ROOT, SAMPLED, TORCH, kit, needs
from tests.helpers.chromium import BINARY, chromium
from tests.helpers.contract_check import check_files, check_printed
from tests.helpers.run_forge import forge_run
from tests.helpers.screens import shown
from tests.helpers.ssh_lab import SshLab, caching_in
from tests.helpers.sweep_forge import forged_sweep
from tests.helpers.waiting import until

FEW = {"runs": 2, "launches": 1, "startup_launches": 0}
KNOWN_GOOD = ROOT / "tests" / "data" / "known_good_run"
LOCAL, PHONE = SweepTarget("local"), SweepTarget("android", device="one")


def write(home: Path, name: str = "few", **keys: Any) -> Path:
    path = home / f"{name}.json"
    path.write_text(json.dumps(FEW | keys))
    return path


def started(home: Path, *words: object) -> "subprocess.Popen[bytes]":
    """A sweep in a process of its own, as a user starts it."""
    command = [sys.executable, "-m", "model_profiling", "sweep", *map(str, words)]
    environment = {**os.environ, "PYTHONPATH": str(ROOT), **QUICK, locks.VARIABLE: str(home / "locks")}
    return subprocess.Popen(command, cwd=home, env=environment, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)


def swept(home: Path, *words: object) -> "subprocess.CompletedProcess[str]":
    return kit("sweep", *words, cwd=home, env={locks.VARIABLE: str(home / "locks")})


def children(of: int) -> list[int]:
    found = []
    for path in Path("/proc").glob("[0-9]*/stat"):
        try:
            if int(path.read_text().rpartition(")")[2].split()[1]) == of:
                # Not what is about to start the watcher.
                found += (
                    [int(path.parent.name)] if b"child_watcher" not in (path.parent / "cmdline").read_bytes() else []
                )
        except (OSError, IndexError):
            continue
    return found


# Killed and continued


@pytest.mark.wide
def test_a_sweep_that_is_killed_at_random_moments_and_continued_runs_no_job_twice_to_its_end(
    toy: Callable[[str], Path], tmp_path: Path
) -> None:
    programs = [str(toy(dtype)) for dtype in ("fp32", "fp16", "int8")]
    threads = [1] if SAMPLED else [1, 2, 3, 4]
    file = write(tmp_path, models=programs, threads=threads, reports=False)
    moments = random.Random(22)
    for _ in range(3 if SAMPLED else 10):
        sweep = started(tmp_path, file)
        # From before its first job to the middle of the third.
        time.sleep(moments.uniform(0.2, 2.5))
        sweep.kill()
        sweep.wait()
    done = swept(tmp_path, file, "--json")
    assert done.returncode == 0, done.stderr
    result = json.loads(done.stdout)
    assert result["status"] == "complete" and len(result["jobs"]) == len(result["cells"]) == 3 * len(threads)
    entries = journal.read(tmp_path / "out_few" / ".sweep" / "journal.jsonl")
    ended = Counter(entry.job for entry in entries if entry.event == "finished")
    assert set(ended.values()) == {1}
    # One that ended just before its sweep was killed is known by its run alone.
    unsaid = {job["name"] for job in result["jobs"]} - set(ended)
    assert unsaid <= {entry.job for entry in entries if entry.event == "started"}
    assert not [entry for entry in entries if entry.event == "failed"]
    for cell in result["cells"]:
        home = tmp_path / "out_few" / cell["run"]
        manifest = RunDirectory(home).manifest()
        assert manifest.status == "complete" and {r.threads for r in manifest.experiments.values()} == {cell["threads"]}
        # Measured once: nothing was replaced, and nothing is left of what was interrupted.
        assert not (home / "earlier").exists() and not (home / ".partial").exists()
    before = {path: path.stat().st_mtime_ns for path in tmp_path.rglob("manifest.json")}
    assert swept(tmp_path, file).returncode == 0
    assert before == {path: path.stat().st_mtime_ns for path in tmp_path.rglob("manifest.json")}


@pytest.mark.wide
def test_jobs_end_with_their_sweep_however_it_ends(toy: Callable[[str], Path], tmp_path: Path) -> None:
    file = write(tmp_path, models=[str(toy("fp16"))], runs=100000, reports=False)
    for ending in (signal.SIGKILL, signal.SIGINT):
        sweep = started(tmp_path, file)
        # What the sweep asks before is no job, and starts nothing.
        job, runners = until(lambda: [(c, own) for c in children(sweep.pid) if (own := children(c))])[0]  # noqa: B023
        sweep.send_signal(ending)
        sweep.wait()
        until(all_ended, [job, *runners])
        assert sweep.returncode == (-ending if ending == signal.SIGKILL else 130)


@pytest.mark.wide
def test_a_job_that_cannot_be_started_fails_alone(
    toy: Callable[[str], Path], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A lock, a log and a process that the system refuses, each for one of four jobs."""
    file = write(tmp_path, models=[str(toy("fp32")), str(toy("fp16"))], threads=[1, 2], reports=False)
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv(locks.VARIABLE, str(tmp_path / "locks"))
    error = BlockingIOError(errno.EAGAIN, os.strerror(errno.EAGAIN))
    for name, refused in (("job_lock", error), ("start_tied", error), ("start", StartError("python", error, None))):
        real, left = getattr(executors, name), list[Exception]([refused])

        def once(*arguments: Any, real: Any = real, left: list[Exception] = left, **options: Any) -> Any:
            if left:
                raise left.pop()
            return real(*arguments, **options)

        monkeypatch.setattr(executors, name, once)
    assert main(["sweep", str(file)]) == 4
    result = files.read_json(tmp_path / "out_few" / "sweep.json", SweepResult, "result")
    failed = [job for job in result.jobs if job.state == "failed"]
    assert len(failed) == 3 and sum(job.state == "finished" for job in result.jobs) == 1
    for job in failed:
        assert "Resource temporarily unavailable" in job.failure and "ulimit -u" in job.hint
    assert main(["sweep", str(file)]) == 0


def all_ended(processes: list[int]) -> bool:
    for process in processes:
        with contextlib.suppress(OSError):
            if Path(f"/proc/{process}/stat").read_text().rpartition(")")[2].split()[0] != "Z":
                return False
    return True


@pytest.mark.wide
def test_a_fresh_run_that_ended_just_before_its_sweep_was_killed_is_not_measured_again(
    toy: Callable[[str], Path], tmp_path: Path
) -> None:
    file = write(tmp_path, models=[str(toy("fp32"))], reports=False)
    assert swept(tmp_path, file).returncode == 0
    (run,) = (tmp_path / "out_few" / "runs").iterdir()
    first = RunDirectory(run).manifest()
    # What a sweep with --fresh leaves that is killed after its job has ended, and before it knows of it.
    state = tmp_path / "out_few" / ".sweep"
    kept = msgspec.json.decode((state / "state.json").read_bytes())
    (state / "state.json").write_bytes(msgspec.json.encode(kept | {"round": 2, "since": {run.name: 2}}))
    journal.Journal(state / "journal.jsonl").add("started", f"run {run.name}", 2, replaces=first.label)
    words = ["--runs=2", "--launches=1", "--startup-launches=0", "--threads=1", "--force"]
    assert kit("run", toy("fp32"), f"--output-root={run}", *words).returncode == 0
    second = RunDirectory(run).manifest()
    done = swept(tmp_path, file, "--json")
    assert done.returncode == 0 and json.loads(done.stdout)["round"] == 2, done.stderr
    assert sessions(RunDirectory(run)) == {each.session for each in second.experiments.values()}
    assert [path.name for path in (run / "earlier").iterdir()] == [first.label]


def sessions(directory: RunDirectory) -> set[str]:
    return {record.session for record in directory.manifest().experiments.values()}


# The file


@pytest.mark.parametrize(
    ("keys", "said"),
    [
        ({"models": []}, "length >= 1"),
        ({"models": ["toy_cnn"], "dtype": ["fp16"]}, "Did you mean `dtypes`"),
        ({"models": ["toy_cnn"], "dtypes": ["fp17"]}, "`dtypes` names 'fp17'"),
        ({"models": ["toy_cnn"], "dtypes": ["fp16", "fp16"]}, "`dtypes` names fp16 twice"),
        ({"models": ["toy_cnn"], "rewrites": [["layout"], "layout"]}, "`rewrites` names ['layout'] twice"),
        ({"models": ["toy_cnn"], "rewrites": ["lay"]}, "`rewrites` names 'lay'"),
        ({"models": ["toy_cnn"], "runtimes": ["onnx"]}, "`runtimes` names 'onnx'"),
        # There is no file of the user's in a sweep.
        ({"models": ["toy_cnn"], "runtimes": ["litert"]}, "`runtimes` names 'litert'"),
        ({"models": ["toy_cnn"], "metric": "eval.py:score"}, "`metric` and `data` go together"),
        ({"models": ["toy_cnn"], "metric": "nowhere.py:score", "data": "d"}, "nowhere.py"),
        ({"models": ["toy_cnn", "toy_cnn"]}, '"toy_cnn" twice'),
        ({"models": ["toy_cnn"], "threads": [0]}, "threads[0]"),
        ({"models": ["toy_cnn"], "threads": "all"}, "threads"),
        ({"models": ["toy_cnm"]}, "Did you mean toy_cnn"),
        ({"models": ["nowhere.pte"]}, "there is no nowhere.pte"),
        ({"models": ["nowhere.py:Net"]}, "nowhere.py"),
        ({"models": [{"model": "toy_cnn", "nmae": "x"}]}, "Did you mean `name`"),
        ({"models": [{"model": "toy_cnn", "name": "../x"}]}, "name"),
        ({"models": ["toy_cnn", {"model": "toy_cnn", "set": ["x"]}]}, "--set x is not KEY=VALUE"),
        ({"models": ["toy_cnn", {"model": "ds_cnn", "name": "toy_cnn"}]}, "two cells are called toy_cnn-fp16-t1-local"),
        ({"models": ["toy_cnn"], "targets": ["phone"]}, "there is no target 'phone'"),
        ({"models": ["toy_cnn"], "targets": ["local", {"platform": "local"}]}, "two targets are called 'local'"),
        ({"models": ["toy_cnn"], "targets": [{"platform": "local", "device": "x"}]}, "`device` is for Android devices"),
        ({"models": ["toy_cnn"], "targets": [{"platform": "ssh"}]}, "the platform ssh needs a host"),
        ({"models": ["toy_cnn"], "targets": ["ssh:"]}, "the platform ssh needs a host"),
        ({"models": ["toy_cnn"], "targets": ["mac"]}, "there is no target 'mac'"),
        ({"models": ["toy_cnn"], "exclude": [{"dtype": "int8"}]}, "matches no cell"),
        ({"models": ["toy_cnn"], "exclude": [{"dtype": "fp16"}]}, "all cells are excluded"),
        (
            {"models": ["toy_cnn"], "threads": [*range(1, 400)], "targets": [f"ssh:h{n}" for n in range(40)]},
            "15960 cells",
        ),
        ({"models": ["toy_cnn"], "exclude": [{}]}, "an exclusion without a key"),
        ({"models": ["toy_cnn"], "labels": {"a b": "c"}}, "`labels`: 'a b' cannot be the key"),
        ({"models": ["\ud800"]}, "is not valid UTF-8"),
    ],
)
def test_every_mistake_in_a_sweep_file_has_a_name_and_a_fix(keys: dict[str, Any], said: str) -> None:
    with pytest.raises(InputError) as caught:
        cells(parse(keys, "here"), "here")
    assert said in f"{caught.value.message} {caught.value.hint}"
    assert caught.value.message.startswith("sweep file here") and caught.value.hint


def test_cells_are_the_product_without_what_is_excluded() -> None:
    keys = {
        "models": ["toy_cnn", "ds_cnn"],
        "dtypes": ["fp32", "int8"],
        "rewrites": ["none", ["norm", "layout"]],
        "threads": [1, 4],
        "targets": ["local", "emulator", {"platform": "android", "device": "10.0.0.1:5555", "power_mode": "boost"}],
        "exclude": [{"model": "ds_cnn", "dtype": "int8"}, {"target": "emulator", "rewrite": "layout+norm"}],
        "runtimes": ["onnxruntime", "eager"],
    }
    found = [cell.name for cell in cells(parse(keys, "here"), "here")]
    # Of each program four measured cells and, without rewrites, one emulated: threads mean nothing there.
    assert len(found) == len(set(found)) == 3 * (2 * 4 + 1)
    assert {"toy_cnn-int8-layout+norm-t4-android-10.0.0.1_5555", "ds_cnn-fp32-t1-emulator"} <= set(found)
    jobs = Jobs(parse(keys, "here"), cells(parse(keys, "here"), "here"), SweepFolder(Path("out")))
    words = jobs.by_name["run toy_cnn-int8-layout+norm-t4-android-10.0.0.1_5555"].words
    assert {"--platform=android", "--device=10.0.0.1:5555", "--power-mode=boost", "--threads=4"} <= set(words)
    assert "--rewrite norm" in " ".join(jobs.by_name["export toy_cnn-int8-layout+norm"].words)
    beside = {job.cell.target.label for job in jobs.all if "--runtimes=onnxruntime,eager" in job.words and job.cell}
    assert beside == {"local"}, "other runtimes are packages of this Python"


def test_an_export_of_a_sweep_asks_for_what_its_command_does() -> None:
    """Else its result would never be found finished."""
    model = {"model": f"{ROOT}/tests/helpers/advice_nets.py:Net", "name": "x", "input": ["1,3,8,8"], "set": ["a=1"]}
    keys = {"models": ["toy_cnn", model], "dtypes": ["fp32", "int8"], "rewrites": ["none", ["norm", "layout"]]}
    parsed = parse(keys, "here")
    for job in (jobs := Jobs(parsed, cells(parsed, "here"), SweepFolder(Path("out")))).all:
        if job.kind == "export":
            asked = export_request(make_parser(["export"]).parse_args(job.words))
            assert describe(asked) == describe(jobs.request(job.variant)) and asked.paths.pte == jobs.program(
                job.variant
            )


def test_the_schema_for_editors_accepts_what_the_kit_does() -> None:
    shipped = json.loads(kit("schema", "sweep-file").stdout)
    good = {"models": ["toy_cnn"], "rewrites": [[], "layout", ["norm"]], "targets": ["local", "ssh:board"]}
    jsonschema.validate(good, shipped)
    with pytest.raises(jsonschema.ValidationError):
        jsonschema.validate({"models": ["toy_cnn"], "dtype": "fp16"}, shipped)


# What may run at the same time


@pytest.fixture
def alone(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Locks of this test only."""
    monkeypatch.setenv(locks.VARIABLE, str(tmp_path / "locks"))


def claimed(claims: Claims, target: SweepTarget | None) -> Claim:
    found = claims.try_claim(target.lock if target is not None else None)
    assert isinstance(found, Claim), found
    return found


def refused(claims: Claims, target: SweepTarget | None) -> str:
    found = claims.try_claim(target.lock if target is not None else None)
    assert isinstance(found, Busy)
    return found.reason


def test_work_shares_a_machine_and_a_measurement_has_it_alone(alone: None) -> None:
    mine, other = Claims("mine"), Claims("other")
    work = [claimed(mine, None), claimed(other, None), claimed(other, PHONE)]
    assert f"android-one is being measured on: process {os.getpid()} (other)" in refused(mine, PHONE)
    # Who waits to measure on the machine keeps new work out, so that its turn comes.
    assert refused(mine, LOCAL)
    assert refused(other, None) and refused(other, LOCAL)
    for claim in work:
        claim.close()
    measurement = claimed(mine, LOCAL)
    assert "(mine)" in refused(other, None) and refused(other, PHONE) and refused(mine, LOCAL)
    measurement.close()
    mine.step_back()
    claimed(other, PHONE).close()
    claimed(other, LOCAL).close()


def test_a_lock_is_free_when_its_holder_is_killed(alone: None, tmp_path: Path) -> None:
    claim = claimed(Claims("mine"), LOCAL)
    holder = subprocess.Popen(["sleep", "600"], pass_fds=claim.handles)
    claim.close()
    assert refused(Claims("other"), None)
    holder.kill()
    holder.wait()
    claimed(Claims("other"), LOCAL).close()


def test_a_sweep_leaves_a_cpu_for_what_talks_to_a_phone_and_all_for_a_measurement_here(
    alone: None, tmp_path: Path
) -> None:
    keys = {"models": ["toy_cnn", "ds_cnn"], "targets": ["local", "android:one"], "reports": False}
    folder = SweepFolder(tmp_path)
    jobs = Jobs(parse(keys, "here"), cells(parse(keys, "here"), "here"), folder)
    one, other = (job for job in jobs.all if job.kind == "export")
    here, phone = jobs.by_name["run toy_cnn-fp16-t1-local"], jobs.by_name["run toy_cnn-fp16-t1-android-one"]
    executor = LocalExecutor(folder, jobs.all, cpus=2)
    words = ("models",)  # a short command in place of each
    assert executor.start(one, words) == "" and executor.start(other, words) == OWN
    assert executor.start(phone, words) == "" and executor.start(here, words) == OWN
    ended: list[FinishedJob] = []
    while len(ended) < 2:
        ended += executor.ended(10)
    assert {each.job.name for each in ended if not each.outcome.failure} == {one.name, phone.name}
    assert executor.start(here, words) == "" and executor.start(other, words) == executor.start(phone, words) == OWN
    executor.close()


@pytest.mark.wide
def test_boards_have_a_lane_each_and_one_that_somebody_measures_on_is_waited_for(
    toy: Callable[[str], Path], tmp_path: Path
) -> None:
    """Both are this machine, whose lock only one of them can have."""
    with SshLab(tmp_path) as lab:
        hosts = [lab.host(name, caching_in(tmp_path / name)) for name in ("one", "two")]
        boards = [{"platform": "ssh", "host": host, "ssh_config": str(lab.config)} for host in hosts]
        file = write(tmp_path, models=[str(toy("fp32"))], targets=boards, reports=False)
        done = swept(tmp_path, file, "--json")
    assert done.returncode == 0, done.stderr
    assert {cell["target"] for cell in json.loads(done.stdout)["cells"]} == {"ssh-one", "ssh-two"}
    running: set[str] = set()
    together = 0
    for entry in journal.read(tmp_path / "out_few" / ".sweep" / "journal.jsonl"):
        target = entry.job.rpartition("-ssh-")[2]
        if entry.event == "started":
            assert target not in running
            running.add(target)
        else:
            running.remove(target)
        together = max(together, len(running))
    assert together == 2 and not running


# What comes of it


@pytest.fixture(scope="module")
def portfolio(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A sweep of two exports that are there already, a program that cannot run, and a hostile label; then once more."""
    needs(TORCH, "torch")
    from model_profiling.export.exporter import ExportRequest, export

    home = tmp_path_factory.mktemp("portfolio")
    for dtype in ("fp16", "fp32"):
        export(ExportRequest("toy_cnn", home / "out_all" / "artifacts" / f"toy_cnn-{dtype}", dtype))
    broken = home / "broken.pte"
    broken.write_bytes(b"\0\0\0\0ET12" + bytes(64))
    file = write(
        home,
        "all",
        models=["toy_cnn", str(broken)],
        dtypes=["fp16", "fp32"],
        runs=12,
        launches=2,
        startup_launches=2,
        labels={"team": "</td><script>alert(1)</script>"},
    )
    planned = json.loads(swept(home, file, "--dry-run", "--json").stdout)
    assert [job["job"] for job in planned if job["finished"]] == ["export toy_cnn-fp16", "export toy_cnn-fp32"]
    first = swept(home, file)
    assert first.returncode == 4 and "1 of 8 jobs failed; first run broken-unknown-t1-local" in first.stderr
    assert "broken-unknown-t1-local" in first.stdout and "out_all/portfolio.html" in first.stdout
    again = swept(home, file, "--fresh", "--only", "fp16", "--json")
    assert again.returncode == 0, again.stderr
    check_printed("sweep", json.loads(again.stdout))
    return home / "out_all"


def read(home: Path) -> SweepResult:
    return msgspec.json.decode((home / "sweep.json").read_bytes(), type=SweepResult)


@pytest.mark.wide
def test_a_portfolio_has_every_cell_and_one_failure_stops_no_other(portfolio: Path) -> None:
    result = read(portfolio)
    found = {cell.name: cell for cell in result.cells}
    assert {name: cell.state for name, cell in found.items()} == {
        "toy_cnn-fp16-t1-local": "finished",
        "toy_cnn-fp32-t1-local": "finished",
        "broken-unknown-t1-local": "not asked for",
    }
    # Of its eight, depthwise has no SME2 kernel, and 1x1 in fp16 has none.
    for name, percent in (("toy_cnn-fp16-t1-local", 75.0), ("toy_cnn-fp32-t1-local", 87.5)):
        (numbers,) = found[name].results
        assert numbers.median_ms and numbers.startup_ms and numbers.peak_bytes and numbers.data_movement_percent
        assert numbers.sme2_coverage_percent == percent and "known of ExecuTorch" in numbers.sme2_coverage
        assert (portfolio / found[name].report).is_file() and not problems(RunDirectory(portfolio / found[name].run))
    check_files(portfolio)


@pytest.mark.wide
def test_a_new_result_is_held_against_the_one_before(portfolio: Path) -> None:
    found = {cell.name: cell.results for cell in read(portfolio).cells if cell.results}
    (against,) = [result.against for result in found["toy_cnn-fp16-t1-local"]]
    assert against is not None and against.run.startswith("runs/toy_cnn-fp16-t1-local/earlier/")
    assert (portfolio / against.run / "manifest.json").is_file()
    if against.verdict == "unknown":
        assert against.reason
    else:
        assert against.low and against.high and against.ratio and against.low <= against.ratio <= against.high
    assert [result.against for result in found["toy_cnn-fp32-t1-local"]] == [None]


@pytest.mark.parametrize(("times", "verdict"), [(1.0, "no difference"), (1.4, "worse"), (0.7, "better")])
def test_a_verdict_needs_the_whole_interval(times: float, verdict: str, tmp_path: Path) -> None:
    shutil.copytree(KNOWN_GOOD, tmp_path / "run")
    shutil.copytree(KNOWN_GOOD, tmp_path / "run" / "earlier" / "before")
    for path in (tmp_path / "run").glob("*/*_samples.json"):
        samples = json.loads(path.read_text())
        for turn in samples["timed"]:
            turn["ns"] = [round(ns * times) for ns in turn["ns"]]
        path.write_text(json.dumps(samples))
    results = read_results(tmp_path / "run", tmp_path)
    assert results and all(found.speedup is not None for found in results)
    for found in results:
        assert found.against is not None and found.against.run == "run/earlier/before"
        low, high = found.against.low, found.against.high
        assert low is not None and high is not None and low <= 1 / times * 1.001 and high >= 1 / times * 0.999
        assert found.against.verdict == verdict
        assert (found.against.changes is None) == (verdict == "no difference")


def test_a_cell_that_became_slower_names_the_lines_that_changed(tmp_path: Path) -> None:
    def slower(_: ExperimentRecord, name: str, ns: int) -> float:
        return ns * 4 if name.startswith("Fully Connected") else ns

    how: dict[str, Any] = {"executions": 60, "launches": 10}
    now = forge_run(KNOWN_GOOD, tmp_path / "runs" / "cell", **how, times=slower)
    forge_run(KNOWN_GOOD, now / "earlier" / "before", **how)
    found = {result.experiment: result.against for result in read_results(now, tmp_path)}["linux_fp16arith_on"]
    assert found is not None and found.verdict == "worse" and found.changes is not None
    told = found.changes.told
    assert told and {part.operators[0].split(" (")[0] for part in told} == {"Fully Connected"}
    assert sum(part.difference_ms for part in found.changes.parts) == pytest.approx(found.changes.difference_ms)
    forged = forged_sweep(1, ["local"])
    cell = msgspec.structs.replace(forged.cells[0], results=[CellResult("on", median_ms=1.0, against=found)])
    said = shown(portfolio_report(msgspec.structs.replace(forged, cells=[cell])))
    assert f"{cell.name}, worse: Fully Connected" in said


def test_a_result_of_another_machine_is_no_baseline(tmp_path: Path) -> None:
    shutil.copytree(KNOWN_GOOD, tmp_path / "run")
    shutil.copytree(KNOWN_GOOD, tmp_path / "run" / "earlier" / "before")
    path = tmp_path / "run" / "manifest.json"
    manifest = json.loads(path.read_text())
    manifest["environment"]["cpu"] = "Another"
    path.write_text(json.dumps(manifest))
    for found in read_results(tmp_path / "run", tmp_path):
        assert found.against is not None and found.against.verdict == "unknown"
        assert "another CPU" in found.against.reason and found.against.ratio is None


@pytest.mark.wide
def test_the_page_is_one_file_and_nothing_in_it_can_act(portfolio: Path) -> None:
    page, text = (portfolio / "portfolio.html").read_text(), (portfolio / "portfolio.md").read_text()
    assert "<script>alert" not in page and "&lt;script&gt;alert(1)" in page and "<script>" not in text
    assert 'href="runs/toy_cnn-fp16-t1-local/report.html"' in page
    assert "http://" not in page.replace("http://www.w3.org", "") and "https://" not in page
    assert "| 75 % |" in text


@pytest.mark.wide
def test_the_page_sorts_its_cells_fits_a_phone_and_asks_nobody(portfolio: Path) -> None:
    needs(BINARY is not None, "chromium")
    cells = "document.querySelectorAll('[data-table=programs] tbody td.number:nth-child(4)')"
    column = f"[...{cells}].map((cell) => +cell.dataset.value)"
    with chromium() as tab:
        tab.open(portfolio / "portfolio.html", width=390, height=844)
        assert tab.value("document.documentElement.scrollWidth") <= 390
        header = "document.querySelectorAll('[data-table=programs] th button')[3]"
        assert tab.value(f"{header}.textContent") == "on"
        tab.value(f"{header}.click()")
        down = tab.value(column)
        tab.value(f"{header}.click()")
        assert down[0] > 0 and down != tab.value(column) and sorted(down, reverse=True) == down
        link = tab.value("document.querySelector('[data-table=programs] td a').href")
        assert link.startswith("file://") and Path(link.removeprefix("file://")).is_file()
        assert tab.errors == [] and all(each.startswith("file://") for each in tab.requests)


@pytest.mark.wide
def test_only_that_matches_nothing_and_a_second_sweep_at_once_are_refused(portfolio: Path) -> None:
    home = portfolio.parent
    done = swept(home, home / "all.json", "--only", "int8")
    assert done.returncode == 2 and "matches no cell" in done.stderr and "toy_cnn-fp16-t1-local" in done.stderr
    with files.locked(portfolio / ".sweep", "sweep"):
        done = swept(home, home / "all.json")
    assert done.returncode == 3 and "another sweep is writing" in done.stderr


@pytest.mark.wide
def test_a_program_gets_the_result_and_what_failed_raises_nothing(
    portfolio: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(portfolio.parent)
    monkeypatch.setenv(locks.VARIABLE, str(portfolio.parent / "locks"))
    told = []
    keys = json.loads((portfolio.parent / "all.json").read_text())
    result = sme2_kit.sweep(keys, out=portfolio, on_progress=lambda label, done, total: told.append((done, total)))
    states = Counter(job.state for job in result.jobs)
    assert result.status == "failed" and states == {"finished": 6, "failed": 1, "skipped": 1}
    (failed,) = [job for job in result.jobs if job.state == "failed"]
    assert failed.failure and (portfolio / failed.log).is_file() and told[0] == (6, 8)


# How long it will take


def test_time_left_is_that_of_the_longest_lane() -> None:
    asked = parse(
        {"models": ["toy_cnn"], "threads": [1, 2, 3], "targets": ["local", "ssh:b"], "reports": False}, "here"
    )
    jobs = Jobs(asked, cells(asked, "here"), SweepFolder(Path("out"))).all
    ledger = Ledger(jobs, {"run toy_cnn-fp16-t1-local": 10.0}, 2)
    for job in jobs:
        ledger.set(job, "finished" if "t1-local" in job.name else "waiting")
    assert ledger.left() == 0  # nobody knows how long an export takes
    ledger.set(jobs[0], "finished", JobOutcome(4.0))
    assert ledger.left() == 30  # three on the board, two on this machine
    queue = Queue(jobs[1:], lane_of)
    assert {lane: len(ready) for lane, ready in queue.ready.items()} == {"local": 3, "ssh-b": 3}
    queue = Queue(jobs, lane_of)
    assert [len(lane) for lane in queue.ready.values()] == [1] and len(queue.failed(jobs[0])) == 6


# Between machines


def test_an_export_that_was_sent_is_a_finished_export(tmp_path: Path) -> None:
    needs(TORCH, "torch")
    from model_profiling.export.exporter import export as export_program

    asked = parse({"models": ["toy_cnn"]}, "here")
    jobs = Jobs(asked, cells(asked, "here"), SweepFolder(tmp_path))
    (export,) = [job for job in jobs.all if job.kind == "export"]
    assert not jobs.is_finished(export, 1, {})
    request = jobs.request(export.variant)
    made = export_program(dataclasses.replace(request, outdir=tmp_path / "there"))
    unpack(pack(made.paths.directory), jobs.folder.incoming)
    adopt_export(request, jobs.folder.incoming)
    assert jobs.is_finished(export, 1, {})


def test_what_failed_is_said_as_the_command_said_it() -> None:
    assert failure_of("run: x\nerror: no device\n  fix: plug it in\n", 3) == ("no device", "plug it in")
    assert failure_of("Segmentation fault", -11)[0].startswith("the command was killed by signal 11; it said last")


def test_a_journal_goes_on_after_lines_that_are_none_and_one_that_is_torn(tmp_path: Path) -> None:
    path, deep = tmp_path / "journal.jsonl", b"[" * 100_000
    journal.Journal(path).add("started", "run a", 1)
    ended = b'{"at": "", "event": "finished", "job": "run a", "round": 1, "seconds": %s}'
    lines = [b"\xff" * 100, b"null", b'"' + b"a" * 5_000_000, deep]
    lines += [b'{"%s": %s%s}' % (name, deep, b"]" * 100_000) for name in (b"at", b"more")]
    lines += [b'{"at": "\\ud800", "event": "finished", "job": "run a", "round": 1}']
    lines += [ended % seconds for seconds in (b"-1", b"1e300", b"1e999", b"NaN", b"9" * 5000, b'"1"')]
    with path.open("ab") as file:
        file.write(b"\n".join([*lines, b'{"at": "2026']))
    journal.Journal(path).add("finished", "run a", 1, seconds=1.5)
    assert [(entry.event, entry.seconds) for entry in journal.read(path)] == [("started", 0.0), ("finished", 1.5)]


def test_a_sweep_file_that_is_not_there_says_so(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["sweep", "nowhere.json"]) == 2
    assert "sweep file nowhere.json does not exist" in capsys.readouterr().err
