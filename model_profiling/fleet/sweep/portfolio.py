"""The portfolio page: a picture of all latencies, a row for each program with what was measured and predicted of it."""

from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import NamedTuple

from model_profiling.analysis.compare.comparison import MetricChange
from model_profiling.base.rewrites import NO_REWRITE
from model_profiling.base.units import counted
from model_profiling.fleet.sweep.result import (
    CellRecord,
    CellResult,
    PreviousComparison,
    RuntimeResult,
    Speedup,
    SweepResult,
)
from model_profiling.report import blocks, numbers
from model_profiling.report.change_words import largest_sentence
from model_profiling.report.charts import MOST_ROWS
from model_profiling.report.charts.frame import Spec
from model_profiling.report.charts.programs import OFF, ON, PREDICTED, Bounded, ProgramLatency, is_logarithmic, programs
from model_profiling.report.drawing.drawing_process import DrawingPool
from model_profiling.report.drawing.theme import LIGHT
from model_profiling.report.files.page_files import Drawings, write_document
from model_profiling.report.words import drop_text


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

    @property
    def metric(self) -> MetricChange | None:
        """What the user's metric is of the program, wherever it ran."""
        cells = [self.cell, *(cell for cell, _ in self.emulated.values())]
        return next((cell.metric for cell in cells if cell is not None and cell.metric is not None), None)


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
                seen = [next((of for of in each.results if of.phase == phase), None) for each in emulated]
                beside = {each.target: (each, of) for each, of in zip(emulated, seen, strict=True)}
                rows.append(ProgramRow(*program, threads, phase, cell, results.get(phase), beside))
    return rows


def panels(result: SweepResult) -> dict[str, list[ProgramLatency]]:
    """Return what the picture shows: by measured target its programs."""
    rows = [row for row in program_rows(result) if row.cell is not None]
    threads = any(row.threads != 1 for row in rows)
    found: dict[str, list[ProgramLatency]] = {}
    for row in rows:
        assert row.cell is not None
        variant = [row.dtype, *row.rewrites, *([f"t{row.threads}"] if threads else []), row.phase]
        latencies = _latencies(row.result) if row.result is not None else {}
        state = "" if latencies else row.state if row.result is None else "no latency"
        drawn = ProgramLatency(row.model, " ".join(filter(None, variant)), latencies, state)
        found.setdefault(row.cell.target, []).append(drawn)
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
        low, high = predicted.low or predicted.speedup, predicted.high or predicted.speedup
        known[PREDICTED] = Bounded(ms, before / high, before / low)
    return known


PAGE, TEXT = "portfolio.html", "portfolio.md"
_PICTURE = "latencies"
_UNKNOWN, _NONE = "unknown", blocks.Number("-", None)
_METRIC = ("metric", "worse than eager by (95 % interval)")
_DETAILS = ("spread", "data movement", "start-up", "peak memory", "against the last sweep")
# Which field of a result a column of the table is about, for the reasons why it is not known.
_ABOUT = {
    "median_ms": "Latency",
    "speedup": "Speedup",
    "predicted": "Prediction",
    "sme2_coverage_percent": "SME2 coverage",
    "data_movement_percent": "Data movement",
    "startup_ms": "Start-up",
    "peak_bytes": "Peak memory",
}
_LEGEND = (
    "On: the median of untraced executions; off: the same program with the accelerator of the CPU switched off; "
    "speedup is on against off, ~ where no difference was seen. With SME2 is a prediction, not a measurement, in the "
    "milliseconds of the machine that was measured. SME2 coverage: the part of CONV and GEMM operators with an SME2 "
    "kernel."
)
_CAPTION = (
    "Latency of each program, off and on; the axis is {axis}. Whiskers hold half of the executions (median absolute "
    "deviation). With SME2 is a prediction, and its whisker the predicted range.{more}"
)
_DETAILS_NOTE = (
    "Spread is the median absolute deviation (MAD) of executions. Data movement is its share of the traced time. "
    "Against the last sweep: better or worse if the whole 95 % interval is; the two runs were measured at different "
    "times."
)


def write(result: SweepResult, home: Path, drawn: bool = True) -> None:
    """Write the page, and the same as Markdown, beside sweep.json. Without the picture while jobs go on: to draw would
    disturb what is measured."""

    def pictures(width: int) -> dict[str, Spec]:
        spec = programs(panels(result), width, LIGHT, "", MOST_ROWS) if drawn else None
        return {_PICTURE: spec} if spec is not None else {}

    made_from = "everything here can be made again from sweep.json."
    with DrawingPool() as artist:
        write_document(report(result), Drawings.start(pictures, artist), home / PAGE, made_from, home / TEXT)


