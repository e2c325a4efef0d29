"""XNNPACK's quantizer with fewer patterns, its partitioner from inside, and which passes it runs on a delegate."""

import contextlib
import functools
import logging
from collections.abc import Callable, Collection, Iterator, Mapping
from threading import get_ident
from typing import Any

from model_profiling.upstream.captured_graphs import origin
from model_profiling.upstream.patching import Block, Replacement, replaced_here
from model_profiling.upstream.reliance import holds, lacking, reliance


def quantizer(linear_only: bool, is_linear: Callable[[Any], bool], allowed: Callable[[Any], bool]) -> Any:
    """Return XNNPACK's quantizer for the operators that `allowed` allows, or of these the linear layers only.

    Without the patterns of models in training, which take a quarter of an export to prepare.
    """
    from executorch.backends.xnnpack.quantizer.xnnpack_quantizer import XNNPACKQuantizer

    if not holds(PATTERNS):
        only = (lambda node: allowed(node) and is_linear(node)) if linear_only else allowed
        return XNNPACKQuantizer().set_filter_function(only)

    class TrainedQuantizer(XNNPACKQuantizer):  # type: ignore[misc]
        SUPPORTED_PATTERNS = [  # noqa: RUF012 - as its base has it
            pattern
            for pattern in XNNPACKQuantizer.SUPPORTED_PATTERNS
            if not pattern.is_qat and (not linear_only or pattern.name == "linear")
        ]

    return TrainedQuantizer().set_filter_function(allowed)


def _check_patterns() -> str:
    from executorch.backends.xnnpack.quantizer.xnnpack_quantizer import XNNPACKQuantizer

    patterns = {each.name: each.is_qat for each in XNNPACKQuantizer.SUPPORTED_PATTERNS}
    known = patterns.get("linear") is False and patterns.get("conv") is False and patterns.get("conv_bn") is True
    return "" if known else "XNNPACKQuantizer has no SUPPORTED_PATTERNS with names and is_qat"


PATTERNS = reliance("quantizer-patterns", _check_patterns)

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
    """Return the same partitioner, which takes none of these, nor what they are decomposed into.

    Also without its check of its callers, which warns of a way to call it that is not ours. If a caller has no file
    (code of a notebook, of a test's worker), that is a search through all modules, every time.
    """

    from executorch.backends.xnnpack.partition.config.xnnpack_config import why

    def refusing(takes: Any) -> Any:
        def check(node: Any, program: Any) -> bool:
            # As the captured graph and the edge graph call it.
            called = {node.name, str(node.target), getattr(node.target, "__name__", ""), *origin(node)}
            if called.isdisjoint(names):
                return bool(takes(node, program))
            why(node, reason="left out (--leave-out)")
            return False

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


REASONS = reliance("partitioner-reasons", _check_reasons)
CONFIGURATIONS = reliance("partitioner-configurations", _check_configurations)

# Of ChannelsLastTaggedReshapePass.
_USED = (
    *("memory_sensitive_ops_nhwc", "memory_sensitive_ops_nchw", "XNN_NHWC_NODE", "mark_as_nhwc_node", "is_nhwc_node"),
    *("requires_nhwc_input", "requires_nchw_inputs"),
)


def passes_replaced(others: Mapping[type, type]) -> contextlib.AbstractContextManager[None]:
    """Have XNNPACK delegates that this thread makes in this block made with other passes in the place of some."""

    def replacing(block: Block) -> Iterator[Replacement]:
        from executorch.backends.xnnpack._passes import XNNPACKPassManager

        transform = XNNPACKPassManager.transform

        def transformed(self: Any) -> Any:
            if get_ident() == block.thread:
                self.passes = [others.get(each, each) for each in self.passes]
            return transform(self)

        yield Replacement(XNNPACKPassManager, "transform", transformed)

    return replaced_here(replacing)


def _check_passes() -> str:
    from executorch.backends.xnnpack._passes import ChannelsLastTaggedReshapePass, XNNPACKPassManager

    parameters = "exp_program, graph, name, kind, data, persistent_buffer"
    runs = ChannelsLastTaggedReshapePass in XNNPACKPassManager(None).passes
    return lacking(
        *(f"executorch.backends.xnnpack._passes:ChannelsLastTaggedReshapePass.{name}" for name in _USED),
        "executorch.exir.passes.constant_prop_pass:constant_prop_pass(exported_program, _skip_dim_order)",
        f"executorch.backends.transforms.utils:create_constant_placeholder({parameters})",
        "executorch.backends.xnnpack.utils.utils:is_param_node(exp_prog, node)",
        "executorch.backends.xnnpack.utils.quant_utils:is_dequant(node)",
    ) or ("" if runs else "XNNPACKPassManager does not run ChannelsLastTaggedReshapePass")


LAYOUT_LOWERING = reliance("layout-lowering", _check_passes)
