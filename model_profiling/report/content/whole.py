"""All of a report of one run, in its order."""

import msgspec

from model_profiling.analysis.run.run_view import RunView
from model_profiling.report import graph_page
from model_profiling.report.blocks import Picture, Report, Section
from model_profiling.report.content import (
    comparison,
    first_screen,
    forecast,
    kernels,
    method,
    numerics,
    operators,
    phases,
    roofline,
    runtimes,
    startup,
    structure,
    threads,
    time,
)

_WHAT_IF = "a category ran faster and nothing else changed: a prediction"
_TIMELINE = "one typical execution of each experiment; inside a delegate, starts are laid end to end"


def report(run: RunView, title: str = "") -> Report:
    """Return everything there is to say of one run; of an emulated run nothing that speaks of time."""
    near = run.detailed
    blocks = first_screen.other_findings(near) if near.measured else []
    result = f"{len(blocks)} more, first: {blocks[0].title}" if blocks else ""
    timed = run.measured and bool(run.shown)
    sections: list[Section | None] = [
        phases.section(run),
        time.categories(near, len(run.summary.experiments)),
        Section("whatif", "What if", folded=True, result=_WHAT_IF, widget="whatif") if timed else None,
        operators.operators(near),
        Section("timeline", "Timeline", folded=True, result=_TIMELINE, widget="timeline") if timed else None,
        _graph(near),
        time.changes(near),
        runtimes.of_auto(run.auto),
        structure.modules(near),
        roofline.section(near),
        Section("findings", "More to do", [*blocks], True, result) if blocks else None,
        forecast.section(run),
        time.latencies(run),
        threads.section(run),
        runtimes.section(run.runtimes),
        startup.section(near),
        numerics.section(run.numerics),
        structure.portable(near),
        structure.movement(near),
        kernels.section(near),
        method.not_measured(run),
        method.environment(run),
        method.reproduce(run),
    ]
    first = first_screen.report(run)
    return msgspec.structs.replace(
        first,
        title=title or first.title,
        sections=[section for section in sections if section is not None],
        picture=Picture("sme2", f"{first.title}: where the time goes, without SME2 and with it."),
        legend=first_screen.legend(run),
        findings=first_screen.findings(run),
    )


def _graph(run: RunView) -> Section | None:
    """Return the graph; of so many operators that a page would be slow, where it is."""
    if not run.shown:
        return None
    if graph_page.fits_report(run):
        return comparison.GRAPH
    apart = f"The graph of so many operators is a page of its own: `sme2-kit graph {run.directory}`"
    return Section("graph", "Graph", folded=True, result=apart)


def summary(run: RunView) -> Report:
    """Return what a person would paste: the first screen, latencies, and where the time goes."""
    sections = [each for each in (time.latency_table(run), time.categories(run.detailed)) if each is not None]
    return msgspec.structs.replace(first_screen.report(run), sections=sections, findings=first_screen.findings(run))
