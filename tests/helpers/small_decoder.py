"""A decoder of one block written with ordinary operators: a cache, attention over it, an MLP, and a head.

It takes tokens [1, n] and the position of the first, as language models of ExecuTorch do, and answers for every token.

    python -m tests.helpers.small_decoder     # makes the stored program again
"""

from pathlib import Path
from typing import Any

import torch
from torch import nn
from torch.nn import functional

from tests.helpers.weight_networks import turned

STORED = Path(__file__).parents[1] / "data" / "llm" / "decoder.pte"
WIDTH, VOCABULARY, CONTEXT, HEADS = 32, 160, 48, 2


class Attention(nn.Module):  # type: ignore[misc]
    def __init__(self) -> None:
        super().__init__()
        self.wq, self.wk, self.wv, self.wo = (nn.Linear(WIDTH, WIDTH, bias=False) for _ in range(4))
        self.register_buffer("keys", torch.zeros(1, CONTEXT, WIDTH))
        self.register_buffer("values", torch.zeros(1, CONTEXT, WIDTH))

    def forward(self, x: Any, positions: Any) -> Any:
        self.keys[:, positions] = turned(self.wk(x))
        self.values[:, positions] = self.wv(x)
        query, keys, values = (_split(each) for each in (turned(self.wq(x)), self.keys, self.values))
        mask = torch.where(torch.arange(CONTEXT)[None] <= positions[:, None], 0.0, -1e4)
        scores = query @ keys.transpose(-1, -2) * (WIDTH // HEADS) ** -0.5 + mask
        return self.wo((functional.softmax(scores, -1) @ values).transpose(1, 2).flatten(2))


class Block(nn.Module):  # type: ignore[misc]
    def __init__(self) -> None:
        super().__init__()
        self.attention = Attention()
        self.feed_forward = nn.Sequential(nn.Linear(WIDTH, 2 * WIDTH), nn.ReLU(), nn.Linear(2 * WIDTH, WIDTH))

    def forward(self, x: Any, positions: Any) -> Any:
        x = x + self.attention(x, positions)
        return x + self.feed_forward(x)


class Decoder(nn.Module):  # type: ignore[misc]
    def __init__(self) -> None:
        super().__init__()
        self.tok_embeddings = nn.Embedding(VOCABULARY, WIDTH)
        self.layers = nn.ModuleList([Block()])
        self.output = nn.Linear(WIDTH, VOCABULARY, bias=False)

    def forward(self, tokens: Any, input_pos: Any) -> Any:
        positions = input_pos + torch.arange(tokens.shape[1])
        x = self.tok_embeddings(tokens)
        for layer in self.layers:
            x = layer(x, positions)
        return self.output(x)


def _split(x: Any) -> Any:
    return x.unflatten(2, (HEADS, WIDTH // HEADS)).transpose(1, 2)


def main() -> None:
    from executorch.backends.xnnpack.partition.xnnpack_partitioner import XnnpackPartitioner
    from executorch.exir import to_edge_transform_and_lower

    torch.manual_seed(2)
    model = Decoder().eval().requires_grad_(False)
    inputs = (torch.randint(VOCABULARY, (1, 8)), torch.tensor([0]))
    shapes = ({1: torch.export.Dim("tokens", max=CONTEXT - 1)}, None)
    edge = to_edge_transform_and_lower(
        torch.export.export(model, inputs, dynamic_shapes=shapes),
        partitioner=[XnnpackPartitioner()],
        constant_methods={"get_max_context_len": CONTEXT, "get_vocab_size": VOCABULARY},
    )
    STORED.write_bytes(edge.to_executorch().buffer)


if __name__ == "__main__":
    main()
