"""Damaged and hostile dumps: one kind of error, in little time and little memory."""

import random
import struct
from collections.abc import Callable
from pathlib import Path

import pytest

from model_profiling.formats.etdump import parse
from tests.helpers.etdump_forge import Dump
from tests.helpers.etdump_fuzz import DATA, allowed_bytes, peak_bytes, read_hostile, seeds
from tests.helpers.fuzz_mutations import binary


def test_damage_is_mostly_refused_and_never_costs_much_memory() -> None:
    source, dumps = random.Random(20250101), seeds()
    damaged = [binary(source.choice(dumps), dumps, source) for _ in range(300)]
    assert 150 < sum(read_hostile(data) is not None for data in damaged) < 300
    assert all(peak_bytes(data) <= allowed_bytes(data) for data in damaged[:100])


def test_every_truncation_is_refused() -> None:
    data = (DATA / "two_methods.etdump").read_bytes()
    assert all(read_hostile(data[:length]) for length in range(len(data)))
    assert all(read_hostile(data[4 : 4 + length]) for length in range(0, len(data) - 8, 4))


@pytest.mark.wide
def test_every_word_survives_being_overwritten() -> None:
    data = (DATA / "two_methods.etdump").read_bytes()
    for at in range(0, len(data), 4):
        for value in (0, 1, 0x7FFFFFFC, 0xFFFFFFFF):
            read_hostile(data[:at] + struct.pack("<I", value) + data[at + 4 :])


def one_event() -> tuple[Dump, int, int]:
    """Return a sound dump, its vector's element and its profiling event."""
    dump = Dump(runs=1)
    entry = dump.events(dump.run(0), 1)
    profile = dump.event(entry)
    dump.name(profile, dump.string(b"name"))
    return dump, entry, profile


def shared_events(runs: int, events: int) -> bytes:
    """Return a dump of many runs that are one run, with many events that are one event."""
    dump = Dump(runs=runs)
    run = dump.run(0)
    entries = dump.events(run, events)
    dump.name(dump.event(entries), dump.string(b"name"))
    event = entries + struct.unpack_from("<I", dump.data, entries)[0]
    for index in range(runs):
        dump.point(dump.runs + 4 + 4 * index, run)
    for index in range(events):
        dump.point(entries + 4 * index, event)
    return dump.bytes()


def named(string: bytes, length: int) -> bytes:
    """Return a dump whose last bytes are an event's name, of a length that may be a lie."""
    dump, _, profile = one_event()
    dump.name(profile, dump.align())
    dump.data += struct.pack("<I", length) + string
    return dump.bytes()


def claiming(runs: int, events: int) -> bytes:
    """Return a dump that claims more runs or events than it has."""
    dump = Dump(runs=1, length=runs)
    dump.events(dump.run(0), 1, length=events)
    return dump.bytes()


def with_vtable(offset: int | None) -> bytes:
    """Return a dump with an event whose vtable is that far before it, or holds a field outside its table."""
    dump, _, profile = one_event()
    if offset is None:
        offset = profile - dump.vtable(24, [20, 0, 0, 0, 0, 0, 4, 0xFFF8])
    struct.pack_into("<i", dump.data, profile, offset)
    return dump.bytes()


def pointing(past_the_event: int) -> bytes:
    """Return a dump whose vector points that many bytes past its event."""
    dump, entry, _ = one_event()
    (distance,) = struct.unpack_from("<I", dump.data, entry)
    struct.pack_into("<I", dump.data, entry, (distance + past_the_event) & 0xFFFFFFFF)
    return dump.bytes()


