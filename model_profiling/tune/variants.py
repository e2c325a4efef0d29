"""Which variants are worth trying, by what the baseline's program consists of: a short list, not a grid."""

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from model_profiling.analysis.accuracy.numerics import Layer, Numerics
from model_profiling.analysis.movement.layout_reasons import transposes
from model_profiling.base.dtypes import EXPORTED, FP32, dtype_of
from model_profiling.base.rewrites import AUTO
from model_profiling.base.units import counted
from model_profiling.export.options import OPTIONS
from model_profiling.formats.pte.borders import inputs_to_nhwc, outputs_to_nchw
from model_profiling.formats.pte.dataflow import DataFlow
from model_profiling.store.artifacts import RewriteChoice


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
    # Which of these do not stay, after all: 1 is the worst.
    spared: tuple[int, ...] = ()

    @property
    def options(self) -> dict[str, Any]:
        """What its export is asked for."""
        return {row.name: getattr(self, row.name) for row in OPTIONS if hasattr(self, row.name)}

    @property
    def name(self) -> str:
        layout = ["channels_last"] if self.memory_format == "channels_last" else []
        border = ["io-layout"] if self.io_layout == "channels_last" else []
        kept = ["-but-".join(map(str, (f"worst-{self.worst}", *self.spared)))] if self.keep_fp32 else []
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
    found = other_dtypes(base, flow, features, any_dtype or flow is None)
    if names := [name for name, places in sorted(matched.items()) if places]:
        reason = f"of {' and '.join(names)} what makes the program smaller"
        found.insert(0, replace(base, rewrites=(AUTO,), reason=reason))
    if flow is None:
        return found
    border = len(inputs_to_nhwc(flow)) + len(outputs_to_nchw(flow))
    if border:
        reason = f"turned for the caller: {counted(border, 'input or output', 'inputs and outputs')}"
        found.append(replace(base, io_layout="channels_last", reason=reason))
    if len(turned := transposes(flow)) > border:
        found.append(replace(base, memory_format="channels_last", reason=counted(len(turned), "layout change")))
    return found


def left_out(base: TuneVariant, choices: Sequence[RewriteChoice]) -> list[TuneVariant]:
    """Return a variant for each rewrite that finds something and that `auto` did not take: it may be faster still."""
    return [replace(base, rewrites=(each.name,), reason=each.reason) for each in choices if not each.applied]


def other_dtypes(base: TuneVariant, flow: DataFlow | None, features: set[str], any_dtype: bool) -> list[TuneVariant]:
    """Return the dtypes that may make a program faster, by the work it does, or any that may make some program so."""
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


def second_round(
    base: TuneVariant, winners: Sequence[TuneVariant], matched: Mapping[str, set[str]], chosen: Sequence[str] = ()
) -> list[TuneVariant]:
    """Put together what won alone: the best dtypes with every other change that won, if that is something new.

    `matched` are the rewrites that find something in the graph of each dtype: in another dtype than the baseline's
    other rewrites may be worth it. `chosen` are those that `auto` took: if it did not win, one of them alone may.
    """
    dtypes = [variant.dtype for variant in winners if variant.dtype != base.dtype]
    others = [variant for variant in winners if variant.dtype == base.dtype]
    layout = next((v.memory_format for v in others if v.memory_format != base.memory_format), base.memory_format)
    border = next((v.io_layout for v in others if v.io_layout != base.io_layout), base.io_layout)
    won = sorted({name for variant in others for name in variant.rewrites})
    found: dict[str, TuneVariant] = {}
    for dtype in dtypes[:2] or [base.dtype]:
        known = matched.get(dtype, set(won))
        taken = {AUTO, *won} if dtype != base.dtype else {*won}
        rewrites = tuple(sorted(taken & {AUTO, *known})) if known else ()
        combined = TuneVariant(dtype, layout, rewrites, reason="faster variants, combined", io_layout=border)
        found[combined.name] = combined
    if AUTO not in won and len(chosen) > 1:
        alone = (replace(base, rewrites=(name,), reason=f"part of {AUTO}, which is not faster") for name in chosen)
        found |= {each.name: each for each in alone}
    tried = {variant.name for variant in [base, *winners]}
    return [variant for name, variant in found.items() if name not in tried]


# Up to this number of layers every one is a step; more are taken twice as many at a time.
_ONE_BY_ONE = 4


def kept_layers(base: TuneVariant, numerics: Numerics, most: int) -> list[TuneVariant]:
    """Return the worst layer in fp32, the worst two, and so on; and all of the model, the other end."""
    ranked = numerics.worst
    found: list[TuneVariant] = []
    for count in steps(min(most, len(ranked))):
        kept = keeping(base, ranked[:count])
        if all(set(kept.keep_fp32) != set(each.keep_fp32) for each in found):
            found.append(kept)
    return [*found, replace(base, dtype=FP32, reason="all of it in fp32")]


def keeping(base: TuneVariant, worst: Sequence[Layer], spared: Sequence[int] = ()) -> TuneVariant:
    """Return the variant with these layers in fp32, but those that are `spared`, by their number in the ranking."""
    layers = [layer for number, layer in enumerate(worst, 1) if number not in spared]
    kept = tuple(dict.fromkeys(name for layer in layers for name in layer.keep))
    names = ", ".join(layer.place for layer in layers[:3]) + (" and more" if len(layers) > 3 else "")
    why = f"{counted(len(layers), 'worst layer' if not spared else 'layer')} in fp32: {names}"
    return replace(base, keep_fp32=kept, worst=len(worst), spared=tuple(sorted(spared)), reason=why)


def steps(most: int) -> list[int]:
    """Return 1, 2, 3, 4, 8, 16 and so on up to `most`, and `most` itself."""
    doubled = (1 << power for power in range(most.bit_length()))
    return sorted({*range(1, min(most, _ONE_BY_ONE) + 1), *doubled, *([most] if most else [])})
