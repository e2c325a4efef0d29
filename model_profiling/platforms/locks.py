"""Who may use what at the same time: this machine, and each target, over all commands and sweeps of all users.

A measurement on this machine has it alone. The work of sweeps (exports, emulated runs, reports, the near side of a
measurement on a phone or board) shares it. A lock is a file that the kernel holds locked for a process: it is free when
that process has ended, however it ended.

Users share the files in a folder that belongs to the system and in which nobody can replace what another one made. They
are opened for reading only and nothing is ever written to them, so what somebody else put there can do no harm. Who
holds a lock is said in a folder of the user's own.
"""

import contextlib
import errno
import fcntl
import os
import platform
import random
import re
import shlex
import stat
import sys
import threading
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import TypeVar

from model_profiling.base import files
from model_profiling.base.directories import cache_directory, from_home
from model_profiling.base.errors import KitError, SetupError
from model_profiling.base.file_locks import open_lock
from model_profiling.base.on_progress import say_note

T = TypeVar("T")
VARIABLE = "SME2_KIT_LOCKS"
# The open locks that a sweep hands to a job: it does not take them again, and it waits for no others, the sweep does.
GIVEN = "SME2_KIT_GIVEN_LOCKS"
# The name of this machine's lock.
HOST = "host"
_GATE = "gate"
_FOR_ALL_USERS = (Path("/run/lock"), Path("/tmp"))
_MOST_SAID = 200
_LOOK_S, _SAY_AGAIN_S = 0.5, 60.0
_mine = threading.local()
_announced = ""


class TakenError(SetupError):
    """Somebody measures on a machine; `who` is '' where that is not known."""

    def __init__(self, machine: str, who: str) -> None:
        super().__init__(f"{machine} is being measured{f' by {who}' if who else ''}", "Wait for that to end.")
        self.machine = machine


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
    """What is not free now, and who has it; '' if that is not known."""

    what: str
    who: str

    @property
    def reason(self) -> str:
        return f"{self.what}{f': {self.who}' if self.who else ''}"


class Claims:
    """Asks for locks without waiting. Holds the gate while a measurement waits for this machine.

    Whoever wants to share the machine passes the gate first. So a measurement waits only for what runs already.
    """

    def __init__(self, words: str = "") -> None:
        """`words` say what this process does; without them, its command."""
        self._words = words or _announced or shlex.join(sys.orig_argv)
        self._gate: int | None = None

    def try_claim(self, measures: str | None) -> Claim | Busy:
        """Try to take locks. `measures` names that of what is measured on: HOST, or another machine's; None for other
        work."""
        if measures == HOST:
            return self._alone()
        gate = _locked(_open(_GATE), fcntl.LOCK_EX)
        if gate is None:
            return Busy("a measurement on this machine waits for it to be free", _holder(_GATE))
        try:
            shared = _locked(_open(HOST), fcntl.LOCK_SH)
        finally:
            os.close(gate)
        if shared is None:
            return Busy("this machine is being measured on", _holder(HOST))
        self._say(HOST)
        claim = Claim([shared])
        if measures is not None:
            target = self.try_target(measures)
            if isinstance(target, Busy):
                claim.close()
                return target
            claim.handles += target.handles
        return claim

    def try_target(self, name: str) -> Claim | Busy:
        """Return the lock of another machine alone."""
        target = _locked(_open(name), fcntl.LOCK_EX)
        if target is None:
            return Busy(f"{name.removeprefix('target-')} is being measured on", _holder(name))
        self._say(name)
        return Claim([target])

    def _alone(self) -> Claim | Busy:
        if self._gate is None:
            self._gate = _locked(_open(_GATE), fcntl.LOCK_EX)
            if self._gate is None:
                waiting = "another measurement on this machine waits for it to be free"
                return Busy(waiting, _holder(HOST) or _holder(_GATE))
            self._say(_GATE)
        host = _locked(_open(HOST), fcntl.LOCK_EX)
        if host is None:
            return Busy("other jobs use this machine", _holder(HOST))
        self._say(HOST)
        self.step_back()
        return Claim([host])

    def step_back(self) -> None:
        """Let others pass the gate: nothing waits for this machine any more."""
        if self._gate is not None:
            os.close(self._gate)
            self._gate = None

    def _say(self, name: str) -> None:
        """Leave who holds a lock for those who wait."""
        with contextlib.suppress(KitError, OSError):
            files.write_text(_said_in(name), f"{os.getpid()} {self._words}"[:_MOST_SAID])


@contextlib.contextmanager
def this_machine() -> Iterator[None]:
    """Have this machine alone. What this thread has already, or was given by a sweep, is not taken again."""
    if getattr(_mine, "has_it", False) or is_inherited(HOST):
        yield
        return
    claims = Claims()

    def take() -> Claim:
        claim = claims.try_claim(HOST)
        if isinstance(claim, Busy):
            raise TakenError("this machine", claim.who)
        return claim

    try:
        claim = wait_and_take(take)
    finally:
        claims.step_back()
    _mine.has_it = True
    try:
        yield
    finally:
        _mine.has_it = False
        with contextlib.suppress(KitError, OSError):
            _said_in(HOST).unlink()
        claim.close()


def announce(command: str) -> None:
    """Say which command this process carries out, for those who will wait for it."""
    global _announced
    _announced = command


