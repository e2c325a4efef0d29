"""Ends the processes of another one when that has ended, however it ended: `programs.start` starts it.

It reads a line for each process that is started, `NUMBER SIGNAL`, and `NUMBER 0` for each that has ended; a negative
number is a process group. Only the process that writes has the pipe open: its end is the end of that process. It is run
as a file, with nothing of the kit and nothing installed, so that it is there at once.
"""

import os
import signal
import sys
import time

# How long a process that is asked to end may take to end its runners and to put a device's settings back.
GRACE_S = 10.0
_LOOK_S = 0.05


def _send(number: int, how: int) -> bool:
    try:
        os.kill(number, how)
    except OSError:
        return False
    return True


if __name__ == "__main__":
    alive: dict[int, int] = {}
    for line in sys.stdin:
        number, how = map(int, line.split())
        alive.pop(number, None)
        if how:
            alive[number] = how
    asked = [number for number, how in alive.items() if _send(number, how) and how != signal.SIGKILL]
    until = time.monotonic() + GRACE_S
    while asked and time.monotonic() < until:
        time.sleep(_LOOK_S)
        asked = [number for number in asked if _send(number, 0)]
    for number in asked:
        _send(number, signal.SIGKILL)
