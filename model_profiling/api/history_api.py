"""Runs over time, as `sme2_kit.history` gives them."""

import functools
from pathlib import Path

from model_profiling.api.records import Records
from model_profiling.fleet.history import run_history
from model_profiling.fleet.history.history_records import HistoryRun, MeasurementRow, ModelCoverage, TopOperator
from model_profiling.fleet.history.program_archive import KeptPrograms
from model_profiling.fleet.history.trends import Regression, Series, Trend


class History:
    """Every run below some folders, as they were when it was made."""

    def __init__(self, found: run_history.RunHistory) -> None:
        self._found = found

    @functools.cached_property
    def runs(self) -> Records[HistoryRun]:
        """The runs from new to old; at the end those that cannot be read, with the `problem`."""
        return Records(self._found.runs())

    @functools.cached_property
    def measurements(self) -> Records[MeasurementRow]:
        """Every experiment of every run as a flat row: for `.to_pandas()`."""
        return Records(self._found.rows())

    @functools.cached_property
    def series(self) -> Records[Series]:
        """Latency over time, one series for all that may be compared, each with its steps."""
        from model_profiling.fleet.history.steps import with_steps

        kept = KeptPrograms(self._found.search.keeping)
        return Records(with_steps(each, kept) for each in self._found.series())

    @property
    def steps(self) -> Records[Regression]:
        """All steps. One is a regression, or an improvement, only if its `state` is "confirmed"."""
        return Records(
            Regression(each.title, each.model, each.platform, each.device, step)
            for each in self.series
            for step in each.steps
        )

    @property
    def top(self) -> Records[TopOperator]:
        """Operators over the latest run of every model, the costliest first."""
        return Records(self._found.top())

    @property
    def coverage(self) -> Records[ModelCoverage]:
        """How much of each model runs on SME2, the least first; `percent` is None where no run tells."""
        return Records(self._found.coverage())

    def report(self, output: str | Path) -> list[Path]:
        """Write the trend page (.html, with Markdown and JSON beside it), or a picture of one series (.svg, .png)."""
        from model_profiling.fleet.history import trend_page

        return trend_page.write(Trend(list(self.series)), Path(output))

    def __repr__(self) -> str:
        models = len({run.model for run in self.runs if not run.problem})
        return f"<{len(self.runs)} runs of {models} models>"
