from model_profiling.models import register_model

for name, cls, parameters, words in (
    ("ds_cnn", "DSCNNKWSModel", "23 k", "keyword spotting of MLPerf Tiny: depthwise-separable CNN"),
    ("resnet8", "ResNet8Model", "78 k", "image classification of MLPerf Tiny: ResNet-8"),
    (
        "mobilenet_v1_025",
        "MobileNetV1025Model",
        "214 k",
        "visual wake words of MLPerf Tiny: MobileNetV1 at a quarter width",
    ),
    ("deep_autoencoder", "DeepAutoEncoderModel", "268 k", "anomaly detection of MLPerf Tiny: ten linear layers"),
):
    target = f"executorch.examples.models.mlperf_tiny.{name}:{cls}"
    register_model(name, target, words, parameters=parameters, dtypes=("fp32", "fp16", "int8"), weights="random")
