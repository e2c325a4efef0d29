"""SME2 coverage: which CONV and GEMM operators run on SME2, by which kernel, how much work that is, and why not."""

import itertools
from collections import Counter
from collections.abc import Collection
from pathlib import Path
from typing import TYPE_CHECKING, Literal

import msgspec

from model_profiling.analysis.sme2.kernel_assignment import ELIGIBLE, KernelCalls, KernelEvidence
from model_profiling.analysis.sme2.kernel_table import Cpu, KernelTable, MatrixNode, node_kind
from model_profiling.analysis.sme2.weight_formats import CHECKED, no_kernel, weight_format, weight_formats
from model_profiling.analysis.timing.breakdown import InstanceTime
from model_profiling.analysis.timing.categories import is_custom, is_packed
from model_profiling.analysis.timing.profile import Part, Where
from model_profiling.base.records import by_key, record_of
from model_profiling.upstream.libraries import MATRIX_KERNEL

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
_MOST_DTYPES = 2
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
    # What gives it an SME2 kernel, as far as the table of known kernels tells.
    change: str = ""
    # Where it is from, as far as the ETRecord tells.
    module: str = ""
    source_line: str = ""


class FormatKernels(msgspec.Struct, frozen=True):
    """The operators of one weight format: how many run on SME2 (None: not traced), and how many use each kernel."""

    weights: str
    operators: int
    on_sme2: int | None
    kernels: dict[str, int] = {}
    # What is known of this format where nothing was traced, or why SME2 is not used where it was.
    why: str = ""


class Coverage(msgspec.Struct, frozen=True):
    """How much of a model's CONV and GEMM runs on SME2. Work is in multiply-accumulates, None where it is not known.
    `formats` has the same by weight format.

    `unknown` is the reason why nobody can say which operators run on SME2; the counts are then None, and `unassigned`
    has the kernels that ran for one operator or another. `not_known` are operators of which the table of known kernels
    has nothing: those that run on SME2 are then at least so many.
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
    not_known: int = 0

    def is_of(self, entries: Collection[InstanceTime]) -> bool:
        """Return whether these are its operators, in its order."""
        ours = [(entry.instruction, entry.category, entry.kind) for entry in entries]
        return ours == [(entry.instruction, entry.category, entry.kind) for entry in self.operators]


class _Work(msgspec.Struct, frozen=True):
    """What the .pte says of an operator; sizes that are not fixed leave its multiply-accumulates unknown."""

    multiply_accumulates: int | None
    shape: str
    weights: str
    # What decides its kernel; None if it is no node, or of no fixed size.
    kind: MatrixNode | None = None
    words: str = ""


class _Judged(msgspec.Struct, frozen=True):
    """What an operator runs on, by evidence or by the table."""

    level: Level
    kernels: list[KernelCalls]
    why_not: str
    change: str = ""


_NOTHING = _Work(None, "", "")


def known_coverage(
    instances: list[InstanceTime],
    table: KernelTable | str,
    model: Path | None,
    dtype: str,
    method: str = "forward",
    tokens: int | None = None,
    cpu: Cpu = "sme2",
) -> Coverage:
    """Say of every CONV and GEMM operator what a CPU would run it on, by the table of known kernels.

    A table that is a text is none, and why. `dtype` is the program's: another one that would have a kernel is what
    changes it.
    """
    work = _works(instances, model, method, tokens) if model is not None else {}
    operators = []
    for row, entry in enumerate(instances):
        if entry.category in ELIGIBLE:
            known = work.get(row, _NOTHING)
            operators.append(record_of(CoveredOperator, entry, _by_table(entry, known, table, dtype, cpu), known))
    if operators and all(operator.level == _UNKNOWN for operator in operators):
        return _not_known(operators, operators[0].why_not, [])
    return _summed(operators)


def _by_table(entry: InstanceTime, work: _Work, table: KernelTable | str, dtype: str, cpu: Cpu) -> _Judged:
    if entry.where == "portable":
        return _Judged("portable", [], _why_not_portable(entry, work))
    if isinstance(table, str):
        return _Judged(_UNKNOWN, [], table)
    if work.kind is None:
        why = "the .pte does not tell what it is: it is not there, has changed, or has no fixed sizes"
        return _Judged(_UNKNOWN, [], why)
    known = table.find(work.kind)
    if known is None:
        return _Judged(_UNKNOWN, [], f"no {work.words} is in the table of known kernels")
    kernels = [KernelCalls(kernel, None) for kernel in known.kernels(cpu)]
    level = _level(kernels, entry)
    if level == "SME2":
        return _Judged(level, kernels, "")
    others = [name for name in table.dtypes_with_sme2(work.kind) if name != dtype]
    change = f"--dtype {' or '.join(others[:_MOST_DTYPES])}" if others else ""
    return _Judged(level, kernels, _why_none(work, table.why_unused(work.kind)), change)


def _why_none(work: _Work, known: str = "") -> str:
    """Return why a node gets no SME2 kernel; `known` is what the table of its ExecuTorch says of that."""
    why = no_kernel(work.weights) or f"{work.words}: XNNPACK does not use an SME2 kernel for it"
    return f"{why} ({known})" if known else why


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
    levels = {
        row: _UNKNOWN if unknown and entry.where == "delegated" else _level(called.get(row, []), entry)
        for row, entry in enumerate(instances)
        if entry.category in ELIGIBLE
    }
    # Weights of which some operator runs on SME2 are not to blame where another one does not.
    reached = {work[row].weights for row, level in levels.items() if level == "SME2" and row in work}
    operators = []
    for row, level in levels.items():
        known = work.get(row, _NOTHING)
        missing = "" if known.weights in reached else no_kernel(known.weights)
        judged = _Judged(level, called.get(row, []), _why_not(instances[row], level, features, known, missing))
        operators.append(record_of(CoveredOperator, instances[row], judged, known))
    if unknown and any(operator.level == _UNKNOWN for operator in operators):
        return _not_known(operators, unknown, evidence.unassigned if evidence else [])
    return _summed(operators)


def _not_known(operators: list[CoveredOperator], why: str, unassigned: list[KernelCalls]) -> Coverage:
    """Return what is left to say where kernels cannot be given to operators: how often SME2 was called at all."""
    matrix = [call for call in unassigned if call.kernel.startswith(MATRIX_KERNEL)]
    on_sme2 = sum(call.calls or 0 for call in matrix if _kernel_level(call.kernel) == "SME2")
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
    on_sme = sum(x.level == "SME" for x in operators)
    work = _work(operators)
    done = None if work is None else _work(on_sme2) or 0
    not_known = sum(x.level == _UNKNOWN for x in operators)
    if not operators:
        headline = "The model has no CONV or GEMM operators"
    else:
        least = "at least " if not_known else ""
        headline = f"SME2 runs {least}{len(on_sme2)} of {len(operators)} eligible operators"
        if work and done is not None:
            headline += f", {least}{done / work:.0%} of the multiply-accumulates"
        headline += f" (and SME {on_sme})" if on_sme else ""
    return Coverage(
        len(operators), len(on_sme2), on_sme, work, done, headline, operators, "", [], _formats(operators), not_known
    )


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
    found = {_kernel_level(kernel) for kernel in _matrix_kernels(kernels)}
    otherwise: Level = "portable" if entry.where == "portable" else "other" if found else "XNNPACK's own"
    return next((level for _, level in _LEVELS if level in found), otherwise)


def _matrix_kernels(calls: list[KernelCalls]) -> list[str]:
    return [call.kernel for call in calls if call.kernel.startswith(MATRIX_KERNEL)]


def _kernel_level(kernel: str) -> Level:
    return next((level for part, level in _LEVELS if part in kernel), "other")


def _why_not(entry: InstanceTime, level: Level, features: list[str], work: _Work, missing: str) -> str:
    """Return why a traced operator does not run on SME2, as far as the evidence goes; '' if it does.

    `missing` is what its weights have no kernel for.
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
    if missing:
        return missing
    if is_packed(entry.dtype):
        return "packed for KleidiAI, but another kernel was chosen (size or shape)"
    if work.kind is not None:
        return _why_none(work)
    return f"{entry.kind} in {entry.dtype or 'this type'}: XNNPACK does not use an SME2 kernel for it"


