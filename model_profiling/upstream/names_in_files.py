"""What ExecuTorch and XNNPACK call things in an ETDump and an ETRecord.

By the names of events time is counted once, and gets a category.
"""

import sys
from collections.abc import Sequence

from model_profiling.base import files
from model_profiling.upstream.libraries import BACKEND, file_of
from model_profiling.upstream.reliance import NotCheckable, installed_file, installed_version, reliance

EXECUTE = "Method::execute"
OPERATOR_CALL, DELEGATE_CALL = "OPERATOR_CALL", "DELEGATE_CALL"
# The scopes that ExecuTorch's Method opens around one instruction (runtime/executor/method.cpp).
CALLS = (OPERATOR_CALL, DELEGATE_CALL, "JF_CALL", "MOVE_CALL", "FREE_CALL")
# Beginnings of XNNPACK's names; `analysis/timing/categories.py` has them all.
_OPERATORS = ("Convolution (NHWC", "Fully Connected (NC", "Batch Matrix Multiply", "Transpose (ND")
# The members of an ETRecord, and what the name of an operator begins with in its graph, before delegation.
ETRECORD_IDENTIFIER = "ETRECORD_V0"
EDGE_PROGRAM, HANDLES, DELEGATES = "edge_dialect_exported_program", "debug_handle_map", "delegate_map"
EDGE_OPERATORS = "executorch.exir.dialects.edge.ops."
_ETRECORD_WRITER = "devtools/etrecord/_etrecord.py"
_LARGEST = 1 << 30


def _absent(file: str, names: Sequence[str]) -> str:
    """Return the first of some names that a file of the installed wheel does not have."""
    content = files.content(installed_file(file), _LARGEST)
    return next((name for name in names if name.encode() not in content), "")


def _missing(library: str, names: Sequence[str]) -> str:
    if sys.platform == "darwin":
        raise NotCheckable("libraries of macOS are not looked into")
    absent = _absent(f"lib/{file_of(library)}", names)
    return f"{file_of(library)} has no `{absent}`" if absent else ""


def _check_etrecord() -> str:
    members = [f'"{name}"' for name in (ETRECORD_IDENTIFIER, EDGE_PROGRAM, HANDLES, DELEGATES)]
    absent = _absent(_ETRECORD_WRITER, members)
    return f"executorch {installed_version('executorch')} writes no {absent}" if absent else ""


EVENTS = reliance("event-names", lambda: _missing("executorch", (EXECUTE, *CALLS)))
OPERATORS = reliance("operator-names", lambda: _missing(BACKEND, _OPERATORS))
ETRECORD = reliance("etrecord-contents", _check_etrecord)
