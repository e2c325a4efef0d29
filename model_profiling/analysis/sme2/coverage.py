"""SME2 coverage: which CONV and GEMM operators run on SME2, by which kernel, how much work that is, and why not."""

from pathlib import Path
from typing import TYPE_CHECKING, Literal

import msgspec

from model_profiling.analysis.sme2.kernel_assignment import ELIGIBLE, KernelCalls, KernelEvidence
from model_profiling.analysis.sme2.weight_formats import (
    CHECKED,
    FormatKernels,
    by_format,
    no_kernel,
    weight_format,
    weight_formats,
)
from model_profiling.analysis.timing.breakdown import InstanceTime
from model_profiling.analysis.timing.category_table import is_custom, is_packed
from model_profiling.analysis.timing.profile import Part, Where
from model_profiling.upstream.kernel_calls import MATRIX_KERNEL

if TYPE_CHECKING:
    from model_profiling.formats.pte import xnnpack_graph

Level = Literal["SME2", "SME", "NEON i8mm", "NEON dot", "NEON", "XNNPACK's own", "portable", "other", "unknown"]
# The part of a kernel's name that tells the instructions it is made of, best first.
_LEVELS: tuple[tuple[str, Level], ...] = (
    ("_sme2_", "SME2"),
    ("_sme_", "SME"),
    ("_neon_i8mm", "NEON i8mm"),
    ("_neon_dotprod", "NEON dot"),
    ("_neon", "NEON"),
)
_UNKNOWN: Level = "unknown"
_NO_TRACE = "there is no kernel trace (run with mode: trace where kernels can be traced)"


class CoveredOperator(msgspec.Struct, frozen=True):
    """One eligible operator. `level` is what its kernels use, or "unknown"; `why_not` says why that is not SME2."""

    name: str
    category: Part
    kind: str
    where: Where
    dtype: str
    instruction: int
    level: Level
    kernels: list[KernelCalls]
    multiply_accumulates: int | None
    shape: str
    why_not: str
    # What its weights are stored as; '' if it has none, or the .pte does not tell.
    weights: str = ""


class Coverage(msgspec.Struct, frozen=True):
    """How much of a model's CONV and GEMM runs on SME2. Work is in multiply-accumulates, None where it is not known.
    `formats` has the same by weight format.

    `unknown` is the reason why nobody can say which operators run on SME2; the counts are then None, and `unassigned`
    has the kernels that ran for one operator or another.
    """

    eligible: int
    on_sme2: int | None
    on_sme: int | None
    work: int | None
    work_on_sme2: int | None
    headline: str
    operators: list[CoveredOperator]
    unknown: str = ""
    unassigned: list[KernelCalls] = []
    formats: list[FormatKernels] = []


class _Work(msgspec.Struct, frozen=True):
    """What the .pte says of an operator; sizes that are not fixed leave its multiply-accumulates unknown."""

    multiply_accumulates: int | None
    shape: str
    pointwise: bool
    weights: str


_NOTHING = _Work(None, "", False, "")


def coverage(
    instances: list[InstanceTime],
    evidence: KernelEvidence | None,
    features: list[str],
    model: Path,
    method: str = "forward",
    tokens: int | None = None,
) -> Coverage:
    """Judge every CONV and GEMM operator of a run by the kernels it called."""
    work = _works(instances, model, method, tokens)
    called, unknown = _called(instances, evidence)
    eligible = {position: entry for position, entry in enumerate(instances) if entry.category in ELIGIBLE}
    levels = {
        position: _UNKNOWN if unknown and entry.where == "delegated" else _level(called.get(position, []), entry)
        for position, entry in eligible.items()
    }
    reached = {work[position].weights for position in eligible if levels[position] == "SME2" and position in work}
    operators = []
    for position, entry in eligible.items():
        known = work.get(position, _NOTHING)
        operators.append(
            CoveredOperator(
                name=entry.name,
                category=entry.category,
                kind=entry.kind,
                where=entry.where,
                dtype=entry.dtype,
                instruction=entry.instruction,
                level=levels[position],
                kernels=called.get(position, []),
                multiply_accumulates=known.multiply_accumulates,
                shape=known.shape,
                why_not=_why_not(entry, levels[position], features, known, reached),
                weights=known.weights,
            )
        )
    if unknown and any(operator.level == _UNKNOWN for operator in operators):
        return _not_known(operators, unknown, evidence.unassigned if evidence else [])
    return _summed(operators)


def _not_known(operators: list[CoveredOperator], why: str, unassigned: list[KernelCalls]) -> Coverage:
    """Return what is left to say where kernels cannot be given to operators: how often SME2 was called at all."""
    matrix = [call for call in unassigned if call.kernel.startswith(MATRIX_KERNEL)]
    on_sme2 = sum(call.calls for call in matrix if _kernel_level(call.kernel) == "SME2")
    seen = f"; {on_sme2:,} calls of SME2 matrix kernels were traced" if matrix else ""
    headline = f"Which of {len(operators)} eligible operators run on SME2 is unknown: {why}{seen}"
    work = _work(operators)
    return Coverage(len(operators), None, None, work, None, headline, operators, why, unassigned, _formats(operators))


def _work(operators: list[CoveredOperator]) -> int | None:
    """Return the work of some operators in all; None if that of any is not known, or there are none."""
    known = [x.multiply_accumulates for x in operators if x.multiply_accumulates is not None]
    return sum(known) if known and len(known) == len(operators) else None


