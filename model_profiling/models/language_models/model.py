"""SmolLM2-135M and Qwen3-0.6B in their published sizes, built from ExecuTorch's transformer as `export_llm` does.

They keep the keys and values of earlier tokens in buffers (the KV cache), take any number of tokens up to the context,
and answer with the logits of the last of them.
"""

from typing import Any, NamedTuple

import torch

from model_profiling.base.errors import InputError
from model_profiling.models.model_base import EagerModelBase
from model_profiling.upstream.example_models import llama_transformer, with_llama_operators

CONTEXT = 2048
SAMPLE_TOKENS = 128
# The scale of random weights that published language models begin their training with.
INITIAL_SCALE = 0.02


class Sizes(NamedTuple):
    """What a model's published config says, by ExecuTorch's names."""

    dim: int
    hidden_dim: int
    n_heads: int
    n_kv_heads: int
    head_dim: int
    n_layers: int
    vocab_size: int
    rope_theta: float
    norm_eps: float
    # Norms of queries and keys, as Qwen3 has them.
    use_qk_norm: bool = False


class TransformerModel(EagerModelBase):
    """A transformer of `sizes`; `sdpa` is "custom" for ExecuTorch's own attention and cache operators, or "plain"."""

    weights = "random"
    sizes: Sizes

    def __init__(self, layers: int = 0, context: int = CONTEXT, sdpa: str = "custom") -> None:
        self.layers, self.context, self.sdpa = layers or self.sizes.n_layers, context, sdpa
        if self.layers < 1:
            raise InputError(f"layers {layers} is not a number from 1 on", f"Use for example {self.sizes.n_layers}.")
        if context < 2:
            raise InputError(f"context {context} is not a number from 2 on", f"Use for example {CONTEXT}.")
        if sdpa not in ("custom", "plain"):
            raise InputError(f"there is no sdpa {sdpa!r}", "Use custom or plain.")

    def get_eager_model(self) -> torch.nn.Module:
        arguments = {
            **self.sizes._asdict(),
            "n_layers": self.layers,
            **dict.fromkeys(("use_hf_rope", "qk_norm_before_rope"), self.sizes.use_qk_norm),
            **dict.fromkeys(("max_seq_len", "max_context_len"), self.context),
            "use_kv_cache": True,
            "use_sdpa_with_kv_cache_op": self.sdpa == "custom",
            "enable_dynamic_shape": True,
        }
        model: torch.nn.Module = llama_transformer(arguments)
        # Random matrices at the scale of an untrained model: torch gives an embedding values of 1, which make logits of
        # 20 and more and a softmax of one token. The head is the embedding, as published.
        for parameter in model.parameters():
            if parameter.dim() > 1:
                torch.nn.init.normal_(parameter, std=INITIAL_SCALE)
        model.output.weight = model.tok_embeddings.weight
        return (with_llama_operators(model) if self.sdpa == "custom" else model).eval()

    def get_example_inputs(self) -> tuple[Any, ...]:
        tokens = torch.randint(self.sizes.vocab_size, (1, min(SAMPLE_TOKENS, self.context - 1)))
        return (tokens, {"input_pos": torch.zeros(1, dtype=torch.int64)})

    def get_dynamic_shapes(self) -> Any:
        # One less than the context, as in export_llm: torch.export finds no shape for the full one.
        return ({1: torch.export.Dim("tokens", max=self.context - 1)}, {"input_pos": {0: 1}})


class SmolLm2Model(TransformerModel):
    sizes = Sizes(576, 1536, 9, 3, 64, 30, vocab_size=49152, rope_theta=1e5, norm_eps=1e-5)


class Qwen3Model(TransformerModel):
    sizes = Sizes(1024, 3072, 16, 8, 128, 28, vocab_size=151936, rope_theta=1e6, norm_eps=1e-6, use_qk_norm=True)
