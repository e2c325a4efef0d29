"""What a report says, section by section, as blocks that every format can draw."""

from model_profiling.analysis.run.run_view import RunView
from model_profiling.report.blocks import Report, Section
from model_profiling.report.content import (
    auto,
    changes,
    findings,
    first_screen,
    forecast,
    headline,
    kernels,
    latency,
    method,
    modules,
    numerics,
    operators,
    phases,
    reproduce,
    roofline,
    runtimes,
    sme2,
    startup,
    structure,
    threads,
    time,
)


def report(run: RunView, title: str = "") -> Report:
    """Return everything there is to say of one run; of an emulated run nothing that speaks of time."""
    near = run.detailed
    sections: list[Section | None] = [
        phases.section(run),
        time.categories(near, len(run.summary.experiments)),
        auto.section(run.auto),
        changes.section(near),
        modules.section(near),
        operators.operators(near),
        roofline.section(near),
        findings.section(near),
        forecast.section(run),
        latency.section(run),
        threads.section(run),
        runtimes.section(run.runtimes),
        startup.section(near),
        numerics.section(run),
        structure.portable(near),
        structure.movement(near),
        kernels.section(near),
        method.not_measured(run),
        method.environment(run),
        reproduce.section(run),
    ]
    return Report(
        title=title or headline.title(run),
        subtitle=headline.subtitle(run),
        headline=first_screen.shifts(run),
        sections=[section for section in sections if section is not None],
        alerts=first_screen.alerts(run),
        figures=first_screen.figures(run),
        legend=first_screen.legend(run),
        sme2=sme2.figures(run),
        actions=first_screen.actions(run),
        no_actions=first_screen.no_actions(run),
        subdued=bool(run.busy),
    )
