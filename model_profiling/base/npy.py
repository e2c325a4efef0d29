"""Reads arrays: .npy files and the plain values that a runner writes. Neither is taken at its word for a size."""

import re
from collections.abc import Sequence
from pathlib import Path
from typing import Any, BinaryIO

from model_profiling.base import files
from model_profiling.base.errors import InputError

# What NumPy writes as a header, and no other Python: NumPy itself evaluates it as an expression. The runner reads the
# same (runner/native/tensors.h).
_ITEM = re.compile(r"\s*'(descr|fortran_order|shape)'\s*:\s*('[^']*'|True|False|\([^()]*\))\s*(?:,|(?=\}))", re.ASCII)
_DTYPE = re.compile(r"'([<>|=]?[a-zA-Z?][0-9]{0,3})'")
_SHAPE = re.compile(r"\(\s*(?:[0-9]{1,18}\s*,\s*)+(?:[0-9]{1,18}\s*)?\)|\(\s*\)", re.ASCII)
_LONGEST_HEADER = 10_000


def read_npy(path: Path, what: str, hint: str, limit: int | None = None) -> Any:
    """Return the array of a .npy file, and of no other: not of several in a .npz, and none that would run code."""
    try:
        with files.open_file(path) as file:
            if limit is not None and files.size_of(file) > limit:
                raise ValueError(f"it is larger than {limit} bytes")
            dtype, shape, order = _header(file)
            return _values(file, dtype, shape, order)
    except (ValueError, TypeError, OSError, MemoryError) as error:
        said = (error.strerror if isinstance(error, OSError) else None) or str(error) or type(error).__name__
        raise InputError(f"{what} {path} is not a readable .npy ({said.splitlines()[0][:200]})", hint) from None


def _header(file: BinaryIO) -> tuple[Any, tuple[int, ...], str]:
    """Return the dtype, the shape and the order of the values that follow; a ValueError unless all three are plain."""
    import numpy as np

    start = file.read(8)
    if start[:6] != b"\x93NUMPY" or start[6:7] not in (b"\1", b"\2", b"\3"):
        raise ValueError("it does not begin as one")
    length = int.from_bytes(file.read(2 if start[6] == 1 else 4), "little")
    text = file.read(min(length, _LONGEST_HEADER)).decode("latin-1")
    found, at = dict[str, str](), 1
    while (item := _ITEM.match(text, at)) is not None and item[1] not in found:
        found[item[1]] = item[2]
        at = item.end()
    whole = len(text) == length and text[:1] == "{" and text[at:].strip(" \t\n\r\f\v") == "}" and len(found) == 3
    dtype = _DTYPE.fullmatch(found.get("descr", ""))
    if not whole or dtype is None or not _SHAPE.fullmatch(found["shape"]) or found["fortran_order"][0] not in "TF":
        raise ValueError("its header is not that of an array of numbers")
    kind = np.dtype(dtype[1])
    if kind.hasobject or not kind.itemsize:
        raise ValueError(f"it holds {kind}, not numbers")
    shape = tuple(int(size) for size in re.findall("[0-9]+", found["shape"]))
    return kind, shape, "F" if found["fortran_order"] == "True" else "C"


def read_values(path: Path, dtype: str, shape: Sequence[int]) -> Any:
    """Return the values of a file that holds nothing else; a ValueError unless it has exactly so many."""
    import numpy as np

    with files.open_file(path) as file:
        return _values(file, np.dtype(dtype), shape)


def _values(file: BinaryIO, kind: Any, shape: Sequence[int], order: Any = "C") -> Any:
    import math

    import numpy as np

    count, left = math.prod(shape), files.size_of(file) - file.tell()
    if left != count * kind.itemsize:
        raise ValueError(f"it has {left} bytes of values, not {count * kind.itemsize}")
    return np.fromfile(file, kind, count).reshape(tuple(shape), order=order)
