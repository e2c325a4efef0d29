"""What derives from a run, and from what: so that a report can be told from a report on an earlier run.

`derived.json` lists every derived file of a run directory with its hash and the fingerprint of its sources. The
fingerprint stands inside the files, too, where their format has room for it, so that a copy elsewhere can be checked.
"""

import contextlib
import functools
import hashlib
import os
import re
import shlex
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Protocol

import msgspec

from model_profiling import __version__, files
from model_profiling.artifacts import DERIVED
from model_profiling.errors import KitError
from model_profiling.png import with_comment
from model_profiling.run_directory import RunDirectory

# What a run's numbers and pictures follow from. The rest of a manifest (when and by which command it was written, the
# machine's load) changes with a run that measures nothing.
_SOURCES = ("platform", "timing", "status", "compare_pairs", "experiments", "schedules")
_MODEL = ("stem", "sha256", "dtype", "export")
_STAMP = re.compile(rb'(?:made from sources |"sources": ?")([0-9a-f]{16})')


class DerivedFile(msgspec.Struct, frozen=True):
    """One derived file. `renew` is the command that makes it again; {dir} in it stands for the run directory."""

    sha256: str
    sources: str
    renew: str
    # Other run directories it was made from (relative to this one), with their fingerprints.
    others: dict[str, str] = {}


class DerivedIndex(msgspec.Struct, frozen=True, tag="derived", tag_field="kind"):
    """derived.json. `kit`, `categories` (a hash of the user's table, if any) and `roofs` (one of those that the run was
    held against, if any) are part of every fingerprint.

    They are those of the last analysis: a newer kit alone makes nothing stale, but one that analyses makes all else so.
    """

    kit: str
    categories: str
    files: dict[str, DerivedFile]
    schema: int = 1
    roofs: str = ""


@dataclass(frozen=True)
class Outdated:
    """A file that shows an earlier state of its run: removed, or left in place because somebody has edited it."""

    path: Path
    renew: str
    removed: bool


def notes(outdated: list[Outdated]) -> list[str]:
    """One sentence for all files that one command makes again; without those that are there again already."""
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


@functools.lru_cache(maxsize=1)
def analysis_version() -> str:
    """The kit's version and a hash of the code that computes numbers, which changes between versions, too."""
    home = Path(__file__).parent
    code = (path.read_bytes() for folder in ("analysis", "etdump") for path in sorted((home / folder).glob("*.py")))
    return f"{__version__}+{hashlib.sha256(b''.join(code)).hexdigest()[:8]}"


def current_fingerprint(directory: RunDirectory, index: DerivedIndex | None) -> str:
    """The fingerprint that derived files should have: for the kit, categories and roofs of the last analysis."""
    return fingerprint(directory, index.kit, index.categories, index.roofs) if index else fingerprint(directory)


def fingerprint(directory: RunDirectory, kit: str | None = None, categories: str = "", roofs: str = "") -> str:
    """What derived files of a run directory are made from, as it is now, in 16 digits; by this kit if none is named."""
    # Not the Manifest type: its fields and defaults change from kit to kit, what was written does not.
    manifest = files.read_json(directory.manifest_path, dict[str, Any], "manifest")
    model = manifest.get("model")
    parts = {key: manifest.get(key) for key in _SOURCES}
    parts["model"] = {key: model.get(key) for key in _MODEL} if isinstance(model, dict) else None
    # Without roofs it is what it was before there were any.
    known = [kit or analysis_version(), categories, parts, *([roofs] if roofs else [])]
    return hashlib.sha256(msgspec.json.encode(known, order="sorted")).hexdigest()[:16]


def read_index(directory: RunDirectory) -> DerivedIndex | None:
    """What is known of a run's derived files; None where an older kit kept no record."""
    path = directory.path / DERIVED
    return files.read_json(path, DerivedIndex, "record of derived files") if path.is_file() else None


def stamps(path: Path) -> set[str]:
    """The fingerprints that a file carries inside."""
    return {found.decode() for found in _STAMP.findall(files.read_bytes(path, "derived file"))}


def stamped(data: bytes, suffix: str, sources: Iterable[str]) -> bytes:
    """The file with what it was made from inside, if its format has a place for that; a table has none."""
    words = [f"made from sources {each}" for each in sources]
    if suffix in (".md", ".html", ".svg"):
        return data.rstrip(b"\n") + "".join(f"\n<!-- {each} -->" for each in words).encode() + b"\n"
    if suffix == ".png":
        for each in words:
            data = with_comment(data, each)
    return data


