"""The real `ssh`, with the user's own configuration: one connection that everything goes through.

Whatever login shell the target has, it is given one word list that all shells read alike: `exec sh -c '…'`, in which
everything but plain characters is written in octal. What a login shell prints first ends at a line that we know.
"""

import contextlib
import io
import os
import re
import secrets
import selectors
import shlex
import shutil
import string
import subprocess
import sys
import tarfile
import tempfile
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import IO, Any

from model_profiling.base import files
from model_profiling.base.errors import InputError, KitError, SetupError
from model_profiling.base.programs import ChildProcess, StartError, TimedOutError, is_ready, run_program, start
from model_profiling.base.units import counted
from model_profiling.platforms.platform_table import checked_machine
from model_profiling.platforms.remote.device import ANSWER_S, PATIENCE, CommandOutput, Device, script_words

# sshd takes ten sessions of one connection, fewer where it was told so; short commands need one more.
_SESSIONS_OF_A_CONNECTION = 3
_CONNECT_S = 15.0 * PATIENCE
# A connection that nobody uses, because the kit was killed, ends by itself.
_IDLE_S = 120
_PLAIN = frozenset(string.ascii_letters + string.digits + "_/.,:=+-")
_BEGINS = "sme2-kit begins"
_UNPACK = 'mkdir -p "$1" && cd "$1" && exec tar xf -'
_OPTIONS = (
    "ControlMaster=yes ServerAliveInterval=5 ServerAliveCountMax=3 ForwardX11=no ForwardAgent=no"
    " ClearAllForwardings=yes RemoteCommand=none RequestTTY=no LogLevel=ERROR"
)
# What ssh says when it cannot connect, and what to do about it.
_HINTS = {
    r"Host key verification failed|REMOTE HOST IDENTIFICATION|No \w+ host key is known": (
        "Connect once by hand and accept its key if it is right: {by_hand}"
    ),
    r"Permission denied|Too many authentication failures": (
        "Make this work without a question, with a key in your agent: {by_hand}"
    ),
    r"Could not resolve|Name or service not known|nodename nor servname": (
        "Correct --host, or add it to your ssh_config."
    ),
    r"Connection refused": "Start sshd there, or correct host and port in your ssh_config.",
    r"did not answer in time|timed out|No route to host|Network is unreachable": (
        "Check that it is on and in reach, then run the same command: what was finished is kept."
    ),
}


def in_any_shell(script: str) -> str:
    """Return a command that POSIX shells, csh and fish all take as `sh` running this script."""
    octal = "".join(c if c in _PLAIN else "".join(f"\\0{byte:03o}" for byte in c.encode()) for c in script)
    return f'exec sh -c \'eval "$(printf %b "{octal}")"\''


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


class _Into(io.RawIOBase):
    """The standard input of a process, which is killed when it takes nothing any more."""

    stalled = False

    def __init__(self, process: ChildProcess) -> None:
        assert process.stdin is not None
        self._process, self._pipe = process, process.stdin
        os.set_blocking(self._pipe.fileno(), False)

    def writable(self) -> bool:
        return True

    def write(self, data: "bytes | bytearray | memoryview") -> int:  # type: ignore[override]
        view, start = memoryview(data), 0
        while start < len(view):
            if self.stalled or not is_ready(self._pipe, STALLED_S, selectors.EVENT_WRITE):
                self.stalled = True
                self._process.end_all()
                raise BrokenPipeError
            start += os.write(self._pipe.fileno(), view[start : start + _CHUNK])
        return len(view)


def send(command: list[str], sources: Mapping[str, Path]) -> TransferResult:
    """Give a command these files, each under its name, as one archive."""
    with tempfile.TemporaryFile() as said:
        process = start(command, stdin=subprocess.PIPE, stdout=subprocess.DEVNULL, stderr=said)
        into = _Into(process)
        try:
            with tarfile.open(fileobj=into, mode="w|", format=tarfile.GNU_FORMAT) as archive:
                for name, path in sources.items():
                    with files.open_file(path) as file:
                        entry = tarfile.TarInfo(name)
                        entry.size, entry.mode = files.size_of(file), 0o644
                        archive.addfile(entry, file)
        except BrokenPipeError:
            pass  # the other side says why
        finally:
            assert process.stdin is not None
            with contextlib.suppress(BrokenPipeError):
                process.stdin.close()
        return _ended(process, said, _DRAIN_S, into.stalled)


