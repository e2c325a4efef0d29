"""What can be said of ETDumps alone, and the shape of an analysis. Loads little: a dump is analysed in a moment."""

import io
from pathlib import Path

import msgspec
import numpy as np

from model_profiling.analysis.advice.rules import Evidence, Finding, advise
from model_profiling.analysis.compare.comparison import KernelComparison, ProfileComparison
from model_profiling.analysis.compare.metrics import Metrics
from model_profiling.analysis.compare.operator_scaling import CurveOperators
from model_profiling.analysis.compare.program_changes import ProfiledProgram, ProgramChanges
from model_profiling.analysis.movement.movement import DataMovement
from model_profiling.analysis.roofs.roofline import Roofline
from model_profiling.analysis.sme2.coverage import Coverage
from model_profiling.analysis.sme2.forecast_record import Sme2Answer
from model_profiling.analysis.sme2.kernel_assignment import KernelEvidence
from model_profiling.analysis.timing.breakdown import Breakdown, break_down
from model_profiling.analysis.timing.categories import UNKNOWN, CategoryTable, OperatorClass
from model_profiling.analysis.timing.profile import Instance, Profile, Where, describe_sizes, profiles, split_sizes
from model_profiling.base import files
from model_profiling.base.errors import InputError
from model_profiling.formats import etdump
from model_profiling.store.artifacts import KERNEL_TRACE
from model_profiling.store.run_directory import Timing, Turn

SCHEMA = 1
_MOST_PARTS = 8
_KERNELS_TRACED = "this ETDump is from a kernel trace run: its operator times are not valid"


class ExperimentAnalysis(msgspec.Struct, frozen=True):
    """One experiment, or one dump: where its time goes and what to do about it."""

    etdump: str
    breakdown: Breakdown
    data_movement: DataMovement
    advice: list[Finding]
    notes: list[str]
    kernels: KernelEvidence | None = None
    coverage: Coverage | None = None
    # None: no roofs of this CPU are known for it.
    roofline: Roofline | None = None
    # Of a language model: milliseconds by kind of layer (attention, MLP, head and so on), adding up to the whole.
    layer_kinds: dict[str, float] = {}


class AnalysisSummary(msgspec.Struct, frozen=True, tag="analysis_summary", tag_field="kind"):
    """analysis_summary.json. `sources` is set in the file only: the state of the run that it was made from."""

    model: str
    platform: str
    dtype: str
    experiments: dict[str, ExperimentAnalysis]
    comparisons: list[ProfileComparison]
    metrics: Metrics | None
    notes: list[str]
    # "measured", or "emulated": then times tell nothing, and only operators and kernels count.
    timing: Timing = "measured"
    # The operators of each curve of `metrics.scaling`, as far as they were traced.
    operator_scaling: list[CurveOperators] = []
    # Traced pairs that ran with different versions of ExecuTorch: which operators call other kernels.
    kernel_comparisons: list[KernelComparison] = []
    # What SME2 does for the model, or would do, with the costliest operators: set in the file, and where it is printed.
    sme2: list[Sme2Answer] = []
    # What the difference of each of `comparisons` consists of, by module and line; set where `sme2` is.
    changes: list[ProgramChanges] = []
    schema: int = SCHEMA
    sources: str | msgspec.UnsetType = msgspec.UNSET


class DumpAnalysis(msgspec.Struct, frozen=True):
    """A summary, and the programs behind it for whoever compares them or writes every execution down.

    `unlinked` says why no operator has a line of PyTorch, if that is so.
    """

    summary: AnalysisSummary
    programs: dict[str, ProfiledProgram]
    unlinked: str = ""


def analyse_dumps(paths: list[Path], table: CategoryTable) -> DumpAnalysis:
    """Analyse dumps that come without a run directory; latency is then not known, only traced time."""
    programs: dict[str, ProfiledProgram] = {}
    experiments = {}
    for path in paths:
        name = path.stem if path.stem not in programs else str(path)
        parts, notes = _parts(path, table)
        if path.with_name(path.stem + KERNEL_TRACE).is_file():
            parts, notes = [part.without_times() for part in parts], [*notes, _KERNELS_TRACED]
        for number, part in enumerate(parts, 1):
            own = name if len(parts) == 1 else f"{name}#{number}"
            programs[own] = ProfiledProgram(own, part, break_down(part))
            experiments[own] = describe(path, notes, Evidence(programs[own].breakdown))
    note = "ETDumps without a run directory: times include tracer overhead; model and machine are unknown"
    summary = AnalysisSummary("", "", "", experiments, [], None, [note])
    return DumpAnalysis(summary, programs)


