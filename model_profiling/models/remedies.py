"""What usually helps when an export fails, by what torch and ExecuTorch say when it does."""

import re
from dataclasses import dataclass


@dataclass(frozen=True)
class Remedy:
    """A kind of failure: its name in plain words, how its messages read, and what to do."""

    kind: str
    pattern: str
    advice: str


# Of code that needs a GPU, at whatever time it is run.
_GPU = r"not compiled with CUDA|NVIDIA driver|CUDA error|all tensors to be on the same device|not linked with.*MPS"
# The first pattern that matches the error's type and text wins. The texts are those of torch 2.13 and ExecuTorch 1.5.
REMEDIES = (
    Remedy(
        "a device other than the CPU",
        _GPU,
        'Exports are made on the CPU: leave .cuda() and device="cuda" out, or take the device of an input (x.device).',
    ),
    Remedy(
        "a relative import in a file that is run by itself",
        r"attempted relative import",
        "Import by name instead (`from layers import Block`: the file's folder is on the path), or name a file outside "
        "the package that imports the model from it.",
    ),
    Remedy(
        "an output that is neither a tensor nor a tuple, list or dict of them",
        r"in output, which is not a known type|register a pytree",
        "Return tensors in a tuple or a dict, or make the class known: torch.export.register_dataclass(TheClass).",
    ),
    Remedy("a model that returns no tensor", r"graph_output_allocated not set", "Is a `return` missing in forward()?"),
    Remedy(
        "a module without forward()",
        r'missing the required "forward"',
        "Define forward(self, x) in the class; its name and its indentation must be right.",
    ),
    Remedy(
        "a shape that depends on data",
        r"specialized integer from data-dependent|DataDependentOutput|unbacked|Size-like symbols: u",
        "A size is read out of a tensor (.item(), int(), boolean indexing, nonzero). Take it from a shape or a "
        "constant, or keep the full shape and multiply by a mask.",
    ),
    Remedy(
        "control flow that depends on data",
        r"Could not guard on data-dependent expression|Dynamic control flow is not supported",
        "An `if`, `while` or `assert` looks at a tensor's values, which a graph cannot do. Use torch.where or "
        "torch.cond, or decide by something known beforehand (a shape, a constructor argument).",
    ),
    Remedy(
        "a dynamic shape that does not hold",
        r"ConstraintViolationError|Constraints violated|dynamic_shapes",
        "What get_dynamic_shapes() promises is not true of the model. Narrow the range of the Dim it names, or leave "
        "that dimension static.",
    ),
    Remedy(
        "a custom operator without a fake implementation",
        r"no fake impl registered|no meta|meta kernel",
        "torch.export must know the operator's output shape: add `register_fake`, or write it with PyTorch's own "
        "operators.",
    ),
    Remedy(
        "an operator without a kernel in ExecuTorch",
        r"Missing out variants",
        "No kernel of ExecuTorch computes it. Write it with PyTorch's own operators, or move it out of the model.",
    ),
    Remedy(
        "an operator outside ExecuTorch's set",
        r"not in Core ATen opset|is not Aten Canonical|operator.*not supported",
        "ExecuTorch knows only Core ATen operators. Write it with simpler ones, or move it before or after the model.",
    ),
    Remedy(
        "a float where an integer is needed",
        r"scalar types: Long|LongTensor|int(32|64) (or int64 )?for index|used as indices must be|an integral tensor",
        "Give token ids and other indices as integers, below the number of rows of their table: --input "
        "int64:SHAPE:0..ROWS.",
    ),
    Remedy(
        "dtypes that do not go together",
        r"mismatched dtypes|must have the same dtype|expected scalar type|dtype.*but got|Half.*Float|Float.*Half",
        "Some tensor has another dtype than the rest: often one made inside forward (torch.zeros, torch.arange) or a "
        "complex one. Make it with dtype=x.dtype, or register it as a buffer.",
    ),
    Remedy(
        "example inputs that do not fit",
        r"shapes cannot be multiplied|size mismatch|expected input|must match the size|positional arg|\d+ channels",
        "forward() does not accept the example inputs: check their number, shapes and dtypes.",
    ),
    Remedy(
        "an index outside its table",
        r"IndexError: index out of range in self|index \d+ is out of bounds",
        "An integer input holds values that an embedding or a table does not have: give their range, from 0 up to but "
        "not including the number of rows, for example --input int64:1,128:0..30522.",
    ),
    Remedy(
        "NumPy inside the model",
        r"\.numpy\(\) is not supported|numpy",
        "forward leaves PyTorch for NumPy, where no graph can follow. Use the torch function of the same name.",
    ),
    Remedy(
        "a quantizer that meets an operator it cannot handle",
        r"prepare_pt2e|convert_pt2e|observer|quantiz",
        "Export in fp32 or fp16 first; if that works, quantization is what fails. int8-dynamic asks less of a model.",
    ),
)


def find_remedy(kind: str, text: str) -> Remedy | None:
    """Return what is known of an error of this type with this text."""
    said = f"{kind}: {text}"
    return next((remedy for remedy in REMEDIES if re.search(remedy.pattern, said)), None)
