"""ExecuTorch's EfficientSAM, built as its own loader builds it but without downloading weights."""

import torch
from executorch.examples.models.efficient_sam.efficient_sam_core.efficient_sam import build_efficient_sam
from executorch.examples.models.efficient_sam.model import EfficientSAM

from model_profiling.errors import InputError
from model_profiling.models.model_base import EagerModelBase

BLOCKS = 12


class EfficientSamModel(EagerModelBase):
    """`blocks` are those of the image encoder; fewer keep every kind of operator."""

    weights = "random"

    def __init__(self, blocks: int = BLOCKS) -> None:
        if not 1 <= blocks <= BLOCKS:
            raise InputError(f"blocks {blocks} is not between 1 and {BLOCKS}", f"Use for example {BLOCKS}.")
        self.blocks = blocks

    def get_eager_model(self) -> torch.nn.Module:
        # The numbers of build_efficient_sam_vitt().
        model = build_efficient_sam(encoder_patch_embed_dim=192, encoder_num_heads=3)
        model.image_encoder.blocks = model.image_encoder.blocks[: self.blocks]
        return model

    def get_example_inputs(self) -> tuple[torch.Tensor, ...]:
        inputs: tuple[torch.Tensor, ...] = EfficientSAM().get_example_inputs()
        return inputs
