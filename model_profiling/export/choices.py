"""What may be asked of an export; imports nothing, so that the command line can list it at once."""

DTYPES = ("fp32", "fp16", "int8", "int8-dynamic", "int4", "int4-channel")
REWRITES = (
    *("attention", "copies", "cumsum", "gelu-tanh", "hardsigmoid", "keepdim", "layout", "mean", "norm", "silu"),
    "upsample",
)
# What rewrites were called before, in commands, programs and records that are older than their names.
_EARLIER_NAMES = {"per-pixel": "layout"}


def rewrite_name(name: str) -> str:
    """What a rewrite is called today."""
    return _EARLIER_NAMES.get(name, name)
