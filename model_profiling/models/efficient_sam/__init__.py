from model_profiling.models import register_model

register_model(
    "efficient_sam",
    "model_profiling.models.efficient_sam.model:EfficientSamModel",
    "EfficientSAM with a ViT-tiny encoder at 1024 x 1024 and one prompt point; random weights",
    parameters="10.2 M",
    dtypes=("fp32",),
)
