"""The table of rewrites (`--rewrite NAME`): what each is called, what it is for and in which order they are applied.

A new rewrite is a row here and code in `export/rewrites/` that finds and changes the nodes. Everything that lists
rewrites is derived from this table. It lies in base/ because the analysis reads it as well as the export.
"""

from collections.abc import Mapping
from typing import NamedTuple

# Special in three places: it is also done in lowering, its operators are those at the recorded lines, and portable
# kernels do not need it.
LAYOUT = "layout"
# No rewrite of its own: the export chooses among all of them (export/lower/auto_rewrites.py).
AUTO = "auto"
# None, and `profile` does not measure what AUTO would bring.
NO_REWRITE = "none"


class Rewrite(NamedTuple):
    """One rewrite of the captured graph."""

    name: str
    # What it does, in a few words for the command line.
    help: str
    # Operators of the model that it replaces, as ATen calls them: the advice offers it for these.
    operators: tuple[str, ...] = ()
    # The dtypes in which it finds something; all if empty.
    dtypes: tuple[str, ...] = ()
    # Whether it waits until the graph is quantized: parts of an operator that stays in float must not be quantized each
    # on its own.
    after_quantization: bool = False
    # Rewrites that are done with it.
    includes: tuple[str, ...] = ()
    # The change to ExecuTorch that makes it needless: from the version that has it on, it finds nothing to do.
    until: str = ""
    # What a person can do instead, by operator: the end of the advice's sentence.
    alternatives: Mapping[str, str] = {}

    @property
    def summary(self) -> str:
        """Return its line in the help of `--rewrite`: `gelu-tanh (fp16): GELU in its tanh form`."""
        only = f" ({', '.join(self.dtypes)})" if self.dtypes else ""
        until = f", until the ExecuTorch with {self.until}" if self.until else ""
        return f"{self.name}{only}: {self.help}{until}"


# In the order in which they are applied.
_ROWS = (
    Rewrite(
        "attention",
        "attention and products of computed tensors as batches of matrix products",
        ("matmul", "mm", "scaled_dot_product_attention"),
        after_quantization=True,
    ),
    Rewrite(
        "copies",
        "expand, repeat, select and split as slices, views and products with ones",
        (
            *("expand", "expand_as", "expand_copy", "repeat", "repeat_interleave", "select", "select_copy"),
            *("chunk", "split", "split_copy", "split_with_sizes", "split_with_sizes_copy", "unbind", "unbind_copy"),
            *("squeeze", "squeeze_copy", "unsqueeze", "unsqueeze_copy"),
        ),
        after_quantization=True,
    ),
    Rewrite("cumsum", "a cumulative sum as a product with a constant", ("cumsum",), after_quantization=True),
    Rewrite(
        "gelu-tanh",
        "GELU in its tanh form",
        ("gelu",),
        dtypes=("fp16",),
        until="pytorch/executorch#16679",
        alternatives={"gelu": "use another activation"},
    ),
    Rewrite("hardsigmoid", "hardsigmoid without conversions", ("hardsigmoid", "hardsigmoid_"), after_quantization=True),
    Rewrite(
        "keepdim",
        "mean and sum over pixels in a form that XNNPACK delegates",
        ("mean", "sum"),
        alternatives={"mean": "call mean with keepdim=True and squeeze afterwards"},
    ),
    Rewrite("mean", "other means, sums and norms as products", ("mean", "sum", "pow"), after_quantization=True),
    Rewrite(
        "norm",
        "layer, group, instance and RMS norm from parts that XNNPACK delegates",
        ("layer_norm", "native_layer_norm", "group_norm", "native_group_norm", "instance_norm", "rms_norm"),
        after_quantization=True,
    ),
    Rewrite(
        "silu",
        "SiLU and GLU without conversions to fp32",
        ("silu", "silu_", "glu"),
        ("fp16",),
        until="pytorch/executorch#22604",
    ),
    Rewrite(
        "upsample",
        "resizes and poolings in forms that XNNPACK takes",
        (
            *("upsample_nearest2d", "_upsample_nearest_exact2d", "upsample_bicubic2d", "_upsample_bicubic2d_aa"),
            *("_upsample_bilinear2d_aa", "adaptive_avg_pool2d", "_adaptive_avg_pool2d", "avg_pool2d"),
        ),
        after_quantization=True,
    ),
    # Last: what others put into the graph may need no layout change either. Attention as one operator hides the layout
    # changes of its parts.
    Rewrite(LAYOUT, "removes redundant permutes, views and transposes", includes=("attention",)),
)
REWRITES = {row.name: row for row in _ROWS}
REWRITE_CHOICES = (AUTO, NO_REWRITE, *sorted(REWRITES))
REWRITE_HELP = (
    f"change the graph, not its results; {AUTO}: those that leave fewer operators outside delegates, bytes moved or "
    f"delegate calls; {NO_REWRITE}: as it is; " + "; ".join(REWRITES[name].summary for name in sorted(REWRITES))
)


def rewrites_for(operator: str) -> tuple[str, ...]:
    """Return the rewrites that exist for an operator (`aten.mean`): often several, each for another form of it."""
    return tuple(row.name for row in _ROWS if operator.removeprefix("aten.") in row.operators)
