"""What the script of the timelines needs: one execution of each experiment, and what belongs together in two."""

from collections.abc import Mapping, Sequence
from typing import Any

from model_profiling.analysis.compare.program_changes import PartChange
from model_profiling.analysis.run.program_pair import ProgramPair
from model_profiling.analysis.timing.breakdown import InstanceTime
from model_profiling.analysis.timing.spans import Timeline
from model_profiling.report import change_words, numbers
from model_profiling.report.words import unique_labels

# Links between parts that are drawn before a reader chooses one.
_MOST_LINKS = 30


def timeline_data(
    timeline: Timeline, instances: Sequence[InstanceTime], parts: Mapping[int, int] | None = None
) -> dict[str, Any]:
    """Return one execution; of two that are linked, spans end with the number of the part that their row is in."""
    labels = unique_labels(instances)
    spans = []
    for span in timeline.spans:
        times = (round(span.start_us, 3), round(span.duration_us, 3))
        part = () if parts is None else (parts.get(span.row, -1),)
        spans.append([labels[span.row], span.category, span.where, *times, span.depth, span.row, *part])
    return {"execution": timeline.execution, "spans": spans}


def linked_timelines(pair: ProgramPair) -> dict[str, Any]:
    """Return both executions of a compared pair, and its parts with what changed."""
    parts = pair.compared.changes.parts if pair.compared.changes is not None else []
    told = [number for number, part in enumerate(parts) if part.told and part.matched != "runtime"]
    timelines = {}
    for which, side in (("before", pair.before), ("after", pair.after)):
        rows = {row: number for number, part in enumerate(parts) for row in getattr(part, f"{which}_rows")}
        timelines[which] = timeline_data(side.timeline, side.breakdown.instances, rows)
    return {
        "labels": {"before": f"before: {pair.before.name}", "after": f"now: {pair.after.name}"},
        "timelines": timelines,
        "parts": [_part(part) for part in parts],
        "linked": told[:_MOST_LINKS],
    }


def _part(part: PartChange) -> list[str]:
    """Return the name of a part, its times with their difference, what changed, and which way it went."""
    difference = change_words.difference_text(part)
    times = f"{numbers.ms(part.before_ms)} before, {numbers.ms(part.after_ms)} now"
    whole = f"{times}, difference {difference if difference != '-' else 'not known'}"
    way = "" if not part.told else "faster" if part.difference_ms < 0 else "slower"
    return [change_words.part_name(part), whole, change_words.what_changed(part), way]