def _why_not_portable(entry: InstanceTime, work: _Work) -> str:
    if is_custom(entry.operator):
        return "one of ExecuTorch's own operators for language models: it has no SME2 kernel"
    return no_kernel(work.weights, delegated=False) or "it runs outside the delegate, on a portable kernel"


def _formats(operators: list[CoveredOperator]) -> list[FormatKernels]:
    """Return operators that have weights, added up by their format; most operators first."""
    groups = by_key((operator.weights, operator) for operator in operators if operator.weights)
    found = []
    for weights, members in groups.items():
        kernels = (dict.fromkeys(_matrix_kernels(x.kernels)) or [x.level] for x in members)
        counts = Counter(itertools.chain.from_iterable(kernels))
        unknown = any(x.level == _UNKNOWN for x in members)
        on_sme2 = None if unknown else sum(x.level == "SME2" for x in members)
        reasons = dict.fromkeys(x.why_not for x in members if x.why_not)
        found.append(FormatKernels(weights, len(members), on_sme2, dict(counts.most_common()), "; ".join(reasons)))
    return sorted(found, key=lambda entry: -entry.operators)


def _works(instances: list[InstanceTime], model: Path, method: str, tokens: int | None) -> dict[int, _Work]:
    """Return what the .pte says of each operator, by its position."""
    # These read the .pte, which only this needs.
    from model_profiling.analysis.graph.graph import aligned_nodes, read_graph

    graph, nodes = read_graph(instances, model, method, tokens), aligned_nodes(instances, model, method)
    if graph is not None and graph.flow.fixed:
        nodes = {row: step.node for row, step in graph.placed if step.node}
    unfixed = graph.flow.unfixed if graph is not None else frozenset()
    found = {row: _node_work(node, instances[row].instruction not in unfixed) for row, node in nodes.items()}
    for row, weights in weight_formats(graph).items() if graph is not None else ():
        found.setdefault(row, _Work(None, "", weights))
    return found


def _node_work(node: "xnnpack_graph.XnnpackNode", fixed: bool) -> _Work:
    kind = node_kind(node) if fixed else None
    one_channel = bool(node.inputs) and node.inputs[0].shape[-1:] == (1,)
    shapes = " x ".join("[" + ", ".join(map(str, value.shape)) + "]" for value in node.inputs[:2])
    out = "[" + ", ".join(map(str, node.outputs[0].shape)) + "]" if node.outputs else ""
    return _Work(
        node.multiply_accumulates if fixed else None,
        f"{'' if fixed else 'up to '}{shapes} -> {out}",
        weight_format(node),
        kind,
        kind.words(one_channel) if kind is not None else "",
    )
