"""The ETDump reader against ExecuTorch's Inspector on one real dump, each in a fresh process.

Both go from the file to the median of every operator, and the medians must agree. A second table shows how the
reader's time and memory grow, on dumps made of copies of the real one.
"""

import json
import os
import statistics
import struct
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

import numpy as np

ROOT = Path(__file__).resolve().parents[1]

# `resource` counts kilobytes on Linux and bytes on macOS.
_REPORT = """
rss = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * (1 if sys.platform == "darwin" else 1024)
json.dump({"read": read_seconds, "rss": rss, "events": events, "medians": medians}, sys.stdout)
"""

OURS = (
    """
import json, resource, sys, time
from pathlib import Path
import numpy as np
from model_profiling.analysis.timing.categories import load_table
from model_profiling.analysis.timing.profile import profiles
from model_profiling.formats.etdump import read
began = time.perf_counter()
dump = read(Path(sys.argv[1]))
read_seconds = time.perf_counter() - began
events = len(dump.events)
profile = profiles(dump, load_table())[0]
medians = {
    f"{x.instruction}/{x.name if x.where == 'delegated' else 'native_call_' + x.name}": median / 1e6
    for x, median in zip(profile.instances, np.median(profile.times, axis=1).tolist())
    if x.where != "runtime"
}
"""
    + _REPORT
)

INSPECTOR = (
    """
import json, resource, sys, time
from executorch.devtools import Inspector
began = time.perf_counter()
inspector = Inspector(etdump_path=sys.argv[1])
read_seconds = time.perf_counter() - began
events = sum(len(event.perf_data.raw) for block in inspector.event_blocks for event in block.events)
medians = {
    f"{event._instruction_id}/{event.name}": float(event.perf_data.p50)
    for block in inspector.event_blocks if block.name == "Execute" for event in block.events
    # Parents: the kit gives them only what their children did not take.
    if event.name not in ("DELEGATE_CALL", "OPERATOR_CALL", "Method::execute")
}
"""
    + _REPORT
)


def make_dump(runner: Path, model: Path, executions: int, target: Path) -> Path:
    """Run a model that often on one thread and leave its trace at `target`."""
    subprocess.run(
        [
            str(runner),
            f"--model_path={model}",
            f"--num_executions={executions}",
            "--cpu_threads=1",
            f"--etdump_path={target}",
        ],
        check=True,
        stdout=subprocess.DEVNULL,
    )
    return target


def measure(script: str, dump: Path, repeats: int) -> dict[str, Any]:
    """Run a script in fresh processes and return its answer with the median wall time, read time and peak memory."""
    results: list[dict[str, Any]] = []
    for _ in range(repeats):
        began = time.perf_counter()
        done = subprocess.run(
            [sys.executable, "-c", script, str(dump)], cwd=ROOT, capture_output=True, text=True, check=True
        )
        results.append(json.loads(done.stdout) | {"wall": time.perf_counter() - began})
    spread = {name: statistics.median(result[name] for result in results) for name in ("wall", "read", "rss")}
    return results[0] | spread


def measure_command(dump: Path, repeats: int) -> dict[str, float]:
    """Return the wall time and the peak memory of `sme2-kit analyze DUMP` as a user starts it, medians of fresh
    processes."""
    wall, rss = [], []
    for _ in range(repeats):
        began = time.perf_counter()
        process = subprocess.Popen(
            [sys.executable, "-m", "model_profiling", "analyze", str(dump)], cwd=ROOT, stdout=subprocess.DEVNULL
        )
        _, status, usage = os.wait4(process.pid, 0)
        assert status == 0
        wall.append(time.perf_counter() - began)
        rss.append(usage.ru_maxrss * (1 if sys.platform == "darwin" else 1024))
    return {"wall": statistics.median(wall), "rss": statistics.median(rss)}


