"""The native runner: masks what it has proven, times what it is asked, and names every way to fail."""

import functools
import json
import os
import platform
import random
import re
import resource
import shutil
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from model_profiling.analysis.timing.categories import load_table
from model_profiling.analysis.timing.profile import profiles
from model_profiling.base.errors import InputError, SetupError
from model_profiling.base.npy import read_npy
from model_profiling.formats import etdump
from model_profiling.runner import features
from model_profiling.runner.protocol import Exit
from model_profiling.runner.session import ProcessSession
from tests.conftest import ROOT, needs_hardware
from tests.helpers import file_kinds, npy_forge
from tests.helpers.waiting import LONGEST_S

Toy = Callable[[str], Path]
Completed = subprocess.CompletedProcess[str]
TINY = ROOT / "tests" / "data" / "fuzz_seeds" / "tiny_xnnpack_fp32.pte"


def call(*command: object, stdin: str = "") -> Completed:
    return subprocess.run(
        [str(part) for part in command], capture_output=True, text=True, input=stdin, timeout=LONGEST_S, check=False
    )


def events(done: Completed) -> list[dict[str, Any]]:
    return [json.loads(line) for line in done.stdout.splitlines()]


def event(done: Completed, kind: str) -> dict[str, Any]:
    return next(line for line in events(done) if line["event"] == kind)


def sample(pte: Path) -> Path:
    return pte.with_name(f"{pte.stem}_inputs") / "input_0.npy"


@pytest.mark.parametrize("dtype", ["fp32", "fp16", "int8"])
def test_it_computes_what_eager_pytorch_computes(runner: Path, toy: Toy, tmp_path: Path, dtype: str) -> None:
    pte = toy(dtype)
    files = ("--model_path", pte, "--inputs", sample(pte), "--output_file", tmp_path / "out")
    done = call(runner, *files, "--cpu_threads=1")
    assert done.returncode == 0, done.stderr
    described = event(done, "done")["outputs"][0]
    ours = np.fromfile(tmp_path / "out-0.bin", dtype=described["dtype"]).reshape(described["shape"])
    eager = np.load(pte.with_name(f"{pte.stem}_expected") / "output_0.npy")
    assert np.allclose(ours, eager, atol={"fp32": 1e-4, "fp16": 1e-2, "int8": 0.1}[dtype])


def test_it_reports_the_features_in_force_after_masking(runner: Path) -> None:
    said = event(call(runner, "--list_features"), "features")
    assert said["arch"] == features.architecture(platform.machine())
    assert said["active"] == said["present"]
    name = said["present"][-1]
    masked = event(call(runner, "--list_features", f"--disable_features={name}"), "features")
    gone = features.expand(said["arch"], [name])
    assert set(masked["disabled"]) == gone & set(said["present"])
    assert set(masked["active"]) == set(said["present"]) - gone


def test_masking_changes_the_kernels_that_run(runner: Path, toy: Toy, tmp_path: Path) -> None:
    """fp16 without its arithmetic must show in the trace, not only in the report: other operators appear."""
    said = event(call(runner, "--list_features"), "features")
    accelerator = features.default_accelerator(said["arch"], set(said["present"]), "fp16")
    changes_operators = accelerator in ("fp16arith", "sme2", "sme", "avx2")
    needs_hardware(changes_operators, f"{accelerator} changes kernels without changing operators")
    names = []
    for mask in ("", accelerator):
        call(runner, "--model_path", toy("fp16"), "--etdump_path", tmp_path / "a.etdump", f"--disable_features={mask}")
        names.append(set(etdump.read(tmp_path / "a.etdump").strings))
    assert names[0] != names[1]


@pytest.mark.parametrize("threads", [1, 2, 3])
def test_threads_are_exactly_as_asked_and_a_single_one_has_a_clock_that_stops(
    runner: Path, toy: Toy, threads: int
) -> None:
    """Of several threads one waits for the rest: that is its own time."""
    ready = event(call(runner, "--model_path", toy("fp32"), f"--cpu_threads={threads}"), "ready")
    assert (ready["threads"], ready["stops_clock"]) == (threads, int(sys.platform == "linux" and threads == 1))


