"""Makes the files of an experiment from what its launches left: one ETDump, the samples, log and outputs."""

import contextlib
import re
from pathlib import Path

from model_profiling.base import files
from model_profiling.base.errors import KitError, RunError
from model_profiling.formats import etdump
from model_profiling.pipeline.group_state import ExperimentOutcome

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
    """Merge the ETDumps of all launches into one."""
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
