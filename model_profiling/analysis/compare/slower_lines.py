"""Lines of a model that the baseline does more slowly than another runtime, by more than noise, profilers or fusion can
explain."""

from collections.abc import Sequence
from typing import NamedTuple

from model_profiling.analysis.compare.program_changes import PartChange, ProgramChanges

# A line is named from so many times as long on, by the near end of its interval, and such a part of the whole time.
LEAST_RATIO, LEAST_SHARE = 1.2, 0.01


class SlowerLine(NamedTuple):
    """One line of PyTorch, in as many modules as `parts` has. `least` is the near end of the interval of the ratio."""

    parts: Sequence[PartChange]
    before_ms: float
    after_ms: float
    least: float

    @property
    def ratio(self) -> float:
        return self.before_ms / self.after_ms


def slower_lines(changes: ProgramChanges) -> list[SlowerLine]:
    """Return the lines at which `before` is slower, the costliest first; those of equal operators in several modules
    are one. What only `after` does beside a line counts as a part of it: `before` may have fused it."""
    alone: dict[str, float] = {}
    for part in changes.parts:
        if not part.before_rows:
            alone[_holder(part)] = alone.get(_holder(part), 0.0) + part.after_ms
    groups: dict[object, list[tuple[PartChange, float]]] = {}
    for part in changes.parts:
        if part.matched not in ("line", "module") or not part.source_line or part.high_ms is None:
            continue
        most = part.before_ms + part.high_ms + alone.get(_holder(part), 0.0)
        if part.high_ms < 0 and part.after_ms > 0 and 0 < most * LEAST_RATIO <= part.before_ms:
            operators = next(((a.before, a.after) for a in part.aspects if a.what == "operators"), None)
            key = (part.source_line, operators or tuple(part.operators))
            groups.setdefault(key, []).append((part, most))
    found = []
    for members in groups.values():
        before, after = sum(part.before_ms for part, _ in members), sum(part.after_ms for part, _ in members)
        if before >= LEAST_SHARE * changes.before_ms:
            least = before / sum(most for _, most in members)
            found.append(SlowerLine([part for part, _ in members], before, after, least))
    return sorted(found, key=lambda line: line.after_ms - line.before_ms)


def _holder(part: PartChange) -> str:
    return part.module.rpartition(".")[0]
