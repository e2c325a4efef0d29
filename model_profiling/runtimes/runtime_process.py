"""The process of a runtime, as the pipeline sees it: the runner's flags, its JSON lines and its exit codes."""

import argparse
import gc
import importlib
import os
import platform
import re
import resource
import sys
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any, BinaryIO, NamedTuple

import msgspec

from model_profiling.base import files
from model_profiling.base.errors import InputError, KitError, SetupError
from model_profiling.runner.protocol import Done, Exit, Features, Message, Ran, Ready, TensorInfo, TurnEnd
from model_profiling.runtimes.program import LaunchOptions, LoadedProgram, ProcessError
from model_profiling.runtimes.runtime_table import runtime_of

# As the C++ runner has it: a fiftieth of an execution is more than a moment, and lines of short executions are held
# back, because whoever reads them would wake on another core.
_NOTICEABLE = 50
_SILENCE_NS = 200_000_000
_UNPROVEN = "a runtime of Python does not say which CPU features it uses"


def enter(arguments: Sequence[str]) -> None:
    """Serve the pipeline until it says `quit`, then end at once: a library may crash as it is unloaded."""
    born = born_ns()
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
        drop_from_cache(args.model_path)
    absolute = [path.absolute() for path in args.inputs]
    options = LaunchOptions(
        args.model_path.absolute(), tuple(absolute), args.cpu_threads, args.etdump_path, args.cache_dir
    )
    before, load_start = memory_now(), time.perf_counter_ns()
    program: LoadedProgram = (module.load_compiled if row.compiles else module.load)(options)
    load_ns, loaded = time.perf_counter_ns() - load_start, memory_now()
    warmup: list[int] = []
    first_result, first = 0, MemoryNow()
    for index in range(args.warmup):
        warmup.append(_timed(program))
        if index == 0:
            first_result, first = time.perf_counter_ns() - born, memory_now()
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
            resident_warm=memory_now().resident if warmup else 0,
            anonymous_before=before.anonymous,
            anonymous_loaded=loaded.anonymous,
            anonymous_first=first.anonymous,
            cpus=allowed_cpus(),
            settings=program.settings,
        ),
    )
    runs = _serve_turns(program, said, args.cpu_threads) if args.paced else 0
    if not args.paced and args.num_executions:
        runs = _turn(program, said, args.num_executions, 0, args.cpu_threads)
    if args.etdump_path is not None and runs:
        program.write_profile(args.etdump_path)
    outputs = program.outputs() if runs or warmup else []
    if args.output_file is not None:
        _write_outputs(outputs, args.output_file)
    now, life = memory_now().resident, time.perf_counter_ns() - born
    _say(said, Done(runs, [_info(o) for o in outputs], now, peak_memory(), life))


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
    waited = waited_ns() if threads > 1 else -1
    while done < count:
        times, lost = _block(program, count - done, threads)
        for index, ns in enumerate(times, first + done):
            _say(said, Ran(index, ns), flush=False)
        said.flush()
        preempted, total, done = preempted + lost, total + sum(times), done + len(times)
    # A thread that waits for the others of its process has lost time to nobody else; and where threads are more than
    # CPUs, nobody can tell.
    none_waited = waited >= 0 and (waited_ns() - waited) * _NOTICEABLE < total
    if none_waited or threads > allowed_cpus() > 0:
        preempted = 0
    nonfinite = sum(_info(output).nonfinite for output in program.outputs())
    _say(said, TurnEnd(count, nonfinite, preempted, memory_now().resident))
    return first + count


def _block(program: LoadedProgram, most: int, threads: int) -> tuple[list[int], int]:
    """Run until it is time to say something, and return the times and how many of them others made longer.

    Whatever is done between executions makes short ones longer, so it is as little as can be.
    """
    times: list[int] = []
    preempted = 0
    now, computing = time.perf_counter_ns, time.thread_time_ns
    end, waits, computed = now() + _SILENCE_NS, voluntary_switches(), computing()
    while len(times) < most and now() < end:
        ns = _timed(program)
        times.append(ns)
        before, computed = computed, computing()
        if ns - (computed - before) > ns / _NOTICEABLE:
            switches = voluntary_switches()
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
    try:
        for index, array in enumerate(outputs):
            files.write_bytes(base.with_name(f"{base.name}-{index}.bin"), array.tobytes())
    except OSError as error:
        raise ProcessError(Exit.OUTPUT_UNWRITABLE, f"cannot write {base}-*.bin: {error}") from error


_ME = Path("/proc/self")


class MemoryNow(NamedTuple):
    """Bytes in memory now, and those of them that are no file's; 0 is not known."""

    resident: int = 0
    anonymous: int = 0


def born_ns() -> int:
    """Return when the system started this process, on the clock of perf_counter_ns; now where it does not say."""
    # Until here a process computes and hardly ever waits; Linux' ticks of some milliseconds bound it from both sides.
    computed, now = time.process_time_ns(), time.perf_counter_ns()
    try:
        fields = (_ME / "stat").read_text(encoding="utf-8").rpartition(")")[2].split()
        tick = 1_000_000_000 // os.sysconf("SC_CLK_TCK")
        most = time.clock_gettime_ns(time.CLOCK_BOOTTIME) - int(fields[19]) * tick
    except (OSError, AttributeError, ValueError, IndexError):
        return now - computed
    return now - min(max(computed, most - tick, 0), max(most, 0))


def memory_now() -> MemoryNow:
    try:
        _, resident, of_files, *_ = map(int, (_ME / "statm").read_text(encoding="utf-8").split())
    except (OSError, ValueError):
        return MemoryNow()
    page = os.sysconf("SC_PAGESIZE")
    return MemoryNow(resident * page, (resident - of_files) * page)


def peak_memory() -> int:
    """Return the most bytes that were in memory at once."""
    try:
        found = re.search(r"^VmHWM:\s*(\d+) kB", (_ME / "status").read_text(encoding="utf-8"), re.MULTILINE)
        return int(found[1]) * 1024 if found else 0
    except OSError:
        most = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
        return most if sys.platform == "darwin" else most * 1024


def allowed_cpus() -> int:
    """Return how many CPUs this process may run on."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 0


def voluntary_switches() -> int:
    """Return how often this thread gave the processor away by itself."""
    who = getattr(resource, "RUSAGE_THREAD", resource.RUSAGE_SELF)
    return resource.getrusage(who).ru_nvcsw


def waited_ns() -> int:
    """Return how long all threads together have waited for a processor; -1 where the system does not say."""
    try:
        return sum(
            int((each / "schedstat").read_text(encoding="utf-8").split()[1]) for each in (_ME / "task").iterdir()
        )
    except (OSError, ValueError, IndexError):
        return -1


def drop_from_cache(path: Path) -> None:
    """Take a file out of the system's page cache, where it can be done."""
    if hasattr(os, "posix_fadvise"):
        descriptor = os.open(path, os.O_RDONLY)
        try:
            os.fdatasync(descriptor)
            os.posix_fadvise(descriptor, 0, 0, os.POSIX_FADV_DONTNEED)
        finally:
            os.close(descriptor)


if __name__ == "__main__":
    enter(sys.argv[1:])
