"""Jobs on a Ray cluster: the same commands on other machines, their results as files here.

A measurement goes to a node that offers its target as a custom resource (`ray start --resources='{"board": 1}'`), and
takes the target's lock there: it is the machine that measures which says who may. Exports go wherever a CPU is free;
what needs files of this machine (a model in a .py file, a checkpoint, a metric, a report) is done here.
"""

import contextlib
import importlib
import logging
import os
import socket
import sys
import time
import uuid
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import msgspec

from model_profiling.base import files
from model_profiling.base.code_path import python_command
from model_profiling.base.errors import InputError, KitError, RunError, SetupError
from model_profiling.base.installation import install_command
from model_profiling.base.on_progress import OnNote
from model_profiling.base.programs import StartError, TimedOutError, run_program
from model_profiling.fleet.sweep import task
from model_profiling.fleet.sweep.executor import OWN, FinishedJob, JobOutcome, LocalExecutor
from model_profiling.fleet.sweep.jobs import Job, Jobs
from model_profiling.store.artifacts import ExportPaths
from model_profiling.upstream import ray_worker

# A result is a folder and a few texts.
_MOST_BYTES = task.LARGEST + (16 << 20)
_SAME_KIT = "Install the same kit on all nodes."


class LostError(Exception):
    """Ray has no result: its node, its worker or the object itself is gone."""


def fetch(ray: Any, ref: Any, timeout_s: float) -> bytes:
    """Return the bytes that a task has answered."""
    try:
        found = ray.get(ref, timeout=timeout_s)
    except ray.exceptions.RayTaskError as error:
        raise RunError(f"a node could not begin: {task.printable_line(_last_line(error), 300)}", _SAME_KIT) from None
    except ray.exceptions.RayError as error:
        raise LostError(type(error).__name__) from None
    if not isinstance(found, bytes):
        raise RunError("a node sent no result of the kit", _SAME_KIT)
    if len(found) > _MOST_BYTES:
        raise RunError(f"a node sent {len(found) >> 20} MiB, more than any result has", _SAME_KIT)
    return found


# How long to wait for an answer, and for a process that connects without a token; how that ends if it is refused.
_CONNECT_S, _STRANGER_S, REFUSED = 5.0, 60.0, 77
# How much is kept of what Ray says of nodes and workers.
_MOST_LOG, _MOST_SAID = 10 << 20, 2000
_TOKENS = (
    "Set RAY_AUTH_MODE=token and RAY_AUTH_TOKEN (or RAY_AUTH_TOKEN_PATH) as on the machines of the cluster; "
    "`ray get-auth-token` prints theirs."
)
_MEANS = "whoever reaches its ports can run programs on every machine of it, as the user who started Ray there"
_TURN_ON = (
    "To turn tokens on, make one with `ray get-auth-token --generate`, copy ~/.ray/auth_token to every machine "
    "(chmod 600), set RAY_AUTH_MODE=token, and start Ray again."
)
_OPEN = f"this Ray cluster accepts connections without a token: {_MEANS}. {_TURN_ON}"
_UNKNOWN = (
    f"whether this Ray cluster accepts connections without a token is not known. If it does, {_MEANS}. {_TURN_ON}"
)


def token_notes(ray: Any) -> list[str]:
    """Return what people should know of how our cluster is protected; nothing if it is well."""
    code = _as_stranger(ray.get_runtime_context().gcs_address)
    return _shared_token() if code == REFUSED else [_UNKNOWN if code else _OPEN]


def _as_stranger(address: str) -> int:
    """Return how a process ended that connected without a token: 0, or REFUSED if the cluster asked for one."""
    environment = {name: value for name, value in os.environ.items() if not name.startswith("RAY_AUTH_")}
    command = python_command("model_profiling.fleet.sweep.ray_executor", address)
    environment["RAY_AUTH_MODE"] = "disabled"
    doing = "asking the Ray cluster for its token"
    try:
        return run_program(command, timeout_s=_STRANGER_S, doing=doing, env=environment).returncode
    except (StartError, TimedOutError):
        return 1


def _shared_token() -> list[str]:
    """Return a sentence if other users of this machine can read the token, from where Ray takes it."""
    path = Path(os.environ.get("RAY_AUTH_TOKEN_PATH") or Path.home() / ".ray" / "auth_token")
    try:
        if os.environ.get("RAY_AUTH_TOKEN") or not path.stat().st_mode & 0o066:
            return []
    except OSError:
        return []
    why = "whoever has it can run programs on the whole cluster"
    return [f"other users of this machine can read or change the Ray token, and {why}. Fix: chmod 600 {path}"]


def _last_line(error: BaseException) -> str:
    return str(error).strip().splitlines()[-1][:300] if str(error).strip() else type(error).__name__


