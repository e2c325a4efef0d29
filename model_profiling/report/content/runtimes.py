"""Other runtimes: how fast each is, how it starts, what it holds in memory, and which lines ExecuTorch does in other
time. Terminal, page and benchmarks say the same of each."""

from collections.abc import Callable
from pathlib import Path

from model_profiling.analysis.compare.comparison import AutoComparison
from model_profiling.analysis.compare.program_changes import ProgramChanges
from model_profiling.analysis.compare.runtime_comparison import RuntimeComparison, RuntimeRow, SlowerLine, slower_lines
from model_profiling.base.rewrites import AUTO
from model_profiling.base.units import counted
from model_profiling.report import blocks, change_words, numbers, words
from model_profiling.report.change_words import DifferenceRow
from model_profiling.runtimes.runtime_table import EXECUTORCH

KEY, TITLE = "runtimes", "Other runtimes"
COLUMNS = ("runtime", "median (95 % interval)", "times as fast", "start-up", "peak memory", "outputs")
_UNKNOWN = "unknown"
_MOST_FOUND = 3
_MOST_LINES, _MOST_MODULES, _MOST_FINDINGS = 12, 8, 8
_CAPTION = (
    "Median latency and start-up with their 95 % intervals, and peak memory, one bar for each runtime. Grey: what the "
    "others are compared with; without colour: not ranked, its outputs differ."
)

_SETTINGS: dict[str, Callable[[RuntimeRow], blocks.Cell]] = {
    "runtime": lambda row: row.label,
    "versions": lambda row: ", ".join(f"{name} {version}" for name, version in row.versions.items()),
    "settings": lambda row: "; ".join(f"{name}: {value}" for name, value in row.settings.items()),
    "program": lambda row: blocks.Name(Path(row.file).name),
}


def section(found: RuntimeComparison | None) -> blocks.Section | None:
    """Return the section; None where no other runtime was measured."""
    if found is None:
        return None
    rows = [row for row in found.rows if row.latency is not None]
    base, busy = _baseline(found), _busy(found)
    content: list[blocks.Block] = [blocks.Paragraph(f"{_subject(found)}, in turns; {_order(found)}.")]
    content += [blocks.Paragraph(f"Warning: {busy}.")] if busy else []
    against = {"times as fast": f"times as fast as {base.label}"} if base is not None else {}
    columns = tuple(against.get(name, name) for name in COLUMNS)
    content.append(blocks.Table("runtimes", columns, [cells(row, found.baseline) for row in found.rows]))
    content += [blocks.Picture(KEY, _CAPTION)] if rows else []
    content += blocks.bullets(f"{sentence}." for sentence in findings(found))
    notes = [f"{row.label}: {note}." for row in rows for note in row.notes]
    notes += [f"outputs are held against {found.reference}."] if found.reference else []
    content += blocks.bullets([*_failed(found), *notes, *found.caveats])
    for row in rows:
        content += by_line(row.changes) if row.changes is not None else []
    content += (
        [blocks.Paragraph("Versions and settings:"), blocks.Table.of("runtime_settings", _SETTINGS, rows)]
        if rows
        else []
    )
    fastest = [f"{row.label} {numbers.ms(row.latency.median_ms)}" for row in rows[:1] if row.latency is not None]
    return blocks.Section(KEY, TITLE, content, True, f"fastest: {fastest[0]}" if fastest else "none was measured")


def of_auto(found: AutoComparison | None) -> blocks.Section | None:
    """Return what `--rewrite auto` changed, and which lines take other time; None where nothing was measured."""
    if found is None or not found.pairs:
        return None
    names = [f"{each.name}{'' if each.applied else ' left out'}: {each.reason}" for each in found.choices]
    lines = [block for pair in found.pairs if pair.changes is not None for block in by_line(pair.changes)]
    result = ", ".join(" ".join(words.bounded_factor(pair.told)) for pair in found.pairs)
    return blocks.Section("auto", f"With --rewrite {AUTO}", [blocks.Bullets(names), *lines], True, result)


def report(found: RuntimeComparison, title: str = "") -> blocks.Report:
    """Return what `compare --runtimes` says."""
    whole = section(found)
    measured = [cells(row, found.baseline) for row in found.rows if row.latency is not None]
    said = {"Lines": [*findings(found)[:_MOST_FOUND], *found.caveats], "Failed": _failed(found)}
    busy = _busy(found)
    more = [blocks.Fact(label, rows=[(each,) for each in several]) for label, several in said.items() if several]
    return blocks.Report(
        title or f"{found.model} in {len(found.rows)} runtimes",
        f"{_subject(found)}; {_order(found)}",
        sections=[whole] if whole is not None else [],
        alerts=[f"{busy[0].upper()}{busy[1:]}."] if busy else [],
        opening=[[blocks.Table("runtimes", COLUMNS, measured)], [*more]],
    )


def _baseline(found: RuntimeComparison) -> RuntimeRow | None:
    """Return the row that the others are compared with."""
    return next((row for row in found.rows if row.name == found.baseline), None)


def _subject(found: RuntimeComparison) -> str:
    """Return `toy_cnn, fp32, 1 thread`; of a file of another tool nobody says the dtype."""
    dtype = [found.dtype] if found.dtype != _UNKNOWN else []
    return ", ".join([found.model, *dtype, counted(found.threads, "thread")])


