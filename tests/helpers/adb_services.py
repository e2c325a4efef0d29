"""The services of the test device that adb asks for: a shell, and copying files."""

import contextlib
import os
import queue
import stat
import struct
import subprocess
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import IO, TYPE_CHECKING, Protocol

if TYPE_CHECKING:
    from tests.helpers.adb_device import TestDevice

# The packets of a shell's stream (SHELL protocol v2).
_STDIN, _STDOUT, _STDERR, _EXIT, _CLOSE_STDIN = range(5)


@dataclass
class Faults:
    """Switches that make the device misbehave; tests set them before or during a run."""

    # Cut the connection when this many more bytes have gone over it.
    drop_after_bytes: int | None = None
    # Refuse pushed files as a full disk does.
    no_space: bool = False
    # Let a process write files of at most so many blocks of 512 bytes.
    file_blocks: int | None = None
    # Take commands and never answer, with the connection open.
    hang: bool = False
    # Wait so long before every answer, as a slow cable does.
    delay_s: float = 0.0
    # Called with the number of `run N` lines seen so far, when one reaches a process: faults at an exact moment.
    on_turn: Callable[[int], None] | None = None


class CutOffError(Exception):
    """The connection is gone."""


class Stream(Protocol):
    """One service that adb opened on the device."""

    def receive(self, data: bytes) -> None: ...
    def hang_up(self) -> None: ...


@dataclass(frozen=True)
class Opened:
    """What a stream needs of the world: its device, a way to write, a way to end."""

    device: "TestDevice"
    write: Callable[[bytes], None]
    close: Callable[[], None]


class ShellService:
    """`shell,v2,raw:COMMAND`: a process whose output, errors and exit code travel apart."""

    def __init__(self, opened: Opened) -> None:
        self._opened = opened
        self._buffer = b""
        self._sending = threading.Lock()

    def start(self, command: str) -> None:
        device = self._opened.device
        device.commands.append(command)
        limit = device.faults.file_blocks
        guard = f"trap '' XFSZ; ulimit -f {limit}; " if limit is not None else ""
        self._process = subprocess.Popen(
            ["/bin/sh", "-c", guard + device.mapped(command)],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            start_new_session=True,
            cwd=device.phone.root,
            env=device.phone.environment(),
        )
        device.processes.add(self._process)
        threading.Thread(target=self._attend, daemon=True).start()

    def receive(self, data: bytes) -> None:
        self._buffer += data
        while len(self._buffer) >= 5:
            kind, size = struct.unpack_from("<BI", self._buffer)
            if len(self._buffer) < 5 + size:
                return
            body, self._buffer = self._buffer[5 : 5 + size], self._buffer[5 + size :]
            if kind == _STDIN:
                self._feed(body)
            elif kind == _CLOSE_STDIN:
                self._close_stdin()

    def hang_up(self) -> None:
        self._close_stdin()

    def _feed(self, body: bytes) -> None:
        device = self._opened.device
        if body.startswith(b"run "):
            device.turns += 1
            if device.faults.on_turn is not None:
                # Another thread, because what it does may end this one's connection.
                threading.Thread(target=device.faults.on_turn, args=(device.turns,), daemon=True).start()
                time.sleep(0.05)
        with contextlib.suppress(OSError, ValueError):
            assert self._process.stdin is not None
            self._process.stdin.write(body)
            self._process.stdin.flush()

    def _close_stdin(self) -> None:
        with contextlib.suppress(OSError, ValueError):
            assert self._process.stdin is not None
            self._process.stdin.close()

    def _attend(self) -> None:
        """Pass both outputs on until the process is over, then its exit code."""
        pumps = [
            threading.Thread(target=self._pump, args=(kind, pipe), daemon=True)
            for kind, pipe in ((_STDOUT, self._process.stdout), (_STDERR, self._process.stderr))
        ]
        for pump in pumps:
            pump.start()
        code = self._process.wait()
        for pump in pumps:
            pump.join()
        self._opened.device.processes.discard(self._process)
        with contextlib.suppress(CutOffError, OSError):
            self._packet(_EXIT, bytes([0x80 | -code if code < 0 else code & 0xFF]))
            self._opened.close()

    def _pump(self, kind: int, pipe: IO[bytes] | None) -> None:
        assert pipe is not None
        with contextlib.suppress(CutOffError, OSError):
            while chunk := os.read(pipe.fileno(), 1 << 16):
                self._packet(kind, chunk)

    def _packet(self, kind: int, body: bytes) -> None:
        with self._sending:
            self._opened.write(struct.pack("<BI", kind, len(body)) + body)


