"""Ray's own view of this process, through which objects are read as bytes and messages are kept off the screen."""

import importlib
from collections.abc import Callable
from typing import Any

import msgspec

from model_profiling.upstream.reliance import Reliance, holds, installed_version

_WORKER = "ray._private.worker"
_OPENS = "deserialize_objects"
_PRINTS = "print_to_stdstream"
# What Ray calls `bytes` that a task returned (OBJECT_METADATA_TYPE_RAW).
BYTES = b"RAW"


def _worker() -> Any:
    """Return this process as Ray sees it."""
    return importlib.import_module(_WORKER).global_worker


def stored_object(ref: Any, timeout_s: float) -> tuple[Any, bytes]:
    """Return an object as Ray keeps it: its buffer, and what the machine that wrote it says it is."""
    ((data, kind, *_),) = _worker().core_worker.get_objects([ref], int(timeout_s * 1000))
    return data, bytes(kind or b"")


def forbid_opening() -> None:
    """Keep Ray itself from opening objects in this process: it does so with every error that is thrown away unread."""
    setattr(_worker(), _OPENS, lambda *_, **__: [])


def allow_opening() -> None:
    """Allow opening again, for a program that uses Ray after a sweep did."""
    vars(_worker()).pop(_OPENS, None)


def print_elsewhere(say: Callable[..., None]) -> None:
    """Let `say` have what a thread of Ray would print; nothing changes if this Ray prints in another way."""
    if holds(MESSAGES):
        setattr(importlib.import_module(_WORKER), _PRINTS, say)


def error_types() -> Any:
    """Return the module with Ray's numbers of errors and the message of one that a task raised."""
    return importlib.import_module("ray.core.generated.common_pb2")


def ask_cluster(address: str) -> None:
    """Open a connection to the head of a cluster, in the way that this process may."""
    core: Any = importlib.import_module("ray._raylet")
    core.GcsClient(address=address)


def raised_text(proto: Any, data: Any) -> str:
    """Return what a task raised, as text, from the buffer that Ray keeps of it; raises whatever Ray's readers raise."""
    raylet: Any = importlib.import_module("ray._raylet")
    message = msgspec.msgpack.decode(raylet.split_buffer(data)[0], type=bytes)
    return str(proto.RayException.FromString(message).formatted_exception_string)


def _check_objects() -> str:
    version = installed_version("ray")
    reads = getattr(importlib.import_module("ray._raylet").CoreWorker, "get_objects", None)
    if not callable(reads) or not callable(getattr(_worker(), _OPENS, None)):
        return f"Ray {version} has no CoreWorker.get_objects or no {_WORKER}.global_worker.{_OPENS}"
    return ""


def _check_messages() -> str:
    version = installed_version("ray")
    found = callable(getattr(importlib.import_module(_WORKER), _PRINTS, None))
    return "" if found else f"Ray {version} has no {_WORKER}.{_PRINTS}"


OBJECTS = Reliance(
    "ray-objects",
    "Ray",
    f"{_WORKER}.global_worker: core_worker.get_objects returns bytes with their kind, {_OPENS} unpickles",
    "Ray 2.59, 2.60",
    "the attributes are there; every connection stores some bytes and reads them back",
    _check_objects,
    "sweep --ray refuses this Ray: its objects could only be read by running what a node sent",
)
MESSAGES = Reliance(
    "ray-messages",
    "Ray",
    f"{_WORKER}.{_PRINTS} prints messages of workers",
    "Ray 2.59, 2.60",
    "the function is there",
    _check_messages,
    "messages of Ray's workers appear on the screen",
)
RELIANCES = (OBJECTS, MESSAGES)
