"""Other runtimes: how fast each is, how it starts, what it holds in memory, and which lines ExecuTorch does in other
time."""

from pathlib import Path

from model_profiling.analysis.compare.program_changes import ProgramChanges
from model_profiling.analysis.compare.runtime_comparison import RuntimeComparison, RuntimeRow
from model_profiling.report import change_words, numbers, runtime_words, words
from model_profiling.report.blocks import Block, Bullets, Name, Number, Paragraph, Picture, Row, Section, Table
from model_profiling.report.change_words import DifferenceRow

KEY, TITLE = "runtimes", "Other runtimes"
_MOST_LINES = 12
_MOST_MODULES = 8
_CAPTION = (
    "Median latency and start-up with their 95 % intervals, and peak memory, one bar for each runtime. Grey: what the "
    "others are compared with; without colour: not ranked, its outputs differ."
)


def section(found: RuntimeComparison | None) -> Section | None:
    """Return the section; None where no other runtime was measured."""
    if found is None:
        return None
    rows = runtime_words.measured(found)
    blocks: list[Block] = [Paragraph(f"{runtime_words.subject(found)}, in turns; {runtime_words.order(found)}.")]
    compared = [row.comparison for row in rows if row.comparison is not None]
    if busy := words.busy_sentence(compared):
        blocks.append(Paragraph(f"Warning: {busy}."))
    blocks.append(Table("runtimes", _columns(found), [_row(row, found.baseline) for row in found.rows]))
    blocks += [Picture(KEY, _CAPTION)] if rows else []
    if findings := runtime_words.findings(found):
        blocks.append(Bullets([f"{sentence}." for sentence in findings]))
    failed = [f"{runtime_words.not_measured(row)}. {row.hint}".strip() for row in found.rows if row.reason]
    if said := [*failed, *(f"{note}." for note in runtime_words.notes(found)), *found.caveats]:
        blocks.append(Bullets(said))
    for row in rows:
        if row.changes is not None:
            blocks += by_line(row.changes)
    if settings := [_settings(row) for row in rows]:
        blocks += [
            Paragraph("Versions and settings:"),
            Table("runtime_settings", ("runtime", "versions", "settings", "program"), settings),
        ]
    return Section(KEY, TITLE, blocks)


def _columns(found: RuntimeComparison) -> tuple[str, ...]:
    base = runtime_words.baseline(found)
    return tuple(
        f"{name} as {base.label}" if name == "times as fast" and base is not None else name
        for name in runtime_words.COLUMNS
    )


def _row(row: RuntimeRow, baseline: str) -> Row:
    if row.latency is None:
        return (row.label, Number("not measured", None), *(Number("-", None) for _ in range(3)), "-")
    said = runtime_words.cells(row, baseline)
    ratio = 1.0 if row.name == baseline else row.comparison.ratio if row.comparison is not None else None
    return (
        said.label,
        Number(said.median, row.latency.median_ms),
        Number(said.times, ratio),
        Number(said.startup, row.startup.median_ms if row.startup is not None else None),
        Number(said.memory, row.peak_bytes),
        said.outputs,
    )


def _settings(row: RuntimeRow) -> Row:
    versions = ", ".join(f"{name} {version}" for name, version in row.versions.items())
    return (row.label, versions, runtime_words.settings(row), Name(Path(row.file).name))


def by_line(changes: ProgramChanges) -> list[Block]:
    """Return the lines that another runtime does in other time, those first at which the baseline is slower."""
    before, after = sides = (changes.before, changes.after)
    notes: list[Block] = [Bullets([f"{note}." for note in changes.notes])] if changes.notes else []
    if not changes.told:
        return [Paragraph(f"{runtime_words.no_line(changes)}."), *notes]
    blocks: list[Block] = [
        Paragraph(
            f"{before} against {after} by line of PyTorch, profiled in executions of their own; rows add up to the "
            "whole. `~` cannot be told from noise."
        )
    ]
    rows = change_words.difference_rows(changes, min(_MOST_LINES, len(changes.told)))
    listed, rest = [row for row in rows if _is_line(row)], [row for row in rows if not _is_line(row)]
    listed.sort(key=lambda row: row.after_ms - row.before_ms > 0)
    columns = ("line", before, after, "difference", f"{before} is", "what each did")
    blocks.append(Table("runtime_lines", columns, [_line(row, sides) for row in (*listed, *rest)]))
    if modules := change_words.module_rows(changes, _MOST_MODULES):
        blocks.append(Paragraph(f"{before} against {after} by module:"))
        cells: list[Row] = [(Name(row.name), *_times(row)) for row in modules]
        blocks.append(Table("runtime_modules", ("module", before, after, "difference"), cells))
    return [*blocks, *notes]


def _is_line(row: DifferenceRow) -> bool:
    return len(row.parts) == 1 and row.told


def _line(row: DifferenceRow, sides: tuple[str, str]) -> Row:
    which = ("slower" if row.after_ms < row.before_ms else "faster") if _is_line(row) else ""
    did = change_words.in_both(row.parts[0], sides) if _is_line(row) else ""
    return (Name(row.name), *_times(row), which, did)


def _times(row: DifferenceRow) -> tuple[Number, Number, Number]:
    return (
        Number(numbers.ms(row.before_ms), row.before_ms),
        Number(numbers.ms(row.after_ms), row.after_ms),
        Number(row.difference, row.after_ms - row.before_ms),
    )
