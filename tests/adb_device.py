"""A device for people without one: speaks adb's own protocol on loopback and runs what is pushed for real.

`adb connect 127.0.0.1:PORT` finds a phone with a file system root of its own, properties, settings, thermal and battery
answers. Commands go to this machine's shell with the device's paths mapped into the root. More is in
docs/android_test_device.md.

    python -m tests.adb_device --root DIR [--port N] [--cpu host|sme2|x86_64]

The transport is the one of AOSP's packages/modules/adb: messages of 24 bytes and a payload (protocol.txt), the shell's
packets (SHELL protocol v2) and the file sync service (SYNC.TXT).
"""

import argparse
import contextlib
import os
import queue
import re
import shutil
import signal
import socket
import stat
import struct
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Protocol

from tests.adb_phone import Phone

CNXN, AUTH, OPEN, OKAY, WRTE, CLSE = (
    int.from_bytes(name, "little") for name in (b"CNXN", b"AUTH", b"OPEN", b"OKAY", b"WRTE", b"CLSE")
)
# With this version neither side computes checksums.
_VERSION = 0x01000001
_LARGEST_PAYLOAD = 256 * 1024
_AUTH_TOKEN = 1
_STDIN, _STDOUT, _STDERR, _EXIT, _CLOSE_STDIN = range(5)
# The places of a phone that are the phone's and not this machine's.
_MAPPED = re.compile(
    r"(?<![\w.-])(/data/local/tmp|/sys/devices/system/cpu/cpufreq|/proc/cpuinfo|/proc/meminfo"
    r"|/proc/sys/kernel/random/boot_id)"
)


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


class _Cut(Exception):  # noqa: N818 - not an error: the other side is gone
    """The connection is gone."""


class Stream(Protocol):
    """One service that adb opened on the device."""

    def receive(self, data: bytes) -> None: ...
    def hang_up(self) -> None: ...


@dataclass
class TestDevice:
    """Listens on loopback from `start` to `stop`. One adb server at a time is connected, as on a cable."""

    __test__ = False

    phone: Phone
    port: int = 0
    authorised: bool = True
    faults: Faults = field(default_factory=Faults)
    commands: list[str] = field(default_factory=list)
    pushed: list[str] = field(default_factory=list)
    turns: int = 0
    processes: "set[subprocess.Popen[bytes]]" = field(default_factory=set)

    def start(self) -> "TestDevice":
        self._listener = socket.create_server(("127.0.0.1", self.port))
        self.port = self._listener.getsockname()[1]
        self._connections: list[_Connection] = []
        self._accepting = True
        threading.Thread(target=self._accept, daemon=True).start()
        return self

    @property
    def serial(self) -> str:
        return f"127.0.0.1:{self.port}"

    def stop(self) -> None:
        self._accepting = False
        with contextlib.suppress(OSError):
            self._listener.shutdown(socket.SHUT_RDWR)
        self._listener.close()
        self.drop()
        self.kill_processes()

    def drop(self) -> None:
        """Cut the connection, as pulling the cable does."""
        for connection in list(self._connections):
            connection.cut()

    def unplug(self) -> None:
        """Cut the connection and let nobody connect again until `plug_in`."""
        self.authorised, self._plugged = True, False
        self._accepting = False
        with contextlib.suppress(OSError):
            self._listener.shutdown(socket.SHUT_RDWR)
        self._listener.close()
        self.drop()

    def plug_in(self) -> None:
        self.faults = Faults()
        self.start()

    def reboot(self) -> None:
        """Everything that runs dies, the connection goes, and the device comes back under a new boot id."""
        self.kill_processes()
        self.phone.new_boot_id()
        self.drop()

    def kill_processes(self, holding: str = "") -> None:
        """Kill what runs as the system does when memory is short; `holding` picks by a word of the command line."""
        for process in list(self.processes):
            with contextlib.suppress(OSError):
                line = Path(f"/proc/{process.pid}/cmdline").read_bytes().decode(errors="replace")
                if holding in line:
                    os.killpg(process.pid, signal.SIGKILL)

    def mapped(self, text: str) -> str:
        """A command with the phone's places where they really are."""
        return _MAPPED.sub(lambda match: f"{self.phone.root}{match[1]}", text)

    def _accept(self) -> None:
        while self._accepting:
            try:
                client, _ = self._listener.accept()
            except OSError:
                return
            connection = _Connection(self, client)
            self._connections.append(connection)
            threading.Thread(target=connection.serve, daemon=True).start()

    def forget(self, connection: "_Connection") -> None:
        with contextlib.suppress(ValueError):
            self._connections.remove(connection)


