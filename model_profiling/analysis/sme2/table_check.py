"""The table of known kernels held against kernels that were traced, operator by operator."""

from collections.abc import Mapping
from typing import Literal, Protocol

import msgspec

from model_profiling.analysis.sme2.coverage import Coverage

_NO_TABLE = "no table of known kernels comes with this kit"


class TableDifference(msgspec.Struct, frozen=True):
    """An operator of which the table does not say what was traced: it names another kernel (`differs`), or it has no
    such node, or no answer for this ExecuTorch (`unknown`, and `why`)."""

    operator: str
    instruction: int
    traced: str
    table: str
    state: Literal["differs", "unknown"]
    why: str


class _Experiment(Protocol):
    @property
    def coverage(self) -> Coverage | None: ...


class _Summary(Protocol):
    @property
    def experiments(self) -> Mapping[str, _Experiment]: ...


class TracedRun(Protocol):
    """What is needed of a run, whose folder comes later: its experiments, with the kernels of each operator."""

    @property
    def summary(self) -> _Summary: ...


def traced_operators(run: TracedRun) -> int:
    """Return how many CONV and GEMM operators of a run have kernels that were traced, over all experiments."""
    covered = [x.coverage for x in run.summary.experiments.values() if x.coverage and not x.coverage.unknown]
    return sum(len(coverage.operators) for coverage in covered)


def table_differences(run: TracedRun) -> list[TableDifference]:
    """Return the CONV and GEMM operators of a traced run of which the table says something else, or nothing.

    None: the table names the traced kernel of every operator. Without a table each operator is unknown.
    """
    return [
        TableDifference(entry.name, entry.instruction, entry.level, "unknown", "unknown", _NO_TABLE)
        for experiment in run.summary.experiments.values()
        if experiment.coverage is not None and not experiment.coverage.unknown
        for entry in experiment.coverage.operators
    ]
