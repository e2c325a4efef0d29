"""Kernel evidence: which kernel ran for which operator, as Markdown, as JSON, and as lines for the terminal."""

from __future__ import annotations

from typing import TYPE_CHECKING, Literal

import msgspec

from model_profiling.analysis.sme2.coverage import Coverage
from model_profiling.analysis.sme2.kernel_assignment import KernelCalls, KernelEvidence
from model_profiling.analysis.sme2.kernel_table import MAKE, TableDifference
from model_profiling.report import markdown
from model_profiling.report.blocks import Block, Name, Number, Paragraph, Report, Row, Section, Table
from model_profiling.report.words import BareOperator, unique_labels
from model_profiling.runner.protocol import Features
from model_profiling.upstream.kernel_calls import KERNEL_PREFIX, MATRIX_KERNEL

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from model_profiling.analysis.run.dumps import AnalysisSummary
    from model_profiling.analysis.run.run_view import RunView
    from model_profiling.analysis.sme2.coverage import CoveredOperator
    from model_profiling.analysis.sme2.weight_formats import FormatKernels
    from model_profiling.analysis.sme2.xnntrace import TracedKernel


_MOST_WRONG = 5
_COLUMNS = ("operator", "runs on", "kernel", "calls", "MACs", "shapes", "why not SME2")
WEIGHT_COLUMNS = ("weights", "operators", "on SME2", "kernels", "why not SME2")


class ExperimentKernels(msgspec.Struct, frozen=True):
    """The features in force, how far SME2 is used, and the kernels of each operator (None: no trace was kept)."""

    features: Features | None
    coverage: Coverage
    kernels: KernelEvidence | None


EvidenceTiming = Literal["emulated", "traced"]


class Kernels(msgspec.Struct, frozen=True, tag="kernels", tag_field="kind"):
    """kernels.json: the kernel evidence of every experiment that has any.

    `timing` says what ran it: an emulated CPU, or a real one whose kernels were traced. No time of either is latency.
    """

    model: str
    platform: str
    experiments: dict[str, ExperimentKernels]
    schema: int = 1
    sources: str | msgspec.UnsetType = msgspec.UNSET
    timing: EvidenceTiming = "traced"
    # Operators whose traced kernel is not the one that the table of known kernels names, or of which it has none.
    table: list[TableDifference] = []


def kernels_data(run: RunView) -> Kernels:
    from model_profiling.analysis.run.table_check import table_differences  # not for those who only show a coverage

    experiments = {
        name: ExperimentKernels(run.manifest.experiments[name].features, experiment.coverage, experiment.kernels)
        for name, experiment in run.summary.experiments.items()
        if experiment.coverage is not None
    }
    return Kernels(
        run.summary.model,
        run.summary.platform,
        experiments,
        timing="traced" if run.measured else "emulated",
        table=table_differences(run),
    )


def table_alerts(differences: Sequence[TableDifference], traced: int) -> list[str]:
    """Say loudly where the table of known kernels is wrong, and otherwise that it was proven."""
    wrong = [entry for entry in differences if entry.state == "differs"]
    unknown = len(differences) - len(wrong)
    names = unique_labels(BareOperator(entry.operator, entry.instruction) for entry in wrong)
    alerts = [
        f"THE TABLE OF KNOWN KERNELS IS WRONG of {name} ({entry.why}): it says {entry.table}, and "
        f"{entry.traced} ran. Please report it; {MAKE} makes it again."
        for name, entry in list(zip(names, wrong, strict=True))[:_MOST_WRONG]
    ]
    if traced and not wrong:
        not_in_it = f", {unknown} of which it does not know" if unknown else ""
        alerts.append(f"the table of known kernels says the same of {traced - unknown} traced operators{not_in_it}")
    return alerts


def kernel_view(summary: AnalysisSummary, label: Callable[[str], str] = str) -> str:
    """Return kernel_view.md: coverage of each experiment, and each eligible operator's kernel or why it has none."""
    sections = [
        Section(name, label(name), _evidence(experiment.coverage, experiment.kernels))
        for name, experiment in summary.experiments.items()
        if experiment.coverage is not None
    ]
    note = Paragraph("From a trace run: it shows which kernels ran, not how fast.")
    title = f"Kernels of {summary.model} on {summary.platform}"
    return markdown.render(Report(title, "", [], [*sections, Section("note", "", [note])]))


def _evidence(coverage: Coverage, kernels: KernelEvidence | None) -> list[Block]:
    blocks: list[Block] = [Paragraph(f"{coverage.headline}.")]
    if coverage.unassigned:
        blocks.append(Paragraph(f"Kernels, of one operator or another: {kernel_counts(coverage.unassigned)}."))
    if coverage.formats:
        rows = [weight_cells(entry) for entry in coverage.formats]
        blocks += [Paragraph("Which weights get SME2:"), Table("weights", WEIGHT_COLUMNS, rows)]
    rows = list(map(_row, operator_names(coverage), coverage.operators))
    blocks.append(Table("kernels", _COLUMNS, rows))
    if kernels is not None and kernels.at_load:
        blocks.append(Paragraph(f"While loading, weights were packed by: {kernel_counts(kernels.at_load)}."))
    return blocks


