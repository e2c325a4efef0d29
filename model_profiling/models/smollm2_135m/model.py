"""SmolLM2-135M in the sizes of its published config (HuggingFaceTB/SmolLM2-135M)."""

from model_profiling.models.transformer import Sizes, TransformerModel


class SmolLm2Model(TransformerModel):
    sizes = Sizes(
        dim=576,
        hidden_dim=1536,
        n_heads=9,
        n_kv_heads=3,
        head_dim=64,
        layers=30,
        vocabulary=49152,
        rope_theta=100000.0,
        norm_eps=1e-5,
    )
