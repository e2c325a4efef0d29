"""Files and folders of a directory that change together: whatever kills the writer, all of them are new or none is.

They are staged in a hidden folder. When all are there a note says what goes where, in one step; from then on each step
can be repeated. The next command that writes there carries out what is left, if the note is its own: a directory may
come from anywhere, so a note is proved by a secret of the user that lies elsewhere. Reading never carries out anything.
"""

import contextlib
import errno
import hashlib
import hmac
import os
import shutil
import stat
import weakref
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import msgspec

from model_profiling.base import files
from model_profiling.base.directories import state_directory
from model_profiling.base.errors import KitError, SetupError
from model_profiling.base.file_locks import folder_held, hold_for_life, is_abandoned
from model_profiling.store import artifacts
from model_profiling.store.artifacts import DERIVED, MANIFEST

_FOLDER = ".change-"
_NOTE = "change.json"
# What a reader goes by, and so comes last.
_INDEXES = (DERIVED, MANIFEST)
# What is kept with a run and listed nowhere.
_KEPT = (
    *(artifacts.AUTO_COMPARISON, artifacts.CATEGORIES, artifacts.ROOFS),
    *(artifacts.RUN_NUMERICS, artifacts.RUNTIMES),
)
# What the system says where one may read and not write.
_READ_ONLY = (errno.EACCES, errno.EPERM, errno.EROFS)
_KEY_BYTES = 32
# Where no secret can be kept: then nobody finishes what this process leaves.
_UNKEPT = os.urandom(_KEY_BYTES)


