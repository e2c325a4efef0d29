from model_profiling.models import register_model

register_model(
    "resnet8",
    "executorch.examples.models.mlperf_tiny.resnet8:ResNet8Model",
    "image classification of MLPerf Tiny: ResNet-8",
    parameters="78 k",
    dtypes=("fp32", "fp16", "int8"),
    weights="random",
)
