"""Locks that the kernel holds for a process: free when it has ended, however it ended."""

import contextlib
import errno
import fcntl
import os
import stat
from collections.abc import Iterator
from pathlib import Path


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
def folder_held(folder: Path) -> Iterator[None]:
    """Keep other processes that hold `folder` waiting; on a file system without locks they do not wait."""
    handle = os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        try_lock(handle, fcntl.LOCK_EX)
        yield
    finally:
        os.close(handle)
