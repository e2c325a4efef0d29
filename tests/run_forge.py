"""Makes a run directory out of a real one: more operators, more executions, other names, a failed experiment.

Reports are to be tried on runs that this machine cannot give in a test's time, and on names that no honest model has.
The ETDumps are sound; their operators, in the order of the real dump, are repeated and their times varied a little.
"""

import struct
from collections.abc import Callable
from pathlib import Path

import msgspec
import numpy as np

from model_profiling import etdump, files
from model_profiling.analysis.categories import strip_instance
from model_profiling.run_directory import ExperimentRecord, Manifest, RunDirectory, Samples, Turn, experiment_file
from tests.etdump_forge import Dump

_TURNS = 20


class Call(msgspec.Struct):
    """A delegate or operator call: its label, and the labels and nanoseconds of what it called."""

    label: str
    instruction: int
    own: int
    operators: list[tuple[str, bool, int]]


def forge_run(
    source: Path,
    target: Path,
    operators: int | None = None,
    executions: int | None = None,
    rename: Callable[[str], str] = lambda name: name,
    change: Callable[[Manifest], None] = lambda manifest: None,
) -> Path:
    """Write a run like `source` at `target`; `rename` changes operators' names, `change` the manifest."""
    real, made = RunDirectory(source), RunDirectory(target)
    manifest = real.manifest()
    old_stem = manifest.model.stem
    change(manifest)
    generator = np.random.default_rng(0)
    for name, record in manifest.experiments.items():
        if record.status != "ok":
            continue
        home = real.experiment(name)
        calls = _calls(home / experiment_file(old_stem, name, record.threads, ".etdump"))
        traced = len(real.samples(real.manifest(), name).traced)
        calls = _renamed(_grown(calls, operators) if operators else calls, rename)
        runs = executions or 2 * traced
        dump, totals = _dump(calls, runs, generator)
        manifest.experiments[name] = _write(made, manifest, record, dump, totals)
    files.write_json(made.manifest_path, manifest)
    return target


def _write(
    made: RunDirectory, manifest: Manifest, record: ExperimentRecord, dump: bytes, totals: list[int]
) -> ExperimentRecord:
    home, written = made.experiment(record.name), {}
    timed = [int(total * 0.99) for total in totals]
    samples = Samples(timed=_turns(timed), traced=_turns(totals))
    for suffix, content in ((".etdump", dump), ("_samples.json", msgspec.json.encode(samples)), (".log", b"forged\n")):
        path = home / experiment_file(manifest.model.stem, record.name, record.threads, suffix)
        files.write_bytes(path, content)
        written[path.name] = files.sha256(path)
    return msgspec.structs.replace(record, files=written, outputs=[])


def _turns(ns: list[int]) -> list[Turn]:
    parts = np.array_split(np.array(ns), min(_TURNS, len(ns)))
    return [Turn(number, float(number), part.tolist()) for number, part in enumerate(parts)]


def _calls(path: Path) -> list[Call]:
    """The calls of a dump's first execution."""
    dump = etdump.read(path)
    events, found = dump.events, []
    inside: list[tuple[str, bool, int]] = []
    for index in range(len(events)):
        label, duration = dump.strings[events.label[index]], int(events.duration[index])
        if label == etdump.EXECUTE and not events.delegated[index]:
            break
        if events.chain[index] < 0:
            continue
        if label in etdump.CALLS and not events.delegated[index]:
            own = duration - sum(operator[2] for operator in inside)
            found.append(Call(label, int(events.instruction[index]), own, inside))
            inside = []
        else:
            inside.append((label, bool(events.delegated[index]), duration))
    return found


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


class _Writer(Dump):
    """A dump whose events have all the fields that profiles are made of."""

    def __init__(self, runs: int) -> None:
        super().__init__(runs)
        self.named = self.vtable(32, [20, 24, 28, 0, 0, 0, 4, 12])
        self.delegated = self.vtable(32, [0, 24, 28, 0, 20, 0, 4, 12])
        self.pending: dict[str, list[int]] = {}

    def write(self, entry: int, label: str, delegated: bool, place: tuple[int, int], start: int, end: int) -> None:
        event = self.table(self.event_vtable, bytes(4))
        self.point(entry, event)
        vtable = self.delegated if delegated else self.named
        profile = self.table(vtable, struct.pack("<QQIii", start, end, 0, *place))
        self.point(event + 4, profile)
        self.pending.setdefault(label, []).append(profile + 20)

    def ended(self) -> bytes:
        for label, places in self.pending.items():
            string = self.string(label.encode())
            for place in places:
                self.point(place, string)
        return self.bytes(prefixed=True)


def _dump(calls: list[Call], executions: int, generator: np.random.Generator) -> tuple[bytes, list[int]]:
    """A dump of so many executions, one block each, and how long each of them took."""
    writer, totals, clock = _Writer(executions), [], 1_000_000
    count = sum(len(call.operators) for call in calls) + len(calls) + 1
    for execution in range(executions):
        entry = writer.events(writer.run(execution), count)
        scale, begin = float(generator.normal(1.0, 0.01)), clock
        for call in calls:
            start = clock
            for label, delegated, ns in call.operators:
                # XNNPACK's clock ticks in microseconds.
                took = round(ns * scale * float(generator.normal(1.0, 0.02)) / 1000) * 1000
                writer.write(entry, label, delegated, (0, call.instruction), clock, clock + took)
                clock, entry = clock + took, entry + 4
            clock += abs(call.own)
            writer.write(entry, call.label, False, (0, call.instruction), start, clock)
            entry += 4
        clock += 1000
        writer.write(entry, etdump.EXECUTE, False, (-1, 0), begin, clock)
        totals.append(clock - begin)
        clock += 10_000
    return writer.ended(), totals
