"""SME2 coverage: which CONV and GEMM operators run on SME2, by which kernel, how much work that is, and why not."""

from pathlib import Path

import msgspec

from model_profiling.analysis.alignment import aligned_nodes
from model_profiling.analysis.breakdown import InstanceTime
from model_profiling.analysis.kernels import KernelCalls, KernelEvidence
from model_profiling.pte import xnnpack_graph

# The part of a kernel's name that tells the instructions it is made of, best first.
_LEVELS = (
    ("_sme2_", "SME2"),
    ("_sme_", "SME"),
    ("_neon_i8mm", "NEON i8mm"),
    ("_neon_dotprod", "NEON dot"),
    ("_neon", "NEON"),
)
_PACKED = ("PF32", "PF16", "PQS8", "QP8")


class CoveredOperator(msgspec.Struct, frozen=True):
    """One eligible operator. `level` is what its kernels use; `why_not` says why that is not SME2."""

    name: str
    category: str
    kind: str
    where: str
    dtype: str
    instruction: int
    level: str
    kernels: list[KernelCalls]
    multiply_accumulates: int | None
    shape: str
    why_not: str


class Coverage(msgspec.Struct, frozen=True):
    """How much of a model's CONV and GEMM runs on SME2. Work is in multiply-accumulates, None where it is not known."""

    eligible: int
    on_sme2: int
    on_sme: int
    work: int | None
    work_on_sme2: int | None
    headline: str
    operators: list[CoveredOperator]
    note: str = ""


class _Work(msgspec.Struct, frozen=True):
    multiply_accumulates: int
    shape: str
    pointwise: bool


def coverage(
    instances: list[InstanceTime], evidence: KernelEvidence | None, features: list[str], model: Path
) -> Coverage:
    """Judge every CONV and GEMM operator of a run by the kernels it called."""
    work = {place: _node_work(node) for place, node in aligned_nodes(instances, model).items()}
    called = _called(instances, evidence)
    operators = []
    for position, entry in enumerate(instances):
        if entry.category not in ("CONV", "GEMM"):
            continue
        kernels = called.get(position, [])
        known = work.get(position)
        level = _level(kernels, entry)
        operators.append(
            CoveredOperator(
                name=entry.name,
                category=entry.category,
                kind=entry.kind,
                where=entry.where,
                dtype=entry.dtype,
                instruction=entry.instruction,
                level=level,
                kernels=kernels,
                multiply_accumulates=known.multiply_accumulates if known else None,
                shape=known.shape if known else "",
                why_not=_why_not(entry, level, features, known),
            )
        )
    return _summed(operators, evidence.note if evidence else "no kernel trace: judged by operator names alone")


def _summed(operators: list[CoveredOperator], note: str) -> Coverage:
    on_sme2 = [x for x in operators if x.level == "SME2"]
    known = all(x.multiply_accumulates is not None for x in operators) and bool(operators)
    work = sum(x.multiply_accumulates or 0 for x in operators) if known else None
    done = sum(x.multiply_accumulates or 0 for x in on_sme2) if known else None
    if not operators:
        headline = "The model has no CONV or GEMM operators"
    else:
        headline = f"SME2 runs {len(on_sme2)} of {len(operators)} eligible operators"
        if work and done is not None:
            headline += f", {done / work:.0%} of the multiply-accumulates"
    on_sme = sum(x.level == "SME" for x in operators)
    return Coverage(len(operators), len(on_sme2), on_sme, work, done, headline, operators, note)


def _called(instances: list[InstanceTime], evidence: KernelEvidence | None) -> dict[int, list[KernelCalls]]:
    """The kernels of each delegated instance, by its position: evidence and instances are in the same order."""
    positions = [position for position, entry in enumerate(instances) if entry.where == "delegated"]
    if evidence is None or len(evidence.operators) < len(positions):
        return {}
    # More than one execution repeats the operators; the first one tells.
    return {p: o.kernels for p, o in zip(positions, evidence.operators, strict=False) if instances[p].name == o.name}


def _level(kernels: list[KernelCalls], entry: InstanceTime) -> str:
    """What the operator's own matrix kernels are made of; packing does not count."""
    compute = [call.kernel for call in kernels if call.kernel.startswith("kai_run_matmul")]
    for part, level in _LEVELS:
        if any(part in kernel for kernel in compute):
            return level
    if entry.where == "portable":
        return "portable"
    return "XNNPACK's own" if not compute else "other"


def _why_not(entry: InstanceTime, level: str, features: list[str], work: _Work | None) -> str:
    """Why an operator does not run on SME2, as far as the evidence goes; '' if it does."""
    if level == "SME2":
        return ""
    if entry.where == "portable":
        return "it runs outside the delegate, on a portable kernel"
    if "sme2" not in features:
        return "SME2 is off or absent" if level != "SME" else "SME2 is off or absent; SME is used"
    if entry.kind == "depthwise":
        return "depthwise convolution: KleidiAI has no SME2 kernel for it"
    packed = any(part in _PACKED for part in entry.dtype.split("-"))
    if packed:
        return "packed for KleidiAI, but another kernel was chosen (size or shape)"
    if entry.kind == "batch matmul":
        return f"batch matrix multiply in {entry.dtype}: not on the packed path"
    if work is not None and work.pointwise and entry.category == "GEMM":
        return f"1x1 convolution lowered to an unpacked fully connected in {entry.dtype}"
    return f"{entry.kind} in {entry.dtype or 'this type'} stays on XNNPACK's own kernels: no packed path was taken"


def _node_work(node: xnnpack_graph.Node) -> _Work:
    shapes = " x ".join("[" + ", ".join(map(str, value.shape)) + "]" for value in node.inputs[:2])
    out = "[" + ", ".join(map(str, node.outputs[0].shape)) + "]" if node.outputs else ""
    return _Work(node.multiply_accumulates, f"{shapes} -> {out}", node.op == "Conv2d" and node.kernel == (1, 1))
