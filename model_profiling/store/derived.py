"""What derives from a run, and from what: so that a report can be told from a report on an earlier run.

`derived.json` lists every derived file of a run directory with its hash and the fingerprint of its sources. The
fingerprint stands inside the files, too, where their format has room for it, so that a copy elsewhere can be checked.
"""

import errno
import functools
import hashlib
import os
import re
import shlex
import zlib
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Protocol

import msgspec

from model_profiling import __version__
from model_profiling.base import files
from model_profiling.base.errors import KitError, RunError
from model_profiling.store import transaction
from model_profiling.store.artifacts import DERIVED, MANIFEST
from model_profiling.store.run_directory import Manifest, RunDirectory
from model_profiling.store.transaction import FileTransaction


def png_chunk(kind: bytes, body: bytes) -> bytes:
    """Return one part: its length, what it is, what it holds, and a check sum."""
    return len(body).to_bytes(4, "big") + kind + body + zlib.crc32(kind + body).to_bytes(4, "big")


# What a run's numbers and pictures follow from. The rest of a manifest (when and by which command it was written, the
# machine's load) changes with a run that measures nothing.
_SOURCES = ("platform", "timing", "status", "compare_pairs", "experiments", "schedules")
_MODEL = ("stem", "sha256", "dtype", "export")
# How the command begins that makes again what every analysis makes.
_ANALYSIS = "sme2-kit analyze "
# What else makes derived files.
_MAKING, _TOOLS = ("analyze", "report", "graph"), Path(__file__).parents[1] / "tools"
# What the first inputs of every run are called; others are in run_data.py.
TABLE_INPUT, ROOFS_INPUT = "category table", "roofs"
_NOTHING: Mapping[str, str] = {}
_STAMP = re.compile(rb'(?:made from sources |"sources": ?")([0-9a-f]{16})')


class DerivedFile(msgspec.Struct, frozen=True):
    """One derived file. `renew` is the command that makes it again; {dir} in it stands for the run directory."""

    sha256: str
    sources: str
    renew: str
    # Other run directories and files it was made from (relative to this one), with their fingerprints.
    others: dict[str, str] = {}


class DerivedIndex(msgspec.Struct, frozen=True, tag="derived", tag_field="kind"):
    """derived.json. `kit` and `inputs` (hashes of all that is not in the run's manifest, by what it is called) are part
    of every fingerprint. `categories` and `roofs` are two of them, for kits that know no others.

    They are those of the last analysis: a newer kit alone makes nothing stale, but one that analyses makes all else so.
    """

    kit: str
    categories: str
    files: dict[str, DerivedFile]
    roofs: str
    schema: int = 1
    # None if an earlier version of the kit analysed it, which did not look at all of them.
    inputs: dict[str, str] | None = None

    @property
    def used(self) -> dict[str, str]:
        return {TABLE_INPUT: self.categories, ROOFS_INPUT: self.roofs} if self.inputs is None else self.inputs


@dataclass(frozen=True)
class OutdatedFile:
    """A file that shows an earlier state of its run: removed, or left in place because somebody has edited it."""

    path: Path
    renew: str
    removed: bool


def notes(outdated: list[OutdatedFile]) -> list[str]:
    """Return one sentence for all files that one command makes again; without those that are there again already."""
    together: dict[tuple[str, bool], list[str]] = {}
    for entry in outdated:
        if not (entry.removed and entry.path.exists()):
            together.setdefault((entry.renew, entry.removed), []).append(entry.path.name)
    found = []
    for (renew, removed), names in together.items():
        what = ", ".join(names[:3]) + (f" and {len(names) - 3} more" if len(names) > 3 else "")
        state = f"removed {what}" if removed else f"{what} was edited and is kept"
        found.append(f"{state}: made from an earlier state of this run; to make it again: {renew}")
    return found


# What makes the numbers of derived files: folders with all that lies below them, data of the kit, and the table of
# dtypes, which has accuracy limits.
_MAKE_NUMBERS = ("analysis/**/*.py", "formats/**/*.py", "base/dtypes.py", "kernel_tables/*.json", "targets/*.json")


@functools.lru_cache(maxsize=1)
def analysis_version() -> str:
    """Return the kit's version and a hash of the code that computes numbers, which changes between versions, too."""
    return f"{__version__}+{code_hash(Path(__file__).parents[1])}"


def code_hash(package: Path, patterns: Iterable[str] = _MAKE_NUMBERS) -> str:
    """Return a hash of the names and the text of some files in a copy of the package: those that compute numbers."""
    found = hashlib.sha256()
    for path in sorted(path for pattern in patterns for path in package.glob(pattern)):
        found.update(f"{path.relative_to(package).as_posix()}\0".encode() + path.read_bytes())
    return found.hexdigest()[:8]


def current_fingerprint(directory: RunDirectory, index: DerivedIndex | None) -> str:
    """Return the fingerprint that derived files should have: for the kit and the inputs of the last analysis."""
    return fingerprint(directory, index.used, index.kit) if index else fingerprint(directory)


