"""A device for people without one: speaks adb's own protocol on loopback and runs what is pushed for real.

`adb connect 127.0.0.1:PORT` finds a phone with a file system root of its own, properties, settings, thermal and battery
answers. Commands go to this machine's shell with the device's paths mapped into the root. More is in docs/android.md.

    python -m tests.helpers.adb_device --root DIR [--port N] [--cpu host|sme2|x86_64]

The transport is the one of AOSP's packages/modules/adb: messages of 24 bytes and a payload (protocol.txt), the shell's
packets (SHELL protocol v2) and the file sync service (SYNC.TXT).
"""

import argparse
import contextlib
import os
import re
import shutil
import signal
import socket
import struct
import subprocess
import sys
import tempfile
import threading
import time
from dataclasses import dataclass, field
from pathlib import Path

from tests.helpers.adb_phone import Phone
from tests.helpers.adb_services import CutOffError, Faults, Opened, ShellService, Stream, SyncService

CNXN, AUTH, OPEN, OKAY, WRTE, CLSE = (
    int.from_bytes(name, "little") for name in (b"CNXN", b"AUTH", b"OPEN", b"OKAY", b"WRTE", b"CLSE")
)
# With this version neither side computes checksums.
_VERSION = 0x01000001
_LARGEST_PAYLOAD = 256 * 1024
_AUTH_TOKEN = 1
# The places of a phone that are the phone's and not this machine's.
_MAPPED = re.compile(
    r"(?<![\w.-])(/data/local/tmp|/sys/devices/system/cpu/cpufreq|/proc/cpuinfo|/proc/meminfo"
    r"|/proc/sys/kernel/random/boot_id)"
)


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
        self.unplug()
        self.kill_processes()

    def drop(self) -> None:
        """Cut the connection, as pulling the cable does."""
        for connection in list(self._connections):
            connection.cut()

    def unplug(self) -> None:
        """Cut the connection and let nobody connect again until `plug_in`."""
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

    def kill_processes(self) -> None:
        """Everything that runs on the device dies."""
        for process in list(self.processes):
            with contextlib.suppress(OSError):
                os.killpg(process.pid, signal.SIGKILL)

    def signal_runners(self, what: signal.Signals) -> None:
        """Send a signal to the kit's runners alone: killed as for want of memory, or stopped as if they hung."""
        for noted in self.phone.root.glob("data/local/tmp/sme2_kit/session-*/pid"):
            with contextlib.suppress(OSError, ValueError):
                os.kill(int(noted.read_text()), what)

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
        with contextlib.suppress(CutOffError, OSError):
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
                    raise CutOffError
                if self.device.faults.delay_s:
                    time.sleep(self.device.faults.delay_s)
                self.send(WRTE, number, remote, data[start : start + _LARGEST_PAYLOAD])

        def close() -> None:
            if self._streams.pop(number, None) is not None:
                self.send(CLSE, number, remote)

        opened = Opened(self.device, write, close)
        stream: Stream = SyncService(opened) if kind == "sync" else ShellService(opened)
        self._streams[number] = (remote, stream, ready)
        if isinstance(stream, ShellService):
            stream.start(argument)
        else:
            assert isinstance(stream, SyncService)
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
                raise CutOffError from None

    def _take(self, size: int) -> bytes:
        data = b""
        while len(data) < size:
            try:
                more = self._socket.recv(size - len(data))
            except OSError:
                raise CutOffError from None
            if not more:
                raise CutOffError
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
                raise CutOffError


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