class _Note(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """What is to happen, in this order: files `removed` go, and what lies at each second name of `placed` goes to the
    first. All names are relative to the directory."""

    removed: list[str]
    placed: dict[str, str]
    proof: str = ""


class _Listed(msgspec.Struct):
    """What is read of a manifest and of the record of derived files: the files that they name."""

    experiments: dict[str, dict[str, Any]] = {}
    files: dict[str, Any] = {}


class FileTransaction:
    """A change of files in `root`, by their names there. Nothing happens to them before the end of `committing`."""

    def __init__(self, root: Path) -> None:
        self._root, self._placed, self._removed = root, dict[str, str](), list[str]()
        name = os.urandom(8).hex()
        self.folder = root / f"{_FOLDER}{name}-{_proof(root, name, create=True)[:16]}"
        with folder_held(root):
            self.folder.mkdir()
            # Held as long as we live, which tells the folder from one that is left over.
            handle = hold_for_life(self.folder)
        self._end = weakref.finalize(self, _abandon, self.folder, handle)

    def write(self, name: str, data: bytes) -> None:
        """Have `data` at `name`; the last of several counts."""
        path = files.inside(self._root, self._root / name)
        if path.is_dir():
            raise cannot_write(path, errno.EISDIR)
        if path.parent.exists() and not os.access(path.parent, os.W_OK):
            raise cannot_write(path, errno.EACCES)
        staged = self._placed.setdefault(name, f"{self.folder.name}/{len(self._placed)}")
        # Thousands of files would wait for the disk one after the other; all but a manifest can be made again.
        files.write_bytes(self._root / staged, data, durable=name == MANIFEST)

    def place(self, source: Path, name: str) -> None:
        """Have the folder `source`, which lies in the directory, at `name`."""
        files.inside(self._root, self._root / name)
        self._placed[name] = source.relative_to(self._root).as_posix()

    def remove(self, name: str) -> None:
        self._removed.append(name)

    @contextlib.contextmanager
    def committing(self) -> Iterator[None]:
        """Carry it out at the end of this, in which no other change of the directory happens.

        Killed at any point, `recover` does the rest, or everything is as it was.
        """
        with folder_held(self._root):
            _settle(self._root)
            yield
            # What is placed replaces all that was there; done again, a removal would be of the new.
            removed = [n for n in self._removed if not {n, n.split("/", 1)[0]} & self._placed.keys()]
            note = _Note(removed, dict(sorted(self._placed.items(), key=lambda entry: entry[0] in _INDEXES)))
            note = msgspec.structs.replace(note, proof=_proof_of(self._root, self.folder, note))
            files.write_json(self.folder / _NOTE, note)
            _carry_out(self._root, self.folder, note)
        self._end()


def begin(root: Path) -> FileTransaction | None:
    """Begin a change of files in `root`; None where one may read and not write."""
    try:
        return FileTransaction(root)
    except OSError as error:
        if error.errno in _READ_ONLY:
            return None
        raise cannot_write(root, error.errno or 0) from None


def begin_or_fail(path: Path) -> FileTransaction:
    """Begin a change that has to happen, of `path` and what lies beside it."""
    change = begin(path.parent)
    if change is None:
        raise cannot_write(path, errno.EACCES)
    return change


def cannot_write(path: Path, number: int) -> SetupError:
    return SetupError(
        f"{path} cannot be written: {os.strerror(number)}",
        "Choose another place (--out), or copy the run directory to one.",
    )


def recover(root: Path) -> None:
    """Carry out what a killed writer had decided, and remove what others left; for commands that write there.

    Only what is proved to be of this user and this directory; where one may not write, nothing.
    """
    with contextlib.suppress(OSError):
        if next(root.glob(f"{_FOLDER}*"), None) is not None:
            with folder_held(root):
                _settle(root)


def interrupted(root: Path) -> str:
    """Return what a reader should know of a change that was begun in `root` and not finished; '' if there is none."""
    foreign = ""
    with contextlib.suppress(OSError):
        for folder in sorted(root.glob(f"{_FOLDER}*")):
            if folder.is_symlink() or not files.is_file(folder / _NOTE) or not is_abandoned(folder):
                continue
            with contextlib.suppress(KitError, ValueError):
                if _own_note(root, folder) is not None:
                    return (
                        f"a change of {root} was interrupted, and some of its files may be of an earlier state: "
                        f"the next `sme2-kit run` or `sme2-kit report` there finishes it"
                    )
            foreign = f"{folder} holds a change that this user did not begin here: nobody carries it out; remove it"
    return foreign


def _settle(root: Path) -> None:
    for folder in sorted(root.glob(f"{_FOLDER}*")):
        # A directory may come from anywhere: a link in it is not followed, and what is not ours is left alone.
        with contextlib.suppress(KitError, OSError, ValueError):
            if folder.is_symlink():
                continue
            if files.is_file(folder / _NOTE):
                if (note := _own_note(root, folder)) is not None:
                    _carry_out(root, folder, note)
            elif _is_own(root, folder) and is_abandoned(folder):
                shutil.rmtree(folder, ignore_errors=True)


def _carry_out(root: Path, folder: Path, note: _Note) -> None:
    for name in (*note.removed, *note.placed, *note.placed.values()):
        files.inside(root, root / name)
    listed = _listed(root)
    # All of them go before what lists them does: what is no longer listed is gone.
    for path in (root / name for name in note.removed if name in listed):
        path.unlink(missing_ok=True)
        with contextlib.suppress(OSError):  # not empty: other files lie there
            path.parent.rmdir()
    for name, source in note.placed.items():
        new, home = root / source, root / name
        home.parent.mkdir(parents=True, exist_ok=True)
        if new.is_dir():
            files.replace_directory(new, home)
        elif home.is_dir():  # in its place already; what was there before may not be gone
            shutil.rmtree(home.with_name(f".{home.name}.old"), ignore_errors=True)
        else:
            with contextlib.suppress(FileNotFoundError):  # it is in its place already
                new.replace(home)
    shutil.rmtree(folder, ignore_errors=True)


def _listed(root: Path) -> set[str]:
    found = set(_KEPT)
    for name in _INDEXES:
        with contextlib.suppress(KitError):
            index = files.read_json(root / name, _Listed, "list of files")
            found |= {f"{e}/{file}" for e, record in index.experiments.items() for file in record.get("files") or ()}
            found |= set(index.files)
    return found


def _own_note(root: Path, folder: Path) -> _Note | None:
    """Return the note of a change that this user began in this directory; None if it is of anybody else."""
    note = files.read_json(folder / _NOTE, _Note, "note of a change")
    return note if hmac.compare_digest(note.proof.encode(), _proof_of(root, folder, note).encode()) else None


def _proof_of(root: Path, folder: Path, note: _Note) -> str:
    return _proof(root, folder.name, msgspec.json.encode([note.removed, list(note.placed.items())]).decode())


def _is_own(root: Path, folder: Path) -> bool:
    name, _, proof = folder.name.removeprefix(_FOLDER).partition("-")
    return hmac.compare_digest(proof.encode(), _proof(root, name)[:16].encode())


def _proof(root: Path, *told: str, create: bool = False) -> str:
    """Return what nobody else can say of `told` in this directory."""
    message = "\0".join([str(root.resolve()), *told]).encode(errors="surrogateescape")
    return hmac.new(_key(create), message, hashlib.sha256).hexdigest()


def _key(create: bool) -> bytes:
    """Return the user's secret, made where there is none; one that others could have read or put there is none."""
    with contextlib.suppress(OSError, SetupError):
        path = state_directory() / "key"
        if create and not os.path.lexists(path):
            path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
            made = path.with_name(f".{os.urandom(8).hex()}")
            handle = os.open(made, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600)
            try:
                os.write(handle, os.urandom(_KEY_BYTES))
                os.fsync(handle)
                with contextlib.suppress(FileExistsError):  # another process was faster
                    os.link(made, path)
            finally:
                os.close(handle)
                made.unlink()
        state = path.lstat()
        own = stat.S_ISREG(state.st_mode) and state.st_uid == os.geteuid() and not state.st_mode & 0o077
        if own and len(key := files.content(path, _KEY_BYTES)) == _KEY_BYTES:
            return key
    return _UNKEPT


def _abandon(folder: Path, handle: int) -> None:
    os.close(handle)
    if not files.is_file(folder / _NOTE):  # else it is decided, and interrupted while it was carried out
        shutil.rmtree(folder, ignore_errors=True)
