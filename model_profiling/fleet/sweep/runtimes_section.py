"""Other runtimes in a sweep: how many times as fast as ExecuTorch each was, cell by cell."""

from model_profiling.fleet.sweep.result import CellRecord, RuntimeResult, SweepResult
from model_profiling.report import numbers
from model_profiling.report.blocks import Cell, Link, Name, Paragraph, Row, Section, Table


def runtimes_section(result: SweepResult) -> Section | None:
    """Return how many times as fast as ExecuTorch other runtimes were, a column for each."""
    cells = [cell for cell in result.cells if cell.runtimes]
    labels = list(dict.fromkeys(each.label for cell in cells for each in cell.runtimes))
    if not labels:
        return None
    rows: list[Row] = []
    for cell in cells:
        found = {each.label: each for each in cell.runtimes}
        rows.append((_named_cell(cell), *(_cell(found.get(label)) for label in labels)))
    said = (
        "How many times as fast as ExecuTorch each is, measured in turns with it: the same model, weights, inputs and "
        "threads. ~ is no difference seen. The report of a cell has start-up, memory and settings."
    )
    return Section("runtimes", "Other runtimes", [Table("runtimes", ("cell", *labels), rows), Paragraph(said)])


def _named_cell(cell: CellRecord) -> Cell:
    return Link(cell.name, cell.report) if cell.report else Name(cell.name)


def _cell(found: RuntimeResult | None) -> Cell:
    if found is None:
        return "unknown"
    if found.ratio is None or found.low is None or found.high is None:
        return found.reason or "too few runs to tell"
    bounds = numbers.interval(found.low, found.high)
    return f"~ ({bounds})" if found.verdict == "no difference seen" else f"{numbers.ratio(found.ratio)} ({bounds})"


def runtime_sentences(result: SweepResult) -> list[str]:
    """Return the same for a terminal, a sentence for each cell."""
    return [
        f"{cell.name} against ExecuTorch: " + "; ".join(f"{each.label} {_cell(each)}" for each in cell.runtimes)
        for cell in result.cells
        if cell.runtimes
    ]
