"""All that reports show of a run: its data, and what is computed from the whole of it."""

import functools
from collections.abc import Sequence
from typing import TYPE_CHECKING

import msgspec

from model_profiling.analysis.compare.comparison import OperatorGroup, operator_groups, undisturbed
from model_profiling.analysis.compare.program_changes import ProfiledProgram, ProgramChanges, program_changes
from model_profiling.analysis.graph.cost_tree import CostNode, cost_tree
from model_profiling.analysis.movement.movement import place_of
from model_profiling.analysis.roofs.roofline import Roofline
from model_profiling.analysis.run.dumps import AnalysisSummary
from model_profiling.analysis.run.experiment_labels import switched_features
from model_profiling.analysis.run.run_data import RunData
from model_profiling.analysis.run.run_forecasts import forecasts, predict, sme2_use, without_sme2
from model_profiling.analysis.run.summary import has_times
from model_profiling.analysis.sme2.coverage import Coverage
from model_profiling.analysis.sme2.forecast_record import Forecast, NoKernel, Sme2Answer
from model_profiling.analysis.sme2.kernel_assignment import ELIGIBLE
from model_profiling.analysis.sme2.target import DEFAULT, read_target
from model_profiling.analysis.timing.breakdown import Breakdown
from model_profiling.analysis.timing.latency import Comparison
from model_profiling.analysis.timing.spans import Timeline, typical_timeline
from model_profiling.base.errors import InputError
from model_profiling.base.records import by_key, record_of

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
        sides = {
            name: ProfiledProgram(name, self.profiles[name], each.breakdown, self.analysed.unlinked)
            for name, each in self.summary.experiments.items()
        }
        return [program_changes(sides[c.before], sides[c.after], c.paired) for c in self.summary.comparisons]

    def cost_tree(self, experiment: str) -> CostNode:
        """Return the time of an experiment by module, source line and operator."""
        why = "a bare ETDump does not tell its model" if self.path.is_file() else self.analysed.unlinked
        breakdown = self.summary.experiments[experiment].breakdown
        return cost_tree(breakdown, self.summary.model or self.path.stem, why)

    @functools.cached_property
    def graphs(self) -> "list[OperatorGraph]":
        """The graph of each experiment that a reader wants to look at."""
        # Only pictures of the graph need it.
        from model_profiling.analysis.run.operator_graph import graph_experiments, operator_graph

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

    def told(self, comparison: Comparison) -> Comparison:
        """Return a comparison on the basis that its parts have: undisturbed times of a busy machine."""
        pair = (comparison.before, comparison.after)
        profile = next((each for each in self.summary.comparisons if (each.before, each.after) == pair), None)
        return comparison if profile is None else undisturbed(comparison, profile)

    def execution_ms(self, name: str) -> float | None:
        """Return what an execution takes: the median latency, or of a busy machine the undisturbed time of its parts;
        None where neither is known."""
        latency = self.metrics.experiments[name].latency
        if latency is not None and not latency.busy:
            return latency.median_ms
        breakdown = self.summary.experiments[name].breakdown if name in self.summary.experiments else None
        known = breakdown is not None and not breakdown.unreliable and breakdown.execute_ms > 0
        return breakdown.execute_ms if known and breakdown is not None and latency is not None else None

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


def sme2_answers(run: RunData) -> list[Sme2Answer]:
    """Return the answer for the experiment that a reader wants to know of; of a language model, for each phase."""
    if not run.measured or run.path.is_file() or not run.summary.experiments or run.wrong:
        return []
    try:
        names, why = without_sme2(run), ""
    except InputError as error:
        names, why = run.of_interest, error.message
    return [_answer(run, name, why) for name in run.first_of_each_phase(names)]


def _answer(run: RunData, name: str, why: str) -> Sme2Answer:
    level = read_target(run.target).level if run.target is not None else "sme2"
    use = sme2_use(run, name, run.emulated, level)
    covered, forecast, no_forecast = use.coverage, None, why
    if not why:
        try:
            forecast = predict(run, use, read_target(run.target or DEFAULT))
        except InputError as error:
            no_forecast = error.message
    before, after = _latencies(run, name, forecast)
    return record_of(
        Sme2Answer,
        use,
        covered,
        executorch=run.manifest.experiments[name].runner.executorch_name,
        without=_without(covered, run.summary.experiments[name].breakdown),
        forecast=forecast,
        no_forecast=no_forecast,
        measured=_measured(run, name),
        without_sme2_ms=before,
        with_sme2_ms=after,
    )


def _latencies(run: RunData, name: str, forecast: Forecast | None) -> tuple[float | None, float | None]:
    """Return the median latency without and with SME2, as the forecast changes the traced time; None of another CPU."""
    latency = run.metrics.experiments[name].latency
    if latency is None or latency.busy or forecast is None or forecast.basis == "modelled":
        return None, None
    if not forecast.now.predicted_ms:
        return None, None
    stages = forecast.without or forecast.now, forecast.predictions[-1]
    before, after = (latency.median_ms * stage.predicted_ms / forecast.now.predicted_ms for stage in stages)
    return before, after


def _measured(run: RunData, name: str) -> Comparison | None:
    """Return SME2 on against off in the phase of an experiment; None if the run did not switch it."""
    records = run.manifest.experiments
    same = [c for c in run.metrics.comparisons if records[c.after].phase_kind == records[name].phase_kind]
    return next((c for c in same if "sme2" in switched_features(run.manifest, c.before, c.after)), None)


def _without(covered: Coverage, breakdown: Breakdown) -> list[NoKernel]:
    """Return the operators without a kernel by their reason, the costliest first."""
    eligible = [entry for entry in breakdown.instances if entry.category in ELIGIBLE]
    # An emulated run of another model has other operators: what they take is not known then.
    pairs = zip(covered.operators, eligible, strict=False) if len(covered.operators) == len(eligible) else ()
    groups = by_key(((x.why_not, x.change, x.level), entry) for x, entry in pairs if x.level != "SME2")
    found = []
    for reason, members in groups.items():
        times = sorted(members, key=lambda entry: -entry.ms)
        ms, share = sum(entry.ms for entry in times), sum(entry.share for entry in times)
        names, place = [entry.name for entry in times[:3]], next(filter(None, map(place_of, times)), "")
        found.append(NoKernel(*reason, len(times), ms, share, names, place))
    return sorted(found, key=lambda group: -group.ms)
