from model_profiling.models import register_model

register_model(
    "edgetam_image_encoder",
    "model_profiling.models.edgetam_image_encoder.model:EdgeTamImageEncoderModel",
    "EdgeTAM's image encoder (RepViT-M1 and feature pyramid) at 1024 x 1024; random weights",
    requires=("transformers", "timm"),
    extra="transformers",
    parameters="4.9 M",
    dtypes=("fp32", "fp16", "int8"),
)
