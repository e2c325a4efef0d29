"""What a model must offer to be profiled; the same two methods ExecuTorch's own examples have."""

from __future__ import annotations

from abc import ABC, abstractmethod
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import torch


class EagerModelBase(ABC):
    """A PyTorch model and inputs that represent how it is used.

    Both methods are called with torch's random generator seeded by `--seed`, so random weights and random
    inputs are the same in every export.
    """

    weights = "as the model's own code loads them"
    """Where the weights come from, in words a report can repeat."""

    @abstractmethod
    def get_eager_model(self) -> torch.nn.Module:
        """Return the model, ready to be called with the example inputs."""

    @abstractmethod
    def get_example_inputs(self) -> tuple[torch.Tensor, ...]:
        """Return the positional inputs of one inference, with the shapes and dtypes of real use."""
