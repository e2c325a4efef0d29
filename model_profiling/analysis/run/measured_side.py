"""A program that was just measured side by side with another, as one side of a comparison."""

from pathlib import Path
from typing import Any

import numpy.typing as npt

from model_profiling.analysis.accuracy.agreement import against_eager, read_outputs
from model_profiling.analysis.run.operator_origins import ProgramOrigin
from model_profiling.analysis.run.selection import ComparisonSide
from model_profiling.analysis.timing.categories import CategoryTable, load_table
from model_profiling.analysis.timing.latency import preempted_traces
from model_profiling.pipeline.group_state import ExperimentOutcome
from model_profiling.pipeline.pipeline import export_record
from model_profiling.store.artifacts import ExportPaths
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
    paths = ExportPaths(outcome.program.pte)
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
        accuracy=against_eager(name, left_outputs(outcome), paths.pte.parent, export_record(paths), phase),
    )


def left_outputs(outcome: ExperimentOutcome) -> list[npt.NDArray[Any]]:
    """Return what a program computed; empty if it left nothing."""
    return read_outputs(outcome.file("_output"), outcome.done.outputs if outcome.done else [])
