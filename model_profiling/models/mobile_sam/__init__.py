from model_profiling.models import register_model

register_model(
    "mobile_sam",
    "model_profiling.models.mobile_sam.model:MobileSamModel",
    "MobileSAM's image encoder (TinyViT and neck) at 1024 x 1024; random weights",
    requires=("timm",),
    extra="transformers",
    parameters="5.7 M",
    dtypes=("fp32", "int8"),
)
