"""Linear layers with weights in every format in one program, each fed with several rows and with one, as in prefill and
decode. Stored, because lowering it takes half a minute:

    python -m tests.helpers.weight_networks     # makes it again
"""

from pathlib import Path
from typing import Any, ClassVar

import torch
from torch import nn

STORED = Path(__file__).parents[1] / "data" / "llm" / "weight_formats.pte"
# What the kit calls the weights of each layer, and what multiplies several rows of them and one on SME2.
FORMATS = {
    "fp32": ("fp32", ("sme2_mopa", "sme2_mla")),
    "fp16": ("fp16", ("sme2_mopa", "sme2_dot")),
    "bf16": ("bf16", ()),
    "int8_dynamic": ("int8 per channel, dynamic activations", ("sme2_mopa", "sme2_dot")),
    "int8_static": ("int8 per channel, static activations", ("sme2_mopa", "sme2_dot")),
    "int8_tensor": ("int8 per tensor, static activations", ()),
    "int4_channel": ("int4 per channel", ("sme2_mopa", "sme2_sdot")),
    "int4_groups": ("int4 in groups of 32", ()),
}
_FLOATS = {"fp16": torch.float16, "bf16": torch.bfloat16}
_QUANTIZED = ("int8_dynamic", "int8_static", "int8_tensor", "int4_channel")


class Linears(nn.Module):  # type: ignore[misc]
    """A layer for many rows and one for one row of each format, the concatenation of rotary positions before each."""

    def __init__(self) -> None:
        super().__init__()
        for name in FORMATS:
            self.add_module(f"{name}_many", nn.Linear(64, 32).to(_FLOATS.get(name, torch.float32)))
            self.add_module(f"{name}_one", nn.Linear(32, 64).to(_FLOATS.get(name, torch.float32)))

    def forward(self, x: Any) -> Any:
        x = turned(x)
        found = []
        for name in FORMATS:
            y = getattr(self, f"{name}_many")(x.to(_FLOATS.get(name, torch.float32)))
            found.append(getattr(self, f"{name}_one")(turned(y[:1])).float())
        return found


def turned(x: Any) -> Any:
    """What rotary positions do to memory: halves, and a concatenation of them."""
    low, high = x.chunk(2, -1)
    return torch.cat((-high, low), -1)


def program() -> bytes:
    from executorch.backends.xnnpack.partition.xnnpack_partitioner import XnnpackPartitioner
    from executorch.exir import to_edge_transform_and_lower

    from model_profiling.upstream.faster_lowering import faster_lowering

    torch.manual_seed(3)
    model, x = Linears().eval().requires_grad_(False), (torch.randn(9, 64),)
    captured = torch.export.export(in_groups(model, "int4_groups"), x)
    prepared = _prepared(captured.module())
    prepared(*x)
    captured = torch.export.export(_converted(prepared), x)
    with faster_lowering():
        return bytes(to_edge_transform_and_lower(captured, partitioner=[XnnpackPartitioner()]).to_executorch().buffer)


def in_groups(model: nn.Module, part: str = "") -> nn.Module:
    """Linear layers that have `part` in their name get weights of int4 in groups of 32."""
    from torchao.quantization import Int8DynamicActivationIntxWeightConfig, quantize_
    from torchao.quantization.granularity import PerGroup
    from torchao.utils import unwrap_tensor_subclass

    config = Int8DynamicActivationIntxWeightConfig(weight_dtype=torch.int4, weight_granularity=PerGroup(32))
    quantize_(model, config, filter_fn=lambda layer, name: isinstance(layer, nn.Linear) and part in name)
    return unwrap_tensor_subclass(model)


def _prepared(graph: Any) -> Any:
    from executorch.backends.xnnpack.quantizer.xnnpack_quantizer import (
        XNNPACKQuantizer,
        get_symmetric_quantization_config,
    )
    from torchao.quantization.pt2e.quantize_pt2e import prepare_pt2e

    class LinearOnly(XNNPACKQuantizer):  # type: ignore[misc]
        SUPPORTED_PATTERNS: ClassVar[list[Any]] = [p for p in XNNPACKQuantizer.SUPPORTED_PATTERNS if p.name == "linear"]

    quantizer = LinearOnly()
    for name in _QUANTIZED:
        narrow = {"weight_qmin": -8, "weight_qmax": 7} if name == "int4_channel" else {}
        dynamic = name in ("int8_dynamic", "int4_channel")
        config = get_symmetric_quantization_config(is_per_channel=name != "int8_tensor", is_dynamic=dynamic, **narrow)
        for rows in ("many", "one"):
            quantizer.set_module_name(f"{name}_{rows}", config)
    return prepare_pt2e(graph, quantizer)


def _converted(prepared: Any) -> Any:
    from torchao.quantization.pt2e.quantize_pt2e import convert_pt2e

    return convert_pt2e(prepared)


if __name__ == "__main__":
    STORED.write_bytes(program())
