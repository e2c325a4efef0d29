"""`python` as a test's environment has it: passes the program on to the warm process (warm.py), and its end back."""

import json
import os
import signal
import socket
import sys
from pathlib import Path

_PYTHONS_OWN = ("--version", "-V")


def main() -> None:
    address, executable, *arguments = sys.argv[1:]
    if not arguments or arguments[0] in _PYTHONS_OWN or not Path(address).exists():
        os.execv(sys.executable, [sys.executable, *arguments])
    call = {
        "arguments": arguments,
        "cwd": str(Path.cwd()),
        "env": dict(os.environ),
        "executable": executable,
        "prefix": sys.prefix,
        # Under its own name a package is the same in every workspace, and so is the runner that is built against it.
        "path": [os.path.realpath(entry) for entry in sys.path[1:]],
    }
    with socket.socket(socket.AF_UNIX) as server:
        server.connect(address)
        socket.send_fds(server, [json.dumps(call).encode() + b"\n"], [0, 1, 2])
        answers = server.makefile()
        child = int(answers.readline())
        for number in (signal.SIGINT, signal.SIGTERM):
            signal.signal(number, lambda number, _: os.kill(child, number))
        code = int(answers.readline() or 70)
    if code < 0:
        signal.signal(-code, signal.SIG_DFL)
        os.kill(os.getpid(), -code)
    sys.exit(code)


if __name__ == "__main__":
    main()
