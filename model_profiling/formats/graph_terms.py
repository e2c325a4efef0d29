"""Words that readers of a graph and rules about it share; here, so that a rule does not load a reader to name them."""

from collections.abc import Iterable

# Where a tensor comes from that no step made: an input of the method, a constant, or a place that is not known.
INPUT, CONSTANT, ELSEWHERE = -1, -2, -3
# The namespace of ExecuTorch's operators for language models, which are in a library of their own.
CUSTOM_OPERATORS = "llama::"
# The layout changes between PyTorch's order of dimensions and XNNPACK's.
TO_NHWC, TO_NCHW = (0, 2, 3, 1), (0, 3, 1, 2)


def packet(op: str) -> str:
    """Cut the overload off: `aten.mean.dim` and `aten::mean.out` are both `aten.mean`."""
    return ".".join(op.replace("::", ".").split(".")[:2])


def base_name(operator: str) -> str:
    """Return `mean` of `mean.out`, `aten::mean.out`, `aten.mean` and `aten.mean.dim`."""
    _, colons, rest = operator.rpartition("::")
    parts = rest.split(".")
    # Graphs write namespace.name.overload, programs namespace::name.overload and dumps name.overload.
    named = not colons and (len(parts) > 2 or (len(parts) == 2 and parts[0] in ("aten", "dim_order_ops")))
    return parts[1 if named else 0]


def unique(names: Iterable[str]) -> list[str]:
    return list(dict.fromkeys(names))
