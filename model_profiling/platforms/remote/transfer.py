"""Files through the standard streams of a process that leads to another machine, for as long as they move."""

import contextlib
import io
import os
import subprocess
import tarfile
import tempfile
import threading
import time
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import IO

from model_profiling.base import files
from model_profiling.base.programs import ChildProcess, start
from model_profiling.platforms.remote.device import PATIENCE

# A file that does not move at all for this long is not going to.
STALLED_S = 30.0 * PATIENCE
# What lies in buffers on the way when the last byte was given away, at the rate of a very slow link.
_DRAIN_S = 90.0 * PATIENCE
_CHUNK = 1 << 16


@dataclass(frozen=True)
class TransferResult:
    """How the process ended, and what it said on its standard error; or that nothing moved any more."""

    code: int
    stderr: str
    stalled: bool = False
    # Whether the other side began what it was asked, as far as it would say so.
    begun: bool = True


class _Watch:
    """Kills a process through which nothing moves any more."""

    def __init__(self, process: ChildProcess) -> None:
        self.stalled = False
        self._process = process
        self._deadline = time.monotonic() + STALLED_S
        self._done = threading.Event()
        self._thread = threading.Thread(target=self._look, daemon=True)
        self._thread.start()

    def moved(self, allowed_s: float = STALLED_S) -> None:
        self._deadline = time.monotonic() + allowed_s

    def end(self) -> None:
        self._done.set()
        self._thread.join()

    def _look(self) -> None:
        while not self._done.wait(max(0.01, self._deadline - time.monotonic())):
            if time.monotonic() >= self._deadline:
                self.stalled = True
                self._process.kill()
                return


class _Into(io.RawIOBase):
    """A pipe whose every write is a sign of life."""

    def __init__(self, process: ChildProcess, watch: _Watch) -> None:
        assert process.stdin is not None
        self._pipe, self._watch = process.stdin.fileno(), watch

    def writable(self) -> bool:
        return True

    def write(self, data: "bytes | bytearray | memoryview") -> int:  # type: ignore[override]
        view, start = memoryview(data), 0
        while start < len(view):
            start += os.write(self._pipe, view[start : start + _CHUNK])
            self._watch.moved()
        return len(view)


def send(command: list[str], sources: Mapping[str, Path]) -> TransferResult:
    """Give a command these files, each under its name, as one archive."""
    with tempfile.TemporaryFile() as said:
        process = start(command, stdin=subprocess.PIPE, stdout=subprocess.DEVNULL, stderr=said)
        watch = _Watch(process)
        try:
            with tarfile.open(fileobj=_Into(process, watch), mode="w|", format=tarfile.GNU_FORMAT) as archive:
                for name, path in sources.items():
                    with files.open_file(path) as file:
                        entry = tarfile.TarInfo(name)
                        entry.size, entry.mode = files.size_of(file), 0o644
                        archive.addfile(entry, file)
        except BrokenPipeError:
            pass  # the other side says why
        finally:
            _close(process)
        watch.moved(_DRAIN_S)
        return _ended(process, watch, said)


def receive(command: list[str], begins: bytes, size: int, local: Path) -> TransferResult:
    """Write to a file what a command says after the line `begins`, and not more than was announced."""
    with tempfile.TemporaryFile() as said, local.open("wb") as file:
        process = start(command, stdout=subprocess.PIPE, stderr=said)
        assert process.stdout is not None
        watch = _Watch(process)
        before, begun = b"\n", False
        while file.tell() <= size and (chunk := os.read(process.stdout.fileno(), _CHUNK)):
            watch.moved()
            if not begun:
                before, mark, chunk = (before + chunk).partition(b"\n" + begins + b"\n")
                begun = bool(mark)
                if len(before) > 16 * _CHUNK:
                    break  # no start-up file of a shell says so much
            file.write(chunk)
        process.stdout.close()
        return _ended(process, watch, said, begun)


def _close(process: ChildProcess) -> None:
    assert process.stdin is not None
    with contextlib.suppress(BrokenPipeError):
        process.stdin.close()


def _ended(process: ChildProcess, watch: _Watch, said: IO[bytes], begun: bool = True) -> TransferResult:
    try:
        code = process.wait()
    except BaseException:
        process.end_all()
        process.wait()
        raise
    finally:
        watch.end()
    said.seek(0)
    words = said.read(1 << 16).decode(errors="replace")
    return TransferResult(code, words, watch.stalled, begun)
