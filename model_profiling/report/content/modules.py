"""Cost by module and source line: a tree that unfolds from the model to the operators of each line."""

from model_profiling.analysis.graph.cost_tree import CostNode
from model_profiling.analysis.run.run_view import RunView
from model_profiling.analysis.timing.breakdown import file_line
from model_profiling.report import numbers
from model_profiling.report.blocks import Block, Branch, Name, Number, Paragraph, Picture, Section, Tree
from model_profiling.report.content.operators import LEAST_SHARE

# What is unfolded to begin with: the parts that are worth it, down to this depth.
_OPEN_SHARE = 0.15
_OPEN_DEPTH = 3


def section(run: RunView) -> Section | None:
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
    line = only_line(node)
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
    return Branch(Name(title(node)), detail(node), cells, node.share, node.category, children, opened)


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
    return (numbers.ms_cell(ms), numbers.share_cell(share), Number(str(operators) if operators else "-", operators))
