"""trace.json: executions in Chrome's trace event format, for Perfetto and chrome://tracing."""

from typing import Any

import numpy as np

from model_profiling.analysis.timing.profile import Profile
from model_profiling.analysis.timing.spans import Span, spans

# Executions per experiment: enough to see how they differ, few enough to load at once.
MOST_EXECUTIONS = 10
# Chrome's trace viewer knows colours by these names only; Perfetto colours by name and shows the category.
_COLOURS = {
    "CONV": "thread_state_running",
    "GEMM": "thread_state_runnable",
    "Data Movement": "thread_state_iowait",
    "Elementwise": "rail_animation",
    "Other": "grey",
    "Runtime": "good",
}
# What a viewer shows of a span that is chosen.
_TOLD = ("category", "kind", "where", "dtype", "algorithm")
# Executions are drawn one after another with this much between them; when each really began is not in the dump.
_GAP_US = 50.0


def trace(model: str, profiles: dict[str, Profile]) -> dict[str, Any]:
    """Return one track per experiment; on it typical executions in a row, calls and operators nested."""
    events: list[dict[str, Any]] = [_meta("process_name", 0, model)]
    for track, (experiment, profile) in enumerate(profiles.items(), 1):
        events.append(_meta("thread_name", track, experiment))
        begin = 0.0
        for execution in _typical(profile):
            events += [_event(span, execution, track, begin) for span in spans(profile, execution)]
            begin += float(profile.execute[execution]) / 1e3 + _GAP_US
    return {"traceEvents": events, "displayTimeUnit": "ms", "otherData": {"model": model}}


def _typical(profile: Profile) -> list[int]:
    """Return the executions closest to the median, in the order they ran."""
    distance = np.abs(profile.execute - np.median(profile.execute))
    return sorted(np.argsort(distance, kind="stable")[:MOST_EXECUTIONS].tolist())


def _meta(what: str, track: int, name: str) -> dict[str, Any]:
    return {"name": what, "ph": "M", "pid": 1, "tid": track, "args": {"name": name}}


def _event(span: Span, execution: int, track: int, begin: float) -> dict[str, Any]:
    name = f"Method::execute, execution {execution}" if span.depth == 0 else span.name
    return {
        "name": name,
        "cat": span.category,
        "ph": "X",
        "pid": 1,
        "tid": track,
        "ts": round(begin + span.start_us, 3),
        "dur": round(span.duration_us, 3),
        "cname": _COLOURS.get(span.category, "grey"),
        "args": {**{name: getattr(span, name) for name in _TOLD}, "execution": execution},
    }
