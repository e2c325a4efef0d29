"""A Python in which torch and ExecuTorch are already imported, and which forks one child for each program it is given.

A process that exports spends three quarters of its time on imports and on what PyTorch does the first time. A child has
those behind it and runs the program as a fresh Python would: its own arguments, directory, environment, paths and
streams. The kit itself is imported, too, but has done nothing yet; a program that finds another copy takes that one.
"""

import atexit
import contextlib
import fcntl
import gc
import importlib
import importlib.util
import json
import logging
import os
import runpy
import selectors
import signal
import socket
import subprocess
import sys
import tempfile
import threading
import time
import traceback
from pathlib import Path
from types import ModuleType
from typing import Any

from tests.helpers import warm_drawing

ROOT = Path(__file__).resolve().parents[2]
_CLIENT = Path(__file__).with_name("warm_client.py")
_LISTENING_S, _LONGEST_S = 120, 600
_TORCH = importlib.util.find_spec("torch") is not None
_OURS = ("model_profiling", "sme2_kit", "tests")
# What modules of ours look at while they are imported, and not later.
_READ_BY_IMPORTS = {"SME2_KIT_PATIENCE"}
# Modules of ours by name, as they are after their import.
_kit: dict[str, ModuleType] = {}
_MODEL = """
import torch

class Net(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.convolution = torch.nn.Conv2d(3, 4, 3)
        self.norm = torch.nn.BatchNorm2d(4)
        self.linear = torch.nn.Linear(4, 4)

    def forward(self, x):
        return self.linear(self.norm(self.convolution(x)).relu().mean((2, 3))) + 1

    def get_example_inputs(self):
        return (torch.ones(1, 3, 8, 8),)
"""


def available() -> bool:
    return sys.platform == "linux" and importlib.util.find_spec("executorch") is not None


def run(home: Path, arguments: list[str], cwd: Path | None, env: dict[str, str]) -> "subprocess.CompletedProcess[str]":
    """Run `python arguments…` in a child of the process that serves `home`, which is started if need be."""
    paths = [entry for entry in env.get("PYTHONPATH", "").split(os.pathsep) if entry]
    call = {
        "arguments": arguments,
        "cwd": str(cwd or Path.cwd()),
        "env": {warm_drawing.VARIABLE: drawing_address(home), **env},
        "executable": sys.executable,
        "prefix": sys.prefix,
        "path": [*paths, *(entry for entry in sys.path if entry and entry not in paths)],
    }
    with _connected(home) as server, tempfile.TemporaryFile("w+") as out, tempfile.TemporaryFile("w+") as err:
        with Path(os.devnull).open() as nothing:
            socket.send_fds(server, [json.dumps(call).encode() + b"\n"], [nothing.fileno(), out.fileno(), err.fileno()])
        server.settimeout(_LONGEST_S)
        answers = server.makefile()
        answers.readline()  # the child's number
        code = int(answers.readline())
        out.seek(0)
        err.seek(0)
        return subprocess.CompletedProcess(arguments, code, out.read(), err.read())


