"""Kernel evidence: which kernel ran for which operator, as Markdown and as JSON."""

from __future__ import annotations

from typing import TYPE_CHECKING, Literal

import msgspec

from model_profiling.analysis.sme2.coverage import Coverage
from model_profiling.analysis.sme2.kernel_assignment import KernelCalls, KernelEvidence
from model_profiling.analysis.sme2.kernel_table import MAKE, TableDifference
from model_profiling.report import markdown, numbers
from model_profiling.report.blocks import Name, Number, Paragraph, Report, Row, Section, Table
from model_profiling.report.words import BareOperator, labelled, unique_labels
from model_profiling.runner.protocol import Features
from model_profiling.upstream.libraries import KERNEL_PREFIX, MATRIX_KERNEL

if TYPE_CHECKING:
    from collections.abc import Sequence

    from model_profiling.analysis.run.run_view import RunView
    from model_profiling.analysis.sme2.coverage import FormatKernels
    from model_profiling.analysis.sme2.xnntrace import TracedKernel

_MOST_WRONG = 5
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
    # Not for those who only show a coverage.
    from model_profiling.analysis.run.run_forecasts import table_differences

    experiments = {
        name: ExperimentKernels(run.manifest.experiments[name].features, experiment.coverage, experiment.kernels)
        for name, experiment in run.summary.experiments.items()
        if experiment.coverage is not None
    }
    timing: EvidenceTiming = "traced" if run.measured else "emulated"
    table = table_differences(run)
    return Kernels(run.summary.model, run.summary.platform, experiments, timing=timing, table=table)


def table_alerts(differences: Sequence[TableDifference], traced: int) -> list[str]:
    """Say loudly where the table of known kernels is wrong, and otherwise that it was proven."""
    wrong = [entry for entry in differences if entry.state == "differs"]
    unknown = len(differences) - len(wrong)
    names = unique_labels(BareOperator(entry.operator, entry.instruction) for entry in wrong)
    alerts = [
        f"THE TABLE OF KNOWN KERNELS IS WRONG of {name} ({entry.why}): it says {entry.table}, and "
        f"{entry.traced} ran. Please report it; {MAKE} makes it again."
        for name, entry in zip(names, wrong[:_MOST_WRONG], strict=False)
    ]
    if traced and not wrong:
        not_in_it = f", {unknown} of which it does not know" if unknown else ""
        alerts.append(f"the table of known kernels says the same of {traced - unknown} traced operators{not_in_it}")
    return alerts


def weight_cells(entry: FormatKernels) -> Row:
    """Return one weight format as `WEIGHT_COLUMNS` has it."""
    kernels = ", ".join(f"{count} x {_short(kernel)}" for kernel, count in entry.kernels.items())
    on_sme2 = Number("unknown", None) if entry.on_sme2 is None else numbers.count_cell(entry.on_sme2)
    return (entry.weights, numbers.count_cell(entry.operators), on_sme2, Name(kernels), entry.why)


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
    counts = [{entry.kernel: entry.count for entry in entries} for entries in logs.values()]
    rows: list[Row] = [(k, how, *(numbers.count_cell(of.get(k, 0)) for of in counts)) for how, k in names]
    note = Paragraph("From trace runs: they show which kernels ran, not how fast.")
    table = Table("kernels", ("kernel", "instructions", *logs), rows)
    return markdown.render(Report("Kernels", "", [], [Section("kernels", "", [table, note])]))


def kernel_counts(kernels: list[KernelCalls]) -> str:
    return ", ".join(f"{call.kernel} ({call.calls})" for call in kernels)


def coverage_table(coverage: Coverage) -> Table:
    """Return each eligible operator with its kernels, or why SME2 has none."""
    rows: list[Row] = []
    for name, operator in labelled(coverage.operators):
        kernels = ", ".join(call.kernel for call in operator.kernels) or "-"
        calls = Number(", ".join(str(call.calls) for call in operator.kernels) or "-", None)
        macs = numbers.cell(operator.multiply_accumulates, "{:,}".format)
        rows.append((Name(name), operator.level, Name(kernels), calls, macs, operator.shape, operator.why_not))
    columns = ("operator", "runs on", "kernel", "calls", "MACs", "shapes", "why not SME2")
    return Table("coverage", columns, rows)


def kernel_rows(coverage: Coverage) -> list[Row]:
    """Return each operator with its matrix kernel, or with what it runs on and why that is not SME2; where nobody can
    say which is whose, the kernels."""
    if coverage.unknown:
        return [(call.kernel, f"{call.calls} calls") for call in coverage.unassigned]
    said = {(entry.weights, entry.why) for entry in coverage.formats}
    rows: list[Row] = []
    for label, operator in labelled(coverage.operators):
        run = [call.kernel for call in operator.kernels if call.kernel.startswith(MATRIX_KERNEL)]
        # A reason that was said of all of its weight format is not said again.
        why = f" ({operator.why_not})" if operator.why_not and (operator.weights, operator.why_not) not in said else ""
        rows.append((label, (", ".join(map(_short, run)) or operator.level) + why))
    return rows


def _short(kernel: str) -> str:
    return kernel.removeprefix(KERNEL_PREFIX)