class _Identified(Protocol):
    @property
    def identity(self) -> str: ...


class OpenRun(Protocol):
    """What has to be known of a run (analysis/run_view.py) to say of a file that it derives from it."""

    @property
    def path(self) -> Path: ...
    @property
    def sources(self) -> str: ...
    @property
    def table(self) -> _Identified: ...
    @property
    def roofs(self) -> _Identified: ...
    @property
    def emulated(self) -> "OpenRun | None": ...


class DerivedWriter:
    """Writes what derives from a run as it was when it was opened. `finish` comes after the last file."""

    def __init__(self, run: OpenRun) -> None:
        self._directory = RunDirectory(run.path)
        self._categories, self._roofs = run.table.identity, run.roofs.identity
        self._written: dict[str, DerivedFile] = {}
        self.sources = run.sources
        self._others: dict[str, str] = {}
        if run.emulated is not None:
            place = os.path.relpath(run.emulated.path.resolve(), run.path.resolve())
            self._others = {place: fingerprint(RunDirectory(run.emulated.path))}

    def write_bytes(self, path: Path, data: bytes, renew: str) -> None:
        data = stamped(data, path.suffix, [self.sources])
        if path.is_relative_to(self._directory.path):
            files.inside(self._directory.path, path)
        files.write_bytes(path, data)
        home = self._directory.path.resolve()
        if path.resolve().is_relative_to(home):
            name = path.resolve().relative_to(home).as_posix()
            digest = hashlib.sha256(data).hexdigest()
            others = self._others if renew.startswith(("report", "graph")) else {}
            self._written[name] = DerivedFile(digest, self.sources, f"sme2-kit {renew}", others)

    def write_text(self, path: Path, text: str, renew: str) -> None:
        self.write_bytes(path, files.text_bytes(text), renew)

    def write_json(self, path: Path, value: msgspec.Struct, renew: str) -> None:
        """Indented, with the fingerprint in the field that every derived type has for it."""
        data = msgspec.structs.replace(value, sources=self.sources)
        self.write_bytes(path, files.json_bytes(data), renew)

    def finish(self) -> list[Outdated]:
        """Remove what this run no longer says, record what is left, and tell which files are outdated."""
        kept: dict[str, DerivedFile] = {}
        outdated: list[Outdated] = []
        earlier = _readable_index(self._directory)
        for name, entry in earlier.files.items() if earlier else ():
            path = inside(self._directory, name)
            if name in self._written or path is None or not files.is_file(path):
                continue
            if entry.sources == self.sources:
                kept[name] = entry
                continue
            ours = files.sha256(path) == entry.sha256
            outdated.append(Outdated(path, command(entry.renew, self._directory), removed=ours))
            if ours:
                _remove(path)
            else:
                kept[name] = entry
        listed = dict(sorted({**kept, **self._written}.items()))
        index = DerivedIndex(analysis_version(), self._categories, listed, roofs=self._roofs)
        files.write_json(self._directory.path / DERIVED, index)
        return outdated


def adopt(path: Path, again: str) -> None:
    """Record a file that the command `again` has just written, if it lies in a run directory that has a record."""
    homes = [RunDirectory(parent) for parent in path.resolve().parents[:2] if (parent / DERIVED).is_file()]
    index = _readable_index(homes[0]) if homes else None
    if index is None:
        return
    sources = current_fingerprint(homes[0], index)
    index.files[path.resolve().relative_to(homes[0].path).as_posix()] = DerivedFile(files.sha256(path), sources, again)
    files.write_json(homes[0].path / DERIVED, index)


def command(renew: str, directory: RunDirectory) -> str:
    """A command of the index as one would type it."""
    return renew.replace("{dir}", shlex.quote(str(directory.path)))


def inside(directory: RunDirectory, name: str) -> Path | None:
    """The file the index means; None for a name that leads out of the directory, whoever wrote it there."""
    path = directory.path / name
    try:
        return path if path.resolve().is_relative_to(directory.path.resolve()) else None
    except (ValueError, OSError):  # no name that a file can have
        return None


def _readable_index(directory: RunDirectory) -> DerivedIndex | None:
    """The index for whoever writes it anew if it is broken."""
    try:
        return read_index(directory)
    except KitError:
        return None


def _remove(path: Path) -> None:
    path.unlink()
    with contextlib.suppress(OSError):  # not empty: other files lie there
        path.parent.rmdir()
