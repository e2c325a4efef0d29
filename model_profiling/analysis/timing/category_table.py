"""The table of operator categories as data: which operator counts as what, one row per kind of work.

Where a name could go two ways:
- Elementwise takes in normalization, softmax and rotary embedding: the non-linear work between matrix products.
- Data Movement is whatever writes out values it was given, moved or in another format: quantizing counts, and so do
  filling and looking up. What computes new values from several (pooling, reduction, resizing) is Other.
- A 1x1 convolution that XNNPACK turned into a fully connected operator is GEMM; the name no longer says otherwise.
"""

from typing import Literal

import msgspec

Category = Literal["CONV", "GEMM", "Data Movement", "Elementwise", "Other"]
CATEGORIES: tuple[Category, ...] = ("CONV", "GEMM", "Data Movement", "Elementwise", "Other")


class Rule(msgspec.Struct, frozen=True):
    """The operators in `names` are this category and kind; `algorithms` narrows it to those microkernels, if given."""

    category: Category
    kind: str
    names: tuple[str, ...]
    algorithms: tuple[str, ...] = ()


# What XNNPACK prints after the operator, from xnn_microkernel_type_to_string; it leaves "Default" out.
ALGORITHMS = (
    *("Default", "Average Pooling", "Conv2D HWC2CHW", "DWConv", "GEMM", "IGEMM", "Reduce", "Reduce2"),
    *("Pixelwise Average Pooling", "SPMM", "Subconv2D", "Transpose", "VMulCAddC"),
)

# Types of which XNNPACK says "packed": operands laid out for KleidiAI's matrix kernels.
PACKED_TYPES = ("PF32", "PF16", "PQS8", "QP8")
# What XNNPACK calls an operator that it runs in fp32, arithmetic or not.
RUN_IN_FP32 = ("F32", "X32", "PF32")


def is_packed(dtype: str) -> bool:
    """Return whether XNNPACK's operator types have a packed one: only there are SME and SME2 kernels."""
    return any(part in PACKED_TYPES for part in dtype.split("-"))


def is_custom(operator: str) -> bool:
    """Return whether it is one of ExecuTorch's fused operators for language models (`llama::custom_sdpa.out`)."""
    return operator.startswith("llama::")


# Operators inside an XNNPACK delegate, by the name before the parenthesis. The first row that matches counts.
XNNPACK_RULES = (
    # VMulCAddC is a 1x1 depthwise convolution: one multiply and one add per channel.
    Rule("CONV", "depthwise", ("Convolution",), ("DWConv", "VMulCAddC")),
    # XNNPACK takes these only for a 1x1 kernel without padding; SPMM is its sparse form.
    Rule("CONV", "pointwise", ("Convolution",), ("GEMM", "SPMM")),
    Rule("CONV", "conv2d", ("Convolution",)),
    Rule("CONV", "deconvolution", ("Deconvolution",)),
    Rule("GEMM", "fully connected", ("Fully Connected", "Dynamic Fully Connected")),
    Rule("GEMM", "batch matmul", ("Batch Matrix Multiply",)),
    Rule("GEMM", "attention", ("Scaled Dot-Product Attention",)),
    Rule("Data Movement", "transpose", ("Transpose",)),
    Rule("Data Movement", "reshape", ("Static Reshape", "Static Expand Dims", "Fuse Dims", "Split Dims")),
    # Concatenation runs as copies too.
    Rule("Data Movement", "copy", ("Copy",)),
    # The left-hand side of a matrix product, put into the order KleidiAI's kernels read.
    Rule("Data Movement", "pack", ("Pack LH",)),
    Rule("Data Movement", "pad", ("Constant Pad",)),
    Rule("Data Movement", "slice", ("Slice",)),
    Rule("Data Movement", "convert", ("Convert",)),
    Rule("Data Movement", "shuffle", ("Depth To Space", "Space To Depth", "Channel Shuffle")),
    Rule(
        "Elementwise",
        "binary",
        (
            *("Add", "Subtract", "Multiply", "Divide", "Minimum", "Maximum", "Modulus", "Power", "ATan2", "Copy Sign"),
            *("Squared Difference", "Bitwise And", "Bitwise Or", "Bitwise Xor"),
            *("Shift Left", "Shift Right Logical", "Shift Right Arithmetic", "Binary Elementwise"),
        ),
    ),
    Rule(
        "Elementwise",
        "unary",
        (
            *("Abs", "Ceiling", "Cosine", "Count Leading Zeros", "Cube Root", "Exp", "Floor", "Log", "Negate", "Sign"),
            *("Population Count", "Bitwise Not", "Reciprocal Square Root", "Sine", "Square", "Square Root"),
            "Bankders Rounding",  # spelled so by XNNPACK
            *("Bankers Rounding", "Truncation", "Unary Elementwise"),
        ),
    ),
    Rule(
        "Elementwise",
        "activation",
        (
            *("ELU", "GELU", "ApproxGELU", "HardSwish", "LeakyReLU", "PReLU", "Sigmoid", "TanH"),
            *("Leaky ReLU", "Tanh"),  # before XNNPACK of 2025
        ),
    ),
    Rule("Elementwise", "clamp", ("Clamp",)),
    Rule("Elementwise", "normalization", ("Normalize",)),
    Rule("Elementwise", "softmax", ("Softmax",)),
    Rule("Elementwise", "rope", ("RoPE",)),
    Rule("Other", "reduction", ("Mean", "Mean Squared", "Sum", "Reduce Max", "Reduce Min")),
    Rule(
        "Other",
        "pooling",
        (
            *("Average Pooling", "Max Pooling", "ArgMax Pooling", "Unpooling"),
            *("Global Average Pooling", "Global Sum Pooling"),  # before XNNPACK of 2025
        ),
    ),
    Rule("Other", "resize", ("Resize Bilinear",)),
    # What XNNPACK prints for an operator that was never set up; here so that it does not read as unknown.
    Rule("Other", "invalid", ("Invalid", "Invalid Unary Op", "Invalid Binary Op")),
)


