"""Advice: a short ranked list of findings, each with its evidence, what it would gain, and what to do next.

A rule looks for evidence in the run and says nothing without it. Gains are predictions: what would be saved if the
time in the evidence were gone and nothing else changed.
"""

from collections.abc import Callable, Iterator
from dataclasses import dataclass

import msgspec

from model_profiling.analysis.breakdown import Breakdown, InstanceTime
from model_profiling.analysis.comparison import ProfileComparison
from model_profiling.analysis.movement import DataMovement
from model_profiling.analysis.profile import RUNTIME
from model_profiling.analysis.whatif import predict, saving
from model_profiling.artifacts import ExportRecord

# Below this share of the time a finding is not worth a reader's attention.
_LEAST_SHARE = 0.01
_MOST_FINDINGS = 8

# What is known to bring a portable operator into the delegate, by the base of its name.
_REMEDIES = {
    "mean": "export with --rewrite keepdim, or call mean with keepdim=True and squeeze afterwards: XNNPACK takes that",
    "sum": "export with --rewrite keepdim, or call sum with keepdim=True and squeeze afterwards: XNNPACK takes that",
    "gelu": "export with --rewrite gelu-tanh (fp16), which XNNPACK takes, or use another activation",
    "_to_dim_order_copy": "avoid the dtype or layout change (.to, .float, .half, channels_last) inside forward",
    "clone": "avoid .clone() and .contiguous() inside forward where the layout is already right",
    "permute_copy": "keep one layout through the model, or move the permute to where it cancels another",
    "native_layer_norm": "keep it fp32 or replace it by operators XNNPACK delegates; check the export's reason",
    "embedding": "keep the lookup, but outside the timed model if it is done once",
}


class Finding(msgspec.Struct, frozen=True):
    """Something worth doing. `ms` and `share` are what it is about; `gain` is the predicted speedup of the whole."""

    rule: str
    title: str
    evidence: list[str]
    ms: float
    share: float
    gain: float
    next_step: str
    label: str = "prediction"


@dataclass(frozen=True)
class Evidence:
    """All that rules may look at."""

    breakdown: Breakdown
    movement: DataMovement
    comparison: ProfileComparison | None
    export: ExportRecord | None


def advise(evidence: Evidence) -> list[Finding]:
    """Apply all rules and keep the findings that would gain most; without times there is nothing to gain."""
    if not evidence.breakdown.execute_ms:
        return []
    found = [finding for rule in _RULES for finding in rule(evidence) if finding.share >= _LEAST_SHARE]
    return sorted(found, key=lambda finding: -finding.gain)[:_MOST_FINDINGS]


def _finding(e: Evidence, rule: str, title: str, ms: float, evidence: list[str], next_step: str) -> Finding:
    share = ms / e.breakdown.execute_ms if e.breakdown.execute_ms else 0.0
    return Finding(rule, title, evidence, ms, share, saving(e.breakdown, ms), next_step)


def _line(entry: InstanceTime) -> str:
    where = f" at {entry.source.file}:{entry.source.line}" if entry.source and entry.source.file else ""
    return f"{entry.name}: {entry.ms:.3f} ms ({entry.share:.1%}){where}"


def _portable_operators(e: Evidence) -> Iterator[Finding]:
    """A portable operator runs unaccelerated, splits the graph, and often costs layout changes on both sides."""
    groups: dict[str, list[InstanceTime]] = {}
    for entry in e.breakdown.instances:
        if entry.where == "portable":
            groups.setdefault(entry.operator, []).append(entry)
    for operator, members in groups.items():
        own = sum(entry.ms for entry in members)
        names = {entry.name for entry in members}
        around = [c for c in e.movement.chains if c.at_boundary and (c.before in names or c.after in names)]
        moved = sum(chain.ms for chain in around)
        evidence = [_line(entry) for entry in members[:3]]
        if moved:
            evidence.append(f"layout changes beside it: {moved:.3f} ms ({', '.join(around[0].operators[:3])})")
        base = operator.split("::")[-1].split(".")[0]
        reason = _reason(e.export, base)
        if reason:
            evidence.append(f"not delegated because: {reason}")
        step = _REMEDIES.get(base, "rewrite it with operators XNNPACK delegates, or move it to an end of the model")
        title = f"{operator} runs outside the delegate and costs {own / e.breakdown.execute_ms:.0%} of the time"
        yield _finding(e, "portable operator", title, own + moved, evidence, step[0].upper() + step[1:] + ".")


def _reason(export: ExportRecord | None, base: str) -> str:
    if export is None:
        return ""
    return next((left.reason for left in export.delegation.not_delegated if left.op.split(".")[1:2] == [base]), "")


def _inverse_pairs(e: Evidence) -> Iterator[Finding]:
    """Transposes that may undo each other."""
    for pair in e.movement.inverse_pairs[:3]:
        between = f" with {', '.join(pair.between)} between" if pair.between else ""
        yield _finding(
            e,
            "transposes in a row",
            f"{pair.first} and {pair.second} may undo each other",
            pair.ms,
            [f"{pair.first} and {pair.second}{between}: {pair.ms:.3f} ms ({pair.share:.1%})", *_places(pair.at)],
            "Look for permute or view in the model there and keep one layout across them; --rewrite per-pixel does it "
            "around linear layers.",
        )


