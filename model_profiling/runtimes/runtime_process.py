"""The process of a runtime, as the pipeline sees it: the runner's flags, its JSON lines and its exit codes."""

import argparse
import gc
import importlib
import os
import platform
import sys
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any, BinaryIO

import msgspec

from model_profiling.base.errors import InputError, KitError, SetupError
from model_profiling.runner.protocol import Done, Exit, Features, Message, Ran, Ready, TensorInfo, TurnEnd
from model_profiling.runtimes import process_facts
from model_profiling.runtimes.program import LaunchOptions, LoadedProgram, ProcessError
from model_profiling.runtimes.runtime_table import runtime_of

# As the C++ runner has it: a fiftieth of an execution is more than a moment, and lines of short executions are held
# back, because whoever reads them would wake on another core.
_NOTICEABLE = 50
_SILENCE_NS = 200_000_000
_UNPROVEN = "a runtime of Python does not say which CPU features it uses"


def enter(arguments: Sequence[str]) -> None:
    """Serve the pipeline until it says `quit`, then end at once: a library may crash as it is unloaded."""
    born = process_facts.born_ns()
    # What libraries print goes to the log.
    said = os.fdopen(os.dup(1), "wb")
    os.dup2(2, 1)
    code = Exit.OK
    try:
        _serve(_parsed(arguments), born, said)
    except Exception as error:  # noqa: BLE001 - a library may raise anything
        code = _explain(error)
    said.flush()
    sys.stdout.flush()
    sys.stderr.flush()
    os._exit(code)


def _explain(error: BaseException) -> Exit:
    """Write what happened where the pipeline finds it, and return the exit code that says it."""
    code, hint = Exit.LOAD_FAILED, getattr(error, "hint", "")
    if isinstance(error, ProcessError):
        code = error.code
    elif isinstance(error, KitError):
        kinds = {InputError: Exit.MODEL_UNREADABLE, SetupError: Exit.BACKEND_MISSING}
        code = kinds.get(type(error), Exit.LOAD_FAILED)
    message = str(error).strip() or type(error).__name__
    if not isinstance(error, (ProcessError, KitError)):
        message = f"{type(error).__name__}: {message}"
    sys.stderr.write(f"\nerror: {' '.join(message.split())[:500]}\n{f'hint: {hint}' if hint else ''}\n")
    return code


def _parsed(arguments: Sequence[str]) -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="model_profiling.runtimes", allow_abbrev=False)
    parser.add_argument("runtime")
    for name in ("model_path", "etdump_path", "output_file", "cache_dir"):
        parser.add_argument(f"--{name}", type=Path)
    for name in ("cpu_threads", "warmup", "num_executions"):
        parser.add_argument(f"--{name}", type=int, default=1 if name == "cpu_threads" else 0)
    for name in ("paced", "drop_cache"):
        parser.add_argument(f"--{name}", action="store_true")
    parser.add_argument("--inputs", type=Path, action="append", default=[])
    return parser.parse_args(arguments)


def _serve(args: argparse.Namespace, born: int, said: BinaryIO) -> None:
    _say(said, Features(platform.machine(), "", [], [], [], [], _UNPROVEN))
    row = runtime_of(args.runtime)
    try:
        module = importlib.import_module(f"{__package__}.{row.module}")
    except ModuleNotFoundError as error:
        raise ProcessError(
            Exit.BACKEND_MISSING, f"{row.label} needs {error.name}, which is not installed", row.install
        ) from error
    # The model itself is built anew: of its .pte only the record is read.
    if row.suffix != ".pte" and not args.model_path.is_file():
        raise ProcessError(Exit.MODEL_UNREADABLE, f"cannot read {args.model_path}")
    if args.drop_cache and args.model_path.is_file():
        process_facts.drop_from_cache(args.model_path)
    absolute = [path.absolute() for path in args.inputs]
    options = LaunchOptions(
        args.model_path.absolute(), tuple(absolute), args.cpu_threads, args.etdump_path, args.cache_dir
    )
    before, load_start = process_facts.memory_now(), time.perf_counter_ns()
    program: LoadedProgram = module.load(options)
    load_ns, loaded = time.perf_counter_ns() - load_start, process_facts.memory_now()
    warmup: list[int] = []
    first_result, first = 0, process_facts.MemoryNow()
    for index in range(args.warmup):
        warmup.append(_timed(program))
        if index == 0:
            first_result, first = time.perf_counter_ns() - born, process_facts.memory_now()
    # What loading left is not looked through again while executions are timed.
    gc.collect()
    gc.freeze()
    _say(
        said,
        Ready(
            method="forward",
            threads=args.cpu_threads,
            load_ns=load_ns,
            warmup_ns=warmup,
            backends=program.backends,
            inputs=[_info(each) for each in program.inputs],
            outputs=[_info(each) for each in program.outputs()] if warmup else [],
            before_load_ns=load_start - born,
            method_ns=load_ns,
            first_result_ns=first_result,
            resident_before=before.resident,
            resident_loaded=loaded.resident,
            resident_first=first.resident,
            resident_warm=process_facts.memory_now().resident if warmup else 0,
            anonymous_before=before.anonymous,
            anonymous_loaded=loaded.anonymous,
            anonymous_first=first.anonymous,
            cpus=process_facts.allowed_cpus(),
            settings=program.settings,
        ),
    )
    runs = _serve_turns(program, said, args.cpu_threads) if args.paced else 0
    if not args.paced and args.num_executions:
        runs = _turn(program, said, args.num_executions, 0, args.cpu_threads)
    profiled = program.write_profile(args.etdump_path) if args.etdump_path is not None and runs else 0
    outputs = program.outputs() if runs or warmup else []
    if args.output_file is not None:
        _write_outputs(outputs, args.output_file)
    now = process_facts.memory_now().resident
    life = time.perf_counter_ns() - born
    _say(said, Done(runs, profiled, [_info(o) for o in outputs], now, process_facts.peak_memory(), life))


