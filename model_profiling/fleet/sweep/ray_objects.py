"""Reads what a task left in the object store of a Ray cluster, as bytes and never by unpickling.

`ray.get` reads an object as the machine that wrote it says, and a pickle runs what its writer put into it. So the kit
asks Ray for the bytes and for what they are said to be, and takes plain bytes alone. An exception is a pickle, too:
of one that a task raised only the text is read, which Ray sends beside it.
"""

import importlib
import re
from typing import Any

import msgspec

from model_profiling.base.errors import RunError
from model_profiling.fleet.sweep.parcels import LARGEST
from model_profiling.fleet.sweep.task import printable_line

# What Ray calls `bytes` that a task returned (OBJECT_METADATA_TYPE_RAW).
_BYTES = b"RAW"
# A result is a parcel and a few texts.
_MOST_BYTES = LARGEST + (16 << 20)
_SAME_KIT = "Install the same kit on all nodes."
_OPENS = "deserialize_objects"


def _worker() -> Any:
    """Return this process as Ray sees it."""
    return importlib.import_module("ray._private.worker").global_worker


def forbid_opening() -> None:
    """Keep Ray itself from opening objects in this process: it does so with every error that is thrown away unread."""
    if not callable(getattr(_worker(), _OPENS)):
        raise TypeError(_OPENS)
    setattr(_worker(), _OPENS, lambda *_, **__: [])


def allow_opening() -> None:
    """Allow opening again, for a program that uses Ray after a sweep did."""
    vars(_worker()).pop(_OPENS, None)


class LostError(Exception):
    """Ray has no result: its node, its worker or the object itself is gone."""


def fetch(ref: Any, timeout_s: float) -> memoryview:
    """Return the bytes of a task that has ended; they stay where they are until they are read."""
    data, kind = _stored(ref, timeout_s)
    if re.fullmatch(rb"[0-9]{1,9}", kind):
        raise _failure(int(kind), data)
    if kind != _BYTES:
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
        ((data, kind, *_),) = _worker().core_worker.get_objects([ref], int(timeout_s * 1000))
    except errors.RayError as error:
        raise LostError(type(error).__name__) from None
    return data, bytes(kind or b"")


def _failure(number: int, data: Any) -> Exception:
    """Return what went wrong, by Ray's number of it (ErrorType in its common.proto)."""
    proto: Any = importlib.import_module("ray.core.generated.common_pb2")
    if number == proto.ErrorType.Value("TASK_EXECUTION_EXCEPTION"):
        return RunError(f"a node could not begin: {_raised(proto, data)}", _SAME_KIT)
    known = proto.ErrorType.DESCRIPTOR.values_by_number.get(number)
    return LostError(known.name if known is not None else f"error {number}")


def _raised(proto: Any, data: Any) -> str:
    """Return the last line of what a task raised."""
    raylet: Any = importlib.import_module("ray._raylet")
    try:
        message = msgspec.msgpack.decode(raylet.split_buffer(data)[0], type=bytes)
        text = proto.RayException.FromString(message).formatted_exception_string
    except Exception as error:  # noqa: BLE001 - whatever Ray's readers raise for damaged bytes
        return f"what it raised cannot be read ({type(error).__name__})"
    return printable_line(text.strip().rpartition("\n")[2], 300)
