"""A run: opened, looked at, saved, reported."""

import functools
from pathlib import Path
from typing import Any

import msgspec

from model_profiling.analysis.compare.comparison import instance_groups
from model_profiling.analysis.compare.metrics import ExperimentMetrics
from model_profiling.analysis.process.startup import PART_NS
from model_profiling.analysis.roofs.roofline import group_work, roofs_by_row
from model_profiling.analysis.run.dumps import ExperimentAnalysis
from model_profiling.analysis.run.run_view import RunView
from model_profiling.analysis.timing.latency import Comparison
from model_profiling.api import rows
from model_profiling.api.records import Records, RunSpeedup
from model_profiling.api.rows import Changes, Row
from model_profiling.base.errors import KitError
from model_profiling.report.blocks import Report
from model_profiling.store.artifacts import REPORT
from model_profiling.store.derived import OutdatedFile

# What a program is promised of a run; its other attributes are what reports are made of.
_PUBLIC = (
    "advice auto categories changes check comparisons graph kernels latency manifest memory modules notes "
    "operator_scaling operators path program report runtimes save scaling sme2 speedup startup summary"
)


class Run(RunView):
    """A run directory, or one ETDump, that is read and analysed once, when first asked.

    In a notebook the last line of a cell shows it: the result in a sentence, where the time goes, the top operators.
    """

    def __dir__(self) -> list[str]:
        return _PUBLIC.split()

    @functools.cached_property
    def notes(self) -> list[str]:
        """What was worth knowing while it was measured, in words; empty of a run that was only opened."""
        return []

    @property
    def program(self) -> Path | None:
        """The .pte that ran; None if it is gone or has changed since, and of a bare ETDump."""
        return None if self.path.is_file() else self.manifest.model.file()

    @functools.cached_property
    def operators(self) -> Records[Row]:
        """Operators of every experiment, costliest first."""
        return Records(
            rows.OperatorRow.of(
                o, o.spread, group_work(experiment.breakdown, places, roofs), experiment=name, timed=timed
            )
            for name, experiment, timed in self._experiments()
            for roofs in [roofs_by_row(experiment.roofline)]
            for o, places in instance_groups(experiment.breakdown)
        )

    @functools.cached_property
    def categories(self) -> Records[Row]:
        """Where the time of every experiment goes; the parts add up to `Method::execute`."""
        return Records(
            rows.CategoryRow.of(c, experiment=name, timed=timed)
            for name, experiment, timed in self._experiments()
            for c in experiment.breakdown.categories
        )

    @functools.cached_property
    def modules(self) -> Records[Row]:
        """Cost by module, source line and operator of every experiment, a tree in order: each part before its own."""
        return Records(
            rows.ModuleRow.of(node, experiment=name, depth=depth, timed=timed)
            for name, _, timed in self._experiments()
            for depth, node in self.cost_tree(name).walk()
        )

    @functools.cached_property
    def latency(self) -> Records[Row]:
        """Latency of every experiment. An emulated run, or a bare ETDump, has none."""
        return Records(
            rows.LatencyRow.of(entry.latency, entry, experiment=name, source=entry.latency_source, warnings=warnings)
            for name, entry in self._metrics.items()
            for warnings in [entry.latency.warnings if entry.latency is not None else []]
            if self.measured
        )

    @functools.cached_property
    def startup(self) -> Records[Row]:
        """How every experiment starts, part by part; nothing of those whose start was not measured."""
        return Records(
            rows.StartupRow.of(time, start, experiment=name, part=part)
            for name, entry in self._metrics.items()
            if (start := entry.startup) is not None
            for part in PART_NS
            if (time := getattr(start, part)) is not None
        )

    @functools.cached_property
    def memory(self) -> Records[Row]:
        """What the processes of every experiment hold in memory, and what the .pte says of it."""
        program = self.summary.metrics.program if self.summary.metrics is not None else None
        said: dict[str, Any] = {"planned_bytes": None, "constant_bytes": None}
        if program is not None:
            said = {"planned_bytes": program.planned_bytes, "constant_bytes": program.all_constant_bytes}
        return Records(
            rows.MemoryRow.of(entry, entry.memory, experiment=name, unknown=entry.memory_unknown, **said)
            for name, entry in self._metrics.items()
        )

    @functools.cached_property
    def comparisons(self) -> Records[Comparison]:
        """The pairs of experiments that were to be compared, each with ratio, interval and verdict."""
        metrics = self.summary.metrics
        return Records(metrics.comparisons if metrics is not None and self.measured else [])

    @functools.cached_property
    def changes(self) -> Changes:
        """What the difference of each compared pair consists of, by line and module; adds up to the whole."""
        return Changes(super().changes)

    @functools.cached_property
    def speedup(self) -> RunSpeedup:
        """How many times faster the first of `comparisons` is, with its interval; or why nobody can tell."""
        from model_profiling.api.display import not_compared
        from model_profiling.report.words import factor

        if not self.comparisons:
            return RunSpeedup(None, None, None, "unknown", False, not_compared(self))
        found = self.comparisons[0]
        shown, note = factor(found)
        pair = (found.before, found.after)
        if found.high is None:
            return RunSpeedup(None, None, None, "unknown", False, note, *pair)
        return RunSpeedup(found.ratio, found.low, found.high, found.verdict, found.reliable, note, *pair, shown)

    @functools.cached_property
    def scaling(self) -> Records[Row]:
        """What more threads bring, of a run with several numbers of them; else empty."""
        found = self.summary.metrics.scaling if self.summary.metrics is not None else None
        on_off: dict[str, dict[str, Any]] = {
            switch.after: {"on_off": switch.ratio, "on_off_low": switch.low, "on_off_high": switch.high}
            for switch in (found.switches if found else [])
        }
        return Records(
            rows.ThreadRow.of(p, disabled=curve.disabled, best=p.threads == curve.best, **on_off.get(p.experiment, {}))
            for curve in (found.curves if found else [])
            for p in curve.points
        )

    @functools.cached_property
    def operator_scaling(self) -> Records[Row]:
        """The same for every operator, those first that lose most by not scaling."""
        return Records(
            rows.OperatorThreadRow.of(o, experiment=experiment, threads=threads, ms=ms, many=curve.many)
            for curve in self.summary.operator_scaling
            for o in curve.operators
            for experiment, threads, ms in zip(curve.experiments, curve.threads, o.ms, strict=True)
        )

    @functools.cached_property
    def advice(self) -> Records[Row]:
        """What to do next, for every experiment: a leak first, then what a flag can do, by its gain."""
        return Records(
            rows.AdviceRow.of(found, experiment=name, rule=found.rule.value)
            for name, experiment, timed in self._experiments()
            for found in experiment.advice
            if timed
        )

    @functools.cached_property
    def kernels(self) -> Records[Row]:
        """The CONV and GEMM operators of trace runs, with the kernels that ran for them."""
        return Records(
            rows.KernelRow.of(o, experiment=name, operator=o.name, kernels=[call.kernel for call in o.kernels])
            for name, experiment in self.summary.experiments.items()
            if experiment.coverage is not None
            for o in experiment.coverage.operators
        )

    @property
    def _metrics(self) -> dict[str, ExperimentMetrics]:
        return self.summary.metrics.experiments if self.summary.metrics is not None else {}

    def _experiments(self) -> list[tuple[str, ExperimentAnalysis, bool]]:
        """Return every experiment, and whether its times mean anything."""
        found = self.summary.experiments.items()
        return [(name, experiment, experiment.breakdown.execute_ms > 0) for name, experiment in found]

    def check(self) -> None:
        """Raise RunError if an emulated run's outputs differ by more than the dtype explains, or a kernel trace fails
        to show which operators called which kernels."""
        from model_profiling.analysis.run.validation import verify_kernels

        self.check_outputs()
        if any(record.mode == "trace" for record in self.manifest.experiments.values()):
            verify_kernels(self.summary)

    def check_outputs(self) -> None:
        """Check the outputs: the first half of `check`."""
        from model_profiling.analysis.run.validation import verify_outputs

        if self.manifest.timing != "measured":
            verify_outputs(self.summary)

    def save(self) -> list[OutdatedFile]:
        """Write everything that derives from the run into its directory, apart from reports.

        Returns which files there show an earlier state of it; those that nobody has edited are gone.
        """
        from model_profiling.report.files.artifact_files import save

        return save(self)

    def report(
        self, output: str | Path | None = None, title: str = "", html: bool = False, markdown: bool = True
    ) -> list[Path]:
        """Write a report and say where: Markdown with pictures and a trace; with `html` also one page.

        A name that ends in .html asks for the page and nothing else. By default it is report.md in the run directory.
        """
        from model_profiling.report.drawing.drawing_process import DrawingPool
        from model_profiling.report.files.report_files import write_report

        place = Path(output) if output is not None else self.path / REPORT
        only_page = place.suffix == ".html"
        with DrawingPool() as artist:
            return write_report(self, artist, place, title, markdown and not only_page, html or only_page)[0]

    def graph(self, output: str | Path | None = None) -> Path:
        """Write a page with the interactive graph of its operators and say where; by default graph.html in the run
        directory. What is on it, as data, is `graphs`."""
        from model_profiling.report.files.report_files import write_graph

        return write_graph(self, Path(output) if output is not None else None)[0]

    def __repr__(self) -> str:
        from model_profiling.base.printing import clean

        what = str(self.path)
        if not self.path.is_file():
            try:
                manifest = self.manifest
                what = f"{manifest.model.stem} on {manifest.platform}: {', '.join(manifest.experiments)}; {self.path}"
            except KitError as error:  # it may have gone since it was opened
                what = error.message
        return f"<Run {clean(what)}>".replace("\n", " ")

    @property
    def first_screen(self) -> Report:
        """What a command shows of the run: the result without the sections of its report."""
        from model_profiling.report.content import dumps

        if self.path.is_file():
            found = dumps.report(self.summary)
            return msgspec.structs.replace(found, title=f"{self.path.name}: traced times of a bare ETDump")
        from model_profiling.report.content import first_screen

        return first_screen.report(self)

    @property
    def document(self) -> Report:
        """Everything that there is to say of the run."""
        from model_profiling.report.content.whole import report

        return report(self)

    def __str__(self) -> str:
        """The result, as a terminal shows it: verdict, SME2, what to do first, where the time goes."""
        from model_profiling.base.printing import clean
        from model_profiling.report.terminal import Style, render

        try:
            return clean(render(self.first_screen, Style(colour=False)))
        except KitError as error:  # it may have gone since it was opened
            return f"{self!r}: {clean(error.message)}"

    @functools.cached_property
    def _picture(self) -> str:
        from model_profiling.api.display import breakdown_picture

        return breakdown_picture(self)

    def _repr_html_(self) -> str:
        from model_profiling.api.display import run_html

        return run_html(self, self.operators, self.kernels, self._picture)
