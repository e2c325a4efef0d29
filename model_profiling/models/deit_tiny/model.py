"""timm's DeiT-tiny. ExecuTorch's zoo has it with downloaded weights; latency does not depend on them."""

import timm
import torch

from model_profiling.models.model_base import EagerModelBase


class DeitTinyModel(EagerModelBase):
    weights = "random"

    def get_eager_model(self) -> torch.nn.Module:
        return timm.create_model("deit_tiny_patch16_224", pretrained=False)

    def get_example_inputs(self) -> tuple[torch.Tensor, ...]:
        return (torch.randn(1, 3, 224, 224),)
