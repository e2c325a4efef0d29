"""Language models of published sizes, built from ExecuTorch's own transformer as `export_llm` builds them.

They keep the keys and values of earlier tokens in buffers (the KV cache), take any number of tokens up to the context,
and answer with the logits of the last of them.
"""

from dataclasses import dataclass
from typing import Any

import torch

from model_profiling.base.errors import InputError
from model_profiling.models.model_base import EagerModelBase
from model_profiling.upstream.example_models import llama_transformer, with_llama_operators

CONTEXT = 2048
SAMPLE_TOKENS = 128
# The scale of random weights that published language models begin their training with.
INITIAL_SCALE = 0.02


@dataclass(frozen=True)
class Sizes:
    """What a model's published config says."""

    dim: int
    hidden_dim: int
    n_heads: int
    n_kv_heads: int
    head_dim: int
    layers: int
    vocabulary: int
    rope_theta: float
    norm_eps: float
    # Norms of queries and keys, as Qwen3 has them.
    qk_norm: bool = False


class TransformerModel(EagerModelBase):
    """A transformer of `sizes`; `sdpa` is "custom" for ExecuTorch's own attention and cache operators, or "plain"."""

    weights = "random"
    sizes: Sizes

    def __init__(self, layers: int = 0, context: int = CONTEXT, sdpa: str = "custom") -> None:
        self.layers, self.context, self.sdpa = layers or self.sizes.layers, context, sdpa
        if self.layers < 1:
            raise InputError(f"layers {layers} is not a number from 1 on", f"Use for example {self.sizes.layers}.")
        if context < 2:
            raise InputError(f"context {context} is not a number from 2 on", f"Use for example {CONTEXT}.")
        if sdpa not in ("custom", "plain"):
            raise InputError(f"there is no sdpa {sdpa!r}", "Use custom or plain.")

    def get_eager_model(self) -> torch.nn.Module:
        model: torch.nn.Module = llama_transformer(self._arguments())
        _initialise(model)
        if self.sdpa == "custom":
            model = with_llama_operators(model)
        return model.eval()

    def get_example_inputs(self) -> tuple[Any, ...]:
        tokens = torch.randint(self.sizes.vocabulary, (1, min(SAMPLE_TOKENS, self.context - 1)))
        return (tokens, {"input_pos": torch.zeros(1, dtype=torch.int64)})

    def get_dynamic_shapes(self) -> Any:
        # One less than the context, as in export_llm: torch.export finds no shape for the full one.
        return ({1: torch.export.Dim("tokens", max=self.context - 1)}, {"input_pos": {0: 1}})

    def _arguments(self) -> dict[str, Any]:
        sizes = self.sizes
        return {
            "dim": sizes.dim,
            "hidden_dim": sizes.hidden_dim,
            "n_layers": self.layers,
            "n_heads": sizes.n_heads,
            "n_kv_heads": sizes.n_kv_heads,
            "head_dim": sizes.head_dim,
            "vocab_size": sizes.vocabulary,
            "norm_eps": sizes.norm_eps,
            "rope_theta": sizes.rope_theta,
            "use_hf_rope": sizes.qk_norm,
            "use_qk_norm": sizes.qk_norm,
            "qk_norm_before_rope": sizes.qk_norm,
            "max_seq_len": self.context,
            "max_context_len": self.context,
            "use_kv_cache": True,
            "use_sdpa_with_kv_cache_op": self.sdpa == "custom",
            "enable_dynamic_shape": True,
        }


def _initialise(model: torch.nn.Module) -> None:
    """Set random matrices at the scale of an untrained model, and norms of ones; the head is the embedding, as
    published.

    torch gives an embedding values of 1, which make logits of 20 and more and a softmax of one token.
    """
    for parameter in model.parameters():
        if parameter.dim() > 1:
            torch.nn.init.normal_(parameter, std=INITIAL_SCALE)
    model.output.weight = model.tok_embeddings.weight
