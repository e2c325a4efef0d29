"""What the graph is like: operators outside the delegate, and data that is moved instead of computed with."""

from model_profiling.analysis.breakdown import InstanceTime
from model_profiling.analysis.movement import Chain, DataMovement, InversePair
from model_profiling.analysis.run_view import RunView
from model_profiling.report import numbers
from model_profiling.report.blocks import Block, Bullets, Cell, Number, Paragraph, Section, Table
from model_profiling.report.content.time import source

_MOST_CHAINS = 10


def portable(run: RunView) -> Section | None:
    """Operators that ran outside every delegate, with the export's reason where it gave one."""
    if not run.summary.experiments:
        return None
    blocks: list[Block] = []
    for name in run.of_interest:
        entries = [e for e in run.summary.experiments[name].breakdown.instances if e.where == "portable"]
        if not entries:
            blocks.append(Paragraph(f"{name}: every operator ran inside the delegate."))
            continue
        timed = (name, "share") if run.measured else ()
        columns = ("operator", "count", *timed, "why it is not delegated", "source")
        groups: dict[str, list[InstanceTime]] = {}
        for entry in sorted(entries, key=lambda entry: -entry.ms):
            groups.setdefault(entry.operator, []).append(entry)
        rows = [_portable_row(run, operator, members) for operator, members in groups.items()]
        blocks.append(Table("portable", columns, rows, short=10))
    return Section("portable", "Portable operators", blocks)


def _portable_row(run: RunView, operator: str, members: list[InstanceTime]) -> tuple[Cell, ...]:
    """All instances of one portable operator together, with the first places they come from."""
    ms, part = sum(entry.ms for entry in members), sum(entry.share for entry in members)
    times = (Number(numbers.ms(ms), ms), Number(numbers.share(part), part)) if run.measured else ()
    places = list(dict.fromkeys(source(entry) for entry in members if source(entry)))
    more = f" and {len(places) - 2} more" if len(places) > 2 else ""
    count = Number(str(len(members)), len(members))
    return (operator, count, *times, _reason(run, operator), ", ".join(places[:2]) + more)


def _reason(run: RunView, operator: str) -> str:
    export = run.manifest.model.export
    return (export.delegation.why_not(operator) if export else "") or "not known"


def movement(run: RunView) -> Section | None:
    """Transposes, copies, pads and converts: how much, in which chains, and which undo each other."""
    if not run.summary.experiments:
        return None
    blocks: list[Block] = []
    for name in run.of_interest:
        found = run.summary.experiments[name].data_movement
        if not found.by_kind:
            blocks.append(Paragraph(f"{name}: no data is moved between operators."))
            continue
        blocks.append(Paragraph(_sentence(name, found, run.measured)))
        if found.note:
            blocks.append(Paragraph(f"Chains are not listed: {found.note}."))
            continue
        blocks.append(_chains(found.chains, run.measured))
        pairs = [_pair(pair, run.measured) for pair in found.inverse_pairs[:_MOST_CHAINS]]
        if pairs:
            blocks += [Paragraph("Transposes that undo each other, as the model's graph shows:"), Bullets(pairs)]
    return Section("movement", "Data movement", blocks)


def _sentence(name: str, found: DataMovement, measured: bool) -> str:
    if not measured:
        places = f" in {len(found.chains)} places" if found.chains else ""
        return f"{name}: data is moved{places}, by {', '.join(found.by_kind)}."
    kinds = ", ".join(f"{kind} {numbers.ms(value)}" for kind, value in found.by_kind.items())
    return f"{name}: {numbers.ms(found.ms)} ({numbers.share(found.share)}) moves data: {kinds}."


def _chains(chains: list[Chain], measured: bool) -> Table:
    rows: list[tuple[Cell, ...]] = []
    for chain in chains:
        between = f"{chain.before or 'the input'} → {chain.after or 'the output'}"
        times = (Number(numbers.ms(chain.ms), chain.ms), Number(numbers.share(chain.share), chain.share))
        edge = "yes" if chain.at_boundary else "no"
        rows.append((", ".join(chain.operators), *(times if measured else ()), between, edge))
    timed = ("time", "share") if measured else ()
    return Table(
        "chains",
        ("operators that feed each other", *timed, "between", "at a delegate's edge"),
        rows,
        short=_MOST_CHAINS,
    )


def _pair(pair: InversePair, measured: bool) -> str:
    between = f" after {', '.join(pair.between)}" if pair.between else ""
    cost = f": {numbers.ms(pair.ms)} ({numbers.share(pair.share)})" if measured else ""
    where = f", from {' and '.join(dict.fromkeys(pair.at))}" if pair.at else ""
    return f"{pair.second} undoes {pair.first}{between}{cost}{where}."
