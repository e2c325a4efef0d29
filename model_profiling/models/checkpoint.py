"""Real weights for a model: a .safetensors file, or a state dict that torch loads without running code from it."""

import zipfile
from collections.abc import Callable, Collection
from pathlib import Path
from typing import Any

import torch

from model_profiling.base import files, zips
from model_profiling.base.errors import InputError, SetupError

# Where training code likes to put the state dict inside what it saves.
_WRAPPERS = ("state_dict", "model_state_dict", "model", "module")


def load_checkpoint(module: torch.nn.Module, path: Path, remembered: Callable[[], Collection[str]] = tuple) -> str:
    """Put the weights of `path` into `module`, all of them or none, and say in words where they came from.

    `remembered` names the buffers that a call changes, if it comes to that: they are no weights, and stay as they are.
    """
    if not path.is_file():
        raise InputError(f"checkpoint {path} does not exist", "Check the path.")
    state = _state_dict(path)
    own = module.state_dict()
    if state.keys() != own.keys() or any(tensor.shape != own[name].shape for name, tensor in state.items()):
        spare = set(remembered())
        state = {name: tensor for name, tensor in state.items() if name not in spare}
        own = {name: tensor for name, tensor in own.items() if name not in spare}
    # Weights that are one tensor under two names, such as a head that is the embedding, may be saved under one.
    given = {own[name].data_ptr() for name in state if name in own}
    missing = sorted(name for name in own.keys() - state.keys() if own[name].data_ptr() not in given)
    unknown = sorted(state.keys() - own.keys())
    if missing or unknown:
        parts = [f"lacks {len(missing)} ({', '.join(missing[:3])})"] if missing else []
        parts += [f"has {len(unknown)} that the model does not know ({', '.join(unknown[:3])})"] if unknown else []
        raise InputError(
            f"checkpoint {path} does not fit the model: of {len(own)} tensors it {' and '.join(parts)}",
            "Check that it was saved from this architecture; rename its keys if only a prefix differs.",
        )
    for name, tensor in state.items():
        if tensor.shape != own[name].shape:
            raise InputError(
                f"checkpoint {path}: {name} is {tuple(tensor.shape)}, the model's is {tuple(own[name].shape)}",
                "Check that it was saved from this size of the architecture.",
            )
    _refuse_two_for_one(path, state, own)
    module.load_state_dict(state, strict=False)  # what may be missing was decided above
    return f"checkpoint {path.name} (sha256 {files.sha256(path)[:12]})"


def _refuse_two_for_one(path: Path, state: dict[str, torch.Tensor], own: dict[str, torch.Tensor]) -> None:
    """Refuse two different tensors for what is one in the model: one of them would be lost."""
    first: dict[int, str] = {}
    for name, tensor in state.items():
        other = first.setdefault(own[name].data_ptr(), name)
        if other != name and own[name].numel() and not torch.equal(state[other], tensor):
            raise InputError(
                f"checkpoint {path}: {other} and {name} are one tensor in the model and two different ones here",
                "Check that it was saved from this architecture.",
            )


def _state_dict(path: Path) -> dict[str, torch.Tensor]:
    value = _read(path)
    for name in _WRAPPERS:
        if isinstance(value, dict) and isinstance(value.get(name), dict):
            value = value[name]
    if not isinstance(value, dict) or not value or not all(isinstance(leaf, torch.Tensor) for leaf in value.values()):
        raise InputError(f"checkpoint {path} contains no state dict", "Save model.state_dict(), not the model.")
    for key, tensor in value.items():
        if why := _unusual(key, tensor):
            raise InputError(f"checkpoint {path}: {why}", "Save model.state_dict(): plain tensors by their names.")
    # DataParallel puts this before every name.
    prefix = "module." if all(key.startswith("module.") for key in value) else ""
    return {key.removeprefix(prefix): tensor for key, tensor in value.items()}


def _unusual(key: Any, tensor: torch.Tensor) -> str:
    """Return why an entry is none of a state dict; '' if its values lie in memory one after another, by a name."""
    if not isinstance(key, str):
        return f"the key {key!r:.80} is not text"
    kinds = {"nested": tensor.is_nested, "quantized": tensor.is_quantized, "without values": tensor.is_meta}
    kinds[str(tensor.layout).removeprefix("torch.")] = tensor.layout != torch.strided
    return next((f"{key} is a tensor that is {kind}" for kind, found in kinds.items() if found), "")


def _read(path: Path) -> Any:
    try:
        with files.open_file(path) as file:
            if path.suffix == ".safetensors":
                from safetensors.torch import load_file

                return load_file(str(path))
            if zipfile.is_zipfile(file):
                zips.refuse_bomb(zipfile.ZipFile(file).infolist(), files.size_of(file))
            return torch.load(path, map_location="cpu", weights_only=True)
    except ModuleNotFoundError:
        raise SetupError("safetensors is not installed", "pip install safetensors") from None
    except Exception as error:  # noqa: BLE001 - a file that is no pickle is read as one, and anything may come of that
        said = str(error).strip()
        first = said.splitlines()[0] if " " in said else f"{type(error).__name__} {said}"
        raise InputError(
            f"checkpoint {path} cannot be loaded as plain weights: {first[:200]}",
            "Download it again, or save model.state_dict(): files that must run code to load are refused.",
        ) from None
