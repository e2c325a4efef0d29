"""The way to a Ray cluster: connects to it, keeps its messages off the screen, and says how it is protected."""

import contextlib
import logging
import os
import socket
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from model_profiling.base import files
from model_profiling.base.code_path import python_command
from model_profiling.base.errors import InputError, KitError, SetupError
from model_profiling.base.installation import install_command
from model_profiling.base.programs import StartError, TimedOutError, run_program
from model_profiling.fleet.sweep.ray_auth_check import REFUSED
from model_profiling.fleet.sweep.ray_objects import fetch
from model_profiling.upstream import ray_worker
from model_profiling.upstream.reliance import holds

# How long to wait for an answer, for an object that is here, and for a process that connects without a token.
_CONNECT_S, _FETCH_S, _STRANGER_S = 5.0, 60.0, 60.0
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
    if code == REFUSED:
        return _shared_token()
    return [_UNKNOWN if code else _OPEN]


def _as_stranger(address: str) -> int:
    """Return how a process ended that connected without a token: 0, or REFUSED if the cluster asked for one."""
    environment = {name: value for name, value in os.environ.items() if not name.startswith("RAY_AUTH_")}
    command = python_command("model_profiling.fleet.sweep.ray_auth_check", address)
    environment["RAY_AUTH_MODE"] = "disabled"
    try:
        return run_program(
            command, timeout_s=_STRANGER_S, doing="asking the Ray cluster for its token", env=environment
        ).returncode
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


def _first_line(error: BaseException) -> str:
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
            _refuse_unknown(ray)
    except ray.exceptions.AuthenticationError as error:
        raise SetupError(f"the Ray cluster at {address} refused us: {_first_line(error)}", _TOKENS) from None
    except (ConnectionError, RuntimeError, ValueError, OSError, TimeoutError, ray.exceptions.RayError) as error:
        raise SetupError(
            f"there is no Ray cluster at {address}: {_first_line(error)}",
            f"Start one with `ray start --head`, and give its address. {_TOKENS}",
        ) from None
    return ray


def disconnect(ray: Any) -> None:
    try:
        ray.shutdown()
    finally:
        ray_worker.allow_opening()


def _refuse_unknown(ray: Any) -> None:
    """Refuse a Ray of which the kit does not know how to read an object without unpickling it."""
    try:
        ray_worker.forbid_opening()
        known = holds(ray_worker.OBJECTS) and bytes(fetch(ray.put(b"sme2-kit"), _FETCH_S)) == b"sme2-kit"
    except Exception:  # noqa: BLE001 - whatever another version does
        known = False
    if not known:
        disconnect(ray)
        raise SetupError(
            f"the kit cannot read objects of Ray {ray.__version__} without running what their sender put into them",
            "Install a version that it knows: pip install 'ray>=2.59,<2.61'.",
        )


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
        raise SetupError(
            f"there is no Ray cluster at {address}: {getattr(error, 'strerror', None) or error}",
            "Start one with `ray start --head`, and give its address.",
        ) from None


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
