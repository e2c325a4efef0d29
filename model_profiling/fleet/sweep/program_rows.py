"""The cells of a sweep as rows: one for each program on each target that was measured, with what was emulated of it."""

from collections.abc import Sequence
from typing import NamedTuple

from model_profiling.base.rewrites import NO_REWRITE
from model_profiling.fleet.sweep.result import CellRecord, CellResult, SweepResult
from model_profiling.report.charts.programs import OFF, ON, PREDICTED, Bounded, ProgramLatency


class ProgramRow(NamedTuple):
    """A program on one measured target, in one phase; `cell` is None where it was only emulated. `emulated` has by
    target the cell and what is known of this phase there."""

    model: str
    dtype: str
    rewrites: tuple[str, ...]
    threads: int
    phase: str
    cell: CellRecord | None
    result: CellResult | None
    emulated: dict[str, tuple[CellRecord, CellResult | None]]

    @property
    def state(self) -> str:
        """Why there is no result."""
        return "not measured" if self.cell is None else self.cell.state


def rewrites_of(rewrites: Sequence[str]) -> str:
    return "+".join(rewrites) or NO_REWRITE


def program_rows(result: SweepResult) -> list[ProgramRow]:
    """Return the rows in the order of the sweep."""
    found: dict[tuple[str, str, tuple[str, ...]], list[CellRecord]] = {}
    for each in result.cells:
        found.setdefault((each.model, each.dtype, tuple(each.rewrites)), []).append(each)
    rows = []
    for program, cells in found.items():
        emulated = [each for each in cells if each.timing == "emulated"]
        measured: list[CellRecord | None] = [each for each in cells if each.timing != "emulated"]
        phases = list(dict.fromkeys(of.phase for each in cells for of in each.results)) or [""]
        for cell in measured or [None]:
            results = {of.phase: of for of in cell.results} if cell is not None else {}
            threads = cell.threads if cell is not None else emulated[0].threads
            for phase in list(results) or phases:
                beside = {each.target: (each, _of_phase(each, phase)) for each in emulated}
                rows.append(ProgramRow(*program, threads, phase, cell, results.get(phase), beside))
    return rows


def _of_phase(cell: CellRecord, phase: str) -> CellResult | None:
    return next((each for each in cell.results if each.phase == phase), None)


def panels(result: SweepResult) -> dict[str, list[ProgramLatency]]:
    """Return what the picture shows: by measured target its programs."""
    rows = [row for row in program_rows(result) if row.cell is not None]
    threads = any(row.threads != 1 for row in rows)
    found: dict[str, list[ProgramLatency]] = {}
    for row in rows:
        assert row.cell is not None
        variant = [row.dtype, *row.rewrites, *([f"t{row.threads}"] if threads else []), row.phase]
        latencies = _latencies(row.result) if row.result is not None else {}
        found.setdefault(row.cell.target, []).append(
            ProgramLatency(
                row.model,
                " ".join(filter(None, variant)),
                latencies,
                "" if latencies else row.state if row.result is None else "no latency",
            )
        )
    return found


def _latencies(found: CellResult) -> dict[str, Bounded]:
    """Return what is known of a program, each with its whisker: the MAD of a measurement, the range of a prediction."""
    known = {}
    for side, ms, percent in ((OFF, found.off_ms, found.off_mad_percent), (ON, found.median_ms, found.mad_percent)):
        if ms:
            reach = ms * min(percent or 0.0, 99.0) / 100
            known[side] = Bounded(ms, ms - reach, ms + reach)
    predicted = found.predicted
    if predicted is not None and predicted.median_ms:
        ms, before = predicted.median_ms, predicted.median_ms * predicted.speedup
        known[PREDICTED] = Bounded(
            ms, before / (predicted.high or predicted.speedup), before / (predicted.low or predicted.speedup)
        )
    return known
