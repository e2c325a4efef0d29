"""Reliances on what nobody promised, of which the table `reliances.txt` says all: whether they hold here."""

import functools
import importlib.util
import inspect
import operator
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

# Whose parts are relied on: what is not installed is not used either.
_PACKAGES = ("torch", "torchao", "executorch", "ray")

State = Literal["holds", "fails", "not checked"]


class NotCheckable(Exception):  # noqa: N818 - not an error: what would be checked is not on this machine
    """What a reliance is about is not on this machine; says why."""


class RelianceText(msgspec.Struct, frozen=True):
    """What is relied on and of whom, with which versions that was proven, how it is checked, and the way without it."""

    name: str
    project: str
    relies_on: str
    proven: str
    checked: str
    instead: str


class Reliance(RelianceText, frozen=True):
    """Something private to a project that the kit uses.

    `check` returns what is wrong, '' if it holds; it raises NotCheckable where the project is not installed. Anything
    else that it raises counts as wrong: other versions may do anything.
    """

    check: Callable[[], str]
    # Without it nothing can be measured: there is no other way, and only its own name switches it off.
    essential: bool = False


def _table() -> dict[str, dict[str, str]]:
    text = files.content(Path(__file__).with_name("reliances.txt")).decode().replace("\n  ", " ")
    versions = {"executorch": ", ".join(PROVEN_EXECUTORCH), "torch": ", ".join(PROVEN_TORCH)}
    found = {}
    for block in text.split("\n\n")[1:]:
        name, *lines = block.strip().split("\n")
        found[name] = {key: value for key, _, value in (line.partition(": ") for line in lines)}
        found[name]["proven"] = found[name]["proven"].format(**versions)
    return found


TABLE = _table()


def reliance(name: str, check: Callable[[], str]) -> Reliance:
    """Return the reliance that the table has under a name, with its check."""
    row = TABLE[name]
    texts = (row["project"], row["relies on"], row["proven"], row["checked"], row["instead"])
    return Reliance(name, *texts, check, "essential" in row)


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


def executorch_folder() -> Path | None:
    """Return the folder of the installed package, found without importing it; None if there is none.

    It has no `__init__.py`: any folder of its name on the path, such as a clone, counts as a part of it.
    """
    spec = importlib.util.find_spec("executorch")
    locations = [Path(each) for each in spec.submodule_search_locations or ()] if spec else []
    return next((each for each in locations if (each / "version.py").is_file()), None)


def installed_file(relative: str) -> Path:
    """Return a file of the installed wheel; raises NotCheckable if it is not there."""
    folder = executorch_folder()
    if folder is None:
        raise NotCheckable("executorch is not installed")
    path = folder / relative
    if not path.is_file():
        raise NotCheckable(f"executorch {installed_version('executorch')} has no {relative}")
    return path


def lacking(*names: str) -> str:
    """Return the first of some names that is not there, or does not take its parameters; '' if all are as they were.

    A name is `module:attribute` or `module:function(parameter, parameter)`.
    """
    for name in names:
        module, _, rest = name.partition(":")
        attribute, _, parameters = rest.removesuffix(")").partition("(")
        package = module.split(".")[0]
        version = installed_version(package)
        try:
            value = operator.attrgetter(attribute)(importlib.import_module(module))
        except AttributeError:
            return f"{package} {version} has no {module}.{attribute}"
        if missing := [p for p in filter(None, parameters.split(", ")) if p not in inspect.signature(value).parameters]:
            return f"{attribute} of {package} {version} does not take {missing[0]}"
    return ""


def source_digest(functions: Iterable[Any]) -> str:
    """Return a short hash of functions' source."""
    import hashlib

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
    same = source_digest(functions) == pair[together][saving]
    return "" if same else f"{saving} was proven with other code of {together}"


def require(reliance: Reliance) -> None:
    """Raise a SetupError if a reliance fails that there is no way without: `instead` says what cannot be done."""
    if wrong := why_not(reliance):
        raise SetupError(wrong, f"Install a version that it was proven with: {reliance.proven}.")
