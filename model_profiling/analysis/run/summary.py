"""analysis_summary.json: everything that can be said of a run directory."""

from pathlib import Path

import msgspec

from model_profiling.analysis.accuracy.agreement import wrong_outputs
from model_profiling.analysis.advice.rules import Evidence
from model_profiling.analysis.compare.comparison import (
    KernelComparison,
    ProfileComparison,
    compare_kernels,
    compare_profiles,
)
from model_profiling.analysis.compare.metrics import compute_metrics, partial_note
from model_profiling.analysis.compare.operator_scaling import CurveOperators, ThreadEvidence, operator_scaling
from model_profiling.analysis.compare.program_changes import ProfiledProgram
from model_profiling.analysis.graph.graph import ModelGraph, read_graph, why_unreadable
from model_profiling.analysis.graph.operator_work import works
from model_profiling.analysis.graph.sources import read_sources
from model_profiling.analysis.llm.phases import DepthCost, layer_kinds
from model_profiling.analysis.process.scaling import Scaling
from model_profiling.analysis.roofs.roofline import Roofline, roofline
from model_profiling.analysis.roofs.run_roofs import RunRoofs
from model_profiling.analysis.run import dumps
from model_profiling.analysis.run.experiment_labels import other_executorch, switched_features
from model_profiling.analysis.sme2.coverage import coverage
from model_profiling.analysis.sme2.kernel_assignment import assign_kernels
from model_profiling.analysis.timing.breakdown import Breakdown, break_down
from model_profiling.analysis.timing.categories import CategoryTable
from model_profiling.analysis.timing.latency import preempted_traces
from model_profiling.analysis.timing.profile import Profile
from model_profiling.formats import etdump
from model_profiling.runner.features import feature_label
from model_profiling.runner.trace_file import read_trace
from model_profiling.store.artifacts import KERNEL_TRACE
from model_profiling.store.run_directory import Manifest, RunDirectory, experiment_file

_NO_ROOFS = RunRoofs()
_EMULATED = "run under an emulator: times are not valid and are left out; operators, kernels and outputs are real"


def analyse_run(
    directory: RunDirectory, manifest: Manifest, table: CategoryTable, roofs: RunRoofs = _NO_ROOFS
) -> dumps.DumpAnalysis:
    """Analyse every finished experiment of a run and every pair that is to be compared."""
    sources, metrics = read_sources(Path(manifest.model.path)), compute_metrics(directory, manifest)
    model = manifest.model.file()
    done = {name: record for name, record in manifest.experiments.items() if record.status == "ok"}
    graphs: dict[str, ModelGraph | None] = {}
    dumped: dict[str, tuple[Path, list[str]]] = {}
    sides: dict[str, ProfiledProgram] = {}
    for name, record in done.items():
        timed, samples = has_times(manifest, name), directory.samples(manifest, name)
        path = directory.experiment(name) / experiment_file(manifest.model.stem, name, record.threads, ".etdump")
        profile, notes = dumps.longest_profile(path, table)
        profile = profile.with_launches(samples.traced_launches)
        profile = profile if timed else profile.without_times()
        graphs[name], dumped[name] = model_graph(manifest, name, profile, model), (path, notes)
        breakdown = break_down(
            profile,
            sources.lines(profile.instances, record.method or "forward"),
            works(profile.instances, graphs[name]),
            metrics.experiments[name].traced_ms if timed else None,
            preempted_traces(samples, record.stops_clock),
        )
        sides[name] = ProfiledProgram(name, profile, breakdown, sources.note)
    with_times = {name: side for name, side in sides.items() if has_times(manifest, name)}
    pairs = [pair for pair in manifest.compare_pairs if with_times.keys() >= {*pair}]
    comparisons = [_compared(manifest, with_times[before], with_times[after]) for before, after in pairs]
    compared = {comparison.after: comparison for comparison in comparisons}
    curves, cpus = (metrics.scaling.curves, metrics.scaling.cpus) if metrics.scaling is not None else ([], None)
    scaled = (operator_scaling(curve, cpus, manifest, with_times) for curve in curves)
    operators = [found for found in scaled if found is not None]
    experiments = {}
    for name, side in sides.items():
        known = Evidence(
            side.breakdown,
            compared.get(name),
            manifest.model.export,
            graphs[name],
            _roofline(side.breakdown, manifest, name, roofs),
            _threads(name, metrics.scaling, operators, manifest),
            measured=metrics.experiments[name],
            program=metrics.program,
            depths=_depths(name, manifest, with_times, graphs),
        )
        experiments[name] = _in_detail(dumps.describe(*dumped[name], known), manifest, name, graphs[name])
    if wrong_outputs(manifest.model.export, metrics.agreements):
        experiments = {name: msgspec.structs.replace(each, advice=[]) for name, each in experiments.items()}
    summary = dumps.AnalysisSummary(
        model=manifest.model.stem,
        platform=manifest.platform,
        dtype=manifest.model.dtype,
        experiments=experiments,
        comparisons=comparisons,
        metrics=metrics,
        notes=[
            *([sources.note] if sources.note else []),
            *([f"{unread}: its graph is unknown"] if (unread := why_unreadable(model)) else []),
            *([] if manifest.timing == "measured" else [_EMULATED]),
            *(f"{name}: {partial_note(r)}" for name, r in manifest.experiments.items() if r.partial),
            *(f"{name} failed: {r.failure}" for name, r in manifest.experiments.items() if r.status != "ok"),
            *roofs.notes,
        ],
        timing=manifest.timing,
        operator_scaling=operators,
        kernel_comparisons=_kernel_comparisons(manifest, experiments),
    )
    return dumps.DumpAnalysis(summary, {name: side.profile for name, side in sides.items()}, sources.note)


