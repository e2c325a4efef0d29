"""What a finding is, and what rules may look at. Every millisecond is claimed by one finding at most, but for the one
that stands for several."""

import enum
import functools
import re
from collections.abc import Callable, Iterable, Iterator
from typing import TYPE_CHECKING, Literal

import msgspec

from model_profiling.analysis.movement.movement import DataMovement, data_movement, place_of
from model_profiling.analysis.roofs.roofline import OperatorRoof, Roofline, roofs_by_row
from model_profiling.analysis.timing.breakdown import Breakdown, InstanceTime
from model_profiling.base.units import counted, shown_ms
from model_profiling.store.artifacts import ExportRecord

if TYPE_CHECKING:
    from model_profiling.analysis.compare.comparison import ProfileComparison
    from model_profiling.analysis.compare.metrics import ExperimentMetrics
    from model_profiling.analysis.compare.operator_scaling import ThreadEvidence
    from model_profiling.analysis.graph.graph import ModelGraph
    from model_profiling.analysis.llm.phases import DepthCost, PhaseMetrics
    from model_profiling.analysis.process.memory import Memory, ProgramMemory
    from model_profiling.analysis.process.startup import Startup

_MOST_LINES = 3
# A call that is longer than this is named without its arguments.
_LONGEST_CALL = 40


class FindingKind(str, enum.Enum):
    """What a finding is about: what programs go by. Titles are for people and may change, these do not."""

    NO_DELEGATE = "no delegate"
    CONVERSIONS = "dtype conversions"
    PORTABLE_OPERATOR = "portable operator"
    NEEDLESS_LAYOUT = "needless layout changes"
    UNDONE_TRANSPOSES = "undone transposes"
    INPUT_LAYOUT = "input layout"
    OUTPUT_LAYOUT = "output layout"
    LAYOUT_CHANGES = "layout changes"
    FP16_IN_FP32 = "fp16 computed in fp32"
    NOT_ACCELERATED = "not accelerated"
    COMPUTE_IN_FP32 = "compute in fp32"
    RUNTIME_OVERHEAD = "runtime overhead"
    MEMORY_GROWTH = "memory growth"
    PACKING = "weight packing"
    FIRST_INFERENCE_MEMORY = "memory of the first inference"
    PEAK_MEMORY = "peak above the plan"
    SLOW_FIRST_INFERENCE = "slow first inference"
    THREAD_COUNT = "thread count"
    MORE_THREADS_SLOWER = "more threads are slower"
    SLOWER_WITH_THREADS = "slower with more threads"
    HEAD_OF_ALL_TOKENS = "head of all tokens"
    PLAIN_ATTENTION = "attention without a custom operator"
    DECODE_RUNTIME = "runtime overhead of each token"
    MEMORY_BOUND = "bound by memory"
    ATTENTION_GROWS = "attention grows with context"
    WEIGHTS_WITHOUT_SME2 = "weights without SME2 kernels"


_BY_FLAG = {
    *(FindingKind.THREAD_COUNT, FindingKind.MORE_THREADS_SLOWER, FindingKind.SLOWER_WITH_THREADS),
    *(FindingKind.INPUT_LAYOUT, FindingKind.OUTPUT_LAYOUT, FindingKind.NO_DELEGATE, FindingKind.COMPUTE_IN_FP32),
}


class Advice(msgspec.Struct, frozen=True):
    """Something worth doing. `ms` and `share` are the time of the operators it is about; the title says the share.

    `gain` is as measured, with another number of threads (a "measurement", `saved_ms` less); None of a "suggestion":
    what it brings is not known before it is measured (`profile`, `tune`). `rewrite` is the one of `export` that does
    it, named only if it finds something in this graph. Advice on start-up or memory is a "measurement", too:
    `measured` says what it costs, and an inference gains nothing (1).
    """

    rule: FindingKind
    title: str
    evidence: list[str]
    ms: float
    share: float
    gain: float | None
    next_step: str
    # Earlier versions wrote predictions.
    label: Literal["prediction", "suggestion", "measurement"] = "suggestion"
    saved_ms: float = 0.0
    rewrite: str = ""
    measured: str = ""


class Finding(Advice, frozen=True):
    """Advice, and which rows of the breakdown it is about."""

    instances: list[int] = []


