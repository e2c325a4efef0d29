"""The cache: what the kit has made and can make again, known by what it was made from and by the hash of every file.

<cache>/<kind>/<key>/…             the files of an entry; the key is a hash of all that they were made from
<cache>/<kind>/<key>/.record.json  what they were made from, and their hashes

An entry is compared with its record before it is used, and made again if a file is not what it was. Another source,
compiler or version has another key, and an entry appears whole: kits and processes may share a cache.
"""

import contextlib
import hashlib
import os
import shutil
import stat
import time
from collections.abc import Callable, Mapping
from pathlib import Path

import msgspec

from model_profiling.base import files
from model_profiling.base.directories import CACHE_VARIABLE, cache_directory
from model_profiling.base.errors import InputError, KitError, SetupError
from model_profiling.base.file_locks import folder_held
from model_profiling.base.file_memo import FileMemo, Key, file_key
from model_profiling.base.on_progress import long_step, say_note

KINDS = ("operators", "pushed", "runner", "sdk", "shim", "tokens")
_RECORD = ".record.json"
# Bump when the record changes: kits that write another one have other keys.
_FORMAT = 1
# No record and no index is larger.
_MOST_BYTES = 1 << 31
_DIGITS = 20
_SEAL = hashlib.sha256().digest_size
_MAKING = ".making-"
# What is done to an entry, and what is done while people wait for it.
_DOING = {"built": "building", "fetched": "fetching", "copied": "copying", "written": "writing"}
# An SDK has more than a hundred files, and one command may ask for it several times.
file_sha256 = FileMemo(files.sha256, most=1000)


class CachedFile(msgspec.Struct, frozen=True):
    sha256: str
    executable: bool


class CacheRecord(msgspec.Struct, frozen=True):
    """What an entry was made from, by name, and the files that came of it."""

    made_from: dict[str, str]
    files: dict[str, CachedFile]


def digest(*parts: str) -> str:
    """Return a short name for what an entry is made from where that is long."""
    return hashlib.sha256("\0".join(parts).encode()).hexdigest()[:_DIGITS]


def home_of(kind: str, made_from: Mapping[str, str]) -> Path:
    """Return where the entry lies that is made from this, if there is one."""
    assert kind in KINDS
    key = digest(str(_FORMAT), *(f"{name}={value}" for name, value in sorted(made_from.items())))
    return cache_directory() / kind / key


def entry(
    kind: str, what: str, made_from: Mapping[str, str], make: Callable[[Path], object], made: str = "built"
) -> Path:
    """Return the folder of an entry, whole. `make` fills it where there is none, or where it is damaged.

    `what` is what users call it, and `made` what is done to it.
    """
    home = home_of(kind, made_from)
    # Remove what killed processes left in the cache; earlier kits hold only the folder that they fill.
    for folder in (cache_directory() / kind for kind in KINDS):
        with contextlib.suppress(OSError):
            if next(folder.glob(f"{_MAKING}*"), None) is not None:
                with folder_held(folder, waits=False) as held:
                    if held:
                        files.remove_abandoned(folder, f"{_MAKING}*")
    if _is_whole(home, made_from):
        return home
    try:
        home.parent.mkdir(parents=True, exist_ok=True)
        # Where there are no locks, several processes may make the same entry, each a whole one.
        with folder_held(home.parent, f"waiting for another process that makes what is in {home.parent}"):
            if not _is_whole(home, made_from):  # another process may have made it meanwhile
                damaged = os.path.lexists(home)
                with long_step(f"{_DOING[made]} the {what}"):
                    _put(home, made_from, make)
                if damaged:
                    say_note(f"the cached {what} was damaged: {made} again")
    except OSError as error:
        if not _is_whole(home, made_from):
            hint = f"Check free space and permissions there, or set {CACHE_VARIABLE} to another folder."
            raise SetupError(f"the {what} cannot be kept in {home.parent}: {error.strerror or error}", hint) from None
    return home


def damaged_entries() -> list[Path]:
    """Return the entries of this cache that are not what they were made as, whoever made them."""
    homes = [home for kind in KINDS for home in sorted((cache_directory() / kind).glob("[0-9a-f]" * _DIGITS))]
    return [home for home in homes if not _keeps_its_record(home)]


def write_sealed(path: Path, data: bytes) -> None:
    """Write a file that changes as it is used: it begins with the hash of the rest."""
    make_way(path)
    files.write_bytes(path, hashlib.sha256(data).digest() + data)