def connected(address: str, log: Path) -> Any:
    """Connect Ray to a cluster and return it; what it says goes to a log."""
    try:
        import ray
        import ray.exceptions
    except ImportError:
        raise SetupError("--ray needs Ray, which is not installed", install_command("fleet")) from None
    _refuse_silence(address)
    logging.getLogger("ray").setLevel(logging.CRITICAL)
    # Its C++ writes to our standard error, also later: that a node died is said by us.
    os.environ.setdefault("RAY_BACKEND_LOG_LEVEL", "fatal")
    log.parent.mkdir(parents=True, exist_ok=True)
    log = log.resolve()
    try:
        with _said_to(log), _standing_in(log.parent):
            _keep_quiet(log)
            ray.init(
                address=address,
                ignore_reinit_error=True,
                configure_logging=False,
                logging_level=logging.CRITICAL,
                log_to_driver=False,
                namespace="sme2-kit",
            )
    except ray.exceptions.AuthenticationError as error:
        raise SetupError(f"the Ray cluster at {address} refused us: {_last_line(error)}", _TOKENS) from None
    except (ConnectionError, RuntimeError, ValueError, OSError, TimeoutError, ray.exceptions.RayError) as error:
        hint = f"Start one with `ray start --head`, and give its address. {_TOKENS}"
        raise SetupError(f"there is no Ray cluster at {address}: {_last_line(error)}", hint) from None
    return ray


def _refuse_silence(address: str) -> None:
    """Refuse an address where nobody listens: Ray itself would try for minutes."""
    host, _, port = address.rpartition(":")
    if address == "auto":
        return
    if not host or "/" in host or not port.isdecimal():
        raise InputError(
            f"--ray {address} is not an address", "Give HOST:PORT, as `ray start --head` prints it, or auto."
        )
    try:
        socket.create_connection((host.strip("[]"), int(port)), timeout=_CONNECT_S).close()
    except (OSError, ValueError, OverflowError) as error:
        what = f"there is no Ray cluster at {address}: {getattr(error, 'strerror', None) or error}"
        raise SetupError(what, "Start one with `ray start --head`, and give its address.") from None


def _keep_quiet(log: Path) -> None:
    """Send what a thread of Ray prints to standard output, for example that a worker died, to a file."""

    def say(data: Any, *_: Any, **__: Any) -> None:
        with contextlib.suppress(KitError, OSError):
            if log.stat().st_size < _MOST_LOG:
                files.append_line(log, repr(data)[:_MOST_SAID].encode())

    ray_worker.print_elsewhere(say)


@contextlib.contextmanager
def _standing_in(folder: Path) -> Iterator[None]:
    """Change to a folder of ours: Ray's workers look for modules first where the driver stood when it connected."""
    here = os.open(".", os.O_RDONLY | os.O_CLOEXEC)
    try:
        os.chdir(folder)
        yield
    finally:
        os.fchdir(here)
        os.close(here)


@contextlib.contextmanager
def _said_to(log: Path) -> Iterator[None]:
    """Send what C++ and Python write to standard error while Ray connects to a file."""
    with files.open_log(log) as target:
        kept = os.dup(2)
        try:
            os.dup2(target.fileno(), 2)
            yield
        finally:
            os.dup2(kept, 2)
            os.close(kept)


def _knock(address: str) -> int:
    """Connect without a token, in a process of its own."""
    exceptions: Any = importlib.import_module("ray.exceptions")
    try:
        ray_worker.ask_cluster(address)
    except exceptions.AuthenticationError:
        return REFUSED
    return 0


# How long to wait for a result that is said to be there, and for a node to come back that offers a target.
_FETCH_S, _NODE_S = 60.0, 120.0


@dataclass
class _Running:
    job: Job
    ref: Any
    began: float


