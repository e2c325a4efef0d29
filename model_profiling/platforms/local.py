"""This machine: Linux or macOS, each under its own name, with the same code."""

import os
import platform
import subprocess
import sys
from pathlib import Path

import msgspec

from model_profiling import files
from model_profiling.errors import SetupError
from model_profiling.platforms.base import Probe, Request
from model_profiling.platforms.environment import describe_host
from model_profiling.run_directory import RunnerRecord
from model_profiling.runner.build import build_runner
from model_profiling.runner.protocol import Features, decode_message
from model_profiling.runner.session import ProcessSession, runner_failure

_HOSTS = {"linux": "linux", "mac": "darwin"}


def local_name() -> str:
    """The platform name of this machine."""
    return next((name for name, host in _HOSTS.items() if sys.platform == host), sys.platform)


def list_features(runner: Path) -> Features | None:
    """What the kit's runner says of this CPU; None if this is not the kit's runner."""
    try:
        done = subprocess.run(
            [str(runner), "--list_features"], capture_output=True, timeout=60, check=False, stdin=subprocess.DEVNULL
        )
        message = decode_message(done.stdout.splitlines()[0]) if done.stdout else None
    except (OSError, subprocess.TimeoutExpired, msgspec.DecodeError):
        return None
    return message if isinstance(message, Features) else None


class LocalPlatform:
    """Keeps the Platform protocol on the machine the kit itself runs on."""

    def __init__(self, name: str | None = None) -> None:
        self.name = name or local_name()
        if self.name != local_name():
            raise SetupError(
                f"the {self.name} platform runs only on {_HOSTS[self.name]}; this machine is {platform.system()}",
                f"Use scripts/{local_name()}_pipeline.py, or `sme2-kit run --platform {local_name()}`.",
            )

    def probe(self) -> Probe:
        features = list_features(build_runner().path)
        if features is None:
            raise SetupError("the runner cannot tell this CPU's features", "Run `sme2-kit doctor` to see why.")
        return Probe(features.arch, tuple(features.present), features.proof, describe_host())

    def runner(self, runner_path: str | None) -> RunnerRecord:
        if runner_path is None:
            build = build_runner()
            return RunnerRecord(
                "kit", str(build.path), files.sha256(build.path), build.target.name, build.compiler, build.sdk.version
            )
        path = Path(runner_path).resolve()
        if not os.access(path, os.X_OK):
            raise SetupError(
                f"the runner {path} is not executable", f"chmod +x {path}, or check that it is the file you meant."
            )
        return RunnerRecord("kit" if list_features(path) else "foreign", str(path), files.sha256(path))

    def open(self, request: Request) -> ProcessSession:
        command = [request.runner.path, f"--model_path={request.model}", f"--cpu_threads={request.threads}"]
        command += [f"--warmup={request.warmup}", "--paced"]
        command += [f"--inputs={path}" for path in request.inputs]
        if request.disable_features:
            command.append(f"--disable_features={','.join(request.disable_features)}")
        if request.etdump is not None:
            command.append(f"--etdump_path={request.etdump}")
        if request.output_base is not None:
            command.append(f"--output_file={request.output_base}")
        return ProcessSession(command, request.log, request.timeout_s)

    def launch(self, request: Request, executions: int) -> None:
        command = [request.runner.path, f"--model_path={request.model}", f"--num_executions={executions}"]
        command += [f"--cpu_threads={request.threads}", f"--etdump_path={request.etdump}"]
        with request.log.open("ab") as log:
            start = log.tell()
            try:
                done = subprocess.run(
                    command, stdin=subprocess.DEVNULL, stdout=log, stderr=log, timeout=request.timeout_s, check=False
                )
            except subprocess.TimeoutExpired:
                raise SetupError(
                    f"{command[0]} did not end within {request.timeout_s:g} s", "Raise `timeout_s`."
                ) from None
            except OSError as error:
                raise SetupError(
                    f"the runner {command[0]} cannot be started: {error.strerror}",
                    "Check that it is built for this machine.",
                ) from None
        if done.returncode != 0:
            raise runner_failure(done.returncode, request.log, start)

    def load(self) -> float:
        return os.getloadavg()[0]
