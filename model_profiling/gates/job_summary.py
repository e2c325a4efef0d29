"""The job summary: Markdown that a CI system shows above the log."""

from collections.abc import Iterator, Sequence

from model_profiling.analysis.compare.comparison import PairComparison
from model_profiling.gates.verdict import Gate, Judgement, conclusion
from model_profiling.report import markdown, metric_columns
from model_profiling.report.blocks import Block, Bullets, Number, Paragraph, Report, Row, Section, Table
from model_profiling.report.words import comparison_sentence, memory_sentence, startup_sentence

_MARKS = {"passed": "pass", "failed": "FAIL", "unsure": "unsure"}


def job_summary(results: Sequence[PairComparison], judgements: list[Judgement], strict: bool = False) -> str:
    """Return the verdict first, then each comparison in a row, then what changed inside, category by category."""
    title = "Performance" if not judgements else f"Performance gate: {conclusion(judgements, strict)}"
    verdicts: list[Block] = [Bullets([judgement.sentence for judgement in judgements])] if judgements else []
    rows = [row for result in results for row in _rows(result, judgements)]
    first = Section("gates", "", [*verdicts, Table("gates", ("experiment", "gate", "result"), rows)])
    return markdown.render(Report(title, "", [], [first, *map(_details, results)]), level=2)


def _rows(result: PairComparison, judgements: list[Judgement]) -> Iterator[Row]:
    mine = {judgement.gate: judgement for judgement in judgements if judgement.of(result)}
    judged = mine.pop("latency", None)
    mark = "-" if judged is None else _MARKS[judged.outcome]
    yield result.latency.after, mark, comparison_sentence(result.latency)
    for gate, judgement in mine.items():
        yield result.latency.after, f"{_MARKS[judgement.outcome]}: {gate}", comparison_title(result, gate)


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
