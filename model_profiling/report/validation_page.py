"""The forecast held against a machine, as one page and one JSON file that are made to be shared."""

from collections import Counter
from pathlib import Path

from model_profiling.analysis.sme2.forecast_validation import (
    SHORTEST_MS,
    TOLERANCE,
    Errors,
    ForecastValidation,
    HeldModel,
    HeldTime,
    errors_of,
)
from model_profiling.base import files
from model_profiling.base.units import counted
from model_profiling.report import html, numbers
from model_profiling.report.blocks import (
    Block,
    Bullets,
    Cell,
    KeyFigure,
    Name,
    Number,
    Paragraph,
    Report,
    Section,
    Table,
)
from model_profiling.store.artifacts import FORECAST_VALIDATION, VALIDATION_PAGE

_MADE_FROM = f"its numbers are in {FORECAST_VALIDATION}, beside it."
_MOST_OPERATORS = 15
_MOST_DIFFERENCES = 20
_OUTSIDE = "outside the interval"
METHOD = (
    "Predicted is the whole of `Method::execute` with the feature on, from its time with the feature off and roofs "
    f"measured by probe operators. Operators are CONV and GEMM of {SHORTEST_MS * 1000:.0f} us or more."
)
_LEGEND = (
    f"An error is predicted over measured, less 1. A prediction that is off by no more than {TOLERANCE:.0%}, counted "
    "from the nearer end of the measurement's 95 % interval, is not counted as wrong."
)


def write(found: ForecastValidation, home: Path) -> list[Path]:
    """Write the JSON and the page, made from the same record, into a folder."""
    written = [home / FORECAST_VALIDATION, home / VALIDATION_PAGE]
    # On one line: it is for programs, and a third of the size.
    files.write_bytes(written[0], files.json_bytes(found, indent=0))
    files.write_text(written[1], html.overview(page_report(found), {}, _MADE_FROM))
    return written


def page_report(found: ForecastValidation) -> Report:
    """Return what the page says, in blocks: the verdict first."""
    made = f"{found.created[:10]}, kit {found.kit_version}, ExecuTorch {found.executorch}"
    sections = [_environment(found), models_section(found), _operators(found), _gains(found), _kernels(found)]
    return Report(
        f"The forecast held against {found.environment.cpu or 'an unknown CPU'}",
        made,
        [],
        [section for section in sections if section is not None],
        alerts=alerts(found),
        figures=_figures(found),
        legend=_LEGEND,
    )


def alerts(found: ForecastValidation) -> list[str]:
    """Return what to know before reading on: that SME2 was not there, what failed, what was too noisy."""
    said = []
    if not found.environment.sme2:
        instead = f": the same method was tested on {', '.join(found.switched)}" if found.switched else ""
        said.append(f"SME2 itself was not tested, because this CPU has none{instead}.")
    said += [f"{each.model} {each.dtype} failed: {each.why}" for each in found.failed]
    warned = sum(bool(model.warnings) for model in found.models)
    if found.warnings or warned:
        roofs = "the roofs, and " if found.warnings else ""
        said.append(
            f"The machine was not quiet. With warnings: {roofs}{warned} of {counted(len(found.models), 'run')}."
        )
    unbounded = [f"{each.model} {each.dtype}" for each in found.models if each.time.outside is None]
    if unbounded:
        said.append(f"Too few launches for an interval, so that noise counts as error: {', '.join(unbounded)}")
    return said


