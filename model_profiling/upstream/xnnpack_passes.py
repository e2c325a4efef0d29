"""XNNPACK's passes: which of them are run on a delegate, and what the kit's own subclass of one relies on."""

import contextlib
import inspect
from collections.abc import Iterator, Mapping
from threading import get_ident
from typing import Any

from model_profiling.upstream.patching import Block, Replacement, Saving, replaced_here
from model_profiling.upstream.reliance import PROVEN_BOTH, Reliance

# Of ChannelsLastTaggedReshapePass.
_USED = (
    *("memory_sensitive_ops_nhwc", "memory_sensitive_ops_nchw", "XNN_NHWC_NODE", "mark_as_nhwc_node", "is_nhwc_node"),
    *("requires_nhwc_input", "requires_nchw_inputs"),
)


@contextlib.contextmanager
def passes_replaced(others: Mapping[type, type]) -> Iterator[None]:
    """Have XNNPACK delegates that this thread makes in this block made with other passes in the place of some."""
    with replaced_here(_replacing(others)):
        yield


def _replacing(others: Mapping[type, type]) -> Saving:
    def replacing(block: Block) -> Iterator[Replacement]:
        from executorch.backends.xnnpack._passes import XNNPACKPassManager

        transform = XNNPACKPassManager.transform

        def transformed(self: Any) -> Any:
            if get_ident() == block.thread:
                self.passes = [others.get(each, each) for each in self.passes]
            return transform(self)

        yield Replacement(XNNPACKPassManager, "transform", transformed)

    return replacing


def _check() -> str:
    from executorch.backends.transforms.utils import create_constant_placeholder
    from executorch.backends.xnnpack._passes import ChannelsLastTaggedReshapePass, XNNPACKPassManager
    from executorch.backends.xnnpack.utils.quant_utils import is_dequant
    from executorch.backends.xnnpack.utils.utils import is_param_node
    from executorch.exir.passes.constant_prop_pass import constant_prop_pass

    missing = [name for name in _USED if not hasattr(ChannelsLastTaggedReshapePass, name)]
    if missing:
        return f"ChannelsLastTaggedReshapePass has no {missing[0]}"
    if ChannelsLastTaggedReshapePass not in XNNPACKPassManager(None).passes:
        return "XNNPACKPassManager does not run ChannelsLastTaggedReshapePass"
    signatures = {
        constant_prop_pass: {"exported_program", "_skip_dim_order"},
        create_constant_placeholder: {"exp_program", "graph", "name", "kind", "data", "persistent_buffer"},
        is_param_node: {"exp_prog", "node"},
        is_dequant: {"node"},
    }
    for function, wanted in signatures.items():
        if not wanted <= set(inspect.signature(function).parameters):
            return f"{function.__name__} does not take {', '.join(sorted(wanted))}"
    return ""


LAYOUT_LOWERING = Reliance(
    "layout-lowering",
    "ExecuTorch",
    "ChannelsLastTaggedReshapePass decides which tensors XNNPACK holds channels-last, and marks them; "
    "constant_prop_pass(_skip_dim_order=) and create_constant_placeholder",
    PROVEN_BOTH,
    "the names are there, the pass is run, the functions take what they are given",
    _check,
    "--rewrite layout rewrites the graph, and then it is lowered in the stock way",
)
RELIANCES = (LAYOUT_LOWERING,)
