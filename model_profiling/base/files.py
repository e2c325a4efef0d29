"""The one place that opens files. They are written whole or not at all, whatever interrupts us; what is read is a file,
and no more of it than it held when it was opened."""

import atexit
import contextlib
import errno
import fcntl
import os
import stat
import sys
import time
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import Any, BinaryIO, TypeVar, cast, get_origin

import msgspec

from model_profiling import __version__
from model_profiling.base.directories import remedy
from model_profiling.base.errors import FormatError, InputError, KitError, SetupError
from model_profiling.base.file_locks import hold_for_life, is_abandoned, open_lock, try_lock
from model_profiling.base.visible import visible

T = TypeVar("T")
_UPGRADE = "pip install --upgrade executorch-sme2-kit"
# The end of the names of files that are being written.
_TEMPORARY = ".sme2-kit.tmp"
# The end of the names of temporary directories that their makers hold, and a folder in those that a message names.
_SCRATCH, _KEPT = ".held", ".kept"
_held: dict[Path, int] = {}
# Nobody writes one file for so long.
_LEFT_BEHIND_S = 600
# What is read into memory at once, unless a reader knows better.
_MOST_BYTES = 256 << 20
# A larger file of which less than this part is on the disk was made to fill memory, not to be read.
_SPARSE_FROM, _SPARSE_PART = 256 << 20, 64
_KINDS = {
    stat.S_IFDIR: "a directory",
    stat.S_IFIFO: "a FIFO",
    stat.S_IFCHR: "a character device",
    stat.S_IFBLK: "a block device",
    stat.S_IFSOCK: "a socket",
}


def write_bytes(path: Path, data: bytes, durable: bool = True) -> None:
    """Put `data` at `path` in one step: a reader sees the old file or the new one, never a part.

    If it is `durable`, that holds after a loss of power, too, for which the disk is waited for.
    """
    with _in_place_of(path) as file:
        file.write(data)
        if durable:
            file.flush()
            os.fsync(file.fileno())


@contextlib.contextmanager
def _in_place_of(path: Path) -> Iterator[BinaryIO]:
    """Give a new file, which is moved to `path` when it is whole. Its rights are what the umask leaves new files."""
    temporary = _hidden(path.parent)
    try:
        _refuse_device(path)
        path.parent.mkdir(parents=True, exist_ok=True)
        with temporary.open("xb") as file:
            yield file
        temporary.replace(path)
    except BaseException as error:
        with contextlib.suppress(OSError):
            temporary.unlink()
        if isinstance(error, OSError):
            raise _unwritable(path, error) from None
        raise


def _hidden(directory: Path) -> Path:
    """Return a name that no file has there, nor will have."""
    return directory / f".{os.urandom(8).hex()}{_TEMPORARY}"


@contextlib.contextmanager
def scratch_directory(prefix: str = "sme2-kit-", parent: Path | None = None) -> Iterator[Path]:
    """Provide a temporary directory. If the block fails, files that its message names stay, but not in a `parent`."""
    home = make_scratch(prefix, parent)
    failure: BaseException | None = None
    try:
        yield home
    except BaseException as error:
        failure = error
        raise
    finally:
        remove_scratch(home, failure if parent is None else None)


def make_scratch(prefix: str, parent: Path | None = None) -> Path:
    """Return a new temporary directory. What killed processes left of this kind goes; `remove_scratch` ends its use."""
    import tempfile

    where = parent or Path(tempfile.gettempdir())
    remove_abandoned(where, f"{prefix}*{_SCRATCH}")
    while True:
        # The folder in it is free for other locks.
        home = Path(tempfile.mkdtemp(_SCRATCH, prefix, where), "in")
        with contextlib.suppress(FileNotFoundError):  # taken for a left-over one, before it was held
            if handle := hold_for_life(home.parent):
                home.mkdir()
                _held[home] = handle
                return home


def remove_abandoned(directory: Path, pattern: str) -> None:
    """Remove folders whose makers were killed; never one that a living process has, nor what a link leads to."""
    import shutil

    for left in directory.glob(pattern):
        if is_abandoned(left) and not os.path.lexists(left / _KEPT):
            shutil.rmtree(left, ignore_errors=True)


def lasting_scratch(prefix: str) -> Path:
    """Return a new directory, removed when the process that asked for it ends."""
    home, owner = make_scratch(prefix), os.getpid()

    def remove() -> None:
        if os.getpid() == owner:  # a child that was forked ends before us
            # What ended the process, if anything did, may name a log.
            remove_scratch(home, getattr(sys, "last_value", None))

    atexit.register(remove)
    return home


