"""Why a model does not take its example inputs: their number, or an input's dtype or values, found by trying others."""

import contextlib
import inspect
import itertools
import re
import time
import traceback
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import torch
from torch.overrides import TorchFunctionMode

from model_profiling.base.errors import InputError, KitError
from model_profiling.base.units import counted
from model_profiling.models.options import DTYPES, InputSpec
from model_profiling.models.state import restored_state
from model_profiling.upstream.captured_graphs import leaves, mapped

# How long to try other inputs, and how many of them to change at once.
_LONGEST_S = 20.0
_MOST_CHANGED = 3
_BY_NAME = "`get_example_kwarg_inputs` of the class or the file returns those given by name."
_KINDS = (torch.float32, torch.int64, torch.bool)


@contextlib.contextmanager
def explained_call(
    module: torch.nn.Module, inputs: tuple[Any, ...], keywords: dict[str, Any], origin: str
) -> Iterator[None]:
    """Turn the failure of a call of `module` into an error that names the inputs at fault, if they are."""
    try:
        signature = inspect.signature(module.forward)
    except (TypeError, ValueError):
        yield  # written in C, or scripted
        return
    try:
        call = signature.bind_partial(*inputs, **keywords)
    except TypeError:
        raise _too_many(module, signature, inputs, keywords) from None
    missing = [p for p in signature.parameters.values() if _required(p) and p.name not in call.arguments]
    try:
        if missing:
            raise TypeError("an input is missing")
        yield
    except KitError:
        raise
    except Exception as error:
        found = _refused(module, call, error, origin) or (_missing(module, call, missing, origin) if missing else None)
        if found is None:
            raise
        raise found from error


def own_line(error: BaseException) -> str:
    """Return ` (at net.py:12)`: the innermost line that belongs neither to a package nor to the kit's own loading."""
    machinery = r"/site-packages/|/lib/python3|/model_profiling/(export/|models/[a-z_]+\.py$)|^<"
    own = [f for f in traceback.extract_tb(error.__traceback__) if not re.search(machinery, f.filename)]
    return f" (at {Path(own[-1].filename).name}:{own[-1].lineno})" if own else ""


def _required(parameter: inspect.Parameter) -> bool:
    return parameter.default is parameter.empty and parameter.kind not in (
        parameter.VAR_POSITIONAL,
        parameter.VAR_KEYWORD,
    )


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
    """Say which parameters of forward() are given and which are not; no input that was tried for them fits."""
    given = [f"{name} is {_described(value)}" for name, value in call.arguments.items()]
    names = " and ".join(parameter.name for parameter in missing)
    said = f"{_forward(module, call.signature)} needs {names}, which was not given"
    said = f"{said} ({', '.join(given)})" if given else said
    if origin != "file" or any(p.kind is p.KEYWORD_ONLY for p in missing):
        return InputError(said, f"Give an example input for each parameter. {_BY_NAME}")
    flags = " ".join(f"--input SHAPE_OF_{parameter.name.upper()}" for parameter in missing)
    return InputError(said, f"Add, after those that are given: {flags}")


def _described(value: Any) -> str:
    if not isinstance(value, torch.Tensor):
        return f"a {type(value).__name__}"
    return f"{_name(value)} {list(value.shape)}"


def _name(value: torch.Tensor) -> str:
    return str(value.dtype).removeprefix("torch.")


def _refused(module: torch.nn.Module, call: inspect.BoundArguments, error: Exception, origin: str) -> InputError | None:
    """Return which inputs are missing, or need another dtype or smaller values: the fewest that make the model run."""
    tries = _Tries(module, call)
    changed = tries.fewest_changes()
    if not changed:
        return None
    arguments = call.arguments | changed
    whole = {name: arguments[name] for name in call.signature.parameters if name in arguments}
    integers = [name for name, value in whole.items() if isinstance(value, torch.Tensor) and _integer(value)]
    rows = {name: tries.rows(changed, name, whole[name]) for name in integers}
    faults = [_fault(name, call.arguments.get(name), value, rows.get(name)) for name, value in changed.items()]
    said = f"{_forward(module, call.signature)} {'; '.join(faults)}{own_line(error)}"
    flags = [
        f"--input {InputSpec(tuple(value.shape), _name(value), *((0, high) if (high := rows.get(name)) else ()))}"
        for name, value in whole.items()
        if isinstance(value, torch.Tensor) and _name(value) in DTYPES
    ]
    in_order = list(whole) == list(call.signature.parameters)[: len(flags)] and not tries.bound(changed).kwargs
    if origin == "file" and in_order:
        return InputError(said, f"The model runs with: {' '.join(flags)}")
    made = [f"{_made(value, rows.get(name))} as {name}" for name, value in changed.items()]
    by_name = f" {_BY_NAME}" if tries.bound(changed).kwargs else ""
    return InputError(said, f"The model runs with {' and '.join(made)}.{by_name}")


