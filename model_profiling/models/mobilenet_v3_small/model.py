"""torchvision's MobileNetV3-Small. Latency does not depend on the weights, so none are downloaded."""

import torch
from torchvision.models import mobilenet_v3_small

from model_profiling.models.model_base import EagerModelBase


class MobileNetV3SmallModel(EagerModelBase):
    weights = "random"

    def get_eager_model(self) -> torch.nn.Module:
        return mobilenet_v3_small(weights=None)

    def get_example_inputs(self) -> tuple[torch.Tensor, ...]:
        return (torch.randn(1, 3, 224, 224),)
