"""The portfolio page: a picture of all latencies, a row for each program with what was measured and predicted of it."""

from collections import Counter
from collections.abc import Callable
from pathlib import Path

from model_profiling.base import files
from model_profiling.base.units import counted
from model_profiling.fleet.sweep.program_rows import ProgramRow, panels, program_rows, rewrites_of
from model_profiling.fleet.sweep.result import CellRecord, CellResult, PreviousComparison, Speedup, SweepResult
from model_profiling.fleet.sweep.runtimes_section import runtimes_section
from model_profiling.report import html, markdown, numbers
from model_profiling.report.blocks import (
    Block,
    Bullets,
    Cell,
    KeyFigure,
    Link,
    Name,
    Number,
    Paragraph,
    Picture,
    Report,
    Row,
    Section,
    Table,
)
from model_profiling.report.change_words import largest_sentence
from model_profiling.report.charts import MOST_ROWS
from model_profiling.report.charts.frame import NARROW, WIDE
from model_profiling.report.charts.programs import is_logarithmic, programs
from model_profiling.report.drawing.drawing_pool import DrawingPool
from model_profiling.report.drawing.theme import LIGHT
from model_profiling.report.files import report_files

PAGE, TEXT = "portfolio.html", "portfolio.md"
_PICTURE = "latencies"
_UNKNOWN, _NONE = "unknown", Number("-", None)
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
_DETAILS_NOTE = (
    "Spread is the median absolute deviation (MAD) of executions. Data movement is its share of the traced time. "
    "Against the last sweep: better or worse if the whole 95 % interval is; the two runs were measured at different "
    "times."
)


def write(result: SweepResult, home: Path, drawn: bool = True) -> None:
    """Write the page, and the same as Markdown, beside sweep.json. Without the picture while jobs go on: to draw would
    disturb what is measured."""
    figures, pictures = _draw(result, home) if drawn else ({}, {})
    made = report(result)
    files.write_text(home / PAGE, html.overview(made, figures, "everything here can be made again from sweep.json."))
    files.write_text(home / TEXT, markdown.render(made, pictures))


def _draw(result: SweepResult, home: Path) -> tuple[dict[str, tuple[str, str]], dict[str, str]]:
    """Return the picture for wide and narrow pages, and the file that Markdown shows; nothing without any latency."""
    wide, narrow = (programs(panels(result), width, LIGHT, "", MOST_ROWS) for width in (WIDE, NARROW))
    if wide is None or narrow is None:
        return {}, {}
    with DrawingPool() as artist:
        drawings, small = {_PICTURE: artist.draw(wide)}, artist.svg(narrow)
        pictures = report_files.write_pictures(drawings, home / TEXT, files.write_bytes)
        return {_PICTURE: (drawings[_PICTURE].result().svg, small.result())}, pictures


def report(result: SweepResult) -> Report:
    changed = changed_sentences(result)
    sections = [
        _programs(result),
        Section("changes", "What changed since the last sweep", [Bullets(changed)]) if changed else None,
        *(runtimes_section(result), _details(result), _failures(result), _reasons(result), _about(result)),
    ]
    models = counted(len({cell.model for cell in result.cells}), "model")
    cells = counted(len(result.cells), "cell")
    return Report(
        title=f"Portfolio: {result.name}",
        subtitle=f"{models} · {cells} · {', '.join(result.targets)} · {result.updated}",
        headline=[],
        sections=[section for section in sections if section is not None],
        alerts=_alerts(result),
        figures=_figures(result),
        legend=_LEGEND,
    )


def _alerts(result: SweepResult) -> list[str]:
    found = []
    failed = [job for job in result.jobs if job.state == "failed"]
    if failed:
        found.append(f"{len(failed)} of {counted(len(result.jobs), 'job')} failed: see below.")
    if result.status == "partial":
        left = [job for job in result.jobs if job.state in ("waiting", "running", "not asked for")]
        found.append(f"This sweep is not complete: {counted(len(left), 'job')} to do.")
    worse = [cell.name for cell in result.cells for each in cell.results if _verdict(each) == "worse"]
    if worse:
        found.append(f"Slower than in the last sweep: {', '.join(dict.fromkeys(worse))}.")
    return [*found, *result.notes]


def changed_sentences(result: SweepResult) -> list[str]:
    """Return of each cell that is better or worse the lines that changed most, as far as they can be told."""
    judged = [
        (f"{cell.name} {each.phase}".strip(), each.against)
        for cell in result.cells
        for each in cell.results
        if each.against is not None
    ]
    found = [(name, against.verdict, largest_sentence(against.changes)) for name, against in judged if against.changes]
    return [f"{name}, {verdict}: {said}" for name, verdict, said in found if said]