class RayExecutor:
    """An executor that asks a Ray cluster, and this machine for what only it can do."""

    host_comes_last = False

    def __init__(self, address: str, jobs: Jobs, todo: list[Job], on_note: OnNote) -> None:
        self._jobs = jobs
        self._near = LocalExecutor(jobs.folder, [])
        self._ray = connected(address, jobs.folder.state / "logs" / "ray.log")
        self._running: dict[str, _Running] = {}
        self._programs: dict[str, Any] = {}
        # Since when a target is missing.
        self._missing: dict[str, float] = {}
        self._remote = self._ray.remote(max_retries=0)(task.perform)
        try:
            for note in token_notes(self._ray):
                on_note(note)
            offered = self._ray.cluster_resources()
            wanted = dict.fromkeys(job.measures.label for job in todo if job.measures is not None)
            for label in wanted:
                if not offered.get(label):
                    hint = f"Start Ray on the machine that has it with --resources='{{\"{label}\": 1}}'."
                    raise SetupError(f"no node of the Ray cluster offers the target {label!r}", hint)
        except KitError:
            self.close()
            raise

    def lane(self, job: Job) -> str:
        return "this machine" if _is_near(job) else self._near.lane(job)

    def start(self, job: Job, words: tuple[str, ...]) -> str:
        if _is_near(job):
            return self._near.start(job, words)
        offered = self._ray.cluster_resources()
        target = job.measures
        room = offered.get("CPU", 0.0) if target is None else offered.get(target.label, 0.0)
        if target is not None and not room:
            why = f"no node of the Ray cluster offers {target.label!r} any more"
            if time.monotonic() - self._missing.setdefault(job.name, time.monotonic()) < _NODE_S:
                return why
            raise SetupError(why, "Start Ray on the machine that has it, and sweep again.")
        if sum(running.job.measures == target for running in self._running.values()) >= max(1, room):
            return OWN
        # What measures waits for its target on the node, and uses no CPU before it has it.
        needs = {"num_cpus": 1} if target is None else {"num_cpus": 0, "resources": {target.label: 1}}
        program = self._program(job)
        ref = self._remote.options(**needs).remote(msgspec.msgpack.encode(self._task(job)), program)
        self._running[job.name] = _Running(job, ref, time.monotonic())
        return ""

    def _task(self, job: Job) -> task.Task:
        if job.cell is None:
            words, result = self._jobs.export_words(job.variant, Path(task.ARTIFACTS)), task.ARTIFACTS
        else:
            program = Path(task.ARTIFACTS) / self._jobs.program(job.variant).name
            words, result = self._jobs.run_words(job.cell, program, Path(task.RUN)), task.RUN
        return task.Task(job.name, list(words), result, job.measures)

    def _program(self, job: Job) -> Any:
        """Return what a run needs, put into the cluster once for all runs of one program."""
        if job.cell is None:
            return b""
        if job.variant.name not in self._programs:
            paths = ExportPaths(self._jobs.program(job.variant))
            beside = (paths.pte, paths.etrecord, paths.meta, paths.inputs, paths.expected)
            names = [path.name for path in beside if path.exists()]
            self._programs[job.variant.name] = self._ray.put(task.pack(paths.directory, names))
        return self._programs[job.variant.name]

    def ended(self, timeout_s: float) -> list[FinishedJob]:
        found = self._near.ended(0.0)
        refs = {running.ref: name for name, running in self._running.items()}
        if not refs:
            return found or self._near.ended(timeout_s)
        # Never `get` alone: that would wait for ever for what a lost node had.
        ready, _ = self._ray.wait(list(refs), num_returns=1, timeout=0.0 if found else timeout_s, fetch_local=False)
        for ref in ready:
            running = self._running.pop(refs[ref])
            found.append(FinishedJob(running.job, self._outcome(running)))
        return found

    def _outcome(self, running: _Running) -> JobOutcome:
        seconds = time.monotonic() - running.began
        try:
            return self._received(running.job, task.read_result(fetch(self._ray, running.ref, _FETCH_S)))
        except LostError as error:
            # Its programs may have been lost with the node, too.
            self._programs.pop(running.job.variant.name, None)
            return JobOutcome(seconds, f"its node or worker was lost ({error})", "", lost=True)
        except KitError as error:
            return JobOutcome(seconds, error.message, error.hint)

    def _received(self, job: Job, result: task.TaskResult) -> JobOutcome:
        """Put what came into files: the log, and the result where it waits to be put in place."""
        log = self._jobs.folder.log(job)
        files.write_text(log, result.log)
        # When a node had a target for itself, so that one can see afterwards that nobody else had.
        target = job.measures.label if job.measures is not None else ""
        line = {"job": job.name, "node": result.node, "target": target, "began": result.began, "ended": result.ended}
        files.append_line(self._jobs.folder.state / "cluster.jsonl", msgspec.json.encode(line))
        if result.failure:
            return JobOutcome(result.seconds, result.failure, result.hint, node=result.node)
        incoming = self._jobs.folder.incoming / uuid.uuid4().hex
        try:
            task.unpack(result.parcel, incoming)
        except KitError as error:
            return JobOutcome(result.seconds, error.message, error.hint, node=result.node)
        return JobOutcome(result.seconds, node=result.node, incoming=incoming)

    def doing(self, job: Job) -> str:
        # It may still wait there for its target, or for those who measure.
        return f"{job.kind}: sent to the cluster" if job.name in self._running else self._near.doing(job)

    def close(self) -> None:
        self._near.close()
        for running in self._running.values():
            with contextlib.suppress(Exception):  # the cluster may be gone
                self._ray.cancel(running.ref, force=True)
        self._running = {}
        with contextlib.suppress(Exception):
            self._ray.shutdown()


def _is_near(job: Job) -> bool:
    asked = job.variant.asked
    judged = any(word.startswith("--metric=") for word in job.words)
    from_files = ".py" in asked.model or asked.checkpoint is not None or judged
    return job.kind == "report" or (job.kind == "export" and from_files)


if __name__ == "__main__":
    sys.exit(_knock(sys.argv[1]))
