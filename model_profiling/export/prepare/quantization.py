"""A float model becomes a quantized one: int8 all through, or only its linear layers in int8 or int4.

int4 has a scale for every group of weights, as ExecuTorch's language models have it; int4-channel has one for every
output channel, and SME2 kernels.
"""

from collections.abc import Callable
from typing import Any

import torch

from model_profiling.base.dtypes import CALIBRATED, dtype_of
from model_profiling.base.errors import InputError
from model_profiling.export.prepare.kept_layers import Names, is_kept, not_kept, refuse_unknown_modules
from model_profiling.export.prepare.samples import Call
from model_profiling.export.rewrites.graph import PADDING, VIEWS, arguments
from model_profiling.models.state import restored_state
from model_profiling.upstream.captured_graphs import OPERATORS
from model_profiling.upstream.reliance import holds
from model_profiling.upstream.xnnpack_quantizer import quantizer

Inputs = tuple[Any, ...]
# Says of an operator whether it may be quantized.
Allowed = Callable[[torch.fx.Node], bool]

_SAME_SCALE = VIEWS | PADDING | {torch.ops.aten.max_pool2d.default}
# How many weights share a scale; what ExecuTorch's language models use where the layer's width allows it.
GROUPS = (128, 64, 32)
_ALL_LAYERS = f"Use --dtype {' or '.join(CALIBRATED)}, which quantizes convolutions too."


def quantized_graph(
    graph: torch.nn.Module, inputs: Inputs, keywords: dict[str, Any], dtype: str, calls: list[Call], keep: Names = ()
) -> torch.nn.Module:
    """Quantize a captured graph: all through if the dtype is calibrated, or else its linear layers only.

    Weights are quantized per channel. Activations are per tensor and symmetric, with ranges that `calls` set, or, of
    linear layers only, quantized to int8 while the model runs. Layers named in `keep` are not quantized.
    """
    from torchao.quantization.pt2e.quantize_pt2e import convert_pt2e, prepare_pt2e

    asked, allowed = dtype_of(dtype), not_kept(graph.graph, keep)
    # The buffers of the model itself: those that calibration adds hold what it has seen, and go on.
    state = [name for name, _ in graph.named_buffers()]
    prepared = prepare_pt2e(graph, _quantizer(not asked.calibrated, asked.weight_bits, allowed))
    with restored_state(prepared, state), torch.no_grad():
        for given, named in calls if asked.calibrated else [(inputs, keywords)]:
            prepared(*given, **named)
    converted = convert_pt2e(prepared)
    if asked.calibrated:
        _keep_scales(converted)
    elif not any("quantize_per_channel" in str(node.target) for node in converted.graph.nodes):
        raise InputError(f"{asked.name} quantizes linear layers, and this model has none", _ALL_LAYERS)
    return converted


def _keep_scales(module: torch.fx.GraphModule) -> None:
    """Give views, padding with zeros and pooling the scale of their input: XNNPACK refuses another one.

    Its padding of int8 gives int8, whoever reads it: what is padded is quantized before others read it.
    """
    quantized = torch.ops.quantized_decomposed
    to_int8, to_float = quantized.quantize_per_tensor.default, quantized.dequantize_per_tensor.default
    for node in list(module.graph.nodes):
        if node.op != "call_function" or node.target not in _SAME_SCALE or len(node.all_input_nodes) != 1:
            continue
        given = node.all_input_nodes[0]
        if given.target != to_float or (node.target in PADDING and not _pads_zeros(node)):
            continue
        if node.target in PADDING and not any(user.target == to_int8 for user in node.users):
            with module.graph.inserting_after(node):
                small = module.graph.call_function(to_int8, (node, *given.args[1:]))
            with module.graph.inserting_after(small):
                again = module.graph.call_function(to_float, (small, *given.args[1:]))
            small.meta, again.meta = dict(node.meta), dict(node.meta)
            node.replace_all_uses_with(again, delete_user_cb=lambda user, small=small: user is not small)
        for taken in [user for user in node.users if user.target == to_int8]:
            for each in (taken, *(user for user in taken.users if user.target == to_float)):
                each.args = (each.args[0], *given.args[1:])
    module.recompile()


def _pads_zeros(node: torch.fx.Node) -> bool:
    if not holds(OPERATORS):
        return False
    given = arguments(node)
    return given.get("mode", "constant") == "constant" and not given["value"]


def _quantizer(is_dynamic: bool, bits: int, allowed: Allowed) -> Any:
    from executorch.backends.xnnpack.quantizer.xnnpack_quantizer import get_symmetric_quantization_config

    most = 2 ** (bits - 1) - 1
    # In eight bits symmetric weights leave -128 out; in four every value is needed.
    least = -most if bits == 8 else -most - 1
    config = get_symmetric_quantization_config(
        is_per_channel=True, is_dynamic=is_dynamic, weight_qmin=least, weight_qmax=most
    )
    # XNNPACK has four bits for the weights of linear layers alone.
    return quantizer(bits != 8, lambda node: node.target is torch.ops.aten.linear.default, allowed).set_global(config)


def quantized_weights(module: torch.nn.Module, dtype: str, keep: Names = ()) -> torch.nn.Module:
    """Quantize linear weights in groups, inputs to int8 while running: what ExecuTorch does to language models.

    A layer whose width no group size divides stays fp32; a model without any that fits is refused.
    """
    from torchao.quantization import Int8DynamicActivationIntxWeightConfig, quantize_
    from torchao.quantization.granularity import PerGroup
    from torchao.utils import unwrap_tensor_subclass

    if keep:
        refuse_unknown_modules(module, keep)
    stored_as = getattr(torch, f"int{dtype_of(dtype).weight_bits}")
    fitting = 0
    for size in GROUPS:

        def fits(layer: torch.nn.Module, name: str, size: int = size) -> bool:
            plain = isinstance(layer, torch.nn.Linear) and type(layer.weight) is torch.nn.Parameter
            return plain and layer.in_features % size == 0 and not is_kept(name, keep)

        found = [name for name, layer in module.named_modules() if fits(layer, name)]
        if found:
            fitting += len(found)
            config = Int8DynamicActivationIntxWeightConfig(weight_dtype=stored_as, weight_granularity=PerGroup(size))
            quantize_(module, config, filter_fn=fits)
    if not fitting:
        raise InputError(
            f"{dtype} quantizes linear layers, and this model has none{' left' if keep else ''} whose width is a "
            "multiple of 32",
            _ALL_LAYERS,
        )
    return unwrap_tensor_subclass(module)
