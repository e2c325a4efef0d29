"""What ExecuTorch and XNNPACK call things in an ETDump: by these names time is counted once, and gets a category."""

import sys

from model_profiling.base import files
from model_profiling.upstream.installed_wheel import installed_file
from model_profiling.upstream.libraries import BACKEND, file_of
from model_profiling.upstream.reliance import PROVEN, NotCheckable, Reliance

EXECUTE = "Method::execute"
OPERATOR_CALL, DELEGATE_CALL = "OPERATOR_CALL", "DELEGATE_CALL"
# The scopes that ExecuTorch's Method opens around one instruction (runtime/executor/method.cpp).
CALLS = (OPERATOR_CALL, DELEGATE_CALL, "JF_CALL", "MOVE_CALL", "FREE_CALL")
# Beginnings of XNNPACK's names; `analysis/timing/category_table.py` has them all.
_OPERATORS = ("Convolution (NHWC", "Fully Connected (NC", "Batch Matrix Multiply", "Transpose (ND")
_LARGEST = 1 << 30


def _missing(library: str, names: tuple[str, ...]) -> str:
    if sys.platform == "darwin":
        raise NotCheckable("libraries of macOS are not looked into")
    content = files.content(installed_file(f"lib/{file_of(library)}"), _LARGEST)
    absent = [name for name in names if name.encode() not in content]
    return f"{file_of(library)} has no `{absent[0]}`" if absent else ""


EVENTS = Reliance(
    "event-names",
    "ExecuTorch",
    f"an ETDump calls an execution {EXECUTE}, and what encloses operators {', '.join(CALLS)}",
    PROVEN,
    "the names in the runtime's library; a dump without an execution is refused",
    lambda: _missing("executorch", (EXECUTE, *CALLS)),
    "no ETDump is analysed: times would be counted twice",
    essential=True,
)
OPERATORS = Reliance(
    "operator-names",
    "XNNPACK",
    "XNNPACK's names of operators, such as Convolution (NHWC, F32), by which they get a category and find their node",
    f"XNNPACK in {PROVEN}",
    "the names in the backend's library; what a trace has is matched with the .pte's nodes one by one",
    lambda: _missing(BACKEND, _OPERATORS),
    "an operator of an unknown name is in the category Other, and has no node",
)
RELIANCES = (EVENTS, OPERATORS)
