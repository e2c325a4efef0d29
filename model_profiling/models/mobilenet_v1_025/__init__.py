from model_profiling.models import register_model

register_model(
    "mobilenet_v1_025",
    "executorch.examples.models.mlperf_tiny.mobilenet_v1_025:MobileNetV1025Model",
    "visual wake words of MLPerf Tiny: MobileNetV1 at a quarter width",
    parameters="214 k",
    dtypes=("fp32", "fp16", "int8"),
    weights="random",
)
