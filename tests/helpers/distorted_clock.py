"""The clock of `make test`: the runner measures times that mean nothing, so that no test can depend on them."""

import contextlib
import fcntl
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

_SOURCE = Path(__file__).with_suffix(".cpp")
_LIBRARY = "libdistorted_clock.so"
_VARIABLES = ("LD_PRELOAD", "LD_LIBRARY_PATH", "QEMU_UNSET_ENV")


def environment(home: Path, compiler: str) -> dict[str, str]:
    """Return variables under which the runner, and no other program, has that clock; none where it cannot be preloaded.

    The library is in `home`, and made there by whoever comes first.
    """
    if sys.platform != "linux":
        return {}
    with (home / "distorted_clock.lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if not (home / _LIBRARY).exists():
            command = [compiler, "-O2", "-shared", "-fPIC", str(_SOURCE), "-o", str(home / _LIBRARY), "-ldl"]
            subprocess.run(command, check=True)
    # By its name, as a space in LD_PRELOAD ends a path. A guest of QEMU is of another architecture.
    return dict(zip(_VARIABLES, (_LIBRARY, str(home), "LD_PRELOAD"), strict=True))


@contextlib.contextmanager
def true_clock() -> Iterator[None]:
    """Let the runner have the system's clock: for what compares it with another, and for what judges measurements."""
    with pytest.MonkeyPatch.context() as patch:
        for name in _VARIABLES:
            patch.delenv(name, raising=False)
        yield
