"""torchvision's MobileNetV3-Small and timm's DeiT-tiny. Latency does not depend on weights, so none are downloaded."""

import torch

from model_profiling.base.errors import InputError
from model_profiling.models.model_base import EagerModelBase

BLOCKS = 12


class MobileNetV3SmallModel(EagerModelBase):
    weights = "random"

    def get_eager_model(self) -> torch.nn.Module:
        from torchvision.models import mobilenet_v3_small  # of which DeiT needs nothing

        return mobilenet_v3_small(weights=None)

    def get_example_inputs(self) -> tuple[torch.Tensor, ...]:
        return (torch.randn(1, 3, 224, 224),)


class DeitTinyModel(MobileNetV3SmallModel):
    def __init__(self, blocks: int = BLOCKS) -> None:
        if blocks < 1:
            raise InputError(f"blocks {blocks} is not a number from 1 on", f"Use for example {BLOCKS}.")
        self.blocks = blocks

    def get_eager_model(self) -> torch.nn.Module:
        import timm

        return timm.create_model("deit_tiny_patch16_224", pretrained=False, depth=self.blocks)
