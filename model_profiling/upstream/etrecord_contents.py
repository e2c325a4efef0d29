"""What an ETRecord is called inside: its members, and how its graph spells an operator."""

from model_profiling.base import files
from model_profiling.upstream.installed_wheel import installed_file
from model_profiling.upstream.reliance import PROVEN, Reliance, installed_version

IDENTIFIER = "ETRECORD_V0"
EDGE_PROGRAM = "edge_dialect_exported_program"
HANDLES = "debug_handle_map"
DELEGATES = "delegate_map"
# What the name of an operator begins with in the graph before delegation.
EDGE_OPERATORS = "executorch.exir.dialects.edge.ops."
_FILE = "devtools/etrecord/_etrecord.py"
_LARGEST = 4 << 20


def _check() -> str:
    source = files.content(installed_file(_FILE), _LARGEST).decode("utf-8", "replace")
    missing = [name for name in (IDENTIFIER, EDGE_PROGRAM, HANDLES, DELEGATES) if f'"{name}"' not in source]
    return f"executorch {installed_version('executorch')} writes no {missing[0]}" if missing else ""


ETRECORD = Reliance(
    "etrecord-contents",
    "ExecuTorch",
    f"an ETRecord is a zip with {HANDLES}, {DELEGATES} and {EDGE_PROGRAM}, whose nodes have handles and stack traces",
    PROVEN,
    f"the names in {_FILE}; every record against the .pte beside it",
    _check,
    "source lines are unknown",
)
RELIANCES = (ETRECORD,)
