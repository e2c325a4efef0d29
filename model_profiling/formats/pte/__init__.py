"""Reads a .pte, ExecuTorch's program file, without torch, executorch or flatbuffers.

A .pte is a flatbuffer (`ET12` at byte 4, schema in the wheel: `executorch/schema/program.fbs`) with an extended header
(`eh00` at byte 8) that says where it ends; weights and delegate blobs follow as segments and are not read here, unless
asked for: `xnnpack_graph` reads the graph at the head of an XNNPACK blob, and `dataflow` joins both into which operator
feeds which.

A method has one chain in every file ExecuTorch 1.5.1 writes. The index of an instruction in its chain is the number an
ETDump's events carry and the number an ETRecord's maps are keyed by.
"""

from model_profiling.formats.pte.program import (
    KERNEL,
    Delegate,
    Instruction,
    Method,
    Program,
    PteError,
    TensorSpec,
    check_identifier,
    parse_own,
    read,
    why_unknown,
)

__all__ = [
    "KERNEL",
    "Delegate",
    "Instruction",
    "Method",
    "Program",
    "PteError",
    "TensorSpec",
    "check_identifier",
    "parse_own",
    "read",
    "why_unknown",
]
