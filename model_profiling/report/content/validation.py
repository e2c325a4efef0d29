"""The forecast held against a machine, as one page and one JSON file that are made to be shared."""

from collections import Counter

from model_profiling.analysis.sme2.forecast_validation import (
    SHORTEST_MS,
    TOLERANCE,
    Errors,
    FailedModel,
    ForecastValidation,
    ValidatedModel,
    ValidatedTime,
    errors_of,
)
from model_profiling.base.units import counted
from model_profiling.report import numbers
from model_profiling.report.blocks import Block, Bullets, Fact, Name, Paragraph, Report, Row, Section, Table, bullets

_MOST_OPERATORS = 15
_MOST_DIFFERENCES = 20
_OUTSIDE = "outside the interval"
_METHOD = (
    "Predicted is the whole of `Method::execute` with the feature on, from its time with the feature off and roofs "
    f"measured by probe operators. Operators are CONV and GEMM of {SHORTEST_MS * 1000:.0f} us or more."
)
_LEGEND = (
    f"An error is predicted over measured, less 1. A prediction that is off by no more than {TOLERANCE:.0%}, counted "
    "from the nearer end of the measurement's 95 % interval, is not counted as wrong."
)


def page_report(found: ForecastValidation) -> Report:
    """Return what the page says, in blocks: the verdict first."""
    made = f"{found.created[:10]}, kit {found.kit_version}, ExecuTorch {found.executorch}"
    sections = [_environment(found), models_section(found), _operators(found), _gains(found), _kernels(found)]
    return Report(
        f"The forecast held against {found.environment.cpu or 'an unknown CPU'}",
        made,
        sections=[section for section in sections if section is not None],
        alerts=_alerts(found),
        opening=[[*_figures(found)], [_glance(found)] if found.models else []],
        legend=_LEGEND,
    )


def _alerts(found: ForecastValidation) -> list[str]:
    """Return what to know before reading on: that SME2 was not there, what failed, what was too noisy."""
    said = []
    if not found.environment.sme2:
        instead = f": the same method was tested on {', '.join(found.switched)}" if found.switched else ""
        said.append(f"SME2 itself was not tested, because this CPU has none{instead}.")
    said += [f"{_name(each)} failed: {each.why}" for each in found.failed]
    warned = sum(bool(model.warnings) for model in found.models)
    if found.warnings or warned:
        those = f"{'the roofs, and ' if found.warnings else ''}{warned} of {counted(len(found.models), 'run')}"
        said.append(f"The machine was not quiet. With warnings: {those}.")
    if unbounded := [_name(each) for each in found.models if each.time.outside is None]:
        said.append(f"Too few launches for an interval, so that noise counts as error: {', '.join(unbounded)}")
    return said


def _name(model: ValidatedModel | FailedModel) -> str:
    return f"{model.model} {model.dtype}"


def _figures(found: ForecastValidation) -> list[Fact]:
    every, noisy = counted(len(found.models), "prediction"), found.count("too noisy to tell")
    outcomes = f"of {every} {found.count('right')} right, {found.count('wrong')} wrong"
    figures = [Fact("Forecast", found.verdict, outcomes + (f", {noisy} too noisy to tell" if noisy else ""), card=True)]
    whole = errors_of(model.time for model in found.models)
    if whole is not None:
        worst = max(found.models, key=lambda model: abs(model.time.error))
        note = f"median; worst {_percent(worst.time.error)} ({_name(worst)})"
        figures.append(Fact("Models", f"{whole.median:.1%}", f"error of whole models, {note}", card=True))
    each = errors_of(operator.time for _, operator in found.operators)
    if each is not None:
        note = f"median of {each.count:,}; nine in ten below {each.nine_in_ten:.0%}"
        figures.append(Fact("Operators", f"{each.median:.1%}", f"error of CONV and GEMM operators, {note}", card=True))
    return figures


def _percent(part: float) -> str:
    return numbers.percent(part * 100)


def sentence(time: ValidatedTime) -> str:
    """Return one line on one prediction."""
    measured = numbers.bounded_ms(time.on_ms, time.low_ms, time.high_ms)
    without = f"{numbers.ms(time.off_ms)} without"
    return f"predicted {numbers.ms(time.predicted_ms)}, measured {measured}, {without}; error {_percent(time.error)}"


