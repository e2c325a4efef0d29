"""The portfolio page: models by targets, every number with its interval, every cell leading to its report."""

from collections import Counter
from collections.abc import Callable
from pathlib import Path

from model_profiling.base import files
from model_profiling.base.units import counted
from model_profiling.fleet.sweep.result import CellRecord, CellResult, PreviousComparison, Speedup, SweepResult
from model_profiling.fleet.sweep.sweep_file import NO_REWRITE
from model_profiling.report import html, markdown, numbers
from model_profiling.report.blocks import (
    Bullets,
    Cell,
    KeyFigure,
    Link,
    Name,
    Number,
    Paragraph,
    Report,
    Row,
    Section,
    Table,
)

PAGE, TEXT = "portfolio.html", "portfolio.md"
_UNKNOWN, _EMULATED = "unknown", "emulated"
_NUMBERS = (
    *("latency", "spread", "speedup (95 % interval)", "SME2 coverage", "data movement", "start-up", "peak memory"),
    "against the last sweep",
)
# Which field of a result a column of the table is about, for the reasons why it is not known.
_ABOUT = {
    "median_ms": "Latency",
    "speedup": "Speedup",
    "sme2_coverage_percent": "SME2 coverage",
    "data_movement_percent": "Data movement",
    "startup_ms": "Start-up",
    "peak_bytes": "Peak memory",
}
_LEGEND = (
    "Latency is the median of untraced executions with the accelerator on; speedup is against the same program with it "
    "off, ~ where no difference was seen. Data movement is its share of the traced time. Against the last sweep: "
    "better or worse if the whole 95 % interval is; the two runs were measured at different times."
)


def write(result: SweepResult, home: Path) -> None:
    """Write the page, and the same as Markdown, beside sweep.json."""
    made = report(result)
    files.write_text(home / PAGE, html.overview(made, {}, "everything here can be made again from sweep.json."))
    files.write_text(home / TEXT, markdown.render(made, {}))


def report(result: SweepResult) -> Report:
    sections = [_matrix(result), _table(result), _failures(result), _reasons(result), _about(result)]
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


def _matrix(result: SweepResult) -> Section:
    """Return a row for each program and number of threads, a column for each target."""
    rows: dict[tuple[str, ...], tuple[Row, dict[str, Cell]]] = {}
    phased, variants = any(len(cell.results) > 1 for cell in result.cells), _variant_columns(result)
    for cell in result.cells:
        for phase, shown in _in_matrix(cell).items():
            key = (cell.model, cell.dtype, _rewrites(cell), str(cell.threads), phase)
            named = (Name(cell.model), *_variant(variants, cell), *([phase] if phased else []))
            rows.setdefault(key, (named, {}))[1][cell.target] = shown
    columns = ("model", *variants, *(["phase"] if phased else []), *result.targets)
    table: list[Row] = [
        (*named, *(shown.get(target, Number("", None)) for target in result.targets)) for named, shown in rows.values()
    ]
    note = (
        "Latency, or of an emulated target the part of CONV and GEMM operators on SME2. Each leads to its report; a "
        "column can be sorted."
    )
    return Section("matrix", "Models by targets", [Table("matrix", columns, table, sortable=True), Paragraph(note)])


def _in_matrix(cell: CellRecord) -> dict[str, Number]:
    """Return what a cell shows, by phase."""
    if not cell.results:
        return {"": Number(cell.state, None)}
    href = cell.report or cell.run
    found = {}
    for each in cell.results:
        if cell.timing == "emulated":
            value = each.sme2_coverage_percent
            shown = _UNKNOWN if value is None else f"{value:.0f} % on SME2"
        else:
            value = each.median_ms
            shown = _UNKNOWN if value is None else numbers.ms(value)
        found[each.phase] = Number(shown, value, href)
    return found


def _table(result: SweepResult) -> Section:
    rows: list[Row] = []
    variants = _variant_columns(result)
    for cell in result.cells:
        named = (*_variant(variants, cell), cell.target)
        for each in cell.results:
            rows.append((_leading(cell, each.phase), *named, *_numbers(cell, each)))
        if not cell.results:
            rest = [Number("", None) for _ in _NUMBERS[1:-1]]
            rows.append((_leading(cell, ""), *named, Number(cell.state, None), *rest, ""))
    columns = ("model", *variants, "target", *_NUMBERS)
    return Section("cells", "All numbers", [Table("cells", columns, rows, sortable=True)])


def _leading(cell: CellRecord, phase: str) -> Cell:
    """Return the name of the model, which leads to the report."""
    label = f"{cell.model} {phase}".strip()
    href = cell.report or cell.run
    return Link(label, href) if href else Name(label)


def _variant_columns(result: SweepResult) -> list[str]:
    """Return what tells programs of one model apart; without a column that says the same of all."""
    rewritten = any(cell.rewrites for cell in result.cells)
    return ["dtype", *(["rewrites"] if rewritten else []), "threads"]


def _variant(columns: list[str], cell: CellRecord) -> list[Cell]:
    rewrites = [_rewrites(cell)] if "rewrites" in columns else []
    return [cell.dtype, *rewrites, Number(str(cell.threads), cell.threads)]


def _rewrites(cell: CellRecord) -> str:
    return "+".join(cell.rewrites) or NO_REWRITE


def _numbers(cell: CellRecord, found: CellResult) -> Row:
    unknown = _EMULATED if cell.timing == "emulated" else _UNKNOWN

    def number(value: float | None, shown: Callable[[float], str]) -> Number:
        return Number(unknown if value is None else shown(value), value)

    coverage = found.sme2_coverage_percent
    return (
        number(found.median_ms, numbers.ms),
        number(found.mad_percent, numbers.spread),
        number(None, str) if found.speedup is None else _speedup(found.speedup),
        Number(_UNKNOWN if coverage is None else f"{coverage:.0f} %", coverage),
        number(found.data_movement_percent, lambda percent: f"{percent:.1f} %"),
        number(found.startup_ms, numbers.ms),
        number(found.peak_bytes, numbers.mebibytes),
        _against(found.against, cell),
    )


def _speedup(found: Speedup) -> Number:
    words = f"{numbers.speedup(found.ratio, found.low, found.high)} ({numbers.interval(found.low, found.high)})"
    return Number(f"{words} (busy machine)" if found.contended else words, found.ratio)


def _against(found: PreviousComparison | None, cell: CellRecord) -> Cell:
    if found is None:
        return _EMULATED if cell.timing == "emulated" else "first result"
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
