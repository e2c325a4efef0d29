"""Two programs that were compared, as sections: what the difference consists of, by module, line and operator."""

from collections import deque
from collections.abc import Sequence

from model_profiling.analysis.compare.aspects import base_name
from model_profiling.analysis.compare.program_changes import ModuleChange, PartChange, ProgramChanges
from model_profiling.analysis.run.program_pair import ProgramPair
from model_profiling.analysis.timing.breakdown import InstanceTime
from model_profiling.base.units import counted
from model_profiling.report import change_words, numbers, words
from model_profiling.report.blocks import Block, Branch, Bullets, Name, Number, Paragraph, Picture, Section, Tree

# As many steps as a picture has room for, and modules that are unfolded to begin with.
MOST_STEPS = 10
_MOST_OPENED = 3
_LEAST_FOLDED = 3
# The title that a section ends with, and that of the timelines is made of.
BY_MODULE = "By module and line"
_COLUMNS = ("before", "now", "difference")


def sections(pair: ProgramPair, key: str, heading: str) -> list[Section]:
    """Return what to say of a pair besides the verdict; `key` ends the keys and `heading` begins the titles."""
    found = []
    changes = pair.compared.changes
    if changes is not None:
        blocks = [*_consists_of(changes, f"waterfall{key}"), *([Bullets(changes.notes)] if changes.notes else [])]
        found.append(Section(f"difference{key}", f"{heading}What the difference consists of", blocks))
        tree = Tree("changes", _COLUMNS, _root(pair, changes), "changed only")
        said = (
            "Milliseconds of traced executions, which add up. Intervals hold together; `~` cannot be told from noise."
        )
        found.append(Section(f"changes{key}", f"{heading}{BY_MODULE}", [Paragraph(said), tree]))
    if besides := _besides(pair):
        subjects = " and ".join(filter(None, [", ".join(list(besides)[:-1]), list(besides)[-1]]))
        sentences = [sentence for each in besides.values() for sentence in each]
        found.append(Section(f"besides{key}", heading + subjects[0].upper() + subjects[1:], [Bullets(sentences)]))
    return found


def has_waterfall(changes: ProgramChanges) -> bool:
    """Return whether there are steps to draw: not of a program that is compared with itself."""
    return bool(changes.different)


def _consists_of(changes: ProgramChanges, picture: str) -> list[Block]:
    if not has_waterfall(changes):
        return [Paragraph(f"Nothing that can be told: {change_words.unchanged_sentence(changes)}.")]
    caption = (
        "From before, at the top, to now: each bar starts where the last one ended. To the left (-) is faster, to the "
        "right (+) slower; a bar without colour (~, -) cannot be told from noise. Traced executions."
    )
    rows = change_words.difference_rows(changes, MOST_STEPS)
    return [Picture(picture, caption), Bullets([f"{row.what}." for row in rows if row.what])]


def _besides(pair: ProgramPair) -> dict[str, list[str]]:
    """Return what else was compared, by subject."""
    compared, found = pair.compared, {}
    if compared.accuracy:
        found["accuracy"] = [f"{words.agreement_sentence(each)}." for each in compared.accuracy]
    if compared.kernels is not None:
        found["outputs"] = [f"outputs: {words.outputs_sentence(compared.outputs)}."]
        found["kernels"] = [f"{words.kernels_sentence(compared.kernels)}."]
    if compared.startup is not None:
        found["start-up"] = [f"{words.startup_sentence(compared.startup)}."]
    if compared.memory is not None:
        found["memory"] = [f"{words.memory_sentence(compared.memory)}."]
    return found


def _root(pair: ProgramPair, changes: ProgramChanges) -> Branch:
    scale = max(abs(changes.difference_ms), *(abs(module.difference_ms) for module in changes.modules), 0.0)
    modules = [
        _module(pair, module, parts, scale, place < _MOST_OPENED)
        for place, (module, parts) in enumerate(changes.by_module)
    ]
    return _branch("all of it", "", changes, scale, _folded(modules, "module"), True, minor=False)


