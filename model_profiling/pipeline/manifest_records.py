"""What the manifest says of experiments: how each was run, what came of it, and what a reader has to know."""

import contextlib
import datetime
import itertools
import re
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import msgspec

from model_profiling.base import files
from model_profiling.base.errors import KitError, RunError
from model_profiling.formats import etdump
from model_profiling.pipeline.config import MODES
from model_profiling.pipeline.foreign_runner import NOTE as FOREIGN_NOTE
from model_profiling.pipeline.group_state import ExperimentOutcome, GroupState
from model_profiling.pipeline.progress_log import ProgressLog
from model_profiling.runner.protocol import Ready
from model_profiling.store.made_by import Machine
from model_profiling.store.run_directory import Conditions, ExperimentRecord, Mode, ScheduleRecord, Timing

_OF_A_LAUNCH = re.compile(r".*\.etdump\.launch\d+")


def collect(outcome: ExperimentOutcome, home: Path) -> dict[str, str]:
    """Put the experiment's files into `home`, a new directory or its own; returns each file's hash.

    What the launches left stays as it is: a run that is killed here can do it again. A failed experiment has no ETDump
    and no samples, only what explains it: the log, and a launch's dump if that is what is wrong.
    """
    if home != outcome.scratch:
        clear_directory(home)
        home.mkdir(parents=True)
        for path in sorted(outcome.scratch.iterdir()):
            if path.is_file() and not _OF_A_LAUNCH.fullmatch(path.name):
                files.copy_file(path, home / path.name)
    if outcome.failure is None:
        try:
            if outcome.dumps and outcome.runner.kind == "runtime":
                for number, dump in enumerate(outcome.dumps):
                    files.copy_file(dump, home / profile_file(outcome, number).name)
            elif outcome.dumps:
                _merge(outcome.dumps, home / outcome.file(".etdump").name)
            files.write_json(home / outcome.file("_samples.json").name, outcome.samples)
        except KitError as error:
            outcome.failure = error
    if outcome.failure is not None and home != outcome.scratch:
        for dump in sorted(outcome.scratch.iterdir()):
            if _OF_A_LAUNCH.fullmatch(dump.name) and outcome.failure.names(dump):
                files.copy_file(dump, home / dump.name)
    if home == outcome.scratch:
        for dump in outcome.dumps:
            if outcome.failure is None or not outcome.failure.names(dump):
                dump.unlink(missing_ok=True)
    return {path.name: files.sha256(path) for path in sorted(home.iterdir()) if path.is_file()}


def profile_file(outcome: ExperimentOutcome, number: int) -> Path:
    """Return where the profile of operators of another runtime lies, one for each traced launch."""
    return outcome.file(f"_profile{number}.json")


def _merge(dumps: list[Path], target: Path) -> None:
    try:
        if len(dumps) == 1:
            files.copy_file(dumps[0], target)
        else:
            files.write_bytes(target, etdump.merged(dumps))
    except OSError as error:
        raise RunError(f"the ETDump {error.filename} of a launch is gone: {error.strerror}", "Run it again.") from None


def clear_directory(directory: Path) -> None:
    """Remove what an interrupted run left behind."""
    with contextlib.suppress(FileNotFoundError):
        files.remove_directory(directory)


# What of an environment changes all the time.
_RESTLESS = ("load_1m_5m_15m", "battery", "temperature_celsius", "thermal_status")


def now() -> str:
    return datetime.datetime.now(datetime.timezone.utc).isoformat(timespec="seconds")


def shared_fields(ready: Ready, record: type[msgspec.Struct], but: tuple[str, ...] = ()) -> dict[str, Any]:
    """Return what a process said when it was ready, as far as a record has fields of the same names."""
    names = [name for name in record.__struct_fields__ if name in Ready.__struct_fields__ and name not in but]
    return {name: getattr(ready, name) for name in names}


def schedule_record(state: GroupState, conditions: Conditions) -> ScheduleRecord:
    # Launches that only start are counted with each start.
    turns = [outcome.timed or outcome.traced for outcome in state.outcomes.values()]
    return ScheduleRecord(
        state.seed,
        "alternating launches" if state.foreign else "alternating launches, interleaved turns",
        len(state.order),
        state.settle_runs or 0,
        state.order,
        conditions,
        max((len({turn.launch for turn in some}) for some in turns), default=state.launches),
        state.plan,
    )


def experiment_record(
    outcome: ExperimentOutcome,
    progress: ProgressLog,
    fingerprint: str,
    hashes: dict[str, str],
    machine: Machine | None,
    timing: Timing,
    notes: Sequence[str] = (),
    load_after: float = 0.0,
    partial: str = "",
) -> ExperimentRecord:
    first = progress.attempts[0]
    experiment, ready, failure = outcome.experiment, outcome.ready, outcome.failure
    foreign = outcome.runner.kind == "foreign"
    mode: Mode = MODES[experiment.mode] if timing == "measured" else "trace"
    absent = outcome.features.absent if outcome.features is not None else []
    said = shared_fields(ready, ExperimentRecord, but=("threads", "outputs", "stops_clock")) if ready else {}
    return ExperimentRecord(
        name=experiment.name,
        status="ok" if failure is None else "failed",
        fingerprint=fingerprint,
        session=first.session,
        mode=mode,
        threads=experiment.num_threads,
        disable_features=experiment.disable_features,
        runner=outcome.runner,
        started=first.started,
        finished=now(),
        features=outcome.features if outcome.features is not None and not outcome.features.unproven else None,
        outputs=outcome.done.outputs if outcome.done else [],
        latency_source="none" if mode == "trace" else "traced executions" if foreign else "untraced executions",
        load_before=round(first.load, 2),
        load_after=round(load_after, 2),
        files=hashes,
        notes=[
            *([FOREIGN_NOTE] if foreign else []),
            *notes,
            *_resumed_notes(progress),
            *(f"this CPU does not have '{name}'; nothing was disabled for it" for name in absent),
        ],
        failure=failure.message if failure else "",
        partial=partial,
        phase=experiment.phase,
        stops_clock=bool(ready and ready.stops_clock),
        machine=machine,
        **said,
    )


def _resumed_notes(progress: ProgressLog) -> list[str]:
    """Say that a group was measured in several attempts, and what was different between them."""
    found, attempts = [], progress.attempts
    for before, after in itertools.pairwise(attempts):
        if not after.turns:
            continue
        kept = f"{after.launches} launches and {after.turns} turns"
        found.append(f"interrupted after {kept}, started {before.started}; resumed {after.started}")
        if before.boot != after.boot:
            found.append(f"the machine was restarted before {after.started}: the two parts may differ")
        changed = [
            key
            for key in sorted({*before.environment, *after.environment} - {*_RESTLESS})
            if before.environment.get(key) != after.environment.get(key)
        ]
        if changed:
            found.append(f"the machine changed before {after.started}: {', '.join(changed)}")
    return found