def _parts(path: Path, table: CategoryTable) -> tuple[list[Profile], list[str]]:
    """Return what a dump holds, each method apart, and of a language model its phases; the longest first."""
    methods = profiles(etdump.read(path), table)
    parts = [part for method in methods[:_MOST_PARTS] for part in split_sizes(method)]
    notes = []
    if len(parts) > 1:
        several = "several methods" if len(methods) > 1 else "several sizes, such as prefill and decode"
        notes.append(f"executions of {several}, shown apart: {describe_sizes(parts)}")
    if len(methods) > _MOST_PARTS:
        notes.append(f"only the {_MOST_PARTS} longest of {len(methods)} methods are shown")
    return parts, notes


def longest_profile(path: Path, table: CategoryTable) -> tuple[Profile, list[str]]:
    found = profiles(etdump.read(path), table)
    if len(found) == 1:
        return found[0], []
    others = ", ".join(
        f"{profile.executions} executions of {profile.execute.sum() / 1e6:.3f} ms in all" for profile in found[1:]
    )
    return found[0], [f"the ETDump has {len(found)} methods; only the longest one is shown, not: {others}"]


def analysed_profile(profile: Profile) -> ExperimentAnalysis:
    """Return the analysis of a profile of which nothing else is known."""
    return describe(Path(), [], Evidence(break_down(profile)))


def describe(path: Path, notes: list[str], known: Evidence) -> ExperimentAnalysis:
    """Return the analysis of an experiment, or of a dump, of which so much is known."""
    notes, advice = [*notes, *_unknown_operators(known.breakdown)], advise(known)
    return ExperimentAnalysis(str(path), known.breakdown, known.movement, advice, notes, roofline=known.roofline)


def _unknown_operators(breakdown: Breakdown) -> list[str]:
    """Say which operators are in Other only because nobody said what they are."""
    found = [entry for entry in breakdown.operators if entry.kind == UNKNOWN]
    if not found:
        return []
    names = ", ".join(entry.operator for entry in found[:3]) + (f" and {len(found) - 3} more" if len(found) > 3 else "")
    share = sum(entry.share for entry in found)
    return [
        f"no category rule matches {names} ({share:.1%} of the time, counted as Other); "
        "`analyze --categories FILE` can name a category"
    ]


# As many executions as the kit traces in one turn.
_TURN = 5
_HINT = "Give a *_all_runs_timeline.csv that the kit wrote."


def read_timeline(path: Path, table: CategoryTable) -> Profile:
    """Read a timeline back; operators are classified anew, so that a changed table counts."""
    import csv  # no other reading of a dump needs it

    try:
        return _profile(list(csv.DictReader(io.StringIO(files.content(path).decode(), newline=""))), table)
    except OSError as error:
        raise InputError(f"timeline {path} cannot be read: {error.strerror}", _HINT) from None
    except (UnicodeDecodeError, csv.Error) as error:
        raise InputError(f"timeline {path} is not a CSV file: {error}", _HINT) from None
    except (KeyError, TypeError, ValueError, IndexError) as error:
        raise InputError(f"timeline {path} is not one the kit wrote: {error}", _HINT) from None


def read_turns(path: Path, table: CategoryTable) -> list[Turn]:
    """Return the executions of a timeline as one launch, in turns as they were traced."""
    profile = read_timeline(path, table)
    nanoseconds = profile.execute.round().astype(int).tolist()
    starts = range(0, len(nanoseconds), _TURN)
    return [Turn(number, 0.0, nanoseconds[start : start + _TURN]) for number, start in enumerate(starts)]


def _profile(rows: list[dict[str, str]], table: CategoryTable) -> Profile:
    executions = len(np.unique(np.array([int(row["run"]) for row in rows])))
    if executions == 0 or len(rows) % executions or len({row["index"] for row in rows}) * executions != len(rows):
        raise ValueError("its runs do not have the same operators")
    shape = (executions, len(rows) // executions)
    times = np.array([float(row["duration_ms"]) for row in rows]).reshape(shape) * 1e6
    starts = np.array([float(row["start_ms"]) for row in rows]).reshape(shape) * 1e6
    wheres: dict[str, Where] = {"delegated": "delegated", "portable": "portable"}
    instances = []
    for row in rows[: shape[1]]:
        where, kind = wheres.get(row["where"], "runtime"), OperatorClass("Other", "overhead")
        if where != "runtime":
            kind = table.classify(row["name"], where == "delegated")
        place = int(row["chain"]), int(row["instruction"])
        instances.append(Instance(row["name"], row["operator"], where, *place, kind))
    return Profile(tuple(instances), times.T.copy(), starts.T.copy(), times.sum(axis=1), np.arange(executions) // _TURN)
