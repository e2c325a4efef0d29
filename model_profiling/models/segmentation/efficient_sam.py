"""ExecuTorch's EfficientSAM, built as its own loader builds it but without downloading weights."""

import torch

from model_profiling.base.errors import InputError
from model_profiling.models.model_base import EagerModelBase
from model_profiling.upstream.example_models import efficient_sam, efficient_sam_inputs

BLOCKS = 12
RESOLUTION = 1024
PATCH = 16
# What its positions are stored for: they are resized for every other resolution.
_STORED = 224


class EfficientSamModel(EagerModelBase):
    """`blocks` are those of the image encoder; fewer keep every kind of operator. Every resolution has the same."""

    weights = "random"

    def __init__(self, blocks: int = BLOCKS, resolution: int = RESOLUTION) -> None:
        if not 1 <= blocks <= BLOCKS:
            raise InputError(f"blocks {blocks} is not between 1 and {BLOCKS}", f"Use for example {BLOCKS}.")
        if resolution % PATCH or resolution < 2 * PATCH or resolution == _STORED:
            raise InputError(
                f"resolution {resolution} is not a multiple of {PATCH} from {2 * PATCH} on, other than {_STORED}",
                "Use for example 512.",
            )
        self.blocks, self.resolution = blocks, resolution

    def get_eager_model(self) -> torch.nn.Module:
        # The numbers of build_efficient_sam_vitt().
        model: torch.nn.Module = efficient_sam(encoder_patch_embed_dim=192, encoder_num_heads=3)
        encoder, side = model.image_encoder, self.resolution // PATCH
        encoder.blocks = encoder.blocks[: self.blocks]
        encoder.img_size, encoder.image_embedding_size = self.resolution, side
        model.prompt_encoder.image_embedding_size = (side, side)
        model.prompt_encoder.input_image_size = (self.resolution, self.resolution)
        return model

    def get_example_inputs(self) -> tuple[torch.Tensor, ...]:
        image, *prompt = efficient_sam_inputs()
        if self.resolution != RESOLUTION:
            image = torch.randn(*image.shape[:2], self.resolution, self.resolution)
        return (image, *prompt)
