"""The job summary: Markdown that a CI system shows above the log."""

import html
from collections.abc import Sequence

from model_profiling.analysis.compare.comparison import PairComparison
from model_profiling.gates.verdict import Gate, Judgement, conclusion
from model_profiling.report import metric_columns
from model_profiling.report.markdown import row, text
from model_profiling.report.words import comparison_sentence, memory_sentence, startup_sentence

_MARKS = {"passed": "pass", "failed": "FAIL", "unsure": "unsure"}


def job_summary(results: Sequence[PairComparison], judgements: list[Judgement], strict: bool = False) -> str:
    """The verdict first, then each comparison in a row, then what changed inside, category by category."""
    title = "Performance" if not judgements else f"Performance gate: {conclusion(judgements, strict)}"
    lines = [f"## {title}", ""]
    lines += [f"- {text(judgement.sentence)}" for judgement in judgements]
    lines += ["", row(["experiment", "gate", "result"]), "|---|---|---|"]
    for result in results:
        mine = {judgement.gate: judgement for judgement in judgements if judgement.of(result)}
        judged = mine.pop("latency", None)
        mark = "-" if judged is None else _MARKS[judged.outcome]
        lines.append(row([result.latency.after, mark, comparison_sentence(result.latency)]))
        for gate, judgement in mine.items():
            lines.append(row([result.latency.after, f"{_MARKS[judgement.outcome]}: {gate}", said(result, gate)]))
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


def said(result: PairComparison, gate: Gate) -> str:
    """What was compared, in words."""
    if gate == "start-up" and result.startup is not None:
        return startup_sentence(result.startup)
    if gate == "peak memory" and result.memory is not None:
        return memory_sentence(result.memory)
    return comparison_sentence(result.latency)


def _metrics(result: PairComparison) -> list[str]:
    """The metrics of both sides, where both are known."""
    if result.before is None or result.after is None:
        return []
    columns = metric_columns.columns("short", "full", phases=result.after.phase is not None)
    rows = [row([column.described, column.text(result.before), column.text(result.after)]) for column in columns]
    return [row(["metric", "before", "after"]), "|---|---:|---:|", *rows, ""]