def _figures(found: ForecastValidation) -> list[KeyFigure]:
    outcomes = (
        f"of {counted(len(found.models), 'prediction')} {found.count('right')} right, {found.count('wrong')} wrong"
    )
    noisy = found.count("too noisy to tell")
    figures = [KeyFigure("the forecast", found.verdict, outcomes + (f", {noisy} too noisy to tell" if noisy else ""))]
    whole = errors_of(model.time for model in found.models)
    if whole is not None:
        worst = max(found.models, key=lambda model: abs(model.time.error))
        note = f"median; worst {_percent(worst.time.error)} ({worst.model} {worst.dtype})"
        figures.append(KeyFigure("error, whole models", f"{whole.median:.1%}", note))
    each = errors_of(operator.time for _, operator in found.operators)
    if each is not None:
        note = f"median of {each.count:,}; nine in ten below {each.nine_in_ten:.0%}"
        figures.append(KeyFigure("error, CONV and GEMM operators", f"{each.median:.1%}", note))
    return figures


def _percent(part: float) -> str:
    return numbers.percent(part * 100)


def sentence(time: HeldTime) -> str:
    """Return one line on one prediction."""
    interval = "" if time.low_ms is None or time.high_ms is None else f" ({time.low_ms:.3f} to {time.high_ms:.3f})"
    return (
        f"predicted {numbers.ms(time.predicted_ms)}, measured {numbers.ms(time.on_ms)}{interval}, "
        f"{numbers.ms(time.off_ms)} without; error {_percent(time.error)}"
    )


def outside_words(time: HeldTime) -> str:
    """Return how far a prediction is outside of the interval; a dash where there is none."""
    return "-" if time.outside is None else "no" if time.outside == 0 else _percent(time.outside)


MODEL_COLUMNS = (
    *("model", "dtype", "switched", "off", "on, predicted", "on, measured", "interval", "error", _OUTSIDE),
    "operators' median error",
)


def model_row(model: HeldModel) -> tuple[Cell, ...]:
    time, own = model.time, errors_of(operator.time for operator in model.operators)
    interval = "-" if time.low_ms is None or time.high_ms is None else f"{time.low_ms:.3f} to {time.high_ms:.3f}"
    short = f", {model.not_timed} too short" if model.not_timed else ""
    return (
        Name(model.model),
        model.dtype,
        ", ".join(model.switched),
        *(Number(numbers.ms(ms), ms) for ms in (time.off_ms, time.predicted_ms, time.on_ms)),
        interval,
        Number(_percent(time.error), time.error),
        Number(outside_words(time), time.outside),
        f"{own.median:.0%} of {own.count}{short}" if own is not None else "none was long enough",
    )


def models_section(found: ForecastValidation) -> Section:
    """Return every model, what was predicted of it and what was measured, and how errors are distributed."""
    if not found.models:
        return Section("models", "By model", [Paragraph("No model was measured.")])
    measured = f"Roofs measured on {found.roofs.created[:10]}. {METHOD}"
    table = Table("models", MODEL_COLUMNS, [model_row(model) for model in found.models], sortable=True)
    errors = {
        "Whole models": errors_of(model.time for model in found.models),
        "CONV and GEMM operators": errors_of(operator.time for _, operator in found.operators),
    }
    blocks: list[Block] = [Paragraph(measured), table]
    blocks.append(Bullets([_distribution(what, known) for what, known in errors.items()]))
    warned = [f"{model.model} {model.dtype}: {words}." for model in found.models for words in model.warnings]
    if warned or found.warnings:
        blocks.append(Bullets([*(f"Roofs: {words}." for words in found.warnings), *warned]))
    return Section("models", "By model", blocks)


def _distribution(what: str, errors: Errors | None) -> str:
    if errors is None:
        return f"{what}: none."
    return (
        f"{what} ({errors.count}): median absolute error {errors.median:.1%}, nine in ten below "
        f"{errors.nine_in_ten:.0%}, worst {errors.worst:.0%}."
    )


