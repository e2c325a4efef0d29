"""What changed between two experiments: the lines of PyTorch whose time differs most, adding up to the whole."""

from collections.abc import Sequence

from model_profiling.analysis.run.run_view import RunView
from model_profiling.report import change_words, numbers
from model_profiling.report.blocks import Block, Name, Number, Paragraph, Row, Section, Table
from model_profiling.report.change_words import DifferenceRow

<<<<<<< HEAD
_MOST_PARTS, _MOST_MODULES, _MOST_UNFOLDED = 10, 8, 500
=======
# As many steps as a picture has room for, and modules that are unfolded to begin with.
MOST_STEPS = 10
_MOST_OPENED = 3
_LEAST_FOLDED = 3
# The title that a section ends with, and that of the timelines is made of.
BY_MODULE = "By module and line"
_COLUMNS = ("before", "now", "difference")
>>>>>>> page2


def section(run: RunView) -> Section | None:
    """Return what each comparison's difference consists of; of several numbers of threads, that of the first."""
    blocks: list[Block] = []
    for found in run.changes:
        if run.repeats(found.before, found.after):
            continue
        before, after = run.sides(found.before, found.after)
        if blocks:
            blocks.append(Paragraph(f"{before} and {after}:"))
        if not found.different:
            said = change_words.unchanged_sentence(found)
            blocks.append(Paragraph(f"{said[0].upper()}{said[1:]}."))
        else:
            linked = any(part.module or part.source_line for part in found.parts)
            times = (before, after, "difference (95 % interval)")
            # The same program with and without a feature may differ in nothing but time.
            what = ["what changed"] if any(part.aspects for part in found.different) else []
            columns = ("line" if linked else "operator", *times, *what)
            blocks.append(_table(columns, change_words.difference_rows(found, _MOST_PARTS)))
            if modules := change_words.module_rows(found, _MOST_MODULES):
                blocks.append(_table(("module", *times), modules))
        blocks += [Paragraph(f"{run.labelled(note[0].upper() + note[1:])}.") for note in found.notes]
    if not blocks:
        return None
    if any(isinstance(block, Table) for block in blocks):
        blocks.append(
            Paragraph(
                "Rows add up to the whole. Times are of traced executions, and all intervals of a comparison hold "
                "together. ~ means that the interval does not show a difference."
            )
        )
<<<<<<< HEAD
    return Section("changes", "What changed", blocks)
=======
        found.append(Section(f"changes{key}", f"{heading}{BY_MODULE}", [Paragraph(said), tree]))
    if besides := _besides(pair):
        subjects = " and ".join(filter(None, [", ".join(list(besides)[:-1]), list(besides)[-1]]))
        sentences = [sentence for each in besides.values() for sentence in each]
        found.append(Section(f"besides{key}", heading + subjects[0].upper() + subjects[1:], [Bullets(sentences)]))
    return found
>>>>>>> page2


def short(run: RunView) -> list[str]:
    """Return a sentence for each comparison that has lines, with the largest of their changes."""
    lines = [found for found in run.changes if any(part.source_line for part in found.told)]
    shown = [found for found in lines if not run.repeats(found.before, found.after)]
    return [f"largest changes: {change_words.largest_sentence(found)}" for found in shown]


def _table(columns: tuple[str, ...], rows: Sequence[DifferenceRow]) -> Table:
    # What cannot be told from noise needs no list.
    told = {place: row.parts[:_MOST_UNFOLDED] for place, row in enumerate(rows) if all(part.told for part in row.parts)}
    under = {
        place: [_row(change_words.part_row(part), len(columns)) for part in parts]
        for place, parts in told.items()
        if len(parts) > 1
    }
    return Table("changes", columns, [_row(row, len(columns)) for row in rows], under=under)


<<<<<<< HEAD
def _row(row: DifferenceRow, cells: int) -> Row:
    alone = row.parts[0] if len(row.parts) == 1 and row.what else None
    what = (change_words.what_changed(alone) or "nothing but the time") if alone is not None else ""
=======
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
>>>>>>> page2
    return (
        Name(row.name) if alone is not None else row.name,
        Number(numbers.ms(row.before_ms), row.before_ms),
        Number(numbers.ms(row.after_ms), row.after_ms),
        Number(row.difference, row.after_ms - row.before_ms),
        what.replace(" -> ", " → "),
    )[:cells]
