"""Folders on their way between machines of a cluster: packed into bytes, and unpacked only where they belong.

A parcel lists files by name, size and compressed content. It has no words for links, devices, owners or permissions,
and what it says of itself is checked before anything is written.
"""

import shutil
import zlib
from collections.abc import Sequence
from pathlib import Path
from typing import Annotated

import msgspec

from model_profiling.base import files
from model_profiling.base.errors import RunError

# Of one parcel: what msgpack can carry as one value; unpacked, how large one file and all together may be, how many
# there may be, and how deep a folder.
LARGEST = (4 << 30) - 1
_MOST_EACH, _MOST_TOGETHER, _MOST_FILES, _DEEPEST = 8 << 30, 16 << 30, 20_000, 16
# No more than this is unpacked at once; deflate makes at most about a thousand bytes of one.
_PIECE = 1 << 16


class PackedFile(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """One file; `size` is that of its content, which zlib has compressed to `data`."""

    name: Annotated[str, msgspec.Meta(max_length=1000)]
    size: Annotated[int, msgspec.Meta(ge=0, le=_MOST_EACH)]
    data: memoryview


_Files = Annotated[list[PackedFile], msgspec.Meta(max_length=_MOST_FILES)]


def pack(home: Path, names: Sequence[str] | None = None) -> bytes:
    """Return the files below a folder, or those of it that are named; links and hidden folders are left out."""
    found = [home / name for name in names] if names is not None else sorted(home.iterdir())
    entries = []
    for entry in found:
        for path in [entry, *sorted(entry.rglob("*"))] if entry.is_dir() else [entry]:
            inside = path.relative_to(home)
            if path.is_file() and not path.is_symlink() and not any(p.startswith(".") for p in inside.parts[:-1]):
                content = files.content(path, _MOST_EACH)
                entries.append(PackedFile(inside.as_posix(), len(content), memoryview(zlib.compress(content, 1))))
    _refuse_impossible(entries)
    if sum(len(file.data) + 4 * len(file.name) + 100 for file in entries) > LARGEST:
        raise RunError(
            f"{home.name} has more than {LARGEST >> 20} MiB, which a cluster does not carry",
            "Sweep over it without --ray.",
        )
    return msgspec.msgpack.encode(entries)


def unpack(data: bytes | memoryview, home: Path) -> None:
    """Unpack into a new folder; of a parcel that is refused nothing is left."""
    try:
        entries = msgspec.msgpack.decode(data, type=_Files)
    except (msgspec.DecodeError, UnicodeError) as error:
        raise _refused(str(error)) from None
    _refuse_impossible(entries)
    try:
        home.mkdir(parents=True, exist_ok=True)
        for file in entries:
            _write(file, home / file.name)
    except (OSError, zlib.error) as error:
        shutil.rmtree(home, ignore_errors=True)
        raise _refused(getattr(error, "strerror", None) or str(error)) from None
    except RunError:
        shutil.rmtree(home, ignore_errors=True)
        raise


def _refuse_impossible(entries: list[PackedFile]) -> None:
    """Refuse names that lead elsewhere, and more than a result can have."""
    for file in entries:
        if not _is_inside(file.name):
            raise _refused(f"it has a file {file.name[:80]!r}")
    if sum(file.size for file in entries) > _MOST_TOGETHER:
        raise _refused(f"its files have more than {_MOST_TOGETHER >> 30} GiB")


def _is_inside(name: str) -> bool:
    """Return whether a name leads to a place below a folder, and means the same on every file system."""
    parts = name.split("/")
    return name.isprintable() and "\\" not in name and len(parts) <= _DEEPEST and not {"", ".", ".."} & {*parts}


def _write(file: PackedFile, place: Path) -> None:
    place.parent.mkdir(parents=True, exist_ok=True)
    reader, size = zlib.decompressobj(), 0
    # Never over a file that is there: two names may be one on this file system.
    with place.open("xb") as target:
        for start in range(0, len(file.data), _PIECE):
            content = reader.decompress(file.data[start : start + _PIECE], file.size - size + 1)
            size += len(content)
            if size > file.size:
                break
            target.write(content)
    if size != file.size or not reader.eof or reader.unused_data:
        raise _refused(f"{file.name[:80]!r} is not what it says")


def _refused(why: str) -> RunError:
    return RunError(
        f"files on their way through the cluster are refused: {why[:300]}",
        "Check which machines are in the cluster, and that all have the same kit.",
    )
