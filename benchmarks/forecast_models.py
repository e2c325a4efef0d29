"""Networks of published SME2 results that are not in the zoo."""

import torch


class FullyConnected(torch.nn.Sequential):  # type: ignore[misc]
    """100 x 640 to 1280, fp32: measured by Arm on a C1-class phone with and without SME2."""

    example_inputs = (torch.randn(100, 640),)

    def __init__(self) -> None:
        super().__init__(torch.nn.Linear(640, 1280))


class ResNet50(torch.nn.Module):  # type: ignore[misc]
    """ResNet-50; at 224 as published, smaller to see its kernels under emulation."""

    def __init__(self, side: int = 224) -> None:
        super().__init__()
        import timm

        self.side = side
        self.net = timm.create_model("resnet50", pretrained=False)

    def example_inputs(self) -> tuple[torch.Tensor, ...]:
        return (torch.randn(1, 3, self.side, self.side),)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.net(x)