def _serve_turns(program: LoadedProgram, said: BinaryIO, threads: int) -> int:
    done = 0
    for line in sys.stdin:
        word, _, count = line.strip().partition(" ")
        if word == "quit":
            break
        if word not in ("run", "settle") or not count.isdigit() or int(count) < 1:
            message = f"expected `settle N`, `run N` or `quit` on standard input, not {line.strip()!r}"
            raise ProcessError(Exit.USAGE, message)
        if word == "run":
            done = _turn(program, said, int(count), done, threads)
        else:
            done += len([_timed(program) for _ in range(int(count))])
    return done


def _turn(program: LoadedProgram, said: BinaryIO, count: int, first: int, threads: int) -> int:
    """Run `count` times and say each; then how often others took the processor, as the C++ runner counts it."""
    preempted, total, done = 0, 0, 0
    waited = process_facts.waited_ns() if threads > 1 else -1
    while done < count:
        times, lost = _block(program, count - done, threads)
        for index, ns in enumerate(times, first + done):
            _say(said, Ran(index, ns), flush=False)
        said.flush()
        preempted, total, done = preempted + lost, total + sum(times), done + len(times)
    # A thread that waits for the others of its process has lost time to nobody else; and where threads are more than
    # CPUs, nobody can tell.
    none_waited = waited >= 0 and (process_facts.waited_ns() - waited) * _NOTICEABLE < total
    if none_waited or threads > process_facts.allowed_cpus() > 0:
        preempted = 0
    nonfinite = sum(_info(output).nonfinite for output in program.outputs())
    _say(said, TurnEnd(count, nonfinite, preempted, process_facts.memory_now().resident))
    return first + count


def _block(program: LoadedProgram, most: int, threads: int) -> tuple[list[int], int]:
    """Run until it is time to say something, and return the times and how many of them others made longer.

    Whatever is done between executions makes short ones longer, so it is as little as can be.
    """
    times: list[int] = []
    preempted = 0
    now, computing = time.perf_counter_ns, time.thread_time_ns
    end, waits, computed = now() + _SILENCE_NS, process_facts.voluntary_switches(), computing()
    while len(times) < most and now() < end:
        ns = _timed(program)
        times.append(ns)
        before, computed = computed, computing()
        if ns - (computed - before) > ns / _NOTICEABLE:
            switches = process_facts.voluntary_switches()
            preempted += threads > 1 or switches == waits
            waits, computed = switches, computing()
    return times, preempted


def _timed(program: LoadedProgram) -> int:
    run = program.run
    try:
        began = time.perf_counter_ns()
        run()
        return time.perf_counter_ns() - began
    except ProcessError:
        raise
    except Exception as error:
        raise ProcessError(
            Exit.EXECUTION_FAILED, f"the model failed as it ran: {type(error).__name__}: {error}"
        ) from error


def _say(said: BinaryIO, message: Message, flush: bool = True) -> None:
    said.write(msgspec.json.encode(message) + b"\n")
    if flush:
        said.flush()


def _info(array: Any) -> TensorInfo:
    import numpy as np

    bad = int(np.count_nonzero(~np.isfinite(array))) if array.dtype.kind == "f" else 0
    return TensorInfo(list(array.shape), str(array.dtype), bad)


def _write_outputs(outputs: Sequence[Any], base: Path) -> None:
    """Write raw values in logical order as BASE-<index>.bin: executor_runner's names."""
    from model_profiling.base import files

    try:
        for index, array in enumerate(outputs):
            files.write_bytes(base.with_name(f"{base.name}-{index}.bin"), array.tobytes())
    except OSError as error:
        raise ProcessError(Exit.OUTPUT_UNWRITABLE, f"cannot write {base}-*.bin: {error}") from error
