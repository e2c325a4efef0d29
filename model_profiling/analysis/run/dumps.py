"""What can be said of ETDumps alone, and the shape of an analysis. Loads little: a dump is analysed in a moment."""

from pathlib import Path
from typing import TYPE_CHECKING

import msgspec

from model_profiling.analysis.advice.rules import Evidence, Finding, advise
from model_profiling.analysis.compare.comparison import ProfileComparison
from model_profiling.analysis.compare.kernel_changes import KernelComparison
from model_profiling.analysis.compare.metrics import ExperimentMetrics, Metrics
from model_profiling.analysis.compare.operator_scaling import CurveOperators
from model_profiling.analysis.compare.program_changes import ProgramChanges
from model_profiling.analysis.movement.movement import DataMovement, data_movement
from model_profiling.analysis.process.program_memory import ProgramMemory
from model_profiling.analysis.roofs.roofline import Roofline
from model_profiling.analysis.sme2.coverage import Coverage
from model_profiling.analysis.sme2.kernel_assignment import KernelEvidence
from model_profiling.analysis.sme2.sme2_answer import Sme2Answer
from model_profiling.analysis.timing.breakdown import Breakdown, break_down
from model_profiling.analysis.timing.categories import UNKNOWN, CategoryTable
from model_profiling.analysis.timing.mixed_sizes import describe_sizes, split_sizes
from model_profiling.analysis.timing.profile import Profile, profiles
from model_profiling.formats import etdump
from model_profiling.store.artifacts import KERNEL_TRACE, ExportRecord
from model_profiling.store.run_directory import Timing

if TYPE_CHECKING:
    from collections.abc import Sequence

    from model_profiling.analysis.compare.operator_scaling import ThreadEvidence
    from model_profiling.analysis.graph.graph import ModelGraph
    from model_profiling.analysis.llm.phase_metrics import DepthCost

SCHEMA = 1
_MOST_PARTS = 8
_KERNELS_TRACED = "this ETDump is from a kernel trace run: its operator times are not valid"


class ExperimentAnalysis(msgspec.Struct, frozen=True):
    """One experiment, or one dump: where its time goes and what to do about it."""

    etdump: str
    breakdown: Breakdown
    data_movement: DataMovement
    advice: list[Finding]
    notes: list[str]
    kernels: KernelEvidence | None = None
    coverage: Coverage | None = None
    # None: no roofs of this CPU are known for it.
    roofline: Roofline | None = None
    # Of a language model: milliseconds by kind of layer (attention, MLP, head and so on), adding up to the whole.
    layer_kinds: dict[str, float] = {}


class AnalysisSummary(msgspec.Struct, frozen=True, tag="analysis_summary", tag_field="kind"):
    """analysis_summary.json. `sources` is set in the file only: the state of the run that it was made from."""

    model: str
    platform: str
    dtype: str
    experiments: dict[str, ExperimentAnalysis]
    comparisons: list[ProfileComparison]
    metrics: Metrics | None
    notes: list[str]
    # "measured", or "emulated": then times tell nothing, and only operators and kernels count.
    timing: Timing = "measured"
    # The operators of each curve of `metrics.scaling`, as far as they were traced.
    operator_scaling: list[CurveOperators] = []
    # Traced pairs that ran with different versions of ExecuTorch: which operators call other kernels.
    kernel_comparisons: list[KernelComparison] = []
    # What SME2 does for the model, or would do, with the costliest operators: set in the file, and where it is printed.
    sme2: list[Sme2Answer] = []
    # What the difference of each of `comparisons` consists of, by module and line; set where `sme2` is.
    changes: list[ProgramChanges] = []
    schema: int = SCHEMA
    sources: str | msgspec.UnsetType = msgspec.UNSET


class DumpAnalysis(msgspec.Struct, frozen=True):
    """A summary, and the profiles behind it for whoever writes every execution down."""

    summary: AnalysisSummary
    profiles: dict[str, Profile]


