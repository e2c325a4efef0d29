"""The states a command may be started in: streams, locales, widths, rights, limits and folders of all kinds.

    python -m tests.helpers.states

forks a command for each line of JSON that it reads, in the state that the line names, and answers how it ended. The
commands' modules are loaded already, which a fresh process would spend most of its time on.
"""

import contextlib
import ctypes
import io
import json
import os
import resource
import shutil
import signal
import sys
import tempfile
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, NoReturn

from tests.helpers.waiting import LONGEST_S

ROOT = Path(__file__).resolve().parents[2]
KNOWN_GOOD = ROOT / "tests" / "data" / "known_good_run"
UNICODE = "üñí☃ 名"
# A locale whose text is ASCII, and nothing of Python's own that makes it UTF-8.
ASCII = {"LC_ALL": "C", "LANG": None, "PYTHONUTF8": "0", "PYTHONCOERCECLOCALE": "0"}
# For a command that starts its process again.
_START = "from model_profiling.cli.process import enter; enter()"
_NO_CAPABILITIES_OF_ROOT = 3
_PR_SET_SECUREBITS = 28
_CAPABILITY_VERSION = 0x20080522


@dataclass(frozen=True)
class State:
    """How a command finds the world; None removes a variable. `same`: it must end as if nothing were special."""

    env: dict[str, str | None] = field(default_factory=dict)
    stdin: str = "empty"
    stdout: str = "file"
    stderr: str = "file"
    encoding: str = "utf-8"
    folder: bytes = b"work"
    change: str = ""
    limits: dict[str, int] = field(default_factory=dict)
    same: bool = False

    @property
    def ascii(self) -> bool:
        """Whether Python itself has to be started in that locale."""
        return "PYTHONUTF8" in self.env

    @property
    def mute(self) -> bool:
        return self.stdout in ("closed", "full")


def _widths() -> dict[str, State]:
    chosen = ["0", "1", "-5", "abc", "", *map(str, range(19, 40, 3)), "100000", "9" * 30, "9" * 5000]
    return {f"COLUMNS={width[:9]} ({len(width)} characters)": State({"COLUMNS": width}, same=True) for width in chosen}


STATES: dict[str, State] = {
    "plain": State(same=True),
    **_widths(),
    "LINES=x": State({"LINES": "x"}, same=True),
    "LINES=0": State({"LINES": "0", "COLUMNS": "0"}, same=True),
    "TERM=dumb": State({"TERM": "dumb"}, same=True),
    "no TERM": State({"TERM": None}, same=True),
    "stdout closed": State(stdout="closed"),
    "stdout full": State(stdout="full"),
    "stdout a pipe nobody reads": State(stdout="unread"),
    "stderr closed": State(stderr="closed", same=True),
    "stderr full": State(stderr="full", same=True),
    "stderr a pipe nobody reads": State(stderr="unread", same=True),
    "stdin closed": State(stdin="closed", same=True),
    "stdout and stderr closed": State(stdout="closed", stderr="closed"),
    "stdout and stderr full": State(stdout="full", stderr="full"),
    "all closed": State(stdin="closed", stdout="closed", stderr="closed"),
    "stdin and stderr closed": State(stdin="closed", stderr="closed", same=True),
    "ASCII streams": State(encoding="ascii", folder=UNICODE.encode(), same=True),
    "Latin-1 streams": State(encoding="latin-1", folder=UNICODE.encode(), same=True),
    "ASCII locale": State(ASCII, encoding="ascii", same=True),
    "ASCII locale, folder of other letters": State(ASCII, encoding="ascii", folder=UNICODE.encode(), same=True),
    "folder of other letters": State(folder=UNICODE.encode(), same=True),
    "folder that is no text": State(folder=b"w\xff\xfe"),
    "folder with a line break": State(folder=b"a\nb \x1b[31m"),
    "folder with a long name": State(folder=b"x" * 250, same=True),
    "folder that is gone": State(change="gone"),
    "folder that is read-only": State(change="read-only"),
    "folder that is closed": State(change="closed"),
    "umask 777": State(change="umask"),
    "no HOME": State({"HOME": None, "XDG_CACHE_HOME": None}, same=True),
    "HOME nowhere": State({"HOME": "/proc/nowhere", "XDG_CACHE_HOME": None}),
    "HOME a file": State({"HOME": "/dev/null", "XDG_CACHE_HOME": None}),
    "cache nowhere": State({"SME2_KIT_CACHE": "/proc/nowhere"}),
    "cache of nobody": State({"SME2_KIT_CACHE": "~nobody-of-that-name/x"}),
    "TMPDIR nowhere": State({"TMPDIR": "/proc/nowhere"}, same=True),
    "TMPDIR unwritable": State({"TMPDIR": "/proc"}, same=True),
    "PATH empty": State({"PATH": ""}),
    "PATH unset": State({"PATH": None}),
    "small files": State(limits={"RLIMIT_FSIZE": 4096}),
    "few files open": State(limits={"RLIMIT_NOFILE": 16}),
    "very few files open": State(limits={"RLIMIT_NOFILE": 6}),
    "no processes": State(limits={"RLIMIT_NPROC": 0}, change="rights"),
    "SIGPIPE as the system has it": State(stdout="unread", change="sigpipe"),
    "SIGINT ignored": State(change="sigint", same=True),
}