def make_way(path: Path) -> None:
    """Remove a folder that has taken the place of a file: no file replaces it."""
    if os.path.isdir(path) and not os.path.islink(path):  # noqa: PTH112, PTH114 - in a closed folder there is none
        shutil.rmtree(path, ignore_errors=True)


def read_sealed(path: Path) -> bytes | None:
    """Return what was written; None if it is damaged, or not there."""
    try:
        whole = _read_regular(path)
    except OSError:
        return None
    data = whole[_SEAL:]
    return data if hashlib.sha256(data).digest() == whole[:_SEAL] else None


def _keeps_its_record(home: Path) -> bool:
    try:
        made_from = msgspec.json.decode(_read_regular(home / _RECORD), type=CacheRecord).made_from
    except (OSError, msgspec.DecodeError, UnicodeError):
        return False
    return home == home_of(home.parent.name, made_from) and _is_whole(home, made_from)


def _is_whole(home: Path, made_from: Mapping[str, str]) -> bool:
    try:
        return not home.is_symlink() and _read_regular(home / _RECORD) == _record(home, made_from)
    except (OSError, InputError):
        return False


def _read_regular(path: Path) -> bytes:
    """Read a file, and not where a link leads, out of the cache."""
    if path.is_symlink():
        raise OSError(f"{path} is not a file of the cache")
    return files.content(path, _MOST_BYTES)


def _record(home: Path, made_from: Mapping[str, str]) -> bytes:
    """Return the record of a folder as it is now: always the same bytes for the same files."""
    found = {}
    for folder, below, names in os.walk(home, onerror=_fail):
        for path in (Path(folder, name) for name in (*names, *below)):
            if path == home / _RECORD or (path.is_dir() and not path.is_symlink()):
                continue
            if not stat.S_ISREG(path.lstat().st_mode):
                raise OSError(f"{path} is not a file")
            found[path.relative_to(home).as_posix()] = CachedFile(file_sha256(path), os.access(path, os.X_OK))
    whole = CacheRecord(dict(sorted(made_from.items())), dict(sorted(found.items())))
    return msgspec.json.format(msgspec.json.encode(whole), indent=2) + b"\n"


def _fail(error: OSError) -> None:
    raise error


def _put(home: Path, made_from: Mapping[str, str], make: Callable[[Path], object]) -> None:
    """Make an entry beside its place and move it there; what was there goes."""
    with files.scratch_directory(_MAKING, home.parent) as scratch:
        new = scratch / "new"
        new.mkdir()
        make(new)
        (new / _RECORD).write_bytes(_record(new, made_from))
        if os.path.lexists(home):
            home.rename(scratch / "old")
        new.rename(home)


# Hashes of files that hardly ever change, such as installed libraries, are kept from one command to the next. A file
# counts as unchanged while its path, device, inode, size, mtime and ctime are what they were. A program can set back
# all of these but ctime: to go unnoticed, a replacement needs the system's clock turned back, or a disk that changes
# bytes by itself. A file that changed within the last seconds is not kept, as some file systems count in whole seconds.
_NAME = "hashes"
_MOST = 400
_YOUNG_NS = 5_000_000_000


def _sha256(path: Path) -> str:
    try:
        before, place, now = file_key(path), cache_directory() / _NAME, time.time_ns()
    except (OSError, ValueError, KitError):
        return files.sha256(path)  # which says what is wrong with it
    if (known := _read(place).get(_text(before))) is not None:
        return known
    found = files.sha256(path)
    if max(before[-2:]) < now - _YOUNG_NS and file_key(path) == before:
        # What another process adds meanwhile may go: it is then computed again.
        kept = dict([*list(_read(place).items())[1 - _MOST :], (_text(before), found)])
        with contextlib.suppress(OSError, KitError):
            place.parent.mkdir(parents=True, exist_ok=True)
            write_sealed(place, msgspec.msgpack.encode(kept))
    return found


def _text(key: Key) -> str:
    """Return a file in one state, wherever it was named from."""
    return "\0".join(map(str, key[1:]))


def _read(place: Path) -> dict[str, str]:
    data = read_sealed(place)
    if data is not None:
        with contextlib.suppress(msgspec.DecodeError, UnicodeError):
            return msgspec.msgpack.decode(data, type=dict[str, str])
    return {}


kept_sha256 = FileMemo(_sha256, most=_MOST)
