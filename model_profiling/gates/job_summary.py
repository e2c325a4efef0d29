"""The job summary: Markdown that a CI system shows above the log."""

import html

from model_profiling.analysis.comparison import ProfileComparison
from model_profiling.analysis.latency import Comparison
from model_profiling.gates.verdict import Judgement
from model_profiling.report.markdown import row, text
from model_profiling.report.words import comparison_sentence

_MARKS = {"passed": "pass", "failed": "FAIL", "unsure": "unsure"}


def job_summary(results: list[tuple[Comparison, ProfileComparison]], judgements: list[Judgement]) -> str:
    """The verdict first, then each comparison in a row, then what changed inside, category by category."""
    failed = [judgement for judgement in judgements if judgement.failed]
    title = "Performance" if not judgements else f"Performance gate: {'failed' if failed else 'passed'}"
    lines = [f"## {title}", ""]
    lines += [f"- {text(judgement.sentence)}" for judgement in judgements]
    lines += ["", row(["experiment", "gate", "result"]), "|---|---|---|"]
    judged = {id(judgement.comparison): judgement for judgement in judgements}
    for latency, _ in results:
        judgement = judged.get(id(latency))
        mark = "-" if judgement is None else _MARKS[judgement.outcome]
        lines.append(row([latency.after, mark, comparison_sentence(latency)]))
    for latency, profile in results:
        lines += ["", f"<details><summary>{html.escape(latency.after)}: where the time goes</summary>", ""]
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