def python(home: Path, of_children: bool = True) -> Path:
    """A `python` with this one's packages whose programs, and what they start, are forked from the process.

    Without `of_children`, what they start is not: it sees the usual Python as `sys.executable`.
    """
    if not available():
        return Path(sys.executable)
    programs = home / "warm"
    shim = programs / ("python" if of_children else "python-of-a-worker")
    with (home / "warm-python.lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if not shim.exists():
            _connected(home).close()
            programs.mkdir(exist_ok=True)
            _write_shim(home, shim, Path(sys.executable), shim if of_children else Path(sys.executable))
    return shim


def warm_up(home: Path, programs: Path) -> None:
    """Let `python` and `sme2-kit` of a virtual environment, in its directory `programs`, be forked from the process."""
    if not available():
        return
    _connected(home).close()
    # Under this name too, Python finds the environment's packages, which the client then passes on.
    cold = programs / "python-cold"
    cold.symlink_to(os.path.realpath(programs / "python"))
    kit = (programs / "sme2-kit").rename(programs / "sme2-kit-cold")
    for name, script in (("python", None), ("python3", None), ("sme2-kit", kit)):
        (programs / name).unlink(missing_ok=True)
        _write_shim(home, programs / name, cold, programs / "python", script)


def _write_shim(home: Path, shim: Path, cold: Path, executable: Path, script: Path | None = None) -> None:
    program = f'"{script}" ' if script else ""
    # What needs no packages is started as it is.
    without = f'[ "$2" = -S ] && exec "{cold}" "$@"'
    shim.write_text(
        f'#!/bin/sh\n{without}\nexec "{cold}" "{_CLIENT}" "{_address(home)}" "{executable}" {program}"$@"\n'
    )
    shim.chmod(0o755)


def _address(home: Path) -> Path:
    # The path of a socket must be short, which that of a test's directory need not be.
    return Path(tempfile.gettempdir()) / f"warm-{os.getuid()}-{home.stat().st_ino}"


def drawing_address(home: Path) -> str:
    """Where one process draws for all commands of a session."""
    return f"{_address(home)}-drawing"


def _connected(home: Path) -> socket.socket:
    """A connection to the one server of `home`, whichever test worker came first."""
    address = _address(home)
    with (home / "warm.lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        with contextlib.suppress(OSError):
            return _connect(address)
        session = os.getppid() if "PYTEST_XDIST_WORKER" in os.environ else os.getpid()
        command = [sys.executable, "-m", "tests.helpers.warm", str(address), str(session)]
        # pandas imports pyarrow where it is installed, whose allocator has a thread of its own.
        alone = {**os.environ, "OMP_NUM_THREADS": "1", "JE_ARROW_MALLOC_CONF": "background_thread:false"}
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
    with contextlib.suppress(FileNotFoundError):
        address.unlink()
    listener = socket.socket(socket.AF_UNIX)
    listener.bind(str(address))
    listener.listen(64)
    drawing = warm_drawing.listening(Path(f"{address}-drawing"))
    _export_once()
    _import_kit()
    # What is there stays: a child's collector need not look at it, nor copy its pages.
    gc.freeze()
    # A thread would not be there in a child, which would wait for it.
    assert len(list(Path("/proc/self/task").iterdir())) == 1, "the warm process has threads"
    waiting = selectors.DefaultSelector()
    waiting.register(listener, selectors.EVENT_READ)
    waiting.register(drawing, selectors.EVENT_READ)
    artists = []
    while _alive(session):
        for key, _ in waiting.select(timeout=1):
            if key.fileobj is listener:
                _begin(listener, waiting)
            elif key.fileobj is drawing:  # the first picture of the session
                waiting.unregister(drawing)
                command = [sys.executable, "-m", "tests.helpers.warm_drawing", str(drawing.fileno())]
                artists.append(subprocess.Popen(command, stdin=subprocess.PIPE, pass_fds=[drawing.fileno()]))
                drawing.close()
            else:
                child, client = key.data
                waiting.unregister(key.fileobj)
                os.close(key.fd)
                _, status = os.waitpid(child, 0)
                with contextlib.suppress(OSError), client:
                    client.sendall(b"%d\n" % os.waitstatus_to_exitcode(status))
    for artist in artists:
        artist.kill()
    address.unlink(missing_ok=True)
    Path(f"{address}-drawing").unlink(missing_ok=True)


def _begin(listener: socket.socket, waiting: selectors.BaseSelector) -> None:
    client, _ = listener.accept()
    call, descriptors, _, _ = socket.recv_fds(client, 1 << 20, 3)
    if not call:  # who only asked whether we listen
        client.close()
        return
    while not call.endswith(b"\n"):
        call += client.recv(1 << 20)
    child = os.fork()
    if child == 0:
        listener.close()
        client.close()
        _run(json.loads(call), descriptors)
    for descriptor in descriptors:
        os.close(descriptor)
    with contextlib.suppress(OSError):
        client.sendall(b"%d\n" % child)
    waiting.register(os.pidfd_open(child), selectors.EVENT_READ, (child, client))


def _export_once() -> None:
    """Have everything imported that an export takes, if it can be, and leave nothing of the kit behind."""
    if not _TORCH:
        return
    from tqdm import tqdm

    from model_profiling.export.exporter import ExportRequest, export

    tqdm.monitor_interval = 0
    with tempfile.TemporaryDirectory() as scratch:
        model = Path(scratch) / "net.py"
        model.write_text(_MODEL)
        for dtype in ("fp32", "int8"):
            export(ExportRequest("net", Path(scratch), dtype, target=f"{model}:Net"))
    logging.root.handlers.clear()
    _taken_out()


def _import_kit() -> None:
    """Have ready what commands import, as much work as most commands are, and what tests do."""
    for package in ("mcp", "pydantic"):
        with contextlib.suppress(ModuleNotFoundError):
            importlib.import_module(package)
    for package in ("model_profiling", "sme2_kit"):
        for path in sorted((ROOT / package).rglob("*.py")):
            # A module of the zoo, or the process of a runtime, may need what is not installed; a door is run.
            if path.relative_to(ROOT).parts[1] not in (
                "models",
                "runtimes",
                "scripts",
                "tools",
                "__main__.py",
                "skills",
            ):
                words = path.relative_to(ROOT).with_suffix("").parts
                with contextlib.nullcontext() if _TORCH else contextlib.suppress(ModuleNotFoundError):
                    importlib.import_module(".".join(words).removesuffix(".__init__"))
    _kit.update(_taken_out())


def _taken_out() -> dict[str, ModuleType]:
    """What is loaded of ours, which now is not loaded any more."""
    names = [name for name in sys.modules if name.split(".")[0] in _OURS]
    return {name: sys.modules.pop(name) for name in names}


def _alive(process: int) -> bool:
    try:
        os.kill(process, 0)
    except ProcessLookupError:
        return False
    return True


def _run(call: dict[str, Any], descriptors: list[int]) -> None:
    """In the child: become what a fresh process would be, run the program, and end."""
    code = 70
    try:
        for target, descriptor in enumerate(descriptors):
            os.dup2(descriptor, target)
        os.setsid()
        os.chdir(call["cwd"])
        os.environ.clear()
        os.environ.update(call["env"])
        tempfile.tempdir = None
        signal.signal(signal.SIGINT, signal.default_int_handler)
        atexit._clear()
        sys.stdin, sys.stdout, sys.stderr = os.fdopen(0), os.fdopen(1, "w"), os.fdopen(2, "w", buffering=1)
        sys.executable, sys.prefix = call["executable"], call["prefix"]
        sys.path[:] = call["path"]
        sys.path_importer_cache.clear()
        importlib.invalidate_caches()
        if call["path"] and call["path"][0] == str(ROOT) and not os.environ.keys() & _READ_BY_IMPORTS:
            sys.modules.update(_kit)
        if shared := os.environ.get(warm_drawing.VARIABLE):
            warm_drawing.draw_at(shared)
        _program(call["arguments"])
        code = 0
    except SystemExit as ended:
        if isinstance(ended.code, str):
            sys.stderr.write(f"{ended.code}\n")
        code = ended.code if isinstance(ended.code, int) else int(ended.code is not None)
    except BaseException:  # noqa: BLE001 - as at the top of a process
        traceback.print_exc()
        code = 1
    finally:
        threading._shutdown()  # type: ignore[attr-defined]
        atexit._run_exitfuncs()
        with contextlib.suppress(OSError):
            sys.stdout.flush()
            sys.stderr.flush()
        os._exit(code)


def _program(arguments: list[str]) -> None:
    """What `python arguments…` does."""
    while arguments[0] in ("-u", "-I", "-E", "-s", "-B", "-P"):
        arguments = arguments[1:]
    first, rest = arguments[0], arguments[1:]
    if first == "-m":
        sys.path.insert(0, str(Path.cwd()))
        sys.argv = rest
        runpy.run_module(rest[0], run_name="__main__", alter_sys=True)
    elif first in ("-c", "-"):
        sys.path.insert(0, "")
        sys.argv = [first, *rest[1:]] if first == "-c" else arguments
        main = type(sys)("__main__")
        sys.modules["__main__"] = main
        exec(compile(rest[0] if first == "-c" else sys.stdin.read(), "<string>", "exec"), vars(main))
    else:
        sys.argv = [first, *rest]
        sys.path.insert(0, str(Path(first).resolve().parent))
        runpy.run_path(first, run_name="__main__")


if __name__ == "__main__":
    _serve(Path(sys.argv[1]), int(sys.argv[2]))
