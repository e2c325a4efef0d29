"""Has exactly this been exported already? Answered from files alone, before torch is imported.

Beside each .pte lies a stamp: what was asked for, the versions of all that took part, the kit's own code among them,
and a hash of every source file the model was built from. If none of it changed and the artifacts are undamaged, the
export would give the same again.
What a model reads while it is built (data files, environment variables) is not seen: `--force` is for that.
"""

import functools
import importlib.metadata
import os
import platform
import sys
import sysconfig
from pathlib import Path
from typing import Any

import msgspec

from model_profiling.base import files
from model_profiling.base.cache import make_way
from model_profiling.base.errors import InputError
from model_profiling.base.on_progress import say_note
from model_profiling.export.check.verification import execute_program, uncompared
from model_profiling.export.options import DECIDING
from model_profiling.export.request import ExportRequest, ExportResult
from model_profiling.models import registered_models
from model_profiling.runner.sdk import installed_libraries
from model_profiling.store.artifacts import ExportMeta, ExportPaths, ExportRecord
from model_profiling.store.derived import code_hash
from model_profiling.store.made_by import hashed
from model_profiling.upstream.faster_lowering import switched_off
from model_profiling.upstream.reliance import FAILS_VARIABLE

_PACKAGES = ("torch", "executorch", "torchao", "numpy", "torchvision", "timm", "transformers")
_KIT = Path(__file__).resolve().parents[1]
# What an export may import: CONTRIBUTING's tree from its beginning to here. Models enter by what is loaded of them.
_FOLDERS = ("base", "upstream", "formats", "runner", "store", "models", "platforms", "pipeline", "analysis", "export")
_MAKE_EXPORTS = tuple(f"{name}/*.py" if name == "models" else f"{name}/**/*.py" for name in _FOLDERS)
_KIT_PREFIX = "kit:"


