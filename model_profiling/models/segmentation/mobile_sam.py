"""MobileSAM's image encoder: timm's TinyViT with SAM's neck."""

import torch
from timm.layers import LayerNorm2d
from timm.models.tiny_vit import Attention, MBConv, TinyVit
from torch import nn

from model_profiling.base.errors import InputError
from model_profiling.models.model_base import EagerModelBase

CHANNELS = (64, 128, 160, 320)
OUT = 256


class ImageEncoder(nn.Module):  # type: ignore[misc]
    """The image's map of 256 channels, a sixteenth of its size, as SAM's mask decoder takes it."""

    def __init__(self) -> None:
        super().__init__()
        self.body = TinyVit(
            num_classes=0,
            embed_dims=CHANNELS,
            depths=(2, 2, 6, 2),
            num_heads=(2, 4, 5, 10),
            window_sizes=(7, 7, 14, 7),
            drop_path_rate=0.0,
        )
        # MobileSAM keeps the last stage at a sixteenth; TinyViT, as a classifier, halves it once more.
        self.body.stages[-1].downsample.conv2.conv.stride = (1, 1)
        self.body.head = nn.Identity()
        self.neck = nn.Sequential(
            nn.Conv2d(CHANNELS[-1], OUT, 1, bias=False),
            LayerNorm2d(OUT),
            nn.Conv2d(OUT, OUT, 3, padding=1, bias=False),
            LayerNorm2d(OUT),
        )

    def forward(self, image: torch.Tensor) -> torch.Tensor:
        encoded: torch.Tensor = self.neck(self.body.forward_features(image))
        return encoded


def as_in_mobile_sam(module: nn.Module) -> None:
    """Spell attention out, as MobileSAM does, and give values to what timm starts at zero.

    A branch times zero would show no error in what it computes.
    """
    if isinstance(module, MBConv):
        nn.init.ones_(module.conv3.bn.weight)
    if isinstance(module, Attention):
        module.fused_attn = False
        nn.init.normal_(module.attention_biases)


class MobileSamModel(EagerModelBase):
    weights = "random"

    def __init__(self, resolution: int = 1024) -> None:
        if resolution % 16 or resolution < 32:
            raise InputError(f"resolution {resolution} is not a multiple of 16 from 32 on", "Use for example 512.")
        self.resolution = resolution

    def get_eager_model(self) -> torch.nn.Module:
        return ImageEncoder().apply(as_in_mobile_sam)

    def get_example_inputs(self) -> tuple[torch.Tensor, ...]:
        return (torch.randn(1, 3, self.resolution, self.resolution),)
