"""The log of a user's own trace-enabled runner: XNNPACK names each microkernel it chooses."""

import csv
import io
import re
from collections import Counter
from pathlib import Path

import msgspec

from model_profiling.base import files
from model_profiling.base.errors import InputError
from model_profiling.upstream.libraries import KERNEL_PREFIX

_LONGEST_LOG = 1 << 28
_CHOSEN = re.compile(r"Using (?P<purpose>[^'\n]{1,80}?) microkernel '(?P<kernel>[A-Za-z0-9_]{1,200})'")
_KLEIDIAI = re.compile(rf"\b(?P<kernel>{KERNEL_PREFIX}[a-z0-9_]{{1,200}})\b")
# The instruction set at the end of XNNPACK's kernel names (`…__neonsme2`), and inside KleidiAI's (`…_sme2_mopa`).
_INSTRUCTIONS = (
    *("sme2", "sme", "sve", "neoni8mm", "neondot", "neonfp16arith", "neonfma", "neon"),
    *("avx512", "avx2", "fma3", "avx", "sse", "wasm", "rvv", "scalar"),
)


class TracedKernel(msgspec.Struct, frozen=True):
    """A kernel the log names, what for, the instruction set its name tells, and how often it was chosen."""

    kernel: str
    purpose: str
    instructions: str
    count: int


def read_log(path: Path) -> list[TracedKernel]:
    """Return all kernels of a log, most often chosen first; a log without any is an error that says what is missing."""
    text = files.read_bytes(path, "trace log", limit=_LONGEST_LOG).decode(errors="replace")
    counts = Counter((match["kernel"], match["purpose"].strip()) for match in _CHOSEN.finditer(text))
    counts.update((match["kernel"], "KleidiAI") for match in _KLEIDIAI.finditer(text))
    if not counts:
        raise InputError(
            f"{path} names no kernels",
            "Take the log of a runner built with XNNPACK's trace logging (XNN_LOG_LEVEL=5); others name none.",
        )
    found = [TracedKernel(kernel, purpose, instructions(kernel), n) for (kernel, purpose), n in counts.items()]
    return sorted(found, key=lambda entry: (-entry.count, entry.kernel))


def read_kernels(path: Path) -> list[TracedKernel]:
    """Return the kernels of a log, or of the CSV that was made of one."""
    if path.suffix != ".csv":
        return read_log(path)
    text = files.read_bytes(path, "kernel CSV", limit=_LONGEST_LOG).decode(errors="replace")
    try:
        rows = list(csv.DictReader(io.StringIO(text)))
        return [TracedKernel(r["kernel"], r["purpose"], r["instructions"], int(r["count"])) for r in rows]
    except (KeyError, TypeError, ValueError, csv.Error) as error:
        raise InputError(
            f"{path} is not a CSV of kernels: {error}", "Give one that xnntrace_to_kernels.py wrote."
        ) from None


def instructions(kernel: str) -> str:
    """Return the instruction set a kernel's name tells; '' if it tells none."""
    parts = kernel.split("__")[-1] if "__" in kernel else kernel
    return next((name for name in _INSTRUCTIONS if name in parts.replace("neon_", "neon")), "")
