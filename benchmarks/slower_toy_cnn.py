"""toy_cnn with one 1x1 convolution applied twice: a real model that is known to be about 5 % slower."""

import torch

from model_profiling.models.toy_cnn.model import ToyCNN, ToyCNNModel


class SlowerToyCNN(ToyCNN):
    def mix_windows(self, x: torch.Tensor) -> torch.Tensor:
        return super().mix_windows(torch.relu(self.pointwise(x)))


class SlowerToyCNNModel(ToyCNNModel):
    def get_eager_model(self) -> torch.nn.Module:
        return SlowerToyCNN()
