from model_profiling.models import register_model

register_model(
    "mobilenet_v3_small",
    "model_profiling.models.mobilenet_v3_small.model:MobileNetV3SmallModel",
    "torchvision's MobileNetV3-Small at 224 x 224; random weights",
    requires=("torchvision",),
    extra="vision",
    parameters="2.5 M",
    dtypes=("fp32", "fp16", "int8"),
)
