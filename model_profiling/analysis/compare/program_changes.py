"""Where two programs differ: every line of PyTorch, or operator, of both with its time before and after.

Every operator is in one part, and the runtime's own time is one, so that parts add up to the whole on both sides.
"""

import functools
import itertools
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

import msgspec
import numpy as np

from model_profiling.analysis.compare.aspects import Aspect, aspects_of, kind_of_work
from model_profiling.analysis.compare.matching import MOST_MODULES, How, Match, ProgramPart, match_parts
from model_profiling.analysis.timing.breakdown import Breakdown, InstanceTime, SourceLine, file_line
from model_profiling.analysis.timing.intervals import Interval, Numbers, difference_intervals, part_intervals
from model_profiling.analysis.timing.profile import RUNTIME, Part, Profile
from model_profiling.analysis.timing.spans import Timeline, typical_timeline
from model_profiling.base.records import sum_by_key

Matched = Literal[How, "only before", "only after", "runtime", "others"]
_IN_ORDER = "operators were matched by kind of work and shape, in order"
_FEW = "too few launches to tell a change from noise: measure with 6 or more (--launches 6)"
# A module that takes so much of both programs is looked into: `model` says less than `model.encoder`.
_NEARLY_ALL = 0.9
_MODEL, _NO_LINE = "the model's own lines", "no source line known"
# What an execution takes beyond its operators, in ExecuTorch or another runtime; their tracers write in between.
OVERHEAD = "runtime and tracing overhead"


@dataclass(frozen=True)
class ProgramOrigin:
    """The program that ran: its .pte (None: gone), what was executed of it, and the analysis of its run."""

    model: Path | None
    method: str = "forward"
    tokens: int | None = None
    analysis: Path | None = None
    experiment: str = ""


@dataclass(frozen=True)
class ProfiledProgram:
    """One of two programs that are compared. `unlinked` says why no operator has a source line; without an `origin`,
    its model is not known."""

    name: str
    profile: Profile
    breakdown: Breakdown
    unlinked: str = ""
    origin: ProgramOrigin | None = None

    @functools.cached_property
    def timeline(self) -> Timeline:
        return typical_timeline(self.profile)


class PartChange(msgspec.Struct, frozen=True):
    """A line, or an operator whose line is not known, in two programs, traced.

    `matched` is the evidence that the two sides are one. `low_ms` and `high_ms` bound the difference together with
    those of all other parts; None: unknown. `rows` are in the breakdowns of the two sides. Where only the largest are
    kept, the others are one, and `parts` says how many.
    """

    module: str
    source_line: str
    code: str
    matched: Matched
    category: Part
    before_ms: float
    after_ms: float
    difference_ms: float
    low_ms: float | None
    high_ms: float | None
    aspects: list[Aspect]
    operators: list[str]
    before_rows: list[int]
    after_rows: list[int]
    parts: int = 1

    @property
    def told(self) -> bool:
        """Whether the difference can be told from noise."""
        return _told(self.low_ms, self.high_ms)


class ModuleChange(msgspec.Struct, frozen=True):
    """A module of the model in two programs; `parts` is how many lines or operators it has."""

    module: str
    before_ms: float
    after_ms: float
    difference_ms: float
    low_ms: float | None
    high_ms: float | None
    parts: int

    @property
    def told(self) -> bool:
        return _told(self.low_ms, self.high_ms)


class ProgramChanges(msgspec.Struct, frozen=True):
    """What the difference between two programs consists of. `parts` have the largest difference first, and add up to
    the whole; so do `modules`. `notes` say how parts were matched where lines are not known, and what cannot be told.
    """

    before: str
    after: str
    before_ms: float
    after_ms: float
    difference_ms: float
    low_ms: float | None
    high_ms: float | None
    parts: list[PartChange]
    modules: list[ModuleChange]
    notes: list[str] = []

    @property
    def told(self) -> list[PartChange]:
        """Parts whose difference can be told from noise, the largest first."""
        return [part for part in self.parts if part.told]

    @property
    def different(self) -> list[PartChange]:
        """Those that are told, then those that differ in something else than time."""
        return [*self.told, *(part for part in self.parts if part.aspects and not part.told)]

    @property
    def by_module(self) -> list[tuple[ModuleChange, list[PartChange]]]:
        """Modules with their parts. Names of modules have one depth: that of a part is the longest that holds it."""
        found: dict[str, list[PartChange]] = {module.module: [] for module in self.modules}
        for part in self.parts:
            path = part.module.split(".") if part.module else []
            holding = (".".join(path[:depth]) for depth in range(len(path), 0, -1))
            without = OVERHEAD if part.matched == "runtime" else _MODEL if part.source_line else _NO_LINE
            own = next((name for name in holding if name in found), without)
            found[own].append(part)
        return [(module, found[module.module]) for module in self.modules]


