"""A program that was just measured side by side with another, as one side of a comparison."""

from pathlib import Path

from model_profiling.analysis.run.operator_origins import ProgramOrigin
from model_profiling.analysis.run.selection import ComparisonSide
from model_profiling.analysis.timing.categories import CategoryTable, load_table
from model_profiling.analysis.timing.latency import preempted_traces
from model_profiling.pipeline.group_state import ExperimentOutcome
from model_profiling.store.run_directory import Phase


def measured_side(
    outcome: ExperimentOutcome,
    name: str,
    phase: Phase | None = None,
    caveats: tuple[str, ...] = (),
    table: CategoryTable | None = None,
    remembered: tuple[Path, str] | None = None,
) -> ComparisonSide:
    """Return what was measured; `remembered` is the analysis of an earlier run of the program, and an experiment in it,
    which know its source lines where no ETRecord lies beside it."""
    analysis, experiment = remembered or (None, "")
    return ComparisonSide(
        name=name,
        phase=phase,
        turns=outcome.timed,
        latency_source="untraced executions",
        etdump=outcome.file(".etdump"),
        session="now",
        traced_launches=outcome.samples.traced_launches,
        table=table if table is not None else load_table(),
        caveats=caveats,
        starts=tuple(outcome.starts),
        processes=tuple(outcome.processes),
        preempted=preempted_traces(outcome.samples, bool(outcome.ready and outcome.ready.stops_clock)),
        origin=ProgramOrigin(
            outcome.program.pte,
            (outcome.ready.method if outcome.ready else "") or "forward",
            phase.tokens_read if phase is not None else None,
            analysis,
            experiment,
        ),
    )
