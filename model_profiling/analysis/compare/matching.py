"""Which part of one program is which part of another, by where they come from; what has no counterpart stays alone.

A part is what one line of PyTorch became, or one operator where lines are not known. Line numbers and files are not
what parts are matched by: an edit above a line moves it. Passes go from the surest evidence to the weakest, each over
what is left, and each is linear in parts.
"""

from collections import Counter
from collections.abc import Callable, Hashable, Iterator, Sequence
from typing import Literal, NamedTuple, TypeVar

import msgspec

from model_profiling.base.records import by_key

# The evidence for a match: the same line of the same module; the same module; kind of work and shape, in order; kind of
# work, or module, and neighbours.
How = Literal["line", "module", "work", "place"]
# No network is nested deeper than this; a damaged file may say so.
MOST_MODULES = 30
# Without lines, two programs that differ are looked through so far for the same operators, and so many have to agree.
_AHEAD, _AGREE = 24, 3


class ProgramPart(msgspec.Struct, frozen=True):
    """`rows` are its operators in the breakdown; `kinds` and `shapes` their kinds of work and sizes.

    Those that the export inserted are among the rows and not among the kinds. `module` is None without a source.
    """

    rows: tuple[int, ...]
    kinds: tuple[str, ...]
    shapes: tuple[Hashable, ...]
    module: str | None = None
    file: str = ""
    line: int = 0
    code: str = ""

    @property
    def work(self) -> Hashable:
        return self.kinds, self.shapes


class Match(NamedTuple):
    """Parts of the two programs, by their numbers, that are one; one of the sides is empty if there is no other."""

    before: tuple[int, ...]
    after: tuple[int, ...]
    how: How | None


Key = Callable[[int, ProgramPart], Hashable | None]
T = TypeVar("T")
# Positions in two lists of what is one in both; None where one has it not.
Pair = tuple[int | None, int | None]


def pair_in_order(before: Sequence[T], after: Sequence[T], *keys: Callable[[T], Hashable | None]) -> list[Pair]:
    """Return all of both lists once: the n-th of a key on one side with the n-th on the other, by each key in turn what
    the keys before have left over; None is no key. In the order of the first list, then what only the second has."""
    left = [dict.fromkeys(range(len(side))) for side in (before, after)]
    found: dict[int, int] = {}
    for key in keys:
        waiting = by_key((value, place) for place in left[0] if (value := key(before[place])) is not None)
        queues = {value: iter(places) for value, places in waiting.items()}
        for other in list(left[1] if queues else ()):
            one = next(queues.get(key(after[other]), iter(())), None)
            if one is not None:
                del left[0][one], left[1][other]
                found[one] = other
    return [*((place, found.get(place)) for place in range(len(before))), *((None, other) for other in left[1])]


class _Sides:
    """Two programs while their parts are matched."""

    def __init__(self, before: Sequence[ProgramPart], after: Sequence[ProgramPart]) -> None:
        self.parts = (before, after)
        self.left = (dict.fromkeys(range(len(before))), dict.fromkeys(range(len(after))))
        self.found: list[Match] = []

    def take(self, before: Sequence[int], after: Sequence[int], how: How) -> None:
        self.found.append(Match(tuple(before), tuple(after), how))
        for numbers, left in zip((before, after), self.left, strict=True):
            for number in numbers:
                del left[number]

    def buckets(self, key: Key) -> Iterator[tuple[list[int], list[int]]]:
        """Yield what is left on both sides with one key, in the order of the programs; None is no key."""
        found: dict[Hashable, tuple[list[int], list[int]]] = {}
        for side, left in enumerate(self.left):
            for number in left:
                value = key(side, self.parts[side][number])
                if value is not None:
                    found.setdefault(value, ([], []))[side].append(number)
        yield from (both for both in found.values() if both[0] and both[1])

    def pair_equal(self, key: Key, how: How, most: int | None = None) -> None:
        """Match what has one key in order, where both sides have as many, and no more than `most`: then nothing has to
        be guessed."""
        for before, after in self.buckets(key):
            if len(before) == len(after) and (most is None or len(before) <= most):
                for one, other in zip(before, after, strict=True):
                    self.take([one], [other], how)


def match_parts(before: Sequence[ProgramPart], after: Sequence[ProgramPart]) -> list[Match]:
    """Return every part of both programs once: with its counterpart, or alone."""
    sides = _Sides(_unwrapped(before, after), _unwrapped(after, before))
    linked = all(any(part.module is not None for part in parts) for parts in sides.parts)
    if linked:
        _by_source(sides)
    else:
        _in_step(sides)
    sides.pair_equal(lambda _, part: part.work, "work")
    _by_place(sides, lambda part: part.work)
    _by_place(sides, lambda part: part.kinds)
    if linked:
        # One line of a module in the place of one other: it was edited.
        _by_place(sides, lambda part: part.module, most=1)
    else:
        # Repeated layers, one fewer of them: of equal operators the first are taken to be the same.
        for one, other in sides.buckets(lambda _, part: part.work):
            for pair in zip(one, other, strict=False):
                sides.take([pair[0]], [pair[1]], "work")
    alone = [Match((number,), (), None) for number in sides.left[0]]
    return [*sides.found, *alone, *(Match((), (number,), None) for number in sides.left[1])]


