"""Cost by module and source line: a tree that unfolds from the model to the operators of each line."""

from model_profiling.analysis.graph.cost_tree import CostNode
from model_profiling.analysis.run.run_view import RunView
from model_profiling.analysis.timing.breakdown import file_line
from model_profiling.report import numbers
from model_profiling.report.blocks import Block, Branch, Name, Number, Paragraph, Picture, Section, Tree
from model_profiling.report.content.folding import LEAST_SHARE

# What is unfolded to begin with: the parts that are worth it, down to this depth.
_OPEN_SHARE = 0.15
_OPEN_DEPTH = 3
_MOST_SHORT = 7


def section(run: RunView) -> Section | None:
    """Return the experiments that a reader wants faster; nothing where no time was measured."""
    if not run.measured or not run.shown:
        return None
    blocks: list[Block] = []
    for number, name in enumerate(run.of_interest):
        root = run.cost_tree(name)
        if len(run.of_interest) > 1:
            blocks.append(Paragraph(f"{run.label(name)}:"))
        unlinked = sum(1 for child in root.children if child.kind != "unknown") == 0
        if unlinked:
            why = next((child.why for child in root.children if child.why), "")
            blocks.append(Paragraph(f"No operator has a line of PyTorch: {why}."))
        if number == 0 and not unlinked:
            blocks.append(Picture("modules", "The model on top, its modules and their lines of PyTorch below."))
        blocks.append(Tree("modules", ("time", "share", "operators"), _branch(root, 0)))
    return Section("modules", "Cost by module and line", blocks)


def _branch(node: CostNode, depth: int) -> Branch:
    line = only_line(node)
    below = line.children if line is not None else node.children
    large = [child for child in below if child.share >= LEAST_SHARE]
    small = [child for child in below if child.share < LEAST_SHARE]
    if len(small) < 2:
        large, small = below, []
    children = [_branch(child, depth + 1) for child in large]
    if small:
        children.append(_rest(small, depth + 1))
    return Branch(
        name=Name(title(node)),
        detail=detail(node),
        cells=_cells(node.ms, node.share, node.operators),
        share=node.share,
        category=node.category,
        children=children,
        opened=depth < _OPEN_DEPTH and node.kind in ("model", "module") and node.share >= _OPEN_SHARE,
    )


def _rest(nodes: list[CostNode], depth: int) -> Branch:
    ms, share = sum(node.ms for node in nodes), sum(node.share for node in nodes)
    words = f"{len(nodes)} more, each under {numbers.share(LEAST_SHARE)} of the time"
    cells = _cells(ms, share, sum(node.operators for node in nodes))
    return Branch(Name(""), words, cells, share, nodes[0].category, [_branch(node, depth) for node in nodes])


def only_line(node: CostNode) -> CostNode | None:
    """Return the line of a module that has no other and no modules within: the two are one row."""
    only = node.children[0] if node.kind == "module" and len(node.children) == 1 else None
    return only if only is not None and only.kind == "line" else None


def title(node: CostNode) -> str:
    """Return a line by its place, everything else by its name."""
    return file_line(node.file, node.line) if node.kind == "line" else node.name


def detail(node: CostNode) -> str | Name:
    line = only_line(node)
    if line is not None:
        return Name(f"{title(line)} {line.code}".rstrip())
    return Name(node.code) if node.code else node.why


def _cells(ms: float, share: float, operators: int) -> tuple[Number, ...]:
    return (
        Number(numbers.ms(ms), ms),
        Number(numbers.share(share), share),
        Number(str(operators) if operators else "-", operators),
    )


def short(root: CostNode) -> list[tuple[int, str, CostNode]]:
    """Return the few parts that a terminal has room for: the costliest ones, each below what it is a part of."""
    joined = {id(line) for _, node in root.walk() if (line := only_line(node)) is not None}
    every = [(depth, node) for depth, node in root.walk() if node.kind != "operator" and depth > 0]
    found = [(depth, node) for depth, node in every if id(node) not in joined]
    costliest = sorted(found, key=lambda item: -item[1].share)[:_MOST_SHORT]
    least = min((node.share for _, node in costliest), default=1.0)
    chosen = [item for item in found if item[1].share >= max(least, LEAST_SHARE)][:_MOST_SHORT]
    return [(depth - 1, f"{title(node)}  {_code(node)}".rstrip(), node) for depth, node in chosen]


def _code(node: CostNode) -> str:
    found = detail(node)
    return found.text if isinstance(found, Name) else ""
