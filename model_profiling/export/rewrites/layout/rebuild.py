"""Rebuilds the program operator by operator, with views and permutes postponed until their result is needed.

Each value of the model is held as memory in some order (`order.Layout`). Its views and permutes only rename that order.
An operator's rule asks for its inputs in an order it can compute in (`contiguous`, `image`, `rows`, ...); only where no
free one exists are values moved, once, and whoever wants the same later gets it too.

Images are held as XNNPACK holds them: a 4-D tensor, NCHW by name, with channels last in memory. From such a tensor to
the plain one of the same memory leads `permute(0, 2, 3, 1)`, and back `permute(0, 3, 1, 2)`. The lowering knows that
neither moves anything (see export/lower/lowering.py).
"""

import math
from collections import Counter
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from typing import Any

import torch

from model_profiling.export.rewrites.graph import Site, constant, is_replaceable, known_value
from model_profiling.export.rewrites.layout.order import (
    IMAGE_DIMS,
    Axis,
    Layout,
    TensorMemory,
    Value,
    fixed,
    is_known,
    transposition,
)
from model_profiling.formats.graph_terms import TO_NCHW, TO_NHWC

aten = torch.ops.aten
# A transpose that takes values one by one is taken to cost this much more than one of blocks.
ONE_BY_ONE = 2
SMALL_BLOCK = 8
# From so many values on an image is turned in two steps.
LARGE = 1 << 22
# XNNPACK transposes tensors of up to six dimensions.
MOST_DIMS = 6


class Declined(Exception):  # noqa: N818 - nothing went wrong: the program is left as it is
    """This program is left as it is: something about it cannot be proven."""


@dataclass(frozen=True)
class LayerOutputs:
    """A layer's outputs as axes of these sizes, and the order in which it computes them."""

    sizes: tuple[int, ...]
    order: tuple[int, ...]


@dataclass(frozen=True)
class Plan:
    """By the names of nodes: layout changes that are done where the model has them, images that are turned where they
    are made, and outputs in another order."""

    at_once: frozenset[str] = frozenset()
    outputs: tuple[tuple[str, LayerOutputs], ...] = ()
    turned: frozenset[str] = frozenset()
    large_by_rows: bool = True


Rule = Callable[["Rebuild", Any], Any]
# Of an operator on one value, which is given with it.
ValueRule = Callable[["Rebuild", Any, Value], Any]


