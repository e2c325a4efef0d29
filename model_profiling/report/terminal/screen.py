"""The first screen of a run in the terminal: three figures, what to do next, what shifted; and the model as a tree."""

import msgspec

from model_profiling.analysis.run.run_view import RunView
from model_profiling.analysis.timing.latency import Comparison
from model_profiling.report import numbers
from model_profiling.report.blocks import AdviceBlock, KeyFigure, Number, Row
from model_profiling.report.content import changes as change_content
from model_profiling.report.content import first_screen as content
from model_profiling.report.content import phases as phase_content
from model_profiling.report.content import sme2 as sme2_content
from model_profiling.report.content import threads as thread_content
from model_profiling.report.content.modules import short
from model_profiling.report.content.roofline import headroom_line, roof_line
from model_profiling.report.content.startup import lines as startup_lines
from model_profiling.report.terminal.style import Style, wrapped
from model_profiling.report.terminal.text_table import table
from model_profiling.report.words import SME2_TITLE, with_cost

# A line of a model may be long; its beginning tells it.
_MOST_LETTERS = 72
_MOST_UNSCALED = 3


def first_screen(run: RunView, style: Style, most: int | None = None) -> list[str]:
    """Return three figures, what to do next (the `most` important of it), and what shifted."""
    lines = [f"  {style.paint(33, wrapped(alert))}" for alert in content.alerts(run)]
    if run.busy:
        # Nothing below is bold: it cannot be relied on.
        style = msgspec.structs.replace(style, subdued=True)
    comparisons = run.metrics.comparisons
    lines += _figures(content.figures(run), comparisons[0] if comparisons else None, style)
    meaning = content.legend(run)
    lines += [f"  {style.dim(wrapped(meaning))}", ""] if meaning else [""]
    lines += _sme2(sme2_content.figures(run), style)
    lines += _actions(content.actions(run)[:most], content.no_actions(run), style)
    return lines + [line for sentence in content.shifts(run) for line in (f"  {wrapped(sentence)}", "")]


def _figures(figures: list[KeyFigure], comparison: Comparison | None, style: Style, margin: str = "  ") -> list[str]:
    """Return each figure on a line: what it is, the number, and what to know of it; the last one is the verdict."""
    label, value = (max((len(getattr(f, part)) for f in figures), default=0) for part in ("label", "value"))
    lines = []
    for figure in figures:
        shown = style.bold(f"{figure.value:>{value}}")
        if comparison is not None and figure is figures[-1]:
            shown = style.verdict(comparison, f"{figure.value:>{value}}")
        note = wrapped(figure.note, len(margin) + label + value + 4)
        lines.append(f"{margin}{figure.label:<{label}}  {shown}  {style.dim(note)}")
    return lines


def _sme2(figures: list[KeyFigure], style: Style) -> list[str]:
    """Return what SME2 does for the model, or would do, under one heading."""
    return [f"  {style.bold(SME2_TITLE)}", *_figures(figures, None, style, "    "), ""] if figures else []


def _actions(actions: list[AdviceBlock], otherwise: str, style: Style) -> list[str]:
    """Return what to do next, each with its line of PyTorch and what it would gain."""
    if not actions:
        return [f"  {wrapped(otherwise)}", ""] if otherwise else []
    lines = [f"  {style.bold('what to do next')}"]
    for number, action in enumerate(actions, 1):
        lines.append(f"  {number}. {wrapped(with_cost(action.title, action.worth), 5)}")
        at = f"{action.place}: " if action.place else ""
        lines.append(f"     {style.dim(wrapped(at + action.next_step, 5))}")
    return [*lines, ""]


def modules(run: RunView) -> list[str]:
    """Return the costliest parts of the model of the experiment that a reader wants faster, as a short tree."""
    lines: list[str] = []
    for name in run.first_of_phases:
        phase = run.phase(name)
        rows = [(f"cost by module and line{f', {phase}' if phase else ''}", "time", "share")]
        for depth, part, node in short(run.cost_tree(name)):
            rows.append((_cut("  " * depth + part), numbers.ms(node.ms), f"{node.share:.1%}"))
        lines += [*table(rows, words=1), ""] if len(rows) > 1 else []
    return lines


def changes(run: RunView) -> list[str]:
    """Return which lines changed most between compared experiments."""
    return [line for sentence in change_content.short(run) for line in (f"  {wrapped(sentence)}", "")]


def phases(run: RunView) -> list[str]:
    """Return a language model's phases in one table, and what there is to know of them."""
    rows = _plain(phase_content.rows(run))
    if not rows:
        return []
    lines = table([("phase", "", *phase_content.COLUMNS), *rows], words=2)
    lines += [f"  {wrapped(sentence)}" for sentence in phase_content.sentences(run)] + [""]
    layers = _plain(phase_content.layer_rows(run))
    if layers:
        heads = phase_content.layer_heads(run)
        lines += [*table([("kind of layer (traced)", *heads), *layers], words=1), ""]
    return lines


def startup(run: RunView, style: Style) -> list[str]:
    """Return start-up and memory in a few lines."""
    return [f"  {style.dim(label)}{' ' * (9 - len(label))}{wrapped(text, 11)}" for label, text in startup_lines(run)]


def threads(run: RunView) -> list[str]:
    """Return all numbers of threads in one table, which is best, and which operators do not become faster."""
    found = run.threads_compared
    if found is None:
        return []
    rows = _plain(thread_content.rows(run))
    switched = ("on against off",) if found.switches else ()
    lines = table([("by number of threads", *thread_content.COLUMNS, *switched), *rows], words=1)
    lines += [f"  {wrapped(f'{sentence}.')}" for sentence in thread_content.sentences(run)]
    lines += [
        f"  {wrapped(f'{run.label(name)}: {finding.title}.')}" for name, finding in thread_content.thread_findings(run)
    ]
    for side, curve in run.thread_curves:
        unscaled = thread_content.unscaled_operators(run, curve)[:_MOST_UNSCALED]
        names = [f"{entry.operator} ({entry.scales})" for entry in unscaled]
        if names:
            said = f"{side}, with more threads: {', '.join(names)}."
            lines.append(f"  {wrapped(said)}")
    return [*lines, ""]


def roofs(run: RunView, name: str) -> list[str]:
    """Return the lines under a table of operators: what all of them could save, or how to find that out."""
    line = headroom_line(run, name) or ("" if name in run.rooflines else roof_line(run).replace("`", ""))
    return [f"  {wrapped(line)}"] if line else []


def _plain(rows: list[Row]) -> list[tuple[str, ...]]:
    return [tuple(cell.shown if isinstance(cell, Number) else str(cell) for cell in row) for row in rows]


def _cut(text: str) -> str:
    return text if len(text) <= _MOST_LETTERS else text[: _MOST_LETTERS - 3] + "..."
