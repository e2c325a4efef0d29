"""ExecuTorch's EfficientSAM, built as its own loader builds it but without downloading weights."""

import torch
from executorch.examples.models.efficient_sam.efficient_sam_core.efficient_sam import build_efficient_sam
from executorch.examples.models.efficient_sam.model import EfficientSAM

from model_profiling.models.model_base import EagerModelBase


class EfficientSamModel(EagerModelBase):
    weights = "random"

    def get_eager_model(self) -> torch.nn.Module:
        # The numbers of build_efficient_sam_vitt().
        return build_efficient_sam(encoder_patch_embed_dim=192, encoder_num_heads=3)

    def get_example_inputs(self) -> tuple[torch.Tensor, ...]:
        inputs: tuple[torch.Tensor, ...] = EfficientSAM().get_example_inputs()
        return inputs