def receive(command: list[str], begins: bytes, size: int, local: Path) -> TransferResult:
    """Write to a file what a command says after the line `begins`, and not more than was announced."""
    with tempfile.TemporaryFile() as said, local.open("wb") as file:
        process = start(command, stdout=subprocess.PIPE, stderr=said)
        assert process.stdout is not None
        before, begun, moves = b"\n", False, True
        while file.tell() <= size and (moves := is_ready(process.stdout, STALLED_S)):
            if not (chunk := os.read(process.stdout.fileno(), _CHUNK)):
                break
            if not begun:
                before, mark, chunk = (before + chunk).partition(b"\n" + begins + b"\n")
                begun = bool(mark)
                if len(before) > 16 * _CHUNK:
                    break  # no start-up file of a shell says so much
            file.write(chunk)
        process.stdout.close()
        return _ended(process, said, STALLED_S if moves else 0.0, not moves, begun)


def _ended(
    process: ChildProcess, said: IO[bytes], within_s: float, stalled: bool, begun: bool = True
) -> TransferResult:
    try:
        code = process.wait(timeout=within_s)
    except BaseException as error:
        process.end_all()
        code = process.wait()
        if not isinstance(error, subprocess.TimeoutExpired):
            raise
        stalled = True
    said.seek(0)
    words = said.read(1 << 16).decode(errors="replace")
    return TransferResult(code, words, stalled, begun)


