"""Files are opened in one place, which refuses what is no file and reads no more than there is."""

import ast
from collections.abc import Iterator

from tests.conftest import ROOT

# What opens files for reading, by the last part of its name; for a few names only with what stands before it.
_READING = {
    *("read_bytes", "read_text", "open", "fdopen", "FileIO", "ZipFile", "mmap", "load_file"),
    *("fromfile", "open_memmap", "memmap", "loadtxt", "genfromtxt", "read_csv", "copy2", "copyfile"),
    *("np.load", "numpy.load", "torch.load", "shutil.copy", "sqlite3.connect"),
}
_OWN = "a file of the package itself, which is as trusted as its code"
_KERNEL = "what the kernel says in /proc and /sys, where files have no size"
_OPENED = "of a file that files.open_file has opened, or that is held open by it"
_NO_FILE = "opens no file for reading"
_WRITES = "opens a file of its own to write to"
# Calls outside base/files.py and base/file_locks.py, each with its reason.
_ALLOWED = {
    "analysis/run/run_data.py: cls.open": _NO_FILE,
    "analysis/run/validation.py: RunData.open": _NO_FILE,
    "analysis/timing/categories.py: _TABLE.read_text": _OWN,
    "export/check/diagnosis.py: _SCRIPT.read_text": _OWN,
    "models/remedies.py: _TABLE.read_text": _OWN,
    "models/scaffold.py: (_TEMPLATES / f'{template}.txt').read_text": _OWN,
    "runner/kernel_trace.py: _RECORDER.read_text": _OWN,
    "store/transaction.py: os.open": _NO_FILE,
    "cli/process.py: os.fdopen": _NO_FILE,
    "cli/process.py: os.open": _WRITES,
    "cli/report.py: webbrowser.open": _NO_FILE,
    "store/derived.py: path.read_bytes": _OWN,
    "formats/etdump/__init__.py: mmap.mmap": _OPENED,
    "formats/onnx.py: mmap.mmap": _OPENED,
    "formats/etrecord/reader.py: self._zip.open": _OPENED,
    "formats/etrecord/reader.py: zipfile.ZipFile": _OPENED,
    "export/lower/io_layout.py: path.open": _WRITES,
    "fleet/sweep/ray_executor.py: os.open": _NO_FILE,
    "fleet/sweep/task.py: place.open": _WRITES,
    "fleet/sweep/task.py: zipfile.ZipFile": "bytes of a node, in memory",
    "fleet/sweep/task.py: whole.open": _OPENED,
    "base/installation.py: described.read_text": _OWN,
    "models/loading.py: load_file": _OPENED,
    "models/loading.py: torch.load": _OPENED,
    "models/zoo.py: path.read_text": _OWN,
    "base/npy.py: np.fromfile": _OPENED,
    "tune/metric.py: np.load": "bytes of a file that base/files.py has read, in memory",
    "models/loading.py: zipfile.ZipFile": _OPENED,
    "platforms/environment.py: path.read_text": _KERNEL,
    "platforms/locks.py: os.open": "who holds a lock: never followed, and read for a few bytes",
    "platforms/process_platform.py: Path(f'/proc/{process.pid}/status').read_text": _KERNEL,
    "platforms/cpus.py: path.read_text": _KERNEL,
    "platforms/remote/device.py: path.read_text": _OWN,
    "platforms/remote/ssh.py: local.open": _WRITES,
    "platforms/remote/ssh.py: tarfile.open": _NO_FILE,
    "report/drawing/drawing_process.py: os.fdopen": _NO_FILE,
    "report/html.py: (_FILES / 'page.css').read_text": _OWN,
    "report/html.py: (_FILES / 'vendor' / 'dagre.LICENSE').read_text": _OWN,
    "report/html.py: (_FILES / name).read_text": _OWN,
    "runner/sdk.py: wheel.read_text": _OWN,
    "runner/sdk.py: zipfile.ZipFile": "a wheel that pip has just fetched into a folder of ours",
    "runtimes/runtime_process.py: (_ME / 'stat').read_text": _KERNEL,
    "runtimes/runtime_process.py: (_ME / 'statm').read_text": _KERNEL,
    "runtimes/runtime_process.py: (_ME / 'status').read_text": _KERNEL,
    "runtimes/runtime_process.py: (each / 'schedstat').read_text": _KERNEL,
    "runtimes/runtime_process.py: os.open": _NO_FILE,
    "runtimes/runtime_process.py: os.fdopen": _NO_FILE,
    "skills/catalogue.py: path.read_text": _OWN,
}
# Methods of ours that open runs and sessions.
_OURS = ("Run.open", "RunView.open", "platform.open", "_platform.open")


def _calls() -> Iterator[str]:
    for package in ("model_profiling", "sme2_kit"):
        for path in sorted((ROOT / package).rglob("*.py")):
            text = path.read_text()
            # To parse them all takes seconds.
            tree = ast.parse(text if any(word in text for word in _READING) else "")
            for node in ast.walk(tree):
                name = ast.unparse(node.func) if isinstance(node, ast.Call) else ""
                if {name, name.rpartition(".")[2]} & _READING and not name.startswith("files.") | name.endswith(_OURS):
                    yield f"{path.relative_to(ROOT / package).as_posix()}: {name}"


def test_files_are_opened_in_one_place() -> None:
    found = {call for call in _calls() if not call.startswith(("base/files.py: ", "base/file_locks.py: "))}
    assert found == set(_ALLOWED)