def _places(at: list[str]) -> list[str]:
    return [f"they come from {' and '.join(dict.fromkeys(at))}"] if at else []


def _input_layout(e: Evidence) -> Iterator[Finding]:
    """A transpose before anything else turns the input from NCHW to NHWC; an NHWC input would not need it."""
    steps = [entry for entry in e.breakdown.instances if entry.where != "runtime"]
    if steps and steps[0].kind == "transpose":
        yield _finding(
            e,
            "input layout",
            "the input is transposed before anything else happens",
            steps[0].ms,
            [_line(steps[0])],
            "Export with --memory-format channels_last and feed the input in that layout.",
        )


def _data_movement(e: Evidence) -> Iterator[Finding]:
    """Data movement as a whole, once it is a large part."""
    if e.movement.share < 0.15:
        return
    movers = [entry for entry in e.breakdown.instances if entry.category == "Data Movement"]
    movers.sort(key=lambda entry: -entry.ms)
    kinds = ", ".join(f"{kind} {ms:.3f} ms" for kind, ms in list(e.movement.by_kind.items())[:3])
    yield _finding(
        e,
        "data movement",
        f"data movement takes {e.movement.share:.0%} of the time",
        e.movement.ms,
        [kinds, *(_line(entry) for entry in movers[:3])],
        "Remove layout changes first: the chains listed under data movement show where they are.",
    )


def _converts(e: Evidence) -> Iterator[Finding]:
    """Converting floats back and forth means that XNNPACK computes in another type than the model's."""
    converts = [entry for entry in e.breakdown.instances if entry.kind == "convert" and entry.where == "delegated"]
    computes_f32 = any(entry.dtype == "F32" and entry.category in ("CONV", "GEMM") for entry in e.breakdown.instances)
    if e.export is None or e.export.dtype != "fp16" or not converts or not computes_f32:
        return
    compute = [entry for entry in e.breakdown.instances if entry.dtype == "F32" and entry.category in ("CONV", "GEMM")]
    yield _finding(
        e,
        "fp16 computed in fp32",
        "the fp16 model is computed in fp32",
        sum(entry.ms for entry in converts) + sum(entry.ms for entry in compute) / 2,
        [f"{len(converts)} conversions, {len(compute)} CONV and GEMM operators in F32"],
        "Run on a CPU with fp16 arithmetic and leave it on; the gain assumes half the compute time.",
    )


def _untouched(e: Evidence) -> Iterator[Finding]:
    """CONV and GEMM operators that acceleration should have made faster and did not."""
    if e.comparison is None or not e.comparison.untouched:
        return
    untouched = sorted(e.comparison.untouched, key=lambda entry: -entry.change.after_ms)
    ms = sum(entry.change.after_ms for entry in untouched)
    lines = [f"{x.after}: {x.change.before_ms:.3f} ms before, {x.change.after_ms:.3f} ms after" for x in untouched[:3]]
    yield _finding(
        e,
        "not accelerated",
        f"{len(untouched)} CONV or GEMM operators did not become faster",
        ms / 2,
        [*lines, "the gain assumes twice the speed"],
        "Look at their dtype and shape: depthwise, 1x1 in fp16 and small operators often have no accelerated kernel.",
    )


def _overhead(e: Evidence) -> Iterator[Finding]:
    """ExecuTorch's own time, when there is much of it: many small delegates, or a very small model."""
    runtime = e.breakdown.category(RUNTIME)
    calls = sum(entry.name == "delegate call" for entry in e.breakdown.instances)
    if runtime.share < 0.1:
        return
    step = "Bring the operators between them into the delegate." if calls > 1 else "Give the model more work per call."
    yield _finding(
        e,
        "runtime overhead",
        f"ExecuTorch's own time is {runtime.share:.0%}",
        runtime.ms,
        [f"{calls} delegate calls"],
        step,
    )


def _compute(e: Evidence) -> Iterator[Finding]:
    """When compute dominates a model in fp32, the dtype is the lever."""
    compute = [e.breakdown.category(name) for name in ("CONV", "GEMM")]
    share = sum(entry.share for entry in compute)
    if e.export is None or e.export.dtype != "fp32" or share < 0.5:
        return
    predicted = predict(e.breakdown, {"CONV": 2.0, "GEMM": 2.0})
    yield Finding(
        "compute in fp32",
        f"CONV and GEMM take {share:.0%} of the time, in fp32",
        [f"{entry.category}: {entry.ms:.3f} ms ({entry.share:.1%})" for entry in compute]
        + ["the gain assumes twice the speed"],
        sum(entry.ms for entry in compute),
        share,
        predicted.ratio,
        "Export in fp16 or int8 and compare; check the outputs' agreement.",
    )


_RULES: tuple[Callable[[Evidence], Iterator[Finding]], ...] = (
    _portable_operators,
    _inverse_pairs,
    _input_layout,
    _data_movement,
    _converts,
    _untouched,
    _overhead,
    _compute,
)
