"""A node's metadata made readable: which module it stands in, and which line of the user's model made it."""

import re
from dataclasses import dataclass
from functools import lru_cache

from model_profiling.upstream.names_in_files import EDGE_OPERATORS

# A frame as `traceback` prints it. The code line is missing when the source was not at hand.
_FRAME = re.compile(r'^[ \t]*File "(.*)", line (\d{1,9}), in (.*)(?:\n(?![ \t]*File ")[ \t]+(.*))?', re.MULTILINE)

# The frameworks' own frames. ExecuTorch's examples are models, so they count as a user's.
_FRAMEWORK = re.compile(r"(?:^|(?:site|dist)-packages/)(?:torch|torchao|executorch(?!/examples))/")

# Modules no user wrote: torch.export's wrapper around the model, alone in the stack of what quantization inserts, and
# the placeholder of nodes that have no stack, such as reading a dynamic size.
_NO_MODULE = ("torch.export.", "_empty_nn_module_stack")

_SELF = re.compile(r"^L(?:\['self'\]|__self__)\.?")


@dataclass(frozen=True, slots=True)
class SourceNode:
    """An operator of the graph before delegation. What its metadata does not tell is empty, a line 0.

    `origin` is the operator of the captured model that it was made from, another one if that was decomposed:
    `aten.silu.default` becomes a sigmoid, a multiplication and, in fp16, conversions to fp32 and back.
    """

    op: str
    module_path: str
    module_type: str
    file: str
    line: int
    code: str
    debug_handle: int
    origin: str = ""
    # What the graph calls it, and what the captured model called the operator that it was made from.
    name: str = ""
    origin_name: str = ""


def operator(target: str) -> str:
    """Shorten `executorch.exir.dialects.edge.ops.aten.mean.dim` or `torch.ops.aten.mean.dim` to `aten.mean.dim`."""
    return target.removeprefix(EDGE_OPERATORS).removeprefix("torch.ops.").removeprefix("_operator.")


@lru_cache(maxsize=4096)
def module(nn_module_stack: str) -> tuple[str, str]:
    """Return path and class of the innermost module in `key,path,type;key,path,type`; the root's path is empty."""
    for item in reversed(nn_module_stack.split(";")):
        _, _, rest = item.partition(",")
        # From the right: a ModuleDict's key may have a comma, a class has none.
        path, _, kind = rest.rpartition(",")
        if kind and not kind.startswith(_NO_MODULE):
            return _SELF.sub("", path), kind.rpartition(".")[2]
    return "", ""


@lru_cache(maxsize=4096)
def frame(stack_trace: str) -> tuple[str, int, str]:
    """Return file, line and code of the innermost frame outside the frameworks, a `forward` if there is one.

    A model that is a framework's own (`torch.nn.LSTM`) has no frame outside; then its innermost `forward` is taken.
    """
    # What torch made while it traced, such as <eval_with_key>.37, is no file.
    frames = [found for found in _FRAME.finditer(stack_trace) if not found[1].startswith("<")]
    own = [found for found in frames if not _FRAMEWORK.search(found[1])]
    forwards = [found for found in own or frames if found[3] == "forward"]
    best = (forwards or own)[-1:]
    return (best[0][1], int(best[0][2]), (best[0][4] or "").strip()) if best else ("", 0, "")
