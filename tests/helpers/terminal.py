"""What a command writes to a terminal: a real one of the system, with a size."""

import fcntl
import os
import pty
import struct
import subprocess
import termios
from collections.abc import Mapping, Sequence


def written_to_terminal(command: Sequence[str], columns: int, environment: Mapping[str, str]) -> str:
    """Run a command, which must succeed, on a terminal of so many columns, and return all that it wrote."""
    leader, follower = pty.openpty()
    fcntl.ioctl(follower, termios.TIOCSWINSZ, struct.pack("HHHH", 24, columns, 0, 0))
    process = subprocess.Popen(command, stdout=follower, stderr=follower, stdin=subprocess.DEVNULL, env=environment)
    os.close(follower)
    printed = b""
    while True:
        try:
            part = os.read(leader, 65536)
        except OSError:  # the other end is closed
            break
        if not part:
            break
        printed += part
    os.close(leader)
    assert process.wait() == 0
    return printed.decode().replace("\r\n", "\n")
