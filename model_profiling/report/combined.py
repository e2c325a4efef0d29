"""Several runs side by side: platforms, dtypes, devices or models, as Markdown with pictures and as one page."""

import os
from collections import Counter
from collections.abc import Sequence
from pathlib import Path

from model_profiling.analysis.run.run_view import RunView
from model_profiling.base import files
from model_profiling.report import charts, markdown, metric_columns, numbers
from model_profiling.report.blocks import Block, Bullets, Cell, Number, Paragraph, Picture, Report, Section, Table
from model_profiling.report.content import threads
from model_profiling.report.content.headline import cpu, title
from model_profiling.report.drawing.drawing_pool import DrawingPool
from model_profiling.report.drawing.theme import LIGHT, Theme
from model_profiling.report.files import report_files
from model_profiling.report.words import comparison_sentence, with_cost
from model_profiling.store.derived import embed_stamp

OUTPUT = Path("combined_report.md")
_MADE_FROM = "everything here can be made again from the run directories."


def write(
    runs: Sequence[RunView], artist: DrawingPool, output: Path | None, title: str = "", page: bool = False
) -> list[Path]:
    """Write the report, by default into the current directory, and with `page` the page beside it.

    A name that ends in .html asks for the page and nothing else.
    """
    output = output or OUTPUT
    only_page = output.suffix == ".html"
    drawings = {name: artist.draw(spec) for name, spec in pictures_of(runs, charts.WIDE, LIGHT).items()}
    narrow = pictures_of(runs, charts.NARROW, LIGHT) if page or only_page else {}
    small = {name: artist.svg(spec) for name, spec in narrow.items()}
    made = report(runs, title)

    def write_stamped(path: Path, data: bytes) -> None:
        files.write_bytes(path, embed_stamp(data, path.suffix, [run.sources for run in runs]))

    written = []
    if not only_page:
        pictures = report_files.write_pictures(drawings, output, write_stamped)
        write_stamped(output, files.text_bytes(markdown.render(made, pictures)))
        written.append(output)
    if page or only_page:
        from model_profiling.report import html  # jinja2 takes a moment to load

        figures = {name: (drawings[name].result().svg, future.result()) for name, future in small.items()}
        written.append(output.with_suffix(".html"))
        write_stamped(written[-1], files.text_bytes(html.overview(made, figures, _MADE_FROM)))
    return written


def report(runs: Sequence[RunView], title: str = "") -> Report:
    sections = [_movers(runs), _speed(runs), _threads(runs), _shares(runs), _machines(runs)]
    subtitle = " · ".join(dict.fromkeys(run.summary.model for run in runs))
    found = [section for section in sections if section is not None]
    return Report(title or f"{len(runs)} runs side by side", subtitle, _sentences(runs), found)


def names(runs: Sequence[RunView], short: bool = False) -> list[str]:
    """Return what to call each run: model and platform, and its CPU or else its directory where these do not tell it
    from others. In pictures, where there is little room, the `short` ones: the model, or else the directory."""
    places = _directories(runs)
    found = []
    for run, place in zip(runs, places, strict=True):
        whole = title(run)
        longer = [whole, f"{whole}, {cpu(run)}", f"{whole} ({place})"]
        found.append([run.summary.model, place] if short else longer)
    often = Counter(name for each in found for name in each)
    return [next((name for name in each if often[name] == 1), each[-1]) for each in found]


def _directories(runs: Sequence[RunView]) -> list[str]:
    """Return run directories without what all of them have in common."""
    paths = [str(run.path.resolve()) for run in runs]
    home = os.path.commonpath(paths)
    return [os.path.relpath(path, home) if path != home else Path(path).name for path in paths]


def pictures_of(runs: Sequence[RunView], width: int, theme: Theme) -> dict[str, charts.Spec]:
    """Return speedups with intervals, and categories of every compared experiment."""
    found: dict[str, charts.Spec] = {}
    speed, parts = [], []
    for name, run in zip(names(runs, short=True), runs, strict=True):
        if not run.measured:
            continue
        for comparison in run.summary.metrics.comparisons if run.summary.metrics else []:
            if comparison.high is not None:
                after = run.sides(comparison.before, comparison.after)[1]
                unsure = "" if comparison.reliable else " (busy machine)"
                speed.append((f"{name}: {after}{unsure}", comparison.ratio, comparison.low, comparison.high))
        parts += [
            (f"{name}: {label}", run.summary.experiments[experiment].breakdown.ms_by_category)
            for experiment, label in _labelled(run)
        ]
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
        if not run.measured:
            found.append(f"{name}: emulated, so it has no times.")
        elif run.summary.metrics and run.summary.metrics.comparisons:
            found += [f"{name}: {run.labelled(comparison_sentence(c))}." for c in run.summary.metrics.comparisons]
        else:
            found.append(f"{name}: nothing was compared.")
    return found


