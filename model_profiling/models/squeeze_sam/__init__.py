from model_profiling.models import register_model

register_model(
    "squeeze_sam",
    "model_profiling.models.squeeze_sam.model:SqueezeSamModel",
    "SqueezeSAM, a U-Net with a small transformer, at 512 x 512; random weights",
    parameters="10.2 M",
    dtypes=("fp32", "fp16", "int8"),
)
