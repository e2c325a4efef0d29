"""What a 64-bit little-endian ELF file says of itself: its dynamic symbols, and what is loaded with it."""

import struct
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path

import msgspec

from model_profiling.base import files
from model_profiling.base.errors import SetupError
from model_profiling.base.file_memo import FileMemo

# No library that the kit reads is larger.
_LARGEST = 2 << 30
_RELOCATIONS, _DYNAMIC, _DYNSYM, _VERSIONS = 4, 6, 11, 0x6FFFFFFF
# The number of each architecture in a file's header (e_machine).
MACHINES = {"x86_64": 62, "aarch64": 183}
# Relocations of calls through the table of addresses.
_JUMP_SLOTS = {MACHINES["aarch64"]: 1026, MACHINES["x86_64"]: 7}
_NEEDED, _STRINGS, _RPATH, _RUNPATH = 1, 5, 15, 29
_LOAD, _DYNAMIC_SEGMENT = 1, 2
MAGIC = b"\x7fELF\x02\x01"
# Versions 0 and 1 of a symbol say that it has none.
_LAST_UNVERSIONED = 1


class Library(msgspec.Struct, frozen=True):
    """`defined` has the size of each symbol that it defines.

    `taken` are symbols that it does not define, without those that carry the version of the library to give them;
    `bound_late` are symbols that it calls through its table of addresses, where another library may come first.
    """

    machine: int
    defined: Mapping[str, int]
    taken: tuple[str, ...]
    needed: tuple[str, ...]
    bound_late: frozenset[str]


class Linked(msgspec.Struct, frozen=True):
    """What a program or library wants loaded with it, and the folders where that is looked for first.

    `machine` is the processor that it is for; a library for another one is passed over.
    """

    machine: int
    needed: tuple[str, ...] = ()
    rpath: tuple[str, ...] = ()
    runpath: tuple[str, ...] = ()


def _read_library(path: Path) -> Library:
    try:
        return _parse(files.content(path, _LARGEST))
    except (OSError, struct.error, ValueError, IndexError) as error:
        raise SetupError(f"{path} is not a readable shared library: {error}", "Install executorch again.") from None


# What a library defines, takes and needs; each launch asks for the same few.
read_library: Callable[[Path], Library] = FileMemo(_read_library, most=4)


def _headers(data: bytes, place: int, counted: int, form: str) -> tuple[int, list[tuple[int, ...]]]:
    """Return for which processor a file is, and a table of its headers: where that is, and how large and how many they
    are, stands at these places."""
    if data[:6] != MAGIC:
        raise ValueError("not a 64-bit little-endian ELF file")
    (machine,), (table,) = struct.unpack_from("<H", data, 0x12), struct.unpack_from("<Q", data, place)
    size, count = struct.unpack_from("<HH", data, counted)
    return machine, [struct.unpack_from(form, data, table + size * index) for index in range(count)]


def _parse(data: bytes) -> Library:
    machine, sections = _headers(data, 0x28, 0x3A, "<IIQQQQIIQQ")

    def rows(kind: int, form: str) -> Iterator[tuple[int, ...]]:
        """Yield what is in the sections of a kind, each row after the place of its texts."""
        for section in (section for section in sections if section[1] == kind):
            start, end, strings = section[4], section[4] + section[5], sections[section[6]][4]
            if end > len(data):
                raise ValueError("it is cut short")
            yield from ((strings, *row) for row in struct.iter_unpack(form, data[start:end]))

    versions = [version & 0x7FFF for _, version in rows(_VERSIONS, "<H")]
    defined, names, taken = dict[str, int](), list[str](), list[str]()
    for index, (strings, name, _, _, home, _, size) in enumerate(rows(_DYNSYM, "<IBBHQQ")):
        names.append(_text(data, strings + name) if name else "")
        if name and home:
            defined[names[-1]] = size
        elif name and (not versions or versions[index] <= _LAST_UNVERSIONED):
            taken.append(names[-1])
    needed = [_text(data, strings + value) for strings, tag, value in rows(_DYNAMIC, "<QQ") if tag == _NEEDED]
    jump_slot = _JUMP_SLOTS.get(machine)
    late = {names[info >> 32] for _, _, info, _ in rows(_RELOCATIONS, "<QQQ") if info & 0xFFFFFFFF == jump_slot}
    return Library(machine, defined, tuple(taken), tuple(needed), frozenset(late))


def read_linked(data: bytes) -> Linked:
    """Return what the loader reads of an ELF file: its program headers, as sections may be stripped. A ValueError or a
    struct.error if it cannot be read."""
    machine, segments = _headers(data, 0x20, 0x36, "<IIQQQQ")
    dynamic = next((segment for segment in segments if segment[0] == _DYNAMIC_SEGMENT), None)
    if dynamic is None:
        return Linked(machine)  # linked statically
    entries = list(struct.iter_unpack("<QQ", data[dynamic[2] : dynamic[2] + dynamic[5]]))
    address = next((value for tag, value in entries if tag == _STRINGS), 0)
    strings = next((s[2] + address - s[3] for s in segments if s[0] == _LOAD and s[3] <= address < s[3] + s[5]), None)
    if strings is None:
        return Linked(machine)
    texts: dict[int, list[str]] = {_NEEDED: [], _RPATH: [], _RUNPATH: []}
    for tag, value in entries:
        if tag in texts:
            texts[tag].append(_text(data, strings + value))
    folders = {tag: tuple(filter(None, ":".join(texts[tag]).split(":"))) for tag in (_RPATH, _RUNPATH)}
    return Linked(machine, tuple(texts[_NEEDED]), folders[_RPATH], folders[_RUNPATH])


def _text(data: bytes, start: int) -> str:
    return data[start : data.index(b"\0", start)].decode("ascii", "replace")
