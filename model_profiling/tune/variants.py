"""Which variants are worth trying, by what the baseline's program consists of: a short list, not a grid."""

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import PurePath
from typing import Any

from model_profiling.analysis.movement.layout_reasons import transposes
from model_profiling.base.dtypes import EXPORTED, FP32, dtype_of
from model_profiling.base.rewrites import AUTO
from model_profiling.base.units import counted
from model_profiling.export.options import OPTIONS
from model_profiling.formats.pte.borders import inputs_to_nhwc, outputs_to_nchw
from model_profiling.formats.pte.dataflow import DataFlow


@dataclass(frozen=True)
class TuneVariant:
    """One way to export the model, and why it is tried."""

    dtype: str
    memory_format: str = "contiguous"
    rewrites: tuple[str, ...] = ()
    delegation: str = "whole"
    reason: str = ""
    io_layout: str = "contiguous"
    # Layers that stay in fp32, and how many of the worst those are.
    keep_fp32: tuple[str, ...] = ()
    worst: int = 0

    @property
    def options(self) -> dict[str, Any]:
        """What its export is asked for."""
        return {row.name: getattr(self, row.name) for row in OPTIONS if hasattr(self, row.name)}

    @property
    def name(self) -> str:
        layout = ["channels_last"] if self.memory_format == "channels_last" else []
        border = ["io-layout"] if self.io_layout == "channels_last" else []
        kept = [f"worst-{self.worst}"] if self.keep_fp32 else []
        return "+".join([self.dtype, *layout, *border, *self.rewrites, *kept])


def first_round(
    base: TuneVariant,
    flow: DataFlow | None,
    matched: Mapping[str, Sequence[str]],
    features: set[str],
    any_dtype: bool = False,
) -> list[TuneVariant]:
    """Return variants of one change each that may make this program faster, by what it consists of.

    `flow` is None where nobody can read it; `matched` are the places of each rewrite, `features` those of the CPU.
    `any_dtype`: all dtypes are, whatever the program computes.
    """
    found = _other_dtypes(base, flow, features, any_dtype or flow is None)
    reasons = {name: _places(places) for name, places in sorted(matched.items()) if places}
    if reasons:
        reasons = {AUTO: "every rewrite that makes the program smaller", **reasons}
    found += [replace(base, rewrites=(name,), reason=reason) for name, reason in reasons.items()]
    if flow is None:
        return found
    border = len(inputs_to_nhwc(flow)) + len(outputs_to_nchw(flow))
    if border:
        reason = f"turned for the caller: {counted(border, 'input or output', 'inputs and outputs')}"
        found.append(replace(base, io_layout="channels_last", reason=reason))
    if len(turned := transposes(flow)) > border:
        found.append(replace(base, memory_format="channels_last", reason=counted(len(turned), "layout change")))
    return found


def _places(places: Sequence[str]) -> str:
    """Return `changes 3 places, first model.py:36`."""
    first = next((f", first {PurePath(place).name}" for place in places if place), "")
    return f"changes {counted(len(places), 'place')}{first}"


def _other_dtypes(base: TuneVariant, flow: DataFlow | None, features: set[str], any_dtype: bool) -> list[TuneVariant]:
    work: Counter[str] = Counter()
    for step in flow.steps if flow is not None else ():
        if step.node is not None and step.node.multiply_accumulates:
            work["CONV" if "Conv" in step.op else "GEMM"] += step.node.multiply_accumulates
    exact = replace(base, dtype=FP32, reason="more accurate, and faster where the CPU lacks the dtype")
    found = [exact] if dtype_of(base.dtype).converts else []
    if not any_dtype and not work:
        return found
    reasons = {"products": f"{' and '.join(sorted(work)) or 'what it computes'} in {base.dtype}"}
    reasons |= {"linear": "mostly GEMM"} if work["GEMM"] > work["CONV"] or any_dtype else {}
    worth = [row for row in EXPORTED if row.tuned in reasons and (not row.wants or row.wants & features)]
    return found + [replace(base, dtype=row.name, reason=reasons[row.tuned]) for row in worth if row.name != base.dtype]


def second_round(base: TuneVariant, winners: list[TuneVariant], matched: dict[str, set[str]]) -> list[TuneVariant]:
    """Put together what won alone: the best dtype with every other change that won, if that is something new.

    `matched` are the rewrites that find something in the graph of each dtype. In another dtype than the baseline's
    other rewrites may be worth it.
    """
    dtypes = [variant.dtype for variant in winners if variant.dtype != base.dtype]
    others = [variant for variant in winners if variant.dtype == base.dtype]
    layout = next((v.memory_format for v in others if v.memory_format != base.memory_format), base.memory_format)
    border = next((v.io_layout for v in others if v.io_layout != base.io_layout), base.io_layout)
    won = sorted({name for variant in others for name in variant.rewrites if name != AUTO})
    found: dict[str, TuneVariant] = {}
    for dtype in dtypes[:2] or [base.dtype]:
        known = matched.get(dtype, set(won))
        sets = [tuple(name for name in won if name in known)]
        if known and (dtype != base.dtype or any(AUTO in variant.rewrites for variant in others)):
            sets.append((AUTO,))
        for rewrites in sets:
            combined = TuneVariant(dtype, layout, rewrites, reason="faster variants, combined", io_layout=border)
            found.setdefault(combined.name, combined)
    tried = {variant.name for variant in [base, *winners]}
    return [variant for name, variant in found.items() if name not in tried]
