"""The rows of a run: of which experiment each is, and the fields of what the analysis found, by the same names."""

from typing import TYPE_CHECKING, Any, cast

import msgspec

from model_profiling.analysis.advice.finding import Advice
from model_profiling.analysis.compare.operator_scaling import OperatorThreads
from model_profiling.analysis.compare.program_changes import ModuleChange, PartChange, ProgramChanges
from model_profiling.analysis.graph.cost_tree import CostNode
from model_profiling.analysis.process.memory import Memory
from model_profiling.analysis.process.scaling import ThreadPoint
from model_profiling.analysis.process.startup import MedianTime
from model_profiling.analysis.roofs.roofline import GroupWork
from model_profiling.analysis.timing.breakdown import CategoryTime, OperatorTime, Spread
from model_profiling.analysis.timing.latency import Latency
from model_profiling.api.records import Records
from model_profiling.base.records import record_of

# What a row leaves open where no time was measured.
_TIMES = ("ms", "share", "median_ms", "mad_ms", "p95_ms")


class Row(msgspec.Struct, frozen=True):
    """One row of a table: the experiment that it is of, and fields of what the analysis found, by the same names."""

    experiment: str

    if TYPE_CHECKING:

        def __getattr__(self, name: str) -> Any: ...

    @classmethod
    def of(cls, *sources: msgspec.Struct | None, timed: bool = True, **given: Any) -> "Row":
        """Return a row whose fields are `given`, or those of the same name of the first source that has one."""
        row = record_of(cls, *sources, **given)
        untimed = {} if timed else {name: None for name in _TIMES if name in cls.__struct_fields__}
        return msgspec.structs.replace(row, **untimed)


def row_type(name: str, *fields: type[msgspec.Struct] | str) -> type[Row]:
    """Return a type of rows that has the fields of these records and these names; None is what is not known."""
    names = [each.split() if isinstance(each, str) else each.__struct_fields__ for each in fields]
    own = dict.fromkeys(name for each in names for name in each if name not in ("experiment", "spread", "children"))
    return cast(type[Row], msgspec.defstruct(name, [(each, Any, None) for each in own], bases=(Row,), frozen=True))


# One operator of one experiment, all its places in the graph together, with the work of all places.
OperatorRow = row_type("OperatorRow", OperatorTime, Spread, GroupWork)
CategoryRow = row_type("CategoryRow", CategoryTime)
# A part of the model: `depth` is how deep it lies in the tree. A part's time is the sum of those one deeper below it.
ModuleRow = row_type("ModuleRow", "depth", CostNode)
# The latency of one experiment; where it has none, `status` and `warnings` say why.
LatencyRow = row_type("LatencyRow", "status source", Latency)
# One `part` of a start, as a median over launches with its 95 % interval; `page_cache` is warm, cold, ...
StartupRow = row_type("StartupRow", "part", MedianTime, "launches page_cache")
# What its processes hold in memory, or why that is `unknown`; what is planned and constant the .pte says by itself.
MemoryRow = row_type("MemoryRow", "unknown workspace weight_cache planned_bytes constant_bytes", Memory)
# `best` is the fewest threads that no other number is faster than, `on_off` how many times faster than features off.
ThreadRow = row_type("ThreadRow", ThreadPoint, "disabled best on_off on_off_low on_off_high")
# `speedup` is that of `many` threads, the most for which there are CPUs, against the fewest.
OperatorThreadRow = row_type("OperatorThreadRow", "operator category where instances threads many", OperatorThreads)
AdviceRow = row_type("AdviceRow", Advice)
KernelRow = row_type(
    "KernelRow", "operator category instruction level kernels multiply_accumulates shape why_not module source_line"
)


class Changes(Records[ProgramChanges]):
    """What the difference of each compared pair consists of; `parts`, `modules` and `told` are those of all pairs."""

    @property
    def parts(self) -> Records[PartChange]:
        """Every line or operator, the largest difference of a pair first; those of a pair add up to its whole."""
        return Records(part for each in self for part in each.parts)

    @property
    def modules(self) -> Records[ModuleChange]:
        """The same by module."""
        return Records(module for each in self for module in each.modules)

    @property
    def told(self) -> Records[PartChange]:
        """Parts whose difference can be told from noise."""
        return Records(part for each in self for part in each.told)
