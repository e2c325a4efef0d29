"""A program as a function: called as the model is, it runs in the kit's runner and answers as the model does."""

import contextlib
import hashlib
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
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
from model_profiling.runner.protocol import TensorInfo
from model_profiling.runner.session import ProcessSession
from model_profiling.upstream.captured_graphs import leaves, mapped, named_leaves

_HINT = "Call predict with what forward takes: a tensor, a tuple of positional inputs or a dict of keyword inputs."


class Forward:
    """How a model is called and how it answers, by its example inputs."""

    def __init__(self, model: LoadedModel) -> None:
        self._module, self._inputs, self._keywords = model.module, model.inputs, model.keyword_inputs
        self._result = self._called((self._inputs, self._keywords))
        # torch is told of its dataclasses.
        named_leaves(self._result)

    def _called(self, given: tuple[Any, Any]) -> Any:
        inputs, keywords = samples.as_dtype(own_inputs(given), torch.float32)
        with restored_state(self._module), torch.no_grad():
            return self._module(*inputs, **keywords)

    def eager(self, tensors: list[torch.Tensor]) -> list[torch.Tensor]:
        """Return what eager PyTorch computes of the tensors of a call, in fp32."""
        given, like = iter(tensors), (self._inputs, self._keywords)
        found = self._called(mapped(lambda leaf: next(given) if isinstance(leaf, torch.Tensor) else leaf, like))
        return [leaf for leaf in leaves(found) if isinstance(leaf, torch.Tensor)]

    def tensors(self, given: tuple[Any, ...], keywords: dict[str, Any]) -> list[torch.Tensor]:
        """Return the tensors of a call in the order in which a program takes them."""
        kind = type(self._inputs[0]) if len(self._inputs) == 1 else ()
        if len(given) == 1 and not keywords and not isinstance(given[0], kind):
            only = given[0]
            if isinstance(only, Mapping):
                given, keywords = (), dict(only)
            elif isinstance(only, (tuple, list)):
                given = tuple(only)
        if keywords.keys() != self._keywords.keys() or len(given) != len(self._inputs):
            raise InputError(
                f"predict got {_named(given, keywords)}, not {_named(self._inputs, self._keywords)}", _HINT
            )
        ordered = given, {name: keywords[name] for name in self._keywords}
        return [torch.as_tensor(leaf) for leaf in leaves(ordered) if hasattr(leaf, "__array__")]

    def answer(self, outputs: list[torch.Tensor]) -> Any:
        """Return what a program computed, in the dicts, tuples and classes that the model answers with."""
        given = iter(outputs)
        return mapped(lambda leaf: next(given) if isinstance(leaf, torch.Tensor) else leaf, self._result)


def _named(inputs: tuple[Any, ...], keywords: Mapping[str, Any]) -> str:
    return f"{len(inputs)} inputs by position and by name {', '.join(keywords) or 'none'}"


@contextlib.contextmanager
def predicting(
    forward: Forward,
    made: ExportResult,
    platform: ProcessPlatform,
    threads: int,
    log: Path,
    on_run: Callable[[int], None] = lambda count: None,
) -> Iterator["Predictor"]:
    """Start a program in one process for all calls; `on_run` is told how often it ran."""
    runner = platform.runner(None, model=made.paths.pte)
    with files.scratch_directory("sme2-kit-predict-") as home:
        request = LaunchRequest(runner, made.paths.pte, (), threads, 0, (), log, output_base=home / "output")
        with contextlib.closing(platform.open(request)) as session:
            yield Predictor(forward, made, session, home, on_run)


@contextlib.contextmanager
def predicting_eagerly(forward: Forward) -> Iterator[Callable[..., Any]]:
    """Give what eager PyTorch answers; what is asked again is not computed again, and lies in files until then."""
    with files.scratch_directory("sme2-kit-predict-") as home:
        known: dict[str, list[Path]] = {}

        def predict(*inputs: Any, **keywords: Any) -> Any:
            tensors = forward.tensors(inputs, keywords)
            name = hashlib.sha256(b"".join(map(samples.npy_bytes, tensors))).hexdigest()
            if name not in known:
                found = forward.eager(tensors)
                known[name] = [home / f"{name}-{index}.npy" for index in range(len(found))]
                for path, tensor in zip(known[name], found, strict=True):
                    files.write_bytes(path, samples.npy_bytes(tensor), durable=False)
            return forward.answer([torch.from_numpy(read_npy(path, "output", "")) for path in known[name]])

        yield predict


@dataclass
class Predictor:
    """Runs a program as often as it is called; what is asked again is not run again."""

    forward: Forward
    made: ExportResult
    session: ProcessSession
    home: Path
    on_run: Callable[[int], None]
    # The outputs of each call, which lie in files under its hash: those of all samples may be large.
    known: dict[str, list[TensorInfo]] = field(default_factory=dict)

    def __call__(self, *inputs: Any, **keywords: Any) -> Any:
        if not self.home.exists():
            raise InputError("predict was called after its program ended", "Call the predict that score was given.")
        given = [samples.npy_bytes(tensor) for tensor in self._checked(self.forward.tensors(inputs, keywords))]
        base = self.home / hashlib.sha256(b"".join(given)).hexdigest()
        if base.name not in self.known:
            self.known[base.name] = self._executed(given, base)
            self.on_run(len(self.known))
        described = self.known[base.name]
        outputs = [torch.from_numpy(array) for array in read_outputs(base, described)]
        if len(outputs) != len(described):
            raise RunError("the program's outputs cannot be read", "Outputs are tensors of NumPy's own types.")
        return self.forward.answer([each.float() if each.is_floating_point() else each for each in outputs])

    def _checked(self, tensors: list[torch.Tensor]) -> list[torch.Tensor]:
        """Return the inputs in the program's dtypes; whether it takes smaller ones, the runner knows."""
        wanted = self.made.record.inputs
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

    def _executed(self, inputs: list[bytes], base: Path) -> list[TensorInfo]:
        paths = [self.home / f"input_{index}.npy" for index in range(len(inputs))]
        for path, content in zip(paths, inputs, strict=True):
            files.write_bytes(path, content, durable=False)
        outputs = self.session.predict(paths).outputs
        for written in self.home.glob("output-*.bin"):
            written.rename(written.with_name(written.name.replace("output", base.name, 1)))
        return outputs
