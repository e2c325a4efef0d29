"""Locks that the kernel holds for a process: free when it has ended, however it ended."""

import contextlib
import errno
import fcntl
import os
import stat
import time
from collections.abc import Iterator
from pathlib import Path

from model_profiling.base.on_progress import long_step

# Nobody works in one temporary folder for so long.
_LEFT_BEHIND_S = 3600.0


def open_lock(path: Path, access: int = os.O_RDWR) -> int:
    """Open the file of a lock, made where there is nothing yet; OSError where there is anything but a file.

    Somebody else may have put there what he likes: a link is not followed, even to nowhere, nothing is emptied, and a
    pipe is not waited for.
    """
    flags = access | os.O_NOFOLLOW | os.O_CLOEXEC | os.O_NONBLOCK
    try:
        handle = os.open(path, flags)
    except FileNotFoundError:
        with contextlib.suppress(FileExistsError):  # another process was faster
            made = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o666)
            if others := path.parent.stat().st_mode & 0o022:
                # Who may write in its folder waits for us, too, whatever our umask, and needs to read it for that.
                with contextlib.suppress(OSError):
                    os.fchmod(made, stat.S_IMODE(os.fstat(made).st_mode) | others << 1)
            os.close(made)
        handle = os.open(path, flags)
    except PermissionError:
        if access == os.O_RDONLY:
            raise
        return open_lock(path, os.O_RDONLY)  # another user's, which can be locked nevertheless
    if not stat.S_ISREG(os.fstat(handle).st_mode):
        os.close(handle)
        raise OSError(errno.EINVAL, "it is not a file")
    return handle


def try_lock(handle: int, how: int) -> bool:
    """Lock what is open; False where another process holds it, or the file system has no locks."""
    try:
        fcntl.flock(handle, how)
    except OSError:
        return False
    return True


@contextlib.contextmanager
def folder_held(folder: Path, waiting: str = "", waits: bool = True) -> Iterator[bool]:
    """Keep other processes that hold `folder` waiting; on a file system without locks they do not wait.

    `waiting` is what people are told while another process has it. Without `waits`, it yields whether none has.
    """
    handle = os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        held = try_lock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
        if not held and waits:
            with long_step(waiting or f"waiting for another process that writes in {folder}"):
                try_lock(handle, fcntl.LOCK_EX)
        yield held
    finally:
        os.close(handle)


def hold_for_life(folder: Path) -> int:
    """Mark a folder as in use until what is returned is closed, or this process ends; 0 if it is gone already."""
    handle = os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try_lock(handle, fcntl.LOCK_SH)
    if os.fstat(handle).st_nlink:
        return handle
    os.close(handle)
    return 0


def is_abandoned(folder: Path) -> bool:
    """Return whether the process that holds a folder for its life is gone; a link is no folder.

    Where the file system has no locks, only a folder that is old enough is.
    """
    try:
        handle = os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC)
    except OSError:
        return False
    try:
        if os.fstat(handle).st_uid != os.geteuid():
            return False
        fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError as error:
        return error.errno != errno.EWOULDBLOCK and time.time() - os.fstat(handle).st_mtime > _LEFT_BEHIND_S
    finally:
        os.close(handle)
    return True
