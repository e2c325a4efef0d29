"""The program that makes the gallery, docs/gallery/regenerate.py, as a module."""

import importlib.util
from types import ModuleType

from tests.conftest import ROOT


def gallery_program() -> ModuleType:
    spec = importlib.util.spec_from_file_location("regenerate", ROOT / "docs" / "gallery" / "regenerate.py")
    assert spec is not None and spec.loader is not None
    program = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(program)
    return program
