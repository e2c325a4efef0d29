"""The registry: which models can be exported by name. Listing them imports neither torch nor any model.

A model is a folder here with `model.py` (an `EagerModelBase`) and an `__init__.py` that registers it. The folder
is found by itself; to register it by hand instead, add these two lines at the end of this file:

    from . import your_model
    register_model("your_model", your_model.YourModelClass)
"""

import importlib
import pkgutil
import re
from dataclasses import dataclass
from typing import Any

from model_profiling.base.errors import InputError


@dataclass(frozen=True)
class RegisteredModel:
    """A name and where its class is: the class itself, or `package.module:Class` to be imported when it is needed.

    `requires` are packages beyond the kit's own that it imports, `extra` the pip extra that brings them; `parameters`
    and `dtypes` are what tests hold the model to.
    """

    name: str
    target: "type | str"
    description: str = ""
    requires: tuple[str, ...] = ()
    extra: str = ""
    parameters: str = ""
    dtypes: tuple[str, ...] = ()
    weights: str = ""


_registered: dict[str, RegisteredModel] = {}
_folders_that_failed: dict[str, Exception] = {}
_folders_seen: set[str] = set()


def register_model(name: str, target: "type | str", description: str = "", **facts: Any) -> None:
    """Make `target` exportable as `name`; `facts` are the other fields of `RegisteredModel`."""
    if not re.fullmatch(r"[A-Za-z0-9][A-Za-z0-9_.-]*", name):
        raise InputError(
            f"{name!r} cannot be a model's name: it becomes part of file names", "Use letters, digits, _ - and . only."
        )
    known = _registered.get(name)
    if known is not None and _address(known.target) != _address(target):
        raise InputError(
            f"two models want the name {name}: {_address(known.target)} and {_address(target)}",
            "Register one of them under another name.",
        )
    if known is None or description:
        _registered[name] = RegisteredModel(name, target, description, **facts)


def _address(target: "type | str") -> str:
    return target if isinstance(target, str) else f"{target.__module__}:{target.__qualname__}"


def registered_models() -> dict[str, RegisteredModel]:
    """Return every model of the kit by name, after giving each folder here the chance to register itself."""
    for folder in pkgutil.iter_modules(__path__):
        if folder.ispkg and folder.name not in _folders_seen:
            _folders_seen.add(folder.name)
            try:
                importlib.import_module(f"{__name__}.{folder.name}")
            except Exception as error:  # noqa: BLE001 - one broken model must not hide the others; asking for it tells
                _folders_that_failed[folder.name] = error
    return dict(sorted(_registered.items()))


def failed_folders() -> dict[str, Exception]:
    """Return the model folders that could not be imported, and why."""
    registered_models()
    return dict(_folders_that_failed)