def remove_scratch(home: Path, failure: BaseException | None = None) -> None:
    """Remove a temporary directory but for the files that the message of a failure names."""
    import shutil

    if isinstance(failure, KitError) and failure.names(f"{home}/"):
        for path in sorted(home.rglob("*"), reverse=True):
            with contextlib.suppress(OSError):  # a directory that holds such a file
                if path.is_dir() and not path.is_symlink():
                    path.rmdir()
                elif not failure.names(path):
                    path.unlink()
        with contextlib.suppress(OSError):
            (home.parent / _KEPT).mkdir()
    else:
        shutil.rmtree(home.parent, ignore_errors=True)
    if handle := _held.pop(home, 0):
        os.close(handle)


def inside(root: Path, path: Path) -> Path:
    """Return `path`, which must lie in `root`, in the folder that it names: a run directory may come from anywhere."""
    try:
        home, folder = root.resolve(), path.parent
        leads_out = folder.resolve() != home / folder.relative_to(root) or not path.resolve().is_relative_to(home)
    except (OSError, RuntimeError, ValueError):  # links in a circle, before Python 3.13
        leads_out = True
    if leads_out:
        hint = "A link in it points elsewhere: remove the link, or give that directory."
        raise InputError(f"{path} points outside {path.parent}", hint)
    return path


def refuse_links(root: Path, paths: Iterable[Path]) -> None:
    """Refuse links among `paths` that lead out of `root`: what they lead to would be read as a part of it."""
    for path in paths:
        if path.is_symlink():
            inside(root, path)


def sweep(directory: Path) -> None:
    """Remove what killed writers left in a directory and the ones below it, if it is too old to be at work on."""
    for left in [*directory.glob(f".*{_TEMPORARY}"), *directory.glob(f"*/.*{_TEMPORARY}")]:
        with contextlib.suppress(OSError):
            if time.time() - left.stat().st_mtime > _LEFT_BEHIND_S:
                left.unlink()


def write_text(path: Path, text: str) -> None:
    write_bytes(path, text_bytes(text))


def text_bytes(text: str) -> bytes:
    """Escape text for people: a terminal that shows the file is not at the mercy of what it quotes."""
    return visible(text).encode()


def json_bytes(value: Any, indent: int = 2) -> bytes:
    """Return a struct or plain data as JSON and a newline; what cannot be seen is escaped. 0: on one line."""
    data = msgspec.json.encode(value)
    return text_bytes((msgspec.json.format(data, indent=indent) if indent else data).decode() + "\n")


def write_json(path: Path, value: Any) -> None:
    write_bytes(path, json_bytes(value))


def is_file(path: Path) -> bool:
    """Return whether there is a file; a name that none can have (too long, a zero in it) is of none."""
    return os.path.isfile(path)  # noqa: PTH113 - where Path raises an error, it has none


def open_file(path: Path) -> BinaryIO:
    """Open a file for reading, and nothing but a file: a FIFO would block, a device would never end.

    What it is instead is an OSError that says so, as whatever else keeps a file from being read.
    """
    return _opened(path, os.O_RDONLY | os.O_NOCTTY, "rb")


@contextlib.contextmanager
def opened(path: Path, failure: type[FormatError]) -> Iterator[BinaryIO]:
    """Open a file for the reader of a format; whatever keeps it from being read is a `failure`."""
    try:
        with open_file(path) as file:
            yield file
    except FileNotFoundError:
        raise failure(path, "it does not exist", hint="Check the path.") from None
    except OSError as error:
        raise failure(path, f"it cannot be read, {error.strerror}", hint="Check the path and its rights.") from None


def open_log(path: Path) -> BinaryIO:
    """Open a file to add to it; what is written is there at once. A link is not followed: it may lead to anything."""
    try:
        return _opened(path, os.O_WRONLY | os.O_APPEND | os.O_CREAT | os.O_NOFOLLOW, "ab")
    except OSError as error:
        raise _unwritable(path, error) from None


def refuse_unwritable(path: Path) -> None:
    """Find out before the work whether a file can be put at `path`; nothing is left behind."""
    import tempfile

    try:
        _refuse_device(path)
        if path.is_dir():
            raise IsADirectoryError(errno.EISDIR, os.strerror(errno.EISDIR))
        nearest = next((place for place in path.parents if os.path.lexists(place)), Path())
        with tempfile.TemporaryFile(dir=nearest):
            pass
    except OSError as error:
        raise _unwritable(path, error) from None


def _refuse_device(path: Path) -> None:
    """Refuse what root could put in the place of a device, for all programs."""
    if os.path.realpath(path.parent) == "/dev":
        raise OSError(errno.ENODEV, "that is a place for devices")


def _unwritable(path: Path, error: OSError) -> SetupError:
    # What the system says of a failed write does not name the file.
    return SetupError(f"{path} cannot be written: {error.strerror}", remedy(error, path))


