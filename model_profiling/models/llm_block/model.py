"""One Llama-style block in the two shapes a language model runs: prefill, many tokens at once, and decode, one token.

Decode takes the keys and values of the tokens before it as inputs and returns its own, so that nothing in the graph
depends on a position and the cache stays outside, where a runtime keeps it.
"""

import torch
from torch import nn
from torch.nn import functional

from model_profiling.models.model_base import EagerModelBase

HEAD = 64
EPSILON = 1e-5


class RmsNorm(nn.Module):  # type: ignore[misc]
    def __init__(self, width: int) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.ones(width))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return x * torch.rsqrt((x * x).mean(-1, keepdim=True) + EPSILON) * self.weight


class Attention(nn.Module):  # type: ignore[misc]
    """Grouped-query attention with rotary positions from `first` on."""

    def __init__(self, width: int, first: int, tokens: int) -> None:
        super().__init__()
        self.heads = width // HEAD
        self.groups = 4 if self.heads % 4 == 0 else 1
        self.query = nn.Linear(width, width, bias=False)
        self.key = nn.Linear(width, self.groups * HEAD, bias=False)
        self.value = nn.Linear(width, self.groups * HEAD, bias=False)
        self.out = nn.Linear(width, width, bias=False)
        angles = torch.outer(torch.arange(first, first + tokens).float(), 10000.0 ** (-torch.arange(0, HEAD, 2) / HEAD))
        self.register_buffer("cos", angles.cos().repeat(1, 2), persistent=False)
        self.register_buffer("sin", angles.sin().repeat(1, 2), persistent=False)
        mask = torch.full((tokens, first + tokens), -1e4).triu(first + 1)
        self.register_buffer("mask", mask, persistent=False)

    def rotate(self, x: torch.Tensor) -> torch.Tensor:
        low, high = x.chunk(2, -1)
        return x * self.cos + torch.cat((-high, low), -1) * self.sin

    def split(self, x: torch.Tensor, heads: int) -> torch.Tensor:
        return x.view(1, x.shape[1], heads, HEAD).transpose(1, 2)

    def forward(
        self, x: torch.Tensor, past: tuple[torch.Tensor, torch.Tensor] | None
    ) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
        query = self.rotate(self.split(self.query(x), self.heads))
        key = self.rotate(self.split(self.key(x), self.groups))
        value = self.split(self.value(x), self.groups)
        keys = torch.cat((past[0], key), 2) if past else key
        values = torch.cat((past[1], value), 2) if past else value
        repeat = self.heads // self.groups
        keys, values = keys.repeat_interleave(repeat, 1), values.repeat_interleave(repeat, 1)
        scores = query @ keys.transpose(-1, -2) * HEAD**-0.5 + self.mask
        mixed = (torch.softmax(scores, -1) @ values).transpose(1, 2).reshape(1, x.shape[1], -1)
        return self.out(mixed), key, value


class Block(nn.Module):  # type: ignore[misc]
    def __init__(self, width: int, first: int, tokens: int) -> None:
        super().__init__()
        hidden = (8 * width // 3 + 127) // 128 * 128
        self.before_attention, self.before_mlp = RmsNorm(width), RmsNorm(width)
        self.attention = Attention(width, first, tokens)
        self.gate = nn.Linear(width, hidden, bias=False)
        self.up = nn.Linear(width, hidden, bias=False)
        self.down = nn.Linear(hidden, width, bias=False)

    def forward(
        self, x: torch.Tensor, past_keys: torch.Tensor | None = None, past_values: torch.Tensor | None = None
    ) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
        past = (past_keys, past_values) if past_keys is not None and past_values is not None else None
        mixed, key, value = self.attention(self.before_attention(x), past)
        x = x + mixed
        normed = self.before_mlp(x)
        return x + self.down(functional.silu(self.gate(normed)) * self.up(normed)), key, value


class PrefillModel(EagerModelBase):
    weights = "random"

    def __init__(self, tokens: int = 128, width: int = 768) -> None:
        self.tokens, self.width = tokens, width

    def get_eager_model(self) -> torch.nn.Module:
        return Block(self.width, 0, self.tokens)

    def get_example_inputs(self) -> tuple[torch.Tensor, ...]:
        return (torch.randn(1, self.tokens, self.width),)


class DecodeModel(PrefillModel):
    """The last of `tokens` tokens."""

    def get_eager_model(self) -> torch.nn.Module:
        return Block(self.width, self.tokens - 1, 1)

    def get_example_inputs(self) -> tuple[torch.Tensor, ...]:
        heads = self.width // HEAD
        past = (1, 4 if heads % 4 == 0 else 1, self.tokens - 1, HEAD)
        return (torch.randn(1, 1, self.width), torch.randn(past), torch.randn(past))