class _Connection:
    """One adb server: messages in, messages out, streams by their number."""

    def __init__(self, device: TestDevice, client: socket.socket) -> None:
        self.device = device
        self._socket = client
        client.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self._sending = threading.Lock()
        self._streams: dict[int, tuple[int, Stream, threading.Semaphore]] = {}
        self._next = 1
        self.alive = True

    def serve(self) -> None:
        with contextlib.suppress(_Cut, OSError):
            while True:
                command, first, second, size, _, _ = struct.unpack("<6I", self._take(24))
                self._message(command, first, second, self._take(size))
        self.cut()

    def cut(self) -> None:
        if not self.alive:
            return
        self.alive = False
        self.device.forget(self)
        with contextlib.suppress(OSError):
            self._socket.shutdown(socket.SHUT_RDWR)
        self._socket.close()
        for _, stream, ready in list(self._streams.values()):
            ready.release()
            stream.hang_up()

    def _message(self, command: int, first: int, second: int, data: bytes) -> None:
        if self.device.faults.hang:
            return
        if command in (CNXN, AUTH):
            if not self.device.authorised:
                self.send(AUTH, _AUTH_TOKEN, 0, os.urandom(20))
            elif command == CNXN:
                self.send(CNXN, _VERSION, _LARGEST_PAYLOAD, self.device.phone.banner())
        elif command == OPEN:
            self._open(first, data.rstrip(b"\0").decode(errors="surrogateescape"))
        elif command == WRTE and second in self._streams:
            self._streams[second][1].receive(data)
            self.send(OKAY, second, first)
        elif command == OKAY and second in self._streams:
            self._streams[second][2].release()
        elif command == CLSE and second in self._streams:
            _, stream, ready = self._streams.pop(second)
            ready.release()
            stream.hang_up()

    def _open(self, remote: int, service: str) -> None:
        number, self._next = self._next, self._next + 1
        kind, _, argument = service.partition(":")
        if kind.split(",")[0] not in ("shell", "sync"):
            self.send(CLSE, 0, remote)
            return
        # The first write may go out at once; every further one waits for the OKAY of the one before.
        ready = threading.Semaphore(1)
        self.send(OKAY, number, remote)

        def write(data: bytes) -> None:
            for start in range(0, len(data), _LARGEST_PAYLOAD):
                ready.acquire()
                if not self.alive or number not in self._streams:
                    raise _Cut
                if self.device.faults.delay_s:
                    time.sleep(self.device.faults.delay_s)
                self.send(WRTE, number, remote, data[start : start + _LARGEST_PAYLOAD])

        def close() -> None:
            if self._streams.pop(number, None) is not None:
                self.send(CLSE, number, remote)

        opened = _Opened(self.device, write, close)
        stream: Stream = _Sync(opened) if kind == "sync" else _Shell(opened)
        self._streams[number] = (remote, stream, ready)
        if isinstance(stream, _Shell):
            stream.start(argument)
        else:
            assert isinstance(stream, _Sync)
            stream.start()

    def send(self, command: int, first: int, second: int, data: bytes = b"") -> None:
        if self.device.faults.hang:
            return
        head = struct.pack("<6I", command, first, second, len(data), 0, command ^ 0xFFFFFFFF)
        with self._sending:
            self._count(len(head) + len(data))
            try:
                self._socket.sendall(head + data)
            except OSError:
                raise _Cut from None

    def _take(self, size: int) -> bytes:
        data = b""
        while len(data) < size:
            try:
                more = self._socket.recv(size - len(data))
            except OSError:
                raise _Cut from None
            if not more:
                raise _Cut
            data += more
        self._count(size)
        return data

    def _count(self, size: int) -> None:
        faults = self.device.faults
        if faults.drop_after_bytes is not None:
            faults.drop_after_bytes -= size
            if faults.drop_after_bytes <= 0:
                faults.drop_after_bytes = None
                threading.Thread(target=self.cut, daemon=True).start()
                raise _Cut


@dataclass(frozen=True)
class _Opened:
    """What a stream needs of the world: its device, a way to write, a way to end."""

    device: TestDevice
    write: Callable[[bytes], None]
    close: Callable[[], None]


class _Shell:
    """`shell,v2,raw:COMMAND`: a process whose output, errors and exit code travel apart."""

    def __init__(self, opened: _Opened) -> None:
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
        with contextlib.suppress(_Cut, OSError):
            self._packet(_EXIT, bytes([0x80 | -code if code < 0 else code & 0xFF]))
            self._opened.close()

    def _pump(self, kind: int, pipe: "object") -> None:
        descriptor = pipe.fileno()  # type: ignore[attr-defined]
        with contextlib.suppress(_Cut, OSError):
            while chunk := os.read(descriptor, 1 << 16):
                self._packet(kind, chunk)

    def _packet(self, kind: int, body: bytes) -> None:
        with self._sending:
            self._opened.write(struct.pack("<BI", kind, len(body)) + body)


class _Sync:
    """`sync:`: stat, list, send and receive files."""

    def __init__(self, opened: _Opened) -> None:
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
                raise _Cut
            self._buffer += more
        data, self._buffer = self._buffer[:size], self._buffer[size:]
        return data

    def _serve(self) -> None:
        answers: dict[bytes, Callable[[bytes, str], None]]
        answers = {b"STAT": self._stat, b"LST2": self._stat2, b"STA2": self._stat2, b"LIST": self._list}
        answers |= {b"SEND": self._send, b"RECV": self._recv}
        with contextlib.suppress(_Cut, OSError):
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


def main() -> int:
    parser = argparse.ArgumentParser(description="An Android device for `adb connect`, on loopback.")
    parser.add_argument("--root", type=Path, help="its file system; default: a new folder, removed at the end")
    parser.add_argument("--port", type=int, default=0, help="default: any free one")
    parser.add_argument("--cpu", choices=("host", "sme2", "x86_64"), default="host", help="what its /proc/cpuinfo says")
    args = parser.parse_args()
    root = args.root or Path(tempfile.mkdtemp(prefix="adb_device-"))
    device = TestDevice(Phone(root, cpu=args.cpu), args.port).start()
    sys.stdout.write(f"adb connect {device.serial}\n")
    sys.stdout.flush()
    try:
        threading.Event().wait()
    except KeyboardInterrupt:
        device.stop()
    if args.root is None:
        shutil.rmtree(root, ignore_errors=True)
    return 0


if __name__ == "__main__":
    sys.exit(main())