def _opened(path: Path, flags: int, mode: str) -> BinaryIO:
    try:
        handle = os.open(path, flags | os.O_NONBLOCK | os.O_CLOEXEC, 0o666)
    except ValueError:
        raise OSError(errno.EINVAL, "no file can have this name") from None
    try:
        _refuse_others(handle)
        return cast(BinaryIO, os.fdopen(handle, mode, buffering=0 if mode == "ab" else -1))
    except BaseException:
        os.close(handle)
        raise


def _refuse_others(handle: int) -> None:
    status = os.fstat(handle)
    if not stat.S_ISREG(status.st_mode):
        kind = _KINDS.get(stat.S_IFMT(status.st_mode), "something else")
        raise OSError(errno.EINVAL, f"it is {kind}, not a file")
    if status.st_size > _SPARSE_FROM and status.st_blocks * 512 < status.st_size // _SPARSE_PART:
        # Some file systems do not count blocks, but they know no holes either.
        if os.lseek(handle, 0, os.SEEK_HOLE) < status.st_size:
            raise OSError(errno.EFBIG, f"it is a sparse file of {status.st_size} bytes, which are not there")
        os.lseek(handle, 0, os.SEEK_SET)


def size_of(file: BinaryIO) -> int:
    return os.fstat(file.fileno()).st_size


def content(path: Path, limit: int = _MOST_BYTES) -> bytes:
    """Return all that a file holds when it is opened, or an OSError; a file that grows meanwhile is not followed."""
    with open_file(path) as file:
        if (size := size_of(file)) > limit:
            raise OSError(errno.EFBIG, f"it is larger than {limit} bytes")
        return file.read(size)


def tail(path: Path, most: int = 1 << 16, start: int = 0) -> str:
    """Return the last `most` bytes of a log as text, none of them before `start`; '' if there is nothing to read."""
    try:
        with open_file(path) as file:
            file.seek(max(start, size_of(file) - most))
            return file.read(most).decode(errors="replace")
    except OSError:
        return ""


def _chunks(file: BinaryIO) -> Iterator[bytes]:
    left = size_of(file)
    while chunk := file.read(min(left, 1 << 20)):
        left -= len(chunk)
        yield chunk


def read_bytes(path: Path, what: str, limit: int = _MOST_BYTES) -> bytes:
    """Read a file the user pointed at; every way that can fail is an error that names `what` and the path."""
    try:
        return content(path, limit)
    except FileNotFoundError:
        raise InputError(f"{what} {path} does not exist", "Check the path.") from None
    except OSError as error:
        raise InputError(
            f"{what} {path} cannot be read: {error.strerror}", "Check that it is the file you meant."
        ) from None


class _Header(msgspec.Struct):
    """What a file says of its own version, whatever else is in it."""

    schema: Any = None
    kit_version: Any = None


def read_json(path: Path, type_: type[T], what: str) -> T:
    """Read JSON of a known shape; a newer, broken or foreign file is an error that says so and which key is wrong."""
    data = read_bytes(path, what)
    try:
        _refuse_newer(data, type_, f"{what} {path}")
        return msgspec.json.decode(data, type=type_)
    except (msgspec.DecodeError, UnicodeError) as error:
        if "unknown field" in str(error):
            raise InputError(
                f"{what} {path} has a field that this version of the kit ({__version__}) does not know: {error}",
                f"If a newer kit wrote it: {_UPGRADE}. Otherwise make it again, or restore it.",
            ) from None
        hint = "It is damaged, or of another version of the kit: make it again, or restore it."
        raise InputError(f"{what} {path} is not what the kit writes: {error}", hint) from None
    except RecursionError:
        raise InputError(f"{what} {path} is nested too deeply", "Check that it is the file you meant.") from None


def json_schema(type_: type[Any], unknown: Callable[[type[Any]], dict[str, Any]] | None = None) -> dict[str, Any]:
    """Return the JSON Schema of a type, the same from every Python; `unknown` describes what msgspec does not know.

    A description is a docstring, which keeps the indentation of its lines before Python 3.13.
    """
    import inspect

    schema = msgspec.json.schema(type_, schema_hook=unknown)
    for part in schema.get("$defs", {}).values():
        if "description" in part:
            part["description"] = inspect.cleandoc(part["description"])
    return schema


def _refuse_newer(data: bytes, type_: type[Any], what: str) -> None:
    """Look at a file's version before its shape, which a newer version may have changed in any way.

    The default of a type's field `schema` is the newest version that the type reads.
    """
    fields = msgspec.structs.fields(type_) if issubclass(get_origin(type_) or type_, msgspec.Struct) else ()
    reads = next((field.default for field in fields if field.name == "schema"), None)
    if reads is None:
        return
    try:
        header = msgspec.json.decode(data, type=_Header)
    except msgspec.DecodeError:
        return  # the whole is decoded next, which says what is wrong
    if isinstance(header.schema, int) and header.schema > reads:
        by = (
            f"sme2-kit {header.kit_version[:40]}"
            if isinstance(header.kit_version, str)
            else "a newer version of the kit"
        )
        what = f"{what} was written by {by} with schema {header.schema}; sme2-kit {__version__} reads schema {reads}"
        raise InputError(what, f"Install a newer version: {_UPGRADE}.")


