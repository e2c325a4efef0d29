"""The job summary: Markdown that a CI system shows above the log."""

import html
from collections.abc import Sequence

from model_profiling.analysis.comparison import PairComparison
from model_profiling.gates.verdict import Judgement
from model_profiling.report import metric_columns
from model_profiling.report.markdown import row, text
from model_profiling.report.words import comparison_sentence

_MARKS = {"passed": "pass", "failed": "FAIL", "unsure": "unsure"}


def job_summary(results: Sequence[PairComparison], judgements: list[Judgement]) -> str:
    """The verdict first, then each comparison in a row, then what changed inside, category by category."""
    failed = [judgement for judgement in judgements if judgement.failed]
    title = "Performance" if not judgements else f"Performance gate: {'failed' if failed else 'passed'}"
    lines = [f"## {title}", ""]
    lines += [f"- {text(judgement.sentence)}" for judgement in judgements]
    lines += ["", row(["experiment", "gate", "result"]), "|---|---|---|"]
    judged = {id(judgement.comparison): judgement for judgement in judgements}
    for result in results:
        judgement = judged.get(id(result.latency))
        mark = "-" if judgement is None else _MARKS[judgement.outcome]
        lines.append(row([result.latency.after, mark, comparison_sentence(result.latency)]))
    for result in results:
        profile = result.profile
        lines += ["", f"<details><summary>{html.escape(result.latency.after)}: where the time goes</summary>", ""]
        lines += _metrics(result)
        lines += [text(profile.shift.sentence), "", row(["category", "before ms", "after ms", "share before", "after"])]
        lines += ["|---|---:|---:|---:|---:|"]
        lines += [
            row(
                [
                    change.name,
                    f"{change.before_ms:.3f}",
                    f"{change.after_ms:.3f}",
                    f"{change.before_share:.0%}",
                    f"{change.after_share:.0%}",
                ]
            )
            for change in (*profile.categories, profile.execute)
            if change.before_ms or change.after_ms
        ]
        lines += ["", "</details>"]
    return "\n".join(lines) + "\n"


def _metrics(result: PairComparison) -> list[str]:
    """The metrics of both sides, where both are known."""
    if result.before is None or result.after is None:
        return []
    columns = metric_columns.columns("short", "full")
    rows = [row([column.described, column.text(result.before), column.text(result.after)]) for column in columns]
    return [row(["metric", "before", "after"]), "|---|---:|---:|", *rows, ""]
