"""What the graph is like: operators outside the delegate, and data that is moved instead of computed with."""

from model_profiling.analysis.movement.movement import Chain, DataMovement, InversePair
from model_profiling.analysis.run.run_view import RunView
from model_profiling.analysis.timing.breakdown import InstanceTime
from model_profiling.report import numbers
from model_profiling.report.blocks import Block, Bullets, Name, Number, Paragraph, Row, Section, Table
from model_profiling.report.content.folding import LEAST_SHARE, Foldable, folded
from model_profiling.report.content.source_lines import sources

_MOST_CHAINS = 10


def portable(run: RunView) -> Section | None:
    """Return operators that ran outside every delegate, with the export's reason where it gave one."""
    if not run.summary.experiments:
        return None
    blocks: list[Block] = []
    for name in run.of_interest:
        entries = [e for e in run.summary.experiments[name].breakdown.instances if e.where == "portable"]
        if not entries:
            blocks.append(Paragraph(f"{run.label(name)}: every operator ran inside the delegate."))
            continue
        blocks.append(_portable(run, name, entries))
    return Section("portable", "Portable operators", blocks)


def _portable(run: RunView, name: str, entries: list[InstanceTime]) -> Table:
    """Return one row for all instances of an operator, costliest first."""
    groups: dict[str, list[InstanceTime]] = {}
    for entry in sorted(entries, key=lambda entry: -entry.ms):
        groups.setdefault(entry.operator, []).append(entry)
    ordered = sorted(groups.items(), key=lambda item: -_sum(item[1])[0])
    rows = [
        Foldable(_portable_row(run, members, operator), _sum(members)[1] if run.measured else 1.0)
        for operator, members in ordered
    ]
    timed = (run.label(name), "share") if run.measured else ()

    def rest(label: str, places: list[int]) -> Row:
        members = [entry for place in places for entry in ordered[place][1]]
        return (label, *_portable_row(run, members, "")[1:-2], "", "")

    return folded("portable", ("operator", "count", *timed, "why it is not delegated", "source"), rows, rest, short=10)


def _sum(members: list[InstanceTime]) -> tuple[float, float]:
    return sum(entry.ms for entry in members), sum(entry.share for entry in members)


def _portable_row(run: RunView, members: list[InstanceTime], operator: str) -> Row:
    """Return all instances of one portable operator together, with the first places they come from."""
    ms, part = _sum(members)
    times = (Number(numbers.ms(ms), ms), Number(numbers.share(part), part)) if run.measured else ()
    count = Number(str(len(members)), len(members))
    return (Name(operator), count, *times, _reason(run, operator), Name(sources(members)))


def _reason(run: RunView, operator: str) -> str:
    export = run.manifest.model.export
    return (export.delegation.why_not(operator) if export else "") or "not known"


def movement(run: RunView) -> Section | None:
    """Return transposes, copies, pads and converts: how much, in which chains, and which undo each other."""
    if not run.summary.experiments:
        return None
    blocks: list[Block] = []
    for name in run.of_interest:
        found = run.summary.experiments[name].data_movement
        if not found.by_kind:
            blocks.append(Paragraph(f"{run.label(name)}: no data is moved between operators."))
            continue
        blocks.append(Paragraph(_sentence(run.label(name), found, run.measured)))
        if found.note:
            blocks.append(Paragraph(f"Chains are not listed: {found.note}."))
            continue
        blocks.append(_chains(found.chains, run.measured))
        large = [pair for pair in found.inverse_pairs if pair.share >= LEAST_SHARE or not run.measured]
        pairs = [_pair(pair, run.measured) for pair in large[:_MOST_CHAINS]]
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
    def row(name: Name | str, ms: float, share: float, between: str, edge: str) -> Row:
        times = (Number(numbers.ms(ms), ms), Number(numbers.share(share), share)) if measured else ()
        return (name, *times, between, edge)

    rows = []
    for chain in chains:
        between = f"{chain.before or 'the input'} → {chain.after or 'the output'}"
        edge = "yes" if chain.at_boundary else "no"
        cells = row(Name(", ".join(chain.operators)), chain.ms, chain.share, between, edge)
        rows.append(Foldable(cells, chain.share if measured else 1.0))

    def rest(label: str, places: list[int]) -> Row:
        small = [chains[place] for place in places]
        return row(label, sum(chain.ms for chain in small), sum(chain.share for chain in small), "", "")

    timed = ("time", "share") if measured else ()
    columns = ("operators that feed each other", *timed, "between", "at a delegate's edge")
    return folded("chains", columns, rows, rest, short=_MOST_CHAINS)


def _pair(pair: InversePair, measured: bool) -> str:
    between = f" after {', '.join(pair.between)}" if pair.between else ""
    cost = f": {numbers.ms(pair.ms)} ({numbers.share(pair.share)})" if measured else ""
    where = f", from {' and '.join(dict.fromkeys(pair.at))}" if pair.at else ""
    return f"{pair.second} undoes {pair.first}{between}{cost}{where}."