class SshDevice(Device):
    """One machine behind ssh, by the name that the user's ssh_config has for it."""

    link = "look at the network"
    cut = "the network failed, or ssh's connection was ended"
    begins = _BEGINS.encode()
    gone = re.compile(r"mux_client|ssh: |Connection to .* closed|client_loop|Shared connection to|Timeout, server")

    def __init__(self, host: str, config: Path | None = None) -> None:
        self._host = self.key = checked_machine(host)
        self.title = f"the host {host}"
        self.writable = "Name a folder there that you may write with --remote-dir."
        if (ssh := shutil.which("ssh")) is None:
            raise SetupError("ssh is not in PATH", "Install it: apt-get install openssh-client.")
        self._ssh = [ssh, *(["-F", str(config.resolve())] if config is not None else [])]
        if config is not None and not config.is_file():
            raise InputError(f"the ssh configuration {config} does not exist", "Correct --ssh-config.")
        # Short: a socket's path may have about 100 characters.
        self._home = files.make_scratch("sme2-ssh-", Path("/tmp"))
        self._connections: list[Path] = []
        self._used: dict[Path, int] = {}
        try:
            self._connect()
        except BaseException:
            self.close()
            raise

    def close(self) -> None:
        """End all connections; what still ran behind them is told so by its closed streams."""
        self._disconnect()
        files.remove_scratch(self._home)

    def command(self, *words: str) -> list[str]:
        if self._lost is not None:
            raise self._lost
        path = min(self._connections, key=lambda each: self._used.get(each, 0))
        if self._used.get(path, 0) >= _SESSIONS_OF_A_CONNECTION:
            path = self._connect()
        self._used[path] = self._used.get(path, 0) + 1
        return self._remote(path, words)

    def freed(self, command: list[str]) -> None:
        for path in self._connections:
            if f"-oControlPath={path}" in command:
                self._used[path] = max(0, self._used.get(path, 0) - 1)

    def shell(self, *words: str, timeout_s: float = ANSWER_S) -> CommandOutput:
        try:
            done = run_program(self._quick(words), timeout_s=timeout_s, doing="")
        except TimedOutError:
            raise self.lost(f"did not answer within {timeout_s:g} s") from None
        noise, begun, said = f"\n{done.stdout}".partition(f"\n{_BEGINS}\n")
        self._refuse_if_cut(done.returncode, done.stderr)
        if not begun:
            # The login shell ended, or does something else.
            why = _last(done.stderr) or _last(noise) or f"exit code {done.returncode}"
            raise SetupError(
                f"{self.title} does not run commands: {why[:200]}",
                "Its login shell must take `ssh HOST COMMAND`; look at what its start-up files do without a terminal.",
            )
        return CommandOutput(done.returncode, said, done.stderr)

    def push(self, sources: Mapping[str, Path], folder: str) -> None:
        """Push all files as one archive."""
        names = [path.name for path in sources.values()]
        what = names[0] if len(names) == 1 else counted(len(names), "file")
        moved = send(self._quick(script_words(_UNPACK, folder)), sources)
        self._judge(f"{what} could not be pushed to {self.title}", moved)

    def fetch(self, remote: str, size: int, local: Path) -> None:
        moved = receive(self._quick(["cat", remote]), self.begins, size, local)
        self._judge(f"{local.name} could not be fetched from {self.title}", moved)

    def _judge(self, what: str, moved: TransferResult) -> None:
        if moved.stalled:
            raise self.lost(f"did not answer: nothing moved for {STALLED_S:g} s")
        self._refuse_if_cut(moved.code, moved.stderr)
        if moved.code != 0 or not moved.begun:
            raise self.refused(what, moved.stderr.strip() or f"exit code {moved.code}")

    def present(self) -> bool:
        try:
            checks = (self._about(path, "check") for path in self._connections)
            return all(run_program(check, timeout_s=ANSWER_S, doing="").returncode == 0 for check in checks)
        except TimedOutError:
            return False

    def answers(self, within_s: float) -> bool:
        try:
            return run_program(self._quick(["true"]), timeout_s=within_s, doing="").returncode == 0
        except TimedOutError:
            return False

    def reconnect(self, wait_s: float) -> bool:
        self._lost = None
        if self.present() and self.answers(min(ANSWER_S, wait_s)):
            return True
        self._disconnect()
        try:
            self._connect(wait_s)
        except KitError:
            return False
        return True

    def _connect(self, wait_s: float = _CONNECT_S) -> Path:
        """Return a new connection, which stays until `close`. Host keys and passwords are between ssh and the user."""
        path, asks = self._home / secrets.token_hex(3), sys.stdin is not None and sys.stdin.isatty()
        options = f"ControlPath={path} ControlPersist={_IDLE_S} ConnectTimeout={max(1, int(wait_s))} {_OPTIONS}".split()
        options += [] if asks else ["BatchMode=yes"]
        words = [*self._ssh, "-f", "-N", *(f"-o{each}" for each in options), "--", self._host]
        with tempfile.TemporaryFile() as said:
            # Its words go to a file: the connection stays in the background and would keep a pipe open. ssh itself
            # asks on the terminal, for which it must be of our session until it has gone to the background.
            how: dict[str, Any] = {"own_group": False, "stdout": said, "stderr": said}
            how |= {"timeout_s": None if asks else wait_s + ANSWER_S, "doing": f"connecting to {self._host}"}
            try:
                code = run_program(words, **how).returncode
            except TimedOutError:
                raise self._unreachable("it did not answer in time") from None
            said.seek(0)
            why = said.read().decode(errors="replace").strip()
        if code != 0:
            raise self._unreachable(why or f"exit code {code}")
        self._connections.append(path)
        return path

    def _unreachable(self, why: str) -> KitError:
        by_hand = shlex.join([Path(self._ssh[0]).name, *self._ssh[1:], self._host])
        hint = next((hint for said, hint in _HINTS.items() if re.search(said, why)), "Try by hand: {by_hand}")
        return SetupError(f"{self.title} cannot be reached: {_last(why)}", hint.format(by_hand=by_hand))

    def _refuse_if_cut(self, code: int, said: str) -> None:
        if code == 255 and not self.present():
            raise self.lost(f"is not reachable any more ({_last(said) or 'the connection was cut'})")

    def _disconnect(self) -> None:
        for path in self._connections:
            with contextlib.suppress(StartError, TimedOutError):
                run_program(self._about(path, "exit"), timeout_s=5, doing="")
        self._connections.clear()
        self._used.clear()

    def _about(self, path: Path, question: str) -> list[str]:
        return [*self._ssh, "-O", question, f"-oControlPath={path}", "--", self._host]

    def _quick(self, words: Sequence[str]) -> list[str]:
        """Return a command that ends soon: it needs none of the places that runners take."""
        if self._lost is not None:
            raise self._lost
        return self._remote(self._connections[0], words)

    def _remote(self, path: Path, words: Sequence[str]) -> list[str]:
        script = f"echo; echo {shlex.quote(_BEGINS)}; exec {shlex.join(words)}"
        # If the connection is gone, no other is opened behind our back.
        options = [f"-oControlPath={path}", "-oControlMaster=no", "-oProxyCommand=false", "-oBatchMode=yes"]
        return [*self._ssh, "-T", *options, "-oLogLevel=ERROR", "--", self._host, in_any_shell(script)]


def _last(said: str) -> str:
    lines = said.strip().splitlines()
    return lines[-1].strip() if lines else ""
