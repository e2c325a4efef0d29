"""The job summary: Markdown that a CI system shows above the log."""

from collections.abc import Iterator, Sequence

from model_profiling.analysis.compare.comparison import PairComparison
from model_profiling.gates.verdict import Gate, Judgement, conclusion
from model_profiling.report import markdown, metric_columns, numbers
from model_profiling.report.blocks import Block, Bullets, Number, Paragraph, Report, Row, Section, Table
from model_profiling.report.change_words import difference_rows
from model_profiling.report.words import comparison_sentence, memory_sentence, startup_sentence

_MOST_CHANGES = 3
_MARKS = {"passed": "pass", "failed": "FAIL", "unsure": "unsure"}


def job_summary(results: Sequence[PairComparison], judgements: list[Judgement], strict: bool = False) -> str:
    """Return the verdict first, then each comparison in a row, then what changed inside: lines, and categories."""
    title = "Performance" if not judgements else f"Performance gate: {conclusion(judgements, strict)}"
    verdicts: list[Block] = [Bullets([judgement.sentence for judgement in judgements])] if judgements else []
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
    rows: list[Row] = [
        (
            row.name,
            Number(numbers.ms(row.before_ms), row.before_ms),
            Number(numbers.ms(row.after_ms), row.after_ms),
            row.difference,
        )
        for row in listed
    ]
    table = Table("changes", ("line", "before", "after", "difference (95 % interval)"), rows)
    blocks: list[Block] = [table, Bullets([row.what for row in listed if row.what]), *map(Paragraph, changes.notes)]
    return [Section("changes", f"{result.latency.after}: what changed most (traced)", blocks)]


def _details(result: PairComparison) -> Section:
    profile = result.profile
    rows: list[Row] = [
        (
            change.name,
            Number(f"{change.before_ms:.3f}", change.before_ms),
            Number(f"{change.after_ms:.3f}", change.after_ms),
            Number(f"{change.before_share:.0%}", change.before_share),
            Number(f"{change.after_share:.0%}", change.after_share),
        )
        for change in (*profile.categories, profile.execute)
        if change.before_ms or change.after_ms
    ]
    table = Table("categories", ("category", "before ms", "after ms", "share before", "after"), rows)
    blocks: list[Block] = [*_metrics(result), Paragraph(profile.shift.sentence), table]
    return Section("categories", f"{result.latency.after}: where the time goes", blocks, folded=True)


def comparison_title(result: PairComparison, gate: Gate) -> str:
    """Return what was compared, in words."""
    if gate == "start-up" and result.startup is not None:
        return startup_sentence(result.startup)
    if gate == "peak memory" and result.memory is not None:
        return memory_sentence(result.memory)
    return comparison_sentence(result.latency)


def _metrics(result: PairComparison) -> list[Table]:
    """Return the metrics of both sides, where both are known."""
    before, after = result.before, result.after
    if before is None or after is None:
        return []
    columns = metric_columns.columns("short", "full", phases=after.phase is not None)
    rows: list[Row] = [(column.described, column.number(before), column.number(after)) for column in columns]
    return [Table("metrics", ("metric", "before", "after"), rows)]
