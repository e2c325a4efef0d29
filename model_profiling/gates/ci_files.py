"""What CI systems read of a comparison: Markdown that they show above the log, and JUnit XML, shown as test results."""

import xml.etree.ElementTree as ET
from collections.abc import Callable, Iterator, Sequence

from model_profiling.analysis.compare.comparison import Change, PairComparison
from model_profiling.base.visible import visible
from model_profiling.gates.verdict import Gate, Judgement, conclusion
from model_profiling.report import markdown, metric_columns
from model_profiling.report.blocks import Block, Bullets, Cell, Number, Paragraph, Report, Row, Section, Table, bullets
from model_profiling.report.change_words import difference_rows
from model_profiling.report.words import comparison_sentence, memory_sentence, metric_sentence, startup_sentence

_MOST_CHANGES = 3
_MARKS = {"passed": "pass", "failed": "FAIL", "unsure": "unsure"}


def job_summary(results: Sequence[PairComparison], judgements: list[Judgement], strict: bool = False) -> str:
    """Return the verdict first, then each comparison in a row, then what changed inside: lines, and categories."""
    title = "Performance" if not judgements else f"Performance gate: {conclusion(judgements, strict)}"
    verdicts = bullets(judgement.sentence for judgement in judgements)
    rows = [row for result in results for row in _rows(result, judgements)]
    first = Section("gates", "", [*verdicts, Table("gates", ("experiment", "gate", "result"), rows)])
    sections = [section for result in results for section in (*_changes(result), _details(result))]
    return markdown.render(Report(title, "", [], [first, *sections]), level=2)


def _rows(result: PairComparison, judgements: list[Judgement]) -> Iterator[Row]:
    mine = {judgement.gate: judgement for judgement in judgements if judgement.of(result)}
    judged = mine.pop("latency", None)
    mark = "-" if judged is None else _MARKS[judged.outcome]
    yield result.latency.after, mark, comparison_sentence(result.latency)
    for gate, judgement in mine.items():
        yield result.latency.after, f"{_MARKS[judgement.outcome]}: {gate}", comparison_title(result, gate)


def _changes(result: PairComparison) -> list[Section]:
    """Return the largest changes of modules and lines, adding up to the whole; nothing where none differs."""
    changes = result.changes
    if changes is None or not changes.different:
        return []
    listed = difference_rows(changes, _MOST_CHANGES)
    rows: list[Row] = [(row.name, *row.cells[:2], row.difference) for row in listed]
    table = Table("changes", ("line", "before", "after", "difference (95 % interval)"), rows)
    blocks: list[Block] = [table, Bullets([row.what for row in listed if row.what]), *map(Paragraph, changes.notes)]
    return [Section("changes", f"{result.latency.after}: what changed most (traced)", blocks)]


def _details(result: PairComparison) -> Section:
    profile = result.profile
    columns: dict[str, Callable[[Change], Cell]] = {
        "category": lambda change: change.name,
        "before ms": lambda change: Number(f"{change.before_ms:.3f}", change.before_ms),
        "after ms": lambda change: Number(f"{change.after_ms:.3f}", change.after_ms),
        "share before": lambda change: Number(f"{change.before_share:.0%}", change.before_share),
        "after": lambda change: Number(f"{change.after_share:.0%}", change.after_share),
    }
    every = (*profile.categories, profile.execute)
    table = Table.of("categories", columns, (each for each in every if each.before_ms or each.after_ms))
    blocks: list[Block] = [*_metrics(result), Paragraph(profile.shift.sentence), table]
    return Section("categories", f"{result.latency.after}: where the time goes", blocks, folded=True)


def comparison_title(result: PairComparison, gate: Gate) -> str:
    """Return what was compared, in words."""
    if gate == "start-up" and result.startup is not None:
        return startup_sentence(result.startup)
    if gate == "peak memory" and result.memory is not None:
        return memory_sentence(result.memory)
    if gate == "metric" and result.metric is not None:
        return metric_sentence(result.metric)
    return comparison_sentence(result.latency)


def _metrics(result: PairComparison) -> list[Table]:
    """Return the metrics of both sides, where both are known."""
    before, after = result.before, result.after
    if before is None or after is None:
        return []
    columns = metric_columns.columns("short", "full", phases=after.phase is not None)
    rows: list[Row] = [(column.described, column.number(before), column.number(after)) for column in columns]
    return [Table("metrics", ("metric", "before", "after"), rows)]


def junit_xml(results: Sequence[PairComparison], judgements: list[Judgement]) -> str:
    """Return each comparison as a test case; one that no gate judged passes and only says what it saw. What start-up
    and memory are judged for are cases of their own."""
    suite = ET.Element("testsuite", name="sme2-kit compare")
    for result in results:
        mine = {judgement.gate: judgement for judgement in judgements if judgement.of(result)}
        _add_metrics(_add_case(suite, result, "latency", mine.pop("latency", None)), result)
        for gate, judgement in mine.items():
            _add_case(suite, result, gate, judgement)
    counts = {"tests": len(suite), "failures": sum(judgement.failed for judgement in judgements), "errors": 0}
    for name, count in counts.items():
        suite.set(name, str(count))
    ET.indent(suite)
    return '<?xml version="1.0" encoding="UTF-8"?>\n' + ET.tostring(suite, encoding="unicode") + "\n"


def _add_case(suite: ET.Element, result: PairComparison, gate: Gate, judgement: Judgement | None) -> ET.Element:
    comparison = result.latency
    what = "" if gate == "latency" else f": {gate}"
    name = visible(f"{comparison.after} against {comparison.before}{what}")
    case = ET.SubElement(suite, "testcase", classname="sme2-kit.compare", name=name)
    told = comparison_title(result, gate)
    if judgement is not None and judgement.failed:
        ET.SubElement(case, "failure", message=visible(judgement.sentence)).text = visible(told)
    output = told if judgement is None else f"{told}\n{judgement.sentence}"
    ET.SubElement(case, "system-out").text = visible(output)
    return case


def _add_metrics(case: ET.Element, result: PairComparison) -> None:
    """Add the metrics of both sides as properties: CI systems show them, and some draw them over time."""
    if result.before is None or result.after is None:
        return
    properties = ET.Element("properties")
    case.insert(0, properties)
    for side, measured in (("before", result.before), ("after", result.after)):
        for column in metric_columns.columns("short", "full", phases=True):
            value = column.value(measured)
            if value is not None:
                ET.SubElement(properties, "property", name=f"{side}.{column.key}", value=repr(value))