def test_paced_mode_answers_one_line_a_run(runner: Path, toy: Toy, tmp_path: Path) -> None:
    dump = tmp_path / "a.etdump"
    flags = ("--model_path", toy("fp16"), "--paced", "--warmup=2", "--etdump_path", dump)
    done = call(runner, *flags, stdin="run 3\nrun 2\nquit\n")
    assert done.returncode == 0
    said = ["features", "ready", *["run"] * 3, "turn", *["run"] * 2, "turn", "done"]
    assert [line["event"] for line in events(done)] == said
    assert [line["index"] for line in events(done) if line["event"] == "run"] == [0, 1, 2, 3, 4]
    assert len(event(done, "ready")["warmup_ns"]) == 2
    # The warm-up is not in the dump.
    assert len(etdump.nest(etdump.read(dump))) == 5


def test_nothing_is_said_of_executions_that_settle(runner: Path, toy: Toy) -> None:
    done = call(runner, "--model_path", toy("fp16"), "--paced", stdin="settle 4\nrun 2\nquit\n")
    assert [line["event"] for line in events(done)] == ["features", "ready", "run", "run", "turn", "done"]
    assert [line["index"] for line in events(done) if line["event"] == "run"] == [4, 5]
    assert event(done, "done")["runs"] == 6
    for words in ("settle\n", "settle 0\n", "settle x\n", "rest 4\n"):
        assert call(runner, "--model_path", toy("fp16"), "--paced", stdin=words).returncode == Exit.USAGE


def test_it_takes_other_inputs_while_it_is_alive(runner: Path, toy: Toy, tmp_path: Path) -> None:
    pte, first = toy("fp32"), sample(toy("fp32"))
    other = tmp_path / "other name.npy"
    np.save(other, read_npy(first, "", "") * 2)
    base = ("--output_file", tmp_path / "out")
    done = call(runner, "--model_path", pte, "--paced", *base, stdin=f"inputs {first}\nrun 1\ninputs {other}\nquit\n")
    said = ["features", "ready", "predicted", "run", "turn", "predicted", "done"]
    assert done.returncode == 0 and [line["event"] for line in events(done)] == said
    predicted = np.fromfile(tmp_path / "out-0.bin", dtype=np.float32)
    call(runner, "--model_path", pte, "--inputs", other, *base)
    assert np.array_equal(predicted, np.fromfile(tmp_path / "out-0.bin", dtype=np.float32))
    np.save(other, np.zeros((1, 2), np.float32))
    wrong = call(runner, "--model_path", pte, "--paced", *base, stdin=f"inputs {other}\n")
    assert wrong.returncode == Exit.INPUTS_WRONG and "has shape [1, 2]" in wrong.stderr
    assert call(runner, "--model_path", pte, "--paced", stdin=f"inputs {first}\n").returncode == Exit.USAGE


def test_a_timed_run_contains_its_method_execute(runner: Path, toy: Toy, tmp_path: Path) -> None:
    # Without an ETDump's path, nothing is written.
    words = [str(runner), "--model_path", str(toy("fp16")), "--num_executions=5"]
    subprocess.run(words, cwd=tmp_path, capture_output=True, check=True)
    assert list(tmp_path.iterdir()) == []
    done = call(*words, "--etdump_path", tmp_path / "a.etdump")
    dump = etdump.read(tmp_path / "a.etdump")
    executes = dump.events.duration[etdump.nest(dump).executions]
    outer = [line["ns"] for line in events(done) if line["event"] == "run"]
    assert all(inner <= around for inner, around in zip(executes, outer, strict=True))


@pytest.mark.parametrize("threads", [1, 2])
def test_operators_of_delegates_are_timed_in_nanoseconds_and_add_up(
    runner: Path, toy: Toy, tmp_path: Path, threads: int
) -> None:
    """XNNPACK counts whole microseconds of the clock that it is shown."""
    words = (
        "--model_path",
        toy("fp32"),
        "--warmup=1",
        "--num_executions=4",
        f"--cpu_threads={threads}",
        "--etdump_path",
    )
    assert call(runner, *words, tmp_path / "a.etdump").returncode == 0
    (profile,) = profiles(etdump.read(tmp_path / "a.etdump"), load_table())
    assert profile.clock_ns == (1 if sys.platform == "linux" else 1000)
    assert (profile.times >= 0).all() and np.allclose(profile.times.sum(axis=0), profile.execute)
    # Each operator begins where the one before it ended, within its delegate's call.
    assert (profile.starts + profile.times <= profile.execute).all()


