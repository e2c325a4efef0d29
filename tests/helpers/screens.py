"""What a terminal shows of a run: its first screen, or all of its report."""

from model_profiling.analysis.run.run_view import RunView
from model_profiling.report.blocks import Report
from model_profiling.report.content import whole as content
from model_profiling.report.terminal import Style, render
from sme2_kit import Run

PLAIN = Style(colour=False)


def first_screen(run: Run, colour: bool = False) -> str:
    return render(run.first_screen, Style(colour))


def whole_text(run: RunView) -> str:
    return render(content.report(run), PLAIN, "whole")


def shown(report: Report) -> str:
    """The first screen of any report."""
    return render(report, PLAIN)


def flat(text: str) -> str:
    """The same without line breaks: where a sentence is broken depends on its numbers."""
    return " ".join(text.split())
