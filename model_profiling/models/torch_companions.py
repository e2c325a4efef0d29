"""torchvision and torchaudio, looked at before they are imported, by the kit, a package or a user's file.

Their native libraries fit one release of torch. Another one ends the process without a word that Python could catch.
"""

import contextlib
import importlib.machinery
import importlib.metadata
import re
import sys
from collections.abc import Callable, Sequence
from pathlib import Path
from types import ModuleType
from typing import Any

import torch

from model_profiling.base.errors import SetupError

# By package, the release that fits torch 2.N.
COMPANIONS: dict[str, Callable[[int], str]] = {
    "torchvision": lambda minor: f"0.{minor + 15}",
    "torchaudio": lambda minor: f"2.{minor}",
}
_OPERATORS = (
    "nms(Tensor dets, Tensor scores, float iou_threshold) -> Tensor",
    "qnms(Tensor dets, Tensor scores, float iou_threshold) -> Tensor",
)
# torch forgets a library's operators when the object that declared them is collected.
_declared: list[torch.library.Library] = []


class _Finder:
    """Finds the companions of torch as Python does; they are checked when they are imported, not when looked for."""

    def find_spec(self, name: str, path: Sequence[str] | None = None, target: Any = None) -> Any:
        spec = importlib.machinery.PathFinder.find_spec(name, path) if name in COMPANIONS else None
        if spec is None or spec.loader is None:
            return None
        execute = spec.loader.exec_module

        def exec_module(module: ModuleType) -> None:
            refuse_unfit(name)
            if name == "torchvision" and spec.origin is not None:
                declare_torchvision_operators(Path(spec.origin).parent)
            execute(module)

        # Its loader is made for this spec alone.
        spec.loader.exec_module = exec_module  # type: ignore[method-assign]
        return spec


def watch_imports() -> None:
    """Have torchvision and torchaudio checked from now on, whoever imports them."""
    if not any(isinstance(finder, _Finder) for finder in sys.meta_path):
        sys.meta_path.insert(0, _Finder())


def refuse_unfit(name: str) -> None:
    """Refuse a package that was built for another release of torch than the one that is installed."""
    try:
        required = importlib.metadata.requires(name) or []
    except importlib.metadata.PackageNotFoundError:
        return
    # Of the torch that it requires exactly; a package may not say.
    found = (re.match(r"torch\s*\(?\s*==\s*(\d+)\.(\d+)", text) for text in required)
    built_for = next(((each[1], each[2]) for each in found if each), None)
    own = re.match(r"(\d+)\.(\d+)", torch.__version__)
    if built_for is None or own is None or built_for == (own[1], own[2]):
        return
    fits = f"'{name}=={COMPANIONS[name](int(own[2]))}.*'" if own[1] == "2" else name
    version = importlib.metadata.version(name)
    raise SetupError(
        f"{name} {version} is made for torch {'.'.join(built_for)}, and torch {torch.__version__} is installed: "
        "to import it would end the process",
        f"pip install {fits} 'torch=={torch.__version__.split('+')[0]}'",
    )


def declare_torchvision_operators(package: Path) -> None:
    """Declare the two operators torchvision refuses to import without, if its own library does not bring them.

    PyPI's torchvision cannot load that library beside a CPU-only torch. Its models need none of it: with the schemas
    declared, the pure-Python parts import. Where the library can be loaded it comes first: it ends the process if
    somebody has declared its operators before.
    """
    for native in package.glob("_C*.so"):
        with contextlib.suppress(OSError):
            torch.ops.load_library(native)
    library = torch.library.Library("torchvision", "FRAGMENT")
    for schema in _OPERATORS:
        with contextlib.suppress(RuntimeError):  # they are there
            library.define(schema)
    _declared.append(library)
