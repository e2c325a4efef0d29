"""analysis_summary.json: everything that can be said of a run directory, or of a dump from anywhere."""

from dataclasses import dataclass
from pathlib import Path

import msgspec

from model_profiling import etdump
from model_profiling.analysis.advice import Evidence, Finding, advise
from model_profiling.analysis.breakdown import Breakdown, break_down
from model_profiling.analysis.categories import UNKNOWN, CategoryTable
from model_profiling.analysis.comparison import ProfileComparison, compare_profiles
from model_profiling.analysis.coverage import Coverage, coverage
from model_profiling.analysis.graph import ModelGraph, read_graph
from model_profiling.analysis.kernels import KernelEvidence, assign_kernels
from model_profiling.analysis.metrics import Metrics, measure, partial_note
from model_profiling.analysis.movement import DataMovement, data_movement
from model_profiling.analysis.profile import Profile, profiles
from model_profiling.analysis.sources import read_sources
from model_profiling.artifacts import ExportRecord
from model_profiling.run_directory import KERNEL_TRACE, Manifest, RunDirectory, experiment_file
from model_profiling.runner.trace_file import read_trace

SCHEMA = 1
_KERNELS_TRACED = "a kernel trace lies beside this ETDump: its operators have no times"
_EMULATED = "run under an emulator: times mean nothing and are left out; operators, kernels and outputs are real"


class ExperimentAnalysis(msgspec.Struct, frozen=True):
    """One experiment, or one dump: where its time goes and what to do about it."""

    etdump: str
    breakdown: Breakdown
    data_movement: DataMovement
    advice: list[Finding]
    notes: list[str]
    kernels: KernelEvidence | None = None
    coverage: Coverage | None = None


class AnalysisSummary(msgspec.Struct, frozen=True):
    model: str
    platform: str
    dtype: str
    experiments: dict[str, ExperimentAnalysis]
    comparisons: list[ProfileComparison]
    metrics: Metrics | None
    notes: list[str]
    # "measured", or "emulated": then times tell nothing, and only operators and kernels count.
    timing: str = "measured"
    schema: int = SCHEMA


@dataclass(frozen=True)
class Analysed:
    """A summary, and the profiles behind it for whoever writes every execution down."""

    summary: AnalysisSummary
    profiles: dict[str, Profile]


def analyse_run(directory: RunDirectory, manifest: Manifest, table: CategoryTable) -> Analysed:
    """Analyse every finished experiment of a run and every pair that is to be compared."""
    sources = read_sources(Path(manifest.model.path))
    model = manifest.model.file()
    loaded: dict[str, tuple[Path, Profile, list[str]]] = {}
    for name, record in manifest.experiments.items():
        if record.status == "ok":
            file = experiment_file(manifest.model.stem, name, record.threads, ".etdump")
            profile, notes = _longest_profile(directory.experiment(name) / file, table)
            launches = directory.samples(manifest, name).traced_launches
            loaded[name] = (directory.experiment(name) / file, profile.with_launches(launches), notes)
    timed = {name for name in loaded if has_times(manifest, name)}
    for name in loaded.keys() - timed:
        path, profile, notes = loaded[name]
        loaded[name] = (path, profile.without_times(), notes)
    sides = {
        name: (name, profile, break_down(profile, sources.lines(profile.instances)))
        for name, (_, profile, _) in loaded.items()
    }
    pairs = [(before, after) for before, after in manifest.compare_pairs if before in timed and after in timed]
    comparisons = [
        compare_profiles(sides[b], sides[a], manifest.experiments[b].session == manifest.experiments[a].session)
        for b, a in pairs
    ]
    compared = {comparison.after: comparison for comparison in comparisons}
    experiments = {
        name: _with_kernels(
            _experiment(
                path,
                sides[name][2],
                compared.get(name),
                manifest.model.export,
                notes,
                read_graph(profile.instances, model) if model is not None else None,
            ),
            manifest,
            name,
        )
        for name, (path, profile, notes) in loaded.items()
    }
    failed = [f"{name} failed: {r.failure}" for name, r in manifest.experiments.items() if r.status != "ok"]
    summary = AnalysisSummary(
        model=manifest.model.stem,
        platform=manifest.platform,
        dtype=manifest.model.dtype,
        experiments=experiments,
        comparisons=comparisons,
        metrics=measure(directory, manifest),
        notes=[
            *([sources.note] if sources.note else []),
            *([] if manifest.timing == "measured" else [_EMULATED]),
            *(f"{name}: {partial_note(r)}" for name, r in manifest.experiments.items() if r.partial),
            *failed,
        ],
        timing=manifest.timing,
    )
    return Analysed(summary, {name: profile for name, (_, profile, _) in loaded.items()})


