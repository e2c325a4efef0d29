"""Arm with SME2 where there is none: the real aarch64 runner and kernels under QEMU. Its times are never latency."""

import re
import shlex
import shutil
from pathlib import Path
from typing import NamedTuple

from model_profiling.base.errors import SetupError
from model_profiling.base.installation import PACKAGE, relative_to_here
from model_profiling.base.on_progress import OnNote
from model_profiling.base.programs import run_program
from model_profiling.platforms.base import Capabilities
from model_profiling.platforms.environment import describe_host
from model_profiling.platforms.platform_table import Choice
from model_profiling.platforms.process_platform import ProcessPlatform, capabilities, list_features
from model_profiling.runner.build import build_runner
from model_profiling.runner.sdk import host_target

TARGET = "linux-aarch64"
# QEMU learnt SME2 in 10.1; before that it knows SME.
NEEDED = (10, 1)
# Where Debian's and Ubuntu's cross compiler keeps the C library of its target.
_SYSROOT = Path("/usr/aarch64-linux-gnu")
# What of SME can be seen.
_SHOWN = {"sme2": "SME2", "sme": "SME1 only"}


class Qemu(NamedTuple):
    path: str
    version: tuple[int, ...]

    @property
    def text(self) -> str:
        return ".".join(map(str, self.version))


def how_to_install() -> str:
    """Return the command that brings a QEMU which knows SME2, on Debian and Ubuntu."""
    return f"bash {shlex.quote(str(relative_to_here(PACKAGE / 'scripts' / 'install_emulator.sh')))}"


def find_qemu() -> Qemu | None:
    """Return the emulator on the path, whatever its age."""
    path = shutil.which("qemu-aarch64") or shutil.which("qemu-aarch64-static")
    if path is None:
        return None
    said = run_program([path, "--version"], timeout_s=20, doing="asking QEMU for its version").stdout
    found = re.search(r"version (\d+(?:\.\d+)*)", said)
    return Qemu(path, tuple(map(int, found[1].split("."))) if found else (0,))


class EmulatorPlatform(ProcessPlatform):
    """Runs the aarch64 build under QEMU; on an aarch64 Linux machine that has SME2 itself, without."""

    def __init__(self, no_lock: bool = False) -> None:
        native = host_target().name == TARGET
        build = build_runner(TARGET)
        own = list_features([str(build.path)]) if native else None
        if own is not None and "sme2" in own.present:
            super().__init__("emulator", build, prefix=(), timing="measured", no_lock=no_lock)
        elif (qemu := find_qemu()) is not None:
            self.qemu = qemu
            sysroot = () if native else ("-L", str(_SYSROOT))
            super().__init__("emulator", build, prefix=(qemu.path, "-cpu", "max", *sysroot), timing="emulated")
        else:
            raise SetupError("no emulator: qemu-aarch64 is not in PATH", f"Install one: {how_to_install()}")
        self.kernels_folder = self.folder

    def probe(self) -> Capabilities:
        features = self.features()
        shown = next((words for name, words in _SHOWN.items() if name in features.present), "no SME")
        environment = {"cpu": "this machine's own", "shows": shown, **describe_host()}
        if self.timing == "emulated":
            environment |= {"cpu": f"QEMU {self.qemu.text}, -cpu max", "host": environment.get("cpu")}
        return capabilities(features, environment)


def open_platform(choice: Choice, emulated: bool, on_note: OnNote) -> EmulatorPlatform:
    """Open the emulator."""
    return EmulatorPlatform(choice.no_lock)
