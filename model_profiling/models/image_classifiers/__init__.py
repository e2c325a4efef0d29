from model_profiling.models import register_model

register_model(
    "mobilenet_v3_small",
    "model_profiling.models.image_classifiers.model:MobileNetV3SmallModel",
    "torchvision's MobileNetV3-Small at 224 x 224; random weights",
    requires=("torchvision",),
    extra="vision",
    parameters="2.5 M",
    dtypes=("fp32", "fp16", "int8"),
)
register_model(
    "deit_tiny",
    "model_profiling.models.image_classifiers.model:DeitTinyModel",
    "timm's DeiT-tiny, a transformer encoder on 197 tokens; random weights",
    requires=("timm",),
    extra="transformers",
    parameters="5.7 M",
    dtypes=("fp32", "fp16", "int8-dynamic", "int4"),
)
