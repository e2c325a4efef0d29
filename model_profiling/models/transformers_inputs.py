"""What a class of transformers takes: random inputs by the names of its parameters, in the sizes of its config."""

import inspect
from collections.abc import Callable
from typing import Any

import torch

from model_profiling.base.errors import InputError

_TOKENS, _ANSWERED, _CHOICES, _SAMPLES, _FRAMES = 32, 8, 2, 16000, 128
# What is given, if a class has it, beside the first of them.
_TOGETHER = {"input_ids": {"pixel_values", "bbox", "image"}, "pixel_values": {"input_ids", "bbox"}}


def inputs_of(module: Any) -> dict[str, Any]:
    """Return the main input of a class, those without a default, and those that go with them."""
    taken, main = inspect.signature(module.forward).parameters, module.main_input_name
    wanted = {main} if isinstance(main, str) else {*main}
    wanted |= {
        name for name, each in taken.items() if each.default is each.empty and each.kind is each.POSITIONAL_OR_KEYWORD
    }
    wanted |= {other for name in wanted for other in _TOGETHER.get(name, ())}
    wanted |= {"decoder_input_ids"} if getattr(module.config, "is_encoder_decoder", False) else set()
    wanted &= {*taken}
    unknown = ", ".join(wanted - {*_MAKERS}) or ("" if wanted else str(main))
    if unknown:
        raise InputError(
            f"which values {type(module).__name__} takes is not known: {unknown}",
            "Wrap it in a file of its own, with example_inputs, and name that: path/to/file.py:ClassName.",
        )
    return {name: _MAKERS[name](module) for name in taken if name in wanted}


def _part(module: Any, part: str) -> Any:
    """Return the configuration of one part of a model, such as its text; the model's own if it has no parts."""
    return getattr(module.config, f"{part}_config", None) or module.config


def _sequences(module: Any, length: int) -> tuple[int, ...]:
    """Return the shape of sequences: of multiple choice there are several for one answer."""
    most = getattr(_part(module, "text"), "max_position_embeddings", None) or 0  # XLNet, which has no limit, says -1
    length = min(length, most) if most > 0 else length
    return (1, _CHOICES, length) if type(module).__name__.endswith("ForMultipleChoice") else (1, length)


def _words(module: Any, shape: tuple[int, ...]) -> torch.Tensor:
    return torch.randint(0, getattr(_part(module, "text"), "vocab_size", 2), shape)


def _boxes(module: Any) -> torch.Tensor:
    """Return the corners of words on a page, the upper left ones first."""
    most = getattr(module.config, "max_2d_position_embeddings", 1000)
    return torch.randint(0, most, (*_sequences(module, _TOKENS), 2, 2)).sort(-2).values.flatten(-2)


def _image(module: Any) -> torch.Tensor:
    config = _part(module, "vision")
    parts = (config, getattr(config, "backbone_config", None))
    known = (getattr(part, name, None) for part in parts for name in ("image_size", "input_size"))
    sides = next(filter(None, known), 224)
    shape = [sides, sides] if isinstance(sides, int) else [*sides][-2:]
    channels = getattr(config, "num_channels", None) or 3
    frames = getattr(config, "num_frames", None)
    return torch.randn(1, *([frames] if isinstance(frames, int) else []), channels, *shape)


def _sound(module: Any) -> torch.Tensor:
    """Return samples, or of a class that takes a spectrogram so many frames of it."""
    frames, bins = (getattr(module.config, name, None) for name in ("max_length", "num_mel_bins"))
    return torch.randn(1, frames, bins) if frames and bins else torch.randn(1, _SAMPLES)


def _features(module: Any) -> torch.Tensor:
    config = _part(module, "audio")
    sizes = (getattr(config, name, None) for name in ("feature_projection_input_dim", "input_feat_per_channel"))
    if size := next(filter(None, sizes), None):
        return torch.randn(1, _FRAMES, size)
    frames = 2 * (getattr(config, "max_source_positions", None) or _TOKENS)
    return torch.randn(1, getattr(config, "num_mel_bins", 80), frames)


def _series(module: Any) -> torch.Tensor:
    config = module.config
    length = config.context_length + max(getattr(config, "lags_sequence", None) or [0])
    channels = getattr(config, "num_input_channels", None)
    return torch.randn(1, length, *([channels] if channels else []))


_MAKERS: dict[str, Callable[[Any], torch.Tensor]] = {
    "input_ids": lambda module: _words(module, _sequences(module, _TOKENS)),
    "decoder_input_ids": lambda module: _words(module, (1, _ANSWERED)),
    "bbox": _boxes,
    "pixel_values": _image,
    "pixel_values_videos": _image,
    "image": _image,
    "input_values": _sound,
    "input_features": _features,
    "past_values": _series,
    "past_observed_mask": lambda module: torch.ones_like(_series(module)),
    "past_time_features": lambda module: torch.randn(*_series(module).shape[:2], module.config.num_time_features),
}