class Evidence(msgspec.Struct, frozen=True, dict=True):
    """All that rules may look at, and which rows of the breakdown earlier findings have claimed."""

    breakdown: Breakdown
    comparison: "ProfileComparison | None" = None
    export: ExportRecord | None = None
    graph: "ModelGraph | None" = None
    roofline: Roofline | None = None
    # None: this number of threads was the only one.
    threads: "ThreadEvidence | None" = None
    claimed: set[int] = set()
    # Start-up and memory of the experiment, and what the .pte says of memory by itself.
    measured: "ExperimentMetrics | None" = None
    program: "ProgramMemory | None" = None
    # Of a language model's decode: experiments that differ from this one only in their depth, itself among them.
    depths: "list[DepthCost]" = []

    @functools.cached_property
    def movement(self) -> DataMovement:
        return data_movement(self.breakdown, self.graph)

    def free(self, wanted: Callable[[InstanceTime], bool]) -> list[int]:
        """Return the rows that no finding has claimed and that `wanted` picks, costliest first."""
        rows = [row for row, entry in enumerate(self.breakdown.instances) if row not in self.claimed and wanted(entry)]
        return self.by_cost(rows)

    def by_cost(self, rows: Iterable[int]) -> list[int]:
        return sorted(rows, key=lambda row: -self.breakdown.instances[row].ms)

    def ms(self, rows: Iterable[int]) -> float:
        return sum(self.breakdown.instances[row].ms for row in rows)

    def share(self, rows: Iterable[int]) -> float:
        return self.ms(rows) / self.breakdown.execute_ms if self.breakdown.execute_ms else 0.0

    def error_ms(self, rows: Iterable[int]) -> float:
        """Return how far the time of these operators may be off (two standard errors, as if all were off together)."""
        return 2 * sum(self.breakdown.instances[row].error_ms for row in rows)

    def at(self, rows: Iterable[int], what: str, origin: str = "") -> str:
        """Return what a finding is about after the model's own line: `net.py:36: mean((2, 3))`; of `origin`, the
        operator that the model calls there, with its arguments if it is one line."""
        found = [entry for row in self.by_cost(rows) if (entry := self.breakdown.instances[row]).source_line]
        if not found:
            return what
        more = len({place_of(entry) for entry in found}) - 1
        if more:
            return f"{found[0].source_line} and {counted(more, 'more line')}: {what}"
        code = found[0].source.code if found[0].source is not None else ""
        return f"{found[0].source_line}: {what.replace(origin, _call(code, origin), 1) if origin else what}"

    @property
    def phase(self) -> "PhaseMetrics | None":
        """Of a language model: the phase that was measured."""
        return self.measured.phase if self.measured is not None else None

    @property
    def startup(self) -> "Startup | None":
        return self.measured.startup if self.measured is not None else None

    @property
    def memory(self) -> "Memory | None":
        return self.measured.memory if self.measured is not None else None

    @property
    def roofs(self) -> dict[int, OperatorRoof]:
        """The roofs of operators, by row; none where nobody has measured this CPU."""
        return roofs_by_row(self.roofline)

    def lines(self, rows: Iterable[int]) -> list[str]:
        """Return the costliest of these operators, each with its time and its line of PyTorch."""
        ordered = self.by_cost(rows)
        entries, rest = [self.breakdown.instances[row] for row in ordered[:_MOST_LINES]], ordered[_MOST_LINES:]
        shown = [
            f"{x.name}: {shown_ms(x.ms)} ({x.share:.1%}){f' at {place_of(x)}' if place_of(x) else ''}" for x in entries
        ]
        return shown + ([f"and {len(rest)} more: {shown_ms(self.ms(rest))}"] if rest else [])

    def finding(
        self,
        rule: FindingKind,
        what: str,
        rows: Iterable[int],
        next_step: str,
        remarks: Iterable[str] = (),
        rewrite: str = "",
        origin: str = "",
        causes: Iterable[int] = (),
    ) -> Finding:
        """Return a finding about some rows, which begins with the model's own line: that of `causes`, if only they have
        it. What changing them brings is not known. `origin` is the operator of the model in `what`."""
        claims = sorted(rows)
        evidence, ms, share = [*self.lines(claims), *remarks], self.ms(claims), self.share(claims)
        title = f"{self.at(causes or claims, what, origin)}: {100 * share:.0f} % of the time"
        return Finding(rule, title, evidence, ms, share, None, next_step, rewrite=rewrite, instances=claims)

    def measurement(self, rule: FindingKind, title: str, cost: str, next_step: str, remarks: Iterable[str]) -> Finding:
        """Return a finding about start-up or memory: no inference becomes faster."""
        evidence = [remark for remark in remarks if remark]
        return Finding(rule, title, evidence, 0.0, 0.0, 1.0, next_step, "measurement", measured=cost)


Rule = Callable[[Evidence], Iterator[Finding]]


def by_flag(finding: Finding) -> bool:
    """Return whether a flag carries it out, of an export or the number of threads: no change of the model."""
    return bool(finding.rewrite) or finding.rule in _BY_FLAG


def _call(code: str, name: str) -> str:
    """Return how a line calls an operator: `mean((2, 3))`; its name if the line does not show it, or at length."""
    found = re.search(rf"(?<!\w){re.escape(name)}\(", code)
    depth = 0
    for end in range(found.end() - 1, len(code)) if found else ():
        depth += (code[end] in "([{") - (code[end] in ")]}")
        if not depth and found and end - found.start() < _LONGEST_CALL:
            return code[found.start() : end + 1]
        if not depth:
            break
    return name
