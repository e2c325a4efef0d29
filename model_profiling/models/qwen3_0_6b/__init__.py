from model_profiling.models import register_model

register_model(
    "qwen3_0_6b",
    "model_profiling.models.qwen3_0_6b.model:Qwen3Model",
    "Qwen3-0.6B, a language model with a KV cache and norms of queries and keys; random weights",
    parameters="596.0 M",
    dtypes=("fp32", "fp16", "int8-dynamic", "int4", "int4-channel"),
)
