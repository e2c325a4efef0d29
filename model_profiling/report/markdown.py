"""Markdown: the pipeline summary, short enough to paste."""

import re
from typing import TYPE_CHECKING

from model_profiling.report import metric_columns, numbers
from model_profiling.report.words import agreement_sentence, comparison_sentence, worth

if TYPE_CHECKING:
    from model_profiling.analysis.run.run_view import RunView


def pipeline_summary(run: "RunView") -> str:
    """`<model_stem>_pipeline_summary.md`: headline, latency, categories, advice, environment."""
    from model_profiling.report.content.threads import sentences as thread_sentences  # which needs `text`

    manifest, summary, metrics = run.manifest, run.summary, run.metrics
    partial = ", partial run" if any(record.partial for record in manifest.experiments.values()) else ""
    lines = [f"# {text(summary.model)} on {text(summary.platform)}{partial}", ""]
    lines += [f"- {text(run.labelled(comparison_sentence(comparison)))}" for comparison in metrics.comparisons]
    lines += [f"- {text(comparison.shift.sentence)}" for comparison in summary.comparisons]
    lines += [f"- threads, {text(sentence)}" for sentence in thread_sentences(run)]
    lines += [f"- outputs: {text(run.labelled(agreement_sentence(agreement)))}" for agreement in metrics.agreements]
    if summary.timing == "measured":
        lines += _advice(run)
        lines += ["", "## Latency", "", *_latency(run), "", "## Where the time goes", "", *_categories(run)]
    for name, experiment in summary.experiments.items():
        if experiment.coverage is not None:
            lines += [f"- {text(run.label(name))}: {text(experiment.coverage.headline)} (`kernel_view.md` has each)"]
    environment = manifest.environment
    lines += ["", f"CPU: {text(str(environment.get('cpu', environment.get('arch'))))}."]
    lines += [f"Model SHA-256: `{manifest.model.sha256}`."]
    lines += [f"Note: {text(run.labelled(note))}." for note in summary.notes]
    return "\n".join(lines) + "\n"


def _latency(run: "RunView") -> list[str]:
    columns = metric_columns.columns("short", phases=bool(run.phases))
    lines = [row(["experiment", "status", "switched off", *metric_columns.labels(columns), "latency from"])]
    lines += ["|---|---|---|" + "---:|" * len(columns) + "---|"]
    for name, measured in run.metrics.experiments.items():
        cells = [column.text(measured) for column in columns]
        lines.append(
            row(
                [
                    run.label(name),
                    measured.status,
                    metric_columns.switched_off(measured),
                    *cells,
                    measured.latency_source,
                ]
            )
        )
    return lines


def _categories(run: "RunView") -> list[str]:
    found = {name: experiment.breakdown for name, experiment in run.summary.experiments.items()}
    if not found:
        return ["Nothing was measured."]
    lines = [row(["category", *map(run.label, found)]), "|---|" + "---:|" * len(found)]
    for category in [entry.category for entry in next(iter(found.values())).categories]:
        entries = [breakdown.category(category) for breakdown in found.values()]
        if any(entry.ms for entry in entries):
            lines.append(row([category, *(f"{numbers.ms(entry.ms)} ({entry.share:.1%})" for entry in entries)]))
    totals = [numbers.ms(breakdown.execute_ms) for breakdown in found.values()]
    return [*lines, row(["Method::execute (traced)", *totals])]


def _advice(run: "RunView") -> list[str]:
    lines = []
    for name in run.of_interest:
        findings = run.summary.experiments[name].advice
        if findings:
            lines += ["", f"## What to do next ({text(run.label(name))})", ""]
        for place, finding in enumerate(findings, 1):
            told = f"**{text(finding.title)}** ({text(worth(finding))})"
            lines.append(f"{place}. {told}. {text(finding.next_step)}")
    return lines


def row(cells: list[str]) -> str:
    return "| " + " | ".join(text(cell) for cell in cells) + " |"


# A word that is an identifier, an option or a path (it has an underscore, a dot or colons within, or begins with
# dashes), with the punctuation around it.
_TELLING = r"(?=--[a-z]|[^_\s]*_|[\w/:~-]*(?:[A-Za-z]\w+\.[A-Za-z]\w|\w::\w))"
_IDENTIFIER = re.compile(rf"""([("']*)({_TELLING}[\w./:~+@=-]+?)([)"'.,;:!?]*)""")
# What the kit itself writes as code; a name in it is as harmless there as elsewhere.
_CODE = re.compile(r"`([^`<>|]+)`")


def text(value: str) -> str:
    """Make untrusted text plain in Markdown: no markup, no table breaks, no new lines; identifiers as code."""
    # Splitting by a pattern with one group alternates between what is around it and the group.
    parts = _CODE.split(" ".join(value.split()))
    words = "".join(code(part) if number % 2 else _words(part) for number, part in enumerate(parts))
    return f"\\{words}" if words.startswith("#") else words


def _words(value: str) -> str:
    return " ".join(_word(word) for word in value.split(" "))


def _word(word: str) -> str:
    found = _IDENTIFIER.fullmatch(word)
    return f"{found[1]}`{found[2]}`{found[3]}" if found and found[2] else _escaped(word)


def _escaped(value: str) -> str:
    for character in "\\`*_{}[]<>|":
        value = value.replace(character, "\\" + character)
    return value


def code(value: str) -> str:
    """Untrusted text as code in a table or a sentence; nothing in it can end the code or the cell."""
    value = " ".join(value.split())
    if not value:
        return ""
    if any(character in value for character in "`<>|"):
        return _escaped(value)
    return f"`{value}`"
