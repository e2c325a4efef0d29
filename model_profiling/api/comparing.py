"""Hold two results against each other: runs, experiments, dumps, or two programs measured now, in turns."""

import functools
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import msgspec

from model_profiling.analysis.accuracy.agreement import Agreement, agreement_of
from model_profiling.analysis.compare.comparison import (
    KernelComparison,
    MetricChange,
    PairComparison,
    compare_kernels,
    compare_profiles,
)
from model_profiling.analysis.compare.metrics import layout_caveats
from model_profiling.analysis.compare.program_changes import ProfiledProgram, program_changes, with_kernels
from model_profiling.analysis.process.memory import compare_memory
from model_profiling.analysis.process.startup import compare_startups
from model_profiling.analysis.run.program_pair import ProgramPair
from model_profiling.analysis.run.selection import Side, choose, left_outputs, measured_side, run_and_experiment
from model_profiling.analysis.sme2.kernel_assignment import KernelEvidence, assign_kernels
from model_profiling.analysis.timing.categories import CategoryTable, load_table
from model_profiling.analysis.timing.latency import Comparison
from model_profiling.analysis.timing.latency import compare as compare_latency
from model_profiling.api.calling import caller
from model_profiling.api.records import Records
from model_profiling.api.rows import Changes
from model_profiling.base import files
from model_profiling.base.errors import InputError, KitError
from model_profiling.base.on_progress import OnProgress
from model_profiling.base.units import counted
from model_profiling.formats import etdump
from model_profiling.formats.pte.dtypes import program_dtype
from model_profiling.pipeline.axes import version_labels
from model_profiling.pipeline.group_state import ExperimentOutcome
from model_profiling.pipeline.pipeline import export_record
from model_profiling.pipeline.schedule import CHOSEN, STARTUP_LAUNCHES, Counts
from model_profiling.pipeline.side_by_side import measure, programs_of
from model_profiling.platforms.base import Platform
from model_profiling.runner.trace_file import read_trace
from model_profiling.store.artifacts import KERNEL_TRACE, ExportPaths
from model_profiling.store.run_directory import Phase, RunDirectory

# Says what a metric is of two programs: on which platform, in which scratch folder, and who is told of progress.
Judging = Callable[[Platform, Path, OnProgress], MetricChange]


class Compared(PairComparison, frozen=True, tag="comparison", tag_field="kind"):
    """Two experiments: their latency with its interval, how each category and operator changed, and their metrics."""

    @property
    def sentence(self) -> str:
        """The verdict in words."""
        from model_profiling.report.words import comparison_sentence

        return comparison_sentence(self.told)


class Comparisons(Records[Compared]):
    """What `compare` found, one entry for each pair of experiments."""

    def __init__(self, found: "Iterable[_Found]" = ()) -> None:
        entries = list(found)
        super().__init__(compared for compared, _, _ in entries)
        self._sides = [(before, after) for _, before, after in entries]

    @property
    def pairs(self) -> list[ProgramPair]:
        """The same with the operators, graphs and timelines of both sides, as pages show them."""
        return [ProgramPair(each, *sides) for each, sides in zip(self, self._sides, strict=True)]

    def report(self, output: str | Path, title: str = "") -> Path:
        """Write a page and say where: the verdict, what the difference consists of, modules and both timelines."""
        from model_profiling.report.drawing.drawing_process import DrawingPool
        from model_profiling.report.files.page_files import write_compared

        with DrawingPool() as artist:
            return write_compared(self.pairs, artist, Path(output), title)

    @property
    def latency(self) -> Records[Comparison]:
        """The latency of each pair, as a table."""
        return Records(each.latency for each in self)

    @property
    def changes(self) -> Changes:
        """What the difference of each pair consists of, by line and module; `changes.told` is what can be told."""
        return Changes(each.changes for each in self if each.changes is not None)

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


def compare(before: str, after: str, categories: str | Path | None, counts: Counts, threads: int | None) -> Comparisons:
    """Compare what two resolved paths name; experiments of equal name, if both are whole runs."""
    if counts != CHOSEN or threads is not None:
        raise InputError(
            "runs, launches, budget, threads and startup launches are for two .pte",
            "A run directory is measured already: leave them out.",
        )
    found = [_compared(one, other) for one, other in _pairs(before, after, categories)]
    return Comparisons(_with_models(each, before, after) for each in found)


def _with_models(found: "_Found", before: str, after: str) -> "_Found":
    """Say of a comparison if it is of two models: then no ratio tells of a change."""
    models = [_model_of(side) for side in (before, after)]
    if not all(models) or models[0] == models[1]:
        return found
    said = f"{models[0]} before and {models[1]} now are different models: the ratio tells of no change to either"
    return msgspec.structs.replace(found[0], warnings=[said]), found[1], found[2]