def _summed(operators: list[CoveredOperator]) -> Coverage:
    on_sme2 = [x for x in operators if x.level == "SME2"]
    work = _work(operators)
    done = None if work is None else _work(on_sme2) or 0
    if not operators:
        headline = "The model has no CONV or GEMM operators"
    else:
        headline = f"SME2 runs {len(on_sme2)} of {len(operators)} eligible operators"
        if work and done is not None:
            headline += f", {done / work:.0%} of the multiply-accumulates"
    on_sme = sum(x.level == "SME" for x in operators)
    return Coverage(len(operators), len(on_sme2), on_sme, work, done, headline, operators, formats=_formats(operators))


def _called(instances: list[InstanceTime], evidence: KernelEvidence | None) -> tuple[dict[int, list[KernelCalls]], str]:
    """Return the kernels of each delegated instance, by its position; or the reason why they are not known."""
    positions = [position for position, entry in enumerate(instances) if entry.where == "delegated"]
    if evidence is None or evidence.unknown:
        return {}, evidence.unknown if evidence else _NO_TRACE
    wanted = [(instances[position].instruction, instances[position].name) for position in positions]
    # More than one execution repeats the operators, and a dump may hold another method: the first that fits tells.
    for execution in dict.fromkeys(operator.execution for operator in evidence.operators):
        operators = [operator for operator in evidence.operators if operator.execution == execution]
        if [(operator.instruction, operator.name) for operator in operators] == wanted:
            return dict(zip(positions, (operator.kernels for operator in operators), strict=True)), ""
    return {}, "no traced execution matches the operators shown" if positions else ""


def _level(kernels: list[KernelCalls], entry: InstanceTime) -> Level:
    """Return what the operator's own matrix kernels are made of; packing does not count."""
    found = {_kernel_level(call.kernel) for call in kernels if call.kernel.startswith(MATRIX_KERNEL)}
    for _, level in _LEVELS:
        if level in found:
            return level
    if entry.where == "portable":
        return "portable"
    return "other" if found else "XNNPACK's own"


def _kernel_level(kernel: str) -> Level:
    return next((level for part, level in _LEVELS if part in kernel), "other")


def _why_not(entry: InstanceTime, level: Level, features: list[str], work: _Work, reached: set[str]) -> str:
    """Return why an operator does not run on SME2, as far as the evidence goes; '' if it does.

    `reached` are the weight formats of which some operator of this run does.
    """
    if level == "SME2":
        return ""
    if level == _UNKNOWN:
        known = no_kernel(work.weights, version=CHECKED)
        return "whether it does is unknown" + (f"; {known}" if known else "")
    if entry.where == "portable":
        return _why_not_portable(entry, work)
    if "sme2" not in features:
        return "SME2 is off or absent" if level != "SME" else "SME2 is off or absent; SME is used"
    if entry.kind == "depthwise":
        return "depthwise convolution: KleidiAI has no SME2 kernel for it"
    if work.weights not in reached and (missing := no_kernel(work.weights)):
        return missing
    if is_packed(entry.dtype):
        return "packed for KleidiAI, but another kernel was chosen (size or shape)"
    if entry.kind == "batch matmul":
        return f"batch matrix multiply in {entry.dtype}: not on the packed path"
    if work.pointwise and entry.category == "GEMM":
        return f"1x1 convolution lowered to an unpacked fully connected in {entry.dtype}"
    return f"{entry.kind} in {entry.dtype or 'this type'} stays on XNNPACK's own kernels: no packed path was taken"


def _why_not_portable(entry: InstanceTime, work: _Work) -> str:
    if is_custom(entry.operator):
        return "one of ExecuTorch's own operators for language models: it has no SME2 kernel"
    return no_kernel(work.weights, delegated=False) or "it runs outside the delegate, on a portable kernel"


def _formats(operators: list[CoveredOperator]) -> list[FormatKernels]:
    return by_format(
        (
            operator.weights,
            None if operator.level == _UNKNOWN else operator.level == "SME2",
            [call.kernel for call in operator.kernels if call.kernel.startswith(MATRIX_KERNEL)] or [operator.level],
            operator.why_not,
        )
        for operator in operators
    )


def _works(instances: list[InstanceTime], model: Path, method: str, tokens: int | None) -> dict[int, _Work]:
    """Return what the .pte says of each operator, by its position."""
    # These read the .pte, which only this needs.
    from model_profiling.analysis.graph.alignment import aligned_nodes
    from model_profiling.analysis.graph.graph import read_graph

    graph = read_graph(instances, model, method, tokens)
    nodes = aligned_nodes(instances, model, method)
    if graph is not None and graph.flow.fixed:
        nodes = {row: step.node for row in graph.steps if (step := graph.step(row)) is not None and step.node}
    unfixed = graph.flow.unfixed if graph is not None else frozenset()
    found = {row: _node_work(node, instances[row].instruction not in unfixed) for row, node in nodes.items()}
    for row, weights in weight_formats(graph).items() if graph is not None else ():
        found.setdefault(row, _Work(None, "", False, weights))
    return found


def _node_work(node: "xnnpack_graph.XnnpackNode", fixed: bool) -> _Work:
    shapes = " x ".join("[" + ", ".join(map(str, value.shape)) + "]" for value in node.inputs[:2])
    out = "[" + ", ".join(map(str, node.outputs[0].shape)) + "]" if node.outputs else ""
    return _Work(
        node.multiply_accumulates if fixed else None,
        f"{'' if fixed else 'up to '}{shapes} -> {out}",
        node.op == "Conv2d" and node.kernel == (1, 1),
        weight_format(node),
    )