def _unwrapped(parts: Sequence[ProgramPart], other: Sequence[ProgramPart]) -> Sequence[ProgramPart]:
    """Return parts as if the model were not inside another, `net`, where the other program has its modules bare."""
    modules, others = ({part.module for part in each if part.module} for each in (parts, other))
    bare = {module: module.partition(".")[2] for module in modules}
    outermost = {module.partition(".")[0] for module in modules}
    if len(outermost) != 1 or modules & others or not others & set(bare.values()):
        return parts
    return [msgspec.structs.replace(part, module=bare[part.module]) if part.module else part for part in parts]


def _by_source(sides: _Sides) -> None:
    """Match lines of one module: by their code; then by what they do; then the whole of a module that was replaced."""

    def same_module(key: Callable[[ProgramPart], Hashable]) -> Key:
        return lambda _, part: None if part.module is None else (part.module, key(part))

    sides.pair_equal(same_module(lambda part: part.code or part.line), "line")
    sides.pair_equal(same_module(lambda part: (part.file, part.line, part.code)), "line")
    sides.pair_equal(same_module(lambda part: part.work), "module")
    sides.pair_equal(same_module(lambda part: part.kinds), "module")
    often = [Counter(part.module for part in parts) for parts in sides.parts]

    def only_one(_: int, part: ProgramPart) -> Hashable | None:
        return part.module if part.module and all(counts[part.module] == 1 for counts in often) else None

    sides.pair_equal(only_one, "module")
    for inner in (0, 1):
        _by_outer_module(sides, inner, set(often[inner]))
    # A module that was renamed.
    sides.pair_equal(lambda _, part: None if part.module is None else (part.code, part.work), "work")


def _by_outer_module(sides: _Sides, inner: int, modules: set[str | None]) -> None:
    """Match a layer with the modules inside the one that took its place: `conv` with `conv.0` and `conv.1`.

    `inner` is the side that has these, and `modules` all of its modules.
    """
    outer: dict[str, list[int]] = {}
    for number in sides.left[1 - inner]:
        module = sides.parts[1 - inner][number].module
        if module and module not in modules:
            outer.setdefault(module, []).append(number)
    within: dict[str, list[int]] = {}
    for number in sides.left[inner] if outer else ():
        parts = (sides.parts[inner][number].module or "").split(".")[:MOST_MODULES]
        paths = (".".join(parts[:depth]) for depth in range(len(parts) - 1, 0, -1))
        if (path := next((path for path in paths if path in outer), None)) is not None:
            within.setdefault(path, []).append(number)
    for path, numbers in within.items():
        sides.take(*((outer[path], numbers) if inner else (numbers, outer[path])), "module")


def _in_step(sides: _Sides) -> None:
    """Match two programs as they run, side by side; where they differ, go on at the nearest place where they agree."""
    numbers: dict[Hashable, int] = {}
    one, other = ([numbers.setdefault(part.work, len(numbers)) for part in parts] for parts in sides.parts)
    i = j = 0
    while i < len(one) and j < len(other):
        if one[i] == other[j]:
            sides.take([i], [j], "work")
            step = 1, 1
        else:
            step = _next_agreement(one[i : i + _AHEAD + _AGREE], other[j : j + _AHEAD + _AGREE])
        i, j = i + step[0], j + step[1]


def _next_agreement(one: Sequence[int], other: Sequence[int]) -> tuple[int, int]:
    """Return how much to leave out of each so that what follows is the same for a few operators; one of both if they
    do not agree soon."""
    for left_out in range(1, 2 * _AHEAD):
        for a in range(max(0, left_out - _AHEAD), min(left_out, _AHEAD) + 1):
            first, second = one[a : a + _AGREE], other[left_out - a : left_out - a + _AGREE]
            if first and first == second:
                return a, left_out - a
    return 1, 1


def _by_place(sides: _Sides, key: Callable[[ProgramPart], Hashable], most: int | None = None) -> None:
    """Match what stands between the same neighbours, as far as these are matched."""
    number_of: tuple[dict[int, int], dict[int, int]] = ({}, {})
    for place, match in enumerate(sides.found):
        for side, numbers in enumerate(match[:2]):
            number_of[side].update(dict.fromkeys(numbers, place))
    gaps = []
    for side, parts in enumerate(sides.parts):
        before, after = (_nearest(number_of[side], order) for order in (range(len(parts)), range(len(parts))[::-1]))
        gaps.append({id(parts[number]): (before[number], after[number]) for number in sides.left[side]})
    sides.pair_equal(lambda side, part: (*gaps[side][id(part)], key(part)), "place", most)


def _nearest(found: dict[int, int], order: Sequence[int]) -> dict[int, int]:
    """Return of each part the last match before it in an order; -1 before the first."""
    last, nearest = -1, {}
    for number in order:
        last = found.get(number, last)
        nearest[number] = last
    return nearest
