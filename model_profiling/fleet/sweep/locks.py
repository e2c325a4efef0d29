"""Who may use what at the same time: this machine, and each target, over all sweeps of all users.

Work (exports, emulated runs, reports, the near side of a measurement on a phone or board) shares this machine; a
measurement on it has it alone, and one on a phone or board has that alone. A lock is a file that the kernel holds
locked for a process: it is free when the job's process has ended, however it ended.
"""

import contextlib
import fcntl
import os
import stat
from dataclasses import dataclass, field
from pathlib import Path

from model_profiling.errors import SetupError
from model_profiling.fleet.sweep.sweep_file import Target
from model_profiling.places import cache_directory, from_home

VARIABLE = "SME2_KIT_LOCKS"
_HOST, _GATE = "host", "gate"
_MOST_SAID = 200


@dataclass
class Claim:
    """Open lock files. A process that inherits them holds them until it ends; `close` is for everybody else."""

    handles: list[int] = field(default_factory=list)

    def close(self) -> None:
        for handle in self.handles:
            os.close(handle)
        self.handles = []


@dataclass(frozen=True)
class Busy:
    """Why it is not free now, in words."""

    reason: str


class Claims:
    """Asks for locks without waiting. Holds the gate while a measurement waits for this machine.

    Whoever wants to share the machine passes the gate first. So a measurement waits only for what runs already.
    """

    def __init__(self, who: str) -> None:
        self._who = who
        self._gate: int | None = None

    def try_claim(self, measures: Target | None) -> Claim | Busy:
        if measures is not None and measures.is_host:
            return self._alone()
        claim = Claim()
        gate = _try(_GATE, fcntl.LOCK_EX)
        if gate is None:
            return Busy("a measurement on this machine waits for it to be free")
        try:
            shared = _try(_HOST, fcntl.LOCK_SH)
        finally:
            os.close(gate)
        if shared is None:
            return Busy(f"this machine is being measured on{_holder(_HOST)}")
        claim.handles.append(shared)
        if measures is not None:
            name = f"target-{measures.label}"
            target = _try(name, fcntl.LOCK_EX)
            if target is None:
                claim.close()
                return Busy(f"{measures.label} is being measured on{_holder(name)}")
            _say(target, self._who)
            claim.handles.append(target)
        return claim

    def _alone(self) -> Claim | Busy:
        if self._gate is None:
            self._gate = _try(_GATE, fcntl.LOCK_EX)
        if self._gate is None:
            return Busy("another measurement on this machine waits for it to be free")
        host = _try(_HOST, fcntl.LOCK_EX)
        if host is None:
            return Busy(f"other jobs use this machine{_holder(_HOST)}")
        _say(host, self._who)
        self.step_back()
        return Claim([host])

    def step_back(self) -> None:
        """Let others pass the gate: nothing waits for this machine any more."""
        if self._gate is not None:
            os.close(self._gate)
            self._gate = None


def directory() -> Path:
    """`$SME2_KIT_LOCKS`, else one place for all users of this machine, else the user's own."""
    if chosen := os.environ.get(VARIABLE):
        home = from_home(chosen)
        home.mkdir(parents=True, exist_ok=True)
        return home
    for parent in (Path("/run/lock"), Path("/tmp")):
        home = parent / "sme2-kit"
        with contextlib.suppress(OSError):
            home.mkdir(exist_ok=True)
            if not home.is_symlink() and home.stat().st_uid == os.geteuid():
                home.chmod(0o1777)
        # Somebody else's link or closed folder is nothing to wait in.
        if not home.is_symlink() and home.is_dir() and os.access(home, os.W_OK):
            return home
    home = cache_directory() / "locks"
    home.mkdir(parents=True, exist_ok=True)
    return home


def job_lock(path: Path) -> int | None:
    """The lock of one job of one sweep; None while a process of an earlier sweep still works on it."""
    path.parent.mkdir(parents=True, exist_ok=True)
    return _try_file(path, fcntl.LOCK_EX)


def _try(name: str, how: int) -> int | None:
    return _try_file(directory() / f"{name}.lock", how)


def _try_file(path: Path, how: int) -> int | None:
    handle = -1
    try:
        # Never followed, and nothing but a file.
        flags = os.O_RDWR | os.O_NOFOLLOW | os.O_CLOEXEC | os.O_NONBLOCK
        try:
            handle = os.open(path, flags)
        except FileNotFoundError:
            handle = os.open(path, flags | os.O_CREAT, 0o666)
            folder = path.parent.stat().st_mode
            if folder & 0o022:
                # Where others may write they wait for us, too, whatever our umask: it is as open as its folder.
                with contextlib.suppress(OSError):
                    os.fchmod(handle, 0o600 | folder & 0o066)
        if not stat.S_ISREG(os.fstat(handle).st_mode):
            raise OSError(None, "it is not a file")
        fcntl.flock(handle, how | fcntl.LOCK_NB)
        return handle
    except BlockingIOError:
        os.close(handle)
        return None
    except OSError as error:
        if handle >= 0:
            os.close(handle)
        raise SetupError(
            f"{path} cannot be used as a lock: {error.strerror}", f"Remove it, or set {VARIABLE} to another folder."
        ) from None


def _say(handle: int, who: str) -> None:
    """Leave in the file who holds it, for those who wait."""
    with contextlib.suppress(OSError):
        os.ftruncate(handle, 0)
        os.pwrite(handle, who.encode()[:_MOST_SAID], 0)


def _holder(name: str) -> str:
    try:
        handle = os.open(directory() / f"{name}.lock", os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK)
    except OSError:
        return ""
    try:
        said = os.pread(handle, _MOST_SAID, 0).decode(errors="replace")
    except OSError:
        said = ""
    finally:
        os.close(handle)
    return f" ({said})" if said.isprintable() and said else ""
