"""What a 64-bit little-endian ELF library defines, takes from others and wants loaded: its dynamic symbols."""

import struct
from collections.abc import Mapping
from pathlib import Path

import msgspec

from model_profiling.base import files
from model_profiling.base.errors import SetupError

# No library that the kit reads is larger.
_LARGEST = 2 << 30
_RELOCATIONS, _DYNAMIC, _DYNSYM, _VERSIONS = 4, 6, 11, 0x6FFFFFFF
# Relocations of calls through the table of addresses, by the ELF machine: aarch64 and x86_64.
_JUMP_SLOTS = {183: 1026, 62: 7}
_NEEDED = 1
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


def read_library(path: Path) -> Library:
    try:
        return _parse(files.content(path, _LARGEST))
    except (OSError, struct.error, ValueError, IndexError) as error:
        raise SetupError(f"{path} is not a readable shared library: {error}", "Install executorch again.") from None


def _parse(data: bytes) -> Library:
    if data[:6] != b"\x7fELF\x02\x01":
        raise ValueError("not a 64-bit little-endian ELF file")
    (section_table,) = struct.unpack_from("<Q", data, 0x28)
    size, count = struct.unpack_from("<HH", data, 0x3A)
    sections = [struct.unpack_from("<IIQQQQIIQQ", data, section_table + size * index) for index in range(count)]
    versions = next((section[4] for section in sections if section[1] == _VERSIONS), None)
    (machine,) = struct.unpack_from("<H", data, 0x12)
    defined: dict[str, int] = {}
    names: list[str] = []
    taken: list[str] = []
    needed: list[str] = []
    for section in sections:
        kind, start, length = section[1], section[4], section[5]
        if kind not in (_DYNSYM, _DYNAMIC):
            continue
        strings = sections[section[6]][4]
        if kind == _DYNAMIC:
            entries = (struct.unpack_from("<QQ", data, at) for at in range(start, start + length, 16))
            needed += [_text(data, strings + value) for tag, value in entries if tag == _NEEDED]
            continue
        for index in range(length // 24):
            name, _, _, home, _, size_of_it = struct.unpack_from("<IBBHQQ", data, start + 24 * index)
            names.append(_text(data, strings + name) if name else "")
            if not name:
                continue
            version = struct.unpack_from("<H", data, versions + 2 * index)[0] & 0x7FFF if versions else 0
            if home:
                defined[names[-1]] = size_of_it
            elif version <= _LAST_UNVERSIONED:
                taken.append(names[-1])
    late = _bound_late(data, sections, names, _JUMP_SLOTS.get(machine))
    return Library(machine, defined, tuple(taken), tuple(needed), late)


def _bound_late(
    data: bytes, sections: list[tuple[int, ...]], names: list[str], jump_slot: int | None
) -> frozenset[str]:
    found = set()
    for section in sections:
        if section[1] != _RELOCATIONS:
            continue
        for at in range(section[4], section[4] + section[5] // 24 * 24, 24):
            (info,) = struct.unpack_from("<Q", data, at + 8)
            if info & 0xFFFFFFFF == jump_slot:
                found.add(names[info >> 32])
    return frozenset(found)


def _text(data: bytes, start: int) -> str:
    return data[start : data.index(b"\0", start)].decode("ascii", "replace")
