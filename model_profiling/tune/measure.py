"""Several .pte on one device, taking turns: what the pipeline does for several feature sets of one model."""

import contextlib
import hashlib
import random
from collections.abc import Callable
from pathlib import Path

import msgspec
import numpy as np

from model_profiling import files
from model_profiling.analysis.agreement import Array
from model_profiling.artifacts import ExportRecord
from model_profiling.platforms.base import Platform, Request, Session
from model_profiling.run_directory import Turn

TURNS = 20
# The first run of a turn finds the caches full of its neighbour's data and is not counted.
SETTLE = 1


class Lap(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """The turns of one round, by variant; `key` is a hash of everything that decides them."""

    key: str
    turns: dict[str, list[Turn]]


def round_key(models: dict[str, Path], runner: str, threads: int, runs: int) -> str:
    digest = hashlib.sha256(f"{runner} {threads} {runs} {TURNS}".encode())
    for name, path in sorted(models.items()):
        digest.update(f"{name} {files.sha256(path)}".encode())
    return digest.hexdigest()


def take_turns(
    platform: Platform,
    models: dict[str, tuple[Path, ExportRecord]],
    home: Path,
    threads: int,
    runs: int,
    report: Callable[[str, int, int], None],
) -> dict[str, list[Turn]]:
    """Open a session for each model and let them run `runs` times a turn in an order that is shuffled and seeded.

    Outputs of each model are left at home/<name>_output-<index>.bin.
    """
    runner = platform.runner(None)
    taken: dict[str, list[Turn]] = {name: [] for name in models}
    with contextlib.ExitStack() as stack:
        sessions: dict[str, Session] = {}
        for name, (pte, record) in models.items():
            report(f"loading {name}", 0, 1)
            inputs = tuple(pte.parent / tensor.file for tensor in record.inputs)
            request = Request(
                runner, pte, inputs, threads, 3, (), home / f"{name}.log", output_base=home / f"{name}_output"
            )
            sessions[name] = platform.open(request)
            stack.callback(sessions[name].close)
        shuffler = random.Random(0)
        for turn in range(TURNS):
            order = list(sessions)
            shuffler.shuffle(order)
            for place, name in enumerate(order):
                report(f"measuring {name}", (turn * len(order) + place) * runs, TURNS * len(order) * runs)
                ns = sessions[name].run(runs + SETTLE)[SETTLE:]
                taken[name].append(Turn(turn, 0.0, ns, min(sessions[name].preempted, runs)))
        for session in sessions.values():
            session.finish()
    return taken


def outputs_of(home: Path, name: str, record: ExportRecord) -> list[Array]:
    """Read what a variant computed; its outputs are of the shapes and dtypes its export recorded."""
    arrays: list[Array] = []
    for index, tensor in enumerate(record.outputs):
        path = home / f"{name}_output-{index}.bin"
        data: Array = np.fromfile(path, dtype=np.dtype(tensor.dtype)) if path.is_file() else np.empty(0)
        if data.size != int(np.prod(tensor.shape, dtype=np.int64)):
            return []
        arrays.append(data.reshape(tensor.shape))
    return arrays
