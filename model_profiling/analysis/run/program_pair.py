"""Two programs that were compared, with what a page shows of them besides: their operators, graphs and timelines."""

import functools
from dataclasses import dataclass

from model_profiling.analysis.compare.comparison import PairComparison
from model_profiling.analysis.graph.graph import read_graph
from model_profiling.analysis.run.operator_graph import OperatorFacts, OperatorGraph, graph_of
from model_profiling.analysis.run.operator_origins import ProgramOrigin
from model_profiling.analysis.run.run_graphs import why_in_order
from model_profiling.analysis.timing.breakdown import Breakdown
from model_profiling.analysis.timing.profile import Profile
from model_profiling.analysis.timing.spans import Timeline, typical_timeline


@dataclass(frozen=True)
class ProgramSide:
    """One of the two; `name` is the one that the comparison gives it."""

    name: str
    profile: Profile
    breakdown: Breakdown
    origin: ProgramOrigin | None

    @functools.cached_property
    def timeline(self) -> Timeline:
        return typical_timeline(self.profile)

    @functools.cached_property
    def graph(self) -> OperatorGraph:
        """What feeds what; in execution order, with a note, where the .pte is not there to tell."""
        origin, rows = self.origin, self.breakdown.instances
        model = None
        if origin is not None and origin.model is not None:
            model = read_graph(self.profile.instances, origin.model, origin.method, origin.tokens)
        nodes, edges = graph_of(rows, OperatorFacts(graph=model), timed=True)
        return OperatorGraph(
            model=origin.model.stem if origin is not None and origin.model is not None else self.name,
            experiment=self.name,
            title=self.name,
            execute_ms=self.breakdown.execute_ms,
            nodes=nodes,
            edges=edges,
            notes=why_in_order(model, rows, origin.model if origin is not None else None, origin is None),
        )


@dataclass(frozen=True)
class ProgramPair:
    """Rows of `compared.changes` are those of the breakdowns of the two sides."""

    compared: PairComparison
    before: ProgramSide
    after: ProgramSide