def sha256(path: Path) -> str:
    import hashlib

    digest = hashlib.sha256()
    try:
        with open_file(path) as file:
            for chunk in _chunks(file):
                digest.update(chunk)
    except OSError as error:
        raise InputError(f"{path} cannot be read: {error.strerror}", "Check that it is the file you meant.") from None
    return digest.hexdigest()


def identity(path: Path) -> str:
    """Return 16 digits that differ for other content, or 'unreadable'; '' if there is no such file."""
    try:
        return sha256(path)[:16] if is_file(path) else ""
    except InputError:
        return "unreadable"


def folder_sha256(directory: Path, pattern: str, hash_of: Callable[[Path], str] = sha256) -> str:
    """Return a hash of all files of a folder, with their names, that fit a pattern; '' if there are none."""
    import hashlib

    paths = sorted(directory.rglob(pattern)) if directory.is_dir() else []
    digest = hashlib.sha256()
    for path in paths:
        digest.update(f"{path.relative_to(directory).as_posix()} {hash_of(path)}\n".encode())
    return digest.hexdigest() if paths else ""


@contextlib.contextmanager
def locked(directory: Path, who: str) -> Iterator[None]:
    """Hold `directory` for one writer; a second one is told so instead of mixing its files with ours."""
    directory.mkdir(parents=True, exist_ok=True)
    path = directory / ".lock"
    try:
        handle = open_lock(path)
    except OSError as error:
        hint = "Remove it if it is a link." if error.errno in (errno.ELOOP, errno.EINVAL) else remedy(error, path)
        raise SetupError(f"{path} cannot be used as a lock: {error.strerror}", hint) from None
    with os.fdopen(handle, "rb") as file:
        if not try_lock(file.fileno(), fcntl.LOCK_EX | fcntl.LOCK_NB):
            raise SetupError(
                f"another {who} is writing to {directory}", "Wait for it to end, or choose another directory."
            )
        sweep(directory)
        yield


def append_line(path: Path, data: bytes) -> None:
    """Add a line in one write. Whatever kills us later leaves it; a reader has to expect that the last one is torn."""
    try:
        with open_log(path) as file:
            if file.write(data + b"\n") != len(data) + 1:
                raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
    except OSError as error:
        raise _unwritable(path, error) from None


def remove_directory(path: Path) -> None:
    """Remove it in one step for whoever looks at its name; what a kill leaves has a hidden name."""
    import shutil

    gone = path.with_name(f".{path.name}.removed")
    shutil.rmtree(gone, ignore_errors=True)
    path.rename(gone)
    shutil.rmtree(gone)


def replace_directory(new: Path, home: Path) -> None:
    """Move `new` to `home`. What was at `home` is moved away first and removed last."""
    import shutil

    home.parent.mkdir(parents=True, exist_ok=True)
    old = home.with_name(f".{home.name}.old")
    shutil.rmtree(old, ignore_errors=True)
    if os.path.lexists(home):
        home.rename(old)
    new.rename(home)
    shutil.rmtree(old, ignore_errors=True)


def copy_tree(source: Path, target: Path, link: bool = False) -> None:
    """Copy a directory's files, or give them a second name where the file system can; links are left out."""
    target.mkdir(parents=True, exist_ok=True)
    for entry in sorted(source.iterdir()):
        if entry.is_symlink() or entry.name.endswith(_TEMPORARY):
            continue
        if entry.is_dir():
            copy_tree(entry, target / entry.name, link)
        elif entry.is_file():
            copy_file(entry, target / entry.name, link)


def copy_file(source: Path, target: Path, link: bool = False) -> None:
    """Copy a file, or give it a second name, unless others may do more with it than with a new file."""
    try:
        content = open_file(source)
    except OSError as error:
        message = f"{source} cannot be copied to {target}: {error.strerror}"
        raise SetupError(message, remedy(error, source)) from None
    with content, _in_place_of(target) as file:
        state = os.fstat(content.fileno())
        if link and not state.st_mode & ~os.fstat(file.fileno()).st_mode and _linked(source, Path(file.name)):
            return
        for chunk in _chunks(content):
            file.write(chunk)
        file.flush()
        os.utime(file.name, ns=(state.st_atime_ns, state.st_mtime_ns))


def _linked(source: Path, target: Path) -> bool:
    """Put a second name of a file in the place of an empty one; not on another file system, or one without links."""
    with contextlib.suppress(OSError):
        second = _hidden(target.parent)
        os.link(source, second)
        second.replace(target)
        return True
    return False
