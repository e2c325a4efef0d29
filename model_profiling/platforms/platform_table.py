"""The table of platforms: the name of each, the module that opens it, and what it takes. All lists derive from it.

What a user says of a platform is checked here, and the platform opened.
"""

import re
import sys
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, fields
from importlib import import_module
from pathlib import Path, PurePosixPath
from typing import TYPE_CHECKING, Any

from model_profiling.base.errors import InputError
from model_profiling.base.on_progress import OnNote, no_notes

if TYPE_CHECKING:
    from model_profiling.platforms.base import Platform


def _setting(about: str, machine: bool = False, default: object = None, **flag: object) -> Any:
    """Return a field with its help and what argparse takes; a `machine` is named by it."""
    return field(default=default, metadata={"about": about, "flag": flag, "names_machine": machine})


@dataclass(frozen=True)
class Choice:
    """A platform by its name, None for this machine, and how to treat it; each setting with its help."""

    platform: str | None = None
    device: str | None = _setting("which device, if adb sees several", machine=True, metavar="SERIAL")
    remote_device: str | None = _setting("a device to connect to over the network", machine=True, metavar="HOST:PORT")
    power_mode: str | None = _setting(
        "the settings while it is measured, restored afterwards (keep: as they are)", choices=("boost", "app", "keep")
    )
    host: str | None = _setting("the host, by its name in your ssh_config", machine=True, metavar="NAME")
    ssh_config: Path | None = _setting("another configuration than your own", metavar="FILE", type=Path)  # noqa: RUF009
    remote_dir: str | None = _setting(
        "the kit's folder there (default: in ~/.cache, else /var/tmp or /tmp)", metavar="DIR", type=str
    )
    cool_down: float | None = _setting("let it cool to this before a turn", metavar="CELSIUS", type=float)
    remove_pushed: bool = _setting(
        "remove pushed files (default: keep them for the next run)", default=False, action="store_true"
    )
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
    PlatformRow("linux", f"{_PACKAGE}.process_platform", system="linux"),
    PlatformRow("mac", f"{_PACKAGE}.process_platform", system="darwin"),
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
MACHINES = tuple(part.name for part in fields(Choice) if part.metadata.get("names_machine"))
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


def checked_machine(name: str) -> str:
    """Return the name of another machine: a host, USER@HOST, HOST:PORT or a serial; never an option, and nothing that
    a shell would read as more than a word."""
    if not re.fullmatch(r"[A-Za-z0-9_:\[][A-Za-z0-9_.:@%\[\]-]{0,254}", name):
        raise InputError(
            f"{name[:80]!r} is not the name of a host or device",
            "Give a name of your ssh_config or USER@HOST, or a serial that `adb devices` lists, or HOST:PORT.",
        )
    return name


def machine_folder(platform: str, machine: str) -> str:
    """Return the folder of one machine of a platform that has several."""
    return f"{platform}_{re.sub(r'[^A-Za-z0-9_.-]', '_', machine)[:80]}"


def named(text: str | None) -> Choice:
    """Return a choice in one word: `linux`, or with a machine, as in EXAMPLES; None is this machine."""
    name, colon, machine = (text or "").partition(":")
    if not colon:
        return Choice(text)
    row = row_of(name)
    if not row.machine:
        raise InputError(f"there is no platform {text!r}", f"Use {' or '.join(EXAMPLES)}, or a name alone.")
    given: dict[str, Any] = {row.machine: machine}
    return Choice(name, **given)


def checked(choice: Choice, spelled: Callable[[str], str] = str) -> Choice:
    """Return a choice whose parts fit together; `spelled` says how the user writes a part."""
    if choice.platform not in (None, *NAMES):
        raise InputError(f"there is no platform {choice.platform!r}", f"Use one of {', '.join(NAMES)}.")
    row = row_of(choice.platform)
    for part, owners in OWNERS.items():
        if owners and getattr(choice, part) and row not in owners:
            title = owners[0].title if len(owners) == 1 else "other machines than this one"
            raise InputError(
                f"{spelled(part)} is for {title}", f"Add {spelled('platform')} {owners[-1].name}, or leave it out."
            )
    if choice.device and choice.remote_device:
        raise InputError(f"{spelled('device')} and {spelled('remote_device')} name two devices", "Give one of them.")
    if choice.no_lock and row.takes:
        raise InputError(
            f"{spelled('no_lock')} is for this machine: elsewhere the lock also guards settings and the kit's files",
            "Leave it out: a run waits for the one before it.",
        )
    if row.needs_machine and not getattr(choice, row.machine):
        flag = FLAGS[row.machine]
        raise InputError(
            f"the platform {row.name} needs a {row.machine}",
            f"Add {spelled(row.machine)} {flag['metavar']} ({flag['help']}).",
        )
    for part in MACHINES:
        if (name := getattr(choice, part)) is not None:
            checked_machine(name)
    if choice.remote_dir is not None and not re.fullmatch(r"/[^\0\n]{1,1000}", choice.remote_dir):
        raise InputError(f"{spelled('remote_dir')} {choice.remote_dir!r} is not an absolute path", "Begin it with /.")
    return choice


def chosen(choice: Choice, prefixes: Sequence[Sequence[str]] = (), on_note: OnNote = no_notes) -> "Platform":
    """Return the platform, which the caller closes. `prefixes` are words before the runner; one may be an emulator."""
    row = row_of(checked(choice).platform)
    emulated = any(PurePosixPath(word).name.startswith("qemu-") for prefix in prefixes for word in prefix)
    opened: Platform = import_module(row.module).open_platform(choice, emulated, on_note)
    return opened


def folder_of(choice: Choice) -> str:
    """Return the folder among a model's runs that a choice writes to, without opening it."""
    row = row_of(checked(choice).platform)
    return machine_folder(row.name, getattr(choice, row.machine)) if row.needs_machine else row.name
