"""EdgeTAM's image encoder from transformers: RepViT-M1 through timm, then the feature pyramid."""

import torch
from torch import nn
from transformers import EdgeTamVisionConfig, TimmWrapperConfig
from transformers.models.edgetam.modeling_edgetam import EdgeTamVisionModel

from model_profiling.base.errors import InputError
from model_profiling.models.model_base import EagerModelBase


class ImageEncoder(nn.Module):  # type: ignore[misc]
    """Gives the pyramid's maps as plain tensors; the position encodings beside them are constants of the resolution."""

    def __init__(self, encoder: nn.Module) -> None:
        super().__init__()
        self.encoder = encoder

    def forward(self, image: torch.Tensor) -> tuple[torch.Tensor, ...]:
        return tuple(self.encoder(image).fpn_hidden_states)


class EdgeTamImageEncoderModel(EagerModelBase):
    weights = "random"

    def __init__(self, resolution: int = 1024) -> None:
        if resolution % 32 or resolution < 64:
            raise InputError(f"resolution {resolution} is not a multiple of 32 from 64 on", "Use for example 512.")
        self.resolution = resolution

    def get_eager_model(self) -> torch.nn.Module:
        backbone = TimmWrapperConfig(
            architecture="repvit_m1", model_args={"in_chans": 3, "features_only": True, "out_indices": [0, 1, 2, 3]}
        )
        sizes = [[self.resolution // stride] * 2 for stride in (4, 8, 16)]
        config = EdgeTamVisionConfig(
            backbone_config=backbone, backbone_channel_list=[384, 192, 96, 48], backbone_feature_sizes=sizes
        )
        return ImageEncoder(EdgeTamVisionModel(config))

    def get_example_inputs(self) -> tuple[torch.Tensor, ...]:
        return (torch.randn(1, 3, self.resolution, self.resolution),)
