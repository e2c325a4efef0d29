"""Language models as ExecuTorch exports them: programs that read a sequence of tokens, step by step, into a cache.

Recognised by what they take, token ids [1, n] with the position of the first [1] or of each [n], and by the state that
they keep between executions.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import TypeVar

from model_profiling.formats.graph_terms import CONSTANT, CUSTOM_OPERATORS
from model_profiling.formats.pte import SCALAR_BYTES, Method, Program, TensorSpec
from model_profiling.formats.pte.dataflow import DataFlow, FlowStep, FlowTensor
from model_profiling.formats.pte.xnnpack_graph import XnnpackNode, XnnpackValue

_Tensor = TypeVar("_Tensor", FlowTensor, XnnpackValue)
_Operator = TypeVar("_Operator", FlowStep, XnnpackNode)
_WHOLE = ("int64", "int32")
_CONTEXT = ("get_max_context_len", "get_max_seq_len")
_VOCABULARY = "get_vocab_size"


@dataclass(frozen=True)
class TokenMethod:
    """A method that reads tokens: any number up to `most` if it is `dynamic`, else exactly so many."""

    method: str
    most: int
    dynamic: bool

    def takes(self, count: int) -> bool:
        return count <= self.most if self.dynamic else count == self.most


@dataclass(frozen=True)
class SequenceProgram:
    """What reads many tokens at once and what reads one; either may be missing, and both may be one method.

    `context` is how many positions there are, `vocabulary` how many different tokens; None where the program does not
    say. `cache_bytes` is what it keeps between executions.
    """

    prefill: TokenMethod | None
    decode: TokenMethod | None
    vocabulary: int | None
    context: int | None
    cache_bytes: int

    def fill(self, count: int) -> tuple[tuple[str, int, int], ...]:
        """Return how to read the first `count` tokens or a few more: (method, tokens at once, how often), in order."""
        steps: list[tuple[str, int, int]] = []
        left = count
        many, one = self.prefill, self.decode
        if many is not None and left > 1:
            whole = left // many.most
            steps += [(many.method, many.most, whole)] if whole else []
            left -= whole * many.most
            fits = self.context is None or count - left + many.most <= self.context
            if left and (many.dynamic or (one is None and fits)):
                steps.append((many.method, left if many.dynamic else many.most, 1))
                left = 0
        if left and one is not None:
            steps.append((one.method, 1, left))
        return tuple(steps)


def sequence_program(program: Program) -> SequenceProgram | None:
    """Return how a program reads tokens; None if it is not one that does."""
    found = {method.name: reader for method in program.methods if (reader := _reader(method)) is not None}
    if not found:
        return None
    prefill = _preferred([r for r in found.values() if r.most > 1], ("prefill",))
    decode = _preferred([r for r in found.values() if r.takes(1)], ("decode", "kv"))
    if prefill is None and decode is None:
        return None
    methods = [method for method in program.methods if method.name in found]
    context = next((size for name in _CONTEXT if (size := _constant(program, name))), None) or _context(methods)
    return SequenceProgram(prefill, decode, _vocabulary(program, methods), context, max(map(cache_bytes, methods)))


def _reader(method: Method) -> TokenMethod | None:
    if len(method.inputs) != 2 or not _caches(method):
        return None
    ids, where = method.inputs
    if ids is None or where is None or ids.dtype not in _WHOLE or where.dtype not in _WHOLE:
        return None
    if len(ids.sizes) != 2 or ids.sizes[0] != 1 or ids.sizes[1] < 1 or len(where.sizes) > 1:
        return None
    if where.sizes and where.sizes[0] not in (1, ids.sizes[1]):
        return None
    return TokenMethod(method.name, ids.sizes[1], ids.dynamic)


def cache_bytes(method: Method) -> int:
    """Return the bytes of what a method keeps between executions; 0 if those of some of it are not known."""
    sizes = [_size(method.values[number]) for number in _caches(method)]
    return sum(sizes) if all(sizes) else 0


def _caches(method: Method) -> set[int]:
    """Return the values that a method writes in place: what is kept between executions."""
    found = set()
    for step in method.instructions:
        name = step.name.partition(".")[0]
        if name.startswith(CUSTOM_OPERATORS) and "cache" in name:
            # The cache is the largest tensor among them.
            tensors = [number for number in step.arguments if isinstance(method.values[number], TensorSpec)]
            found |= {max(tensors, key=lambda number: _size(method.values[number]))} if tensors else set()
        elif name.endswith("_") and step.arguments:
            found.add(step.arguments[0])
    return {number for number in found if isinstance(method.values[number], TensorSpec)}


def _context(methods: Sequence[Method]) -> int | None:
    """Return how many positions the caches have: of [batch, positions, heads, values], in whichever order, the most
    there are between the first and the last."""
    specs = [method.values[number] for method in methods for number in _caches(method)]
    sizes = [max(spec.sizes[1:-1]) for spec in specs if isinstance(spec, TensorSpec) and len(spec.sizes) == 4]
    return max(sizes, default=None)


def _size(value: object) -> int:
    return math.prod(value.sizes) * SCALAR_BYTES.get(value.dtype, 0) if isinstance(value, TensorSpec) else 0


def _preferred(readers: Sequence[TokenMethod], words: Sequence[str]) -> TokenMethod | None:
    """Return the reader whose name has one of the words, else `forward`, else the first."""
    named = [reader for reader in readers if any(word in reader.method for word in words)]
    plain = [reader for reader in readers if reader.method == "forward"]
    return next(iter([*named, *plain, *readers]), None)


def _vocabulary(program: Program, methods: Sequence[Method]) -> int | None:
    """Return how many tokens there are: the program's word for it, else the size of its logits."""
    if (said := _constant(program, _VOCABULARY)) is not None:
        return said
    sizes = {spec.sizes[-1] for method in methods for spec in method.outputs[:1] if spec is not None and spec.sizes}
    return sizes.pop() if len(sizes) == 1 else None


def _constant(program: Program, name: str) -> int | None:
    """Return what a method answers that takes nothing and does nothing: `export_llm` stores facts so."""
    method = program.method(name)
    if method is None or len(method.returns) != 1:
        return None
    value = method.values[method.returns[0]]
    return value if isinstance(value, int) and value > 0 else None


def token_bound(method: Method) -> int | None:
    """Return how many tokens a method takes at most, if it takes any number up to that; None if its sizes are fixed.

    A .pte does not say which dimension of a tensor varies: the bound is not a size that anything else has, as a rule.
    """
    ids = method.inputs[0] if method.inputs else None
    return ids.sizes[-1] if ids is not None and ids.dynamic and ids.sizes else None


def set_token_sizes(flow: DataFlow, bound: int, tokens: int) -> DataFlow:
    """Return the data flow of an execution on `tokens` tokens; as it was where a size cannot be told from the bound."""
    constants = [tensor for step in flow.steps for tensor in step.inputs if tensor.source == CONSTANT]
    if any(bound in tensor.shape for tensor in constants):
        return flow

    def sized(each: _Tensor) -> _Tensor:
        constant = each.constant if isinstance(each, XnnpackValue) else each.source == CONSTANT
        return (
            each if constant else replace(each, shape=tuple(tokens if size == bound else size for size in each.shape))
        )

    def resized(each: _Operator) -> _Operator:
        return replace(each, inputs=tuple(map(sized, each.inputs)), outputs=tuple(map(sized, each.outputs)))

    steps = (resized(step if step.node is None else replace(step, node=resized(step.node))) for step in flow.steps)
    return DataFlow(tuple(steps), flow.results, True)
