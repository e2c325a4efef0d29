from model_profiling.models import register_model

register_model(
    "ds_cnn",
    "executorch.examples.models.mlperf_tiny.ds_cnn:DSCNNKWSModel",
    "keyword spotting of MLPerf Tiny: depthwise-separable CNN",
    parameters="23 k",
    dtypes=("fp32", "fp16", "int8"),
    weights="random",
)
