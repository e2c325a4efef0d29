"""Which libraries a program loads, found as the system's loader finds them, and what is in each.

Linux: DT_NEEDED of the program and of each library in turn; looked for in DT_RPATH, LD_LIBRARY_PATH, DT_RUNPATH, the
loader's cache and the system's folders (ld.so(8)). macOS: load commands with @rpath, @loader_path, @executable_path
(dyld(1)); the system's own libraries are no files there. What a program opens by itself (dlopen) stands nowhere in it:
the caller has to name it. A script or a program of another format is known by its own bytes alone.
"""

import contextlib
import os
import struct
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from model_profiling.base import elf, files
from model_profiling.base.cache import kept_sha256
from model_profiling.base.elf import Linked
from model_profiling.base.file_memo import FileMemo

_MACHO = b"\xcf\xfa\xed\xfe"
# From <mach-o/loader.h>: LC_LOAD_DYLIB, and the same weak, re-exported and upward; LC_RPATH.
_LOADS = (0xC, 0x80000018, 0x8000001F, 0x80000023)
_SEARCHES = 0x8000001C
_MACHO_HEADER = 32


def _read_macho(data: bytes) -> Linked:
    """Return what a Mach-O file asks for. A ValueError or a struct.error if it cannot be read."""
    if data[:4] != _MACHO:
        raise ValueError("not a 64-bit little-endian Mach-O file")
    machine, _, _, count = struct.unpack_from("<IIII", data, 4)
    needed: list[str] = []
    folders: list[str] = []
    at = _MACHO_HEADER
    for _ in range(count):
        command, size, name = struct.unpack_from("<III", data, at)
        if size < 8:
            raise ValueError("a load command without a size")
        if command in (*_LOADS, _SEARCHES):
            text = data[at + name : at + size].partition(b"\0")[0].decode("utf-8", "replace")
            (folders if command == _SEARCHES else needed).append(text)
        at += size
    return Linked(machine, tuple(needed), tuple(folders))


_LARGEST = 2 << 30
# The folders that glibc's loader knows without being told, on distributions with and without multiarch.
_FOLDERS = (
    *("/lib/x86_64-linux-gnu", "/usr/lib/x86_64-linux-gnu", "/lib/aarch64-linux-gnu", "/usr/lib/aarch64-linux-gnu"),
    *("/lib64", "/usr/lib64", "/lib", "/usr/lib"),
)
_CACHE = Path("/etc/ld.so.cache")
_CACHE_MAGIC = b"glibc-ld.so.cache1.1"
_CACHE_HEADER, _CACHE_ENTRY = 48, 24
# A library may be there once more for newer processors; which one is loaded depends on the processor.
_NEWER = "glibc-hwcaps/*"
_READERS = {elf.MAGIC: elf.read_linked, _MACHO: _read_macho}


@dataclass(frozen=True)
class _Asker:
    """A file that wants others loaded; `rpath` are its folders and those of the files that it was loaded for."""

    path: Path
    linked: Linked
    rpath: tuple[str, ...]


def _read_linked(path: Path) -> Linked | None:
    """Return what a program or library wants loaded; None of anything else, and of what cannot be read."""
    try:
        data = files.content(path, _LARGEST)
        reader = next((read for magic, read in _READERS.items() if data.startswith(magic)), None)
        return reader(data) if reader is not None else None
    except (OSError, ValueError, OverflowError, struct.error):
        return None


_linked = FileMemo(_read_linked, most=200)


def loaded_libraries(program: Path, opened: Sequence[str] = (), sysroot: Path | None = None) -> dict[str, str]:
    """Return the SHA-256 of every library that a program loads, by name; '' of one that is no file.

    `opened` are those that the program opens itself, in order. With a `sysroot`, what is in there counts first, as for
    an emulator.
    """
    main = _linked(program)
    if main is None:
        return {}
    search = _Search(program, sysroot)
    first = _Asker(program, main, main.rpath)
    preloaded = os.environ.get("LD_PRELOAD", "").replace(":", " ").split()
    todo = [(name, first) for name in (*preloaded, *main.needed, *opened)]
    found: dict[str, str] = {}
    for name, asker in todo:  # grows
        known = name.rpartition("/")[2]
        if known in found:
            continue
        paths = search.find(name, asker)
        found[known] = ""
        for place, path in enumerate(paths):
            found[known if place == 0 else str(path)] = kept_sha256(path)
            if (linked := _linked(path)) is not None:
                below = _Asker(path, linked, (*linked.rpath, *asker.rpath))
                todo += [(each, below) for each in linked.needed]
    return dict(sorted(found.items()))


@dataclass(frozen=True)
class _Search:
    """Finds libraries for one program."""

    program: Path
    sysroot: Path | None

    def find(self, name: str, asker: _Asker) -> list[Path]:
        """Return the file, and those that take its place on newer processors; none if there is no such file."""
        origin, program = str(asker.path.parent), str(self.program.parent)
        words = {"$ORIGIN": origin, "${ORIGIN}": origin, "@loader_path": origin, "@executable_path": program}
        for pattern in self._patterns(name, asker):
            folder, _, last = pattern.rpartition("/")
            for word, place in words.items():
                folder = folder.replace(word, place)
            for home in self._homes(Path(folder or "/")):
                paths = (home / last, *sorted(home.glob(f"{_NEWER}/{last}")))
                # The loader passes over libraries for other processors.
                read = [(path, _linked(path)) for path in paths if path.is_file()]
                found = [path for path, linked in read if linked and linked.machine == asker.linked.machine]
                if found:
                    return found
        return []

    def _patterns(self, name: str, asker: _Asker) -> Iterator[str]:
        """Yield where to look, in order."""
        if name.startswith("@rpath/"):
            yield from (f"{folder}/{name.removeprefix('@rpath/')}" for folder in asker.rpath)
        elif "/" in name:
            yield name if name.startswith(("/", "@", "$")) else os.path.abspath(name)  # noqa: PTH100 - not resolved
        else:
            rpath = () if asker.linked.runpath else asker.rpath
            given = os.environ.get("LD_LIBRARY_PATH", "").replace(";", ":").split(":")
            folders = (*rpath, *filter(None, given), *asker.linked.runpath)
            yield from (f"{folder}/{name}" for folder in folders)
            for home in self._homes(_CACHE.parent):
                with contextlib.suppress(OSError):
                    yield from _cache_entries(home / _CACHE.name).get(name, [])
            yield from (f"{folder}/{name}" for folder in _FOLDERS)

    def _homes(self, folder: Path) -> Iterable[Path]:
        if self.sysroot is not None and folder.is_absolute():
            yield self.sysroot / folder.relative_to("/")
        yield folder


def _read_cache(path: Path) -> dict[str, list[str]]:
    """Return all places by name; nothing if it is no cache of glibc."""
    data = files.content(path, _LARGEST)
    start = data.find(_CACHE_MAGIC)
    found: dict[str, list[str]] = {}
    try:
        count = struct.unpack_from("<I", data, start + len(_CACHE_MAGIC))[0] if start >= 0 else 0
        for index in range(count):
            _, key, value = struct.unpack_from("<III", data, start + _CACHE_HEADER + _CACHE_ENTRY * index)
            name, place = (data[start + at : data.index(b"\0", start + at)].decode() for at in (key, value))
            found.setdefault(name, []).append(place)
    except (struct.error, ValueError):
        return {}
    return found


_cache_entries = FileMemo(_read_cache, most=4)
