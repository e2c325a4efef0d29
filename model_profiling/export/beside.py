"""What stands beside a program may fail: it is left out, one line says so, and the program is made all the same.

So is what this version of torch or ExecuTorch does not have as the kit knows it.
"""

import contextlib
from collections.abc import Iterator
from contextvars import ContextVar

from model_profiling.base.dtypes import dtype_of
from model_profiling.base.errors import KitError, shortly
from model_profiling.base.rewrites import LAYOUT
from model_profiling.export.request import ExportRequest
from model_profiling.upstream import captured_graphs, emission, faster_lowering, names_in_files, xnnpack_lowering
from model_profiling.upstream.reliance import Reliance, holds, require, why_not

_left_out: ContextVar[dict[str, str] | None] = ContextVar("left_out", default=None)


def what_is_left_out() -> dict[str, str]:
    """Collect from here on what is left out, and why."""
    found: dict[str, str] = {}
    _left_out.set(found)
    return found


@contextlib.contextmanager
def beside(what: str) -> Iterator[None]:
    """Do something that the program does not need; `what` says what is missing without it."""
    try:
        yield
    except (KitError, OSError, MemoryError):  # what the kit itself refuses, or the system
        raise
    except Exception as error:  # noqa: BLE001 - torch and ExecuTorch raise whatever they like
        leave_out(what, error)


def leave_out(what: str, error: Exception) -> None:
    if (found := _left_out.get()) is not None:
        found[what] = shortly(error)


def is_left_out(what: str) -> bool:
    return what in (_left_out.get() or {})


def missing_parts(request: ExportRequest) -> list[str]:
    """Return one line for everything that an export relies on and that is not there, with what happened instead."""
    return [*filter(None, (faster_lowering.why_slower(), *map(why_not, _relied_on(request))))]


def require_for_numerics(request: ExportRequest) -> None:
    """Refuse to look at layers where their values, or the layers of the fp32 model, cannot be had."""
    needed = [emission.TAPS, captured_graphs.OPERATORS, captured_graphs.FLAT_INPUTS]
    if dtype_of(request.dtype).quantized == "graph":
        needed.append(captured_graphs.PROVENANCE)
    for each in needed:
        require(each)


def _relied_on(request: ExportRequest) -> Iterator[Reliance]:
    yield captured_graphs.OPERATORS
    yield captured_graphs.NESTED
    yield names_in_files.ETRECORD
    if dtype_of(request.dtype).quantized:
        yield emission.QUANTIZED_KERNELS
    if dtype_of(request.dtype).quantized == "graph":
        yield xnnpack_lowering.PATTERNS
    if request.backend == "xnnpack":
        yield from (xnnpack_lowering.REASONS, xnnpack_lowering.CONFIGURATIONS)
        if LAYOUT in request.rewrites and holds(captured_graphs.OPERATORS):
            yield xnnpack_lowering.LAYOUT_LOWERING
