"""Names of other machines, for ssh and adb: which are allowed, and the folder of each among a model's runs."""

import re

from model_profiling.base.errors import InputError


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
