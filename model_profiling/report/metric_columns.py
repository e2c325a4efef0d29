"""The metrics of an experiment, one entry each: every table of every report shows these, under one name and format.

A new metric is a field that `analysis/metrics.py` fills and an entry here.
"""

from collections.abc import Callable, Iterable
from typing import Literal

import msgspec

from model_profiling.analysis.compare.metrics import ExperimentMetrics
from model_profiling.analysis.timing.latency import Latency
from model_profiling.report import numbers
from model_profiling.report.blocks import Number

# Which tables show it: all; all but the shortest; only the one on the distribution of a report's executions; or all of
# a language model's.
Detail = Literal["short", "full", "distribution", "phase"]
Getter = Callable[[ExperimentMetrics], float | None]


class Column(msgspec.Struct, frozen=True):
    """`value` is None where the metric is not known; `unknown` says then what to write instead."""

    name: str
    label: str
    unit: Literal["ms", "percent", "bytes", "per_sec", ""]
    value: Getter
    shown: Callable[[float], str]
    better: Literal["lower", "higher"] | None = None
    detail: Detail = "short"
    unknown: Callable[[ExperimentMetrics], str] = lambda _: "-"

    def text(self, measured: ExperimentMetrics) -> str:
        value = self.value(measured)
        return self.unknown(measured) if value is None else self.shown(value)

    def number(self, measured: ExperimentMetrics) -> Number:
        return Number(self.text(measured), self.value(measured))

    @property
    def key(self) -> str:
        """What programs call it: the name and the unit of the plain number."""
        return f"{self.name}_{self.unit}" if self.unit else self.name

    @property
    def described(self) -> str:
        """The label with its direction, for a table that has room."""
        return f"{self.label} ({self.better} is better)" if self.better else self.label


def _of(value: Callable[[Latency], float | None]) -> Getter:
    return lambda measured: value(measured.latency) if measured.latency is not None else None


def _tracer_unknown(measured: ExperimentMetrics) -> str:
    """Return `~` where the cost is too little to tell, a dash where it was not measured."""
    return "~" if measured.tracer_overhead_measured else "-"


def _first_result(measured: ExperimentMetrics) -> float | None:
    """Return the time from the start of a process to its first result."""
    return measured.startup.first_result.median_ms if measured.startup is not None else None


def _peak(measured: ExperimentMetrics) -> float | None:
    return measured.memory.peak_bytes if measured.memory is not None else None


def _tokens(measured: ExperimentMetrics) -> float | None:
    return measured.phase.token_per_sec if measured.phase is not None else None


COLUMNS: tuple[Column, ...] = (
    # Of language models only: see `columns`.
    Column("token", "tokens/s", "per_sec", _tokens, numbers.rate, "higher", "phase"),
    Column("median", "median", "ms", _of(lambda x: x.median_ms), numbers.ms, "lower"),
    Column("mad", "MAD", "percent", _of(lambda x: x.mad_percent), numbers.spread, "lower"),
    Column("p95", "p95", "ms", _of(lambda x: x.p95_ms), numbers.ms, "lower"),
    Column("runs", "runs", "", _of(lambda x: x.runs), numbers.count),
    Column("launches", "launches", "", _of(lambda x: x.launches), numbers.count, detail="full"),
    Column(
        "launch_spread",
        "launch spread",
        "percent",
        _of(lambda x: x.launch_spread_percent),
        numbers.spread,
        "lower",
        "full",
    ),
    Column(
        "tracer_cost",
        "tracer cost",
        "percent",
        lambda measured: measured.tracer_overhead_percent,
        numbers.percent,
        "lower",
        "full",
        _tracer_unknown,
    ),
    Column("first_result", "start-up", "ms", _first_result, numbers.ms, "lower"),
    Column("peak_memory", "peak memory", "bytes", _peak, numbers.mebibytes, "lower"),
    Column("min", "min", "ms", _of(lambda x: x.min_ms), numbers.ms, "lower", "distribution"),
    Column("p90", "p90", "ms", _of(lambda x: x.p90_ms), numbers.ms, "lower", "distribution"),
    Column("p99", "p99", "ms", _of(lambda x: x.p99_ms), numbers.ms, "lower", "distribution"),
    Column("max", "max", "ms", _of(lambda x: x.max_ms), numbers.ms, "lower", "distribution"),
    Column("cv", "CV", "percent", _of(lambda x: x.cv_percent), numbers.spread, "lower", "distribution"),
    Column("drift", "drift", "percent", _of(lambda x: x.drift_percent), numbers.percent, None, "distribution"),
    Column("outliers", "outliers", "", _of(lambda x: x.outliers), numbers.count, "lower", "distribution"),
)


def columns(*details: Detail, phases: bool = False) -> list[Column]:
    shown = {*details, *(["phase"] if phases else [])}
    return [column for column in COLUMNS if column.detail in shown]


def labels(chosen: Iterable[Column]) -> list[str]:
    return [column.label for column in chosen]


def disabled_features(measured: ExperimentMetrics) -> str:
    """Return the CPU features that an experiment ran without."""
    return ", ".join(measured.disabled) or "nothing"
