"""Export a module that exists only in this process: in a notebook, a REPL, a training script.

It takes the same way as a model with a name or a file. Nothing is cached: no file tells whether a module changed.
"""

import re
from collections.abc import Callable, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import torch

from model_profiling.base.errors import InputError
from model_profiling.export.exporter import export_loaded
from model_profiling.export.request import ExportRequest, ExportResult
from model_profiling.export.stages import Announce
from model_profiling.models.loading import LoadedModel
from model_profiling.models.lookup import snake_case
from model_profiling.models.state import own_copy, own_inputs
from model_profiling.upstream.captured_graphs import Call, leaves, tensors_of

_INPUTS = "Give a tensor, a tuple of positional inputs, or a dict of keyword inputs, as the module is called with."


def export_module(
    module: torch.nn.Module,
    example_inputs: Any,
    outdir: Path | str,
    *,
    name: str = "",
    dynamic_shapes: Any = None,
    loud: bool = False,
    announce: Announce = lambda stage: None,
    **options: Any,
) -> ExportResult:
    """Export `module` as it is now, in eval mode, and leave it as it is.

    `example_inputs` are those of one inference: a tensor, a tuple of positional inputs, or a dict of keyword inputs.
    `name` is the model's name in files; default: after its class. `options` are those of export/options.py.
    """
    module = _checked(module)
    request = ExportRequest(name or snake_case(type(module).__name__), Path(outdir), loud=loud, **options)
    return export_as_asked(request, module, example_inputs, dynamic_shapes, announce)


def export_as_asked(
    request: ExportRequest, module: Any, example_inputs: Any, dynamic_shapes: Any, announce: Announce
) -> ExportResult:
    """Export `module` in the way that a request asks for."""
    module = _checked(module)
    if not re.fullmatch(r"[A-Za-z0-9][A-Za-z0-9_.-]{0,79}", request.model):
        raise InputError(
            f"{request.model!r} cannot be a model's name: it becomes part of file names",
            "Use letters, digits, _ - and . only.",
        )
    request = replace(request, target=f"{type(module).__module__}.{type(module).__qualname__}")
    load = loader(request.model, module, example_inputs, dynamic_shapes)
    return export_loaded(request, load, announce, cacheable=False)


def loader(name: str, module: torch.nn.Module, example_inputs: Any, dynamic_shapes: Any) -> Callable[[], LoadedModel]:
    """Return how a module in memory is loaded: as a copy of its own."""
    module = _checked(module)
    call = _call(example_inputs)

    def load() -> LoadedModel:
        ours = own_copy(module).eval()
        weights = f"as they were in memory{', put into eval mode' if module.training else ''}"
        return LoadedModel(name, "memory", weights, ours, own_inputs(call), dynamic_shapes, "memory")

    return load


def _checked(module: Any) -> torch.nn.Module:
    # torch.compile wraps the module, and torch.export wants what is inside.
    module = getattr(module, "_orig_mod", module)
    if isinstance(module, torch.jit.ScriptModule):
        raise InputError("a TorchScript module cannot be exported", "Give the module it was scripted or traced from.")
    if not isinstance(module, torch.nn.Module):
        what = f"the class {module.__name__}" if isinstance(module, type) else f"a {type(module).__name__}"
        raise InputError(f"{what} is not an instance of torch.nn.Module", "Give a module, for example MyNet().")
    tensors = [*module.named_parameters(), *module.named_buffers()]
    _on_cpu([(name, tensor) for name, tensor in tensors], "the module's")
    return module


def _call(example_inputs: Any) -> Call:
    """Return what the module is called with: positional and keyword inputs."""
    positional: tuple[Any, ...] = ()
    keywords: dict[str, Any] = {}
    if isinstance(example_inputs, torch.Tensor):
        positional = (example_inputs,)
    elif isinstance(example_inputs, Mapping):
        keywords = dict(example_inputs)
        odd = [key for key in keywords if not isinstance(key, str)]
        if odd:
            raise InputError(f"a keyword input is named {odd[0]!r}, which is not a string", _INPUTS)
    elif isinstance(example_inputs, (tuple, list)):
        positional = tuple(example_inputs)
    else:
        raise InputError(f"example inputs cannot be a {type(example_inputs).__name__}", _INPUTS)
    given = leaves((positional, keywords))
    arrays = [type(leaf).__name__ for leaf in given if hasattr(leaf, "__array__") and not torch.is_tensor(leaf)]
    if arrays:
        raise InputError(f"an example input is a {arrays[0]} and not a tensor", "Convert it with torch.as_tensor.")
    _on_cpu([("one", tensor) for tensor in tensors_of(given)], "of the example inputs,")
    return positional, keywords


def _on_cpu(tensors: list[tuple[str, torch.Tensor]], whose: str) -> None:
    for name, tensor in tensors:
        if tensor.device.type != "cpu":
            raise InputError(
                f"{whose} {name} is on the device {tensor.device}, and exports are made on the CPU",
                "Give module.cpu() and inputs on the CPU; tensors on `meta` have no values to export.",
            )