class Rebuild:
    """Walks the graph once; `values` are what the nodes of the model are held as."""

    def __init__(
        self, program: Any, rules: Mapping[Any, Rule], value_rules: Mapping[Any, ValueRule], plan: Plan
    ) -> None:
        self.program = program
        self.plan = plan
        self.graph = program.graph
        self.rules, self.value_rules = rules, value_rules
        self.values: dict[Any, Any] = {}
        self.nodes = list(self.graph.nodes)
        self.at: Any = None
        # What moves, and why: the model's own layout change, if it is one, and the bytes.
        self.moves: list[tuple[Any, int]] = []
        # How often images are turned, by the operators whose they are.
        self.turns: Counter[Any] = Counter()
        self.wishes: dict[str, LayerOutputs] = {}
        # Operators that cost layout changes as they stand, and none here.
        self.saved: list[Any] = []
        self.viewed: list[Any] = []
        self.fused: set[Any] = set()

    def run(self) -> None:
        for node in self.nodes:
            if node.op == "output":
                self._outputs(node)
            elif node.op == "call_function":
                self.at = node
                with self.graph.inserting_before(node):
                    made = self._made(node)
                self.values[node] = made
            else:
                self.values[node] = self.own(node)

    def _made(self, node: Any) -> Any:
        saved, made = len(self.saved), None
        if rule := self.rules.get(node.target):
            made = rule(self, node)
        elif (value_rule := self.value_rules.get(node.target)) and (value := self.layout_of(node.args[0])) is not None:
            made = value_rule(self, node, value)
        if made is None:
            # A rule that gave up has saved nothing.
            del self.saved[saved:]
            return self.contiguous_copy(node)
        if not isinstance(made, Value) or not made.is_image:
            return made
        made.memory.origin = made.memory.origin or node
        return self._turned_here(made) if node.name in self.plan.turned else made

    def _turned_here(self, value: Value) -> Value:
        """Return an image in its usual order, by a transpose of its own: lowering postpones those that it inserts."""
        n, c, h, w = value.shape
        self._turned(value)
        # The operator may have stayed the model's own node.
        with self.graph.inserting_before(self.at.next):
            rows = self.step(aten.permute_copy.default, self.view(value, (n, h * w, c)), [0, 2, 1])
            return Value(Layout.contiguous(value.shape), TensorMemory(flat=self.new_view(rows, value.shape)))

    def _outputs(self, node: Any) -> None:
        self.at = node
        with self.graph.inserting_before(node):
            names = {}

            def handed_out(old: Any) -> Any:
                new = self.contiguous(self.values[old]) if isinstance(self.values[old], Value) else self.values[old]
                if new is not old:
                    names[old.name] = new.name
                return new

            node.args = torch.fx.map_arg(node.args, handed_out)
        for spec in self.program.graph_signature.output_specs:
            spec.arg.name = names.get(getattr(spec.arg, "name", None), getattr(spec.arg, "name", None))

    def own(self, node: Any) -> Any:
        """Return a node of the model as it is: contiguous, if it is a tensor of a fixed size."""
        value = node.meta.get("val")
        return Value(Layout.contiguous(value.shape), TensorMemory(flat=node)) if fixed(value) else node

    def contiguous_copy(self, node: Any) -> Any:
        """Return the operator as it stands in the model, on contiguous inputs."""
        return self.own(self.copy_node(node, torch.fx.map_arg(node.args, self.plain)))

    def plain(self, node: Any) -> Any:
        """Return what a node of the model is now, in its usual order."""
        held = self.values[node]
        return self.contiguous(held) if isinstance(held, Value) else held

    def layout_of(self, node: Any) -> Value | None:
        """Return a node's layout and memory; None if it is not a tensor of a fixed size."""
        value = self.values.get(node) if isinstance(node, torch.fx.Node) else None
        return value if isinstance(value, Value) else None

    # Orders that operators ask for.

    def contiguous(self, value: Value) -> Any:
        """Return the tensor in its usual order. An image is that by name; whoever reads it otherwise has it turned."""
        if value.is_image:
            self._turned(value)
            return self._turned_by_rows(value) if self._is_large(value) else value.memory.image
        return self.view(self.moved(value, value.layout.among(range(len(value.layout.dims)))), value.shape)

    def _is_large(self, value: Value) -> bool:
        return self.plan.large_by_rows and math.prod(value.shape) >= LARGE and 1 not in value.shape[1:]

    def _turned_by_rows(self, value: Value) -> Any:
        """Turn an image that no cache holds in two steps: each row of pixels by itself, then whole rows.

        In one step each value goes to another line of the cache: measured at 16 M values, 68 ms become 38.
        """
        n, c, h, w = value.shape
        if value.shape not in value.memory.views:
            rows = self.step(aten.permute_copy.default, self.view(value, (n * h, w, c)), [0, 2, 1])
            made = self.step(aten.permute_copy.default, self.new_view(rows, (n, h, c, w)), [0, 2, 1, 3])
            value.memory.views[value.shape] = made
        return value.memory.views[value.shape]

    def image(self, value: Value) -> Any:
        """Return a 4-D tensor as an image: channels last in memory where that is free, else as it is.

        A tensor in its usual order stays so: whoever wants it otherwise, turns it once, in its own delegate.
        """
        if value.layout.is_contiguous and not value.is_image:
            if value.in_image_order:
                return self._as_image(value)
            self._turned(value)
            return self.view(value, value.shape)
        value = self.moved(value, value.layout.among(IMAGE_DIMS))
        return value.memory.image if value.is_image else self._as_image(value)

    def _as_image(self, value: Value) -> Any:
        images = value.memory.images
        if value.shape not in images:
            n, c, h, w = value.shape
            images[value.shape] = self.step(aten.permute_copy.default, self.view(value, (n, h, w, c)), list(TO_NCHW))
        return images[value.shape]

    def mixed(self, value: Value) -> Any:
        """Return an image with its channels in the order they lie in memory."""
        image = value.memory.image
        return image if image is not None and tuple(image.meta["val"].shape) == value.shape else self._as_image(value)

    def _turned(self, value: Value) -> None:
        """Note that lowering will turn an image, or what is read as one: once in each direction."""
        if not value.memory.turned and value.layout.is_contiguous != value.in_image_order:
            value.memory.turned = True
            self.turns[value.memory.origin] += 1
            self.moves.append((value.moves, _bytes(value.memory.image or value.memory.flat)))

    def rows(self, value: Value, dim: int) -> tuple[Any, Value]:
        """Return a matrix with one dimension, in its order, as its columns; and its value."""
        layout = value.layout
        own = layout.of(dim)
        if own and layout.order[-len(own) :] != own:
            rest = [other for other in range(len(layout.dims)) if other != dim]
            value = self.moved(value, layout.among([*rest, dim]))
        width = value.shape[dim]
        if value.layout.is_contiguous and dim == len(value.shape) - 1:
            return self.view(value, value.shape), value
        return self.view(value, (math.prod(value.shape) // width, width)), value

    def moved(self, value: Value, order: tuple[Axis, ...]) -> Value:
        """Return the same values in another order of memory."""
        if value.layout.order == order:
            return value
        memory = value.memory.moved.get((value.layout, order))
        if memory is None:
            sizes, permutation = transposition(value.layout, order)
            if len(sizes) > MOST_DIMS:
                raise Declined(f"a transpose of {len(sizes)} dimensions")
            seen = self.view(value, tuple(sizes))
            made = self.step(aten.permute_copy.default, seen, permutation, like=value.moves)
            memory = value.memory.moved[value.layout, order] = TensorMemory(flat=made)
            # Values that lie together and stay together are moved as one.
            in_blocks = permutation[-1] == len(permutation) - 1 and sizes[-1] >= SMALL_BLOCK
            self.moves.append((value.moves, _bytes(made) * (1 if in_blocks else ONE_BY_ONE)))
            self._wish(value, order)
        return Value(value.layout.reordered(order), memory, value.moves)

    def _wish(self, value: Value, order: tuple[Axis, ...]) -> None:
        """Note in which order the layer that made this should have computed its outputs, so that blocks are moved."""
        layout, maker = value.layout, value.memory.maker
        if maker is None:
            return
        width, count = 1, 0
        while width < maker[1] and count < len(layout.order):
            count += 1
            width *= layout.size(layout.order[-count])
        axes = layout.order[-count:]
        if width == maker[1] and count > 1 and order[-1] in axes:
            wanted = sorted(range(count), key=lambda number: order.index(axes[number]))
            self.wishes[maker[0]] = LayerOutputs(tuple(layout.sizes(axes)), tuple(wanted))

    def maker(self, node: Any, width: int) -> tuple[str, int] | None:
        """Return a layer's name and width if it can compute its outputs in any order: its weights are known."""
        known = all(entry is None or entry.op == "placeholder" for entry in node.args[1:3])
        return (node.name, width) if known and known_value(self.program, node.args[1]) is not None else None

    def constant(self, node: Any, dim: int, outputs: LayerOutputs) -> Any:
        """Return a constant of the model with one dimension in another order; None if it is not a constant."""
        data = known_value(self.program, node)
        if data is None:
            return None
        rank, count = data.dim(), len(outputs.sizes)
        cut = data.reshape(*data.shape[:dim], *outputs.sizes, *data.shape[dim + 1 :])
        order = [*range(dim), *(dim + number for number in outputs.order), *range(dim + count, rank + count - 1)]
        return constant(self.program, cut.permute(order).reshape(data.shape).contiguous())

    def view(self, value: Value, shape: Iterable[int]) -> Any:
        """Return a value's memory as a tensor of this shape."""
        shape, memory = tuple(shape), value.memory
        if memory.flat is None:
            memory.flat = self.step(aten.permute_copy.default, memory.image, list(TO_NHWC), like=value.moves)
        if tuple(memory.flat.meta["val"].shape) == shape:
            return memory.flat
        if shape not in memory.views:
            memory.views[shape] = self.new_view(memory.flat, shape, like=value.moves)
        return memory.views[shape]

    def new_view(self, node: Any, shape: Iterable[int], like: Any = None) -> Any:
        """Return a new view; of a tensor that the model itself took out of another one, a copy may be needed first."""
        target = aten.view.default if node.meta["val"].is_contiguous() else aten.reshape.default
        return self.step(target, node, list(shape), like=like)

    # New nodes.

    def step(self, target: Any, *args: Any, like: Any = None, **kwargs: Any) -> Any:
        """Return a new operator at the line of the model where `like` stands, or else the operator being rebuilt."""
        values, keywords = torch.fx.map_arg((args, kwargs), lambda node: node.meta["val"])
        meta = {**(like if like is not None else self.at).meta, "val": target(*values, **keywords)}
        made = self.graph.call_function(target, args, kwargs)
        made.meta = meta
        return made

    def copy_node(self, node: Any, args: Any, kwargs: Any = None) -> Any:
        """Return the operator itself on other inputs; the very same node where nothing changes."""
        kwargs = torch.fx.map_arg(node.kwargs, self.plain) if kwargs is None else kwargs
        if same(args, node.args) and same(kwargs, node.kwargs):
            return node
        if isinstance(node.target, torch._ops.OpOverload) and all(map(is_known, node.all_input_nodes)):
            return self.step(node.target, *args, like=node, **kwargs)
        # A region with a graph of its own, a number, or what nobody can compute here: it gives what it gave.
        made = self.graph.call_function(node.target, args, kwargs)
        made.meta = dict(node.meta)
        return made


def _bytes(node: Any) -> int:
    value = node.meta["val"]
    return int(value.numel() * value.element_size())


def same(new: Any, old: Any) -> bool:
    if isinstance(new, (tuple, list)) and isinstance(old, (tuple, list)):
        return len(new) == len(old) and all(same(a, b) for a, b in zip(new, old, strict=True))
    if isinstance(new, dict) and isinstance(old, dict):
        return new.keys() == old.keys() and all(same(new[key], old[key]) for key in new)
    return new is old if isinstance(new, torch.fx.Node) or isinstance(old, torch.fx.Node) else bool(new == old)


def without_changes_in_place(program: torch.export.ExportedProgram) -> None:
    """Replace each by the operator that gives a new tensor; raise Declined where somebody could notice."""
    for node in list(program.graph.nodes):
        schema = getattr(node.target, "_schema", None)
        if node.op != "call_function" or schema is None or not schema.is_mutable:
            continue
        # `aten.relu.default` for `aten.relu_.default`.
        name = node.target.overloadpacket.__name__
        packet = getattr(aten, name[:-1], None) if name.endswith("_") and not name.endswith("__") else None
        target = getattr(packet, node.target._overloadname, None)
        if target is None or not is_replaceable(node):
            raise Declined(f"{node.target} changes a tensor that is also known by another name")
        with program.graph.inserting_before(node):
            site = Site(program, node)
            site.replace(site(target, *node.args, **node.kwargs))