@dataclass(frozen=True)
class Ended:
    code: int
    stdout: str
    stderr: str


class Forks:
    """The process that forks commands; one for states of an ASCII locale, one for all others."""

    def __init__(self, ascii_locale: bool) -> None:
        import subprocess

        changes = ASCII if ascii_locale else {}
        kept = {name: value for name, value in os.environ.items() if name not in changes}
        added = {name: value for name, value in changes.items() if value is not None}
        environment = {**kept, **added, "PYTHONPATH": str(ROOT), "OPENBLAS_NUM_THREADS": "1"}
        self._process = subprocess.Popen(
            [sys.executable, "-m", "tests.helpers.states"],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
            env=environment,
            cwd=ROOT,
        )

    def run(self, state: str, arguments: list[str]) -> Ended:
        assert self._process.stdin is not None and self._process.stdout is not None
        self._process.stdin.write(json.dumps([state, arguments]) + "\n")
        self._process.stdin.flush()
        return Ended(**json.loads(self._process.stdout.readline()))

    def close(self) -> None:
        assert self._process.stdin is not None and self._process.stdout is not None
        self._process.stdin.close()
        self._process.wait()
        self._process.stdout.close()


def _serve() -> None:
    answers = os.fdopen(os.dup(1), "w")
    os.dup2(2, 1)
    if sys.getfilesystemencoding() == "utf-8":  # elsewhere a command starts its process again
        _load()
    for line in sys.stdin:
        name, arguments = json.loads(line)
        answers.write(json.dumps(_ended(STATES[name], arguments)) + "\n")
        answers.flush()


def _load() -> None:
    """Have imported what commands import."""
    from model_profiling.cli.main import main, make_parser

    make_parser()
    with tempfile.TemporaryDirectory() as scratch, contextlib.redirect_stdout(io.StringIO()):
        run = shutil.copytree(KNOWN_GOOD, Path(scratch) / "run")
        for words in (
            ["analyze", run],
            ["validate", "--results", run],
            ["graph", run],
            ["history", "list"],
            ["models"],
        ):
            main([str(word) for word in words])


def _ended(state: State, arguments: list[str]) -> dict[str, Any]:
    home = Path(tempfile.mkdtemp(prefix="states-"))
    folder = home / os.fsdecode(state.folder)
    shutil.copytree(KNOWN_GOOD, folder / "run")
    out, err = home / "out", home / "err"
    child = os.fork()
    if child == 0:
        _become(state, folder, out, err, arguments)
    code = _waited(child, time.monotonic() + LONGEST_S)
    # What it started ends with it, or is left behind in its group.
    with contextlib.suppress(ProcessLookupError):
        os.killpg(child, signal.SIGKILL)
    with contextlib.suppress(FileNotFoundError):
        folder.chmod(0o700)
    said = [path.read_text(errors="replace") if path.exists() else "" for path in (out, err)]
    shutil.rmtree(home, ignore_errors=True)
    return {"code": code, "stdout": said[0], "stderr": said[1]}


