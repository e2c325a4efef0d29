"""Reads ETDumps that may be damaged: whatever the bytes, the reader answers or raises EtdumpError, in little memory."""

import tracemalloc
from pathlib import Path

import msgspec
import numpy as np

from model_profiling.formats.etdump import EtdumpError, nest, parse

DATA = Path(__file__).parents[1] / "data" / "etdump"
# Python objects of the strings weigh most; the constant is what an empty reading costs.
BYTES_PER_INPUT_BYTE = 40
BYTES_AT_LEAST = 2 << 20


def seeds() -> list[bytes]:
    """Return the real dumps, each as written and without its size prefix."""
    dumps = [path.read_bytes() for path in sorted(DATA.glob("*.etdump"))]
    return dumps + [dump[4:] for dump in dumps]


def read_hostile(data: bytes) -> str | None:
    """Read everything a dump offers and return the error's message, or None if it was sound after all."""
    try:
        dump = parse(data, Path("hostile.etdump"))
        nesting = nest(dump)
    except EtdumpError as error:
        return error.message
    events = dump.events
    for codes in (events.label, events.name):
        assert codes.size == 0 or (codes.min() >= 0 and codes.max() < len(dump.strings))
    assert nesting.call.size == 0 or int(nesting.call.max()) < len(events)
    assert np.all(nesting.execution < max(len(nesting), 1))
    assert len({len(column) for column in msgspec.structs.asdict(events).values()}) == 1
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