def report(result: SweepResult) -> blocks.Report:
    changed = changed_sentences(result)
    sections = [
        _programs(result),
        blocks.Section("changes", "What changed since the last sweep", [blocks.Bullets(changed)]) if changed else None,
        *(runtimes_section(result), _details(result), _failures(result), _reasons(result), _about(result)),
    ]
    models = counted(len({cell.model for cell in result.cells}), "model")
    cells = counted(len(result.cells), "cell")
    return blocks.Report(
        title=f"Portfolio: {result.name}",
        subtitle=f"{models} · {cells} · {', '.join(result.targets)} · {result.updated}",
        sections=[section for section in sections if section is not None],
        alerts=_alerts(result),
        opening=_opening(result),
        legend=_LEGEND,
    )


def _alerts(result: SweepResult) -> list[str]:
    failed = sum(job.state == "failed" for job in result.jobs)
    found = [f"{failed} of {counted(len(result.jobs), 'job')} failed: see below."] if failed else []
    if result.status == "partial":
        left = [job for job in result.jobs if job.state in ("waiting", "running", "not asked for")]
        found.append(f"This sweep is not complete: {counted(len(left), 'job')} to do.")
    worse = [cell.name for cell in result.cells for each in cell.results if _verdict(each) == "worse"]
    if names := list(dict.fromkeys(worse)):
        more = f" and {len(names) - 2} more" if len(names) > 2 else ""
        found.append(f"Slower than in the last sweep: {', '.join(names[:2])}{more}.")
    return [*found, *result.notes]


def changed_sentences(result: SweepResult) -> list[str]:
    """Return of each cell that is better or worse the lines that changed most, as far as they can be told."""
    judged = [(f"{cell.name} {each.phase}".strip(), each.against) for cell in result.cells for each in cell.results]
    found = [(name, x.verdict, largest_sentence(x.changes)) for name, x in judged if x is not None and x.changes]
    return [f"{name}, {verdict}: {said}" for name, verdict, said in found if said]


def _verdict(found: CellResult) -> str:
    return found.against.verdict if found.against is not None else ""


def _figures(result: SweepResult) -> list[blocks.Fact]:
    done = sum(cell.state == "finished" for cell in result.cells)
    figures = [blocks.Fact("Cells", f"{done} of {len(result.cells)}", "measured or emulated", card=True)]
    found = [(each.speedup, cell) for cell in result.cells for each in cell.results if each.speedup is not None]
    sure = [(speedup, cell) for speedup, cell in found if speedup.verdict == "faster" and not speedup.contended]
    if sure:
        best, cell = max(sure, key=lambda pair: pair[0].ratio)
        times = numbers.speedup(best.ratio, best.low, best.high)
        figures.append(blocks.Fact("Speedup", times, f"at most, {cell.name}", card=True))
    verdicts = Counter(_verdict(each) for cell in result.cells for each in cell.results)
    verdicts.pop("", None)
    if verdicts:
        words = ", ".join(f"{count} {verdict}" for verdict, count in sorted(verdicts.items()) if verdict != "worse")
        figures.append(blocks.Fact("Last sweep", f"{verdicts['worse']} worse", words, card=True))
    return figures


def _opening(result: SweepResult) -> list[list[blocks.Fact | blocks.Table]]:
    rows: list[blocks.Row] = []
    judged = any(cell.metric is not None for cell in result.cells)
    for cell in result.cells:
        beside = _judged(cell.metric)[:1] if judged else ()
        for found in cell.results:
            speed = blocks.Number(_UNKNOWN, None) if found.speedup is None else _speedup(found.speedup)
            told = (_known(found.median_ms, numbers.ms), speed, _known(found.sme2_coverage_percent, _coverage))
            rows.append((f"{cell.name} {found.phase}".strip(), *beside, *told, _verdict(found) or "-"))
        if not cell.results:
            rows.append((cell.name, *beside, blocks.Number(cell.state, None), _NONE, _NONE, "-"))
    columns = ("cell", *(_METRIC[:1] if judged else ()), "latency", "speedup", "SME2", "last sweep")
    changed = changed_sentences(result)[:3]
    others: list[blocks.Fact | blocks.Table] = (
        [blocks.Fact("Changes", rows=[(each,) for each in changed])] if changed else []
    )
    return [[*_figures(result)], [blocks.Table("glance", columns, rows)], others]


