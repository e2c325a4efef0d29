"""What calls and exports change in a model, such as the keys and values of earlier tokens: put back, or copied."""

import contextlib
import copy
from collections.abc import Collection, Iterator
from typing import Any

import torch

from model_profiling.base.errors import InputError, shortly
from model_profiling.upstream.captured_graphs import Call, mapped_tensors, tensors_of

# What a parameter is less than that keeps a block out of the outputs: ConvNeXt's factors are 1e-6, CaiT's 1e-5 to 0.1.
_FAINT = 0.2


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


def changed_buffers(module: torch.nn.Module, call: Call) -> dict[str, torch.Tensor]:
    """Return the buffers that a call of a model in eval mode changes: its state, not its weights. They are put back."""
    before = {name: buffer.clone() for name, buffer in module.named_buffers()}
    with restored_state(module), torch.no_grad():
        module(*call[0], **call[1])
        now = dict(module.named_buffers())
        same = {name for name, buffer in now.items() if name in before and torch.equal(before[name], buffer)}
    return {name: before[name] for name in now if name in before and name not in same}


def let_signals_through(module: torch.nn.Module, call: Call) -> None:
    """Change random weights so that every layer shows in the outputs; otherwise no check of them sees its errors.

    Training begins with blocks that add nothing (factors of 0 or 1e-6), and with batch norms that normalise nothing:
    through a deep network the signal fades to zero, and in fp16 mobilenet_v3_small answers 0 whatever it is shown.
    """
    faint = [value for name, value in module.named_parameters() if _hides(name, value)]
    norms = [layer for layer in module.modules() if isinstance(layer, torch.nn.modules.batchnorm._BatchNorm)]
    if not norms and not faint:
        return
    held = [*faint, *(buffer for norm in norms for buffer in norm.buffers())]
    generator = torch.Generator().manual_seed(0)
    with torch.no_grad():
        before = [value.clone() for value in held]
        for value in faint:
            value.copy_(_drawn(value.shape, generator))
        answer = _settled(module.eval(), norms, call)
        if not all(bool(torch.isfinite(leaf).all()) for leaf in answer):
            for value, old in zip(held, before, strict=True):
                value.copy_(old)


def _drawn(shape: torch.Size, generator: torch.Generator) -> torch.Tensor:
    """Return factors of channels around 1; a matrix or a table as layers draw theirs."""
    if not shape or shape.numel() == max(shape):
        return torch.rand(shape, generator=generator) + 0.5
    summed = shape[1:].numel() if shape[0] > 1 else shape[-1]
    return torch.randn(shape, generator=generator) / summed**0.5


def _hides(name: str, value: torch.Tensor) -> bool:
    """Return whether a parameter was set to a constant near 0, and is not added (a bias)."""
    if not value.is_floating_point() or not value.numel() or name.rpartition(".")[2].endswith("bias"):
        return False
    flat = value.detach().flatten()
    # The first few show of most that they are not constant.
    return bool(flat[0].abs() < _FAINT) and all(bool((part == flat[0]).all()) for part in (flat[:16], flat))


def _settled(module: torch.nn.Module, norms: list[Any], call: Call) -> list[Any]:
    """Call a model, whose batch norms take their statistics from this call; return the tensors that it gives.

    Of one value per channel there is no variance: such a norm stays as it is.
    """

    def settle(norm: Any, given: tuple[torch.Tensor, ...]) -> None:
        norm.train(bool(given) and given[0].numel() > given[0].shape[1])

    momenta = [norm.momentum for norm in norms]
    with contextlib.ExitStack() as stack:
        for norm in norms:
            norm.momentum = 1.0
            stack.callback(norm.register_forward_pre_hook(settle).remove)
        try:
            # All buffers but the norms' own, which are what this is for.
            settled = {id(buffer) for norm in norms for buffer in norm.buffers()}
            others = {name for name, buffer in module.named_buffers() if id(buffer) not in settled}
            with restored_state(module, others):
                return tensors_of(module(*call[0], **call[1]))
        finally:
            for norm, momentum in zip(norms, momenta, strict=True):
                norm.momentum = momentum
            module.eval()


def own_copy(module: torch.nn.Module) -> torch.nn.Module:
    """Copy a module with its weights, hooks and all else that it holds."""
    # Computed tensors (a weight that old-style weight_norm made) refuse to be copied: their values are copied instead.
    held = [value for part in module.modules() for value in (*vars(part).values(), *part.buffers(recurse=False))]
    computed = [value for value in held if isinstance(value, torch.Tensor) and not value.is_leaf]
    try:
        return copy.deepcopy(module, {id(tensor): tensor.detach().clone() for tensor in computed})
    except Exception as error:
        raise InputError(
            f"{type(module).__name__} cannot be copied, and an export may not change yours: {shortly(error)}",
            "Take out of the module what cannot be copied (locks, open files, generators), or export it from a file.",
        ) from error


def own_inputs(value: Any) -> Any:
    """Return nested inputs with tensors of their own: a model may write into what it is given."""
    return mapped_tensors(lambda tensor: tensor.detach().clone(), value)
