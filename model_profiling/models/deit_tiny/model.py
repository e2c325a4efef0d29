"""timm's DeiT-tiny. ExecuTorch's zoo has it with downloaded weights; latency does not depend on them."""

import timm
import torch

from model_profiling.base.errors import InputError
from model_profiling.models.model_base import EagerModelBase

BLOCKS = 12


class DeitTinyModel(EagerModelBase):
    weights = "random"

    def __init__(self, blocks: int = BLOCKS) -> None:
        if blocks < 1:
            raise InputError(f"blocks {blocks} is not a number from 1 on", f"Use for example {BLOCKS}.")
        self.blocks = blocks

    def get_eager_model(self) -> torch.nn.Module:
        return timm.create_model("deit_tiny_patch16_224", pretrained=False, depth=self.blocks)

    def get_example_inputs(self) -> tuple[torch.Tensor, ...]:
        return (torch.randn(1, 3, 224, 224),)
