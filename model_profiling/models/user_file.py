"""A model straight from the user's file, without registering anything.

`file.py:Name` names an EagerModelBase class, or anything that gives an nn.Module: a class or a function that is called
without arguments, or a module object. The inputs of one inference are looked for in this order: `get_example_inputs`
or `example_inputs` of the model, then `get_example_inputs` or `example_inputs` of the file. Each is a tensor or a tuple
of tensors, or a function that returns them. `get_example_kwarg_inputs` and `get_dynamic_shapes` are taken along.
"""

import importlib.util
import inspect
import sys
from types import ModuleType
from typing import Any

import torch

from model_profiling.errors import InputError
from model_profiling.models.lookup import CONTRACT, FileTarget

INPUT_NAMES = ("get_example_inputs", "example_inputs")


class FileModel:
    """Keeps EagerModelBase's contract for a module found in a file."""

    weights = "as the model's own code loads them"

    def __init__(self, target: FileTarget, shapes: tuple[tuple[int, ...], ...] = ()) -> None:
        self._target = target
        self._shapes = shapes
        self._file = _import(target)
        self._found = getattr(self._file, target.attribute)
        self._owner: Any = None

    def get_eager_model(self) -> torch.nn.Module:
        found = self._found
        if isinstance(found, torch.nn.Module):
            self._owner = found
        elif callable(found):
            self._owner = self._called(found)
        if hasattr(self._owner, "get_eager_model"):
            self.weights = getattr(self._owner, "weights", self.weights)
            module = self._owner.get_eager_model()
        else:
            module = self._owner
        if not isinstance(module, torch.nn.Module):
            raise InputError(
                f"{self._target.attribute} of {self._target.path} does not give a torch.nn.Module", f"Name {CONTRACT}."
            )
        return module

    def _called(self, found: Any) -> Any:
        try:
            inspect.signature(found).bind()
        except TypeError as error:
            raise InputError(
                f"{self._target.attribute} of {self._target.path} cannot be called without arguments: {error}",
                "Write `def make(): return TheClass(...)` next to it, and name that function instead.",
            ) from None
        except ValueError:
            pass  # written in C: it has no signature to look at
        return found()

    def get_example_inputs(self) -> tuple[Any, ...]:
        if self._shapes:
            return tuple(torch.randn(shape) for shape in self._shapes)
        inputs = self._look_up(*INPUT_NAMES)
        if inputs is None:
            raise InputError(
                f"no example inputs for {self._target.attribute} of {self._target.path}",
                "Add `example_inputs = (torch.randn(1, 3, 224, 224),)` to the class or the file, or give --input-shape "
                "1,3,224,224 (once for each input).",
            )
        return (inputs,) if isinstance(inputs, torch.Tensor) else tuple(inputs)

    def get_example_kwarg_inputs(self) -> Any:
        return self._look_up("get_example_kwarg_inputs")

    def get_dynamic_shapes(self) -> Any:
        return self._look_up("get_dynamic_shapes")

    def _look_up(self, *names: str) -> Any:
        for place in (self._owner, self._file):
            for name in names:
                value = getattr(place, name, None)
                if value is not None:
                    return value() if callable(value) else value
        return None


def _import(target: FileTarget) -> ModuleType:
    """Run the file as `python file.py` would find its neighbours, under a name that meets no other module's."""
    name = f"sme2_kit_user_{target.path.stem}"
    spec = importlib.util.spec_from_file_location(name, target.path.resolve())
    assert spec is not None and spec.loader is not None  # the path ends in .py
    module = importlib.util.module_from_spec(spec)
    sys.modules[name] = module
    # Compiled files would lie beside the user's: nothing is written there, by this import or by those that follow.
    sys.dont_write_bytecode = True
    # It stays on the path: models import their parts when they are built, too.
    folder = str(target.path.resolve().parent)
    if folder not in sys.path:
        sys.path.insert(0, folder)
    spec.loader.exec_module(module)
    return module
