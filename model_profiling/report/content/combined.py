"""Several runs side by side: platforms, dtypes, devices or models, as Markdown with pictures and as one page."""

import os
from collections import Counter
from collections.abc import Sequence
from pathlib import Path

from model_profiling.analysis.run.run_view import RunView
from model_profiling.report import charts, metric_columns, numbers
from model_profiling.report.blocks import Bullets, Paragraph, Picture, Report, Row, Section, Table, bullets
from model_profiling.report.content import threads
from model_profiling.report.content.first_screen import title
from model_profiling.report.content.method import cpu
from model_profiling.report.drawing.theme import Theme
from model_profiling.report.words import comparison_sentence


def report(runs: Sequence[RunView], title: str = "") -> Report:
    sections = [_movers(runs), _speed(runs), _threads(runs), _shares(runs), _machines(runs)]
    subtitle = " · ".join(dict.fromkeys(run.summary.model for run in runs))
    found = [section for section in sections if section is not None]
    return Report(title or f"{len(runs)} runs side by side", subtitle, _sentences(runs), found)


def names(runs: Sequence[RunView], short: bool = False) -> list[str]:
    """Return what to call each run: model and platform, and its CPU or else its directory where these do not tell it
    from others. In pictures, where there is little room, the `short` ones: the model, or else the directory."""
    paths = [str(run.path.resolve()) for run in runs]
    # Without what all of them have in common.
    home = os.path.commonpath(paths)
    found = []
    for run, path in zip(runs, paths, strict=True):
        whole, place = title(run), os.path.relpath(path, home) if path != home else Path(path).name
        longer = [whole, f"{whole}, {cpu(run)}", f"{whole} ({place})"]
        found.append([run.summary.model, place] if short else longer)
    often = Counter(name for each in found for name in each)
    return [next((name for name in each if often[name] == 1), each[-1]) for each in found]


def pictures_of(runs: Sequence[RunView], width: int, theme: Theme) -> dict[str, charts.Spec]:
    """Return speedups with intervals, and categories of every compared experiment."""
    found: dict[str, charts.Spec] = {}
    speed, parts = [], []
    for name, run in zip(names(runs, short=True), runs, strict=True):
        if not run.measured:
            continue
        for c in run.summary.metrics.comparisons if run.summary.metrics else []:
            if c.high is not None:
                unsure = "" if c.reliable else " (busy machine)"
                speed.append((f"{name}: {run.sides(c.before, c.after)[1]}{unsure}", c.ratio, c.low, c.high))
        experiments = run.summary.experiments
        parts += [(f"{name}: {label}", experiments[e].breakdown.ms_by_category) for e, label in _labelled(run)]
    if speed:
        found["speedups"] = charts.speedups(speed[: charts.MOST_ROWS], width, theme, "")
    if parts:
        found["shift"] = charts.shift(parts[: charts.MOST_ROWS], width, theme, "")
    return found


def _first(runs: Sequence[RunView]) -> str:
    """Say that a picture has no room for all runs."""
    experiments = sum(len(_labelled(run)) for run in runs if run.measured)
    return f" No more than the first {charts.MOST_ROWS}; the table has all." if experiments > charts.MOST_ROWS else ""


def _labelled(run: RunView) -> list[tuple[str, str]]:
    """Return experiments with their short names, each once."""
    labels: dict[str, str] = {}
    for comparison in run.summary.comparisons:
        pair = (comparison.before, comparison.after)
        labels.update(dict(zip(pair, run.sides(*pair), strict=True)))
    labels.update({name: run.label(name) for name in run.alone})
    return list(labels.items())


def _sentences(runs: Sequence[RunView]) -> list[str]:
    found = []
    for name, run in zip(names(runs), runs, strict=True):
        metrics = run.summary.metrics
        said = [run.labelled(comparison_sentence(run.told(c))) for c in metrics.comparisons] if metrics else []
        said = said or ["nothing was compared"] if run.measured else ["emulated, so it has no times"]
        found += [f"{name}: {each}." for each in said]
    return found


