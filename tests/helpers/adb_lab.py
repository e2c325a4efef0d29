"""A bench for Android tests: an adb server of its own, test devices connected to it, and the kit run against them."""

import contextlib
import json
import os
import shutil
import socket
import subprocess
import sys
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from types import TracebackType
from typing import Any

from model_profiling.platforms.remote.android import device_directory
from tests.conftest import ROOT, kit, needs
from tests.helpers.adb_device import TestDevice
from tests.helpers.adb_phone import Phone
from tests.helpers.waiting import LONGEST_S


@dataclass(frozen=True)
class Finished:
    """How a run of the kit ended."""

    code: int
    stdout: str
    stderr: str


class Lab:
    """Starts adb's server on a port of its own, so that neither the user's nor another session's is touched."""

    def __init__(self, home: Path) -> None:
        found = shutil.which("adb")
        needs(found is not None, "adb")
        self.adb = found or ""
        self._home = home
        # As a factor of what the kit waits for a device that does not answer.
        self.patience = "1"
        self._devices: list[TestDevice] = []
        with socket.create_server(("127.0.0.1", 0)) as free:
            port = free.getsockname()[1]
        # Past the last port that adb would search for emulators: only what a test connects is there.
        self.env = {"ANDROID_ADB_SERVER_PORT": str(port), "ADB_LOCAL_TRANSPORT_MAX_PORT": "5553", "ANDROID_SERIAL": ""}

    def __enter__(self) -> "Lab":
        self._saved = {name: os.environ.get(name) for name in self.env}
        os.environ.update(self.env)
        self.run_adb("start-server")
        return self

    def __exit__(self, *_: type[BaseException] | BaseException | TracebackType | None) -> None:
        for device in self._devices:
            device.stop()
            shutil.rmtree(device_directory(device.serial), ignore_errors=True)
        self.run_adb("kill-server")
        for name, value in self._saved.items():
            if value is None:
                os.environ.pop(name, None)
            else:
                os.environ[name] = value

    def run_adb(self, *arguments: str) -> str:
        done = subprocess.run([self.adb, *arguments], capture_output=True, text=True, timeout=LONGEST_S, check=False)
        return done.stdout + done.stderr

    def device(self, name: str, connect: bool = True, **phone: Any) -> TestDevice:
        """A new phone, connected."""
        made = TestDevice(Phone(self._home / name, serial=name, **phone)).start()
        self._devices.append(made)
        if connect:
            self.connect(made)
        return made

    def connect(self, device: TestDevice) -> None:
        until = time.monotonic() + LONGEST_S
        while time.monotonic() < until:
            self.run_adb("connect", device.serial)
            if f"{device.serial}\tdevice" in self.run_adb("devices"):
                return
            time.sleep(0.2)
        raise AssertionError(f"{device.serial} did not connect: {self.run_adb('devices')}")

    def disconnect(self, device: TestDevice) -> None:
        device.stop()
        self.run_adb("disconnect", device.serial)
        self._devices.remove(device)
        shutil.rmtree(device_directory(device.serial), ignore_errors=True)

    def kit(self, device: TestDevice | None, *arguments: object) -> Finished:
        """`sme2-kit run --platform android …` on a device, to its end."""
        chosen = ["--remote-device", device.serial] if device else []
        done = kit("run", "--platform", "android", *chosen, *arguments, env=self._patiently())
        return Finished(done.returncode, done.stdout, done.stderr)

    def _patiently(self) -> dict[str, str]:
        # Commands with this variable import the kit anew (see `warm`).
        return {} if self.patience == "1" else {"SME2_KIT_PATIENCE": self.patience}

    def start_kit(self, device: TestDevice, *arguments: object) -> "subprocess.Popen[str]":
        """The same, left running."""
        command = [sys.executable, "-m", "model_profiling", "run", "--platform", "android"]
        command += ["--remote-device", device.serial, *map(str, arguments)]
        environment = {**os.environ, "PYTHONPATH": str(ROOT)}
        return subprocess.Popen(command, env=environment, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)


def write_config(path: Path, model: Path, root: Path, experiments: list[dict[str, Any]], **more: Any) -> Path:
    path.write_text(json.dumps({"model": str(model), "output_root": str(root), "experiments": experiments, **more}))
    return path


def short(name: str, **more: Any) -> dict[str, Any]:
    """An experiment that takes little time."""
    counts = {"num_runs": 6, "launches": 2, "traced_runs": 2, "startup_launches": 0, "warmup": 1}
    return {"name": name, **counts, **more}


def at_turn(number: int, do: Callable[[], object]) -> Callable[[int], None]:
    """Do something once, when the device has been asked for that many turns."""

    def hook(turn: int) -> None:
        if turn == number:
            with contextlib.suppress(OSError):
                do()

    return hook
