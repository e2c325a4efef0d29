"""Writes sound ETDumps of millions of events in a moment: one execution is laid out, the others are copies of it.

Each copy has its own tables and strings, as those of a tracer have; only times, and distances to the few vtables at the
front of the file, differ from copy to copy.
"""

import struct
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path

import msgspec
import numpy as np
import numpy.typing as npt

from model_profiling.analysis.timing.categories import strip_instance
from model_profiling.formats import etdump

Words = npt.NDArray[np.uint32]
# Vtables by what they describe, in order: the root, a block, an event, a named one, a delegated one.
_VTABLES = ([0, 4], [0, 0, 0, 4], [4], [20, 24, 28, 0, 0, 0, 4, 12], [0, 24, 28, 0, 20, 0, 4, 12])
_SIZES = (8, 8, 8, 32, 32)
_ROOT, _BLOCK, _EVENT, _NAMED, _DELEGATED = range(5)
_PROFILE_WORDS = 8
_WORDS_AT_ONCE = 1 << 24
_BETWEEN_NS = 10_000
_METHOD_OWN_NS = 1000


class Call(msgspec.Struct):
    """A delegate or operator call: its label, and the labels and nanoseconds of what it called."""

    label: str
    instruction: int
    own: int
    operators: list[tuple[str, bool, int]]

    def restated(self, times: Callable[[str, int], float]) -> "Call":
        """Return it with other nanoseconds: of each operator by its name, and of the call itself as ''."""
        inside = [(name, delegated, round(times(strip_instance(name), ns))) for name, delegated, ns in self.operators]
        return Call(self.label, self.instruction, round(times("", self.own)), inside)


def delegate(operators: int, instruction: int = 0, kinds: int = 20) -> Call:
    """A delegate call of so many operators, of so many kinds, numbered as XNNPACK numbers them."""
    rows = [(f"Convolution (NHWC, F{i % kinds}) IGEMM #{i // kinds + 1}", True, 2000 + i % 7) for i in range(operators)]
    return Call("DELEGATE_CALL", instruction, 500, rows)