def has_times(manifest: Manifest, name: str) -> bool:
    """Whether an experiment's traced times mean anything: emulated ones do not, nor those with a kernel trace."""
    return manifest.timing == "measured" and manifest.experiments[name].mode != "trace"


def _with_kernels(experiment: ExperimentAnalysis, manifest: Manifest, name: str) -> ExperimentAnalysis:
    """Add what a trace run tells: the kernels of each operator, and how far SME2 is used."""
    record = manifest.experiments[name]
    if record.mode != "trace" or record.features is None or record.features.arch != "aarch64":
        return experiment
    trace = Path(experiment.etdump).with_name(experiment_file(manifest.model.stem, name, record.threads, KERNEL_TRACE))
    evidence = assign_kernels(read_trace(trace), etdump.read(Path(experiment.etdump))) if trace.is_file() else None
    covered = coverage(experiment.breakdown.instances, evidence, record.features.active, Path(manifest.model.path))
    return msgspec.structs.replace(experiment, kernels=evidence, coverage=covered)


def analyse_dumps(paths: list[Path], table: CategoryTable) -> Analysed:
    """Analyse dumps that come without a run directory; latency is then not known, only traced time."""
    loaded = {}
    for path in paths:
        name = path.stem if path.stem not in loaded else str(path)
        profile, notes = _longest_profile(path, table)
        if path.with_name(path.stem + KERNEL_TRACE).is_file():
            profile, notes = profile.without_times(), [*notes, _KERNELS_TRACED]
        loaded[name] = (path, profile, notes)
    experiments = {
        name: _experiment(path, break_down(profile), None, None, notes)
        for name, (path, profile, notes) in loaded.items()
    }
    note = "bare ETDumps: times are traced, and nothing is known of the model or the machine"
    summary = AnalysisSummary("", "", "", experiments, [], None, [note])
    return Analysed(summary, {name: profile for name, (_, profile, _) in loaded.items()})


def _longest_profile(path: Path, table: CategoryTable) -> tuple[Profile, list[str]]:
    found = profiles(etdump.read(path), table)
    if len(found) == 1:
        return found[0], []
    others = ", ".join(
        f"{profile.executions} executions of {profile.execute.sum() / 1e6:.3f} ms in all" for profile in found[1:]
    )
    return found[0], [f"the dump holds {len(found)} methods; shown is the one that took longest, left out: {others}"]


def analysed_profile(profile: Profile) -> ExperimentAnalysis:
    """The analysis of a profile of which nothing else is known."""
    return _experiment(Path(), break_down(profile), None, None, [])


def _experiment(
    path: Path,
    breakdown: Breakdown,
    comparison: ProfileComparison | None,
    export: ExportRecord | None,
    notes: list[str],
    graph: ModelGraph | None = None,
) -> ExperimentAnalysis:
    movement = data_movement(breakdown, graph)
    advice = advise(Evidence(breakdown, movement, comparison, export, graph))
    return ExperimentAnalysis(str(path), breakdown, movement, advice, [*notes, *_unknown_operators(breakdown)])


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