def _portable(category: Category, kind: str, names: str) -> Rule:
    return Rule(category, kind, tuple(names.split()))


# Portable kernels by the name they are registered under, without overload and without `aten::`. A dump has most of them
# without any namespace: the generated wrappers call the event `native_call_quantize_per_tensor.out`. Kernels registered
# by EXECUTORCH_LIBRARY (llama's, embedding_xbit) keep theirs: `llama::custom_sdpa.out`.
PORTABLE_RULES = (
    _portable("CONV", "conv2d", "convolution convolution_backward conv1d conv2d conv3d"),
    _portable("CONV", "deconvolution", "conv_transpose1d conv_transpose2d conv_transpose3d"),
    _portable("GEMM", "fully connected", "linear addmm mm mv matmul"),
    _portable("GEMM", "fully connected", "quantized_decomposed::mixed_linear quantized_decomposed::mixed_mm"),
    _portable("GEMM", "fully connected", "llama::quantized_moe_ffn"),
    _portable("GEMM", "batch matmul", "bmm baddbmm"),
    _portable("GEMM", "attention", "scaled_dot_product_attention llama::sdpa_with_kv_cache llama::custom_sdpa"),
    _portable("GEMM", "attention", "llama::custom_quantized_sdpa llama::gated_delta_rule"),
    _portable("GEMM", "attention", "llama::channelwise_gated_delta_rule"),
    _portable("Data Movement", "transpose", "permute permute_copy transpose transpose_copy t t_copy"),
    _portable("Data Movement", "reshape", "view view_copy reshape squeeze squeeze_copy unsqueeze unsqueeze_copy"),
    _portable("Data Movement", "reshape", "as_strided_copy view_as_real_copy flatten executorch_prim::et_view"),
    _portable("Data Movement", "copy", "copy clone alias_copy detach_copy lift_fresh_copy contiguous"),
    _portable("Data Movement", "copy", "dim_order_ops::_clone_dim_order et_copy::_h2d_copy et_copy::_d2h_copy"),
    # Written into a part of another tensor, whose place is known without looking at values.
    _portable("Data Movement", "copy", "select_scatter slice_scatter executorch_prim::et_copy_index"),
    _portable("Data Movement", "copy", "llama::update_cache llama::update_cache_with_indices llama::fallback"),
    _portable("Data Movement", "expand", "expand expand_copy repeat repeat_interleave"),
    _portable("Data Movement", "pad", "constant_pad_nd pad reflection_pad1d reflection_pad2d reflection_pad3d"),
    _portable("Data Movement", "pad", "replication_pad1d replication_pad2d replication_pad3d"),
    _portable("Data Movement", "slice", "slice slice_copy select select_copy narrow_copy diagonal_copy unfold_copy"),
    _portable("Data Movement", "slice", "preprocess::tile_crop"),
    _portable("Data Movement", "concat", "cat stack"),
    _portable("Data Movement", "split", "split split_copy split_with_sizes split_with_sizes_copy chunk unbind_copy"),
    # _to_dim_order_copy changes the memory format as often as the type; the name does not say which.
    _portable("Data Movement", "convert", "_to_copy to dim_order_ops::_to_dim_order_copy"),
    _portable("Data Movement", "convert", "quantized_decomposed::quantize_per_tensor"),
    _portable("Data Movement", "convert", "quantized_decomposed::quantize_per_channel"),
    _portable("Data Movement", "convert", "quantized_decomposed::quantize_per_token"),
    _portable("Data Movement", "convert", "quantized_decomposed::dequantize_per_tensor"),
    _portable("Data Movement", "convert", "quantized_decomposed::dequantize_per_channel"),
    _portable("Data Movement", "convert", "quantized_decomposed::dequantize_per_token"),
    # The first half of quantizing a tensor at run time; XNNPACK's Convert does both halves in one operator.
    _portable("Data Movement", "convert", "quantized_decomposed::choose_qparams"),
    _portable("Data Movement", "convert", "quantized_decomposed::choose_qparams_per_token_asymmetric"),
    _portable("Data Movement", "shuffle", "pixel_shuffle pixel_unshuffle channel_shuffle flip roll"),
    # Reads or writes where a tensor of indices or a mask says: the model needs it, other than a change of layout.
    _portable("Data Movement", "gather", "gather index index_select masked_select embedding"),
    _portable("Data Movement", "gather", "scatter scatter_add index_put masked_scatter"),
    _portable("Data Movement", "gather", "quantized_decomposed::embedding_byte quantized_decomposed::embedding_xbit"),
    _portable("Data Movement", "gather", "quantized_decomposed::embedding_2bit quantized_decomposed::embedding_4bit"),
    _portable("Data Movement", "fill", "fill full full_like zeros ones empty scalar_tensor arange"),
    _portable("Data Movement", "fill", "dim_order_ops::_empty_dim_order"),
    _portable("Elementwise", "binary", "add sub rsub mul div floor_divide fmod remainder pow atan2 maximum minimum"),
    _portable("Elementwise", "binary", "eq ne ge gt le lt logical_and logical_or logical_xor"),
    _portable("Elementwise", "binary", "bitwise_and bitwise_or bitwise_xor bitwise_left_shift bitwise_right_shift"),
    _portable("Elementwise", "binary", "quantized_decomposed::add"),
    _portable("Elementwise", "unary", "abs acos acosh asin asinh atan atanh ceil cos cosh erf exp expm1 floor"),
    _portable("Elementwise", "unary", "log log10 log1p log2 logit neg reciprocal round rsqrt sign sin sinh sqrt tan"),
    _portable("Elementwise", "unary", "trunc isinf isnan logical_not bitwise_not _conj_physical native_dropout"),
    _portable("Elementwise", "mask", "where masked_fill tril triu"),
    _portable("Elementwise", "activation", "relu gelu glu elu leaky_relu sigmoid tanh silu hardswish hardsigmoid"),
    _portable("Elementwise", "clamp", "clamp hardtanh"),
    _portable("Elementwise", "normalization", "native_layer_norm native_group_norm layer_norm group_norm rms_norm"),
    _portable("Elementwise", "normalization", "batch_norm _native_batch_norm_legit"),
    _portable("Elementwise", "normalization", "_native_batch_norm_legit_no_training"),
    _portable("Elementwise", "softmax", "_softmax _log_softmax softmax log_softmax"),
    _portable("Other", "reduction", "mean sum prod var var_mean amax amin max min any all allclose"),
    _portable("Other", "scan", "cumsum"),
    _portable("Other", "argmax", "argmax argmin"),
    _portable("Other", "sort", "topk sort nonzero"),
    _portable("Other", "pooling", "avg_pool2d _adaptive_avg_pool2d adaptive_avg_pool2d max_pool2d"),
    _portable("Other", "pooling", "max_pool2d_with_indices max_pool2d_with_indices_backward"),
    _portable("Other", "resize", "upsample_bilinear2d upsample_nearest2d _upsample_bilinear2d_aa grid_sampler_2d"),
    _portable("Other", "distance", "_cdist_forward _pdist_forward"),
    _portable("Other", "fft", "_fft_r2c _fft_c2r llama::fast_hadamard_transform"),
    _portable("Other", "random", "rand randn"),
    # Numbers, not tensors: shapes and loop counters of a program with dynamic sizes.
    _portable("Other", "scalar", "_local_scalar_dense sym_size sym_numel"),
    _portable("Other", "scalar", "executorch_prim::add executorch_prim::sub executorch_prim::mul executorch_prim::mod"),
    _portable("Other", "scalar", "executorch_prim::floordiv executorch_prim::truediv executorch_prim::neg"),
    _portable("Other", "scalar", "executorch_prim::eq executorch_prim::ge executorch_prim::gt executorch_prim::le"),
    _portable("Other", "scalar", "executorch_prim::lt executorch_prim::ceil executorch_prim::round"),
    _portable("Other", "scalar", "executorch_prim::trunc executorch_prim::sym_float executorch_prim::sym_int"),
    _portable("Other", "scalar", "executorch_prim::sym_ite executorch_prim::sym_max executorch_prim::sym_min"),
    _portable("Other", "scalar", "executorch_prim::sym_not"),
)
