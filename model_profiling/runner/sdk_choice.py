"""Which ExecuTorch the runner is built against: the installed one, a release, or a build of the user's own."""

import re
from collections.abc import Sequence
from pathlib import Path

from model_profiling.base.errors import InputError, SetupError
from model_profiling.runner.prefix import prefix_sdk
from model_profiling.runner.sdk import Sdk, fetched_sdk, installed_sdk
from model_profiling.runner.targets import BuildTarget, host_target

RELEASE = re.compile(r"[0-9]+(\.[0-9]+)+((a|b|rc|\.post|\.dev)[0-9]+)?")
# Each is a process that is alive while the others take their turns, on and off.
MOST_CHOICES = 8
_HINT = "Give releases or prefixes, for example 1.5.0,1.5.1 or ./my-build."


def sdk_for(target: BuildTarget, executorch: str | None) -> Sdk:
    """Return the SDK for a target: of the installed release, of another one, or of a prefix."""
    if executorch is not None and not RELEASE.fullmatch(executorch):
        return prefix_sdk(target, executorch)
    if target != host_target():
        return fetched_sdk(target.pip_platform, executorch or installed_sdk().version)
    # Releases that are compared lie in one place: where a library lies shows in a process's memory.
    return installed_sdk() if executorch is None else fetched_sdk(target.pip_platform, executorch, _installed())


def _installed() -> Sdk | None:
    try:
        return installed_sdk()
    except SetupError:
        return None


def split_choices(given: str | Path | Sequence[str | Path] | None, spelled: str = "executorch") -> list[str]:
    """Return what a user chose, each once: `A,B` is two, unless there is a folder of that name."""
    texts = [str(each) for each in ([given] if isinstance(given, str | Path) else given or ())]
    found = [part for text in texts for part in ([text] if _is_folder(text) else text.split(","))]
    for choice in found:
        if not choice or "\0" in choice:
            raise InputError(f"{spelled} {','.join(texts)!r} names no ExecuTorch", _HINT)
        if found.count(choice) > 1:
            raise InputError(f"{spelled} names {choice} twice", "Name each once.")
    if len(found) > MOST_CHOICES:
        raise InputError(f"{spelled} names {len(found)} versions", f"Name at most {MOST_CHOICES}.")
    return found


def _is_folder(text: str) -> bool:
    try:
        return Path(text).is_dir()
    except (OSError, ValueError):
        return False
