"""`<model_stem>_pipeline_summary.md`: headline, latency, categories, advice, environment; short enough to paste."""

from typing import TYPE_CHECKING

from model_profiling.report import markdown, metric_columns, numbers
from model_profiling.report.blocks import AdviceBlock, Block, Bullets, Number, Paragraph, Report, Row, Section, Table
from model_profiling.report.words import agreement_sentence, comparison_sentence

if TYPE_CHECKING:
    from model_profiling.analysis.run.run_view import RunView


def pipeline_summary(run: "RunView") -> str:
    """Return the summary as Markdown."""
    from model_profiling.report.content.headline import title  # which loads every section of a report

    sections = [_headline(run)]
    if run.summary.timing == "measured":
        sections += [*_advice(run), Section("latency", "Latency", [_latency(run)])]
        sections += [Section("categories", "Where the time goes", [_categories(run)])]
    return markdown.render(Report(title(run), "", [], [*sections, _remarks(run)]))


def _headline(run: "RunView") -> Section:
    from model_profiling.report.content import threads

    items = [run.labelled(comparison_sentence(comparison)) for comparison in run.metrics.comparisons]
    items += [comparison.shift.sentence for comparison in run.summary.comparisons]
    items += [f"threads, {sentence}" for sentence in threads.sentences(run)]
    items += [f"outputs: {run.labelled(agreement_sentence(agreement))}" for agreement in run.metrics.agreements]
    return Section("headline", "", [Bullets(items)] if items else [])


def _advice(run: "RunView") -> list[Section]:
    found = []
    for name in run.of_interest:
        advice = run.summary.experiments[name].advice
        blocks: list[Block] = [
            AdviceBlock(finding.title, finding.measured, [], finding.next_step) for finding in advice
        ]
        if blocks:
            found.append(Section("advice", f"What to do next ({run.label(name)})", blocks))
    return found


def _latency(run: "RunView") -> Table:
    columns = metric_columns.columns("short", phases=bool(run.phases))
    names = ("experiment", "status", "switched off", *metric_columns.labels(columns), "latency from")
    rows: list[Row] = []
    for name, measured in run.metrics.experiments.items():
        cells = [column.number(measured) for column in columns]
        off = metric_columns.disabled_features(measured)
        rows.append((run.label(name), measured.status, off, *cells, measured.latency_source))
    return Table("latency", names, rows)


def _categories(run: "RunView") -> Block:
    found = {name: experiment.breakdown for name, experiment in run.summary.experiments.items()}
    if not found:
        return Paragraph("Nothing was measured.")
    rows: list[Row] = []
    for category in [entry.category for entry in next(iter(found.values())).categories]:
        entries = [breakdown.category(category) for breakdown in found.values()]
        if any(entry.ms for entry in entries):
            rows.append((category, *(Number(f"{numbers.ms(e.ms)} ({e.share:.1%})", e.ms) for e in entries)))
    totals = [Number(numbers.ms(breakdown.execute_ms), breakdown.execute_ms) for breakdown in found.values()]
    rows.append(("Method::execute (traced)", *totals))
    return Table("categories", ("category", *map(run.label, found)), rows)


def _remarks(run: "RunView") -> Section:
    """Return kernels, machine and program."""
    covered = [
        f"{run.label(name)}: {experiment.coverage.headline} (`kernel_view.md` has each)"
        for name, experiment in run.summary.experiments.items()
        if experiment.coverage is not None
    ]
    environment = run.manifest.environment
    said = [f"CPU: {environment.get('cpu', environment.get('arch'))}."]
    said += [f"Model SHA-256: `{run.manifest.model.sha256}`."]
    said += [f"Note: {run.labelled(note)}." for note in run.summary.notes]
    blocks: list[Block] = [Bullets(covered)] if covered else []
    return Section("remarks", "", [*blocks, *map(Paragraph, said)])
