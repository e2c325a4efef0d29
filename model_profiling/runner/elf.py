"""What a 64-bit little-endian ELF library defines, takes from others and wants loaded: its dynamic symbols."""

import struct
from dataclasses import dataclass
from pathlib import Path

from model_profiling.base import files
from model_profiling.base.errors import SetupError

# No library that the kit reads is larger.
_LARGEST = 2 << 30
_DYNAMIC, _DYNSYM, _VERSIONS = 6, 11, 0x6FFFFFFF
_NEEDED = 1
# The number of each architecture in a file's header (e_machine).
MACHINES = {"x86_64": 62, "aarch64": 183}
# Versions 0 and 1 of a symbol say that it has none.
_LAST_UNVERSIONED = 1


@dataclass(frozen=True)
class Library:
    """`taken` are symbols that it does not define, without those that carry the version of the library to give them."""

    defined: frozenset[str]
    taken: tuple[str, ...]
    needed: tuple[str, ...]
    machine: int = 0


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
    defined: set[str] = set()
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
            name, _, _, home = struct.unpack_from("<IBBH", data, start + 24 * index)
            if not name:
                continue
            version = struct.unpack_from("<H", data, versions + 2 * index)[0] & 0x7FFF if versions else 0
            if home:
                defined.add(_text(data, strings + name))
            elif version <= _LAST_UNVERSIONED:
                taken.append(_text(data, strings + name))
    return Library(frozenset(defined), tuple(taken), tuple(needed), struct.unpack_from("<H", data, 18)[0])


def _text(data: bytes, start: int) -> str:
    return data[start : data.index(b"\0", start)].decode("ascii", "replace")
