"""Cost by module and source line: the model, its modules, their lines of PyTorch, and the operators of each line.

Every operator is in one place, so that each node's time is the sum of its children's and the root's is that of all
operators. What has no line of the model is a node of its own that says why.
"""

from collections.abc import Iterator, Sequence
from typing import Literal

import msgspec

from model_profiling.analysis.timing.breakdown import Breakdown, InstanceTime
from model_profiling.analysis.timing.profile import RUNTIME, Part
from model_profiling.base.records import by_key, sum_by_key

NodeKind = Literal["model", "module", "line", "operator", "unknown"]
# No network is nested deeper than this; a damaged file may say so.
_MOST_MODULES = 30
_NO_LINE = "no source line known"
_OVERHEAD = "ExecuTorch runtime"
_WHY_OVERHEAD = "ExecuTorch's own time around the operators"
_WHY_DELEGATED = "XNNPACK inserted these, or they could not be matched with its graph"
_WHY_PORTABLE = "a pass of the export inserted these"


class _Key(msgspec.Struct, frozen=True):
    """What tells parts of the model apart. `module` is the full path; one without a line (`unknown`) says why."""

    kind: NodeKind
    name: str
    module: str = ""
    file: str = ""
    line: int = 0
    code: str = ""
    why: str = ""


class CostNode(_Key, frozen=True, kw_only=True):
    """A part of the model; `operators` is how many ran in it, `category` what took most of its time."""

    ms: float
    share: float
    operators: int
    category: Part
    children: "list[CostNode]" = []

    def walk(self, depth: int = 0) -> Iterator[tuple[int, "CostNode"]]:
        """Yield this node and all below it in order, each with its depth."""
        yield depth, self
        for child in self.children:
            yield from child.walk(depth + 1)

    @property
    def lines(self) -> "list[CostNode]":
        """All lines of PyTorch below it, costliest first."""
        return sorted((node for _, node in self.walk() if node.kind == "line"), key=lambda node: -node.ms)


def cost_tree(breakdown: Breakdown, model: str, unlinked: str = "") -> CostNode:
    """Return the tree of one experiment; `unlinked` says why no operator has a line, where none has."""
    entries = [(entry, _path(entry, unlinked)) for entry in breakdown.instances]
    return _joined(_node(_Key("model", model), entries, 0, breakdown.execute_ms))


def _path(entry: InstanceTime, unlinked: str) -> list[_Key]:
    """Return where an operator belongs, from the outermost module to its own name."""
    operator = _Key("operator", f"{entry.operator} (portable)" if entry.where == "portable" else entry.operator)
    source = entry.source
    # A delegate call has the first line that it took over, but its own time belongs to no line.
    if entry.where == "runtime":
        return [_Key("unknown", _OVERHEAD, why=_WHY_OVERHEAD), operator]
    if source is None or not (source.file or source.module):
        why = unlinked or (_WHY_PORTABLE if entry.where == "portable" else _WHY_DELEGATED)
        return [_Key("unknown", _NO_LINE, why=why), operator]
    parts = source.module.split(".", _MOST_MODULES) if source.module else []
    modules = [_Key("module", name, module=".".join(parts[: depth + 1])) for depth, name in enumerate(parts)]
    if not source.file:
        why = "the ETRecord names the module and no line"
        return [*modules, _Key("unknown", _NO_LINE, source.module, why=why), operator]
    line = _Key("line", source.code, source.module, source.file, source.line, source.code)
    return [*modules, line, operator]


def _node(key: _Key, entries: Sequence[tuple[InstanceTime, list[_Key]]], depth: int, whole: float) -> CostNode:
    """Return the node of operators whose paths are alike to this depth."""
    below = by_key((path[depth], (entry, path)) for entry, path in entries if len(path) > depth)
    children = [_node(child, members, depth + 1, whole) for child, members in below.items()]
    children.sort(key=lambda child: -child.ms)
    ms = sum(child.ms for child in children) if children else sum(entry.ms for entry, _ in entries)
    parts = sum_by_key((entry.category, entry.ms) for entry, _ in entries)
    return CostNode(
        **msgspec.structs.asdict(key),
        ms=ms,
        share=ms / whole if whole else 0.0,
        operators=sum(entry.where != "runtime" for entry, _ in entries),
        category=max(parts, key=lambda part: parts[part], default=RUNTIME),
        children=children,
    )


def _joined(node: CostNode) -> CostNode:
    """Merge a module that holds nothing but one module with it: `blocks.0`."""
    children = [_joined(child) for child in node.children]
    only = children[0] if len(children) == 1 else None
    if node.kind == "module" and only is not None and only.kind == "module":
        return msgspec.structs.replace(only, name=f"{node.name}.{only.name}")
    return msgspec.structs.replace(node, children=children)