def test_a_damaged_model_is_named_and_not_run(runner: Path, toy: Toy, tmp_path: Path) -> None:
    data, path = toy("fp32").read_bytes(), tmp_path / "damaged.pte"
    for damaged in (b"", data[:100], data[: len(data) // 2], b"hello, world " * 99):
        path.write_bytes(damaged)
        done = call(runner, "--model_path", path)
        assert done.returncode == Exit.MODEL_INVALID
        assert done.stderr.splitlines()[-1].startswith(f"error: model '{path}' is")


def test_every_other_way_to_fail_has_its_code_and_one_clear_line(runner: Path, toy: Toy, tmp_path: Path) -> None:
    pte = toy("fp16")
    good = np.load(sample(pte))
    np.save(tmp_path / "type.npy", good.astype(np.float32))
    np.save(tmp_path / "shape.npy", good[:, :, :-1])
    np.save(tmp_path / "fortran.npy", np.asfortranarray(good))
    (tmp_path / "size.bin").write_bytes(b"123")
    (tmp_path / "broken.npy").write_bytes(b"\x93NUMPY\x01\x00\xff\xff{'descr'")
    cases: list[tuple[list[object], Exit, str]] = [
        ([f"--model_path={tmp_path}/none.pte"], Exit.MODEL_UNREADABLE, "cannot be read"),
        ([f"--model_path={tmp_path}"], Exit.MODEL_UNREADABLE, "cannot be read"),
        (["--model_path", pte, "--inputs", f"{sample(pte)},{sample(pte)}"], Exit.INPUTS_WRONG, "takes 1 inputs but 2"),
        (["--model_path", pte, "--inputs", tmp_path / "type.npy"], Exit.INPUTS_WRONG, "holds numpy type <f4"),
        (["--model_path", pte, "--inputs", tmp_path / "shape.npy"], Exit.INPUTS_WRONG, "has shape [1, 3, 95, 96]"),
        (["--model_path", pte, "--inputs", tmp_path / "fortran.npy"], Exit.INPUTS_WRONG, "Fortran order"),
        (["--model_path", pte, "--inputs", tmp_path / "size.bin"], Exit.INPUTS_WRONG, "has 3"),
        (["--model_path", pte, "--inputs", tmp_path / "broken.npy"], Exit.INPUTS_WRONG, "not a usable .npy"),
        (["--model_path", pte, "--inputs", tmp_path / "none.npy"], Exit.INPUTS_WRONG, "cannot be read"),
        (["--model_path", pte, "--disable_features=warp"], Exit.UNKNOWN_FEATURE, "unknown CPU feature 'warp'"),
        (["--model_path", pte, "--method_name=backward"], Exit.USAGE, "choose one with --method: forward"),
        (["--model_path", pte, "--cpu_threads=0"], Exit.USAGE, "whole number of at least 1"),
        (["--model_path", pte, f"--etdump_path={tmp_path}/no/such/dir/a"], Exit.OUTPUT_UNWRITABLE, "cannot be written"),
        (["--colour"], Exit.USAGE, "takes a value"),
        (["--colour=red"], Exit.USAGE, "unknown flag"),
        ([], Exit.USAGE, "--model_path is needed"),
    ]
    for arguments, code, words in cases:
        done = call(runner, *arguments)
        last = done.stderr.splitlines()[-1]
        assert (done.returncode, words in last, last[:7]) == (code, True, "error: "), (arguments, done)


def test_an_input_is_accepted_or_named_as_wrong_whatever_is_in_its_header(runner: Path, tmp_path: Path) -> None:
    path = tmp_path / "x.npy"
    shape = tuple(int(size) for size in re.findall(r"\d+", npy_forge.GOOD.partition("shape")[2]))
    source, accepted = random.Random(5), 0
    cases = [npy_forge.npy(header, version=version) for header in npy_forge.HOSTILE for version in (1, 2)]
    cases += [npy_forge.damaged(source) for _ in range(200)] + [npy_forge.npy(npy_forge.GOOD)]
    for data in cases:
        path.write_bytes(data)
        done = call(runner, "--model_path", TINY, "--inputs", path)
        # Python's reader and the runner's agree on what an array is; the runner takes one shape, type and order.
        try:
            array = read_npy(path, "input", "")
            fits = array.dtype == "<f4" and array.shape == shape and array.flags.c_contiguous
        except InputError:
            fits = False
        accepted += fits
        assert done.returncode == (0 if fits else Exit.INPUTS_WRONG), (data, done)
        assert fits or done.stderr.splitlines()[-1].startswith("error: input"), (data, done)
    assert accepted > 5


# Kinds that can be read, here or by root.
_READ = {"regular", "link to a file outside", "unreadable", "growing"}


@pytest.mark.parametrize("kind", sorted(file_kinds.KINDS.keys() - _READ))
def test_an_input_that_is_no_file_is_named(runner: Path, tmp_path: Path, kind: str) -> None:
    file_kinds.KINDS[kind](tmp_path / "x.npy", npy_forge.npy(npy_forge.GOOD))
    done = call(runner, "--model_path", TINY, "--inputs", tmp_path / "x.npy")
    assert done.returncode == Exit.INPUTS_WRONG, done


def test_a_missing_backend_or_operator_is_named(runner: Path, toy: Toy, tmp_path: Path) -> None:
    data = toy("fp32").read_bytes()
    # Renamed inside the file, as a program for hardware or kernels that are not here would name them.
    (tmp_path / "backend.pte").write_bytes(data.replace(b"XnnpackBackend", b"VelocityEngine"))
    (tmp_path / "operator.pte").write_bytes(data.replace(b"aten::mean", b"aten::meen"))
    backend = call(runner, "--model_path", tmp_path / "backend.pte")
    assert backend.returncode == Exit.BACKEND_MISSING
    assert "needs the backend 'VelocityEngine'" in backend.stderr.splitlines()[-1]
    operator = call(runner, "--model_path", tmp_path / "operator.pte")
    assert operator.returncode == Exit.OPERATOR_MISSING
    assert "aten::meen.out" in operator.stderr.splitlines()[-1]


def test_nan_outputs_are_counted_and_said(runner: Path, toy: Toy, tmp_path: Path) -> None:
    pte = toy("fp32")
    np.save(tmp_path / "nan.npy", np.full_like(np.load(sample(pte)), np.nan))
    done = call(runner, "--model_path", pte, "--inputs", tmp_path / "nan.npy")
    assert event(done, "done")["outputs"][0]["nonfinite"] > 0
    assert "NaN or Inf" in done.stderr


def test_a_name_with_quotes_and_commas_is_only_a_name(runner: Path, toy: Toy, tmp_path: Path) -> None:
    odd = tmp_path / "a \"b\", $(c); 'd'.npy"
    shutil.copy(sample(toy("fp32")), odd)
    assert call(runner, "--model_path", toy("fp32"), "--inputs", odd).returncode == 0


def pinned(runner: Path, cpus: list[int], threads: int, executions: int) -> "subprocess.CompletedProcess[str]":
    """Run a tiny model on these CPUs alone."""
    counts = [f"--cpu_threads={threads}", f"--num_executions={executions}", "--warmup=1"]
    pin, words = functools.partial(os.sched_setaffinity, 0, cpus), [str(runner), f"--model_path={TINY}", *counts]
    return subprocess.run(words, capture_output=True, text=True, timeout=LONGEST_S, check=False, preexec_fn=pin)


@pytest.mark.skipif(not hasattr(os, "sched_setaffinity"), reason="hardware: only Linux pins a process to CPUs")
def test_a_process_with_more_threads_than_cpus_does_not_blame_others(runner: Path) -> None:
    allowed = sorted(os.sched_getaffinity(0))
    # taskset and cpusets narrow what a process may use; it says how many CPUs are left.
    for cpus in (allowed[:1], allowed[:2]):
        done = pinned(runner, cpus, threads=4, executions=200)
        assert done.returncode == 0, done.stderr
        assert event(done, "ready")["cpus"] == len(cpus)
        assert event(done, "turn")["preempted"] == 0


def test_a_log_that_cannot_be_written_is_named(tmp_path: Path) -> None:
    before = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (0, before[1]))
    try:
        with pytest.raises(SetupError, match=r"runner\.log cannot be written: File too large"):
            ProcessSession(["echo", "{}"], tmp_path / "runner.log", 30.0, once=False)
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, before)