# The rows of a part in both breakdowns; and the bounds of a difference, None where it cannot be said.
Rows = tuple[list[int], list[int]]
_Limits = tuple[float | None, float | None]


class _Group(msgspec.Struct, frozen=True):
    """Rows of both sides that are one part."""

    rows: Rows
    matched: Matched


class PairedTimes:
    """Two profiles whose parts are compared: how sure one may be of each, so that all of it holds together."""

    def __init__(self, before: Profile, after: Profile, paired: bool, unreliable: str) -> None:
        self.profiles = (before, after)
        self.clock_ns = max(before.clock_ns, after.clock_ns)
        self.unreliable = unreliable
        self.paired = paired and np.array_equal(before.launches, after.launches)

    def times(self, groups: Sequence[Rows]) -> list[Numbers]:
        """Return the time of each group of rows in each launch (ns), on both sides."""
        found = []
        for side, profile in enumerate(self.profiles):
            order = [row for group in groups for row in group[side]]
            group_of = np.repeat(range(len(groups)), [len(group[side]) for group in groups])
            found.append(np.zeros((len(groups), len(profile.launches))))
            np.add.at(found[-1], group_of, profile.launch_times[order])
        return found

    def ratios(
        self,
        groups: Sequence[Rows],
        shown: Sequence[tuple[float, float]],
        among: int,
        resolution_ns: float | Numbers = 0.0,
    ) -> list[Interval]:
        """Return for each group of rows the ratio of the two times shown, with bounds that hold together with those of
        `among` claims in all."""
        if self.unreliable:
            return [(None, None, None)] * len(shown)
        with np.errstate(divide="ignore", invalid="ignore"):
            ratio = np.divide(*np.array(shown, dtype=np.float64).reshape(-1, 2).T)
        before, after = self.times(groups)
        return part_intervals(before, after, ratio, self.paired, among, resolution_ns)

    def differences(self, groups: Sequence[Rows], shown: Sequence[tuple[float, float]]) -> list[_Limits]:
        """Return the bounds (ms) of the difference of the two times shown for each group of rows, which hold together;
        of a group that one side does not have, too."""
        clock = np.array([self.clock_ns * sum(map(len, group)) for group in groups])
        differences, (before, after) = np.array([(now - was) * 1e6 for was, now in shown]), self.times(groups)
        found = difference_intervals(before, after, differences, self.paired, len(groups), clock)
        if self.unreliable or found is None:
            return [(None, None)] * len(groups)
        return list(zip((found[0] / 1e6).tolist(), (found[1] / 1e6).tolist(), strict=True))


def program_changes(before: ProfiledProgram, after: ProfiledProgram, paired: bool) -> ProgramChanges:
    """Match two programs and return how each part changed; `paired`: equal turns were measured side by side."""
    old, new = before.breakdown, after.breakdown
    sides = (old.instances, new.instances)
    linked = [any(_source(entry) is not None for entry in side) for side in sides]
    groups = _groups(sides, linked)
    before_rows, after_rows = ([row for row, entry in enumerate(side) if entry.where == "runtime"] for side in sides)
    if before_rows or after_rows:
        groups.append(_Group((before_rows, after_rows), "runtime"))
    modules = _modules(sides, groups)
    # Each part, each module, and the whole: bounds of all of them hold together.
    claims = [group.rows for group in groups]
    claims += [_joined(claims[place] for place in members) for members in modules.values()]
    claims.append(_joined(group.rows for group in groups))
    shown = [_shown(sides, rows) for rows in claims]
    unreliable = old.unreliable or new.unreliable
    limits = PairedTimes(before.profile, after.profile, paired, unreliable).differences(claims, shown)
    found = list(zip(shown, limits, strict=True))
    parts = [_change(sides, group, *each) for group, each in zip(groups, found, strict=False)]
    by_module = [
        ModuleChange(name, *ms, ms[1] - ms[0], *bounds, len(members))
        for (name, members), (ms, bounds) in zip(modules.items(), found[len(groups) :], strict=False)
    ]
    whole = limits[-1]
    notes = [unreliable] if unreliable else [_FEW] if whole[0] is None else []
    if not all(linked):
        programs = [program for program, has_lines in zip((before, after), linked, strict=True) if not has_lines]
        missing = dict.fromkeys(program.unlinked or f"{program.name} has no source lines" for program in programs)
        notes.insert(0, "; ".join([*missing, _IN_ORDER]))
    return ProgramChanges(
        *(before.name, after.name, old.execute_ms, new.execute_ms, new.execute_ms - old.execute_ms, *whole),
        parts=sorted(parts, key=lambda part: -abs(part.difference_ms)),
        modules=sorted(by_module, key=lambda module: -abs(module.difference_ms)),
        notes=notes,
    )