def write_dump(path: Path, methods: Sequence[Sequence[Call]], executions: int, seed: int = 0) -> npt.NDArray[np.int64]:
    """Write a dump whose executions take turns among methods, and return how long each took in nanoseconds."""
    rounds = -(-executions // len(methods))
    layout = _Layout(methods)
    generator = np.random.default_rng(seed)
    path.parent.mkdir(parents=True, exist_ok=True)
    totals = []
    with path.open("wb") as file:
        file.write(layout.head(executions, rounds))
        for words, took in layout.copies(rounds, generator):
            file.write(words.tobytes())
            totals.append(took)
    return np.concatenate(totals)[:executions]


def first_execution(path: Path) -> list[Call]:
    """Return the calls of a dump's first execution."""
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


class _Layout:
    """One round: an execution of every method, each a block with its events, its tables and its strings."""

    def __init__(self, methods: Sequence[Sequence[Call]]) -> None:
        self.words: list[int] = []
        # Where this round's blocks, its distances to vtables (and which) and its times are, in words.
        self.blocks: list[int] = []
        self.distances: list[tuple[int, int]] = []
        self.times: list[int] = []
        # Per event: its nanoseconds beside what its children take, and the first event that is inside it.
        self.own: list[float] = []
        self.first: list[int] = []
        self.scaled: list[bool] = []
        self.last: list[int] = []
        for calls in methods:
            self._method(calls)

    def _table(self, vtable: int, *body: int) -> int:
        at = len(self.words)
        self.distances.append((at, vtable))
        self.words += [0, *body]
        return at

    def _method(self, calls: Sequence[Call]) -> None:
        begin = len(self.own)
        events: list[tuple[str, bool, int, int]] = []
        for call in calls:
            inside = len(self.own)
            for label, delegated, ns in call.operators:
                events.append((label, delegated, 0, call.instruction))
                self._span(ns, len(self.own), scaled=True)
            events.append((call.label, False, 0, call.instruction))
            self._span(abs(call.own), inside)
        events.append((etdump.EXECUTE, False, -1, 0))
        self._span(_METHOD_OWN_NS, begin)
        self.last.append(len(self.own) - 1)
        self.blocks.append(self._table(_BLOCK, 4))
        vector = len(self.words)
        self.words += [len(events), *[0] * len(events)]
        for number, (label, delegated, chain, instruction) in enumerate(events, 1):
            entry = vector + number
            event = self._table(_EVENT, 4)
            self.words[entry] = 4 * (event - entry)
            self.times.append(len(self.words) + 1)
            profile = self._table(_DELEGATED if delegated else _NAMED, 0, 0, 0, 0, 0, chain & 0xFFFFFFFF, instruction)
            self.words[profile + 5] = 4 * (profile + _PROFILE_WORDS - profile - 5)
            text = label.encode()
            text += bytes(4 - len(text) % 4)
            self.words += [len(label.encode()), *struct.unpack(f"<{len(text) // 4}I", text)]

    def _span(self, own: float, first: int, scaled: bool = False) -> None:
        self.own.append(own)
        self.first.append(first)
        self.scaled.append(scaled)

    def head(self, executions: int, rounds: int) -> bytes:
        """What stands before the copies: the vtables, the root and the vector of blocks."""
        data = bytearray(struct.pack("<I4s", 0, b"ED00"))
        self.vtables = []
        for fields, size in zip(_VTABLES, _SIZES, strict=True):
            self.vtables.append(len(data) // 4)
            data += struct.pack(f"<{2 + len(fields)}H", 4 + 2 * len(fields), size, *fields)
            data += bytes(-len(data) % 4)
        root = len(data)
        struct.pack_into("<I", data, 0, root)
        data += struct.pack("<iII", root - 4 * self.vtables[_ROOT], 4, executions)
        vector = len(data) // 4
        self.start = vector + executions + executions % 2
        blocks = self.start + np.add.outer(np.arange(rounds) * len(self.words), np.array(self.blocks)).reshape(-1)
        entries = 4 * (blocks[:executions] - (vector + np.arange(executions)))
        return (bytes(data) + bytes(entries.astype("<u4").tobytes())).ljust(4 * self.start, b"\0")

    def copies(self, rounds: int, generator: np.random.Generator) -> Iterator[tuple[Words, npt.NDArray[np.int64]]]:
        """The rounds, some at a time, with how long each execution took."""
        template = np.array(self.words, np.uint32)
        at, vtable = (np.array(column) for column in zip(*self.distances, strict=True))
        distance = 4 * (self.start + at - np.array(self.vtables)[vtable])
        times, own, first, last = np.array(self.times), np.array(self.own), np.array(self.first), np.array(self.last)
        scaled, clock = np.array(self.scaled), 1_000_000
        step = max(1, _WORDS_AT_ONCE // len(template))
        for low in range(0, rounds, step):
            number = np.arange(low, min(low + step, rounds))
            words = np.tile(template, (len(number), 1))
            words[:, at] = distance + 4 * len(template) * number[:, None]
            # XNNPACK's clock ticks in microseconds.
            noise = generator.normal(1.0, 0.02, (len(number), len(own)))
            taken = np.where(scaled, np.round(own * noise / 1000) * 1000, own).astype(np.int64)
            taken[:, last] += _BETWEEN_NS
            end = clock + np.cumsum(taken).reshape(taken.shape)
            clock = int(end[-1, -1])
            begin = (end - taken)[:, first]
            end[:, last] -= _BETWEEN_NS
            for place, values in ((times, begin), (times + 2, end)):
                words[:, place] = values & 0xFFFFFFFF
                words[:, place + 1] = values >> 32
            yield words, (end - begin)[:, last].reshape(-1)
