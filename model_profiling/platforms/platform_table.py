"""The table of platforms: the name of each, the module that opens it, and what it takes. All lists derive from it."""

import sys
from dataclasses import dataclass, field, fields
from pathlib import Path
from typing import Any


def _setting(about: str, metavar: str, read: type = str) -> Any:
    return field(default=None, metadata={"about": about, "flag": {"metavar": metavar, "type": read}})


def _machine(about: str, metavar: str) -> Any:
    return field(default=None, metadata={"about": about, "flag": {"metavar": metavar}, "names_machine": True})


def _mode(about: str, *modes: str) -> Any:
    return field(default=None, metadata={"about": about, "flag": {"choices": modes}})


def _switch(about: str) -> Any:
    return field(default=False, metadata={"about": about, "flag": {"action": "store_true"}})


@dataclass(frozen=True)
class Choice:
    """A platform by its name, None for this machine, and how to treat it; each setting with its help."""

    platform: str | None = None
    device: str | None = _machine("which device, if adb sees several", "SERIAL")
    remote_device: str | None = _machine("a device to connect to over the network", "HOST:PORT")
    power_mode: str | None = _mode(
        "the settings while it is measured, restored afterwards (keep: as they are)", "boost", "app", "keep"
    )
    host: str | None = _machine("the host, by its name in your ssh_config", "NAME")
    ssh_config: Path | None = _setting("another configuration than your own", "FILE", Path)  # noqa: RUF009 - a field
    remote_dir: str | None = _setting("the kit's folder there (default: in ~/.cache, else /var/tmp or /tmp)", "DIR")
    cool_down: float | None = _setting("let it cool to this before a turn", "CELSIUS", float)
    remove_pushed: bool = _switch("remove pushed files (default: keep them for the next run)")
    # Whether to measure on this machine even while others do.
    no_lock: bool = False


@dataclass(frozen=True)
class Tool:
    """A program that a platform needs on this machine: how to install it, and how it tells its version."""

    command: str
    install: str
    asked: str = "--version"
    answer: str = r"version ([\d.]+)"


@dataclass(frozen=True)
class PlatformRow:
    """One platform. `module` has `open_platform(choice, emulated, on_note)`, and is imported when it is chosen.

    One that takes settings is another machine: this machine's lock does not hold for it.
    """

    name: str
    module: str
    # What Python calls the system, where the platform is this machine itself.
    system: str = ""
    # Its times are not latency.
    emulated: bool = False
    # What it is called in messages, and how it is written in one word with a machine.
    title: str = ""
    example: str = ""
    takes: tuple[str, ...] = ()
    # The setting that names the machine; whether it must be given, and has a folder of its own among a model's runs.
    machine: str = ""
    needs_machine: bool = False
    tool: Tool | None = None


_PACKAGE = "model_profiling.platforms"
_REMOTE = ("cool_down", "remove_pushed")
PLATFORMS = (
    PlatformRow("linux", f"{_PACKAGE}.local", system="linux"),
    PlatformRow("mac", f"{_PACKAGE}.local", system="darwin"),
    PlatformRow("emulator", f"{_PACKAGE}.emulator", emulated=True),
    PlatformRow(
        "android",
        f"{_PACKAGE}.remote.android",
        title="Android devices",
        example="android:SERIAL",
        takes=("device", "remote_device", "power_mode", *_REMOTE),
        machine="device",
        tool=Tool("adb", "apt-get install adb, or Android's platform tools"),
    ),
    PlatformRow(
        "ssh",
        f"{_PACKAGE}.remote.board",
        title="hosts behind ssh",
        example="ssh:HOST",
        takes=("host", "ssh_config", "remote_dir", *_REMOTE),
        machine="host",
        needs_machine=True,
        tool=Tool("ssh", "apt-get install openssh-client", "-V", r"OpenSSH_([\d.]+)"),
    ),
)
NAMES = tuple(row.name for row in PLATFORMS)
# Those that run on this machine, and how those elsewhere are written in one word.
HERE = tuple(row.name for row in PLATFORMS if not row.takes)
EXAMPLES = tuple(row.example for row in PLATFORMS if row.example)
# What a sweep calls this machine, whichever it is, and what else it may name.
LOCAL = "local"
SWEPT = (LOCAL, *(row.name for row in PLATFORMS if not row.system))
# The settings that name a machine, and the platforms that take each setting.
MACHINES = tuple(part.name for part in fields(Choice) if "names_machine" in part.metadata)
OWNERS = {part.name: [row for row in PLATFORMS if part.name in row.takes] for part in fields(Choice)}
# How each setting is told by a flag: what argparse takes, with the platform it is for where that is one.
FLAGS: dict[str, dict[str, Any]] = {
    part.name: {
        **part.metadata["flag"],
        "help": ": ".join([*(row.name for row in OWNERS[part.name] if len(OWNERS[part.name]) == 1), about]),
    }
    for part in fields(Choice)
    if (about := part.metadata.get("about"))
}


def local_name() -> str:
    """Return the platform name of this machine."""
    return next((row.name for row in PLATFORMS if row.system == sys.platform), sys.platform)


def row_of(name: str | None) -> PlatformRow:
    """Return the row of a platform; None is this machine, whatever its system."""
    wanted = name or local_name()
    return next((row for row in PLATFORMS if row.name == wanted), PlatformRow(wanted, PLATFORMS[0].module))