def _verdict(found: CellResult) -> str:
    return found.against.verdict if found.against is not None else ""


def _figures(result: SweepResult) -> list[KeyFigure]:
    done = sum(cell.state == "finished" for cell in result.cells)
    figures = [KeyFigure("cells", f"{done} of {len(result.cells)}", "measured or emulated")]
    found = [(each.speedup, cell) for cell in result.cells for each in cell.results if each.speedup is not None]
    sure = [(speedup, cell) for speedup, cell in found if speedup.verdict == "faster" and not speedup.contended]
    if sure:
        best, cell = max(sure, key=lambda pair: pair[0].ratio)
        figures.append(KeyFigure("largest speedup", numbers.speedup(best.ratio, best.low, best.high), cell.name))
    verdicts = Counter(_verdict(each) for cell in result.cells for each in cell.results)
    verdicts.pop("", None)
    if verdicts:
        words = ", ".join(f"{count} {verdict}" for verdict, count in sorted(verdicts.items()))
        figures.append(KeyFigure("against the last sweep", f"{verdicts['worse']} worse", words))
    return figures


def _programs(result: SweepResult) -> Section:
    """Return the picture, and a row for each program, number of threads and measured target."""
    rows, shown = program_rows(result), panels(result)
    emulated = list(dict.fromkeys(target for row in rows for target in row.emulated))
    beside = [f"coverage on {t}" if len(emulated) > 1 else "coverage, emulated" for t in emulated]
    variants = _variant_columns(rows)
    columns = (
        *("model", *variants, "off", "on", "speedup (95 % interval)"),
        *("with SME2 (predicted)", "SME2 speedup (predicted range)", "SME2 coverage", *beside),
    )
    table: list[Row] = [
        (
            _leading(row),
            *_variant(variants, row),
            *_measured(row),
            *_predicted(row),
            *(_emulated(row, t) for t in emulated),
        )
        for row in rows
    ]
    blocks: list[Block] = [Table("programs", columns, table, sortable=True)]
    if any(row.latencies for panel in shown.values() for row in panel):
        left = max(len(panel) for panel in shown.values()) - MOST_ROWS
        blocks.insert(0, Picture(_PICTURE, _caption(is_logarithmic(shown), left)))
    return Section("programs", "Programs", blocks)


def _caption(logarithmic: bool, left: int) -> str:
    axis = "logarithmic: equal distances are equal factors" if logarithmic else "from zero"
    more = f" {counted(left, 'program')} more are in the table." if left > 0 else ""
    return (
        f"Latency of each program, off and on; the axis is {axis}. Whiskers hold half of the executions (median "
        f"absolute deviation). With SME2 is a prediction, and its whisker the predicted range.{more}"
    )


def _leading(row: ProgramRow) -> Cell:
    """Return the name of the model, which leads to the report."""
    label = f"{row.model} {row.phase}".strip()
    href = _page(row.cell)
    return Link(label, href) if href else Name(label)


def _page(cell: CellRecord | None) -> str:
    return "" if cell is None else cell.report or cell.run


def _variant_columns(rows: list[ProgramRow]) -> list[str]:
    """Return what tells rows of one model apart; without a column that says the same of all."""
    several = len({row.cell.target for row in rows if row.cell is not None}) > 1
    shown = {
        "dtype": True,
        "rewrites": any(row.rewrites for row in rows),
        "threads": any(row.threads != 1 for row in rows),
        "target": several,
    }
    return [name for name, wanted in shown.items() if wanted]


def _variant(columns: list[str], row: ProgramRow) -> list[Cell]:
    cells: dict[str, Cell] = {
        "dtype": row.dtype,
        "rewrites": rewrites_of(row.rewrites),
        "threads": Number(str(row.threads), row.threads),
        "target": row.cell.target if row.cell is not None else "-",
    }
    return [cells[name] for name in columns]


def _known(value: float | None, shown: Callable[[float], str], href: str = "") -> Number:
    return Number(_UNKNOWN if value is None else shown(value), value, href if value is not None else "")


def _coverage(value: float) -> str:
    return f"{value:.0f} %"


def _measured(row: ProgramRow) -> Row:
    """Return off, on and speedup; the state of the run where there are none."""
    found = row.result
    if found is None:
        return (_NONE, Number(row.state, None), _NONE)
    off = _NONE if found.speedup is None else _known(found.off_ms, numbers.ms)
    speedup = Number(_UNKNOWN, None) if found.speedup is None else _speedup(found.speedup)
    return (off, _known(found.median_ms, numbers.ms, _page(row.cell)), speedup)


