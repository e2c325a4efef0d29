"""Which variants are worth trying, by what the profile of the baseline showed: a short list, not a grid."""

from dataclasses import dataclass, replace
from typing import Any

from model_profiling.analysis.advice.finding import FindingKind
from model_profiling.analysis.advice.rules import Finding
from model_profiling.analysis.timing.breakdown import Breakdown
from model_profiling.base.dtypes import EXPORTED, FP32, dtype_of
from model_profiling.base.rewrites import AUTO
from model_profiling.export.options import OPTIONS

# Findings of layout changes that another layout of the input may make needless, and of those at the program's border.
_LAYOUT = (FindingKind.LAYOUT_CHANGES, FindingKind.UNDONE_TRANSPOSES)
# CONV and GEMM are worth another dtype from this share on.
_MUCH = 0.25
_IO_LAYOUT = (FindingKind.INPUT_LAYOUT, FindingKind.OUTPUT_LAYOUT)


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
        per_op = ["per-op"] if self.delegation == "per-op" else []
        kept = [f"worst-{self.worst}"] if self.keep_fp32 else []
        return "+".join([self.dtype, *layout, *border, *self.rewrites, *per_op, *kept])


def first_round(
    base: TuneVariant, findings: list[Finding], breakdown: Breakdown, features: set[str], any_dtype: bool = False
) -> list[TuneVariant]:
    """Return variants of one change each, for what the advice and the breakdown name; of rewrites, those that match.

    `features` are those of the CPU. `any_dtype`: all dtypes are, whatever the breakdown says.
    """
    found = _other_dtypes(base, breakdown, features, any_dtype)
    rewrites: dict[str, str] = {}
    for finding in findings:
        if finding.rewrite:
            rewrites.setdefault(finding.rewrite, finding.title)
    if rewrites:
        rewrites[AUTO] = "every rewrite that makes the program smaller"
    found += [replace(base, rewrites=(name,), reason=rewrites[name]) for name in sorted(rewrites)]
    if layout := [finding.title for finding in findings if finding.rule in _LAYOUT]:
        found.append(replace(base, memory_format="channels_last", reason=layout[0]))
    if border := [finding.title for finding in findings if finding.rule in _IO_LAYOUT]:
        found.append(replace(base, io_layout="channels_last", reason=border[0]))
    overhead = [finding.title for finding in findings if finding.rule == FindingKind.RUNTIME_OVERHEAD]
    if overhead and not breakdown.category("CONV").share:
        found.append(replace(base, delegation="per-op", reason=overhead[0]))
    return found


def _other_dtypes(base: TuneVariant, breakdown: Breakdown, features: set[str], any_dtype: bool) -> list[TuneVariant]:
    conv, gemm = breakdown.category("CONV").share, breakdown.category("GEMM").share
    converts = dtype_of(base.dtype).converts
    exact = [replace(base, dtype=FP32, reason="more accurate, and faster where the CPU lacks the dtype")]
    if not any_dtype and conv + gemm <= _MUCH:
        return exact if converts else []
    reasons = {"products": f"CONV and GEMM take {conv + gemm:.0%} in {base.dtype}"}
    reasons |= {"linear": f"GEMM takes {gemm:.0%}"} if gemm > conv or any_dtype else {}
    worth = [row for row in EXPORTED if row.tuned in reasons and (not row.wants or row.wants & features)]
    others = [replace(base, dtype=row.name, reason=reasons[row.tuned]) for row in worth if row.name != base.dtype]
    return [*(exact if converts else []), *others]


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