def _programs(result: SweepResult) -> blocks.Section:
    rows, shown = program_rows(result), panels(result)
    emulated = list(dict.fromkeys(target for row in rows for target in row.emulated))
    beside = [f"coverage on {t}" if len(emulated) > 1 else "coverage, emulated" for t in emulated]
    variants, judged = _variant_columns(rows), any(row.metric is not None for row in rows)
    columns = (
        *("model", *variants, *(_METRIC if judged else ()), "off", "on", "speedup (95 % interval)"),
        *("with SME2 (predicted)", "SME2 speedup (predicted range)", "SME2 coverage", *beside),
    )
    table: list[blocks.Row] = []
    for row in rows:
        seen = (_emulated(row, target) for target in emulated)
        metric = _judged(row.metric) if judged else ()
        table.append((_leading(row), *_variant(variants, row), *metric, *_measured(row), *_predicted(row), *seen))
    content: list[blocks.Block] = [blocks.Table("programs", columns, table, sortable=True)]
    if any(row.latencies for panel in shown.values() for row in panel):
        left = max(len(panel) for panel in shown.values()) - MOST_ROWS
        axis = "logarithmic: equal distances are equal factors" if is_logarithmic(shown) else "from zero"
        more = f" {counted(left, 'program')} more are in the table." if left > 0 else ""
        content.insert(0, blocks.Picture(_PICTURE, _CAPTION.format(axis=axis, more=more)))
    return blocks.Section("programs", "Programs", content)


def _leading(row: ProgramRow) -> blocks.Cell:
    return _named(f"{row.model} {row.phase}".strip(), _page(row.cell))


def _named(label: str, href: str) -> blocks.Cell:
    return blocks.Link(label, href) if href else blocks.Name(label)


def _page(cell: CellRecord | None) -> str:
    return "" if cell is None else cell.report or cell.run


def _variant_columns(rows: list[ProgramRow]) -> list[str]:
    """Return what tells rows of one model apart; without a column that says the same of all."""
    several = len({row.cell.target for row in rows if row.cell is not None}) > 1
    rewrites, threads = any(row.rewrites for row in rows), any(row.threads != 1 for row in rows)
    shown = {"dtype": True, "rewrites": rewrites, "threads": threads, "target": several}
    return [name for name, wanted in shown.items() if wanted]


def _variant(columns: list[str], row: ProgramRow) -> list[blocks.Cell]:
    cells: dict[str, blocks.Cell] = {
        "dtype": row.dtype,
        "rewrites": "+".join(row.rewrites) or NO_REWRITE,
        "threads": blocks.Number(str(row.threads), row.threads),
        "target": row.cell.target if row.cell is not None else "-",
    }
    return [cells[name] for name in columns]


def _known(value: float | None, shown: Callable[[float], str], href: str = "") -> blocks.Number:
    return blocks.Number(_UNKNOWN if value is None else shown(value), value, href if value is not None else "")


def _coverage(value: float) -> str:
    return f"{value:.0f} %"


def _judged(change: MetricChange | None) -> blocks.Row:
    if change is None:
        return (blocks.Number(_UNKNOWN, None), _NONE)
    return (_known(change.after.value, "{:.4g}".format), blocks.Number(drop_text(change.after), change.after.drop))


def _measured(row: ProgramRow) -> blocks.Row:
    found = row.result
    if found is None:
        return (_NONE, blocks.Number(row.state, None), _NONE)
    off = _NONE if found.speedup is None else _known(found.off_ms, numbers.ms)
    speedup = blocks.Number(_UNKNOWN, None) if found.speedup is None else _speedup(found.speedup)
    return (off, _known(found.median_ms, numbers.ms, _page(row.cell)), speedup)


def _predicted(row: ProgramRow) -> blocks.Row:
    if row.result is None:
        return (_NONE, _NONE, _NONE)
    found, coverage = row.result.predicted, _known(row.result.sme2_coverage_percent, _coverage)
    if found is None:
        return (blocks.Number(_UNKNOWN, None), blocks.Number(_UNKNOWN, None), coverage)
    bounds = f" ({numbers.interval(found.low, found.high)})" if found.low is not None else ""
    times = blocks.Number(f"{numbers.ratio(found.speedup)}{bounds}", found.speedup)
    return (_known(found.median_ms, numbers.ms), times, coverage)


def _emulated(row: ProgramRow, target: str) -> blocks.Number:
    """Return how much an emulated CPU ran on SME2, which leads to its report; its state where it has no result."""
    if target not in row.emulated:
        return _NONE
    cell, found = row.emulated[target]
    if found is None and cell.state != "finished":
        return blocks.Number(cell.state, None)
    return _known(found.sme2_coverage_percent if found is not None else None, _coverage, _page(cell))


def _details(result: SweepResult) -> blocks.Section | None:
    rows = [(row, row.result) for row in program_rows(result) if row.result is not None]
    if not rows:
        return None
    variants = _variant_columns([row for row, _ in rows])
    table: list[blocks.Row] = [(_leading(row), *_variant(variants, row), *_more(found)) for row, found in rows]
    shown = blocks.Table("details", ("model", *variants, *_DETAILS), table, sortable=True)
    return blocks.Section("details", "More of each run", [shown, blocks.Paragraph(_DETAILS_NOTE)])


