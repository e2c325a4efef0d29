"""Damages real ETDumps and reads them: whatever the bytes, the reader answers or raises EtdumpError, soon and small.

As a script it runs for as long as asked: `python tests/etdump_fuzz.py --iterations 1000000`.
"""

import argparse
import random
import signal
import struct
import sys
import time
import tracemalloc
from collections.abc import Iterator
from pathlib import Path
from types import FrameType

import numpy as np

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from model_profiling.etdump import EtdumpError, nest, parse

DATA = Path(__file__).parent / "data" / "etdump"
SECONDS_PER_INPUT = 5
# Python objects of the strings weigh most; the constant is what an empty reading costs.
BYTES_PER_INPUT_BYTE = 40
BYTES_AT_LEAST = 2 << 20
INTERESTING = (0, 1, 3, 4, 5, 7, 8, 0x7F, 0xFF, 0x7FFF, 0xFFFF, 0x7FFFFFFF, 0x80000000, 0xFFFFFFFC, 0xFFFFFFFF)


class TooSlow(BaseException):
    """One input took longer than it may."""


def seeds() -> list[bytes]:
    """Return the real dumps, each as written and without its size prefix."""
    dumps = [path.read_bytes() for path in sorted(DATA.glob("*.etdump"))]
    return dumps + [dump[4:] for dump in dumps]


def mutations(dumps: list[bytes], seed: int) -> Iterator[bytes]:
    """Yield damaged dumps for ever, the same ones for the same seed."""
    source = random.Random(seed)
    while True:
        data = bytearray(source.choice(dumps))
        for _ in range(source.choice((1, 1, 1, 2, 4, 16))):
            _damage(data, source, dumps)
        yield bytes(data)


def _damage(data: bytearray, source: random.Random, dumps: list[bytes]) -> None:
    """Change `data` in one of the ways files get damaged, or an attacker would choose."""
    if len(data) < 16:
        return
    at = source.randrange(len(data))
    word = at & ~3
    kind = source.randrange(8)
    if kind == 0:
        data[at] ^= 1 << source.randrange(8)
    elif kind == 1:
        del data[at:]
    elif kind == 2:
        other = source.choice(dumps)
        start = source.randrange(len(other)) & ~3
        data[word : word + 64] = other[start : start + source.randrange(4, 64)]
    elif kind == 3 and word + 4 <= len(data):
        struct.pack_into("<I", data, word, source.choice(INTERESTING))
    elif kind == 4 and word + 4 <= len(data):
        struct.pack_into("<I", data, word, source.randrange(len(data) + 8))
    elif kind == 5 and word + 4 <= len(data):
        # A little more or less than it was: the neighbouring field, one element too many.
        (value,) = struct.unpack_from("<I", data, word)
        struct.pack_into("<I", data, word, (value + source.choice((-8, -4, -1, 1, 4, 8))) & 0xFFFFFFFF)
    elif kind == 6:
        data[at : at + 2] = struct.pack("<H", source.choice((0, 2, 4, 6, 0xFFFE, 0xFFFF, source.randrange(64))))
    else:
        del data[word : word + source.randrange(1, 64)]


def read_hostile(data: bytes) -> str | None:
    """Read everything a dump offers and return the error's message, or None if it was sound after all."""
    try:
        dump = parse(data, Path("hostile.etdump"))
        nesting = nest(dump)
        for event in range(len(dump.events)):
            dump.metadata(event)
    except EtdumpError as error:
        return error.message
    events = dump.events
    for codes in (events.label, events.name, dump.debug_events.name, dump.allocations.allocator, dump.blocks.name):
        assert codes.size == 0 or (codes.min() >= 0 and codes.max() < len(dump.strings))
    assert nesting.call.size == 0 or int(nesting.call.max()) < len(events)
    assert np.all(nesting.execution < max(len(nesting), 1))
    assert len({len(column) for column in vars(events).values()}) == 1
    return None


def peak_bytes(data: bytes) -> int:
    """Return the most memory that reading took."""
    tracemalloc.start()
    try:
        read_hostile(data)
        return tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()


def allowed_bytes(data: bytes) -> int:
    return BYTES_AT_LEAST + BYTES_PER_INPUT_BYTE * len(data)


def _too_slow(_signal: int, _frame: FrameType | None) -> None:
    raise TooSlow(f"one input took more than {SECONDS_PER_INPUT} s")


def fuzz(iterations: int, seed: int, measure_every: int = 20) -> tuple[int, int]:
    """Read that many damaged dumps and return how many were refused and the most memory one took, in bytes."""
    refused, peak = 0, 0
    source = mutations(seeds(), seed)
    before = signal.signal(signal.SIGALRM, _too_slow)
    try:
        for iteration in range(iterations):
            data = next(source)
            signal.alarm(SECONDS_PER_INPUT)
            try:
                if iteration % measure_every == 0:
                    used = peak_bytes(data)
                    peak = max(peak, used)
                    assert used <= allowed_bytes(data), f"{used} bytes for a file of {len(data)}"
                refused += read_hostile(data) is not None
            except BaseException:
                kept = Path(f"fuzz-{seed}-{iteration}.etdump")
                kept.write_bytes(data)
                sys.stderr.write(f"the input that did it is {kept}\n")
                raise
            finally:
                signal.alarm(0)
    finally:
        signal.signal(signal.SIGALRM, before)
    return refused, peak


def main() -> None:
    parser = argparse.ArgumentParser(description="Read damaged ETDumps.")
    parser.add_argument("--iterations", type=int, default=1_000_000)
    parser.add_argument("--seed", type=int, default=int(time.time()))
    arguments = parser.parse_args()
    started = time.monotonic()
    refused, peak = fuzz(arguments.iterations, arguments.seed)
    sys.stdout.write(
        f"seed {arguments.seed}: {arguments.iterations} damaged dumps in {time.monotonic() - started:.0f} s, "
        f"{refused} refused, the others read, at most {peak / 1e6:.1f} MB\n"
    )


if __name__ == "__main__":
    main()