def _speed(runs: Sequence[RunView]) -> Section | None:
    columns = metric_columns.columns("short", phases=any(run.phases for run in runs))
    rows: list[tuple[Cell, ...]] = []
    for name, run in zip(names(runs), runs, strict=True):
        metrics = run.summary.metrics
        for experiment, measured in metrics.experiments.items() if metrics and run.measured else []:
            if measured.latency:
                rows.append((name, run.label(experiment), *(column.number(measured) for column in columns)))
    if not rows:
        return None
    caption = (
        f"How many times faster the accelerated experiment of each run is; lines are 95 % intervals.{_first(runs)}"
    )
    table = Table("latency", ("run", "experiment", *metric_columns.labels(columns)), rows)
    return Section("latency", "Latency", [table, Picture("speedups", caption)])


def _threads(runs: Sequence[RunView]) -> Section | None:
    """Return every number of threads of the runs that measured several."""
    rows: list[tuple[Cell, ...]] = []
    said = []
    for name, run in zip(names(runs), runs, strict=True):
        for side, curve in run.thread_curves:
            rows += [(name, side, *threads.cells(point)) for point in curve.points]
        said += [f"{name}: {sentence}." for sentence in threads.sentences(run)]
    if not rows:
        return None
    return Section("threads", "Threads", [Bullets(said), Table("threads", ("run", "", *threads.COLUMNS), rows)])


def _shares(runs: Sequence[RunView]) -> Section | None:
    rows: list[tuple[Cell, ...]] = []
    sentences = []
    order = _categories_with_time(runs)
    for name, run in zip(names(runs), runs, strict=True):
        if not run.measured:
            continue
        sentences += [f"{name}: {comparison.shift.sentence}" for comparison in run.summary.comparisons]
        for experiment, label in _labelled(run):
            breakdown = run.summary.experiments[experiment].breakdown
            parts = [breakdown.category(category) for category in order]
            shares = [Number(numbers.share(entry.share), entry.share) for entry in parts]
            rows.append((name, label, Number(numbers.ms(breakdown.execute_ms), breakdown.execute_ms), *shares))
    if not rows:
        return None
    table = Table("categories", ("run", "experiment", "Method::execute", *order), rows)
    blocks: list[Block] = [Bullets(sentences)] if sentences else []
    caption = f"Above in milliseconds, below in percent of each bar. Traced executions.{_first(runs)}"
    blocks += [Picture("shift", caption), table]
    return Section("categories", "Where the time goes", blocks)


def _categories_with_time(runs: Sequence[RunView]) -> list[str]:
    breakdowns = [run.summary.experiments[n].breakdown for run in runs if run.measured for n, _ in _labelled(run)]
    used = dict.fromkeys(entry.category for b in breakdowns for entry in b.categories)
    return [category for category in used if any(b.category(category).ms for b in breakdowns)]


def _movers(runs: Sequence[RunView]) -> Section | None:
    """Return what to do next, run by run: the first finding."""
    rows: list[tuple[Cell, ...]] = []
    for name, run in zip(names(runs), runs, strict=True):
        for experiment in run.of_interest if run.measured else []:
            for finding in run.summary.experiments[experiment].advice[:1]:
                rows.append((name, with_cost(finding.title, finding.measured), finding.next_step))
    if not rows:
        return None
    return Section("advice", "What to do next", [Table("advice", ("run", "finding", "next"), rows)])


def _machines(runs: Sequence[RunView]) -> Section:
    rows: list[tuple[Cell, ...]] = []
    for name, run in zip(names(runs), runs, strict=True):
        failed = [experiment for experiment, record in run.manifest.experiments.items() if record.status != "ok"]
        versions = {record.runner.executorch_name for record in run.manifest.experiments.values()} - {""}
        digest = run.manifest.model.sha256[:16]
        rows.append((name, cpu(run), run.manifest.timing, ", ".join(failed) or "none", ", ".join(versions), digest))
    columns = ("run", "CPU", "timing", "failed", "ExecuTorch", "model SHA-256, first 16 digits")
    note = "Runs were measured separately: compare ratios between them, and absolute times only with care."
    return Section("environment", "Machines", [Table("machines", columns, rows), Paragraph(note)])
