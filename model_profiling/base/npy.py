"""Reads arrays: .npy files and the plain values that a runner writes. Neither is taken at its word for a size."""

from collections.abc import Sequence
from pathlib import Path
from tokenize import TokenError
from typing import Any

from model_profiling.base import files
from model_profiling.base.errors import InputError

# What NumPy raises for a damaged file: it reads the header as a Python literal.
_ERRORS = (ValueError, OSError, EOFError, SyntaxError, TokenError, UnicodeError, MemoryError, OverflowError)


def read_npy(path: Path, what: str, hint: str, limit: int | None = None) -> Any:
    """Return the array of a .npy file, and of no other: not of several in a .npz, and none that would run code."""
    import numpy as np

    try:
        with files.open_file(path) as file:
            if limit is not None and files.size_of(file) > limit:
                raise ValueError(f"it is larger than {limit} bytes")
            return np.lib.format.read_array(file, allow_pickle=False)
    except _ERRORS as error:
        said = (error.strerror if isinstance(error, OSError) else None) or str(error) or type(error).__name__
        raise InputError(f"{what} {path} is not a readable .npy ({said.splitlines()[0][:200]})", hint) from None


def read_values(path: Path, dtype: str, shape: Sequence[int]) -> Any:
    """Return the values of a file that holds nothing else; a ValueError unless it has exactly so many."""
    import numpy as np

    kind, count = np.dtype(dtype), int(np.prod(shape, dtype=object))
    with files.open_file(path) as file:
        if files.size_of(file) != count * kind.itemsize:
            raise ValueError(f"{path} has {files.size_of(file)} bytes, not {count * kind.itemsize}")
        return np.fromfile(file, kind, count).reshape(shape)
