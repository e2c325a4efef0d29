"""Which platform is meant: the one place that knows them all by name."""

import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass, fields
from pathlib import Path, PurePosixPath
from typing import TYPE_CHECKING

from model_profiling.base.errors import InputError
from model_profiling.base.on_progress import OnNote, no_notes

if TYPE_CHECKING:
    from model_profiling.platforms.base import Platform

NAMES = ("linux", "mac", "emulator", "android", "ssh")
_REMOTE = {"cool_down", "remove_pushed"}
_ANDROID = {"device", "remote_device", "power_mode"}
_SSH = {"host", "ssh_config", "remote_dir"}
_ANY = {"platform", "no_lock"}
_WHOSE = {**dict.fromkeys(_ANDROID, "android"), **dict.fromkeys(_SSH, "ssh")}
_TAKES = {"android": _ANDROID | _REMOTE, "ssh": _SSH | _REMOTE}


@dataclass(frozen=True)
class Choice:
    """A platform by its name, None for this machine, and how to treat it."""

    platform: str | None = None
    device: str | None = None
    remote_device: str | None = None
    power_mode: str | None = None
    host: str | None = None
    ssh_config: Path | None = None
    remote_dir: str | None = None
    cool_down: float | None = None
    remove_pushed: bool = False
    # Whether to measure on this machine even while others do.
    no_lock: bool = False


def checked_machine(name: str) -> str:
    """The name of another machine, for ssh or adb: a host, USER@HOST, HOST:PORT or a serial; never an option, and
    nothing that a shell would read as more than a word."""
    if not re.fullmatch(r"[A-Za-z0-9_:\[][A-Za-z0-9_.:@%\[\]-]{0,254}", name):
        raise InputError(
            f"{name[:80]!r} is not the name of a host or device",
            "Give a name of your ssh_config or USER@HOST, or a serial that `adb devices` lists, or HOST:PORT.",
        )
    return name


def named(text: str | None) -> Choice:
    """A choice in one word: `linux`, `emulator`, `android`, `android:SERIAL`, `ssh:HOST`; None is this machine."""
    name, colon, machine = (text or "").partition(":")
    if not colon:
        return Choice(text)
    if name == "android":
        return Choice(name, device=machine)
    if name == "ssh":
        return Choice(name, host=machine)
    raise InputError(f"there is no platform {text!r}", "Use android:SERIAL or ssh:HOST, or a name alone.")


def checked(choice: Choice, spelled: Callable[[str], str] = str) -> Choice:
    """A choice whose parts fit together; `spelled` says how the user writes a part."""
    if choice.platform not in (None, *NAMES):
        raise InputError(f"there is no platform {choice.platform!r}", f"Use one of {', '.join(NAMES)}.")
    takes = _TAKES.get(choice.platform or "", set())
    for part in fields(choice):
        if part.name not in _ANY and getattr(choice, part.name) and part.name not in takes:
            whose = _WHOSE.get(part.name)
            owner = {"android": "Android devices", "ssh": "hosts behind ssh", None: "other machines than this one"}[
                whose
            ]
            raise InputError(
                f"{spelled(part.name)} is for {owner}", f"Add {spelled('platform')} {whose or 'ssh'}, or leave it out."
            )
    if choice.device and choice.remote_device:
        raise InputError(f"{spelled('device')} and {spelled('remote_device')} name two devices", "Give one of them.")
    if choice.no_lock and takes:
        raise InputError(
            f"{spelled('no_lock')} is for this machine: elsewhere the lock also guards settings and the kit's files",
            "Leave it out: a run waits for the one before it.",
        )
    if choice.platform == "ssh" and not choice.host:
        raise InputError("the platform ssh needs a host", f"Add {spelled('host')} NAME, as your ssh_config has it.")
    for name in (choice.device, choice.remote_device, choice.host):
        if name is not None:
            checked_machine(name)
    if choice.remote_dir is not None and not re.fullmatch(r"/[^\0\n]{1,1000}", choice.remote_dir):
        raise InputError(f"{spelled('remote_dir')} {choice.remote_dir!r} is not an absolute path", "Begin it with /.")
    return choice


def chosen(choice: Choice, prefixes: Sequence[Sequence[str]] = (), on_note: OnNote = no_notes) -> "Platform":
    """The platform; the caller closes it. `prefixes` are words before the runner, of which an emulator has a say."""
    choice = checked(choice)
    emulated = any(PurePosixPath(word).name.startswith("qemu-") for prefix in prefixes for word in prefix)
    if choice.platform == "android":
        from model_profiling.platforms.remote.android import AndroidOptions, android_platform

        options = AndroidOptions(
            choice.device, choice.remote_device, choice.power_mode or "keep", choice.cool_down, choice.remove_pushed
        )
        return android_platform(options, emulated, on_note)
    if choice.platform == "ssh":
        from model_profiling.platforms.remote.board import SshOptions, ssh_platform

        at = SshOptions(choice.host or "", choice.ssh_config, choice.remote_dir, choice.cool_down, choice.remove_pushed)
        return ssh_platform(at, emulated, on_note)
    if choice.platform == "emulator":
        from model_profiling.platforms.emulator import EmulatorPlatform

        return EmulatorPlatform(choice.no_lock)
    from model_profiling.platforms.local import LocalPlatform

    return LocalPlatform(choice.platform, choice.no_lock)


def folder_of(choice: Choice) -> str:
    """The folder among a model's runs that a choice writes to, without opening it."""
    from model_profiling.platforms.local import local_name

    choice = checked(choice)
    if choice.platform == "ssh":
        return ssh_folder(choice.host or "")
    return choice.platform or local_name()


def ssh_folder(host: str) -> str:
    """Of several hosts, each has its own."""
    return f"ssh_{re.sub(r'[^A-Za-z0-9_.-]', '_', host)[:80]}"
