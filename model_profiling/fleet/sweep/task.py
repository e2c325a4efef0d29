"""One job on a machine of a cluster: in a folder of its own, by a process that ends with the worker that started it."""

import platform
import time

import msgspec

from model_profiling import __version__
from model_profiling.base import files
from model_profiling.base.errors import KitError, RunError
from model_profiling.base.visible import visible
from model_profiling.fleet.sweep.executor import Seconds
from model_profiling.fleet.sweep.local_executor import outcome_of, start_tied
from model_profiling.fleet.sweep.parcels import pack, unpack
from model_profiling.fleet.sweep.sweep_file import SweepTarget
from model_profiling.platforms.locks import Busy, Claim, Claims

ARTIFACTS, RUN = "artifacts", "run"
_LOOK_S = 0.1
_HOME = "sme2-kit-job-"
# How much of its text is kept of what a node sends: of its name, of a sentence, and of a log, the end of it.
_NAME, _SENTENCE, _LOG = 100, 2000, 100_000


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

    Never raises: Ray would send an exception as a pickle, which the machine that started the sweep does not open.
    """
    node = platform.node()
    try:
        result = _performed(msgspec.msgpack.decode(task, type=Task), program, node)
    except KitError as error:
        result = TaskResult(node, failure=printable_line(error.message), hint=printable_line(error.hint))
    except Exception as error:  # noqa: BLE001 - see above
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
    """Wait until what the job needs is free on this machine."""
    claims = Claims(f"{task.name} of a sweep on a cluster")
    measures = None if task.measures is None else task.measures.lock
    try:
        while isinstance(claim := claims.try_claim(measures), Busy):
            time.sleep(_LOOK_S)
        return claim
    finally:
        claims.step_back()
