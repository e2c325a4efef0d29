"""What a user may add to a model's name: inputs, settings, a checkpoint; knows nothing of torch."""

import ast
import math
import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from model_profiling.base.errors import InputError

DTYPES = ("float32", "float16", "float64", "int64", "int32", "int16", "int8", "uint8", "bool")
_RANGES = {"int64": (-(2**63), 2**63), "int32": (-(2**31), 2**31), "int16": (-(2**15), 2**15)}
_RANGES |= {"int8": (-128, 128), "uint8": (0, 256)}
INPUT_FORMS = (
    "--input takes a shape (1,3,224,224), a dtype with a shape and a range (int64:1,128:0..30522, without 30522 "
    "itself; bool:1,128), or, with `profile` and `run`, a file (.npy or raw .bin)."
)
# Every embedding has a row 0 and a row 1.
_INTEGERS_BY_DEFAULT = (0, 2)
# File systems take names of 255 bytes; the model's own name, dtype and ending need some of them.
_LONGEST_SUFFIX = 100


@dataclass(frozen=True)
class InputSpec:
    """One random input. Values are from `low` up to but not including `high`; without these, what suits the dtype."""

    shape: tuple[int, ...]
    dtype: str = "float32"
    low: float | None = None
    high: float | None = None

    @property
    def integer(self) -> bool:
        return self.dtype in _RANGES

    @property
    def bounds(self) -> tuple[float, float] | None:
        """The range of values; None for floats from a normal distribution, and for bool."""
        if self.low is not None and self.high is not None:
            return self.low, self.high
        return _INTEGERS_BY_DEFAULT if self.integer else None

    def __str__(self) -> str:
        """As `--input` takes it; what is the default is left out."""
        kind = "" if self.dtype == "float32" else f"{self.dtype}:"
        shape = ",".join(map(str, self.shape)) or "()"
        values = f":{self.low!r}..{self.high!r}" if self.low is not None else ""
        return f"{'float32:' if values and not kind else kind}{shape}{values}"


def input_spec(given: "str | Sequence[int] | InputSpec") -> InputSpec:
    """Return `1,3,224,224`, `int64:1,128:0..30522`, or a plain shape, as one input."""
    if isinstance(given, InputSpec):
        return given
    if not isinstance(given, str):
        return _checked(InputSpec(tuple(int(size) for size in given)), str(tuple(given)))
    dtype, colon, rest = given.partition(":")
    if not colon:
        dtype, rest = "float32", given
    shape, colon, values = rest.partition(":")
    if dtype not in DTYPES:
        hint = f"Use one of {', '.join(DTYPES)}. {INPUT_FORMS}"
        raise InputError(f"--input {given}: there is no dtype {dtype!r}", hint)
    try:
        sizes = () if shape == "()" else tuple(int(size) for size in shape.replace("x", ",").split(","))
    except ValueError:
        raise InputError(f"--input {given} is not a shape", INPUT_FORMS) from None
    return _checked(InputSpec(sizes, dtype, *(_values(values, dtype, given) if colon else ())), given)


def _values(text: str, dtype: str, given: str) -> tuple[float, float]:
    low, dots, high = text.partition("..")
    try:
        number = int if dtype in _RANGES else float
        found = number(low), number(high)
    except ValueError:
        found = None
    if not dots or found is None or not all(map(math.isfinite, found)):
        raise InputError(f"--input {given}: {text!r} is not a range of {dtype} values", INPUT_FORMS)
    return found


def _checked(spec: InputSpec, given: str) -> InputSpec:
    if any(size < 1 for size in spec.shape):
        raise InputError(f"input {given} has a size below 1", INPUT_FORMS)
    if spec.low is None or spec.high is None:
        return spec
    if spec.dtype == "bool":
        raise InputError(f"input {given}: bool inputs take no range", "They are true and false at random.")
    least, most = _RANGES.get(spec.dtype, (-math.inf, math.inf))
    if not least <= spec.low < spec.high <= most:
        raise InputError(f"input {given}: the range holds no {spec.dtype} values, or others too", INPUT_FORMS)
    return spec


@dataclass(frozen=True)
class LoadOptions:
    """`inputs` replace the example inputs of a model from a file; `settings` are arguments of its class or function."""

    inputs: tuple[InputSpec, ...] = ()
    settings: tuple[tuple[str, Any], ...] = ()
    checkpoint: Path | None = None


def settings_of(texts: Iterable[str]) -> dict[str, Any]:
    """Read `KEY=VALUE` of the command line."""
    pairs: dict[str, Any] = {}
    for text in texts:
        key, equals, value = text.partition("=")
        if not equals or not key.isidentifier() or not value or not value.isprintable():
            raise InputError(f"--set {text} is not KEY=VALUE", "For example: --set resolution=512.")
        pairs[key] = setting(value)
    return pairs


def setting(text: str) -> Any:
    """Return a value as it is typed: a Python literal (512, 0.5, None, (1, 2), '512'), true or false; else text."""
    if text in ("true", "false"):
        return text == "true"
    try:
        return ast.literal_eval(text)
    except (ValueError, TypeError, SyntaxError, MemoryError, RecursionError):
        return text


def literal_text(value: Any) -> str | None:
    """Return what is typed for a setting of this value; None if there is no such text."""
    for text in ([value] if isinstance(value, str) else []) + [repr(value)]:
        if text and text.isprintable() and type(setting(text)) is type(value) and repr(setting(text)) == repr(value):
            return text
    return None


def name_suffix(settings: Iterable[tuple[str, Any]]) -> str:
    """Return what settings add to the name of a model's files: `_resolution512`."""
    whole = "".join(f"_{key}{re.sub(r'[^A-Za-z0-9.-]+', '-', str(value)).rstrip('-')}" for key, value in settings)
    if len(whole) <= _LONGEST_SUFFIX:
        return whole
    import hashlib

    return f"{whole[:_LONGEST_SUFFIX]}_{hashlib.sha256(repr(tuple(settings)).encode()).hexdigest()[:8]}"