def _waited(child: int, until: float) -> int:
    while time.monotonic() < until:
        ended, status = os.waitpid(child, os.WNOHANG)
        if ended:
            return os.waitstatus_to_exitcode(status)
        time.sleep(0.005)
    os.kill(child, signal.SIGKILL)
    os.waitpid(child, 0)
    return -signal.SIGKILL


def _become(state: State, folder: Path, out: Path, err: Path, arguments: list[str]) -> NoReturn:
    """In the child: what a fresh process would be in that state, with its command."""
    os.setsid()
    os.chdir(folder)
    for name, value in {"SME2_KIT_CACHE": None, "SME2_KIT_ROOFS": str(out.parent / "roofs"), **state.env}.items():
        os.environ.pop(name, None)
        if value is not None:
            os.environ[name] = value
    tempfile.tempdir = None
    signal.signal(signal.SIGINT, signal.default_int_handler)
    signal.signal(signal.SIGTERM, signal.SIG_DFL)
    for number, kind in enumerate((state.stdin, state.stdout, state.stderr)):
        _redirect(number, kind, (None, out, err)[number])
    for name, limit in state.limits.items():
        resource.setrlimit(getattr(resource, name), (limit, limit))
    CHANGES.get(state.change, lambda: None)()
    names = (("stdin", state.stdin), ("stdout", state.stdout), ("stderr", state.stderr))
    for number, (name, kind) in enumerate(names):
        setattr(sys, name, None)
        if kind != "closed":
            errors = "backslashreplace" if number == 2 else "strict"
            stream = os.fdopen(number, "w" if number else "r", encoding=state.encoding, errors=errors, closefd=False)
            setattr(sys, name, stream)
    words = [os.fsdecode(word.encode(errors="surrogateescape")) for word in arguments]
    sys.argv = ["sme2-kit", *words]
    sys.orig_argv = [sys.executable, "-c", _START, *words]
    from model_profiling.cli.process import enter

    enter()


def _redirect(number: int, kind: str, file: Path | None) -> None:
    if kind == "closed":
        os.close(number)
        return
    if kind == "unread":
        reader, target = os.pipe()
        os.close(reader)
    elif kind == "full":
        target = os.open("/dev/full", os.O_WRONLY)
    else:
        target = os.open(file or os.devnull, os.O_RDWR | os.O_CREAT, 0o644)
    os.dup2(target, number)
    os.close(target)


def _rights() -> None:
    """Root may do everything; from here on, what its files allow their owner."""
    if sys.platform == "linux" and os.geteuid() == 0:
        system = ctypes.CDLL(None)
        system.prctl(_PR_SET_SECUREBITS, _NO_CAPABILITIES_OF_ROOT, 0, 0, 0)
        header, none = (ctypes.c_uint32 * 2)(_CAPABILITY_VERSION, 0), (ctypes.c_uint32 * 6)()
        system.capset(header, none)


def _gone() -> None:
    shutil.rmtree(Path.cwd())


def _mode(mode: int) -> None:
    Path().chmod(mode)
    _rights()


def _umask() -> None:
    os.umask(0o777)
    _rights()


CHANGES: dict[str, Callable[[], object]] = {
    "gone": _gone,
    "read-only": lambda: _mode(0o500),
    "closed": lambda: _mode(0),
    "umask": _umask,
    "rights": _rights,
    "sigpipe": lambda: signal.signal(signal.SIGPIPE, signal.SIG_DFL),
    "sigint": lambda: signal.signal(signal.SIGINT, signal.SIG_IGN),
}


if __name__ == "__main__":
    _serve()