def overlapping(count: int, length: int) -> bytes:
    """Return a dump whose strings are made of each other: every word is a length and a piece of those before it."""
    dump = Dump(runs=1)
    entries = dump.events(dump.run(0), count)
    profiles = [dump.event(entries + 4 * index) for index in range(count)]
    first = dump.align()
    dump.data += struct.pack("<I", length) * (count + length // 4 + 2)
    for index, profile in enumerate(profiles):
        dump.name(profile, first + 4 * index)
    return dump.bytes()


HOSTILE = {
    "many runs share many events": (lambda: shared_events(20_000, 20_000), "more events than fit"),
    "one run holds one event too often": (lambda: shared_events(1, 50_000), "more events than fit"),
    "one run many times": (lambda: shared_events(50_000, 1), "more runs than fit"),
    "run count": (lambda: claiming(0x3FFFFFFF, 1), "longer than the file"),
    "event count": (lambda: claiming(1, 0xFFFFFFFF), "longer than the file"),
    "string length": (lambda: named(b"name", 0xFFFFFFFF), "longer than the file"),
    "string without its zero": (lambda: named(b"name", 4), "longer than the file"),
    "strings that overlap": (lambda: overlapping(5_000, 40_000), "overlap"),
    "short strings that overlap": (lambda: overlapping(20_000, 250), "overlap"),
    "vtable before the file": (lambda: with_vtable(2_000_000_000), "outside the file"),
    "vtable after the file": (lambda: with_vtable(-2_000_000_000), "outside the file"),
    "vtable at the least offset": (lambda: with_vtable(-2_147_483_648), "outside the file"),
    "vtable misaligned": (lambda: with_vtable(1), "misaligned"),
    "field outside": (lambda: with_vtable(None), "outside its table"),
    "event misaligned": (lambda: pointing(2), "misaligned"),
    "event outside": (lambda: pointing(0x7FFFFFF0), "past the end"),
}


@pytest.mark.parametrize(("forged", "problem"), HOSTILE.values(), ids=HOSTILE)
def test_a_hostile_file_is_refused_for_what_it_is_and_cheaply(forged: Callable[[], bytes], problem: str) -> None:
    data = forged()
    message = read_hostile(data)
    assert message is not None and problem in message
    assert peak_bytes(data) <= allowed_bytes(data)


def test_an_event_that_holds_itself_ends_the_reading() -> None:
    dump, entry, _ = one_event()
    event = entry + struct.unpack_from("<I", dump.data, entry)[0]
    struct.pack_into("<I", dump.data, event + 4, 0xFFFFFFFC)
    assert read_hostile(dump.bytes())
    struct.pack_into("<I", dump.data, event + 4, 0)
    read_hostile(dump.bytes())


def test_many_events_may_share_one_long_string() -> None:
    dump = Dump(runs=1)
    entries = dump.events(dump.run(0), 5_000)
    profiles = [dump.event(entries + 4 * index) for index in range(5_000)]
    string = dump.string(b"x" * 10_000)
    for profile in profiles:
        dump.name(profile, string)
    data = dump.bytes()
    assert read_hostile(data) is None
    assert peak_bytes(data) <= allowed_bytes(data)


def vtable_for_every_event(count: int) -> bytes:
    dump = Dump(runs=1)
    entries = dump.events(dump.run(0), count)
    for index in range(count):
        dump.profile_vtable = dump.vtable(24, [20, 0, 0, 0, 0, 0, 4, 12][: 8 - index % 3])
        dump.event(entries + 4 * index, start=index, end=index + 1)
        dump.name(len(dump.data) - 24, dump.string(b"%d" % index))
    return dump.bytes()


def test_a_vtable_for_every_event_is_read_like_one_for_all() -> None:
    read = parse(vtable_for_every_event(5_000), Path("vtables.etdump"))
    assert [read.strings[code] for code in read.events.name] == [str(index) for index in range(5_000)]
    assert read.events.start.tolist() == [index if index % 3 < 2 else 0 for index in range(5_000)]
    assert read.events.end.tolist() == [index + 1 if index % 3 == 0 else 0 for index in range(5_000)]


def test_the_smallest_events_a_file_can_hold_cost_little() -> None:
    # Sixteen bytes each, names all different and four bytes long: the most the reader can be made to hold.
    dump = Dump(runs=1)
    entries = dump.events(dump.run(0), 20_000)
    for index in range(20_000):
        dump.name(dump.event(entries + 4 * index), dump.string(b"%04x" % index))
    data = dump.bytes()
    assert read_hostile(data) is None
    assert peak_bytes(data) <= allowed_bytes(data)