def _times(time: ValidatedTime) -> Row:
    return tuple(map(numbers.ms_cell, (time.off_ms, time.predicted_ms, time.on_ms)))


def _errors(time: ValidatedTime) -> Row:
    """Return the error of a prediction, and how far it is outside of the interval."""
    outside = numbers.cell(time.outside, lambda part: "no" if part == 0 else _percent(part))
    return numbers.cell(time.error, _percent), outside


_COLUMNS = (
    *("model", "dtype", "switched", "off", "on, predicted", "on, measured", "interval", "error", _OUTSIDE),
    "operators' median error",
)


def _model(model: ValidatedModel) -> Row:
    time, own = model.time, errors_of(operator.time for operator in model.operators)
    interval = "-" if time.low_ms is None or time.high_ms is None else f"{time.low_ms:.3f} to {time.high_ms:.3f}"
    short = f", {model.not_timed} too short" if model.not_timed else ""
    error = f"{own.median:.0%} of {own.count}{short}" if own is not None else "none was long enough"
    switched = ", ".join(model.switched)
    return (Name(model.model), model.dtype, switched, *_times(time), interval, *_errors(time), error)


def models_section(found: ForecastValidation) -> Section:
    """Return every model, what was predicted of it and what was measured, and how errors are distributed."""
    if not found.models:
        return Section("models", "By model", [Paragraph("No model was measured.")])
    measured = f"Roofs measured on {found.roofs.created[:10]}. {_METHOD}"
    table = Table("models", _COLUMNS, [_model(model) for model in found.models], sortable=True)
    errors = {
        "Whole models": errors_of(model.time for model in found.models),
        "CONV and GEMM operators": errors_of(operator.time for _, operator in found.operators),
    }
    blocks: list[Block] = [Paragraph(measured), table]
    blocks.append(Bullets([_distribution(what, known) for what, known in errors.items()]))
    warned = [f"{_name(model)}: {words}." for model in found.models for words in model.warnings]
    blocks += bullets([*(f"Roofs: {words}." for words in found.warnings), *warned])
    return Section("models", "By model", blocks)


def _glance(found: ForecastValidation) -> Table:
    """Return each model with its prediction and its error, as the first screen has room for."""
    rows: list[Row] = [(Name(_name(each)), *_times(each.time), _errors(each.time)[0]) for each in found.models]
    return Table("glance", ("model", *_COLUMNS[3:6], "error"), rows)


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
    rows: list[Row] = [
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
    rows: list[Row] = [
        (Name(x.name), _name(model), x.size or "unknown", *_times(x.time), *_errors(x.time), x.why)
        for model, x in found.operators[:_MOST_OPERATORS]
    ]
    columns = ("operator", "model", "product", *_COLUMNS[3:6], "error", _OUTSIDE, "predicted")
    return Section("operators", "Worst operators", [Table("operators", columns, rows, sortable=True)]) if rows else None


def _gains(found: ForecastValidation) -> Section | None:
    """Return what a target that comes with the kit says that SME2 gains, against what it gained."""
    if not found.environment.sme2:
        return None
    rows: list[Row] = []
    for model in found.models:
        if (gain := model.gain) is not None:
            predicted = f"{gain.predicted:.2f}x ({gain.predicted_low:.2f} to {gain.predicted_high:.2f})"
            measured = f"{numbers.ratio(gain.measured)} ({numbers.interval(gain.measured_low, gain.measured_high)})"
            rows.append((_name(model), gain.target, predicted, measured, numbers.cell(gain.outside, _percent)))
    why = dict.fromkeys(f"{_name(model)}: {model.no_gain}." for model in found.models if model.no_gain)
    table = Table("gains", ("model", "target", "predicted by the target", "measured", _OUTSIDE), rows)
    blocks: list[Block] = [*([table] if rows else []), *bullets(why)]
    return Section("gains", "What SME2 gains, by a target of the kit", blocks)


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
    rows: list[Row] = [
        (Name(each.operator), _name(model), Name(each.traced), Name(each.table), each.why) for model, each in wrong
    ]
    blocks: list[Block] = [Bullets(said or ["No kernels were traced."])]
    columns = ("operator", "model", "traced", "in the table", "why")
    blocks += [Table("kernels", columns, rows, short=_MOST_DIFFERENCES)] if rows else []
    return Section("kernels", "Table of known kernels", blocks)