def grow(dump: Path, events_per_copy: int, events: int, target: Path) -> None:
    """Write a dump with about that many events: copies of the whole file, and a vector of runs that names them all."""
    body = dump.read_bytes()[4:]
    (root,) = struct.unpack_from("<I", body)
    field = root + 4 if struct.unpack_from("<I", body, root + 4)[0] else root + 8
    vector = field + struct.unpack_from("<I", body, field)[0]
    runs = np.frombuffer(body, "<u4", struct.unpack_from("<I", body, vector)[0], vector + 4).astype(np.int64)
    runs += vector + 4 + 4 * np.arange(len(runs))
    body += bytes(-len(body) % 8)
    copies = -(-events // events_per_copy)
    # Every copy keeps its own vtables and strings, so offsets inside it stay true.
    targets = (runs + len(body) * np.arange(copies)[:, None]).reshape(-1)
    targets = targets[: max(1, round(len(runs) * events / events_per_copy))]
    start = (28 + 4 * len(targets) + 7) // 8 * 8
    entries = start + targets - (28 + 4 * np.arange(len(targets)))
    with target.open("wb") as file:
        file.write(struct.pack("<I4s4HiII", 16, b"ED00", 8, 8, 0, 4, 8, 4, len(targets)))
        file.write(entries.astype("<u4").tobytes().ljust(start - 28, b"\0"))
        for _ in range(copies):
            file.write(body)


def compare(dump: Path, repeats: int) -> int:
    """Print the first table and return the dump's number of events."""
    ours = measure(OURS, dump, repeats)
    theirs = measure(INSPECTOR, dump, max(1, repeats // 2))
    assert ours["medians"].keys() == theirs["medians"].keys(), "they name different operators"
    for name, median in theirs["medians"].items():
        assert f"{median:.6g}" == f"{ours['medians'][name]:.6g}", f"{name}: {median} and {ours['medians'][name]}"
    print(f"{ours['events']:,} events, {dump.stat().st_size / 1e6:.1f} MB; {len(ours['medians'])} medians agree\n")
    print(f"{'':28}{'Inspector':>12}{'this kit':>12}{'ratio':>9}")
    for label, name, unit, scale in (
        ("process, file to medians", "wall", "s", 1.0),
        ("reading alone", "read", "ms", 1e3),
        ("peak memory", "rss", "MB", 1e-6),
    ):
        print(
            f"{label:28}{theirs[name] * scale:>9.2f} {unit:2}{ours[name] * scale:>9.2f} {unit:2}"
            f"{theirs[name] / ours[name]:>8.1f}x"
        )
    command = measure_command(dump, repeats)
    for label, name, unit, scale in (("analyze DUMP, as a command", "wall", "s", 1.0), ("", "rss", "MB", 1e-6)):
        print(
            f"{label:28}{theirs[name] * scale:>9.2f} {unit:2}{command[name] * scale:>9.2f} {unit:2}"
            f"{theirs[name] / command[name]:>8.1f}x"
        )
    return int(ours["events"])


def show_growth(dump: Path, events_per_copy: int, repeats: int) -> None:
    """Print the second table."""
    print(f"\n{'events':>12}{'file':>11}{'read':>12}{'per event':>12}{'memory':>11}")
    with tempfile.TemporaryDirectory() as directory:
        for events in (10_000, 50_000, 100_000, 500_000, 1_000_000, 5_000_000):
            target = Path(directory) / "grown.etdump"
            grow(dump, events_per_copy, events, target)
            ours = measure(OURS, target, repeats)
            print(
                f"{ours['events']:>12,}{target.stat().st_size / 1e6:>8.1f} MB{ours['read'] * 1e3:>9.1f} ms"
                f"{ours['read'] / ours['events'] * 1e9:>9.0f} ns{ours['rss'] / 1e6:>8.0f} MB"
            )


def report(runner: Path, model: Path, executions: int = 4000, repeats: int = 5) -> None:
    """Make a real dump of many executions, and print both tables."""
    with tempfile.TemporaryDirectory() as directory:
        dump = make_dump(runner, model, executions, Path(directory) / "real.etdump")
        show_growth(dump, compare(dump, repeats), repeats)


if __name__ == "__main__":
    report(Path(sys.argv[1]), Path(sys.argv[2]))
