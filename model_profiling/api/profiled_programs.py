"""What each runtime's own profile tells of a model: times of operators, by line of PyTorch."""

from collections.abc import Mapping
from dataclasses import dataclass

from model_profiling.analysis.run.measured_side import measured_side
from model_profiling.analysis.runtimes.onnx_profile import onnx_side
from model_profiling.analysis.timing.breakdown import Breakdown
from model_profiling.analysis.timing.profile import Profile
from model_profiling.base import files
from model_profiling.base.errors import KitError
from model_profiling.pipeline.experiment_files import profile_file
from model_profiling.pipeline.group_state import ExperimentOutcome
from model_profiling.runtimes.runtime_table import optimized_file


@dataclass(frozen=True)
class ProfiledProgram:
    """Times of operators and what they add up to (None: `why` there are none); `unlinked` is why they have no lines."""

    label: str
    times: tuple[Profile, Breakdown] | None
    unlinked: str = ""
    why: str = ""


def profiled_programs(
    labels: Mapping[str, str], outcomes: Mapping[str, ExperimentOutcome]
) -> dict[str, ProfiledProgram]:
    """Return the programs that left a profile, by the names of their outcomes; one that is not sound says why."""
    found = {}
    for name, outcome in outcomes.items():
        if outcome.failure is not None or not outcome.dumps:
            continue
        try:
            profile, breakdown, unlinked = _profiled(outcome, labels[name])
        except KitError as error:
            found[name] = ProfiledProgram(labels[name], None, why=error.message)
            continue
        found[name] = ProfiledProgram(labels[name], (profile, breakdown), unlinked)
    return found


def _profiled(outcome: ExperimentOutcome, label: str) -> tuple[Profile, Breakdown, str]:
    if outcome.runner.kind != "runtime":
        return measured_side(outcome, label).profiled()
    profiles = [profile_file(outcome, number) for number in range(len(outcome.dumps))]
    optimized = optimized_file(outcome.dumps[0])
    made = optimized if files.is_file(optimized) else None
    return onnx_side(outcome.program.pte, profiles, made, outcome.traced_warmup)
