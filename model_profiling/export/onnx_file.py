"""The .onnx beside a .pte: the same module, weights and inputs, made once and kept as long as the .pte is the same."""

import contextlib
import re
from collections.abc import Callable
from pathlib import Path

import msgspec
import torch

from model_profiling.base import files
from model_profiling.base.directories import working_directory
from model_profiling.base.errors import InputError, KitError, RunError, SetupError
from model_profiling.base.installation import install_command
from model_profiling.export.cache import versions
from model_profiling.export.host import host_untouched
from model_profiling.export.prepare.preparation import load_asked, prepare
from model_profiling.export.publish import STAGING, publish, writable
from model_profiling.export.quiet import kept_off_terminal
from model_profiling.export.request import recorded, recorded_in
from model_profiling.export.stages import root_cause
from model_profiling.models.loading import LoadedModel
from model_profiling.store.artifacts import ExportPaths, ExportRecord
from model_profiling.store.made_by import hashed

_PACKAGES = ("onnx", "onnxscript")
_COLOURS = re.compile(r"\x1b\[[0-9;]*m")


class OnnxStamp(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """What an .onnx was made from and with, and the hash of each of its files."""

    export: str
    versions: dict[str, str]
    files: dict[str, str]


def make_onnx(paths: ExportPaths, record: ExportRecord, load: Callable[[], LoadedModel] | None = None) -> Path:
    """Return the .onnx of an export, made by torch.onnx.export; weights lie in a file of their own beside it.

    `load` gives a module in memory; without it the record says where the model comes from.
    """
    with writable(paths.directory), files.locked(paths.directory, "export"):
        if not _is_current(paths, record):
            _make(paths, record, load)
    return paths.onnx


def _is_current(paths: ExportPaths, record: ExportRecord) -> bool:
    if not files.is_file(paths.onnx_stamp):
        return False
    with contextlib.suppress(KitError, OSError):
        stamp = files.read_json(paths.onnx_stamp, OnnxStamp, "stamp")
        same = stamp.export == _identity(record) and stamp.versions == versions(*_PACKAGES)
        return same and all(files.sha256(paths.directory / name) == value for name, value in stamp.files.items())
    return False


def _identity(record: ExportRecord) -> str:
    """Return a hash of what the .onnx is of: the program, if there is one, and the samples."""
    return hashed(msgspec.json.encode(sorted(record.files.items())))


def _make(paths: ExportPaths, record: ExportRecord, load: Callable[[], LoadedModel] | None) -> None:
    asked = record.request
    if load is None and (asked is None or asked.origin == "memory"):
        raise InputError(f"nothing says which model {paths.pte.name} was exported from", "Give the model itself.")
    assert asked is not None
    request = recorded(record, asked) if load is not None else recorded_in(record, asked, working_directory())
    with files.scratch_directory(STAGING, paths.directory) as staged:
        with kept_off_terminal(False), host_untouched(request.seed):
            _export(prepare(load() if load else load_asked(request), request).model, staged / paths.onnx.name)
        made = sorted(path for path in staged.iterdir() if path.is_file())
        hashes = {path.name: files.sha256(path) for path in made}
        files.write_json(staged / paths.onnx_stamp.name, OnnxStamp(_identity(record), versions(*_PACKAGES), hashes))
        # The stamp comes last: until it is there, nobody takes the files for an .onnx of this .pte.
        publish(staged, paths.directory, [*hashes, paths.onnx_stamp.name])


def _export(model: LoadedModel, target: Path) -> None:
    try:
        torch.onnx.export(
            model.module,
            model.call[0],
            str(target),
            kwargs=model.call[1] or None,
            dynamo=True,
            # Protobuf holds no more than 2 GB.
            external_data=True,
            verbose=False,
        )
    except ModuleNotFoundError as error:
        raise SetupError(
            f"an .onnx needs {error.name}, which is not installed", install_command("onnxruntime")
        ) from error
    except KitError:
        raise
    except Exception as error:
        raise RunError(
            f"{model.name} cannot be exported to ONNX: {_first_cause(error)}",
            "Give an .onnx of your own: --runtimes executorch,model.onnx.",
        ) from error


def _first_cause(error: BaseException) -> str:
    """Return what the exporter's long message began with: the first exception of the chain, its first line."""
    error = root_cause(error)
    lines = [line.strip() for line in _COLOURS.sub("", str(error)).splitlines() if line.strip()]
    return f"{type(error).__name__}: {lines[0][:300]}" if lines else type(error).__name__
