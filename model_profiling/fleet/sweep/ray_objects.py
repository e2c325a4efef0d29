"""Reads what a task left in the object store of a Ray cluster, as bytes and never by unpickling.

`ray.get` reads an object as the machine that wrote it says, and a pickle runs what its writer put into it. So the kit
asks Ray for the bytes and for what they are said to be, and takes plain bytes alone. An exception is a pickle, too:
of one that a task raised only the text is read, which Ray sends beside it.
"""

import importlib
import re
from typing import Any

from model_profiling.base.errors import RunError
from model_profiling.fleet.sweep.parcels import LARGEST
from model_profiling.fleet.sweep.task import printable_line
from model_profiling.upstream import ray_worker

# A result is a parcel and a few texts.
_MOST_BYTES = LARGEST + (16 << 20)
_SAME_KIT = "Install the same kit on all nodes."


class LostError(Exception):
    """Ray has no result: its node, its worker or the object itself is gone."""


def fetch(ref: Any, timeout_s: float) -> memoryview:
    """Return the bytes of a task that has ended; they stay where they are until they are read."""
    data, kind = _stored(ref, timeout_s)
    if re.fullmatch(rb"[0-9]{1,9}", kind):
        raise _failure(int(kind), data)
    if kind != ray_worker.BYTES:
        raise RunError(
            f"a node sent an object that is no result ({printable_line(repr(kind), 40)}); it was not opened", _SAME_KIT
        )
    found = memoryview(data if data is not None else b"")
    if found.nbytes > _MOST_BYTES:
        raise RunError(f"a node sent {found.nbytes >> 20} MiB, more than any result has", _SAME_KIT)
    return found


def _stored(ref: Any, timeout_s: float) -> tuple[Any, bytes]:
    """Return an object as Ray keeps it: its buffer, and what the machine that wrote it says it is."""
    errors: Any = importlib.import_module("ray.exceptions")
    try:
        return ray_worker.stored_object(ref, timeout_s)
    except errors.RayError as error:
        raise LostError(type(error).__name__) from None


def _failure(number: int, data: Any) -> Exception:
    """Return what went wrong, by Ray's number of it (ErrorType in its common.proto)."""
    proto = ray_worker.error_types()
    if number == proto.ErrorType.Value("TASK_EXECUTION_EXCEPTION"):
        return RunError(f"a node could not begin: {_raised(proto, data)}", _SAME_KIT)
    known = proto.ErrorType.DESCRIPTOR.values_by_number.get(number)
    return LostError(known.name if known is not None else f"error {number}")


def _raised(proto: Any, data: Any) -> str:
    """Return the last line of what a task raised."""
    try:
        text = ray_worker.raised_text(proto, data)
    except Exception as error:  # noqa: BLE001 - whatever Ray's readers raise for damaged bytes
        return f"what it raised cannot be read ({type(error).__name__})"
    return printable_line(text.strip().rpartition("\n")[2], 300)
