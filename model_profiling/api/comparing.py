"""Hold two results against each other: runs, experiments, dumps, or two programs measured now, in turns."""

import functools
from pathlib import Path

import msgspec

from model_profiling.analysis.compare.comparison import PairComparison, compare_profiles
from model_profiling.analysis.compare.metrics import layout_caveats
from model_profiling.analysis.process.memory import compare_memory
from model_profiling.analysis.process.startup import compare_startups
from model_profiling.analysis.run.selection import ComparisonSide, choose
from model_profiling.analysis.timing.categories import CategoryTable, load_table
from model_profiling.analysis.timing.latency import Comparison, preempted_traces
from model_profiling.analysis.timing.latency import compare as compare_latency
from model_profiling.api.records import Records
from model_profiling.base import files
from model_profiling.base.errors import InputError
from model_profiling.base.on_progress import OnProgress
from model_profiling.pipeline.group_state import ExperimentOutcome
from model_profiling.pipeline.schedule import CHOSEN, Counts
from model_profiling.pipeline.side_by_side import measure, programs_of
from model_profiling.platforms.base import Platform
from model_profiling.store.run_directory import Phase


class Compared(PairComparison, frozen=True, tag="comparison", tag_field="kind"):
    """Two experiments: their latency with its interval, how each category and operator changed, and their metrics."""

    @property
    def sentence(self) -> str:
        """The verdict in words."""
        from model_profiling.report.words import comparison_sentence

        return comparison_sentence(self.latency)


class Comparisons(Records[Compared]):
    """What `compare` found, one entry for each pair of experiments."""

    @property
    def latency(self) -> Records[Comparison]:
        """The latency of each pair, as a table."""
        return Records(each.latency for each in self)

    def __repr__(self) -> str:
        return f"<{'; '.join(each.sentence for each in self)}>"

    @functools.cached_property
    def _picture(self) -> str:
        from model_profiling.api.display import draw_svg, stacked_bars

        rows = []
        for each in self[:1]:
            sides = (each.latency.before, "before_ms"), (each.latency.after, "after_ms")
            rows = [(name, {c.name: getattr(c, side) for c in each.profile.categories}) for name, side in sides]
        return draw_svg(stacked_bars(rows, "comparison"))

    def _repr_html_(self) -> str:
        from model_profiling.api.display import comparisons_html

        return comparisons_html(self, self._picture)


def compare(
    before: str,
    after: str,
    categories: str | Path | None,
    counts: Counts,
    threads: int | None,
) -> Comparisons:
    """Compare what two resolved paths name; experiments of equal name, if both are whole runs."""
    if counts != CHOSEN or threads is not None:
        raise InputError(
            "runs, launches, budget, threads and startup launches are for two .pte",
            "A run directory is measured already: leave them out.",
        )
    return Comparisons([_compared(one, other) for one, other in _pairs(before, after, categories)])


def measure_pair(
    before: str,
    after: str,
    categories: str | Path | None,
    counts: Counts,
    threads: int | None,
    on_progress: OnProgress,
    platform: Platform,
) -> Comparisons:
    """Measure two programs side by side and compare them."""
    if platform.timing != "measured":
        raise InputError("programs cannot be compared under an emulator: its times mean nothing", "Choose a machine.")
    # The dumps of programs that are measured now are read before the directory goes.
    with files.scratch_directory() as scratch:
        table = load_table(Path(categories) if categories else None)
        pairs = _in_turns(before, after, scratch, counts, threads or 1, on_progress, table, platform)
        return Comparisons([_compared(one, other) for one, other in pairs])


def _compared(before: ComparisonSide, after: ComparisonSide) -> Compared:
    paired = bool(before.session) and before.session == after.session
    names = (before.name, after.name) if before.name != after.name else (f"A:{before.name}", f"B:{after.name}")
    latency = compare_latency((names[0], before.turns), (names[1], after.turns), paired)
    caveats = list(dict.fromkeys([*before.caveats, *after.caveats]))
    profile = compare_profiles((names[0], *before.profiled()), (names[1], *after.profiled()), paired)
    return Compared(
        msgspec.structs.replace(latency, caveats=caveats),
        profile,
        before.metrics,
        after.metrics,
        compare_startups((names[0], before.starts), (names[1], after.starts), paired, latency.contended),
        compare_memory((names[0], before.processes), (names[1], after.processes), paired),
    )


def _pairs(first: str, second: str, categories: str | Path | None) -> list[tuple[ComparisonSide, ComparisonSide]]:
    for text in (first, second):
        if text.endswith(".pte"):
            raise InputError(f"{text} has not been measured", "Give two .pte, or run this one first (sme2-kit run).")
    before, after = (choose(text, categories, profiled=True) for text in (first, second))
    pairs = [(next(iter(before.values())), next(iter(after.values())))]
    if len(before) > 1 or len(after) > 1:
        pairs = [(before[name], after[name]) for name in before if name in after]
    if not pairs:
        raise InputError(
            f"no experiment is in both ({', '.join(before)} against {', '.join(after)})",
            f"Name one on each side: sme2-kit compare {first}:{next(iter(before))} {second}:{next(iter(after))}",
        )
    for one, other in pairs:
        if one.phase != other.phase:
            phases = [side.phase.label if side.phase is not None else "no phase" for side in (one, other)]
            raise InputError(
                f"{one.name} and {other.name} are different phases ({' and '.join(phases)})",
                "Compare experiments of one phase.",
            )
    usable = [pair for pair in pairs if pair[0].turns and pair[1].turns]
    if not usable:
        raise InputError("there is no latency to compare (trace runs have none)", "Compare timing experiments.")
    return usable


def _in_turns(
    before: str,
    after: str,
    scratch: Path,
    counts: Counts,
    threads: int,
    on_progress: OnProgress,
    table: CategoryTable,
    platform: Platform,
) -> list[tuple[ComparisonSide, ComparisonSide]]:
    """Measure two programs side by side on one machine: shared machine noise cancels. Language models, by phase."""
    programs, phases = programs_of({"A": Path(before), "B": Path(after)})
    caveats = tuple(layout_caveats(platform.probe().environment))
    pairs = []
    chosen: list[Phase | None] = [*phases] or [None]
    for phase in chosen:
        home = scratch / (phase.in_names if phase is not None else "whole")
        outcomes = measure(platform, programs, home, threads, on_progress, True, counts, phase)
        pairs.append(_chosen(list(outcomes.values()), phase, caveats, table))
    return pairs


def _chosen(
    outcomes: list[ExperimentOutcome], phase: Phase | None, caveats: tuple[str, ...], table: CategoryTable
) -> tuple[ComparisonSide, ComparisonSide]:
    found = [
        ComparisonSide(
            name=outcome.program.stem if phase is None else f"{outcome.program.stem} {phase.label}",
            phase=phase,
            turns=outcome.timed,
            latency_source="untraced executions",
            etdump=outcome.file(".etdump"),
            session="now",
            traced_launches=outcome.samples.traced_launches,
            table=table,
            caveats=caveats,
            starts=tuple(outcome.starts),
            processes=tuple(outcome.processes),
            preempted=preempted_traces(outcome.samples, bool(outcome.ready and outcome.ready.stops_clock)),
        )
        for outcome in outcomes
    ]
    return found[0], found[1]
