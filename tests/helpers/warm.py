"""A process in which torch and ExecuTorch are already imported, and which forks one child for each command it is given.

The first export of a process spends three quarters of its time on imports. A child runs the command line as a fresh
process would: its own arguments, directory, environment and output.
"""

import contextlib
import fcntl
import json
import os
import signal
import socket
import subprocess
import sys
import tempfile
import time
import traceback
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[2]
_LISTENING_S, _LONGEST_S = 120, 600
_MODEL = """
import torch

class Net(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.linear = torch.nn.Linear(4, 4)

    def forward(self, x):
        return self.linear(x) + 1

    def get_example_inputs(self):
        return (torch.ones(1, 4),)
"""


def run(home: Path, arguments: list[str], cwd: Path | None, env: dict[str, str]) -> "subprocess.CompletedProcess[str]":
    """Run `sme2-kit` with `arguments` in a child of the process that serves `home`, which is started if need be."""
    with _connected(home) as server, tempfile.TemporaryFile("w+") as out, tempfile.TemporaryFile("w+") as err:
        call = json.dumps({"arguments": arguments, "cwd": str(cwd or Path.cwd()), "env": env}).encode()
        socket.send_fds(server, [call + b"\n"], [out.fileno(), err.fileno()])
        server.settimeout(_LONGEST_S)
        code = int(server.makefile().readline())
        out.seek(0)
        err.seek(0)
        return subprocess.CompletedProcess(arguments, code, out.read(), err.read())


def _connected(home: Path) -> socket.socket:
    """A connection to the one server of `home`, whichever test worker came first."""
    # The path of a socket must be short, which that of a test's directory need not be.
    address = Path(tempfile.gettempdir()) / f"warm-{os.getuid()}-{home.stat().st_ino}"
    with (home / "warm.lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        with contextlib.suppress(OSError):
            return _connect(address)
        session = os.getppid() if "PYTEST_XDIST_WORKER" in os.environ else os.getpid()
        command = [sys.executable, "-m", "tests.helpers.warm", str(address), str(session)]
        alone = {**os.environ, "OMP_NUM_THREADS": "1"}
        subprocess.Popen(command, cwd=ROOT, env=alone, stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL)
        until = time.monotonic() + _LISTENING_S
        while time.monotonic() < until:
            with contextlib.suppress(OSError):
                return _connect(address)
            time.sleep(0.05)
    raise AssertionError(f"the warm process did not listen within {_LISTENING_S} s")


def _connect(address: Path) -> socket.socket:
    server = socket.socket(socket.AF_UNIX)
    try:
        server.connect(str(address))
    except OSError:
        server.close()
        raise
    return server


def _serve(address: Path, session: int) -> None:
    """Answer until the test session's process has ended."""
    from tqdm import tqdm

    from model_profiling.export.exporter import ExportRequest, export

    tqdm.monitor_interval = 0
    with contextlib.suppress(FileNotFoundError):
        address.unlink()
    listener = socket.socket(socket.AF_UNIX)
    listener.bind(str(address))
    listener.listen(16)
    listener.settimeout(1)
    # Most imports happen while exporting; quantizing has its own.
    with tempfile.TemporaryDirectory() as scratch:
        model = Path(scratch) / "net.py"
        model.write_text(_MODEL)
        for dtype in ("fp32", "int8"):
            export(ExportRequest("net", Path(scratch), dtype, target=f"{model}:Net"))
    # A thread would not be there in a child, which would wait for it.
    assert len(list(Path("/proc/self/task").iterdir())) == 1, "the warm process has threads"
    children: dict[int, socket.socket] = {}
    while _alive(session):
        with contextlib.suppress(TimeoutError):
            client, _ = listener.accept()
            call, descriptors, _, _ = socket.recv_fds(client, 1 << 20, 2)
            child = os.fork()
            if child == 0:
                _run(json.loads(call), descriptors)
            for descriptor in descriptors:
                os.close(descriptor)
            children[child] = client
            listener.settimeout(0.05)
        for child in list(children):
            done, status = os.waitpid(child, os.WNOHANG)
            if done:
                with contextlib.suppress(OSError), children.pop(child) as client:
                    client.sendall(b"%d\n" % os.waitstatus_to_exitcode(status))
    address.unlink()


def _alive(process: int) -> bool:
    try:
        os.kill(process, 0)
    except ProcessLookupError:
        return False
    return True


def _run(call: dict[str, Any], descriptors: list[int]) -> None:
    """In the child: become what a fresh process would be, run the command, and end."""
    code = 70
    try:
        for target, descriptor in enumerate(descriptors, start=1):
            os.dup2(descriptor, target)
        os.chdir(call["cwd"])
        os.environ.clear()
        os.environ.update(call["env"])
        signal.signal(signal.SIGINT, signal.default_int_handler)
        sys.argv = ["sme2-kit", *call["arguments"]]
        from model_profiling.cli.main import main

        code = main(call["arguments"])
    except SystemExit as ended:
        code = ended.code if isinstance(ended.code, int) else 1
    except Exception:  # noqa: BLE001 - as at the top of a process
        traceback.print_exc()
        code = 1
    finally:
        sys.stdout.flush()
        sys.stderr.flush()
        os._exit(code)


if __name__ == "__main__":
    _serve(Path(sys.argv[1]), int(sys.argv[2]))
