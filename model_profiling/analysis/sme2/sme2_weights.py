"""Which part of a program's linear layers has weights for which XNNPACK has SME2 kernels: from the .pte alone."""

from math import prod
from pathlib import Path

from model_profiling.analysis.sme2.weight_formats import CHECKED, has_kernel, weight_format
from model_profiling.base.errors import KitError
from model_profiling.formats import pte
from model_profiling.formats.pte import xnnpack_graph

# Where the share comes from.
KNOWN_FROM = f"known of ExecuTorch {CHECKED}, not traced"


def sme2_share(model: Path, method: str) -> float | None:
    """Return the part of all weights that meet a row of tokens; None where the file does not tell, or has a format of
    which nobody has looked at the kernels."""
    try:
        program = pte.read(model)
        chosen = program.method(method)
        graphs = xnnpack_graph.graphs(program, chosen) if chosen is not None else {}
    except KitError:
        return None
    sizes = [
        (prod(node.inputs[1].shape), weight_format(node))
        for graph in graphs.values()
        for node in graph.nodes
        if node.op == "FullyConnected" and len(node.inputs) > 1
    ]
    known = [(size, has_kernel(weights)) for size, weights in sizes]
    whole = sum(size for size, _ in known)
    if not whole or any(taken is None for _, taken in known):
        return None
    return sum(size for size, taken in known if taken) / whole
