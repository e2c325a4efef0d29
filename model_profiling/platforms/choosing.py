"""Which platform is meant: what a user says of it, checked, and the platform opened."""

import re
from collections.abc import Callable, Sequence
from importlib import import_module
from pathlib import PurePosixPath
from typing import TYPE_CHECKING, Any

from model_profiling.base.errors import InputError
from model_profiling.base.on_progress import OnNote, no_notes
from model_profiling.platforms.machine_names import checked_machine, machine_folder
from model_profiling.platforms.platform_table import EXAMPLES, FLAGS, MACHINES, NAMES, OWNERS, Choice, row_of

if TYPE_CHECKING:
    from model_profiling.platforms.base import Platform


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
