"""Several runtimes as they are compared: forged rows, with forged programs behind those that have a profile."""

from collections.abc import Sequence
from typing import Any

import msgspec
import numpy as np

from model_profiling.analysis.accuracy.agreement import Agreement
from model_profiling.analysis.compare.program_changes import ProgramChanges, program_changes
from model_profiling.analysis.compare.runtime_comparison import RuntimeComparison, RuntimeRow
from model_profiling.analysis.process.startup import MedianTime
from model_profiling.analysis.timing.latency import Comparison
from tests.helpers.program_forge import CONV, Op, side

ET, ORT = "ExecuTorch 1.5.0", "ONNX Runtime 1.27.0"
AGREES = Agreement("onnxruntime", "eager", 0.0, 1.0, None, 1.0, "agrees")


def compared(ratio: float, low: float, high: float | None, **more: Any) -> Comparison:
    verdict = "no difference seen" if high is None or low <= 1 <= high else "faster" if low > 1 else "slower"
    return Comparison("executorch", "onnxruntime", ratio, low, high, 0.95, verdict, 1.0, True, 6, **more)  # type: ignore[arg-type]


def means(blocks: int, ns: float, name: str = "mean.out", conv: str = CONV) -> list[Op]:
    """Return blocks of a convolution and a mean, which takes `ns`."""
    found = []
    for n in range(blocks):
        found.append(Op(conv, 80_000, f"blocks.{n}.conv", "y = self.conv(x)", 9, file="nets.py"))
        found.append(Op(name, ns, f"blocks.{n}", "g = y.mean((2, 3))", 11, where="portable", file="nets.py"))
    return found


def changes(before: Sequence[Op], after: Sequence[Op], names: tuple[str, str] = (ET, ORT)) -> ProgramChanges:
    generator = np.random.default_rng(0)
    return program_changes(side(names[0], before, generator), side(names[1], after, generator), True)


EXECUTORCH = RuntimeRow(
    "executorch", "executorch", ET, {"executorch": "1.5.0"}, {"threads": "1"}, "net.pte", MedianTime(1.9, 1.8, 2.0),
    startup=MedianTime(20.0, 19.0, 21.0), peak_bytes=30 << 20, outputs=AGREES, ranked=True,
)  # fmt: skip
OTHER = RuntimeRow(
    "onnxruntime", "onnxruntime", ORT, {"onnxruntime": "1.27.0"}, {"graph": "all"}, "net.onnx",
    MedianTime(1.0, 0.95, 1.05), compared(1.9, 1.8, 2.0), MedianTime(80.0), 60 << 20, AGREES, True,
    changes=changes(means(5, 120_000), means(5, 10_000, "ReduceMean")),
)  # fmt: skip
FAILED = RuntimeRow("litert", "litert", "LiteRT", reason="LiteRT takes a .tflite", hint="Give one of your own.")


def runtimes(*rows: RuntimeRow, baseline: str = "executorch", **more: Any) -> RuntimeComparison:
    return RuntimeComparison("net", "fp32", 1, baseline, "eager PyTorch, as it was exported", list(rows), **more)


def replaced(row: RuntimeRow, **fields: Any) -> RuntimeRow:
    return msgspec.structs.replace(row, **fields)
