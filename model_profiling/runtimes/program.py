"""What a runtime's module gives: a loaded program that can be called; and the inputs that it is called with."""

from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, NamedTuple, Protocol

from model_profiling.base.errors import KitError
from model_profiling.base.npy import read_npy, read_values
from model_profiling.runner.protocol import Exit


class ProcessError(Exception):
    """What went wrong, with the exit code that says it to the pipeline, and what to do about it if that is known."""

    def __init__(self, code: Exit, message: str, hint: str = "") -> None:
        super().__init__(message)
        self.code = code
        self.hint = hint


@dataclass(frozen=True)
class LaunchOptions:
    """What the process was asked for, as the kit's runner is."""

    model: Path
    inputs: tuple[Path, ...]
    threads: int
    # Where to write a profile of operators; and where what is compiled may stay for the next launch.
    profile: Path | None = None
    cache: Path | None = None


class LoadedProgram(Protocol):
    """A loaded model. `run` is what is timed, and nothing else."""

    backends: list[str]
    # What decides how fast it is and is not the kit's choice to hide: defaults of the runtime among them.
    settings: dict[str, str]
    inputs: list[Any]

    def run(self) -> None:
        """Execute once; inputs are in place, and outputs stay until the next time."""

    def outputs(self) -> list[Any]:
        """Return the outputs of the last execution as NumPy's arrays."""

    def write_profile(self, path: Path) -> None:
        """Write the profile of all executions, those of the warm-up first."""
        raise ProcessError(Exit.USAGE, "the profile of this runtime is not asked for")


class WantedInput(NamedTuple):
    """An input as the model declares it; -1 for a size that it leaves open."""

    name: str
    dtype: str
    shape: tuple[int, ...]


@dataclass
class Arranged:
    """The inputs as the model takes them, and in words what was changed to get there."""

    arrays: list[Any] = field(default_factory=list)
    notes: dict[str, str] = field(default_factory=dict)


def arranged_inputs(files: Sequence[Path], wanted: Sequence[WantedInput]) -> Arranged:
    """Read one file per input, or make ones; floating-point values get the type that the model takes, and an image is
    turned for a model that takes its channels last."""
    if files and len(files) != len(wanted):
        names = ", ".join(each.name for each in wanted)
        raise ProcessError(Exit.INPUTS_WRONG, f"the model takes {len(wanted)} inputs ({names}), not {len(files)}")
    result = Arranged()
    for index, each in enumerate(wanted):
        array = _read(files[index], each) if files else _ones(each)
        result.arrays.append(_fitted(array, each, index, result.notes))
    return result


def _ones(wanted: WantedInput) -> Any:
    import numpy as np

    # A file may claim any size; ones would have to lie in memory.
    if (large := int(np.prod(wanted.shape, dtype=object)) > 1 << 28) or min(wanted.shape, default=0) < 0:
        raise ProcessError(
            Exit.INPUTS_WRONG,
            f"input {wanted.name} has {'too large a' if large else 'no fixed'} shape ({_shape(wanted.shape)})",
            "Give a file for every input: --input x.npy.",
        )
    return np.ones(wanted.shape, wanted.dtype)


def _read(path: Path, wanted: WantedInput) -> Any:
    try:
        if path.suffix == ".npy":
            return read_npy(path, "input file", "Give a .npy of numbers.")
        return read_values(path, wanted.dtype, wanted.shape)
    except (OSError, ValueError) as error:
        raise ProcessError(Exit.INPUTS_WRONG, f"input file {path}: {error}") from None
    except KitError as error:
        raise ProcessError(Exit.INPUTS_WRONG, error.message, error.hint) from None


def _fitted(array: Any, wanted: WantedInput, index: int, notes: dict[str, str]) -> Any:
    import numpy as np

    target = np.dtype(wanted.dtype)
    if array.dtype != target and array.dtype.kind == "f" and target.kind == "f":
        notes[f"input {index}"] = f"converted from {array.dtype} to {target}"
        array = array.astype(target)
    turned = array.transpose(0, 2, 3, 1) if array.ndim == 4 else array
    if not _fits(array.shape, wanted.shape) and _fits(turned.shape, wanted.shape):
        notes[f"layout of input {index}"] = "channels last, as the file takes it"
        array = turned
    if array.dtype != target or not _fits(array.shape, wanted.shape):
        raise ProcessError(
            Exit.INPUTS_WRONG,
            f"input {index} ({wanted.name}) is {array.dtype} {_shape(array.shape)}, "
            f"and the model takes {target} {_shape(wanted.shape)}",
        )
    return np.ascontiguousarray(array).reshape(array.shape)


def _fits(shape: Sequence[int], wanted: Sequence[int]) -> bool:
    return len(shape) == len(wanted) and all(b in (-1, a) for a, b in zip(shape, wanted, strict=True))


def _shape(sizes: Sequence[int]) -> str:
    return f"[{', '.join('?' if size < 0 else str(size) for size in sizes)}]"
