"""The metrics of an experiment, one entry each: every table of every report shows these, under one name and format.

A new metric is a field that `analysis/compare/metrics.py` fills and an entry here.
"""

from collections.abc import Callable, Iterable
from operator import attrgetter
from typing import Literal

import msgspec

from model_profiling.analysis.compare.metrics import ExperimentMetrics
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


def _of(path: str) -> Getter:
    """Return what gets a number of a record within the metrics; None where there is no such record."""
    record, getter = path.partition(".")[0], attrgetter(path)
    return lambda measured: getter(measured) if getattr(measured, record) is not None else None


_FULL: tuple[Literal["lower"], Detail] = ("lower", "full")
COLUMNS: tuple[Column, ...] = (
    # Of language models only: see `columns`.
    Column("token", "tokens/s", "per_sec", _of("phase.token_per_sec"), numbers.rate, "higher", "phase"),
    Column("median", "median", "ms", _of("latency.median_ms"), numbers.ms, "lower"),
    Column("mad", "MAD", "percent", _of("latency.mad_percent"), numbers.spread, "lower"),
    Column("p95", "p95", "ms", _of("latency.p95_ms"), numbers.ms, "lower"),
    Column("runs", "runs", "", _of("latency.runs"), numbers.count),
    Column("launches", "launches", "", _of("latency.launches"), numbers.count, detail="full"),
    Column("launch_spread", "launch spread", "percent", _of("latency.launch_spread_percent"), numbers.spread, *_FULL),
    Column(
        *("tracer_cost", "tracer cost", "percent", lambda measured: measured.tracer_overhead_percent),
        *(numbers.percent, *_FULL),
        lambda measured: "~" if measured.tracer_overhead_measured else "-",  # too little to tell; not measured
    ),
    Column("first_result", "start-up", "ms", _of("startup.first_result.median_ms"), numbers.ms, "lower"),
    Column("peak_memory", "peak memory", "bytes", _of("memory.peak_bytes"), numbers.mebibytes, "lower"),
    Column("min", "min", "ms", _of("latency.min_ms"), numbers.ms, "lower", "distribution"),
    Column("p90", "p90", "ms", _of("latency.p90_ms"), numbers.ms, "lower", "distribution"),
    Column("p99", "p99", "ms", _of("latency.p99_ms"), numbers.ms, "lower", "distribution"),
    Column("max", "max", "ms", _of("latency.max_ms"), numbers.ms, "lower", "distribution"),
    Column("cv", "CV", "percent", _of("latency.cv_percent"), numbers.spread, "lower", "distribution"),
    Column("drift", "drift", "percent", _of("latency.drift_percent"), numbers.percent, None, "distribution"),
    Column("outliers", "outliers", "", _of("latency.outliers"), numbers.count, "lower", "distribution"),
)


def columns(*details: Detail, phases: bool = False) -> list[Column]:
    shown = {*details, *(["phase"] if phases else [])}
    return [column for column in COLUMNS if column.detail in shown]


def labels(chosen: Iterable[Column]) -> list[str]:
    return [column.label for column in chosen]


def disabled_features(measured: ExperimentMetrics) -> str:
    """Return the CPU features that an experiment ran without."""
    return ", ".join(measured.disabled) or "nothing"
