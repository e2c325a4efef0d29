"""The files of a new model, complete and running, for the user to change."""

import keyword
import os
import re
import sys
from pathlib import Path

import msgspec

from model_profiling import files
from model_profiling.errors import InputError, SetupError
from model_profiling.models import failed_folders, registered_models
from model_profiling.models.zoo import zoo_models

PACKAGE = Path(__file__).resolve().parents[1]

_INIT = """from model_profiling.models import register_model

register_model(
    "{name}",
    "model_profiling.models.{name}.model:{cls}Model",
    "one line about {name}",
    dtypes=("fp32", "fp16", "int8"),
)
"""

_MODEL = '''"""What {name} computes, in a sentence."""

import torch
from torch import nn

from model_profiling.models.model_base import EagerModelBase


class {cls}(nn.Module):  # type: ignore[misc]
    def __init__(self) -> None:
        super().__init__()
        self.conv = nn.Conv2d(3, 16, 3, stride=2, padding=1)
        self.head = nn.Linear(16, 10)

    def forward(self, image: torch.Tensor) -> torch.Tensor:
        features = torch.relu(self.conv(image))
        return self.head(features.mean((2, 3), keepdim=True).flatten(1))


class {cls}Model(EagerModelBase):
    weights = "random"

    def get_eager_model(self) -> torch.nn.Module:
        return {cls}()

    def get_example_inputs(self) -> tuple[torch.Tensor, ...]:
        # Use the shapes and dtypes of real use: they decide what is measured.
        return (torch.randn(1, 3, 64, 64),)
'''

_CARD = """# {name}

| | |
|---|---|
| source | where the code comes from |
| licence | of the code, and of the weights if there are any |
| inputs | image, 1 x 3 x 64 x 64 |
| weights | random |

What it shows: why it is worth profiling.
"""

_TEST = '''"""{name} exports, and the program answers as the eager model does."""

from pathlib import Path

import pytest

pytest.importorskip("executorch.exir")


@pytest.mark.parametrize("dtype", ["fp32", "fp16", "int8"])
def test_{name}_exports_and_runs(dtype: str, tmp_path: Path) -> None:
    from model_profiling.export.exporter import ExportRequest, export
    from model_profiling.export.verify import verify

    verify(export(ExportRequest("{name}", tmp_path, dtype)))
'''


def scaffold(name: str, package: Path = PACKAGE) -> list[Path]:
    """Write the files of a new model and return their paths, relative to the working directory where that is shorter.

    The test goes to tests/ of a clone; where the kit is installed as a package there is none, and no test is written.
    """
    _check(name, package)
    folder, tests = package / "models" / name, package.parent / "tests"
    words = {"name": name, "cls": "".join(part.capitalize() for part in name.split("_"))}
    contents = {
        folder / "model.py": _MODEL.format(**words),
        folder / "README.md": _CARD.format(**words),
        package / "configs" / f"{name}.json": _config(name),
        # The registration comes last: until it is there, nothing half-written is found.
        folder / "__init__.py": _INIT.format(**words),
    }
    if (tests / "conftest.py").is_file():
        contents = {tests / f"test_model_{name}.py": _TEST.format(**words), **contents}
    for path in contents:
        if path.exists():
            raise InputError(f"{path} already exists", "Choose another name, or remove it.")
    for path, text in contents.items():
        files.write_text(path, text)
    return [_short(path) for path in contents]


def _check(name: str, package: Path) -> None:
    if not re.fullmatch(r"[a-z][a-z0-9_]{0,62}", name) or keyword.iskeyword(name):
        raise InputError(
            f"{name!r} cannot be a model's name: it becomes a Python package and part of file names",
            "Use lower-case letters, digits and _, beginning with a letter: my_model.",
        )
    if name in registered_models() or name in failed_folders() or name in zoo_models():
        raise InputError(f"there already is a model called {name}", "Choose another name.")
    if (package / "models" / name).exists() or (package / "models" / f"{name}.py").exists():
        raise InputError(f"{package / 'models' / name} already exists", "Choose another name, or remove it.")
    if not os.access(package / "models", os.W_OK):
        raise SetupError(
            f"{package / 'models'} is not writable", "Work in a clone, or use `sme2-kit export file.py:ClassName`."
        )


def _config(name: str) -> str:
    """A config with all of this machine's features and one experiment, which runs anywhere."""
    platform = "mac" if sys.platform == "darwin" else "linux"
    config = {
        "$schema": "config.schema.json",
        "comment": "Add experiments with disable_features to compare; `sme2-kit doctor` lists the features.",
        "model": f"out_{name}/artifacts/{name}_xnnpack_fp32.pte",
        "output_root": f"out_{name}/runs/{platform}",
        "experiments": [{"name": f"{platform}_baseline", "num_runs": 60, "warmup": 3, "num_threads": 1}],
    }
    return msgspec.json.format(msgspec.json.encode(config), indent=2).decode() + "\n"


def _short(path: Path) -> Path:
    return path.relative_to(Path.cwd()) if path.is_relative_to(Path.cwd()) else path