def _predicted(row: ProgramRow) -> Row:
    if row.result is None:
        return (_NONE, _NONE, _NONE)
    found, coverage = row.result.predicted, _known(row.result.sme2_coverage_percent, _coverage)
    if found is None:
        return (Number(_UNKNOWN, None), Number(_UNKNOWN, None), coverage)
    bounds = f" ({numbers.interval(found.low, found.high)})" if found.low is not None else ""
    return (
        _known(found.median_ms, numbers.ms),
        Number(f"{numbers.ratio(found.speedup)}{bounds}", found.speedup),
        coverage,
    )


def _emulated(row: ProgramRow, target: str) -> Number:
    """Return how much an emulated CPU ran on SME2, which leads to its report; its state where it has no result."""
    if target not in row.emulated:
        return _NONE
    cell, found = row.emulated[target]
    if found is None and cell.state != "finished":
        return Number(cell.state, None)
    return _known(found.sme2_coverage_percent if found is not None else None, _coverage, _page(cell))


def _details(result: SweepResult) -> Section | None:
    rows = [(row, row.result) for row in program_rows(result) if row.result is not None]
    if not rows:
        return None
    variants = _variant_columns([row for row, _ in rows])
    table: list[Row] = [(_leading(row), *_variant(variants, row), *_more(found)) for row, found in rows]
    columns = ("model", *variants, *_DETAILS)
    return Section(
        "details", "More of each run", [Table("details", columns, table, sortable=True), Paragraph(_DETAILS_NOTE)]
    )


def _more(found: CellResult) -> Row:
    return (
        _known(found.mad_percent, numbers.spread),
        _known(found.data_movement_percent, lambda percent: f"{percent:.1f} %"),
        _known(found.startup_ms, numbers.ms),
        _known(found.peak_bytes, numbers.mebibytes),
        _against(found.against),
    )


def _speedup(found: Speedup) -> Number:
    words = f"{numbers.speedup(found.ratio, found.low, found.high)} ({numbers.interval(found.low, found.high)})"
    return Number(f"{words} (busy)" if found.contended else words, found.ratio)


def _against(found: PreviousComparison | None) -> Cell:
    if found is None:
        return "first result"
    words: str = found.verdict
    if found.low is not None and found.high is not None and found.verdict != "unknown":
        words += f": {numbers.ratio(found.ratio)} ({numbers.interval(found.low, found.high)})"
    return Link(words, found.run) if found.run else words


def _failures(result: SweepResult) -> Section | None:
    rows: list[Row] = [
        (Name(job.name), job.failure, job.hint, Link("log", job.log) if job.log else "")
        for job in result.jobs
        if job.state == "failed"
    ]
    if not rows:
        return None
    return Section("failures", "What failed", [Table("failures", ("job", "what happened", "what to do", ""), rows)])


def _reasons(result: SweepResult) -> Section | None:
    """Return why something is unknown, each reason once with the cells that it is true of."""
    found: dict[str, list[str]] = {}
    for cell in result.cells:
        for each in cell.results:
            # What is unknown for one reason stands together.
            by_reason: dict[str, list[str]] = {}
            for field, why in each.unknown.items():
                # Nobody expects times of an emulated CPU.
                if cell.timing == "emulated" and field != "sme2_coverage_percent":
                    continue
                by_reason.setdefault(why, []).append(_ABOUT.get(field, field))
            said = [f"{_listed(fields)}: {why}" for why, fields in by_reason.items()]
            if each.against is not None and each.against.reason:
                said.append(f"Against the last sweep: {each.against.reason}")
            for sentence in [*said, *(f"Warning: {warning}" for warning in each.warnings)]:
                found.setdefault(sentence, []).append(cell.name)
    if not found:
        return None
    items = [_of(why, cells) for why, cells in found.items()]
    return Section("unknown", "What is not known, and why", [Bullets(items)])


def _listed(fields: list[str]) -> str:
    return ", ".join([fields[0], *(field if field.startswith("SME2") else field.lower() for field in fields[1:])])


def _of(why: str, cells: list[str]) -> str:
    names = list(dict.fromkeys(cells))
    more = f" and {len(names) - 3} more" if len(names) > 3 else ""
    return f"{why} ({', '.join(names[:3])}{more})."


def _about(result: SweepResult) -> Section:
    rows: list[Row] = [(Name(key), value) for key, value in result.labels.items()]
    said = [f"Round {result.round}; begun {result.created}, last changed {result.updated}, kit {result.kit_version}."]
    table = [Table("labels", ("label", "value"), rows)] if rows else []
    return Section("about", "About this sweep", [*table, Paragraph(" ".join(said))])