def _more(found: CellResult) -> blocks.Row:
    moved = _known(found.data_movement_percent, "{:.1f} %".format)
    start, peak = _known(found.startup_ms, numbers.ms), _known(found.peak_bytes, numbers.mebibytes)
    return (_known(found.mad_percent, numbers.spread), moved, start, peak, _against(found.against))


def _speedup(found: Speedup) -> blocks.Number:
    words = f"{numbers.speedup(found.ratio, found.low, found.high)} ({numbers.interval(found.low, found.high)})"
    return blocks.Number(f"{words} (busy)" if found.contended else words, found.ratio)


def _against(found: PreviousComparison | None) -> blocks.Cell:
    if found is None:
        return "first result"
    words: str = found.verdict
    if found.low is not None and found.high is not None and found.verdict != "unknown":
        words += f": {numbers.ratio(found.ratio)} ({numbers.interval(found.low, found.high)})"
    return blocks.Link(words, found.run) if found.run else words


def _failures(result: SweepResult) -> blocks.Section | None:
    rows: list[blocks.Row] = [
        (blocks.Name(job.name), job.failure, job.hint, blocks.Link("log", job.log) if job.log else "")
        for job in result.jobs
        if job.state == "failed"
    ]
    table = blocks.Table("failures", ("job", "what happened", "what to do", ""), rows)
    return blocks.Section("failures", "What failed", [table]) if rows else None


def _reasons(result: SweepResult) -> blocks.Section | None:
    found: dict[str, list[str]] = {}
    for cell in result.cells:
        for each in cell.results:
            # What is unknown for one reason stands together.
            by_reason: dict[str, list[str]] = {}
            for field, why in each.unknown.items():
                # Nobody expects times of an emulated CPU.
                if cell.timing != "emulated" or field == "sme2_coverage_percent":
                    by_reason.setdefault(why, []).append(_ABOUT.get(field, field))
            said = [f"{_listed(fields)}: {why}" for why, fields in by_reason.items()]
            if each.against is not None and each.against.reason:
                said.append(f"Against the last sweep: {each.against.reason}")
            for sentence in [*said, *(f"Warning: {warning}" for warning in each.warnings)]:
                found.setdefault(sentence, []).append(cell.name)
    items = [_of(why, cells) for why, cells in found.items()]
    return blocks.Section("unknown", "What is not known, and why", [blocks.Bullets(items)]) if items else None


def _listed(fields: list[str]) -> str:
    return ", ".join([fields[0], *(field if field.startswith("SME2") else field.lower() for field in fields[1:])])


def _of(why: str, cells: list[str]) -> str:
    names = list(dict.fromkeys(cells))
    more = f" and {len(names) - 3} more" if len(names) > 3 else ""
    return f"{why} ({', '.join(names[:3])}{more})."


def _about(result: SweepResult) -> blocks.Section:
    rows: list[blocks.Row] = [(blocks.Name(key), value) for key, value in result.labels.items()]
    said = [f"Round {result.round}; begun {result.created}, last changed {result.updated}, kit {result.kit_version}."]
    table = [blocks.Table("labels", ("label", "value"), rows)] if rows else []
    return blocks.Section("about", "About this sweep", [*table, blocks.Paragraph(" ".join(said))])


def runtimes_section(result: SweepResult) -> blocks.Section | None:
    """Return how many times as fast as ExecuTorch other runtimes were, a column for each."""
    cells = [cell for cell in result.cells if cell.runtimes]
    labels = list(dict.fromkeys(each.label for cell in cells for each in cell.runtimes))
    if not labels:
        return None
    rows: list[blocks.Row] = []
    for cell in cells:
        found = {each.label: each for each in cell.runtimes}
        rows.append((_named(cell.name, cell.report), *(_cell(found.get(label)) for label in labels)))
    said = (
        "How many times as fast as ExecuTorch each is, measured in turns with it: the same model, weights, inputs and "
        "threads. ~ is no difference seen. The report of a cell has start-up, memory and settings."
    )
    return blocks.Section(
        "runtimes", "Other runtimes", [blocks.Table("runtimes", ("cell", *labels), rows), blocks.Paragraph(said)]
    )


def _cell(found: RuntimeResult | None) -> blocks.Cell:
    if found is None:
        return "unknown"
    if found.ratio is None or found.low is None or found.high is None:
        return found.reason or "too few runs to tell"
    bounds = numbers.interval(found.low, found.high)
    return f"~ ({bounds})" if found.verdict == "no difference seen" else f"{numbers.ratio(found.ratio)} ({bounds})"