class SyncService:
    """`sync:`: stat, list, send and receive files."""

    def __init__(self, opened: Opened) -> None:
        self._opened = opened
        self._incoming: queue.Queue[bytes | None] = queue.Queue()
        self._buffer = b""

    def start(self) -> None:
        threading.Thread(target=self._serve, daemon=True).start()

    def receive(self, data: bytes) -> None:
        self._incoming.put(data)

    def hang_up(self) -> None:
        self._incoming.put(None)

    def _take(self, size: int) -> bytes:
        while len(self._buffer) < size:
            more = self._incoming.get()
            if more is None:
                raise CutOffError
            self._buffer += more
        data, self._buffer = self._buffer[:size], self._buffer[size:]
        return data

    def _serve(self) -> None:
        answers: dict[bytes, Callable[[bytes, str], None]]
        answers = {b"STAT": self._stat, b"LST2": self._stat2, b"STA2": self._stat2, b"LIST": self._list}
        answers |= {b"SEND": self._send, b"RECV": self._recv}
        with contextlib.suppress(CutOffError, OSError):
            while True:
                name, size = struct.unpack("<4sI", self._take(8))
                if name == b"QUIT":
                    break
                answers[name](name, self._take(size).decode(errors="surrogateescape"))
            self._opened.close()

    def _place(self, path: str) -> Path:
        return Path(self._opened.device.mapped(path)) if path.startswith("/data/") else self._opened.device.phone.root

    def _stat(self, name: bytes, path: str) -> None:
        mode, size, at = _facts(self._place(path), follow=False)
        self._opened.write(struct.pack("<4sIII", name, mode, size & 0xFFFFFFFF, at))

    def _stat2(self, name: bytes, path: str) -> None:
        mode, size, at = _facts(self._place(path), follow=name == b"STA2")
        error = 0 if mode else 2  # ENOENT
        self._opened.write(struct.pack("<4sIQQIIIIQqqq", name, error, 0, 0, mode, 1, 2000, 2000, size, at, at, at))

    def _list(self, _: bytes, path: str) -> None:
        for entry in sorted(self._place(path).iterdir()):
            mode, size, at = _facts(entry, follow=False)
            name = entry.name.encode(errors="surrogateescape")
            self._opened.write(struct.pack("<4sIIII", b"DENT", mode, size, at, len(name)) + name)
        self._opened.write(struct.pack("<4sIIII", b"DONE", 0, 0, 0, 0))

    def _send(self, _: bytes, where: str) -> None:
        path, mode = where.rsplit(",", 1)
        place, device = self._place(path), self._opened.device
        device.pushed.append(path)
        data = bytearray()
        while True:
            name, size = struct.unpack("<4sI", self._take(8))
            if name == b"DONE":
                break
            data += self._take(size)
        try:
            if device.faults.no_space:
                raise OSError(28, "No space left on device")
            place.parent.mkdir(parents=True, exist_ok=True)
            place.write_bytes(data)
            place.chmod(stat.S_IMODE(int(mode)) or 0o644)
        except OSError as error:
            message = f"couldn't create file: {error.strerror}".encode()
            self._opened.write(struct.pack("<4sI", b"FAIL", len(message)) + message)
            return
        self._opened.write(struct.pack("<4sI", b"OKAY", 0))

    def _recv(self, _: bytes, path: str) -> None:
        try:
            data = self._place(path).read_bytes()
        except OSError as error:
            message = (error.strerror or "unreadable").encode()
            self._opened.write(struct.pack("<4sI", b"FAIL", len(message)) + message)
            return
        for start in range(0, len(data), 1 << 16):
            chunk = data[start : start + (1 << 16)]
            self._opened.write(struct.pack("<4sI", b"DATA", len(chunk)) + chunk)
        self._opened.write(struct.pack("<4sI", b"DONE", 0))


def _facts(path: Path, follow: bool) -> tuple[int, int, int]:
    """Mode, size and time of a file; zeros if there is none."""
    try:
        found = path.stat() if follow else path.lstat()
    except OSError:
        return 0, 0, 0
    return found.st_mode, found.st_size, int(found.st_mtime)
