"""The two-way transformer of the SAM family: tokens attend to the image and the image to the tokens."""

import torch
from torch import nn


class Attention(nn.Module):  # type: ignore[misc]
    def __init__(self, width: int, inner: int, heads: int) -> None:
        super().__init__()
        self.heads = heads
        self.query, self.key, self.value = (nn.Linear(width, inner) for _ in range(3))
        self.out = nn.Linear(inner, width)

    def forward(self, query: torch.Tensor, key: torch.Tensor, value: torch.Tensor) -> torch.Tensor:
        query, key, value = (
            project(x).unflatten(-1, (self.heads, -1)).transpose(1, 2)
            for project, x in ((self.query, query), (self.key, key), (self.value, value))
        )
        scores = query @ key.transpose(-1, -2) / query.shape[-1] ** 0.5
        return self.out((torch.softmax(scores, -1) @ value).transpose(1, 2).flatten(2))


class TwoWayBlock(nn.Module):  # type: ignore[misc]
    """Tokens among themselves, tokens to image, MLP, image to tokens; a layer norm after each sum."""

    def __init__(self, width: int, heads: int, hidden: int, first: bool) -> None:
        super().__init__()
        self.first = first
        self.among_tokens = Attention(width, width, heads)
        self.tokens_to_image = Attention(width, width // 2, heads)
        self.image_to_tokens = Attention(width, width // 2, heads)
        self.mlp = nn.Sequential(nn.Linear(width, hidden), nn.ReLU(), nn.Linear(hidden, width))
        self.norms = nn.ModuleList([nn.LayerNorm(width) for _ in range(4)])

    def forward(
        self, tokens: torch.Tensor, image: torch.Tensor, position: torch.Tensor
    ) -> tuple[torch.Tensor, torch.Tensor]:
        # The tokens are their own positions, so the first block has them already.
        tokens = tokens if self.first else tokens + position
        tokens = self.norms[0](tokens + self.among_tokens(tokens, tokens, tokens))
        tokens = self.norms[1](tokens + self.tokens_to_image(tokens + position, image, image))
        tokens = self.norms[2](tokens + self.mlp(tokens))
        return tokens, self.norms[3](image + self.image_to_tokens(image, tokens + position, tokens))


class TwoWayTransformer(nn.Module):  # type: ignore[misc]
    def __init__(self, width: int, depth: int, heads: int, hidden: int) -> None:
        super().__init__()
        self.blocks = nn.ModuleList([TwoWayBlock(width, heads, hidden, first=i == 0) for i in range(depth)])
        self.last = Attention(width, width // 2, heads)
        self.norm = nn.LayerNorm(width)

    def forward(self, image: torch.Tensor, position: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        """Return the tokens and the map, each having seen the other."""
        tokens, pixels = position, image.flatten(2).transpose(1, 2)
        for block in self.blocks:
            tokens, pixels = block(tokens, pixels, position)
        tokens = self.norm(tokens + self.last(tokens + position, pixels, pixels))
        return tokens, pixels.transpose(1, 2).unflatten(2, image.shape[2:])
