"""One job on a machine of a cluster: in a folder of its own, by a process that ends with the worker that started it.

Folders travel as zips. Of one that comes from elsewhere only plain files are taken, and only where they belong.
"""

import io
import platform
import shutil
import time
import zipfile
from collections.abc import Sequence
from pathlib import Path

import msgspec

from model_profiling import __version__
from model_profiling.base import files
from model_profiling.base.errors import KitError, RunError
from model_profiling.base.visible import visible
from model_profiling.base.zips import ERRORS
from model_profiling.fleet.sweep.executor import Seconds, outcome_of, start_tied
from model_profiling.fleet.sweep.sweep_file import SweepTarget
from model_profiling.platforms.locks import Busy, Claim, Claims

ARTIFACTS, RUN = "artifacts", "run"
_LOOK_S = 0.1
_HOME = "sme2-kit-job-"
# How much of its text is kept of what a node sends: of its name, of a sentence, and of a log, the end of it.
_NAME, _SENTENCE, _LOG = 100, 2000, 100_000
# Of one folder: bytes on their way and unpacked, files, and how deep they lie.
LARGEST = (4 << 30) - 1
_MOST_UNPACKED, _MOST_FILES, _DEEPEST = 16 << 30, 20_000, 16


class Task(msgspec.Struct, frozen=True):
    """What to do: a command whose paths are relative to the job's folder, and which folder of it to send back."""

    name: str
    words: list[str]
    result: str
    measures: SweepTarget | None
    kit_version: str = __version__


class TaskResult(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """How it went; `began` and `ended` are when the job had what it measures on for itself, by this machine's clock."""

    node: str
    seconds: Seconds = 0.0
    failure: str = ""
    hint: str = ""
    parcel: memoryview = memoryview(b"")
    log: str = ""
    began: Seconds = 0.0
    ended: Seconds = 0.0


def read_result(data: bytes | memoryview) -> TaskResult:
    """Return what a node answered: its text is bounded, and has no characters that control a terminal."""
    try:
        result = msgspec.msgpack.decode(data, type=TaskResult)
    except (msgspec.DecodeError, UnicodeError) as error:
        raise RunError(
            f"a node sent no result of the kit: {printable_line(str(error))}", "Install the same kit on all nodes."
        ) from None
    return msgspec.structs.replace(
        result,
        node=printable_line(result.node)[:_NAME],
        failure=printable_line(result.failure),
        hint=printable_line(result.hint),
        log=visible(result.log[-_LOG:])[-_LOG:],
    )


def printable_line(text: str, most: int = _SENTENCE) -> str:
    """Return a sentence for or of another machine, in one line and as it may be printed."""
    return visible(" ".join(text[:most].split()))[:most]


def perform(task: bytes, program: bytes) -> bytes:
    """Carry a task out; `program` is the folder of artifacts that it needs, if any.

    Whatever goes wrong is an answer, which the machine that started the sweep reads like any other.
    """
    node = platform.node()
    try:
        result = _performed(msgspec.msgpack.decode(task, type=Task), program, node)
    except KitError as error:
        result = TaskResult(node, failure=printable_line(error.message), hint=printable_line(error.hint))
    except Exception as error:  # noqa: BLE001 - whatever a machine of others is missing
        result = TaskResult(
            node, failure=printable_line(f"{type(error).__name__} on {node}: {error}"), hint="Check that machine."
        )
    return msgspec.msgpack.encode(result)


def _performed(task: Task, program: bytes, node: str) -> TaskResult:
    if task.kit_version != __version__:
        return TaskResult(
            node,
            failure=f"{node} has sme2-kit {__version__}, and the sweep was started by {task.kit_version}",
            hint="Install the same version on all machines of the cluster.",
        )
    home = files.make_scratch(_HOME)
    try:
        if program:
            unpack(program, home / ARTIFACTS)
        claim = _claimed(task)
        began, clock = time.time(), time.monotonic()
        log = home / "log"
        try:
            child = start_tied(tuple(task.words), log, claim.handles, home)
        finally:
            claim.close()
        outcome = outcome_of(child.wait(), time.monotonic() - clock, log)
        ended = time.time()
        parcel = memoryview(b"" if outcome.failure else pack(home / task.result))
        text = files.tail(log, _LOG)
        return TaskResult(node, outcome.seconds, outcome.failure, outcome.hint, parcel, text, began, ended)
    finally:
        files.remove_scratch(home)


def _claimed(task: Task) -> Claim:
    claims = Claims(f"{task.name} of a sweep on a cluster")
    measures = None if task.measures is None else task.measures.lock
    try:
        while isinstance(claim := claims.try_claim(measures), Busy):
            time.sleep(_LOOK_S)
        return claim
    finally:
        claims.step_back()


def pack(home: Path, names: Sequence[str] | None = None) -> bytes:
    """Return the files below a folder, or those of it that are named; links and hidden folders are left out."""
    found = [home / name for name in names] if names is not None else sorted(home.iterdir())
    packed = io.BytesIO()
    with zipfile.ZipFile(packed, "w", zipfile.ZIP_DEFLATED, compresslevel=1, strict_timestamps=False) as whole:
        for entry in found:
            for path in [entry, *sorted(entry.rglob("*"))] if entry.is_dir() else [entry]:
                parts = path.relative_to(home).parts
                if path.is_file() and not path.is_symlink() and not any(part[0] == "." for part in parts[:-1]):
                    whole.write(path, "/".join(parts))
        _refuse_impossible(whole.infolist())
    if packed.tell() > LARGEST:
        hint = "Sweep over it without --ray."
        raise RunError(f"{home.name} has more than {LARGEST >> 20} MiB, which a cluster does not carry", hint)
    return packed.getvalue()


def unpack(data: bytes | memoryview, home: Path) -> None:
    """Unpack into a new folder; of a zip that is refused nothing is left."""
    try:
        with zipfile.ZipFile(io.BytesIO(data)) as whole:
            _refuse_impossible(whole.infolist())
            home.mkdir(parents=True, exist_ok=True)
            for member in whole.infolist():
                place = home / member.filename
                place.parent.mkdir(parents=True, exist_ok=True)
                # Never over a file that is there: two names may be one on this file system.
                with whole.open(member) as source, place.open("xb") as target:
                    shutil.copyfileobj(source, target)
    except RunError:
        raise
    except ERRORS as error:
        shutil.rmtree(home, ignore_errors=True)
        raise _refused(getattr(error, "strerror", None) or str(error)) from None


def _refuse_impossible(members: Sequence[zipfile.ZipInfo]) -> None:
    """Refuse names that lead elsewhere or are not the same on every file system, and more than a result can have."""
    for name in (member.filename for member in members):
        parts = name.split("/")
        plain = name.isprintable() and "\\" not in name and len(name) <= 1000 and len(parts) <= _DEEPEST
        if not plain or {"", ".", ".."} & {*parts}:
            raise _refused(f"it has a file {name[:80]!r}")
    if len(members) > _MOST_FILES:
        raise _refused(f"it has {len(members)} files")
    if sum(member.file_size for member in members) > _MOST_UNPACKED:
        raise _refused(f"its files have more than {_MOST_UNPACKED >> 30} GiB")


def _refused(why: str) -> RunError:
    return RunError(
        f"files on their way through the cluster are refused: {printable_line(why, 300)}",
        "Check which machines are in the cluster, and that all have the same kit.",
    )
