"""What a 64-bit Mach-O file, a program or library of macOS, wants loaded with it."""

import struct

from model_profiling.base.elf import Linked

MAGIC = b"\xcf\xfa\xed\xfe"
# From <mach-o/loader.h>: LC_LOAD_DYLIB, and the same weak, re-exported and upward; LC_RPATH.
_LOAD = (0xC, 0x80000018, 0x8000001F, 0x80000023)
_RPATH = 0x8000001C
_HEADER = 32


def read_linked(data: bytes) -> Linked:
    """Return what a Mach-O file asks for. A ValueError or a struct.error if it cannot be read."""
    if data[:4] != MAGIC:
        raise ValueError("not a 64-bit little-endian Mach-O file")
    machine, _, _, count = struct.unpack_from("<IIII", data, 4)
    needed: list[str] = []
    folders: list[str] = []
    at = _HEADER
    for _ in range(count):
        command, size, name = struct.unpack_from("<III", data, at)
        if size < 8:
            raise ValueError("a load command without a size")
        if command in (*_LOAD, _RPATH):
            text = data[at + name : at + size].partition(b"\0")[0].decode("utf-8", "replace")
            (folders if command == _RPATH else needed).append(text)
        at += size
    return Linked(machine, tuple(needed), tuple(folders))
