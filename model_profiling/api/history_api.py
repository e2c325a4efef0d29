"""Runs over time, as `sme2_kit.history` gives them."""

from __future__ import annotations

import functools
from pathlib import Path
from typing import TYPE_CHECKING

from model_profiling.api.records import Records

if TYPE_CHECKING:
    from model_profiling.fleet.history.history_records import HistoryRun, MeasurementRow, ModelCoverage, TopOperator
    from model_profiling.fleet.history.run_history import RunHistory
    from model_profiling.fleet.history.trends import KeptPrograms, Regression, Series, Trend


class History:
    """Every run below some folders, as they were when it was made."""

    def __init__(self, found: RunHistory, experiment: str | None = None) -> None:
        self.found = found
        self._experiment = experiment

    @functools.cached_property
    def runs(self) -> Records[HistoryRun]:
        """The runs from new to old; at the end those that cannot be read, with the `problem`."""
        return Records(self.found.runs())

    @functools.cached_property
    def measurements(self) -> Records[MeasurementRow]:
        """Every experiment of every run as a flat row: for `.to_pandas()`."""
        return Records(self.found.rows())

    @functools.cached_property
    def series(self) -> Records[Series]:
        """Latency over time, one series for all that may be compared, each with its steps."""
        from model_profiling.fleet.history.steps import with_steps

        found = [each for each in self.found.series() if self._experiment in (None, each.experiment)]
        return Records(with_steps(each, self.kept) for each in found)

    @functools.cached_property
    def kept(self) -> KeptPrograms:
        """The programs that runs kept, and what comparing them said."""
        from model_profiling.fleet.history.trends import KeptPrograms

        return KeptPrograms(self.found.search.keeping)

    @property
    def steps(self) -> Records[Regression]:
        """All steps. One is a regression, or an improvement, only if its `state` is "confirmed"."""
        from model_profiling.fleet.history.trends import Regression

        return Records(
            Regression(each.title, each.model, each.platform, each.device, step)
            for each in self.series
            for step in each.steps
        )

    @property
    def top(self) -> Records[TopOperator]:
        """Operators over the latest run of every model, the costliest first."""
        return Records(self.found.top())

    @property
    def coverage(self) -> Records[ModelCoverage]:
        """How much of each model runs on SME2, the least first; `percent` is None where no run tells."""
        return Records(self.found.coverage())

    @property
    def trend(self) -> Trend:
        """All series, as `report` and JSON have them."""
        from model_profiling.fleet.history.trends import Trend

        return Trend(list(self.series))

    def report(self, output: str | Path) -> list[Path]:
        """Write the trend page (.html, with Markdown and JSON beside it), or a picture of one series (.svg, .png)."""
        from model_profiling.fleet.history import trend_page

        return trend_page.write(self.trend, Path(output))

    def __repr__(self) -> str:
        models = len({run.model for run in self.runs if not run.problem})
        return f"<{len(self.runs)} runs of {models} models>"