def fingerprint(directory: RunDirectory, inputs: Mapping[str, str] = _NOTHING, kit: str | None = None) -> str:
    """Return 16 digits of what a run's derived files are made from, as it is now; by this kit if none is named."""
    # Not the Manifest type: its fields and defaults change from kit to kit, what was written does not.
    manifest = files.read_json(directory.manifest_path, dict[str, Any], "manifest")
    return _fingerprint(manifest, kit or analysis_version(), inputs)


def _fingerprint(manifest: dict[str, Any], kit: str, inputs: Mapping[str, str]) -> str:
    model = manifest.get("model")
    parts = {key: manifest.get(key) for key in _SOURCES}
    parts["model"] = {key: model.get(key) for key in _MODEL} if isinstance(model, dict) else None
    more = {name: identity for name, identity in inputs.items() if name not in (TABLE_INPUT, ROOFS_INPUT)}
    told = [kit, inputs.get(TABLE_INPUT, ""), inputs.get(ROOFS_INPUT, ""), parts, *([more] if more else [])]
    return hashlib.sha256(msgspec.json.encode(told, order="sorted")).hexdigest()[:16]


def read_index(directory: RunDirectory) -> DerivedIndex | None:
    """Return what is known of a run's derived files; None where it was never analysed."""
    path = directory.path / DERIVED
    return files.read_json(path, DerivedIndex, "record of derived files") if path.is_file() else None


def stamps(path: Path) -> set[str]:
    """Return the fingerprints that a file carries inside."""
    return {found.decode() for found in _STAMP.findall(files.read_bytes(path, "derived file"))}


def embed_stamp(data: bytes, suffix: str, sources: Iterable[str]) -> bytes:
    """Return the file with what it was made from inside, if its format has a place for that; a table has none."""
    words = [f"made from sources {each}" for each in sources]
    if suffix in (".md", ".html", ".svg"):
        return data.rstrip(b"\n") + "".join(f"\n<!-- {each} -->" for each in words).encode() + b"\n"
    if suffix == ".png":
        for each in words:
            # A text that viewers do not draw; it stands before the last part, which is empty.
            data = data[:-12] + png_chunk(b"tEXt", b"Comment\0" + each.encode()) + data[-12:]
    return data


class OpenRun(Protocol):
    """What has to be known of a run (analysis/run/run_view.py) to say of a file that it derives from it."""

    @property
    def path(self) -> Path: ...
    @property
    def sources(self) -> str: ...
    @property
    def inputs(self) -> dict[str, str]: ...
    @property
    def emulated(self) -> "OpenRun | None": ...
    @property
    def target(self) -> str | Path | None: ...


class DerivedWriter:
    """Writes what derives from a run as it was when it was opened. `finish` comes after the last file.

    In the run directory nothing changes before that, and then the files do together with the record of them.
    """

    def __init__(self, run: OpenRun) -> None:
        self._directory = RunDirectory(run.path)
        self._inputs = run.inputs
        self._written: dict[str, DerivedFile] = {}
        self.sources = run.sources
        self._others: dict[str, str] = {}
        if run.emulated is not None:
            self._others[self._from_here(run.emulated.path)] = run.emulated.sources
        if run.target is not None and (seen := files.identity(Path(run.target))):
            self._others[self._from_here(Path(run.target))] = seen

    def _from_here(self, path: Path) -> str:
        return os.path.relpath(path.resolve(), self._directory.path.resolve())

    @functools.cached_property
    def _change(self) -> FileTransaction | None:
        return transaction.begin(self._directory.path)

    def may_keep(self, experiments: Iterable[str]) -> bool:
        """Return whether files may be written beside the run; reading a run does not need that right."""
        homes = [self._directory.experiment(name) for name in experiments]
        return self._change is not None and all(os.access(home, os.W_OK) for home in homes)

    def keep(self, name: str, data: bytes | None) -> None:
        """Keep what the run was analysed with beside it, or with None no longer."""
        if self._change is not None and data is not None:
            self._change.write(name, data)
        elif self._change is not None and (self._directory.path / name).is_file():
            self._change.remove(name)

    def write_bytes(self, path: Path, data: bytes, renew: str) -> None:
        data, home = embed_stamp(data, path.suffix, [self.sources]), self._directory.path
        if path.is_relative_to(home):
            files.inside(home, path)
        if not path.resolve().is_relative_to(home.resolve()):
            files.write_bytes(path, data)
            return
        name = path.resolve().relative_to(home.resolve()).as_posix()
        if self._change is None:
            raise transaction.cannot_write(path, errno.EACCES)
        self._change.write(name, data)
        others = self._others if renew.startswith(("report", "graph")) else {}
        self._written[name] = DerivedFile(hashlib.sha256(data).hexdigest(), self.sources, f"sme2-kit {renew}", others)

    def write_text(self, path: Path, text: str, renew: str) -> None:
        self.write_bytes(path, files.text_bytes(text), renew)

    def write_json(self, path: Path, value: msgspec.Struct, renew: str) -> None:
        """Write JSON, indented, with the fingerprint in the field that every derived type has for it."""
        data = msgspec.structs.replace(value, sources=self.sources)
        self.write_bytes(path, files.json_bytes(data), renew)

    def finish(self) -> list[OutdatedFile]:
        """Put all files in place, remove what this run no longer says, and tell which files are outdated."""
        if self._change is None or not self._written:
            return []
        with self._change.committing():
            if fingerprint(self._directory, self._inputs) != self.sources:
                what = f"the run in {self._directory.path} has changed since it was read: nothing is written"
                raise RunError(what, "Another command measured or published there. Do this again.")
            kept, outdated = self._earlier(self._change)
            listed = dict(sorted({**kept, **self._written}.items()))
            table, roofs = self._inputs.get(TABLE_INPUT, ""), self._inputs.get(ROOFS_INPUT, "")
            index = DerivedIndex(analysis_version(), table, listed, roofs, inputs=self._inputs)
            self._change.write(DERIVED, files.json_bytes(index))
        return outdated

    def _earlier(self, change: FileTransaction) -> tuple[dict[str, DerivedFile], list[OutdatedFile]]:
        """Return what stays of the files that were there, and what is outdated; those nobody edited go."""
        kept: dict[str, DerivedFile] = {}
        outdated: list[OutdatedFile] = []
        index = _readable_index(self._directory)
        for name, entry in index.files.items() if index else ():
            path = inside(self._directory, name)
            if name in self._written or path is None:
                continue
            there, mine = files.is_file(path), entry.sources == self.sources
            edited = there and not mine and not _is_unedited(path, entry)
            # One that is gone went with the state of the run that it was made from; an analysis has just been made.
            if not mine and (there or not entry.renew.startswith(_ANALYSIS)):
                outdated.append(OutdatedFile(path, renew_command(entry.renew, self._directory), removed=not edited))
            if there and (mine or edited):
                kept[name] = entry
            elif there:
                change.remove(name)
        return kept, outdated


