"""What the graph is like: operators outside the delegate, and data that is moved instead of computed with."""

from model_profiling.analysis.graph.cost_tree import CostNode
from model_profiling.analysis.movement.movement import Chain, DataMovement, InversePair
from model_profiling.analysis.run.run_view import RunView
from model_profiling.analysis.timing.breakdown import InstanceTime, file_line
from model_profiling.base.records import by_key
from model_profiling.base.units import counted
from model_profiling.report import numbers
from model_profiling.report.blocks import Block, Branch, Bullets, Name, Number, Paragraph, Picture, Section, Table, Tree
from model_profiling.report.content.operators import LEAST_SHARE, Foldable, Sums, folded
from model_profiling.report.words import some, source

_MOST_CHAINS = 10
# What is unfolded to begin with: the parts that are worth it, down to this depth.
_OPEN_SHARE = 0.15
_OPEN_DEPTH = 3


def portable(run: RunView) -> Section | None:
    """Return operators that ran outside every delegate, with the export's reason where it gave one."""
    if not run.summary.experiments:
        return None
    blocks: list[Block] = []
    outside: list[InstanceTime] = []
    for name in run.of_interest:
        entries = [e for e in run.summary.experiments[name].breakdown.instances if e.where == "portable"]
        inside = Paragraph(f"{run.label(name)}: every operator ran inside the delegate.")
        blocks.append(_portable(run, name, entries) if entries else inside)
        outside = outside if name != run.of_interest[0] else entries
    result = counted(len(outside), "operator") if outside else "none"
    result += f", {numbers.share(_sum(outside)[1])} of the time" if outside and run.measured else ""
    return Section("portable", "Portable operators", blocks, True, result)


def _portable(run: RunView, name: str, entries: list[InstanceTime]) -> Table:
    """Return one row for all instances of an operator, costliest first."""
    groups = by_key((entry.operator, entry) for entry in sorted(entries, key=lambda entry: -entry.ms))
    rows = []
    for operator, members in sorted(groups.items(), key=lambda item: -_sum(item[1])[0]):
        ms, share = _sum(members)
        times = (numbers.ms_cell(ms), numbers.share_cell(share)) if run.measured else ()
        export = run.manifest.model.export
        why_not = (export.delegation.why_not(operator) if export else "") or "not known"
        cells = (Name(operator), numbers.count_cell(len(members)), *times, why_not, Name(some(map(source, members))))
        rows.append(Foldable(cells, share if run.measured else 1.0))
    timed = (run.label(name), "share") if run.measured else ()
    sums: Sums = {1: lambda count: numbers.count_cell(round(count)), 2: numbers.ms_cell, 3: numbers.share_cell}
    columns = ("operator", "count", *timed, "why it is not delegated", "source")
    return folded("portable", columns, rows, sums, short=10)


def _sum(members: list[InstanceTime]) -> tuple[float, float]:
    return sum(entry.ms for entry in members), sum(entry.share for entry in members)


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
        if pairs := [_pair(pair, run.measured) for pair in large[:_MOST_CHAINS]]:
            blocks += [Paragraph("Transposes that undo each other, as the model's graph shows:"), Bullets(pairs)]
    first = next((run.summary.experiments[name].data_movement for name in run.of_interest), None)
    result = numbers.share(first.share) + " of the time" if first is not None and run.measured else "by kind and place"
    return Section("movement", "Data movement", blocks, True, result)


def _sentence(name: str, found: DataMovement, measured: bool) -> str:
    if not measured:
        places = f" in {len(found.chains)} places" if found.chains else ""
        return f"{name}: data is moved{places}, by {', '.join(found.by_kind)}."
    kinds = ", ".join(f"{kind} {numbers.ms(value)}" for kind, value in found.by_kind.items())
    return f"{name}: {numbers.ms(found.ms)} ({numbers.share(found.share)}) moves data: {kinds}."