def _model_of(side: str) -> str:
    """Return which model a run or a program is of; '' if nobody knows."""
    if side.endswith(".pte"):
        export = export_record(ExportPaths(Path(side)))
        return export.model if export is not None else ""
    named = run_and_experiment(side)
    if named is None:
        return ""
    model = RunDirectory(named[0]).manifest().model
    return model.export.model if model.export is not None else ""


@dataclass(frozen=True)
class Measuring:
    """Programs to measure now: two of them, or one under two versions of ExecuTorch; and how."""

    before: str
    after: str
    counts: Counts
    threads: int
    # None for both: the installed one.
    executorch: tuple[str | None, str | None] = (None, None)
    labels: tuple[str, str] = ("", "")

    @property
    def of_versions(self) -> bool:
        return self.executorch[0] != self.executorch[1]


def measuring_of(
    before: str, after: str | None, executorch: Sequence[str], counts: Counts, threads: int | None
) -> Measuring | None:
    """Return what to measure now: two programs, or one under two versions of ExecuTorch. None: both sides are measured
    already. What does not go together is refused."""
    if not before.endswith(".pte") or not (after or ".pte").endswith(".pte") or (after is None and not executorch):
        if after is None:
            raise InputError(
                f"{before} is compared with nothing",
                "Give what to compare it with; or two versions of ExecuTorch for a .pte: --executorch 1.5.0,1.5.1.",
            )
        if executorch:
            raise InputError(
                "the ExecuTorch version is chosen for programs that are measured now",
                "A run directory is measured already: leave --executorch out, or give .pte files.",
            )
        return None
    if after is not None:
        if len(executorch) > 1:
            raise InputError(
                "two programs and two versions of ExecuTorch are too many sides", "Give one of the programs."
            )
        both = executorch[0] if executorch else None
        return Measuring(before, after, counts, threads or 1, (both, both))
    if len(executorch) != 2:
        named = f"{counted(len(executorch), 'version')} of ExecuTorch {'is' if len(executorch) == 1 else 'are'}"
        raise InputError(
            f"{before} is compared with nothing: {named} named, not 2",
            "Give a second .pte, or two versions: --executorch 1.5.0,1.5.1.",
        )
    if counts.startup_launches is None:
        counts = replace(counts, startup_launches=STARTUP_LAUNCHES)
    labels, sides = version_labels(executorch), (executorch[0], executorch[1])
    return Measuring(before, before, counts, threads or 1, sides, (labels[sides[0]], labels[sides[1]]))


def metric_of(asked: Measuring | None, metric: Any, data: Any, max_drop: float, lower_is_better: bool) -> Judging:
    """Read the user's metric and its samples; return what says of two .pte by how much it is worse for the second."""
    if asked is None or asked.of_versions:
        raise InputError("a metric is computed of two programs", "Give two .pte.")
    from model_profiling.api.exporting import import_exporter, loading, request_of

    import_exporter(lambda stage: None, caller().loud)
    from model_profiling.export.request import ExportResult
    from model_profiling.tune.metric import Metric, Scorer

    sides = [(ExportPaths(Path(side).resolve()), request_of(Path(side))) for side in (asked.before, asked.after)]
    before, after = (ExportResult(paths, record) for paths, (record, _) in sides)
    load, read = loading(sides[0][1][1], None), Metric(metric, data, None, max_drop, lower_is_better)
    return lambda *where: Scorer(read, load, asked.threads, *where).compared(before, after)


def measure_pair(
    asked: Measuring,
    categories: str | Path | None,
    on_progress: OnProgress,
    platform: Platform,
    judged: Judging | None = None,
) -> Comparisons:
    """Measure two programs, or two versions of ExecuTorch, side by side and compare them."""
    if platform.timing != "measured":
        raise InputError(
            "nothing can be compared by time under an emulator: its times mean nothing",
            "Choose a machine; `run --platform emulator --executorch A,B` compares outputs and kernels.",
        )
    # The dumps of programs that are measured now are read before the directory goes.
    with files.scratch_directory() as scratch:
        table = load_table(Path(categories) if categories else None)
        change = judged(platform, scratch, on_progress) if judged is not None else None
        found = _in_turns(asked, scratch, on_progress, table, platform)
        found = [(msgspec.structs.replace(each[0], metric=change), *each[1:]) for each in found]
        return Comparisons(_with_models(each, asked.before, asked.after) for each in found)


_Found = tuple[Compared, ProfiledProgram, ProfiledProgram]