def wait_and_take(take: Callable[[], T], look_s: float = _LOOK_S) -> T:
    """Take something as soon as nobody else has it; says who has, and how long that took."""
    began, said_at, machine = time.monotonic(), None, ""
    while True:
        try:
            taken = take()
        except TakenError as error:
            if GIVEN in os.environ:
                raise
            machine, waited = error.machine, time.monotonic() - began
            if said_at is None or waited - said_at > _SAY_AGAIN_S:
                said_at = waited
                say_note(f"waiting for {waited:.0f} s: {error.message}")
            # Two who see each other and step back do not come again at the same time.
            time.sleep(look_s * random.uniform(0.5, 1.0))
            continue
        if said_at is not None:
            say_note(f"waited {time.monotonic() - began:.0f} s for {machine}")
        return taken


def target_lock(platform_name: str, place: str) -> str:
    """Return the name of the lock of another machine: a phone by its serial, a board by its host."""
    return re.sub(r"[^A-Za-z0-9_.-]", "_", f"target-{platform_name}-{place}")[:200]


def is_inherited(name: str) -> bool:
    """Return whether a sweep that started this process gave it this lock, and it is really held."""
    for number in os.environ.get(GIVEN, "").split(","):
        with contextlib.suppress(KitError, OSError, ValueError, OverflowError):
            handle = _open(name)
            try:
                # What is locked already through the same opening of a file can be locked again, and nothing else.
                if os.path.samestat(os.fstat(int(number)), os.fstat(handle)):
                    fcntl.flock(int(number), fcntl.LOCK_EX | fcntl.LOCK_NB)
                    return True
            finally:
                os.close(handle)
    return False


def job_lock(path: Path) -> int | None:
    """Return the lock of one job of one sweep; None while a process of an earlier sweep still works on it."""
    path.parent.mkdir(parents=True, exist_ok=True)
    return _locked(_opened(path), fcntl.LOCK_EX)


def process_exists(number: int) -> bool:
    """Return whether there is such a process on this machine, of whomever."""
    try:
        os.kill(number, 0)
    except (OverflowError, OSError) as error:
        return not isinstance(error, ProcessLookupError)
    return True


def _locked(handle: int, how: int) -> int | None:
    try:
        fcntl.flock(handle, how | fcntl.LOCK_NB)
    except OSError as error:
        os.close(handle)
        if error.errno == errno.EWOULDBLOCK:
            return None
        raise SetupError(f"a file cannot be locked: {error.strerror}", f"Set {VARIABLE} to another folder.") from None
    return handle


def _open(name: str) -> int:
    """Return the file of a lock, the same for all users of this machine if that can be."""
    if not os.environ.get(VARIABLE):
        for folder in filter(_is_for_all_users, _FOR_ALL_USERS):
            with contextlib.suppress(OSError):
                handle = open_lock(folder / f"sme2-kit-{name}.lock", os.O_RDONLY)
                if os.fstat(handle).st_nlink == 1:
                    return handle
                # A file that has another name as well may be one that other programs lock.
                os.close(handle)
    return _opened(_own_folder() / f"{name}.lock")


def _opened(path: Path) -> int:
    try:
        return open_lock(path)
    except OSError as error:
        raise SetupError(
            f"{path} cannot be used as a lock: {error.strerror}", f"Remove it, or set {VARIABLE} to another folder."
        ) from None


def _is_for_all_users(folder: Path) -> bool:
    """Return whether everybody may make files there, and nobody but the system remove those of others."""
    try:
        found = folder.stat()
    except OSError:
        return False
    return stat.S_ISDIR(found.st_mode) and found.st_uid == 0 and found.st_mode & 0o1002 == 0o1002


def _own_folder() -> Path:
    """Return `$SME2_KIT_LOCKS`, else one in the cache for each machine, which is nobody else's."""
    chosen = os.environ.get(VARIABLE)
    machine = re.sub(r"[^A-Za-z0-9_.-]", "_", platform.node())[:80]
    home = from_home(chosen) if chosen else cache_directory() / "locks" / f"on-{machine}"
    try:
        home.mkdir(mode=0o700, parents=True, exist_ok=True)
        found = home.stat() if chosen else home.lstat()
    except OSError as error:
        raise SetupError(f"{home} cannot hold locks: {error.strerror}", f"Set {VARIABLE} to another folder.") from None
    if not stat.S_ISDIR(found.st_mode) or (not chosen and found.st_uid != os.geteuid()):
        raise SetupError(f"{home} is not a folder of your own", f"Remove it, or set {VARIABLE} to another folder.")
    return home


def _said_in(name: str) -> Path:
    return _own_folder() / f"{name}.holder"


def _holder(name: str) -> str:
    """Return which process of this user holds a lock, as far as it said so and is still there."""
    said = b""
    with contextlib.suppress(KitError, OSError):
        handle = os.open(_said_in(name), os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC)
        try:
            said = os.pread(handle, _MOST_SAID, 0)
        finally:
            os.close(handle)
    number, _, words = said.decode(errors="replace").partition(" ")
    if not re.fullmatch(r"[0-9]{1,10}", number) or not words.isprintable() or not process_exists(int(number)):
        return ""
    return f"process {number} ({words})"
