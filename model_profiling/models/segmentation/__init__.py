from model_profiling.models import register_model

for name, cls, words, facts in (
    (
        "efficient_sam",
        "EfficientSamModel",
        "EfficientSAM with a ViT-tiny encoder at 1024 x 1024 and one prompt point",
        {"parameters": "10.2 M", "dtypes": ("fp32",)},
    ),
    (
        "mobile_sam",
        "MobileSamModel",
        "MobileSAM's image encoder (TinyViT and neck) at 1024 x 1024",
        {"parameters": "5.7 M", "dtypes": ("fp32", "int8"), "requires": ("timm",), "extra": "transformers"},
    ),
    (
        "squeeze_sam",
        "SqueezeSamModel",
        "SqueezeSAM, a U-Net with a small transformer, at 512 x 512",
        {"parameters": "10.2 M", "dtypes": ("fp32", "fp16", "int8")},
    ),
):
    register_model(name, f"model_profiling.models.segmentation.{name}:{cls}", f"{words}; random weights", **facts)
