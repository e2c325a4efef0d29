"""XNNPACK's partitioner from inside: why it leaves a node out, what it knows, and how it is told to take less."""

import contextlib
import functools
import logging
from collections.abc import Callable, Collection, Iterator
from typing import Any

from model_profiling.upstream.reliance import PROVEN_BOTH, Reliance, holds

_LOGGER = "executorch.backends.xnnpack.partition"
# Gets a node and why it was left out.
Listener = Callable[[Any, str], None]


class _Reasons(logging.Handler):
    """Hears the partitioner's reasons, which it tells only to its debug log."""

    def __init__(self, hear: Listener) -> None:
        super().__init__(logging.DEBUG)
        self._hear = hear

    def emit(self, record: logging.LogRecord) -> None:
        # The message of such a record is the partitioner's WhyNoPartition object itself.
        node, reason = getattr(record.msg, "node", None), getattr(record.msg, "reason", "")
        if node is not None and reason:
            self._hear(node, str(reason))


@contextlib.contextmanager
def listening(hear: Listener) -> Iterator[None]:
    """Listen to the partitioner while the block runs."""
    logger, handler = logging.getLogger(_LOGGER), _Reasons(hear)
    level, propagate = logger.level, logger.propagate
    logger.setLevel(logging.DEBUG)
    logger.propagate = False
    logger.addHandler(handler)
    try:
        yield
    finally:
        logger.removeHandler(handler)
        logger.setLevel(level)
        logger.propagate = propagate


def supported_operators() -> frozenset[str] | None:
    """Return the operators that XNNPACK's partitioner knows, as `add.Tensor`; None if that is not known."""
    return _supported() if holds(CONFIGURATIONS) else None


@functools.cache
def _supported() -> frozenset[str]:
    from executorch.backends.xnnpack.partition.xnnpack_partitioner import XnnpackPartitioner

    return frozenset(XnnpackPartitioner().target_partitioner_configs)


def leave_out(partitioner: Any, names: Collection[str]) -> Any:
    """Return the same partitioner, which takes none of these; an operator that it leaves out is decomposed as usual.

    Also without its check of its callers, which warns of a way to call it that is not ours. If a caller has no file
    (code of a notebook, of a test's worker), that is a search through all modules, every time.
    """

    def refusing(takes: Any) -> Any:
        def check(node: Any, program: Any) -> bool:
            # As the captured graph and the edge graph call it.
            called = {node.name, str(node.target), getattr(node.target, "__name__", "")}
            return called.isdisjoint(names) and bool(takes(node, program))

        return check

    for config in partitioner.target_partitioner_configs.values() if names else ():
        config.check_constraints = refusing(config.check_constraints)
    if holds(CONFIGURATIONS):
        partitioner._check_if_called_from_to_backend = lambda: False
    return partitioner


def _check_reasons() -> str:
    from executorch.backends.xnnpack.partition.config import xnnpack_config

    class Node:
        name = "a node"

    heard: list[tuple[Any, str]] = []
    node = Node()
    with listening(lambda *said: heard.append(said)):
        xnnpack_config.why(node, reason="a reason")
    return "" if heard == [(node, "a reason")] else "XNNPACK's partitioner does not log its reasons as objects"


def _check_configurations() -> str:
    from executorch.backends.xnnpack.partition.xnnpack_partitioner import XnnpackPartitioner

    partitioner = XnnpackPartitioner()
    configs = partitioner.target_partitioner_configs
    known = "add.Tensor" in configs and all(callable(each.check_constraints) for each in configs.values())
    if not known or not callable(partitioner._check_if_called_from_to_backend):
        return "XnnpackPartitioner has no table of operators with checks of nodes"
    return ""


REASONS = Reliance(
    "partitioner-reasons",
    "ExecuTorch",
    f"the logger {_LOGGER} gets WhyNoPartition objects with the node and the reason",
    PROVEN_BOTH,
    "a reason is given to the partitioner's own reporter, and heard",
    _check_reasons,
    "why an operator was not delegated is unknown",
)
CONFIGURATIONS = Reliance(
    "partitioner-configurations",
    "ExecuTorch",
    "XnnpackPartitioner.target_partitioner_configs maps names of operators to checks, check_constraints",
    PROVEN_BOTH,
    "the table has addition, and every row a check",
    _check_configurations,
    "which operators XNNPACK knows is unknown, and of a program that fails, which operator is at fault",
)
RELIANCES = (REASONS, CONFIGURATIONS)