def weight_cells(entry: FormatKernels) -> Row:
    """Return one weight format as `WEIGHT_COLUMNS` has it."""
    kernels = ", ".join(f"{count} x {_short(kernel)}" for kernel, count in entry.kernels.items())
    on_sme2 = Number("unknown" if entry.on_sme2 is None else str(entry.on_sme2), entry.on_sme2)
    return (entry.weights, Number(str(entry.operators), entry.operators), on_sme2, Name(kernels), entry.why)


def detailed_experiments(run: RunView) -> list[str]:
    """Return the traced experiments worth showing operator by operator: of each phase the one that uses SME2 most, and
    among equals the one that could use most."""
    best: dict[str, str] = {}
    rank: dict[str, tuple[int, int]] = {}
    for name, experiment in run.summary.experiments.items():
        if experiment.coverage is not None:
            features = run.manifest.experiments[name].features
            mine = (experiment.coverage.on_sme2 or 0, len(features.active) if features is not None else 0)
            if mine > rank.get(run.phase(name), (-1, -1)):
                best[run.phase(name)], rank[run.phase(name)] = name, mine
    return list(best.values())


def log_view(logs: dict[str, list[TracedKernel]]) -> str:
    """Return kernels of several trace logs side by side: how often each log names each."""
    names = sorted({(entry.instructions, entry.kernel) for entries in logs.values() for entry in entries})
    counts = {name: {entry.kernel: entry.count for entry in entries} for name, entries in logs.items()}
    rows: list[Row] = []
    for instructions, kernel in names:
        found = [counts[name].get(kernel, 0) for name in logs]
        rows.append((kernel, instructions, *(Number(str(count), count) for count in found)))
    note = Paragraph("From trace runs: they show which kernels ran, not how fast.")
    table = Table("kernels", ("kernel", "instructions", *logs), rows)
    return markdown.render(Report("Kernels", "", [], [Section("kernels", "", [table, note])]))


def kernel_counts(kernels: list[KernelCalls]) -> str:
    return ", ".join(f"{call.kernel} ({call.calls})" for call in kernels)


def operator_names(coverage: Coverage) -> list[str]:
    return unique_labels(coverage.operators)


def _row(name: str, operator: CoveredOperator) -> Row:
    kernels = ", ".join(call.kernel for call in operator.kernels) or "-"
    calls = Number(", ".join(str(call.calls) for call in operator.kernels) or "-", None)
    work = operator.multiply_accumulates
    macs = Number(f"{work:,}" if work is not None else "-", work)
    return (name, operator.level, kernels, calls, macs, operator.shape, operator.why_not)


def coverage_lines(name: str, coverage: Coverage, detail: bool) -> list[str]:
    """Return lines for the terminal: the headline, and in detail each operator's matrix kernel or why it has none."""
    sme = f" (and SME {coverage.on_sme})" if coverage.on_sme else ""
    lines = [f"  {name}: {coverage.headline}{sme}"]
    if coverage.unknown:
        return [*lines, *(f"    {call.kernel}  {call.calls} calls" for call in coverage.unassigned)]
    if not detail:
        return lines
    lines += [f"    {line}" for line in _weight_lines(coverage)]
    names = operator_names(coverage)
    width = max(map(len, names), default=0)
    said = {(entry.weights, entry.why) for entry in coverage.formats}
    for label, operator in zip(names, coverage.operators, strict=True):
        run = [call.kernel for call in operator.kernels if call.kernel.startswith(MATRIX_KERNEL)]
        matrix = ", ".join(map(_short, run))
        lines.append(f"    {label:<{width}}  {matrix or operator.level}{_reason(operator, said)}")
    return lines


def _weight_lines(coverage: Coverage) -> list[str]:
    """Return `weights in int4 per channel: SME2 runs 7 of 7 (7 x ...)`."""
    lines = []
    for entry in coverage.formats:
        kernels = ", ".join(f"{count} x {_short(kernel)}" for kernel, count in entry.kernels.items())
        why = f": {entry.why}" if entry.why else ""
        lines.append(f"weights in {entry.weights}: SME2 runs {entry.on_sme2} of {entry.operators} ({kernels}){why}")
    return lines


def _short(kernel: str) -> str:
    return kernel.removeprefix(KERNEL_PREFIX)


def _reason(operator: CoveredOperator, said: set[tuple[str, str]]) -> str:
    """Return why an operator does not run on SME2, unless that was said of all of its weight format."""
    return f"  ({operator.why_not})" if operator.why_not and (operator.weights, operator.why_not) not in said else ""
