from model_profiling.models import register_model

register_model(
    "toy_cnn",
    "model_profiling.models.toy_cnn.model:ToyCNNModel",
    "small CNN with a window-wise MLP; random weights, needs no extra package",
    parameters="69 k",
    dtypes=("fp32", "fp16", "int8", "int8-dynamic", "int4"),
)
