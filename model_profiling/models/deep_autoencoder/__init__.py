from model_profiling.models import register_model

register_model(
    "deep_autoencoder",
    "executorch.examples.models.mlperf_tiny.deep_autoencoder:DeepAutoEncoderModel",
    "anomaly detection of MLPerf Tiny: ten linear layers",
    parameters="268 k",
    dtypes=("fp32", "fp16", "int8"),
    weights="random",
)
