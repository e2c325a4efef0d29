from model_profiling.models import register_model

register_model(
    "deit_tiny",
    "model_profiling.models.deit_tiny.model:DeitTinyModel",
    "timm's DeiT-tiny, a transformer encoder on 197 tokens; random weights",
    requires=("timm",),
    extra="transformers",
    parameters="5.7 M",
    dtypes=("fp32", "fp16", "int8-dynamic", "int4"),
)