def _speed(runs: Sequence[RunView]) -> Section | None:
    columns = metric_columns.columns("short", phases=any(run.phases for run in runs))
    rows: list[Row] = []
    for name, run in zip(names(runs), runs, strict=True):
        metrics = run.summary.metrics
        for experiment, measured in metrics.experiments.items() if metrics and run.measured else []:
            if measured.latency:
                rows.append((name, run.label(experiment), *(column.number(measured) for column in columns)))
    said = f"How many times faster the accelerated experiment of each run is; lines are 95 % intervals.{_first(runs)}"
    table = Table("latency", ("run", "experiment", *metric_columns.labels(columns)), rows)
    return Section("latency", "Latency", [table, Picture("speedups", said)]) if rows else None


def _threads(runs: Sequence[RunView]) -> Section | None:
    """Return every number of threads of the runs that measured several."""
    rows: list[Row] = []
    said = []
    for name, run in zip(names(runs), runs, strict=True):
        for side, curve in run.thread_curves:
            rows += [(name, side, *threads.cells(point)) for point in curve.points]
        said += [f"{name}: {sentence}." for sentence in threads.sentences(run)]
    table = Table("threads", ("run", "", *threads.COLUMNS), rows)
    return Section("threads", "Threads", [Bullets(said), table]) if rows else None


def _shares(runs: Sequence[RunView]) -> Section | None:
    rows: list[Row] = []
    sentences = []
    breakdowns = [run.summary.experiments[n].breakdown for run in runs if run.measured for n, _ in _labelled(run)]
    used = dict.fromkeys(entry.category for b in breakdowns for entry in b.categories)
    order = [category for category in used if any(b.category(category).ms for b in breakdowns)]
    for name, run in zip(names(runs), runs, strict=True):
        if not run.measured:
            continue
        sentences += [f"{name}: {comparison.shift.sentence}" for comparison in run.summary.comparisons]
        for experiment, label in _labelled(run):
            breakdown = run.summary.experiments[experiment].breakdown
            parts = [breakdown.category(category) for category in order]
            shares = [numbers.share_cell(entry.share) for entry in parts]
            rows.append((name, label, numbers.ms_cell(breakdown.execute_ms), *shares))
    picture = Picture("shift", f"Time by category of operator, traced.{_first(runs)}")
    table = Table("categories", ("run", "experiment", "Method::execute", *order), rows)
    return Section("categories", "Where the time goes", [*bullets(sentences), picture, table]) if rows else None


def _movers(runs: Sequence[RunView]) -> Section | None:
    """Return what to do next, run by run: the first finding."""
    rows: list[Row] = []
    for name, run in zip(names(runs), runs, strict=True):
        for experiment in run.of_interest if run.measured else []:
            for finding in run.summary.experiments[experiment].advice[:1]:
                # Of start-up or memory with what was measured.
                cost = f" ({finding.measured})" if finding.measured else ""
                rows.append((name, f"{finding.title}{cost}", finding.next_step))
    return Section("advice", "What to do next", [Table("advice", ("run", "finding", "next"), rows)]) if rows else None


def _machines(runs: Sequence[RunView]) -> Section:
    rows: list[Row] = []
    for name, run in zip(names(runs), runs, strict=True):
        failed = [experiment for experiment, record in run.manifest.experiments.items() if record.status != "ok"]
        versions = {record.runner.executorch_name for record in run.manifest.experiments.values()} - {""}
        digest = run.manifest.model.sha256[:16]
        rows.append((name, cpu(run), run.manifest.timing, ", ".join(failed) or "none", ", ".join(versions), digest))
    columns = ("run", "CPU", "timing", "failed", "ExecuTorch", "model SHA-256, first 16 digits")
    note = "Runs were measured separately: compare ratios between them, and absolute times only with care."
    return Section("environment", "Machines", [Table("machines", columns, rows), Paragraph(note)])