def _environment(found: ForecastValidation) -> Section:
    told = found.environment
    units = ", ".join(map(str, told.sme_units))
    rows: list[tuple[Cell, ...]] = [
        ("CPU", told.cpu or "unknown"),
        ("SME2", "yes" if told.sme2 else "no"),
        ("streaming vector length", f"{told.vector_bits} bits" if told.vector_bits else "unknown"),
        *([("cores that share each SME unit", units)] if units else []),
        ("features", ", ".join(told.features)),
        ("cores, memory", f"{told.cores or 'unknown'}, {f'{told.memory_gib:g} GiB' if told.memory_gib else 'unknown'}"),
        ("system", f"{told.system or 'unknown'}, {told.arch}{', virtualised' if told.virtualised else ''}"),
        *([("clock governor", ", ".join(told.governors))] if told.governors else []),
    ]
    return Section("environment", "Measured on", [Table("environment", ("", ""), rows)])


def _operators(found: ForecastValidation) -> Section | None:
    rows: list[tuple[Cell, ...]] = [
        (
            Name(operator.name),
            f"{model.model} {model.dtype}",
            operator.size or "unknown",
            *(Number(numbers.ms(ms), ms) for ms in (time.off_ms, time.predicted_ms, time.on_ms)),
            Number(_percent(time.error), time.error),
            Number(outside_words(time), time.outside),
            operator.why,
        )
        for model, operator in found.operators[:_MOST_OPERATORS]
        for time in [operator.time]
    ]
    columns = ("operator", "model", "product", *MODEL_COLUMNS[3:6], "error", _OUTSIDE, "predicted")
    return Section("operators", "Worst operators", [Table("operators", columns, rows, sortable=True)]) if rows else None


def _gains(found: ForecastValidation) -> Section | None:
    """Return what a target that comes with the kit says that SME2 gains, against what it gained."""
    if not found.environment.sme2:
        return None
    rows: list[tuple[Cell, ...]] = [
        (
            f"{model.model} {model.dtype}",
            gain.target,
            f"{gain.predicted:.2f}x ({gain.predicted_low:.2f} to {gain.predicted_high:.2f})",
            f"{numbers.ratio(gain.measured)} ({numbers.interval(gain.measured_low, gain.measured_high)})",
            Number("-" if gain.outside is None else _percent(gain.outside), gain.outside),
        )
        for model in found.models
        if (gain := model.gain) is not None
    ]
    why = dict.fromkeys(f"{model.model} {model.dtype}: {model.no_gain}." for model in found.models if model.no_gain)
    table = Table("gains", ("model", "target", "predicted by the target", "measured", _OUTSIDE), rows)
    blocks: list[Block] = [table] if rows else []
    return Section(
        "gains", "What SME2 gains, by a target of the kit", [*blocks, *([Bullets(list(why))] if why else [])]
    )


def _kernels(found: ForecastValidation) -> Section:
    """Return whether the table of known kernels names the kernels that were traced."""
    said = []
    reasons = Counter(model.not_traced for model in found.models if model.not_traced)
    said += [f"Not traced here ({counted(often, 'model')}): {why}." for why, often in reasons.items()]
    traced = [model for model in found.models if not model.not_traced]
    operators, every = sum(model.traced for model in traced), [(m, d) for m in traced for d in m.differences]
    wrong = [(model, each) for model, each in every if each.state == "differs"]
    if operators:
        unknown = len(every) - len(wrong)
        agree = operators - len(every)
        said.append(f"Of {operators:,} traced operators the table is right of {agree:,}, wrong of {len(wrong):,}.")
        whys = Counter(each.why for _, each in every if each.state == "unknown")
        said += [f"It has no answer for {unknown:,}: {'; '.join(whys)}."] if unknown else []
    rows: list[tuple[Cell, ...]] = [
        (Name(each.operator), f"{model.model} {model.dtype}", Name(each.traced), Name(each.table), each.why)
        for model, each in wrong
    ]
    blocks: list[Block] = [Bullets(said or ["No kernels were traced."])]
    columns = ("operator", "model", "traced", "in the table", "why")
    blocks += [Table("kernels", columns, rows, short=_MOST_DIFFERENCES)] if rows else []
    return Section("kernels", "Table of known kernels", blocks)
