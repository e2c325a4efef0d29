"""Kernel evidence: which paths CONV and GEMM took, as far as ETDump and trace runs tell, and what SME2 covers."""

from model_profiling.analysis.run.run_view import RunView
from model_profiling.analysis.timing.breakdown import Breakdown
from model_profiling.analysis.timing.categories import PACKED_TYPES
from model_profiling.report import markdown, numbers
from model_profiling.report.blocks import Block, Paragraph, Report, Row, Section, Table, bullets
from model_profiling.report.content.operators import kernel
from model_profiling.report.kernel_view import (
    WEIGHT_COLUMNS,
    coverage_table,
    detailed_experiments,
    kernel_counts,
    weight_cells,
)

_COMPUTE = ("CONV", "GEMM")


def section(run: RunView) -> Section | None:
    if not run.summary.experiments:
        return None
    arm = run.manifest.environment.get("arch") != "x86_64"
    blocks: list[Block] = _covered(run)
    if not blocks:
        shown = "shows them, on SME2 hardware or without" if arm else "shows those of an Arm CPU with SME2"
        blocks.append(Paragraph(f"Kernel names were not traced: sme2-kit kernels MODEL.pte {shown}."))
    blocks.append(_paths(run))
    legend = "A path is the number type and algorithm that XNNPACK's operator name in the ETDump shows."
    packed = f" The types {', '.join(PACKED_TYPES)} are KleidiAI's packed path, the one that has SME2 kernels."
    blocks.append(Paragraph(legend + (packed if arm else "")))
    traced = [e.coverage.headline for e in run.summary.experiments.values() if e.coverage is not None]
    return Section("kernels", "Kernels", blocks, True, traced[0] if traced else "names were not traced")


def kernel_view(run: RunView) -> str:
    """Return kernel_view.md: coverage of each experiment, and each eligible operator's kernel or why it has none."""
    title = f"Kernels of {run.summary.model} on {run.summary.platform}"
    note = Paragraph("From a trace run: it shows which kernels ran, not how fast.")
    return markdown.render(Report(title, sections=[Section("kernels", "", [*_covered(run), note])]))


def _covered(run: RunView) -> list[Block]:
    """Return what trace runs tell: SME2 coverage, and each eligible operator with its kernel or why it has none."""
    traced = {name: e.coverage for name, e in run.summary.experiments.items() if e.coverage is not None}
    blocks = bullets(f"{run.label(name)}: {coverage.headline}." for name, coverage in traced.items())
    if weights := _weights(run):
        blocks += [Paragraph("Which weights get SME2:"), weights]
    for name, coverage in traced.items():
        if coverage.unassigned:
            said = f"{run.label(name)}, of one operator or another: {kernel_counts(coverage.unassigned)}."
            blocks.append(Paragraph(said))
        elif not coverage.unknown:
            blocks += [Paragraph(f"{run.label(name)}:"), coverage_table(coverage)]
        evidence = run.summary.experiments[name].kernels
        if evidence is not None and evidence.at_load:
            blocks.append(Paragraph(f"While loading, weights were packed by: {kernel_counts(evidence.at_load)}."))
    return blocks


def _weights(run: RunView) -> Table | None:
    """Return each weight format with the kernels that its operators called, by phase where there are phases."""
    rows: list[Row] = []
    for name in detailed_experiments(run):
        coverage = run.summary.experiments[name].coverage
        for entry in coverage.formats if coverage is not None else ():
            phase = (run.phase(name),) if run.phases else ()
            rows.append((*phase, *weight_cells(entry)))
    return Table("weights", (*(("phase",) if run.phases else ()), *WEIGHT_COLUMNS), rows) if rows else None


def _paths(run: RunView) -> Table:
    """Return one row per operator kind and path, with how many operators took it in each experiment."""
    shares = [_shares(experiment.breakdown) for experiment in run.summary.experiments.values()]
    rows: list[Row] = []
    for path in sorted({path for each in shares for path in each}):
        found = [each.get(path, []) for each in shares]
        cells = [(numbers.count_cell(len(parts)), numbers.share_cell(sum(parts, 0.0))) for parts in found]
        rows.append((*path, *(cell for each in cells for cell in (each if run.measured else each[:1]))))
    per = [(run.label(name), "share") if run.measured else (run.label(name),) for name in run.summary.experiments]
    return Table("kernels", ("category", "operator", "path", *(column for columns in per for column in columns)), rows)


def _shares(breakdown: Breakdown) -> dict[tuple[str, str, str], list[float]]:
    """Return the share of each operator that multiplies, by category, kind and path."""
    found: dict[tuple[str, str, str], list[float]] = {}
    for entry in breakdown.instances:
        if entry.category in _COMPUTE:
            path = (entry.category, entry.operator.split(" (")[0], kernel(entry) or "-")
            found.setdefault(path, []).append(entry.share)
    return found
