from model_profiling.models import register_model

for name, cls, parameters, words in (
    ("smollm2_135m", "SmolLm2Model", "134.5 M", "SmolLM2-135M, a language model with a KV cache"),
    (
        "qwen3_0_6b",
        "Qwen3Model",
        "596.0 M",
        "Qwen3-0.6B, a language model with a KV cache and norms of queries and keys",
    ),
):
    register_model(
        name,
        f"model_profiling.models.language_models.model:{cls}",
        f"{words}; random weights",
        parameters=parameters,
        dtypes=("fp32", "fp16", "int8-dynamic", "int4", "int4-channel"),
    )