def with_kernels(changes: ProgramChanges, kernels: Mapping[int, tuple[list[str], list[str]]]) -> ProgramChanges:
    """Return the same with the kernels that a trace saw, before and after, of operators by their row in the latter."""
    parts = []
    for part in changes.parts:
        rows = [kernels[row] for row in part.after_rows if row in kernels]
        names = [", ".join(dict.fromkeys(name for row in rows for name in row[side])) for side in (0, 1)]
        kept = [aspect for aspect in part.aspects if not rows or aspect.what != "kernels"]
        traced = [Aspect("kernels", names[0], names[1])] if rows else []
        parts.append(msgspec.structs.replace(part, aspects=[*kept, *traced]))
    return msgspec.structs.replace(changes, parts=parts)


def _told(low: float | None, high: float | None) -> bool:
    return low is not None and high is not None and (low > 0 or high < 0)


def _source(entry: InstanceTime) -> SourceLine | None:
    source = entry.source if entry.where != "runtime" else None
    return source if source is not None and (source.file or source.module) else None


def _groups(sides: Sequence[Sequence[InstanceTime]], linked: Sequence[bool]) -> list[_Group]:
    """Return what is one in both programs. Where only one has lines, its lines hold what their operators match."""
    by_line = all(linked)
    parts = [_lines(side) if by_line else _operators(side) for side in sides]
    groups = [_group(parts, match) for match in match_parts(*parts)]
    if by_line or not any(linked):
        return groups
    side = linked.index(True)
    found: dict[object, _Group] = {}
    for place, group in enumerate(groups):
        source = next((source for row in group.rows[side] if (source := _source(sides[side][row]))), None)
        key = (source.module, source.file, source.line, bool(group.rows[1 - side])) if source else place
        rows = found[key].rows if key in found else ([], [])
        found[key] = _Group((rows[0] + group.rows[0], rows[1] + group.rows[1]), group.matched)
    return list(found.values())


def _group(parts: Sequence[Sequence[ProgramPart]], match: Match) -> _Group:
    rows = tuple([row for n in numbers for row in parts[side][n].rows] for side, numbers in enumerate(match[:2]))
    return _Group((rows[0], rows[1]), match.how or ("only before" if match.before else "only after"))


def _lines(side: Sequence[InstanceTime]) -> list[ProgramPart]:
    """Return operators by line. One that the export inserted belongs to what it was inserted for: the next line."""
    rows: dict[tuple[str, str, int], tuple[list[int], list[int]]] = {}
    waiting: list[int] = []
    last: tuple[list[int], list[int]] = ([], [])
    for row, entry in enumerate(side):
        source = _source(entry)
        if source is not None:
            last = rows.setdefault((source.module, source.file, source.line), ([], []))
            last[0].extend([*waiting, row])
            last[1].append(row)
            waiting = []
        elif entry.where != "runtime":
            waiting.append(row)
    last[0].extend(waiting)
    return [_part(side, every, own) for every, own in rows.values()]


def _operators(side: Sequence[InstanceTime]) -> list[ProgramPart]:
    return [_part(side, [row], []) for row, entry in enumerate(side) if entry.where != "runtime"]


def _part(side: Sequence[InstanceTime], rows: list[int], own: list[int]) -> ProgramPart:
    work = sorted((kind_of_work(side[row]) for row in own or rows), key=repr)
    kinds, shapes = tuple(kind for kind, _ in work), tuple(shape for _, shape in work)
    source = _source(side[own[0]]) if own else None
    if source is None:
        return ProgramPart(tuple(rows), kinds, shapes)
    return ProgramPart(tuple(rows), kinds, shapes, source.module, source.file, source.line, source.code)


