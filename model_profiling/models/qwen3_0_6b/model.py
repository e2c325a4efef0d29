"""Qwen3-0.6B in the sizes of its published config (Qwen/Qwen3-0.6B)."""

from model_profiling.models.transformer import Sizes, TransformerModel


class Qwen3Model(TransformerModel):
    sizes = Sizes(
        dim=1024,
        hidden_dim=3072,
        n_heads=16,
        n_kv_heads=8,
        head_dim=128,
        layers=28,
        vocabulary=151936,
        rope_theta=1000000.0,
        norm_eps=1e-6,
        qk_norm=True,
    )
