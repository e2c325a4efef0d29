"""Private parts of Ray: messages of its workers are kept off the screen, and a cluster is asked who may connect."""

import importlib
from collections.abc import Callable
from typing import Any

from model_profiling.upstream.reliance import holds, lacking, reliance

_WORKER = "ray._private.worker"
_PRINTS = "print_to_stdstream"


def print_elsewhere(say: Callable[..., None]) -> None:
    """Let `say` have what a thread of Ray would print; nothing changes if this Ray prints in another way."""
    if holds(MESSAGES):
        setattr(importlib.import_module(_WORKER), _PRINTS, say)


def ask_cluster(address: str) -> None:
    """Open a connection to the head of a cluster, in the way that this process may."""
    core: Any = importlib.import_module("ray._raylet")
    core.GcsClient(address=address)


MESSAGES = reliance("ray-messages", lambda: lacking(f"{_WORKER}:{_PRINTS}"))