def write_listed(path: Path, text: str, again: str) -> None:
    """Write what the command `again` makes; in a run directory that has a record, together with its line there."""
    data, place = files.text_bytes(text), path.resolve()
    home = next((RunDirectory(parent) for parent in place.parents[:2] if (parent / DERIVED).is_file()), None)
    change = transaction.begin(home.path) if home is not None else None
    if home is None or change is None:
        files.write_bytes(path, data)
        return
    name = place.relative_to(home.path).as_posix()
    change.write(name, data)
    with change.committing():
        index = _readable_index(home)
        if index is not None:
            sources = current_fingerprint(home, index)
            index.files[name] = DerivedFile(hashlib.sha256(data).hexdigest(), sources, again)
            change.write(DERIVED, files.json_bytes(index))


def write_manifest(directory: RunDirectory, manifest: Manifest) -> None:
    """Write a run's manifest; what derives from an earlier state of the run goes with that, unless somebody edited it.

    The record still lists what went: whoever analyses the run next says which command makes it again.
    """
    change = transaction.begin_or_fail(directory.manifest_path)
    with change.committing():
        change_manifest(change, directory, manifest)


def change_manifest(change: FileTransaction, directory: RunDirectory, manifest: Manifest) -> None:
    """Do that as part of a change."""
    data, index = files.json_bytes(manifest), _readable_index(directory) or DerivedIndex("", "", {}, "")
    current = _fingerprint(msgspec.json.decode(data), index.kit, index.used)
    for name, entry in index.files.items():
        path = inside(directory, name)
        if entry.sources != current and path is not None and _is_unedited(path, entry):
            change.remove(name)
    change.write(MANIFEST, data)


def renew_command(renew: str, directory: RunDirectory) -> str:
    """Return a command of the index as one would type it; an index may come from anywhere, and what it says that is no
    command of the kit's, analysing stands for."""
    try:
        program, second, *rest = shlex.split(renew)
    except ValueError:
        program, second, rest = "", "", []
    tool = _TOOLS / Path(second).name
    if program == "python" and tool.suffix == ".py" and files.is_file(tool):
        second = str(tool)
    elif program != "sme2-kit" or second not in _MAKING:
        return renew_command(f"{_ANALYSIS}{{dir}}", directory)
    return shlex.join(word.replace("{dir}", str(directory.path)) for word in (program, second, *rest))


def inside(directory: RunDirectory, name: str) -> Path | None:
    """Return the file the index means; None for a name that leads out of the directory, whoever wrote it there."""
    try:
        return files.inside(directory.path, directory.path / name)
    except KitError:
        return None


def _is_unedited(path: Path, entry: DerivedFile) -> bool:
    return files.is_file(path) and files.sha256(path) == entry.sha256


def _readable_index(directory: RunDirectory) -> DerivedIndex | None:
    try:
        return read_index(directory)
    except KitError:
        return None
