"""The record of one reliance on what nobody promised, and whether it holds here."""

import functools
import os
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any, Literal

import msgspec

from model_profiling.base import files
from model_profiling.base.errors import SetupError

# For tests: names of reliances, separated by commas, or `all` but the essential ones, whose checks are to fail.
FAILS_VARIABLE = "SME2_KIT_UPSTREAM_FAILS"


class ProvenPair(msgspec.Struct, frozen=True):
    """Releases that the kit was tested with as a whole, and which savings of faster lowering held, with hashes."""

    torch: str
    executorch: str
    savings: dict[str, str]


# `make prove` adds a pair.
PROVEN_PATH = Path(__file__).with_name("proven.json")
PROVEN_PAIRS = files.read_json(PROVEN_PATH, list[ProvenPair], "table of proven releases")
PROVEN_EXECUTORCH = tuple(dict.fromkeys(each.executorch for each in PROVEN_PAIRS))
PROVEN_TORCH = tuple(dict.fromkeys(each.torch for each in PROVEN_PAIRS))
PROVEN = f"ExecuTorch {', '.join(PROVEN_EXECUTORCH)}"
PROVEN_BOTH = f"{PROVEN}; torch {', '.join(PROVEN_TORCH)}"

# Whose parts are relied on: what is not installed is not used either.
_PACKAGES = ("torch", "torchao", "executorch", "ray")

State = Literal["holds", "fails", "not checked"]


class NotCheckable(Exception):  # noqa: N818 - not an error: what would be checked is not on this machine
    """What a reliance is about is not on this machine; says why."""


class Reliance(msgspec.Struct, frozen=True):
    """Something private to a project that the kit uses, and the way without it.

    `check` returns what is wrong, '' if it holds; it raises NotCheckable where the project is not installed. Anything
    else that it raises counts as wrong: other versions may do anything.
    """

    name: str
    project: str
    relies_on: str
    proven: str
    checked: str
    check: Callable[[], str]
    instead: str
    # Without it nothing can be measured: there is no other way, and only its own name switches it off.
    essential: bool = False


class RelianceCheck(msgspec.Struct, frozen=True):
    state: State
    reason: str = ""


def check_reliance(reliance: Reliance) -> RelianceCheck:
    """Check a reliance, once in a process."""
    return _checked(reliance, os.environ.get(FAILS_VARIABLE, ""))


def holds(reliance: Reliance) -> bool:
    """Return whether the kit may use it: its check passed, or there is nothing here to check."""
    return check_reliance(reliance).state != "fails"


def why_not(reliance: Reliance) -> str:
    """Return one line that says what is wrong and what happens instead; '' if it holds."""
    found = check_reliance(reliance)
    return f"{found.reason}: {reliance.instead}" if found.state == "fails" else ""


@functools.cache
def _checked(reliance: Reliance, failing: str) -> RelianceCheck:
    if (failing == "all" and not reliance.essential) or reliance.name in failing.split(","):
        return RelianceCheck("fails", f"{reliance.name} is switched off by {FAILS_VARIABLE}")
    try:
        wrong = reliance.check()
    except NotCheckable as reason:
        return RelianceCheck("not checked", str(reason))
    except ModuleNotFoundError as error:
        if error.name in _PACKAGES:
            return RelianceCheck("not checked", f"{error.name} is not installed")
        wrong = f"{reliance.name} cannot be checked (there is no {error.name})"
    except Exception as error:  # noqa: BLE001 - another version may do anything, and then it is not what was proven
        wrong = f"{reliance.name} cannot be checked ({type(error).__name__}: {error})"
    return RelianceCheck("fails", wrong) if wrong else RelianceCheck("holds")


def installed_version(package: str) -> str:
    """Return a package's version without its local part; raises NotCheckable if it is not installed."""
    import importlib.metadata  # slower to import than most files are to read

    try:
        return importlib.metadata.version(package).partition("+")[0]
    except importlib.metadata.PackageNotFoundError:
        raise NotCheckable(f"{package} is not installed") from None


def source_digest(functions: Iterable[Any]) -> str:
    """Return a short hash of functions' source."""
    import hashlib
    import inspect

    return hashlib.sha256("\n".join(map(inspect.getsource, functions)).encode()).hexdigest()[:12]


def unproven(saving: str, functions: Iterable[Any]) -> str:
    """Return why a saving of faster lowering is not proven with what is installed; '' if it is."""
    found = {"torch": installed_version("torch"), "executorch": installed_version("executorch")}
    for package, proven in (("torch", PROVEN_TORCH), ("executorch", PROVEN_EXECUTORCH)):
        if found[package] not in proven:
            return f"{package} {found[package]} is not a version that this was proven with ({', '.join(proven)})"
    together = " and ".join(map(" ".join, found.items()))
    pair = {f"torch {each.torch} and executorch {each.executorch}": each.savings for each in PROVEN_PAIRS}
    if saving not in pair.get(together, {}):
        return f"{saving} is not proven with {together}"
    return (
        ""
        if source_digest(functions) == pair[together][saving]
        else f"{saving} was proven with other code of {together}"
    )


def require(reliance: Reliance) -> None:
    """Raise a SetupError if a reliance fails that there is no way without: `instead` says what cannot be done."""
    if wrong := why_not(reliance):
        raise SetupError(wrong, f"Install a version that it was proven with: {reliance.proven}.")
