"""The roofs of a CPU: what it reaches at its best, how far operators are from that, and what reaching it would save."""

from model_profiling.analysis.roofs.roof_rates import Rates, Roofs
from model_profiling.analysis.roofs.roof_table import BestRate, kind_rows, roof_rows, series_name
from model_profiling.analysis.roofs.roofline import AT_THE_ROOF, OperatorRoof, Roofline, compute_of_roof, roofs_by_row
from model_profiling.analysis.run.run_view import RunView
from model_profiling.analysis.timing.breakdown import Breakdown
from model_profiling.analysis.timing.work import Work
from model_profiling.base.dtypes import FLOATS
from model_profiling.base.units import counted
from model_profiling.report import numbers
from model_profiling.report.blocks import Block, Name, Number, Paragraph, Picture, Report, Row, Section, Table
from model_profiling.report.words import labelled, some, source, unique_labels

OF_ROOF = "of roof"
_SHOWN = 10
_SIZES = ("to 32 KiB", "to 512 KiB", "above")
_CAPTION = (
    "Operators by operations per byte and rate, both logarithmic. Lines are measured roofs: flat the best rate of "
    "the multipliers, sloped the best rate of near and far memory. Depthwise and grouped convolutions have roofs of "
    "their own: dashes. Numbers: operators that would gain most. Rings: operators above their roof. Operators that "
    "multiply no matrices are left out."
)

_ROOFS = (
    "the best rates of this backend with the same dtype, features and threads. Matrix products are held against the "
    "best of all products, which small ones do not reach; other operators against their own kind and size, and those "
    "of a kind that was not measured have no roof. Headroom is a prediction."
)


def roof_line(run: RunView) -> str:
    """Return where nobody has measured how fast this CPU can be: the command that does."""
    shown = [run.summary.experiments[name].breakdown for name in run.shown] if run.measured else []
    if not run.roofs.command or not any(entry.work for breakdown in shown for entry in breakdown.instances):
        return ""
    return f"`{run.roofs.command}` measures how fast this CPU can be."


def headroom_line(run: RunView, name: str) -> str:
    """Return what all operators of an experiment could save together."""
    roofline = run.rooflines.get(name)
    if roofline is None:
        return ""
    whole = run.summary.experiments[name].breakdown.execute_ms or 1.0
    saved = f"{numbers.ms(roofline.headroom_ms)} ({100 * roofline.headroom_ms / whole:.0f} %)"
    return f"headroom: at their roofs, all operators together would save {saved}"


def section(run: RunView) -> Section | None:
    """Return the operators with most headroom of each experiment that a reader wants faster, and the picture."""
    blocks: list[Block] = []
    for name in run.of_interest:
        roofline = run.rooflines.get(name)
        if roofline is not None:
            label = f"{run.label(name)}, " if len(run.of_interest) > 1 else ""
            blocks += _of(run, name, label, roofline)
    if not blocks:
        return None
    found = [headroom_line(run, name) for name in run.of_interest if name in run.rooflines]
    return Section("roofline", "How far from the roof", [Picture("roofline", _CAPTION), *blocks], True, found[0])


def _of(run: RunView, name: str, label: str, roofline: Roofline) -> list[Block]:
    breakdown = run.summary.experiments[name].breakdown
    covered = f"{label}{headroom_line(run, name)}. {numbers.share(roofline.covered)} of the time has a known roof."
    blocks: list[Block] = [Paragraph(covered[0].upper() + covered[1:]), _table(breakdown, roofline)]
    above = [entry for entry in roofline.operators if entry.of_roof > numbers.ABOVE_ROOF]
    if above:
        names = some(unique_labels(breakdown.instances[entry.row] for entry in above))
        blocks.append(Paragraph(f"{above_sentence(above, run.roofs.rates(run.manifest, name))} ({names})."))
    measured = f"Roofs of {roofline.cpu} were measured on {roofline.measured[:10]} with `sme2-kit roofs`"
    return [*blocks, Paragraph(f"{measured}: {_ROOFS}")]


def above_sentence(above: list[OperatorRoof], rates: Rates | None) -> str:
    """Say what it means that operators are faster than their roof: that roof, or what is known of them, is wrong."""
    are, they, their = ("is", "it", "its") if len(above) == 1 else ("are", "they", "their")
    times = max(entry.of_roof for entry in above)
    reasons = [f"what {they} read was in a nearer cache"] if any(e.bound == "memory" for e in above) else []
    reasons += ["no probe has such a shape"] if any(e.bound == "compute" for e in above) else []
    load = rates.measurement.load if rates is not None else None
    said = f" (load {load:.1f} when it began)" if load is not None else ""
    return (
        f"{counted(len(above), 'operator')} {are} above the roof, up to {numbers.ratio(times)} as fast. Either "
        f"{' or '.join(reasons)}, or the count of {their} operations is wrong, or the roofs were measured on a busy "
        f"machine or with a lower clock{said}: measure them again with `sme2-kit roofs`"
    )


