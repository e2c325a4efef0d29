from model_profiling.models import register_model

register_model(
    "smollm2_135m",
    "model_profiling.models.smollm2_135m.model:SmolLm2Model",
    "SmolLM2-135M, a language model with a KV cache; random weights",
    parameters="134.5 M",
    dtypes=("fp32", "fp16", "int8-dynamic", "int4", "int4-channel"),
)
