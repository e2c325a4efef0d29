"""Which variants are worth trying, by what the profile of the baseline showed: a short list, not a grid."""

from dataclasses import dataclass, replace

from model_profiling.analysis.breakdown import Breakdown

LINEAR_DTYPES = ("int8-dynamic", "int4")
# Findings of layout changes in the middle of a model.
_LAYOUT_INSIDE = ("transposes in a row", "data movement")
# Which rewrite brings a portable operator into the delegate.
_PORTABLE = {"keepdim": ("mean.", "sum."), "gelu-tanh": ("gelu.",)}


@dataclass(frozen=True)
class Variant:
    """One way to export the model, and why it is tried."""

    dtype: str
    memory_format: str = "contiguous"
    rewrites: tuple[str, ...] = ()
    delegation: str = "whole"
    reason: str = ""

    @property
    def name(self) -> str:
        layout = ["channels_last"] if self.memory_format == "channels_last" else []
        per_op = ["per-op"] if self.delegation == "per-op" else []
        return "+".join([self.dtype, *layout, *self.rewrites, *per_op])

    @property
    def flags(self) -> list[str]:
        """The arguments of `sme2-kit export` that make it."""
        words = ["--dtype", self.dtype]
        words += ["--memory-format", self.memory_format] if self.memory_format != "contiguous" else []
        words += [word for name in self.rewrites for word in ("--rewrite", name)]
        return words + (["--delegation", self.delegation] if self.delegation != "whole" else [])


def first_round(base: Variant, rules: dict[str, list[str]], breakdown: Breakdown, has_fp16: bool) -> list[Variant]:
    """One change each, for what the advice (rule to titles) and the breakdown name."""
    conv, gemm = breakdown.category("CONV").share, breakdown.category("GEMM").share
    found: list[Variant] = []
    if base.dtype == "fp32" and conv + gemm > 0.25:
        why = f"CONV and GEMM take {conv + gemm:.0%} in fp32"
        found += [replace(base, dtype="fp16", reason=why)] if has_fp16 else []
        found.append(replace(base, dtype="int8", reason=why))
        if gemm > conv:
            found += [replace(base, dtype=dtype, reason=f"GEMM takes {gemm:.0%}") for dtype in LINEAR_DTYPES]
    if inside := [title for name in _LAYOUT_INSIDE for title in rules.get(name, [])]:
        found.append(replace(base, rewrites=("per-pixel",), reason=inside[0]))
    if layout := [title for name in ("input layout", *_LAYOUT_INSIDE) for title in rules.get(name, [])]:
        found.append(replace(base, memory_format="channels_last", reason=layout[0]))
    for rewrite, operators in _PORTABLE.items():
        if reason := next((t for t in rules.get("portable operator", []) if t.startswith(operators)), ""):
            found.append(replace(base, rewrites=(rewrite,), reason=reason))
    if "runtime overhead" in rules and not breakdown.category("CONV").share:
        found.append(replace(base, delegation="per-op", reason=rules["runtime overhead"][0]))
    return found


def second_round(base: Variant, winners: list[Variant]) -> list[Variant]:
    """Put together what won alone: the best dtype with every other change that won, if that is something new."""
    dtypes = [variant.dtype for variant in winners if variant.dtype != base.dtype]
    others = [variant for variant in winners if variant.dtype == base.dtype]
    layout = next((v.memory_format for v in others if v.memory_format != base.memory_format), base.memory_format)
    rewrites = tuple(sorted({name for variant in others for name in variant.rewrites}))
    found = []
    for dtype in dtypes[:2] or [base.dtype]:
        combined = Variant(dtype, layout, rewrites, reason="what won alone, together")
        if combined.name not in {variant.name for variant in [base, *winners]}:
            found.append(combined)
    return found