def analyse_dumps(paths: list[Path], table: CategoryTable) -> DumpAnalysis:
    """Analyse dumps that come without a run directory; latency is then not known, only traced time."""
    loaded = {}
    for path in paths:
        name = path.stem if path.stem not in loaded else str(path)
        parts, notes = _parts(path, table)
        if path.with_name(path.stem + KERNEL_TRACE).is_file():
            parts, notes = [part.without_times() for part in parts], [*notes, _KERNELS_TRACED]
        for number, part in enumerate(parts, 1):
            loaded[name if len(parts) == 1 else f"{name}#{number}"] = (path, part, notes)
    experiments = {
        name: describe(path, break_down(profile), None, None, notes) for name, (path, profile, notes) in loaded.items()
    }
    note = "ETDumps without a run directory: times include tracer overhead; model and machine are unknown"
    summary = AnalysisSummary("", "", "", experiments, [], None, [note])
    return DumpAnalysis(summary, {name: profile for name, (_, profile, _) in loaded.items()})


def _parts(path: Path, table: CategoryTable) -> tuple[list[Profile], list[str]]:
    """Return what a dump holds, each method apart, and of a language model its phases; the longest first."""
    methods = profiles(etdump.read(path), table)
    parts = [part for method in methods[:_MOST_PARTS] for part in split_sizes(method)]
    notes = []
    if len(parts) > 1:
        several = "several methods" if len(methods) > 1 else "several sizes, such as prefill and decode"
        notes.append(f"executions of {several}, shown apart: {describe_sizes(parts)}")
    if len(methods) > _MOST_PARTS:
        notes.append(f"only the {_MOST_PARTS} longest of {len(methods)} methods are shown")
    return parts, notes


def longest_profile(path: Path, table: CategoryTable) -> tuple[Profile, list[str]]:
    found = profiles(etdump.read(path), table)
    if len(found) == 1:
        return found[0], []
    others = ", ".join(
        f"{profile.executions} executions of {profile.execute.sum() / 1e6:.3f} ms in all" for profile in found[1:]
    )
    return found[0], [f"the ETDump has {len(found)} methods; only the longest one is shown, not: {others}"]


def analysed_profile(profile: Profile) -> ExperimentAnalysis:
    """Return the analysis of a profile of which nothing else is known."""
    return describe(Path(), break_down(profile), None, None, [])


def describe(
    path: Path,
    breakdown: Breakdown,
    comparison: ProfileComparison | None,
    export: ExportRecord | None,
    notes: list[str],
    graph: "ModelGraph | None" = None,
    roofline: Roofline | None = None,
    measured: ExperimentMetrics | None = None,
    program: ProgramMemory | None = None,
    threads: "ThreadEvidence | None" = None,
    depths: "Sequence[DepthCost]" = (),
) -> ExperimentAnalysis:
    movement = data_movement(breakdown, graph)
    evidence = Evidence(
        breakdown,
        movement,
        comparison,
        export,
        graph,
        roofline,
        threads=threads,
        measured=measured,
        program=program,
        depths=list(depths),
    )
    advice = advise(evidence)
    notes = [*notes, *_unknown_operators(breakdown)]
    return ExperimentAnalysis(str(path), breakdown, movement, advice, notes, roofline=roofline)


def _unknown_operators(breakdown: Breakdown) -> list[str]:
    """Say which operators are in Other only because nobody said what they are."""
    found = [entry for entry in breakdown.operators if entry.kind == UNKNOWN]
    if not found:
        return []
    names = ", ".join(entry.operator for entry in found[:3]) + (f" and {len(found) - 3} more" if len(found) > 3 else "")
    share = sum(entry.share for entry in found)
    return [
        f"no category rule matches {names} ({share:.1%} of the time, counted as Other); "
        "`analyze --categories FILE` can name a category"
    ]
