"""Why a model does not take its example inputs, as its signature and its error tell: their number, dtypes or values."""

import contextlib
import inspect
import re
import traceback
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import torch

from model_profiling.base.errors import InputError, KitError
from model_profiling.base.units import counted
from model_profiling.models.remedies import find_remedy
from model_profiling.upstream.captured_graphs import Call

_BY_NAME = "`get_example_kwarg_inputs` of the class or the file returns those given by name."


@contextlib.contextmanager
def explained_call(module: torch.nn.Module, given: Call, origin: str) -> Iterator[None]:
    """Turn the failure of a call of `module` into an error that names the inputs at fault, if they are."""
    try:
        signature = inspect.signature(module.forward)
    except (TypeError, ValueError):
        yield  # written in C, or scripted
        return
    try:
        call = signature.bind_partial(*given[0], **given[1])
    except TypeError:
        raise _too_many(module, signature, *given) from None
    needed = [p for p in signature.parameters.values() if p.kind not in (p.VAR_POSITIONAL, p.VAR_KEYWORD)]
    missing = [p for p in needed if p.default is p.empty and p.name not in call.arguments]
    if missing:
        raise _missing(module, call, missing, origin)
    try:
        yield
    except KitError:
        raise
    except Exception as error:
        remedy = find_remedy(type(error).__name__, str(error))
        if remedy is None or not remedy.of_input:
            raise
        said = f"{_forward(module, signature)} does not take its inputs ({_given(call)}){own_line(error)}"
        why = (str(error).strip().splitlines() or [type(error).__name__])[0][:200]
        raise InputError(f"{said}: {remedy.kind} ({why})", remedy.advice) from error


def own_line(error: BaseException) -> str:
    """Return ` (at net.py:12)`: the innermost line that belongs neither to a package nor to the kit's own loading."""
    machinery = r"/site-packages/|/lib/python3|/model_profiling/(export/|tune/|base/|models/[a-z_]+\.py$)|^<"
    own = [f for f in traceback.extract_tb(error.__traceback__) if not re.search(machinery, f.filename)]
    return f" (at {Path(own[-1].filename).name}:{own[-1].lineno})" if own else ""


def _forward(module: torch.nn.Module, signature: inspect.Signature) -> str:
    """Return `forward(ids, mask=None) of Net`."""
    plain = [p.replace(annotation=p.empty) for p in signature.parameters.values()]
    return f"forward{inspect.Signature(plain)} of {type(module).__name__}"


def _too_many(
    module: torch.nn.Module, signature: inspect.Signature, inputs: tuple[Any, ...], keywords: dict[str, Any]
) -> InputError:
    parameters = signature.parameters
    positional = [p for p in parameters.values() if p.kind in (p.POSITIONAL_ONLY, p.POSITIONAL_OR_KEYWORD)]
    surplus = [_described(value) for value in inputs[len(positional) :]] or [
        name for name in keywords if name not in parameters or name in [p.name for p in positional[: len(inputs)]]
    ]
    return InputError(
        f"{_forward(module, signature)} has no parameter for {' and '.join(surplus)}: "
        f"{counted(len(inputs) + len(keywords), 'input')} were given",
        f"It takes {counted(len(positional), 'input')} by position; leave the others out.",
    )


def _missing(
    module: torch.nn.Module, call: inspect.BoundArguments, missing: list[inspect.Parameter], origin: str
) -> InputError:
    """Say which parameters of forward() are given and which are not."""
    names = " and ".join(parameter.name for parameter in missing)
    said = f"{_forward(module, call.signature)} needs {names}, which was not given"
    said = f"{said} ({given})" if (given := _given(call)) else said
    if origin != "file" or any(p.kind is p.KEYWORD_ONLY for p in missing):
        return InputError(said, f"Give an example input for each parameter. {_BY_NAME}")
    flags = " ".join(f"--input SHAPE_OF_{parameter.name.upper()}" for parameter in missing)
    return InputError(said, f"Add, after those that are given: {flags}")


def _given(call: inspect.BoundArguments) -> str:
    return ", ".join(f"{name} is {_described(value)}" for name, value in call.arguments.items())


def _described(value: Any) -> str:
    if not isinstance(value, torch.Tensor):
        return f"a {type(value).__name__}"
    values = f" with {int(value.min())} to {int(value.max())}" if value.dtype is torch.int64 and value.numel() else ""
    return f"{str(value.dtype).removeprefix('torch.')} {list(value.shape)}{values}"