def _order(found: RuntimeComparison) -> str:
    """Return `fastest first, against ExecuTorch 1.5.0`."""
    base = _baseline(found)
    return "fastest first" + (f", against {base.label}" if base is not None else "")


def _busy(found: RuntimeComparison) -> str:
    return words.busy_sentence([row.comparison for row in found.rows if row.comparison is not None])


def _failed(found: RuntimeComparison) -> list[str]:
    return [f"{row.label}: not measured: {row.reason}. {row.hint}".strip() for row in found.rows if row.reason]


def cells(row: RuntimeRow, base: str) -> blocks.Row:
    """Return a runtime as COLUMNS have it; `base` is the name of the baseline."""
    if row.latency is None:
        return (row.label, blocks.Number("not measured", None), *[numbers.UNKNOWN] * 3, "-")
    ratio = 1.0 if row.name == base else row.comparison.ratio if row.comparison is not None else None
    if row.outputs is None:
        outputs = "the reference" if row.ranked else "not compared"
    else:
        outputs = "agree" if row.outputs.verdict == "agrees" else f"differ by {row.outputs.error_of_reference}"
    median = numbers.bounded_ms(row.latency.median_ms, row.latency.low_ms, row.latency.high_ms)
    times = blocks.Number("1" if row.name == base else _times(row), ratio)
    start = blocks.Number(_UNKNOWN, None) if row.startup is None else numbers.ms_cell(row.startup.median_ms)
    peak = blocks.Number(_UNKNOWN, None) if row.peak_bytes is None else numbers.bytes_cell(row.peak_bytes)
    return (row.label, blocks.Number(median, row.latency.median_ms), times, start, peak, outputs)


def _times(row: RuntimeRow) -> str:
    """Return `1.42x (1.40 to 1.44)`, `~` where no difference is seen, or why there is no such number."""
    found = row.comparison
    if found is None or found.high is None:
        return "not ranked" if found is None else "too few runs"
    if found.verdict == "no difference seen":
        return f"~ ({numbers.interval(found.low, found.high)})"
    return numbers.bounded_speedup(found.ratio, found.low, found.high)


def by_line(changes: ProgramChanges) -> list[blocks.Block]:
    """Return the lines that another runtime does in other time, those first at which the baseline is slower."""
    before, after = sides = (changes.before, changes.after)
    notes = blocks.bullets(f"{note}." for note in changes.notes)
    if not changes.told:
        none = f"{before} and {after}: no line differs by more than noise, or it is not known."
        return [blocks.Paragraph(none), *notes]
    said = (
        f"{before} against {after} by line of PyTorch, profiled in executions of their own; rows add up to the "
        "whole. `~` cannot be told from noise."
    )
    rows = change_words.difference_rows(changes, min(_MOST_LINES, len(changes.told)))
    lines = [row for row in rows if len(row.parts) == 1 and row.told]
    listed = [_line(row, sides) for row in sorted(lines, key=lambda row: row.after_ms > row.before_ms)]
    listed += [(blocks.Name(row.name), *row.cells, "", "") for row in rows if row not in lines]
    columns = ("line", before, after, "difference", f"{before} is", "what each did")
    content: list[blocks.Block] = [blocks.Paragraph(said), blocks.Table("runtime_lines", columns, listed)]
    if modules := change_words.module_rows(changes, _MOST_MODULES):
        table = blocks.Table(
            "runtime_modules", ("module", *columns[1:4]), [(blocks.Name(row.name), *row.cells) for row in modules]
        )
        content += [blocks.Paragraph(f"{before} against {after} by module:"), table]
    return [*content, *notes]


def _line(row: DifferenceRow, sides: tuple[str, str]) -> blocks.Row:
    which = "slower" if row.after_ms < row.before_ms else "faster"
    return (blocks.Name(row.name), *row.cells, which, change_words.in_both(row.parts[0], sides))


def findings(found: RuntimeComparison) -> list[str]:
    """Return the lines of the model that ExecuTorch does more slowly than another runtime, a sentence each."""
    base = _baseline(found)
    if base is None or base.runtime != EXECUTORCH:
        return []
    said = []
    for row in found.rows:
        if row.changes is None or row.comparison is None or not row.comparison.reliable:
            continue
        lines, sides = slower_lines(row.changes), (row.changes.before, row.changes.after)
        said += [_finding(line, sides) for line in lines[:_MOST_FINDINGS]]
        if (left := len(lines) - _MOST_FINDINGS) > 0:
            said.append(f"{sides[0]} takes longer than {sides[1]} at {counted(left, 'more line')}")
    return said


def _finding(line: SlowerLine, sides: tuple[str, str]) -> str:
    first, modules = line.parts[0], {part.module for part in line.parts}
    did = next((aspect for aspect in first.aspects if aspect.what == "operators"), None)
    both = did is not None and did.before and did.after
    what = f" for `{did.before}` (`{did.after}` there)" if did is not None and both else ""
    where = f"in {len(modules)} modules" if len(modules) > 1 else f"in `{first.module}`" if first.module else ""
    ratio, least = (f"{each:.0f}" if each >= 10 else f"{each:.1f}" for each in (line.ratio, line.least))
    ms = f"{numbers.ms(line.before_ms)} against {numbers.ms(line.after_ms)}, profiled; at least {least} times"
    place = " ".join(filter(None, [f"at {first.source_line}", where]))
    end = "" if both else f": {change_words.in_both(first, sides)}"
    return f"{sides[0]} takes {ratio} times as long as {sides[1]}{what} {place} ({ms}){end}"