def _chains(chains: list[Chain], measured: bool) -> Table:
    rows = []
    for chain in chains:
        times = (numbers.ms_cell(chain.ms), numbers.share_cell(chain.share)) if measured else ()
        between = f"{chain.before or 'the input'} → {chain.after or 'the output'}"
        cells = (Name(", ".join(chain.operators)), *times, between, "yes" if chain.at_boundary else "no")
        rows.append(Foldable(cells, chain.share if measured else 1.0))
    timed = ("time", "share") if measured else ()
    columns = ("operators that feed each other", *timed, "between", "at a delegate's edge")
    return folded("chains", columns, rows, {1: numbers.ms_cell, 2: numbers.share_cell}, short=_MOST_CHAINS)


def _pair(pair: InversePair, measured: bool) -> str:
    between = f" after {', '.join(pair.between)}" if pair.between else ""
    cost = f": {numbers.ms(pair.ms)} ({numbers.share(pair.share)})" if measured else ""
    where = f", from {' and '.join(dict.fromkeys(pair.at))}" if pair.at else ""
    return f"{pair.second} undoes {pair.first}{between}{cost}{where}."


def modules(run: RunView) -> Section | None:
    """Return the experiments that a reader wants faster; nothing where no time was measured."""
    if not run.measured or not run.shown:
        return None
    blocks: list[Block] = []
    for number, name in enumerate(run.of_interest):
        root = run.cost_tree(name)
        if len(run.of_interest) > 1:
            blocks.append(Paragraph(f"{run.label(name)}:"))
        if all(child.kind == "unknown" for child in root.children):
            why = next((child.why for child in root.children if child.why), "")
            blocks.append(Paragraph(f"No operator has a line of PyTorch: {why}."))
        elif number == 0:
            blocks.append(Picture("modules", "The model on top, its modules and their lines of PyTorch below."))
        blocks.append(Tree("modules", ("time", "share", "operators"), _branch(root, 0)))
    found = costliest_line(run, run.of_interest[0])
    result = f"{found[0]} takes most, {found[1]}" if found is not None else "lines are not known"
    return Section("modules", "Cost by module and line", blocks, True, result)


def costliest_line(run: RunView, name: str) -> tuple[str, str, str] | None:
    """Return the line that takes most of the time, its share and its category."""
    most = next(iter(run.cost_tree(name).lines), None)
    if most is None:
        return None
    place = " ".join(filter(None, (most.module, file_line(most.file, most.line))))
    return place, numbers.share(most.share), most.category


def _branch(node: CostNode, depth: int) -> Branch:
    line = _only_line(node)
    below = line.children if line is not None else node.children
    large = [child for child in below if child.share >= LEAST_SHARE]
    small = [child for child in below if child.share < LEAST_SHARE]
    children = [_branch(child, depth + 1) for child in (large if len(small) > 1 else below)]
    if len(small) > 1:
        words = f"{len(small)} more, each under {numbers.share(LEAST_SHARE)} of the time"
        ms, share, operators = (sum(getattr(node, what) for node in small) for what in ("ms", "share", "operators"))
        under = [_branch(node, depth + 1) for node in small]
        children.append(Branch(Name(""), words, _cells(ms, share, operators), share, small[0].category, under))
    opened = depth < _OPEN_DEPTH and node.kind in ("model", "module") and node.share >= _OPEN_SHARE
    cells = _cells(node.ms, node.share, node.operators)
    return Branch(Name(title(node)), _detail(node), cells, node.share, node.category, children, opened)


def _only_line(node: CostNode) -> CostNode | None:
    """Return the line of a module that has no other and no modules within: the two are one row."""
    only = node.children[0] if node.kind == "module" and len(node.children) == 1 else None
    return only if only is not None and only.kind == "line" else None


def title(node: CostNode) -> str:
    """Return a line by its place, everything else by its name."""
    return file_line(node.file, node.line) if node.kind == "line" else node.name


def _detail(node: CostNode) -> str | Name:
    line = _only_line(node)
    if line is not None:
        return Name(f"{title(line)} {line.code}".rstrip())
    return Name(node.code) if node.code else node.why


def _cells(ms: float, share: float, operators: int) -> tuple[Number, ...]:
    return (numbers.ms_cell(ms), numbers.share_cell(share), Number(str(operators) if operators else "-", operators))
