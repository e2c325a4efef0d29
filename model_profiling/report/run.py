"""A run as reports need it: manifest, analysis, samples by turn and one typical execution of each experiment."""

from dataclasses import dataclass

from model_profiling.analysis.dumps import Analysed, AnalysisSummary
from model_profiling.analysis.forecast import Forecast
from model_profiling.analysis.latency import latency_turns
from model_profiling.analysis.summary import has_times
from model_profiling.report.spans import Span, typical_execution, typical_spans
from model_profiling.run_directory import Manifest, RunDirectory, Turn


@dataclass(frozen=True)
class Timeline:
    """One execution of an experiment, spans in order; `execution` is its number in the dump."""

    execution: int
    spans: list[Span]


@dataclass(frozen=True)
class Run:
    """`directory` is as the user wrote it, `turns` are those that may be called latency, `forecasts` are predicted."""

    directory: str
    manifest: Manifest
    summary: AnalysisSummary
    turns: dict[str, list[Turn]]
    timelines: dict[str, Timeline]
    forecasts: tuple[Forecast, ...] = ()
    # The fingerprint of what this was made from.
    sources: str = ""

    @property
    def measured(self) -> bool:
        """Whether times mean anything: an emulator's do not, and are never shown."""
        return self.summary.timing == "measured"

    def sides(self, before: str, after: str) -> tuple[str, str]:
        """What to call two compared experiments: `sme2 off` and `sme2 on` if that is the difference."""
        records = self.manifest.experiments
        if before not in records or after not in records:
            return before, after
        off, on = (set(records[name].disable_features) for name in (before, after))
        if off > on:
            switched = "+".join(sorted(off - on))
            return f"{switched} off", f"{switched} on"
        return before, after

    @property
    def shown(self) -> list[str]:
        """Experiments whose operators are shown: the timed ones; where nothing was, the one that uses SME2 most."""
        experiments = self.summary.experiments
        if self.measured:
            return [name for name in experiments if has_times(self.manifest, name)]
        covered = {name: e.coverage.on_sme2 or 0 for name, e in experiments.items() if e.coverage is not None}
        return [max(covered, key=lambda name: covered[name])] if covered else list(experiments)

    @property
    def alone(self) -> list[str]:
        """Shown experiments that take part in no comparison."""
        compared = {name for c in self.summary.comparisons for name in (c.before, c.after)}
        return [name for name in self.shown if name not in compared]

    @property
    def of_interest(self) -> list[str]:
        """The experiments a reader wants faster: the later side of each comparison, else all."""
        later = dict.fromkeys(c.after for c in self.summary.comparisons)
        return [*later, *self.alone] if later else self.shown


def load(directory: RunDirectory, analysed: Analysed, sources: str = "") -> Run:
    """Put together what an analysis found and what the directory holds beside it."""
    manifest = directory.manifest()
    done = {name: record for name, record in manifest.experiments.items() if record.status == "ok"}
    turns = {name: latency_turns(record, directory.samples(manifest, name)) for name, record in done.items()}
    timelines = {
        name: Timeline(typical_execution(profile), typical_spans(profile))
        for name, profile in analysed.profiles.items()
        if has_times(manifest, name)
    }
    return Run(str(directory.path), manifest, analysed.summary, turns, timelines, sources=sources)
