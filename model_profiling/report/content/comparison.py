"""What `compare A B` says: verdict, waterfall, modules, both timelines and graphs of each pair."""

from collections import defaultdict, deque
from collections.abc import Sequence
from typing import Any

import msgspec

from model_profiling.analysis.compare.aspects import base_name
from model_profiling.analysis.compare.comparison import PairComparison
from model_profiling.analysis.compare.program_changes import ModuleChange, PartChange, ProgramChanges
from model_profiling.analysis.run.program_pair import ProgramPair
from model_profiling.analysis.timing.breakdown import InstanceTime
from model_profiling.base.units import counted
from model_profiling.report import blocks, change_words, charts, numbers, words
from model_profiling.report.charts.waterfall import waterfall
from model_profiling.report.drawing.theme import LIGHT
from model_profiling.report.graph_page import MOST_IN_REPORT, linked_timelines, pair_graph_data

_MOST_CHANGES, _MOST_BESIDES = 6, 3
# As many steps as a picture has room for, and modules that are unfolded to begin with.
_MOST_STEPS = 10
_MOST_OPENED = 3
_LEAST_FOLDED = 3
GRAPH = blocks.Section("graph", "Graph", folded=True, result="every operator, by module", widget="graph")
_TIMELINES = (
    "One typical execution of each side on one scale; inside a delegate, starts are laid end to end. Links join what "
    "is one part of both programs: the largest changes, and what you choose."
)
_COLUMNS = ("before", "now", "difference")
_TRACED = "Milliseconds of traced executions, which add up. Intervals hold together; `~` cannot be told from noise."
_WATERFALL = (
    "From before, at the top, to now: each bar starts where the last one ended. To the left (-) is faster, to the "
    "right (+) slower; a bar without colour (~, -) cannot be told from noise. Traced executions."
)


def pictures(pairs: Sequence[ProgramPair], width: int) -> dict[str, charts.Spec]:
    """Return the waterfall of each pair that differs."""
    found = {}
    for key, pair in keyed(pairs, "waterfall").items():
        changes = pair.compared.changes
        if changes is not None and changes.different:
            rows = change_words.difference_rows(changes, _MOST_STEPS)
            found[key] = waterfall(rows, (changes.before, changes.after), width, LIGHT, "")
    return found


def page_data(pairs: Sequence[ProgramPair]) -> dict[str, Any]:
    """Return what the timelines show, and the graph of both programs as one where there is one and it is not too
    large: `graph A B` makes it a page of its own."""
    graph = pair_graph_data(*pairs) if _fits(pairs) else {}
    timelines = {key: linked_timelines(pair) for key, pair in keyed(pairs, "timeline").items()}
    return {"timelines": timelines, **({"graph": graph} if graph else {})}


def _fits(pairs: Sequence[ProgramPair]) -> bool:
    """Return whether there are graphs, and these are small enough to be a part of the page."""
    rows = sum(len(side.breakdown.instances) for pair in pairs for side in (pair.before, pair.after))
    return rows <= 2 * MOST_IN_REPORT and any(pair.compared.changes is not None for pair in pairs)


def report(pairs: Sequence[ProgramPair], title: str = "") -> blocks.Report:
    """Return what the page says: the first screen of all pairs, and their sections."""
    sections = [
        section
        for key, pair in keyed(pairs, "").items()
        for section in _sections(pair, key, "" if len(pairs) == 1 else f"{_name(pair)}: ")
    ]
    sections += [GRAPH] if _fits(pairs) else []
    return msgspec.structs.replace(opening([pair.compared for pair in pairs], title), sections=sections)


def opening(pairs: Sequence[PairComparison], title: str = "") -> blocks.Report:
    """Return the first screen of what was compared: verdicts, what changed most, and what is to be known before."""
    first, told = pairs[0].latency, [pair.told for pair in pairs]
    unreliable = [pair.profile.unreliable for pair in pairs]
    warnings = [warning for pair in pairs for warning in pair.warnings]
    busy = words.busy_sentence(told)
    basis = "the machine was busy: times are of undisturbed execution"
    basis = basis if not busy and any(pair.latency.contended for pair in pairs) else ""
    alerts = [f"{text[0].upper()}{text[1:]}." for text in dict.fromkeys([*warnings, busy, basis, *unreliable]) if text]
    how = [
        f"{f'{x.launches} launches' if x.launches > 1 else 'one launch'} per side, "
        f"measured {'in turns' if x.paired else 'separately'}"
        for x in (pair.latency for pair in pairs)
    ]
    title = title or (f"{first.after} against {first.before}" if len(pairs) == 1 else f"{len(pairs)} comparisons")
    verdicts = _verdict(pairs[0]) if len(pairs) == 1 else [[], [_verdicts(pairs)]]
    return blocks.Report(title, " · ".join(dict.fromkeys(how)), alerts=alerts, opening=[*verdicts, [*_besides(pairs)]])