def _module(
    pair: ProgramPair, module: ModuleChange, parts: Sequence[PartChange], scale: float, among_first: bool
) -> Branch:
    changed = sum(_is_changed(part) for part in parts)
    minor = not changed and not module.told
    if len(parts) == 1:
        # A module with one line is one row with it.
        place = " ".join(filter(None, [parts[0].source_line, parts[0].code]))
        detail = "; ".join(filter(None, [place, change_words.what_changed(parts[0])]))
        return _branch(module.module, detail, module, scale, _operators(pair, parts[0]), minor=minor)
    lines = _folded([_line(pair, part, module.module, scale) for part in parts], "part")
    detail = f"{changed} of {counted(len(parts), 'part')} changed" if changed else counted(len(parts), "part")
    return _branch(module.module, detail, module, scale, lines, among_first and module.told, minor)


def _line(pair: ProgramPair, part: PartChange, module: str, scale: float) -> Branch:
    within = part.module.removeprefix(module).removeprefix(".") if part.module != module else ""
    name = change_words.part_name(part, within)
    operators = _operators(pair, part)
    return _branch(name, change_words.what_changed(part), part, scale, operators, minor=not _is_changed(part))


def _operators(pair: ProgramPair, part: PartChange) -> list[Branch]:
    """Return the operators of both sides; those of one kind beside each other, in order."""
    before, after = (
        [side.breakdown.instances[row] for row in rows]
        for side, rows in ((pair.before, part.before_rows), (pair.after, part.after_rows))
    )
    waiting: dict[str, deque[InstanceTime]] = {}
    for entry in after:
        waiting.setdefault(base_name(entry), deque()).append(entry)
    rows: list[tuple[InstanceTime | None, InstanceTime | None]] = []
    for entry in before:
        same = waiting.get(base_name(entry))
        rows.append((entry, same.popleft() if same else None))
    rows += [(None, entry) for entries in waiting.values() for entry in entries]
    return [_operator(*row) for row in rows]


def _operator(before: InstanceTime | None, after: InstanceTime | None) -> Branch:
    shown = after or before
    assert shown is not None
    detail = "only before" if after is None else "only after" if before is None else ""
    if before is not None and after is not None and before.operator != after.operator:
        detail = f"was {before.operator}"
    cells = tuple(
        Number("-", None) if each is None else Number(numbers.ms(each.ms), each.ms) for each in (before, after)
    )
    return Branch(Name(shown.operator), detail, (*cells, Number("", None)), 0.0, "")


def _is_changed(part: PartChange) -> bool:
    return part.told or bool(part.aspects)


def _branch(
    name: str,
    detail: str,
    change: PartChange | ModuleChange | ProgramChanges,
    scale: float,
    children: list[Branch],
    opened: bool = False,
    minor: bool = False,
) -> Branch:
    """Return a row; its bar is as long as its difference, where that can be told from noise."""
    low, high = change.low_ms, change.high_ms
    told = low is not None and high is not None and not low <= 0 <= high
    share = abs(change.difference_ms) / scale if told and scale else 0.0
    direction = "slower" if change.difference_ms > 0 else "faster"
    cells = _cells(change.before_ms, change.after_ms, change_words.difference_text(change))
    return Branch(Name(name), detail, cells, share, direction, children, opened, minor)


def _folded(branches: list[Branch], what: str) -> list[Branch]:
    """Return branches with those that did not change below one of their own."""
    kept, minor = [each for each in branches if not each.minor], [each for each in branches if each.minor]
    if len(minor) < _LEAST_FOLDED or not kept:
        return branches
    before, after = (sum(each.cells[side].value or 0.0 for each in minor) for side in (0, 1))
    name = Name(counted(len(minor), f"other {what}"))
    cells = _cells(before, after, f"{after - before:+.3f} ms")
    known = all(each.cells[2].shown.startswith("~") for each in minor)
    detail = "the same operators, each ~" if known else "the same operators"
    return [*kept, Branch(name, detail, cells, 0.0, "", minor, minor=True)]


def _cells(before: float, after: float, difference: str) -> tuple[Number, ...]:
    return (Number(numbers.ms(before), before), Number(numbers.ms(after), after), Number(difference, after - before))
