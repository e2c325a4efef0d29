"""The graphs of a run: one for each experiment that a reader wants to look at, off and on of a comparison."""

from collections.abc import Mapping
from pathlib import Path

from model_profiling.analysis.compare.comparison import Change, ProfileComparison
from model_profiling.analysis.graph.graph import ModelGraph, why_unreadable
from model_profiling.analysis.run.operator_graph import KernelUse, OperatorFacts, OperatorGraph, graph_of
from model_profiling.analysis.run.run_data import RunData
from model_profiling.analysis.run.summary import has_times, model_graph
from model_profiling.analysis.sme2.coverage import Coverage
from model_profiling.analysis.sme2.kernel_assignment import ELIGIBLE
from model_profiling.analysis.timing.breakdown import InstanceTime
from model_profiling.store.run_directory import ExperimentRecord

_IN_ORDER = "what feeds what is unknown, and operators are in execution order"
_BARE = f"an ETDump alone does not tell its model: {_IN_ORDER}"
_GONE = f"the .pte is gone, or has changed since: {_IN_ORDER}"
_BRANCHES = f"the .pte's data flow could not be followed (it branches): {_IN_ORDER}"
_NOT_PLACED = "operators could not be matched with the .pte's graph: dashed edges give their execution order only"
_NOT_TRACED = "there is no kernel trace of this experiment"
_OTHER_MODEL = (
    "the emulated run has no kernel trace of these CONV and GEMM operators with SME2 on: nothing is said of it"
)
_OFF = "SME2 is off or absent"


def graph_experiments(run: RunData) -> list[str]:
    """Return the experiments to show: what a reader wants faster first, then what it is compared with."""
    experiments = run.summary.experiments
    if run.path.is_file() or not run.measured:
        covered = {name: (e.coverage.on_sme2 or 0) if e.coverage else 0 for name, e in experiments.items()}
        return sorted(experiments, key=lambda name: -covered[name])
    compared = [c for c in run.summary.comparisons if not run.repeats(c.before, c.after)]
    return list(dict.fromkeys([*run.of_interest, *(c.before for c in compared)]))


def operator_graph(run: RunData, experiment: str) -> OperatorGraph:
    """Return one experiment's graph, with all that the run knows of each operator."""
    analysis = run.summary.experiments[experiment]
    rows, bare = analysis.breakdown.instances, run.path.is_file()
    timed = analysis.breakdown.execute_ms > 0 and (bare or has_times(run.manifest, experiment))
    program = None if bare else run.manifest.model.file()
    model = model_graph(run.manifest, experiment, run.profiles[experiment], program) if program is not None else None
    comparison = next((c for c in run.summary.comparisons if experiment in (c.before, c.after)), None)
    emulated, of_emulated = _emulated(run, experiment)
    known = OperatorFacts(
        graph=model,
        roofs=analysis.roofline.by_row if analysis.roofline is not None else {},
        changes=_changes(comparison, experiment),
        kernels={} if bare else _kernels(run, experiment),
        emulated=emulated,
        sqnr=run.sqnr(experiment),
    )
    nodes, edges = graph_of(rows, known, timed)
    return OperatorGraph(
        model=run.summary.model or run.path.stem,
        experiment=experiment,
        title=run.label(experiment),
        execute_ms=analysis.breakdown.execute_ms if timed else None,
        nodes=nodes,
        edges=edges,
        before=comparison.before if comparison else "",
        after=comparison.after if comparison else "",
        notes=[*why_in_order(model, rows, program, bare), *of_emulated],
    )


def _unread(program: Path) -> str:
    """Return why the data flow of a program that is there is not known."""
    why = why_unreadable(program)
    return f"{why}: {_IN_ORDER}" if why else _BRANCHES


def why_in_order(model: ModelGraph | None, rows: list[InstanceTime], program: Path | None, bare: bool) -> list[str]:
    """Return what could not be told of the data flow; `bare` means that there is a dump and nothing else."""
    if model is None:
        return [_BARE if bare else _GONE if program is None else _unread(program)]
    lost = sum(entry.where != "runtime" and row not in model.steps for row, entry in enumerate(rows))
    return [f"{lost} of {sum(entry.where != 'runtime' for entry in rows)} {_NOT_PLACED}"] if lost else []


def _changes(comparison: ProfileComparison | None, experiment: str) -> dict[int, Change]:
    if comparison is None:
        return {}
    found = {}
    for operator in comparison.operators:
        row = operator.after_row if experiment == comparison.after else operator.before_row
        if row is not None:
            found[row] = operator.change
    return found


def _kernels(run: RunData, experiment: str) -> dict[int, KernelUse]:
    """Return what each CONV and GEMM operator ran on, by a kernel trace of this experiment or one like it."""
    record = run.manifest.experiments[experiment]
    rows = _eligible(run, experiment)
    for other, analysis in run.summary.experiments.items():
        if analysis.coverage is not None and (other == experiment or _alike(record, run.manifest.experiments[other])):
            found = _of_coverage(rows, analysis.coverage)
            if found:
                return found
    if record.features is not None and "sme2" not in record.features.active:
        return dict.fromkeys(rows, KernelUse(False, why_not=_OFF))
    return dict.fromkeys(rows, KernelUse(None, why_not=_NOT_TRACED))


def _alike(one: ExperimentRecord, other: ExperimentRecord) -> bool:
    """Return whether two experiments choose the same kernels: all but how they were observed is the same."""
    active = [set(x.features.active) if x.features is not None else None for x in (one, other)]
    same = one.phase_kind == other.phase_kind and one.method == other.method
    return same and active[0] is not None and active[0] == active[1]


def _emulated(run: RunData, experiment: str) -> tuple[dict[int, KernelUse], list[str]]:
    """Return what each operator runs on in the emulated run that was given, with SME2 on; and what to know of that."""
    if run.emulated is None:
        return {}, []
    ours, theirs = run.manifest.model, run.emulated.manifest.model
    kind = run.manifest.experiments[experiment].phase_kind
    for name, record in run.emulated.manifest.experiments.items():
        analysis = run.emulated.summary.experiments.get(name)
        on = record.features is not None and "sme2" in record.features.active
        if analysis is not None and analysis.coverage is not None and on and record.phase_kind == kind:
            # Kernels depend on the dtype, which the order of operators does not tell.
            same = _of_coverage(_eligible(run, experiment), analysis.coverage) if ours.dtype == theirs.dtype else {}
            other = f"kernels with SME2 are of {theirs.stem}: another .pte with the same operators"
            return (same, [other] if ours.sha256 != theirs.sha256 else []) if same else ({}, [_OTHER_MODEL])
    return {}, [_OTHER_MODEL]


def _eligible(run: RunData, experiment: str) -> dict[int, InstanceTime]:
    rows = run.summary.experiments[experiment].breakdown.instances
    return {row: entry for row, entry in enumerate(rows) if entry.category in ELIGIBLE}


def _of_coverage(rows: Mapping[int, InstanceTime], coverage: Coverage) -> dict[int, KernelUse]:
    """Return operators by row; nothing if those of the trace are others, or in another order."""
    ours = [(entry.instruction, entry.category, entry.kind) for entry in rows.values()]
    if ours != [(x.instruction, x.category, x.kind) for x in coverage.operators]:
        return {}
    return {
        row: KernelUse(
            None if x.level == "unknown" else x.level == "SME2", x.level, [c.kernel for c in x.kernels], x.why_not
        )
        for row, x in zip(rows, coverage.operators, strict=True)
    }
