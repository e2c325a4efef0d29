"""Makes a run directory out of a real one: more operators, more executions, other names, a failed experiment.

Reports are to be tried on runs that this machine cannot give in a test's time, and on names that no honest model has.
The ETDumps are sound; their operators, in the order of the real dump, are repeated and their times varied a little.
"""

import functools
import shutil
from collections.abc import Callable, Sequence
from pathlib import Path

import msgspec
import numpy as np

from model_profiling.analysis.sme2.kernel_assignment import _delegates
from model_profiling.analysis.timing.categories import strip_instance
from model_profiling.base import files
from model_profiling.formats import etdump
from model_profiling.runner.protocol import Features
from model_profiling.store.artifacts import KERNEL_TRACE
from model_profiling.store.run_directory import (
    ExperimentRecord,
    Manifest,
    RunDirectory,
    Samples,
    Turn,
    experiment_file,
    threads_name,
)
from model_profiling.upstream.libraries import INVOKE
from tests.helpers.bulk_dump import Call, first_execution, write_dump

_TURNS = 20


def forge_run(
    source: Path,
    target: Path,
    operators: int | None = None,
    executions: int | None = None,
    rename: Callable[[str], str] = lambda name: name,
    change: Callable[[Manifest], None] = lambda manifest: None,
    copies: int = 1,
    launches: int = 1,
    threads: Sequence[int] = (),
    times: Callable[[ExperimentRecord, str, int], float] = lambda record, name, ns: ns,
) -> Path:
    """Write a run like `source` at `target`; `rename` changes operators' names, `change` the manifest.

    With `copies`, each experiment and each comparison is there so often, with times of its own; with `threads`, once
    for each of these numbers. `times` changes the nanoseconds of operators, and of calls as '', of an experiment.
    """
    real, made = RunDirectory(source), RunDirectory(target)
    manifest = real.manifest()
    old_stem = manifest.model.stem
    original = {**_copied(manifest, copies), **_with_threads(manifest, threads)}
    change(manifest)
    for seed, (name, record) in enumerate(manifest.experiments.items()):
        if record.status != "ok":
            continue
        source_name = original.get(name, name)
        of = real.manifest().experiments.get(source_name, record).threads
        calls = first_execution(real.experiment(source_name) / experiment_file(old_stem, source_name, of, ".etdump"))
        traced = len(real.samples(real.manifest(), source_name).traced)
        calls = _renamed(_grown(calls, operators) if operators else calls, rename)
        calls = [call.restated(functools.partial(times, record)) for call in calls]
        runs = executions or 2 * traced
        dump = made.experiment(name) / experiment_file(manifest.model.stem, name, record.threads, ".etdump")
        totals = write_dump(dump, [calls], runs, seed).tolist()
        manifest.experiments[name] = _write(made, manifest, record, totals, launches)
    files.write_json(made.manifest_path, manifest)
    return target


def forge_emulated(
    source: Path, target: Path, takes: Callable[[str], bool], features: Sequence[str] = ("sme2",)
) -> Path:
    """Write what an emulator would tell of the program that `source` measured: which operators called SME2 kernels.

    `takes` says by its name whether an operator did; `features` are what the emulated CPU has.
    """
    shutil.copytree(source, target)
    made = RunDirectory(target)
    manifest = made.manifest()
    manifest.timing, manifest.platform = "emulated", "emulator"
    seen = Features("aarch64", "forged", list(features), [], [], list(features))
    for name, record in manifest.experiments.items():
        changed = msgspec.structs.replace(record, mode="trace", latency_source="none", features=seen)
        manifest.experiments[name] = changed
        dump = made.experiment(name) / experiment_file(manifest.model.stem, name, record.threads, ".etdump")
        lines, clock = [], 1
        for delegate in _delegates(etdump.read(dump)):
            lines += [f"{INVOKE} 1", f"- {clock}"]
            for operator, ns in delegate.operators:
                lines += ["kai_run_matmul_clamp_f32_f32p2vlx1_f32p2vlx1biasf32_sme2_mopa 1"] if takes(operator) else []
                clock += ns
                lines.append(f"- {clock}")
            clock += 10**9
        trace = dump.with_name(experiment_file(manifest.model.stem, name, record.threads, KERNEL_TRACE))
        trace.write_text("\n".join([*lines, "end"]) + "\n")
    files.write_json(made.manifest_path, manifest)
    return target


def _copied(manifest: Manifest, copies: int) -> dict[str, str]:
    """Add copies of all experiments and pairs, and return which experiment each is a copy of."""
    original, pairs = {}, list(manifest.compare_pairs)
    for name, record in list(manifest.experiments.items()):
        for number in range(2, copies + 1):
            copy = f"{name}_{number}"
            manifest.experiments[copy] = msgspec.structs.replace(record, name=copy)
            original[copy] = name
    for number in range(2, copies + 1):
        manifest.compare_pairs += [(f"{before}_{number}", f"{after}_{number}") for before, after in pairs]
    return original


def _with_threads(manifest: Manifest, threads: Sequence[int]) -> dict[str, str]:
    """Put an experiment for each number of threads in the place of every one, and return which each is made from."""
    if not threads:
        return {}
    records, pairs, original = manifest.experiments, manifest.compare_pairs, {}
    manifest.experiments, manifest.compare_pairs = {}, []
    for name, record in records.items():
        for count in threads:
            copy = threads_name(name, count)
            manifest.experiments[copy] = msgspec.structs.replace(record, name=copy, threads=count)
            original[copy] = name
    for before, after in pairs:
        manifest.compare_pairs += [(threads_name(before, n), threads_name(after, n)) for n in threads]
    return original


def _write(
    made: RunDirectory, manifest: Manifest, record: ExperimentRecord, totals: list[int], launches: int
) -> ExperimentRecord:
    home, written = made.experiment(record.name), {}
    timed = [int(total * 0.99) for total in totals]
    samples = Samples(timed=_turns(timed, launches), traced=_turns(totals, launches))
    for suffix, content in ((".etdump", b""), ("_samples.json", msgspec.json.encode(samples)), (".log", b"forged\n")):
        path = home / experiment_file(manifest.model.stem, record.name, record.threads, suffix)
        if content:
            files.write_bytes(path, content)
        written[path.name] = files.sha256(path)
    return msgspec.structs.replace(record, files=written, outputs=[])


def _turns(ns: list[int], launches: int) -> list[Turn]:
    parts = np.array_split(np.array(ns), min(max(_TURNS, launches), len(ns)))
    return [
        Turn(number, float(number), part.tolist(), launch=number * launches // len(parts))
        for number, part in enumerate(parts)
    ]


def _grown(calls: list[Call], operators: int) -> list[Call]:
    """Repeat the largest delegate's operators, numbered on, until there are so many."""
    largest = max(calls, key=lambda call: len(call.operators))
    rest = sum(len(call.operators) for call in calls) - len(largest.operators)
    repeated = [largest.operators[i % len(largest.operators)] for i in range(operators - rest)]
    counts: dict[str, int] = {}
    numbered = []
    for label, delegated, ns in repeated:
        base = strip_instance(label)
        counts[base] = counts.get(base, 0) + 1
        numbered.append((f"{base} #{counts[base]}", delegated, ns))
    return [Call(c.label, c.instruction, c.own, numbered if c is largest else c.operators) for c in calls]


def _renamed(calls: list[Call], rename: Callable[[str], str]) -> list[Call]:
    return [Call(c.label, c.instruction, c.own, [(rename(n), d, ns) for n, d, ns in c.operators]) for c in calls]
