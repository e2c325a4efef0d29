"""A program as a function: called as the model is, it runs in the kit's runner and answers as the model does."""

import contextlib
import hashlib
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any

import torch

from model_profiling.analysis.accuracy.agreement import read_outputs
from model_profiling.base import files
from model_profiling.base.errors import InputError, RunError
from model_profiling.base.npy import read_npy
from model_profiling.export.prepare import samples
from model_profiling.export.request import ExportResult
from model_profiling.models.loading import LoadedModel
from model_profiling.models.state import own_inputs, restored_state
from model_profiling.platforms.base import LaunchRequest
from model_profiling.platforms.process_platform import ProcessPlatform
from model_profiling.store.artifacts import TensorFile
from model_profiling.upstream.captured_graphs import Call, leaves, named_leaves, tensors_of, with_tensors

_HINT = "Call predict with what forward takes: a tensor, a tuple of positional inputs or a dict of keyword inputs."


class Forward:
    """How a model is called and how it answers, by its example inputs."""

    def __init__(self, model: LoadedModel) -> None:
        self._module, self._call = model.module, model.call
        self._result = self._called(self._call)
        # torch is told of its dataclasses.
        named_leaves(self._result)

    def _called(self, given: Call) -> Any:
        inputs, keywords = samples.as_dtype(own_inputs(given), torch.float32)
        with restored_state(self._module), torch.no_grad():
            return self._module(*inputs, **keywords)

    def eager(self, tensors: list[torch.Tensor]) -> list[torch.Tensor]:
        """Return what eager PyTorch computes of the tensors of a call, in fp32."""
        return tensors_of(self._called(with_tensors(self._call, tensors)))

    def tensors(self, given: tuple[Any, ...], keywords: dict[str, Any]) -> list[torch.Tensor]:
        """Return the tensors of a call in the order in which a program takes them."""
        inputs, names = self._call
        kind = type(inputs[0]) if len(inputs) == 1 else ()
        if len(given) == 1 and not keywords and not isinstance(given[0], kind):
            only = given[0]
            if isinstance(only, Mapping):
                given, keywords = (), dict(only)
            elif isinstance(only, (tuple, list)):
                given = tuple(only)
        if keywords.keys() != names.keys() or len(given) != len(inputs):
            raise InputError(f"predict got {_named(given, keywords)}, not {_named(inputs, names)}", _HINT)
        ordered = given, {name: keywords[name] for name in names}
        return [torch.as_tensor(leaf) for leaf in leaves(ordered) if hasattr(leaf, "__array__")]

    def answer(self, outputs: list[torch.Tensor]) -> Any:
        """Return what a program computed, in the dicts, tuples and classes that the model answers with."""
        return with_tensors(self._result, outputs)


def _named(inputs: tuple[Any, ...], keywords: Mapping[str, Any]) -> str:
    return f"{len(inputs)} inputs by position and by name {', '.join(keywords) or 'none'}"


class Predictor:
    """Answers as the model does. What is asked again is not computed again, and lies in files until then: the outputs
    of all samples may be large."""

    def __init__(
        self,
        forward: Forward,
        home: Path,
        compute: Callable[[list[torch.Tensor]], list[torch.Tensor]],
        on_run: Callable[[int], None] = lambda count: None,
    ) -> None:
        self._forward, self._home, self._compute, self._on_run = forward, home, compute, on_run
        self._known: dict[str, list[Path]] = {}

    def __call__(self, *inputs: Any, **keywords: Any) -> Any:
        if not self._home.exists():
            raise InputError("predict was called after its program ended", "Call the predict that score was given.")
        tensors = self._forward.tensors(inputs, keywords)
        name = hashlib.sha256(b"".join(map(samples.npy_bytes, tensors))).hexdigest()
        if name not in self._known:
            found = self._compute(tensors)
            paths = [self._home / f"{name}-{index}.npy" for index in range(len(found))]
            for path, tensor in zip(paths, found, strict=True):
                files.write_bytes(path, samples.npy_bytes(tensor), durable=False)
            self._known[name] = paths
            self._on_run(len(self._known))
        return self._forward.answer([torch.from_numpy(read_npy(path, "output", "")) for path in self._known[name]])


@contextlib.contextmanager
def predicting_eagerly(forward: Forward) -> Iterator[Predictor]:
    """Give what eager PyTorch answers."""
    with files.scratch_directory("sme2-kit-predict-") as home:
        yield Predictor(forward, home, forward.eager)


@contextlib.contextmanager
def predicting(
    forward: Forward,
    made: ExportResult,
    platform: ProcessPlatform,
    threads: int,
    log: Path,
    on_run: Callable[[int], None] = lambda count: None,
) -> Iterator[Predictor]:
    """Start a program in one process for all calls; `on_run` is told how often it ran."""
    runner = platform.runner(None, model=made.paths.pte)
    with files.scratch_directory("sme2-kit-predict-") as home:
        request = LaunchRequest(runner, made.paths.pte, (), threads, 0, (), log, output_base=home / "output")
        with contextlib.closing(platform.open(request)) as session:

            def execute(tensors: list[torch.Tensor]) -> list[torch.Tensor]:
                given = _checked(tensors, made.record.inputs)
                paths = [home / f"input_{index}.npy" for index in range(len(given))]
                for path, tensor in zip(paths, given, strict=True):
                    files.write_bytes(path, samples.npy_bytes(tensor), durable=False)
                described = session.predict(paths).outputs
                outputs = [torch.from_numpy(array) for array in read_outputs(home / "output", described)]
                if len(outputs) != len(described):
                    raise RunError("the program's outputs cannot be read", "Outputs are tensors of NumPy's own types.")
                return [each.float() if each.is_floating_point() else each for each in outputs]

            yield Predictor(forward, home, execute, on_run)


def _checked(tensors: list[torch.Tensor], wanted: list[TensorFile]) -> list[torch.Tensor]:
    """Return the inputs in the program's dtypes; whether it takes smaller ones, the runner knows."""
    if len(tensors) != len(wanted):
        raise InputError(f"predict got {len(tensors)} tensors, and the program takes {len(wanted)}", _HINT)
    found = []
    for index, (tensor, like) in enumerate(zip(tensors, wanted, strict=True)):
        shape, dtype = list(tensor.shape), getattr(torch, like.dtype)
        pairs = zip(shape, like.shape, strict=False)
        too_large = len(shape) != len(like.shape) or any(ours > most for ours, most in pairs)
        if too_large or tensor.is_floating_point() != dtype.is_floating_point:
            given = f"{samples.dtype_name(tensor)} {shape}"
            raise InputError(
                f"input {index} of a sample is {given}, and the program takes {like.dtype} {like.shape}",
                "Give samples one by one, with the shapes and types of the model's example inputs.",
            )
        found.append(tensor.to(dtype))
    return found
