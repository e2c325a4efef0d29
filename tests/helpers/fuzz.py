"""Damages the files and answers that the kit reads, and reads them: each case ends in a result or a KitError, soon and
in little memory.

`make fuzz` (`python -m tests.helpers.fuzz`) takes a million cases over all readers, spread over the cores. A case that
fails is kept in tests/data/fuzz_corpus/<reader>/, from where tests replay it for ever.
`python -m tests.helpers.fuzz --replay FILE` shows what a kept case does.
"""

import argparse
import functools
import hashlib
import multiprocessing
import os
import random
import resource
import signal
import sys
import tempfile
import time
import traceback
import warnings
from collections.abc import Callable, Iterable
from pathlib import Path
from types import FrameType

import pytest

from model_profiling.base.errors import KitError
from tests.helpers import fuzz_readers
from tests.helpers.file_kinds import KINDS, clear
from tests.helpers.fuzz_readers import READERS, Reader

CORPUS = Path(__file__).parents[1] / "data" / "fuzz_corpus"
# Of the processor.
SECONDS_PER_CASE = 5
# What a reader may take beyond what its process had before.
MEMORY = 1 << 30
_CASES_AT_ONCE = 500


class TooSlow(BaseException):
    """One case took longer than it may."""


def _too_slow(_signal: int, _frame: FrameType | None) -> None:
    raise TooSlow("one case took longer than it may")


def outcome(reader: Reader, data: bytes, folder: Path) -> BaseException | None:
    """Read one case, and return what came instead of a result or a KitError."""
    before = {number: signal.signal(number, _too_slow) for number in (signal.SIGPROF, signal.SIGALRM)}
    # Some use several commands.
    seconds = SECONDS_PER_CASE if reader.share == 1 else 8 * SECONDS_PER_CASE
    signal.setitimer(signal.ITIMER_PROF, seconds)
    # Who computes on a busy machine takes longer; who waits would wait for ever.
    signal.alarm(20 * seconds)
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            reader.read(data, folder)
    except KitError:
        return None
    except KeyboardInterrupt:
        raise
    except BaseException as error:  # noqa: BLE001 - whatever it is, it is the answer
        return error
    finally:
        signal.setitimer(signal.ITIMER_PROF, 0)
        signal.alarm(0)
        for number, handler in before.items():
            signal.signal(number, handler)
    return None


def limited() -> None:
    """Bound this process's memory: a reader that takes a file's word for a size fails here, not on a user's machine."""
    if sys.platform == "linux":
        pages = int(Path("/proc/self/statm").read_text().split()[0])
        resource.setrlimit(resource.RLIMIT_AS, (pages * resource.getpagesize() + MEMORY,) * 2)


def fuzz(name: str, cases: int, seed: int, keep: Path | None = CORPUS) -> list[str]:
    """Read so many damaged cases, the same ones for the same seed, and tell of those that failed, each kind once."""
    reader = READERS[name]
    source = random.Random(f"{name}{seed}")
    found: dict[str, str] = {}
    with tempfile.TemporaryDirectory() as scratch:
        folder = Path(scratch)
        reader.prepare(folder)
        seeds = reader.seeds()
        for _ in range(max(1, round(cases * reader.share))):
            data = reader.mutate(source.choice(seeds), seeds, source)
            error = outcome(reader, data, folder)
            if error is not None:
                where = traceback.extract_tb(error.__traceback__)[-1]
                kind = f"{type(error).__name__} at {Path(where.filename).name}:{where.lineno}"
                if kind not in found:
                    found[kind] = f"{name}: {kind}: {str(error)[:200]!r}{_kept(keep, name, data)}"
    return list(found.values())


def every_kind(readers: Iterable[Reader]) -> list[str]:
    """Give each reader every kind of file where it looks for one, and tell of those that failed."""
    found = []
    for reader in readers:
        data = reader.seeds()[0]
        for kind, make in KINDS.items():
            with tempfile.TemporaryDirectory() as scratch, pytest.MonkeyPatch.context() as patch:
                folder = Path(scratch) / "home"
                folder.mkdir()
                reader.prepare(folder)
                patch.setattr(fuzz_readers, "put", functools.partial(_put, make))
                error = outcome(reader, data, folder)
            if error is not None:
                where = traceback.extract_tb(error.__traceback__)[-1]
                at = f"{Path(where.filename).name}:{where.lineno}"
                found.append(f"{reader.name}, {kind}: {type(error).__name__} at {at}: {str(error)[:200]!r}")
    return found


def _put(make: Callable[[Path, bytes], object], path: Path, data: bytes) -> None:
    clear(path)
    make(path, data)


def _kept(keep: Path | None, name: str, data: bytes) -> str:
    if keep is None:
        return ""
    path = keep / name / hashlib.sha256(data).hexdigest()[:16]
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(data)
    return f"\n  replay it: python -m tests.helpers.fuzz --replay {os.path.relpath(path)}"


def replay(path: Path) -> BaseException | None:
    """What a case of the corpus does today; its folder names its reader."""
    reader = READERS[path.parent.name]
    with tempfile.TemporaryDirectory() as scratch:
        reader.prepare(Path(scratch))
        return outcome(reader, path.read_bytes(), Path(scratch))


def _work(task: tuple[str, int, int]) -> tuple[str, int, list[str]]:
    name, cases, seed = task
    return name, cases, fuzz(name, cases, seed)


def run(names: list[str], iterations: int, seed: int) -> int:
    """Spread the cases over readers and cores, show how far it is, and return how many kinds of failure there are."""
    each = -(-iterations // len(names))
    tasks = [
        (name, min(_CASES_AT_ONCE, each - done), seed + done)
        for done in range(0, each, _CASES_AT_ONCE)
        for name in names
    ]
    total, taken, began = sum(cases for _, cases, _ in tasks), 0, time.monotonic()
    failures: set[str] = set()
    with multiprocessing.get_context("spawn").Pool(os.cpu_count(), limited) as pool:
        for _, cases, failed in pool.imap_unordered(_work, tasks):
            taken += cases
            for words in failed:
                head = words.split(": '")[0].splitlines()[0]
                if head not in failures:
                    failures.add(head)
                    sys.stdout.write(f"\n{words}\n")
            sys.stdout.write(f"\r{taken:,} of {total:,} cases, {taken / (time.monotonic() - began):.0f} a second ")
            sys.stdout.flush()
    sys.stdout.write(f"\nseed {seed}: {len(failures)} kinds of failure\n")
    return len(failures)


def main() -> int:
    parser = argparse.ArgumentParser(description="Read damaged files.")
    parser.add_argument("--iterations", type=int, default=1_000_000, help="cases over all readers")
    parser.add_argument("--seed", type=int, default=int(time.time()))
    parser.add_argument("--reader", action="append", choices=sorted(READERS), help="only these")
    parser.add_argument("--replay", type=Path, metavar="FILE", help="read one case of the corpus and show what happens")
    arguments = parser.parse_args()
    if arguments.replay:
        error = replay(arguments.replay.resolve())
        if error is not None:
            traceback.print_exception(error)
        return 1 if error is not None else 0
    return 1 if run(arguments.reader or list(READERS), arguments.iterations, arguments.seed) else 0


if __name__ == "__main__":
    sys.exit(main())