def _compared(manifest: Manifest, before: ProfiledProgram, after: ProfiledProgram) -> ProfileComparison:
    one, other = (manifest.experiments[side.name] for side in (before, after))
    found = compare_profiles(before, after, one.session == other.session)
    # With another ExecuTorch nothing was switched on that could leave an operator as it was.
    return msgspec.structs.replace(found, untouched=[]) if other_executorch(manifest, one.name, other.name) else found


def _kernel_comparisons(manifest: Manifest, experiments: dict[str, dumps.ExperimentAnalysis]) -> list[KernelComparison]:
    """Return which operators call other kernels with another ExecuTorch, of the pairs whose kernels were traced."""
    return [
        compare_kernels((before, experiments[before].kernels), (after, experiments[after].kernels))
        for before, after in manifest.compare_pairs
        if {before, after} <= experiments.keys()
        and other_executorch(manifest, before, after)
        and all(manifest.experiments[name].mode == "trace" for name in (before, after))
    ]


def model_graph(manifest: Manifest, name: str, profile: Profile, model: Path | None) -> ModelGraph | None:
    """Return the graph of the .pte that ran, with an experiment's operators; None without such a file."""
    record = manifest.experiments[name]
    if model is None:
        return None
    return read_graph(profile.instances, model, record.method or "forward", record.tokens_read)


def _depths(
    name: str, manifest: Manifest, sides: dict[str, ProfiledProgram], graphs: dict[str, ModelGraph | None]
) -> list[DepthCost]:
    """Decode at several depths: the experiments that differ from this one in nothing else."""
    record = manifest.experiments[name]
    if record.phase_kind != "decode":
        return []
    found = []
    for other, side in sides.items():
        its = manifest.experiments[other]
        alike, mine = (
            (r.threads, r.disable_features, r.method, r.phase_kind, r.runner.executorch_name) for r in (its, record)
        )
        if alike == mine and its.phase is not None:
            kinds = layer_kinds(side.breakdown, graphs[other])
            attention = kinds.get("attention", 0.0) + kinds.get("cache", 0.0)
            found.append(DepthCost(its.phase.depth, attention, side.breakdown.execute_ms))
    return found


def _roofline(breakdown: Breakdown, manifest: Manifest, name: str, roofs: RunRoofs) -> Roofline | None:
    rates = roofs.rates(manifest, name)
    if rates is None or roofs.used is None or not breakdown.execute_ms:
        return None
    found = roofline(breakdown, rates, roofs.used.cpu, roofs.used.created)
    # Without the .pte nobody knows what operators had to do.
    return found if found.operators else None


def _threads(
    name: str, found: Scaling | None, operators: list[CurveOperators], manifest: Manifest
) -> ThreadEvidence | None:
    """Return an experiment among those that differ from it only in their threads; None if there are none."""
    curve = found.curve_of(name) if found is not None else None
    if found is None or curve is None:
        return None
    before = next((switch.before for switch in found.switches if switch.after == name), "")
    point = next(point for point in curve.points if point.experiment == name)
    mine = next((entry for entry in operators if name in entry.experiments), None)
    switched = switched_features(manifest, before, name)
    return ThreadEvidence(point, curve, found, mine, switched, " and ".join(map(feature_label, switched)))


def has_times(manifest: Manifest, name: str) -> bool:
    """Return whether traced times mean anything: not if emulated, nor with a kernel trace."""
    return manifest.timing == "measured" and manifest.experiments[name].mode != "trace"


def _in_detail(
    experiment: dumps.ExperimentAnalysis, manifest: Manifest, name: str, graph: ModelGraph | None
) -> dumps.ExperimentAnalysis:
    """Add what a trace run tells, the kernels of each operator and how far SME2 is used; and what a phase of a language
    model spends on each kind of layer, where it has times."""
    record = manifest.experiments[name]
    if record.phase is not None and has_times(manifest, name):
        kinds = {str(kind): ms for kind, ms in layer_kinds(experiment.breakdown, graph).items()}
        return msgspec.structs.replace(experiment, layer_kinds=kinds)
    if record.mode != "trace" or record.features is None or record.features.arch != "aarch64":
        return experiment
    trace = Path(experiment.etdump).with_name(experiment_file(manifest.model.stem, name, record.threads, KERNEL_TRACE))
    evidence = assign_kernels(read_trace(trace), etdump.read(Path(experiment.etdump))) if trace.is_file() else None
    instances, place = experiment.breakdown.instances, (Path(manifest.model.path), record.method or "forward")
    covered = coverage(instances, evidence, record.features.active, *place, record.tokens_read)
    return msgspec.structs.replace(experiment, kernels=evidence, coverage=covered)
