"""What a report says, section by section, as blocks that every format can draw."""

from model_profiling.analysis.run_view import RunView
from model_profiling.report.blocks import Report, Section
from model_profiling.report.content import forecast, headline, kernels, latency, method, reproduce, structure, time


def report(run: RunView, title: str = "") -> Report:
    """Everything there is to say of one run. An emulated run has no section that speaks of time."""
    sections: list[Section | None] = [
        latency.section(run),
        time.categories(run),
        forecast.section(run),
        time.operators(run),
        structure.portable(run),
        structure.movement(run),
        kernels.section(run),
        time.advice(run),
        method.not_measured(run),
        method.environment(run),
        reproduce.section(run),
    ]
    return Report(
        title=title or headline.title(run),
        subtitle=headline.subtitle(run),
        headline=headline.sentences(run),
        sections=[section for section in sections if section is not None],
    )