def _shown(sides: Sequence[Sequence[InstanceTime]], group: Rows) -> tuple[float, float]:
    before, after = (sum(side[row].ms for row in rows) for side, rows in zip(sides, group, strict=True))
    return before, after


def _joined(groups: Iterable[Rows]) -> Rows:
    every = list(groups)
    return [row for before, _ in every for row in before], [row for _, after in every for row in after]


def _label(sides: Sequence[Sequence[InstanceTime]], group: _Group) -> SourceLine | None:
    """Return where a group is from: its line in the program after, or in the one before; of several modules, in what
    holds all of them."""
    for side in (1, 0):
        found = [source for row in group.rows[side] if (source := _source(sides[side][row])) is not None]
        if found:
            return msgspec.structs.replace(found[0], module=common_module([source.module for source in found]))
    return None


def common_module(modules: Sequence[str]) -> str:
    """Return the innermost module that holds all of these."""
    shared = itertools.takewhile(
        lambda names: len(set(names)) == 1, zip(*(module.split(".") for module in modules), strict=False)
    )
    return ".".join(names[0] for names in shared)


def _change(
    sides: Sequence[Sequence[InstanceTime]],
    group: _Group,
    ms: tuple[float, float],
    limits: _Limits,
) -> PartChange:
    entries = [[side[row] for row in rows] for side, rows in zip(sides, group.rows, strict=True)]
    source, is_runtime = _label(sides, group), group.matched == "runtime"
    parts = sum_by_key((entry.category, entry.ms) for entry in entries[1] or entries[0])
    return PartChange(
        source.module if source else "",
        file_line(source.file, source.line) if source else "",
        source.code if source else "",
        group.matched,
        RUNTIME if is_runtime else max(parts, key=lambda part: parts[part]),
        *(*ms, ms[1] - ms[0], *limits),
        aspects=[] if is_runtime else aspects_of(entries[0], entries[1]),
        operators=list(dict.fromkeys(entry.name for entry in entries[1] or entries[0])),
        before_rows=group.rows[0],
        after_rows=group.rows[1],
    )


def _modules(sides: Sequence[Sequence[InstanceTime]], groups: Sequence[_Group]) -> dict[str, list[int]]:
    """Return the groups of each module that the model consists of; of one that holds nearly all, its own."""
    shown = [sum(_shown(sides, group.rows)) for group in groups]
    paths: list[list[str] | None] = []
    for group in groups:
        source = None if group.matched == "runtime" else _label(sides, group)
        paths.append(source.module.split(".") if source is not None and source.module else [] if source else None)
    whole, depth = sum(shown), 1
    while depth < MOST_MODULES:
        sizes: dict[str, float] = {}
        for path, ms in zip(paths, shown, strict=True):
            if path and len(path) > depth:
                inside = ".".join(path[:depth])
                sizes[inside] = sizes.get(inside, 0.0) + ms
        if max(sizes.values(), default=0.0) < _NEARLY_ALL * whole or not sizes:
            break
        depth += 1
    found: dict[str, list[int]] = {}
    for place, (group, path) in enumerate(zip(groups, paths, strict=True)):
        own = _NO_LINE if path is None else ".".join(path[:depth]) or _MODEL
        found.setdefault(OVERHEAD if group.matched == "runtime" else own, []).append(place)
    return found


MOST_CHANGES = 5
_OTHERS = "others"


def largest(changes: ProgramChanges, most: int = MOST_CHANGES) -> ProgramChanges:
    """Return the same with all parts but the largest changes as one, and so of modules: both still add up."""
    shown = changes.different[:most]
    seen = set(map(id, shown))
    rest = [part for part in changes.parts if id(part) not in seen]
    parts = [msgspec.structs.replace(part, before_rows=[], after_rows=[]) for part in shown]
    if rest:
        sums = _totals(rest)
        parts.append(
            PartChange("", "", "", "others", rest[0].category, *sums, None, None, [], [], [], [], parts=len(rest))
        )
    modules, left = changes.modules[:most], changes.modules[most:]
    if left:
        modules = [*modules, ModuleChange(_OTHERS, *_totals(left), None, None, sum(module.parts for module in left))]
    return msgspec.structs.replace(changes, parts=parts, modules=modules)


def _totals(those: list[PartChange] | list[ModuleChange]) -> tuple[float, float, float]:
    before, after = (sum(getattr(each, side) for each in those) for side in ("before_ms", "after_ms"))
    return before, after, after - before