def _fault(name: str, was: torch.Tensor | None, value: torch.Tensor, high: int | None) -> str:
    if was is None:
        return f"needs {name}, which was not given"
    if value.dtype is was.dtype:
        known = f"0 to {high - 1}" if high else "smaller values"
        return f"takes {known} in {name}, and was given {int(was.min())} to {int(was.max())}"
    kind = {torch.bool: "true and false", torch.float32: "floats"}.get(value.dtype, "integers")
    return f"needs {kind} in {name}, and was given {_described(was)}"


def _made(value: torch.Tensor, high: int | None) -> str:
    shape = tuple(value.shape)
    if _integer(value):
        return f"torch.randint({high or 2}, {shape})"
    return f"torch.ones({shape}, dtype=torch.bool)" if value.dtype is torch.bool else f"torch.randn({shape})"


class _Tries:
    """Calls of a model with other inputs, until the time is over; its buffers stay as they are."""

    def __init__(self, module: torch.nn.Module, call: inspect.BoundArguments) -> None:
        self._module, self._call, self._end = module, call, time.monotonic() + _LONGEST_S

    def bound(self, changed: dict[str, torch.Tensor]) -> inspect.BoundArguments:
        """Return a call with these in place of some inputs, and with copies of the others."""
        whole = self._call.arguments | changed
        names = [name for name in self._call.signature.parameters if name in whole]
        copies = {name: mapped(_copy, whole[name]) for name in names}
        return inspect.BoundArguments(self._call.signature, copies)

    def runs(self, changed: dict[str, torch.Tensor]) -> bool:
        if time.monotonic() > self._end:
            return False
        call = self.bound(changed)
        try:
            with restored_state(self._module), torch.no_grad():
                self._module(*call.args, **call.kwargs)
        except Exception:  # noqa: BLE001 - how a model refuses an input is its own affair
            return False
        return True

    def fewest_changes(self) -> dict[str, torch.Tensor]:
        """Return the fewest inputs that make the model run if they are added, or are of another dtype or small."""
        given = {name: each for name, each in self._call.arguments.items() if isinstance(each, torch.Tensor)}
        others = {name: _others(value) for name, value in given.items()}
        shapes = dict.fromkeys(tuple(value.shape) for value in given.values())
        absent = [
            parameter
            for name, parameter in self._call.signature.parameters.items()
            if name not in self._call.arguments and (_required(parameter) or parameter.default is None)
        ]
        others |= {p.name: [torch.zeros(shape, dtype=kind) for shape in shapes for kind in _KINDS] for p in absent}
        needed = {parameter.name for parameter in absent if _required(parameter)}
        for count in range(1, min(_MOST_CHANGED, len(others)) + 1):
            for names in itertools.combinations(others, count):
                for values in itertools.product(*(others[name] for name in names)) if needed <= {*names} else ():
                    if self.runs(changed := dict(zip(names, values, strict=True))):
                        return changed
        return {}

    def rows(self, changed: dict[str, torch.Tensor], name: str, value: torch.Tensor) -> int | None:
        """Return how many values an index may have: the size among those of indexed tensors that it must stay below."""
        with _IndexedSizes() as seen:
            self.runs(changed)
        for size in sorted(seen.sizes):
            if not self.runs(changed | {name: torch.full_like(value, size)}):
                return size if self.runs(changed | {name: torch.full_like(value, size - 1)}) else None
        return None


def _copy(leaf: Any) -> Any:
    return leaf.clone() if isinstance(leaf, torch.Tensor) else leaf


class _IndexedSizes(TorchFunctionMode):  # type: ignore[misc]
    """Notes the sizes of what a function of torch that is given integers takes and returns."""

    def __init__(self) -> None:
        super().__init__()
        self.sizes: set[int] = set()

    def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        result = func(*args, **(kwargs or {}))
        tensors = [leaf for leaf in leaves((args, kwargs, result)) if isinstance(leaf, torch.Tensor)]
        if any(map(_integer, tensors)):
            self.sizes |= {size for tensor in tensors for size in tensor.shape if size}
        return result


def _integer(value: torch.Tensor) -> bool:
    return not (value.is_floating_point() or value.is_complex() or value.dtype is torch.bool)


def _others(value: torch.Tensor) -> list[torch.Tensor]:
    """Return what else an input may have to be: the smallest indices, and tensors of other kinds."""
    same = [torch.zeros_like(value)] if _integer(value) else []
    kind = (torch.int64,) if _integer(value) else (torch.float32,) if value.is_floating_point() else (value.dtype,)
    return [*same, *(torch.zeros(value.shape, dtype=dtype) for dtype in _KINDS if dtype not in kind)]