class Stamp(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """All that decides what an export gives, and which export it speaks of: another may have taken its place since."""

    export: str
    request: dict[str, str]
    versions: dict[str, str]
    sources: dict[str, str]
    # A hash of its part of graph.json, if that was written.
    graph: str = ""


def stamp_path(paths: ExportPaths) -> Path:
    return paths.directory / f".{paths.stem}.stamp.json"


def cached(request: ExportRequest) -> ExportResult | None:
    """Return what is on disk if it is what an export would write now; else None."""
    paths = request.paths
    if not files.is_file(stamp_path(paths)) or not files.is_file(paths.meta):
        return None
    try:
        stamp = files.read_json(stamp_path(paths), Stamp, "stamp")
        record = files.read_json(paths.meta, ExportMeta, "export record").exports.get(paths.stem)
    except InputError:
        return None
    if (
        record is None
        or stamp.export != _identity(record)
        or stamp.request != describe(request)
        or (record.remedy and not request.mend)
        or (record.wrong and not request.allow_wrong)
        or stamp.versions != versions()
        or (request.save_graph and stamp.graph != (_graph(paths) or "none"))
    ):
        return None
    if not all(_is(_source(name), digest) for name, digest in stamp.sources.items()):
        return None
    if not all(_is(paths.directory / name, digest) for name, digest in record.files.items()):
        say_note(f"{paths.pte} or a file beside it was damaged: it has to be exported again")
        return None
    return _verified(request, record)


def _is(path: Path, digest: str) -> bool:
    try:
        return files.is_file(path) and files.sha256(path) == digest
    except OSError:
        return False


def _verified(request: ExportRequest, record: ExportRecord) -> ExportResult | None:
    """Return the export itself, executed once if it is to be and was not; None if its program does not run."""
    paths, known = request.paths, record.verification
    verified = known is not None and known.status == "verified"
    if not request.verify or (verified and known is not None and known.libraries == installed_libraries()):
        return ExportResult(paths, record)
    if verified:
        say_note(f"ExecuTorch's libraries changed since {paths.pte.name} was verified: executed once more")
    outcome = execute_program(paths, record, lambda: dict.fromkeys(known.not_compared if known else (), "it changes"))
    if known is not None and verified and not known.verdict:
        outcome = uncompared(outcome, known.reason)
    if outcome.failure is not None or outcome.verification.verdict == "differs":
        return None  # an export says why
    if outcome.verification == known:
        return ExportResult(paths, record)
    with files.locked(paths.directory, "export"):
        stamp = files.read_json(stamp_path(paths), Stamp, "stamp")
        meta = files.read_json(paths.meta, ExportMeta, "export record")
        if meta.exports.get(paths.stem) != record or stamp.export != _identity(record):
            return None  # another export has come in between
        new = msgspec.structs.replace(record, verification=outcome.verification)
        files.write_json(paths.meta, ExportMeta(meta.schema, {**meta.exports, paths.stem: new}))
        files.write_json(stamp_path(paths), msgspec.structs.replace(stamp, export=_identity(new)))
    return ExportResult(paths, new)


def write_stamp(request: ExportRequest, record: ExportRecord) -> None:
    """Say what the export that was just published came from; the model's modules are still loaded."""
    named = {_source_name(path): files.sha256(path) for path in _loaded_sources()}
    graph = _graph(request.paths) if request.save_graph else ""
    stamp = Stamp(_identity(record), describe(request), versions(), dict(sorted(named.items())), graph)
    make_way(stamp_path(request.paths))
    files.write_json(stamp_path(request.paths), stamp)


def _graph(paths: ExportPaths) -> str:
    """Return a hash of what graph.json says of an export; '' if it says nothing, or cannot be read."""
    if not files.is_file(paths.graph):
        return ""
    try:
        nodes = files.read_json(paths.graph, dict[str, Any], "graph")[paths.stem]
    except (InputError, KeyError):
        return ""
    return hashed(msgspec.json.encode(nodes, order="deterministic"))


def _identity(record: ExportRecord) -> str:
    return hashed(msgspec.json.encode(record))


def describe(request: ExportRequest) -> dict[str, str]:
    """Return the request as plain words, a checkpoint and a registered class among them."""
    known = registered_models().get(request.target or request.model)
    checkpoint = request.options.checkpoint
    fields: dict[str, Any] = {
        "target": str(Path(request.target).resolve()) if ".py" in request.target else request.target or request.model,
        "class": known.target if known and isinstance(known.target, str) else repr(known.target) if known else "",
        "settings": request.options.settings,
        "inputs": " ".join(map(str, request.options.inputs)),
        "checkpoint": files.sha256(checkpoint) if checkpoint and checkpoint.is_file() else checkpoint or "",
        # The versions decide the rest of how it is lowered, and what it goes without.
        "kit": _own_code(),
        "stock lowering": switched_off(),
        "switched off": os.environ.get(FAILS_VARIABLE, ""),
    }
    # A folder enters by what is in it.
    for row in DECIDING:
        value = getattr(request, row.name)
        folder = row.kind is Path and value is not None
        fields[row.name] = files.folder_sha256(value, "*.npy") if folder else row.plain(value)
    return {name: str(value) for name, value in fields.items()}


def versions(*more: str) -> dict[str, str]:
    """Return the versions of what takes part and is not the kit's or the user's own code; and of `more` packages."""
    found = {"python": platform.python_version()}
    for name in (*_PACKAGES, *more):
        try:
            found[name] = importlib.metadata.version(name)
        except importlib.metadata.PackageNotFoundError:
            continue
    return found


def _source_name(path: Path) -> str:
    """Return a file's name; the kit's own from its folder, wherever that lies."""
    return f"{_KIT_PREFIX}{path.relative_to(_KIT).as_posix()}" if path.is_relative_to(_KIT) else str(path)


def _source(name: str) -> Path:
    return _KIT / name.removeprefix(_KIT_PREFIX) if name.startswith(_KIT_PREFIX) else Path(name)


@functools.cache
def _own_code() -> str:
    return code_hash(_KIT, _MAKE_EXPORTS)


def _loaded_sources() -> set[Path]:
    """Return the files of loaded modules that no version speaks for: the user's own, and the kit's model folders."""
    places = (Path(sysconfig.get_path(name)).resolve() for name in ("stdlib", "purelib", "platlib"))
    outside = tuple(f"{place}{os.sep}" for place in places)
    names = (getattr(module, "__file__", None) for module in list(sys.modules.values()))
    # Thousands of modules are loaded: most are told by how their path begins, and only the others are looked at.
    loaded = (name for name in names if isinstance(name, str) and name.endswith(".py") and not name.startswith(outside))
    found = {Path(name).resolve() for name in loaded}
    models = _KIT / "models"
    own = {path for path in found if path.is_relative_to(_KIT) and not path.is_relative_to(models)}
    return {path for path in found - own if not str(path).startswith(outside) and path.is_file()}
