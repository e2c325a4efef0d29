"""All that reports show of a run: its data, and what is computed from the whole of it."""

import functools
from collections.abc import Sequence
from typing import TYPE_CHECKING

import msgspec

from model_profiling.analysis.compare.grouping import OperatorGroup, operator_groups
from model_profiling.analysis.compare.program_changes import ProgramChanges, program_changes
from model_profiling.analysis.graph.cost_tree import CostNode, cost_tree
from model_profiling.analysis.graph.sources import UNLINKED
from model_profiling.analysis.roofs.roofline import Roofline
from model_profiling.analysis.run.dumps import AnalysisSummary
from model_profiling.analysis.run.run_data import RunData
from model_profiling.analysis.run.run_forecasts import forecasts
from model_profiling.analysis.run.run_sme2 import sme2_answers
from model_profiling.analysis.run.summary import has_times
from model_profiling.analysis.sme2.forecast_record import Forecast
from model_profiling.analysis.sme2.sme2_answer import Sme2Answer
from model_profiling.analysis.sme2.target import DEFAULT
from model_profiling.analysis.timing.spans import Timeline, typical_timeline

if TYPE_CHECKING:
    from model_profiling.analysis.run.operator_graph import OperatorGraph

# As many experiments as a page can show with all their operators; of more, all have their latencies in it.
MOST_DETAILED = 24


# Of what SME2 does, as many operators as a summary lists; `forecast` has all of them.
_MOST_OPERATORS = 20


class RunView(RunData):
    """A run with what pages, tables and pictures show of it: forecasts, graphs, timelines, trees of modules."""

    @functools.cached_property
    def detailed(self) -> "RunView":
        """The run with no more experiments than a page can show in full, its first ones; most runs have no more."""
        names = [*(name for c in self.summary.comparisons for name in (c.before, c.after)), *self.alone]
        first = list(dict.fromkeys(names))[:MOST_DETAILED]
        if self.path.is_file() or len(self.summary.experiments) <= MOST_DETAILED or not first:
            return self
        near = RunView(self.path, self.table, self.emulated, self.target, first)
        near.labels = self.labels
        return near

    @functools.cached_property
    def timelines(self) -> dict[str, Timeline]:
        """One typical execution of each experiment that has times."""
        return {
            name: typical_timeline(profile) for name, profile in self.profiles.items() if has_times(self.manifest, name)
        }

    @functools.cached_property
    def operator_groups(self) -> list[list[OperatorGroup]]:
        """For each comparison its operators, those of one name together."""
        return [operator_groups(c, self.profiles[c.before], self.profiles[c.after]) for c in self.summary.comparisons]

    @functools.cached_property
    def changes(self) -> Sequence[ProgramChanges]:
        """What the difference of each comparison consists of, by line and module."""
        sides = {name: (self.profiles[name], each.breakdown) for name, each in self.summary.experiments.items()}
        why = (self._unlinked, self._unlinked)
        return [
            program_changes((c.before, c.after), sides[c.before], sides[c.after], c.paired, why)
            for c in self.summary.comparisons
        ]

    @property
    def _unlinked(self) -> str:
        """Why no operator has a line of PyTorch, if that is so."""
        return next((note for note in self.summary.notes if note.endswith(UNLINKED)), "")

    def cost_tree(self, experiment: str) -> CostNode:
        """Return the time of an experiment by module, source line and operator."""
        why = "a bare ETDump does not tell its model" if self.path.is_file() else self._unlinked
        breakdown = self.summary.experiments[experiment].breakdown
        return cost_tree(breakdown, self.summary.model or self.path.stem, why)

    @functools.cached_property
    def graphs(self) -> list["OperatorGraph"]:
        """The graph of each experiment that a reader wants to look at."""
        from model_profiling.analysis.run.run_graphs import (
            graph_experiments,
            operator_graph,
        )  # only pictures of the graph need it

        return [operator_graph(self, name) for name in graph_experiments(self)]

    @functools.cached_property
    def sme2(self) -> list[Sme2Answer]:
        """What SME2 does for the model, or would do; of a language model, in each of its phases."""
        return sme2_answers(self)

    @property
    def full_summary(self) -> AnalysisSummary:
        """The summary as it is written down, with what changed and what SME2 does; of its operators the costliest."""
        sme2 = [_shortened(answer) for answer in self.sme2]
        return msgspec.structs.replace(self.summary, sme2=sme2, changes=list(self.changes))

    @functools.cached_property
    def forecasts(self) -> list[Forecast]:
        """What SME2 would change. What cannot be predicted is an error only where a user gave what should tell it."""
        if self.emulated is not None or self.target is not None:
            return forecasts(self, self.emulated, target=self.target or DEFAULT)
        return [answer.forecast for answer in self.sme2 if answer.forecast is not None]

    @functools.cached_property
    def rooflines(self) -> dict[str, Roofline]:
        """The experiments that were held against roofs."""
        found = {name: experiment.roofline for name, experiment in self.summary.experiments.items()}
        return {name: roofline for name, roofline in found.items() if roofline is not None}


def _shortened(answer: Sme2Answer) -> Sme2Answer:
    forecast = answer.forecast
    if forecast is None:
        return answer
    left, operators = forecast.left[:_MOST_OPERATORS], forecast.operators[:_MOST_OPERATORS]
    return msgspec.structs.replace(answer, forecast=msgspec.structs.replace(forecast, left=left, operators=operators))
