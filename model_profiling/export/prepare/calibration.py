"""The user's own samples, which set the ranges of int8: a folder of .npy files.

For a model with one input, each file is a sample, a batch of the model's own size, or several of them on top of each
other. For several inputs, each sample is a folder with `input_0.npy`, `input_1.npy` and so on.
"""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import torch

from model_profiling.base import files
from model_profiling.base.errors import InputError
from model_profiling.base.npy import read_npy
from model_profiling.export.prepare.samples import Call
from model_profiling.store.artifacts import CalibrationRecord
from model_profiling.upstream.captured_graphs import leaves, mapped, with_leaves

_NOISY_RUNS = 4
_NOISE = 0.05


def varied_calls(call: Call, seed: int) -> list[Call]:
    """Return the example inputs, and a few seeded variations around them.

    One sample alone makes ranges that clip the next one. This is enough for timing. Accuracy on real data needs
    calibration on real data.
    """
    generator = torch.Generator().manual_seed(seed)
    varied = [mapped(lambda leaf: _vary(leaf, generator), call) for _ in range(_NOISY_RUNS)]
    return [call, *varied]


def calibration_calls(directory: Path, call: Call) -> Iterator[Call]:
    """Return what to call the model with, one after another; `call` are its example inputs."""
    example = leaves(call)
    places = [index for index, leaf in enumerate(example) if isinstance(leaf, torch.Tensor)]
    for sample in _samples(directory, len(places)):
        wanted = [example[index] for index in places]
        parts = [_batches(path, like, len(places) == 1) for path, like in zip(sample, wanted, strict=True)]
        for batch in zip(*parts, strict=True):
            given = list(example)
            for index, tensor in zip(places, batch, strict=True):
                given[index] = tensor
            yield with_leaves(call, given)


def calibration_record(directory: Path, batches: int) -> CalibrationRecord:
    return CalibrationRecord(str(directory), batches, files.folder_sha256(directory, "*.npy"))


def _samples(directory: Path, count: int) -> list[list[Path]]:
    """Return the files of each sample, one for each input."""
    if not directory.is_dir():
        raise InputError(f"there is no folder {directory} to calibrate with", "Give a folder of .npy files.")
    plain = sorted(directory.glob("*.npy"))
    folders = sorted(path for path in directory.iterdir() if path.is_dir())
    if plain and count == 1:
        return [[path] for path in plain]
    found = []
    for folder in folders:
        wanted = [folder / f"input_{index}.npy" for index in range(count)]
        missing = [path for path in wanted if not path.is_file()]
        if missing:
            raise InputError(
                f"sample {folder} has no {missing[0].name}, and the model has {count} inputs",
                "Give each sample one .npy for each input: input_0.npy, input_1.npy and so on.",
            )
        found.append(wanted)
    if not found:
        raise InputError(
            f"{directory} has no samples to calibrate with",
            "Put .npy files there, one for each sample."
            if count == 1
            else f"The model has {count} inputs: make a folder for each sample, with input_0.npy and so on.",
        )
    return found


def _batches(path: Path, like: torch.Tensor, alone: bool) -> list[torch.Tensor]:
    """Return the samples of a file, each with the sizes and the dtype of an example input."""
    array = read_npy(path, "sample", "Save it again with numpy.save.")
    _check_kind(path, array, like)
    wanted = tuple(like.shape)
    if array.shape == wanted:
        parts = [array]
    elif wanted and wanted[0] == 1 and array.shape == wanted[1:]:
        parts = [array[None]]
    elif alone and wanted and array.shape[1:] == wanted[1:] and len(array) and len(array) % wanted[0] == 0:
        parts = np.split(array, len(array) // wanted[0])
    else:
        raise InputError(
            f"{path} has the shape {list(array.shape)}, and the model takes {list(wanted)}",
            "Give samples of the model's own size, or several of them on top of each other.",
        )
    return [torch.from_numpy(np.ascontiguousarray(part)).to(like.dtype) for part in parts]


def _check_kind(path: Path, array: Any, like: torch.Tensor) -> None:
    if array.dtype.kind not in "biuf" or (array.dtype.kind == "f" and not like.is_floating_point()):
        raise InputError(
            f"{path} contains {array.dtype}, and the model takes {str(like.dtype).removeprefix('torch.')}",
            "Save the samples as the model takes them.",
        )
    if array.dtype.kind == "f" and not np.isfinite(array).all():
        raise InputError(f"{path} contains NaN or infinite values", "Leave such samples out.")


def _vary(leaf: Any, generator: torch.Generator) -> Any:
    """Add noise in proportion to the tensor's own spread; integers (token ids, masks) stay as they are."""
    if not isinstance(leaf, torch.Tensor) or not leaf.is_floating_point() or leaf.numel() < 2:
        return leaf
    noise = torch.randn(leaf.shape, generator=generator, dtype=torch.float32).to(leaf.dtype)
    return leaf + _NOISE * leaf.std() * noise