def _verdict(pair: PairComparison) -> list[list[blocks.Fact | blocks.Table]]:
    """Return how the latency of a pair changed, and what the difference consists of, adding up to the whole."""
    told, changes = pair.told, pair.changes
    value, note = words.bounded_factor(told)
    sides = f"{numbers.ms(told.before_ms)} before, {numbers.ms(told.after_ms)} now" if not told.contended else ""
    latency = blocks.Fact("Latency", value, ", ".join(filter(None, (note, sides, *told.caveats))), card=True)
    if changes is None or not changes.different:
        return [[latency], []]
    rows: list[blocks.Row] = [(row.name, *row.cells) for row in change_words.difference_rows(changes, _MOST_CHANGES)]
    return [[latency], [blocks.Table("glance", ("What changed most", *_COLUMNS), rows)]]


def _verdicts(pairs: Sequence[PairComparison]) -> blocks.Table:
    rows: list[blocks.Row] = []
    for pair in pairs:
        told = pair.told
        times = [
            blocks.Number(numbers.ms(ms) if not told.contended else "-", ms) for ms in (told.before_ms, told.after_ms)
        ]
        rows.append((_name(pair), *times, " ".join(words.bounded_factor(told))))
    return blocks.Table("verdicts", ("experiment", "before", "now", "latency"), rows)


def _besides(pairs: Sequence[PairComparison]) -> list[blocks.Fact]:
    """Return whether the outputs are right, and what else was compared."""
    found = []
    for pair in pairs[:_MOST_BESIDES]:
        if judged := {each.verdict for each in pair.accuracy}:
            agree = "differ" if "differs" in judged else "agree"
            found.append(blocks.Fact("Outputs", agree, f"with eager PyTorch's: {_sqnr(pair)}"))
        if pair.metric is not None:
            found.append(blocks.Fact("Metric", note=words.metric_sentence(pair.metric)))
        if pair.kernels is not None:
            found.append(blocks.Fact("Outputs", note=words.outputs_sentence(pair.outputs)))
            found.append(blocks.Fact("Kernels", note=words.kernels_sentence(pair.kernels).removeprefix("kernels: ")))
            told = [runner for runner in pair.runners if runner.executorch_path]
            found += [blocks.Fact("Release", note=f"{each.executorch_name} in {each.executorch_path}") for each in told]
        if pair.changes is not None and not pair.changes.different:
            found.append(blocks.Fact("Changes", note=change_words.unchanged_sentence(pair.changes)))
    return found


def _sqnr(pair: PairComparison) -> str:
    shown = [
        f"{each.sqnr_db:.1f} dB" if each.sqnr_db is not None else "exact" if each.max_abs_error == 0 else "not known"
        for each in pair.accuracy
    ]
    return f"SQNR {shown[0]} before, {shown[1]} now" if len(shown) == 2 else ""


def keyed(pairs: Sequence[ProgramPair], name: str) -> dict[str, ProgramPair]:
    """Return pairs by a name that no other has: `changes`, `changes-2`."""
    return {f"{name}-{number}" if number > 1 else name: pair for number, pair in enumerate(pairs, 1)}


def _name(pair: PairComparison | ProgramPair) -> str:
    """Return what to call one of several pairs: the name of both where it is one."""
    compared = pair.compared if isinstance(pair, ProgramPair) else pair
    before, after = compared.latency.before, compared.latency.after
    same = before.removeprefix("A:") == after.removeprefix("B:")
    return after.removeprefix("B:") if same else f"{after} against {before}"


def _sections(pair: ProgramPair, key: str, heading: str) -> list[blocks.Section]:
    """Return what to say of a pair besides the verdict; `key` ends the keys and `heading` begins the titles."""
    found = []
    changes = pair.compared.changes
    if changes is not None:
        content = [*_consists_of(changes, f"waterfall{key}"), *blocks.bullets(changes.notes)]
        found.append(blocks.Section(f"difference{key}", f"{heading}What the difference consists of", content))
        tree = blocks.Tree("changes", _COLUMNS, _root(pair, changes), "changed only")
        content = [blocks.Paragraph(_TRACED), tree]
        found.append(blocks.Section(f"changes{key}", f"{heading}By module and line", content))
        both = f"{heading}Both timelines"
        found.append(blocks.Section(f"timeline{key}", both, result=_TIMELINES, widget="timeline"))
    if besides := _beside_time(pair):
        subjects = " and ".join(filter(None, [", ".join(list(besides)[:-1]), list(besides)[-1]]))
        sentences = [sentence for each in besides.values() for sentence in each]
        found.append(
            blocks.Section(f"besides{key}", heading + subjects[0].upper() + subjects[1:], [blocks.Bullets(sentences)])
        )
    return found