def _compared(before: Side, after: Side) -> _Found:
    if before.name == after.name:
        before, after = replace(before, name=f"A:{before.name}"), replace(after, name=f"B:{after.name}")
    names, paired = (before.name, after.name), before.paired_with(after)
    latency = compare_latency((names[0], before.turns), (names[1], after.turns), paired)
    caveats = list(dict.fromkeys([*before.caveats, *after.caveats]))
    old, new = before.profiled(), after.profiled()
    accuracy = [side.accuracy for side in (before, after) if side.accuracy is not None]
    compared = Compared(
        msgspec.structs.replace(latency, caveats=caveats),
        compare_profiles(old, new, paired),
        before.metrics,
        after.metrics,
        compare_startups((names[0], before.starts), (names[1], after.starts), paired, latency.contended),
        compare_memory((names[0], before.processes), (names[1], after.processes), paired),
        changes=program_changes(old, new, paired),
        accuracy=accuracy if len(accuracy) == 2 else [],
    )
    return compared, old, new


def _pairs(first: str, second: str, categories: str | Path | None) -> list[tuple[Side, Side]]:
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
    asked: Measuring, scratch: Path, on_progress: OnProgress, table: CategoryTable, platform: Platform
) -> list[_Found]:
    """Measure two sides in turns on one machine: shared machine noise cancels. Language models, by phase."""
    programs, phases = programs_of({"A": Path(asked.before), "B": Path(asked.after)})
    executorch = {name: choice for name, choice in zip("AB", asked.executorch, strict=True) if choice is not None}
    caveats = tuple(layout_caveats(platform.probe().environment))
    found = []
    chosen: list[Phase | None] = [*phases] or [None]
    for phase in chosen:
        home = scratch / (phase.in_names if phase is not None else "whole")
        how = (platform, programs, home, asked.threads, on_progress)
        outcomes = list(measure(*how, True, asked.counts, phase, executorch=executorch).values())
        titles = [
            f"ExecuTorch {label}" if label else o.program.stem for o, label in zip(outcomes, asked.labels, strict=True)
        ]
        names = [f"{title} {phase.label}" if phase is not None else title for title in titles]
        sides = [measured_side(o, name, phase, caveats, table) for o, name in zip(outcomes, names, strict=True)]
        compared, before, after = _compared(*sides)
        if asked.of_versions:
            pair = (compared.latency.before, compared.latency.after)
            outputs, kernels = _outputs(pair, outcomes), _kernels(pair, how, phase, executorch)
            runners = [outcome.runner for outcome in outcomes]
            compared = msgspec.structs.replace(compared, outputs=outputs, kernels=kernels, runners=runners)
            compared = _with_kernels(compared, kernels)
        found.append((compared, before, after))
    return found


def _with_kernels(compared: Compared, kernels: KernelComparison) -> Compared:
    """Return a comparison whose lines say which of their operators call other kernels."""
    changed = {(each.operator, each.instruction): (each.before, each.after) for each in kernels.changed}
    rows = {
        entry.after_row: changed[entry.name, entry.instruction]
        for entry in compared.profile.operators
        if entry.after_row is not None and (entry.name, entry.instruction) in changed
    }
    if compared.changes is None or not rows:
        return compared
    return msgspec.structs.replace(compared, changes=with_kernels(compared.changes, rows))


def _outputs(names: tuple[str, str], outcomes: Sequence[ExperimentOutcome]) -> Agreement | None:
    """Return whether two versions computed the same of one program; None unless both left their outputs."""
    left, right = map(left_outputs, outcomes)
    export = export_record(ExportPaths(outcomes[0].program.pte))
    dtype = export.dtype if export is not None else program_dtype(outcomes[0].program.pte).main
    cost = export.dtype_cost if export is not None else None
    return agreement_of(names[0], left, names[1], right, dtype, cost) if left and right else None


def _kernels(
    names: tuple[str, str], how: tuple[Any, ...], phase: Phase | None, executorch: Mapping[str, str]
) -> KernelComparison:
    """Trace the kernels of both sides, where that can be done."""
    platform, programs, home, threads, on_progress = how
    if platform.trace_note:
        return compare_kernels((names[0], None), (names[1], None), platform.trace_note)
    place = home.with_name(f"{home.name}_kernels")
    evidence: list[KernelEvidence | None] = []
    try:
        traced = measure(
            platform, programs, place, threads, on_progress, True, Counts(1, 1), phase, (), executorch, evidence=True
        )
        for outcome in traced.values():
            dump, trace = outcome.file(".etdump"), outcome.file(KERNEL_TRACE)
            evidence.append(assign_kernels(read_trace(trace), etdump.read(dump)) if trace.is_file() else None)
    except KitError as error:
        # What was measured stands without it.
        return compare_kernels((names[0], None), (names[1], None), error.message)
    return compare_kernels((names[0], evidence[0]), (names[1], evidence[1]))