def _table(breakdown: Breakdown, roofline: Roofline) -> Table:
    """Return the operators with most headroom first; those above their roof have none and come last."""
    chosen = sorted(roofline.operators, key=lambda entry: (-entry.headroom_ms, -breakdown.instances[entry.row].ms))
    rows: list[Row] = []
    for entry, (label, instance) in zip(chosen, labelled([breakdown.instances[x.row] for x in chosen]), strict=True):
        rate = Number(f"{numbers.rate(entry.rate)} {entry.unit}", entry.rate), numbers.cell(entry.roof, numbers.rate)
        reached = numbers.cell(entry.of_roof, numbers.of_roof), numbers.ms_cell(entry.headroom_ms)
        where = _shape(instance.work), Name(source(instance))
        rows.append((Name(label), numbers.ms_cell(instance.ms), *rate, entry.bound, *reached, *where))
    columns = ("operator", "time", "rate", "roof", "bound", OF_ROOF, "headroom", "product (m x k by k x n)", "source")
    return Table("roofline", columns, rows, _SHOWN)


def _shape(work: Work | None) -> str:
    if work is None or work.product is None:
        return ""
    product = work.product
    times = f"{product.count} x " if product.count > 1 else ""
    return f"{times}{product.m} x {product.k} by {product.k} x {product.n}"


def at_the_roof(run: RunView, name: str) -> str:
    """Say where nothing is to be gained: the categories that take most of the time are as fast as this CPU is."""
    experiment = run.summary.experiments[name]
    roofs = roofs_by_row(experiment.roofline)
    full = {c: v for c, v in compute_of_roof(experiment.breakdown, roofs).items() if v >= AT_THE_ROOF}
    share = sum(experiment.breakdown.category(category).share for category in full)
    if not full or share < 0.5:
        return ""
    named = " and ".join(f"{category} ({min(value, 1.0) * 100:.0f} %)" for category, value in full.items())
    verb, them = ("run", "them") if len(full) > 1 else ("runs", "it")
    lever = "less work or a smaller dtype" if run.summary.dtype in FLOATS else "less work"
    best = "at the best rate that this CPU reaches"
    return f"At the roof: {named} {verb} {best}; only {lever} makes {them} faster."


_SPREADS = (
    "In parentheses: MAD of the executions, or half a tick of XNNPACK's clock (1 us) if that is more. Sizes are "
    "bytes read and written."
)


def report(roofs: Roofs) -> Report:
    """Return the best of each kind of work, and how sure it is."""
    rates: list[Row] = []
    moved: list[Row] = []
    for entry, row in zip(roofs.measurements, roof_rows(roofs), strict=True):
        name, best = series_name(entry, roofs.measurements), (row.matrix, row.convolution, row.depthwise)
        rates.append((name, *map(_best, best), numbers.count_cell(row.executions)))
        moved.append((name, *map(_best, (*row.copy, *row.transpose))))
    kinds = kind_rows(roofs)
    elements = list(dict.fromkeys(element for kind in kinds for element in kind.best))
    of_kind: list[Row] = [(x.kind, *(_best(x.best.get(element)) for element in elements), x.unit) for x in kinds]
    sizes = (f"{kind} {size}" for kind in ("copy", "transpose") for size in _SIZES)
    first = Table("rates", ("Best rate (GOP/s)", "matrix product", "3x3 convolution", "depthwise", "runs"), rates)
    tables = [Table("bandwidth", ("bandwidth (GB/s)", *sizes), moved)]
    tables += [Table("kinds", ("best of its kind", *elements, ""), of_kind)] if kinds else []
    sections = [Section("roofs", "Bandwidth and other kinds", [*tables, Paragraph(_SPREADS)])]
    made = f"measured {roofs.created[:10]} with ExecuTorch {roofs.executorch}"
    return Report(f"{roofs.cpu} on {roofs.platform}", made, sections=sections, opening=[[first]])


def _best(best: BestRate | None) -> Number:
    if best is None:
        return numbers.UNKNOWN
    return Number(f"{numbers.rate(best.rate)} ({numbers.spread(best.spread_percent)})", best.rate)
