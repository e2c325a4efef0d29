"""The table of ONNX operator types as data: which counts as what, in the words of `timing/category_table.py`.

Among them are the types that ONNX Runtime's optimizer puts in the place of others. What is not here is Other.
"""

from model_profiling.analysis.timing.categories import UNKNOWN, Category, OperatorClass

ROWS: tuple[tuple[Category, str, str], ...] = (
    (
        "CONV",
        "conv2d",
        "Conv FusedConv NhwcConv NhwcFusedConv ConvInteger QLinearConv DeformConv CausalConvWithState "
        "VarlenCausalConvWithState",
    ),
    ("CONV", "deconvolution", "ConvTranspose QLinearConvTranspose ConvTransposeWithDynamicPads"),
    (
        "GEMM",
        "fully connected",
        "Gemm FusedGemm GemmFastGelu GemmFloat8 QGemm MatMulNBits MatMulBnb4 MatMulFpQ4 DynamicQuantizeMatMul "
        "MatMulNBitsMlp MatMulNBitsQkv MoE QMoE",
    ),
    # Of two tensors; of one with weights, which has two axes, `onnx_profile.py` says fully connected.
    (
        "GEMM",
        "batch matmul",
        "MatMul FusedMatMul FusedMatMulActivation TransposeMatMul MatMulInteger Einsum MatMulInteger16 "
        "MatMulIntegerToFloat QLinearMatMul SparseToDenseMatMul",
    ),
    (
        "GEMM",
        "attention",
        "Attention MultiHeadAttention GroupQueryAttention QAttention LinearAttention DecoderAttention "
        "DecoderMaskedMultiHeadAttention DecoderMaskedSelfAttention PackedAttention PackedMultiHeadAttention "
        "PagedAttention SparseAttention FlexAttention LongformerAttention GatedDeltaNet",
    ),
    ("GEMM", "recurrent", "LSTM GRU RNN DynamicQuantizeLSTM AttnLSTM"),
    ("Data Movement", "transpose", "Transpose"),
    ("Data Movement", "reshape", "Reshape Flatten Squeeze Unsqueeze ExpandDims BitCast"),
    ("Data Movement", "copy", "Identity Dropout MemcpyFromHost MemcpyToHost TensorScatter"),
    # Into and out of blocks of channels, which convolutions of ONNX Runtime work on.
    ("Data Movement", "pack", "ReorderInput ReorderOutput"),
    ("Data Movement", "expand", "Expand Tile"),
    ("Data Movement", "pad", "Pad CenterCropPad RemovePadding RestorePadding"),
    ("Data Movement", "slice", "Slice Compress UnfoldTensor"),
    ("Data Movement", "concat", "Concat QLinearConcat ConcatFromSequence"),
    ("Data Movement", "split", "Split SplitToSequence"),
    (
        "Data Movement",
        "convert",
        "Cast CastLike QuantizeLinear DequantizeLinear DynamicQuantizeLinear QuantizeBFP DequantizeBFP "
        "QuantizeWithOrder DequantizeWithOrder",
    ),
    ("Data Movement", "shuffle", "DepthToSpace SpaceToDepth ReverseSequence Col2Im"),
    (
        "Data Movement",
        "gather",
        "Gather GatherElements GatherND GatherBlockQuantized Scatter ScatterElements ScatterND OneHot "
        "TorchEmbedding EmbedLayerNormalization",
    ),
    ("Data Movement", "fill", "Constant ConstantOfShape EyeLike Range"),
    (
        "Elementwise",
        "binary",
        "Add Sub Mul Div Mod Pow Max Min Sum Mean And Or Xor Equal Greater Less GreaterOrEqual LessOrEqual BitShift "
        "BitwiseAnd BitwiseOr BitwiseXor QLinearAdd QLinearMul BiasAdd GatedAdd ComplexMul ComplexMulConj "
        "MulInteger",
    ),
    (
        "Elementwise",
        "unary",
        "Abs Acos Acosh Asin Asinh Atan Atanh Ceil Cos Cosh Erf Exp Floor Log Neg Not BitwiseNot IsInf IsNaN "
        "Reciprocal Round Sign Sin Sinh Sqrt Tan",
    ),
    ("Elementwise", "mask", "Where QLinearWhere Trilu"),
    (
        "Elementwise",
        "activation",
        "Gelu FastGelu BiasGelu QuickGelu BiasSplitGelu Elu Celu Selu Mish Swish SwiGLU ScaledSiLU HardSigmoid "
        "HardSwish LeakyRelu PRelu Sigmoid Softplus Softsign Tanh ThresholdedRelu Shrink QLinearLeakyRelu "
        "QLinearSigmoid",
    ),
    # What XNNPACK runs as Clamp.
    ("Elementwise", "clamp", "Relu Clip"),
    (
        "Elementwise",
        "normalization",
        "BatchNormalization LayerNormalization GroupNormalization GroupNorm LRN InstanceNormalization "
        "RMSNormalization SimplifiedLayerNormalization SkipLayerNormalization SkipSimplifiedLayerNormalization "
        "SkipGroupNorm LpNormalization MeanVarianceNormalization GatedRMSNorm",
    ),
    ("Elementwise", "softmax", "Softmax LogSoftmax Hardmax BiasSoftmax QLinearSoftmax"),
    ("Elementwise", "rope", "RotaryEmbedding GemmaRotaryEmbedding MRotaryEmbedding"),
    (
        "Other",
        "reduction",
        "ReduceL1 ReduceL2 ReduceLogSum ReduceLogSumExp ReduceMax ReduceMean ReduceMin ReduceProd ReduceSum "
        "ReduceSumSquare ReduceSumInteger QLinearReduceMean",
    ),
    ("Other", "scan", "CumSum CumProd"),
    ("Other", "argmax", "ArgMax ArgMin"),
    ("Other", "sort", "TopK NonZero Unique NonMaxSuppression"),
    (
        "Other",
        "pooling",
        "AveragePool MaxPool LpPool GlobalAveragePool GlobalMaxPool GlobalLpPool MaxRoiPool RoiAlign MaxUnpool "
        "NhwcMaxPool QLinearAveragePool QLinearGlobalAveragePool",
    ),
    ("Other", "resize", "Resize Upsample GridSample AffineGrid CropAndResize"),
    ("Other", "distance", "CDist"),
    ("Other", "fft", "DFT STFT Rfft Irfft BlackmanWindow HammingWindow HannWindow MelWeightMatrix"),
    ("Other", "random", "RandomNormal RandomNormalLike RandomUniform RandomUniformLike Bernoulli Multinomial"),
    ("Other", "scalar", "Shape Size"),
    # Runs a graph of its own, whose nodes have their own rows.
    ("Other", "control", "If Loop Scan SequenceMap BeamSearch GreedySearch Sampling WhisperBeamSearch"),
)
_KINDS = {name: OperatorClass(category, kind) for category, kind, names in ROWS for name in names.split()}


def classify(op_type: str) -> OperatorClass:
    """Return the category and kind of work of an operator type; of one that is not in the table, Other."""
    return _KINDS.get(op_type, OperatorClass("Other", UNKNOWN))
