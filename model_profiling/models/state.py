"""Models that remember: what a call leaves in their buffers, such as the keys and values of earlier tokens."""

import contextlib
from collections.abc import Collection, Iterator
from typing import Any

import torch


@contextlib.contextmanager
def restored_state(module: torch.nn.Module, only: Collection[str] | None = None) -> Iterator[None]:
    """Run the block; afterwards the buffers (those named in `only`) are what they were before it."""
    held = [
        (part, name, buffer, buffer.clone())
        for path, part in module.named_modules()
        for name, buffer in part.named_buffers(recurse=False, remove_duplicate=False)
        if (only is None or (f"{path}.{name}" if path else name) in only)
    ]
    try:
        yield
    finally:
        with torch.no_grad():
            for part, name, buffer, values in held:
                # A model may write into its buffer or put another tensor in its place.
                buffer.copy_(values)
                setattr(part, name, buffer)


def changed_buffers(
    module: torch.nn.Module, inputs: tuple[Any, ...], keywords: dict[str, Any]
) -> dict[str, torch.Tensor]:
    """Return the buffers that a call of a model in eval mode changes: its state, not its weights. They are put back."""
    before = {name: buffer.clone() for name, buffer in module.named_buffers()}
    with restored_state(module), torch.no_grad():
        module(*inputs, **keywords)
        after = {name: buffer.clone() for name, buffer in module.named_buffers() if _changed(before.get(name), buffer)}
    return {name: before[name] for name in after}


def _changed(before: torch.Tensor | None, now: torch.Tensor) -> bool:
    return before is not None and not (before.shape == now.shape and torch.equal(before, now))
