"""Has exactly this been exported already? Answered from files alone, before torch is imported.

Beside each .pte lies a stamp: what was asked for, the versions of all that took part, and a hash of every source file
the model was built from. If none of it changed and the artifacts are unharmed, the export would give the same again.
What a model reads while it is built (data files, environment variables) is not seen: `--force` is for that.
"""

import hashlib
import importlib.metadata
import platform
import sys
import sysconfig
from pathlib import Path
from typing import Any

import msgspec

from model_profiling import files
from model_profiling.artifacts import ExportMeta, ExportPaths
from model_profiling.errors import InputError
from model_profiling.export.request import ExportRequest, ExportResult
from model_profiling.models import registered_models

_PACKAGES = ("torch", "executorch", "torchao", "numpy", "torchvision", "timm", "transformers")
_KIT = Path(__file__).resolve().parents[1]


class Stamp(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """All that decides what an export gives."""

    request: dict[str, str]
    versions: dict[str, str]
    sources: dict[str, str]


def stamp_path(paths: ExportPaths) -> Path:
    return paths.directory / f".{paths.stem}.stamp.json"


def cached(request: ExportRequest) -> ExportResult | None:
    """Return what is on disk if it is what an export would write now; else None."""
    paths = request.paths
    if (
        not stamp_path(paths).is_file()
        or not paths.meta.is_file()
        or (request.save_graph and not paths.graph.is_file())
    ):
        return None
    try:
        stamp = files.read_json(stamp_path(paths), Stamp, "stamp")
        record = files.read_json(paths.meta, ExportMeta, "export record").exports.get(paths.stem)
    except InputError:
        return None
    if record is None or stamp.request != describe(request) or stamp.versions != versions():
        return None
    there = {paths.directory / name: digest for name, digest in record.files.items()}
    there |= {Path(name): digest for name, digest in stamp.sources.items()}
    if not all(path.is_file() and files.sha256(path) == digest for path, digest in there.items()):
        return None
    return ExportResult(paths, record)


def write_stamp(request: ExportRequest) -> None:
    """Say what the export that was just published came from; the model's modules are still loaded."""
    sources = {str(path): files.sha256(path) for path in sorted(_loaded_sources())}
    files.write_json(stamp_path(request.paths), Stamp(describe(request), versions(), sources))


def describe(request: ExportRequest) -> dict[str, str]:
    """The request as plain words, a checkpoint and a registered class among them."""
    known = registered_models().get(request.target or request.model)
    checkpoint = request.options.checkpoint
    fields: dict[str, Any] = {
        "target": str(Path(request.target).resolve()) if ".py" in request.target else request.target or request.model,
        "class": known.target if known and isinstance(known.target, str) else repr(known.target) if known else "",
        "dtype": request.dtype,
        "backend": request.backend,
        "memory_format": request.memory_format,
        "seed": request.seed,
        "settings": request.options.settings,
        "shapes": request.options.shapes,
        "checkpoint": files.sha256(checkpoint) if checkpoint and checkpoint.is_file() else checkpoint or "",
        "rewrites": request.rewrites,
        "delegation": request.delegation,
    }
    return {name: str(value) for name, value in fields.items()}


def versions() -> dict[str, str]:
    """The versions of what takes part, the kit's own exporting code among them."""
    found = {"python": platform.python_version()}
    for name in _PACKAGES:
        try:
            found[name] = importlib.metadata.version(name)
        except importlib.metadata.PackageNotFoundError:
            continue
    digest = hashlib.sha256()
    for path in sorted([*(_KIT / "export").rglob("*.py"), *(_KIT / "models").glob("*.py")]):
        digest.update(path.read_bytes())
    return {**found, "kit": digest.hexdigest()}


def _loaded_sources() -> set[Path]:
    """The files of loaded modules that no version speaks for: the user's own, and the kit's model folders."""
    outside = [Path(sysconfig.get_path(name)).resolve() for name in ("stdlib", "purelib", "platlib")]
    found = set()
    for module in list(sys.modules.values()):
        file = getattr(module, "__file__", None)
        path = Path(file).resolve() if isinstance(file, str) else None
        if path is None or path.suffix != ".py" or any(path.is_relative_to(place) for place in outside):
            continue
        if not path.is_relative_to(_KIT) or path.parent.parent == _KIT / "models":
            found.add(path)
    return {path for path in found if path.is_file()}
