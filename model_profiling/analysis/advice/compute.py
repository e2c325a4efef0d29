"""Findings about compute: the dtype it runs in, what acceleration left alone, and ExecuTorch's own time."""

from collections.abc import Iterator

from model_profiling.analysis.advice.finding import Evidence, Finding, FindingKind
from model_profiling.analysis.roofs.roofline import of_roof
from model_profiling.analysis.timing.profile import RUNTIME
from model_profiling.base.dtypes import PRODUCT_DTYPES, dtype_of
from model_profiling.base.units import counted, shown_ms

_COMPUTE = ("CONV", "GEMM")


def fp16_in_fp32(e: Evidence) -> Iterator[Finding]:
    """Yield findings about operators that are fp16 in the graph and ran in fp32, with conversions on both sides."""
    graph = e.graph
    if graph is None or e.export is None or not dtype_of(e.export.dtype).halves:
        return
    compute = [
        row
        for row in e.free(lambda entry: entry.category in _COMPUTE and entry.dtype == "F32")
        if (step := graph.step(row)) is not None and step.inputs and step.inputs[0].dtype == "fp16"
    ]
    converts = e.free(lambda entry: entry.kind == "convert" and entry.where == "delegated")
    if not compute:
        return
    rows = [*compute, *converts]
    yield e.finding(
        FindingKind.FP16_IN_FP32,
        "fp16 is computed in fp32, CONV and GEMM with conversions",
        rows,
        "Run on a CPU with fp16 arithmetic and leave it on.",
        [f"{len(converts)} conversions, {len(compute)} CONV and GEMM operators"],
    )


def not_accelerated(e: Evidence) -> Iterator[Finding]:
    """Yield findings about CONV and GEMM operators that acceleration should have made faster and did not."""
    untouched = {(x.after, x.instruction): x.change for x in e.comparison.untouched} if e.comparison else {}
    rows = e.free(lambda entry: (entry.name, entry.instruction) in untouched)
    if not rows:
        return
    instances = [e.breakdown.instances[row] for row in rows[:3]]
    changes = [(entry.name, untouched[entry.name, entry.instruction]) for entry in instances]
    shown = [
        f"{name}: {shown_ms(change.before_ms)} before, {shown_ms(change.after_ms)} after" for name, change in changes
    ]
    what = f"{counted(len(rows), 'CONV or GEMM operator')} did not become faster"
    step = "Look at their dtype and shape: depthwise, 1x1 in fp16 and small operators often have no accelerated kernel."
    yield e.finding(FindingKind.NOT_ACCELERATED, what, rows, step, shown)


def compute_in_fp32(e: Evidence) -> Iterator[Finding]:
    """Yield a finding where compute dominates a model in fp32: the dtype is the lever."""
    rows = e.free(lambda entry: entry.category in _COMPUTE and entry.where == "delegated")
    if e.export is None or dtype_of(e.export.dtype).converts or e.share(rows) < 0.5:
        return
    what = f"{counted(len(rows), 'CONV or GEMM operator')} in fp32"
    # What another dtype brings depends on the kernels and conversions it gets: that is measured, not predicted.
    step = f"Try {' and '.join(PRODUCT_DTYPES)}: `sme2-kit tune` measures them and holds their outputs against fp32."
    reached = of_roof(e.breakdown, rows, e.roofs)
    remarks = [] if reached is None else [f"in fp32 they run at {reached:.0%} of the best that this CPU reaches"]
    yield e.finding(FindingKind.COMPUTE_IN_FP32, what, rows, step, remarks)


def runtime_overhead(e: Evidence) -> Iterator[Finding]:
    """Yield findings about ExecuTorch's own time: many small delegates, or a very small model."""
    rows = e.free(lambda entry: entry.category == RUNTIME)
    if e.share(rows) < 0.1:
        return
    calls = sum(entry.name == "delegate call" for entry in e.breakdown.instances)
    step = "Bring the operators between them into the delegate." if calls > 1 else "Give the model more work per call."
    yield e.finding(
        FindingKind.RUNTIME_OVERHEAD, "ExecuTorch runtime overhead", rows, step, [f"{calls} delegate calls"]
    )