def _consists_of(changes: ProgramChanges, picture: str) -> list[blocks.Block]:
    if not changes.different:
        return [blocks.Paragraph(f"Nothing that can be told: {change_words.unchanged_sentence(changes)}.")]
    rows = change_words.difference_rows(changes, _MOST_STEPS)
    return [blocks.Picture(picture, _WATERFALL), blocks.Bullets([f"{row.what}." for row in rows if row.what])]


def _beside_time(pair: ProgramPair) -> dict[str, list[str]]:
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


def _root(pair: ProgramPair, changes: ProgramChanges) -> blocks.Branch:
    scale = max(abs(changes.difference_ms), *(abs(module.difference_ms) for module in changes.modules), 0.0)
    modules = [
        _module(pair, module, parts, scale, place < _MOST_OPENED)
        for place, (module, parts) in enumerate(changes.by_module)
    ]
    return _branch("all of it", "", changes, scale, _folded(modules, "module"), True, minor=False)


def _module(
    pair: ProgramPair, module: ModuleChange, parts: Sequence[PartChange], scale: float, among_first: bool
) -> blocks.Branch:
    changed = sum(part.told or bool(part.aspects) for part in parts)
    minor = not changed and not module.told
    if len(parts) == 1:
        # A module with one line is one row with it.
        place = " ".join(filter(None, [parts[0].source_line, parts[0].code]))
        detail = "; ".join(filter(None, [place, change_words.what_changed(parts[0])]))
        return _branch(module.module, detail, module, scale, _operators(pair, parts[0]), minor=minor)
    lines = _folded([_line(pair, part, module.module, scale) for part in parts], "part")
    detail = f"{changed} of {counted(len(parts), 'part')} changed" if changed else counted(len(parts), "part")
    return _branch(module.module, detail, module, scale, lines, among_first and module.told, minor)


def _line(pair: ProgramPair, part: PartChange, module: str, scale: float) -> blocks.Branch:
    within = part.module.removeprefix(module).removeprefix(".") if part.module != module else ""
    minor, what = not (part.told or part.aspects), change_words.what_changed(part)
    return _branch(change_words.part_name(part, within), what, part, scale, _operators(pair, part), minor=minor)


def _operators(pair: ProgramPair, part: PartChange) -> list[blocks.Branch]:
    """Return the operators of both sides; those of one kind beside each other, in order."""
    waiting: dict[str, deque[InstanceTime]] = defaultdict(deque)
    for entry in (pair.after.breakdown.instances[row] for row in part.after_rows):
        waiting[base_name(entry)].append(entry)
    found = []
    for entry in (pair.before.breakdown.instances[row] for row in part.before_rows):
        same = waiting[base_name(entry)]
        found.append(_operator(entry, same.popleft() if same else None))
    return [*found, *(_operator(None, entry) for entries in waiting.values() for entry in entries)]


def _operator(before: InstanceTime | None, after: InstanceTime | None) -> blocks.Branch:
    shown = after or before
    assert shown is not None
    detail = "only before" if after is None else "only after" if before is None else ""
    if before is not None and after is not None and before.operator != after.operator:
        detail = f"was {before.operator}"
    cells = (numbers.ms_cell(each.ms if each is not None else None) for each in (before, after))
    return blocks.Branch(blocks.Name(shown.operator), detail, (*cells, numbers.NOTHING), 0.0, "")


def _branch(
    name: str,
    detail: str,
    change: PartChange | ModuleChange | ProgramChanges,
    scale: float,
    children: list[blocks.Branch],
    opened: bool = False,
    minor: bool = False,
) -> blocks.Branch:
    """Return a row; its bar is as long as its difference, where that can be told from noise."""
    low, high = change.low_ms, change.high_ms
    told = low is not None and high is not None and not low <= 0 <= high
    share = abs(change.difference_ms) / scale if told and scale else 0.0
    direction = "slower" if change.difference_ms > 0 else "faster"
    said = change_words.difference_text(change)
    cells = change_words.difference_cells(change.before_ms, change.after_ms, said)
    return blocks.Branch(blocks.Name(name), detail, cells, share, direction, children, opened, minor)


def _folded(branches: list[blocks.Branch], what: str) -> list[blocks.Branch]:
    """Return branches with those that did not change below one of their own."""
    kept, minor = [each for each in branches if not each.minor], [each for each in branches if each.minor]
    if len(minor) < _LEAST_FOLDED or not kept:
        return branches
    before, after = (sum(each.cells[side].value or 0.0 for each in minor) for side in (0, 1))
    name = blocks.Name(counted(len(minor), f"other {what}"))
    cells = change_words.difference_cells(before, after, f"{after - before:+.3f} ms")
    known = all(each.cells[2].shown.startswith("~") for each in minor)
    detail = "the same operators, each ~" if known else "the same operators"
    return [*kept, blocks.Branch(name, detail, cells, 0.0, "", minor, minor=True)]
