"""The files of a new model, complete and running, for the user to change.

In a clone they register the model with the kit. Elsewhere they are a folder where the user stands, exported by its
file: what pip installed is not the place for somebody's work.
"""

import keyword
import re
import sys
from dataclasses import dataclass
from pathlib import Path

import msgspec

from model_profiling.base import files
from model_profiling.base.dtypes import DEFAULT_DTYPE
from model_profiling.base.errors import InputError
from model_profiling.base.installation import PACKAGE, relative_to_here, stands_in_clone
from model_profiling.models import failed_folders, registered_models
from model_profiling.models.lookup import FileTarget
from model_profiling.models.zoo import zoo_models

_TEMPLATES = Path(__file__).with_name("templates")


@dataclass(frozen=True)
class Scaffold:
    """What was written, and how the model is named on the command line."""

    written: list[Path]
    model: str
    config: Path


def scaffold(name: str) -> Scaffold:
    """Write the files of a new model: into the kit if the user stands in its clone, else into a folder here."""
    _check(name)
    words = {"name": name, "cls": "".join(part.capitalize() for part in name.split("_"))}
    if stands_in_clone():
        return _registered(name, words)
    folder = Path(name)
    # As `export` will name its artifacts: a_b becomes class AB, which is ab again.
    artifacts = FileTarget(folder / "model.py", words["cls"]).name
    test = _filled(
        "test", **words, target_line='\nMODEL = str(Path(__file__).with_name("model.py"))\n', target=", target=MODEL"
    )
    config = folder / f"{name}.json"
    contents = {
        folder / "README.md": _filled("card", **words),
        folder / f"test_{name}.py": test,
        config: _config(artifacts),
        folder / "model.py": _filled("model", **words, ignore=""),
    }
    return Scaffold(_write(contents), str(folder / "model.py"), config)


def _filled(template: str, **words: str) -> str:
    return (_TEMPLATES / f"{template}.txt").read_text(encoding="utf-8").format(**words)


def _registered(name: str, words: dict[str, str]) -> Scaffold:
    folder, config = PACKAGE / "models" / name, PACKAGE / "configs" / f"{name}.json"
    contents = {
        PACKAGE.parent / "tests" / f"test_model_{name}.py": _filled("test", **words, target_line="", target=""),
        folder / "model.py": _filled("model", **words, ignore="  # type: ignore[misc]"),
        folder / "README.md": _filled("card", **words),
        config: _config(name, schema="config.schema.json"),
        # The registration comes last: until it is there, nothing half-written is found.
        folder / "__init__.py": _filled("init", **words),
    }
    return Scaffold(_write(contents), name, relative_to_here(config))


def _write(contents: dict[Path, str]) -> list[Path]:
    for path in contents:
        if path.exists():
            raise InputError(f"{path} already exists", "Choose another name, or remove it.")
    for path, text in contents.items():
        files.write_text(path, text)
    return [relative_to_here(path) for path in contents]


def _check(name: str) -> None:
    if not re.fullmatch(r"[a-z][a-z0-9_]{0,62}", name) or keyword.iskeyword(name):
        raise InputError(
            f"{name!r} cannot be a model's name: it becomes a Python package and part of file names",
            "Use lower-case letters, digits and _, beginning with a letter: my_model.",
        )
    if name in registered_models() or name in failed_folders() or name in zoo_models():
        raise InputError(f"there already is a model called {name}", "Choose another name.")
    places = [PACKAGE / "models" / name, PACKAGE / "models" / f"{name}.py"] if stands_in_clone() else [Path(name)]
    for place in places:
        if place.exists() or place.is_symlink():
            raise InputError(f"{place} already exists", "Choose another name, or remove it.")


def _config(name: str, schema: str = "") -> str:
    """Return a config with all of this machine's features and one experiment, which runs anywhere."""
    platform = "mac" if sys.platform == "darwin" else "linux"
    config = {
        **({"$schema": schema} if schema else {}),
        "comment": "Add experiments with disable_features to compare; `sme2-kit doctor` lists the features.",
        "model": f"out_{name}/artifacts/{name}_xnnpack_{DEFAULT_DTYPE}.pte",
        "output_root": f"out_{name}/runs/{platform}",
        "experiments": [{"name": f"{platform}_baseline", "num_runs": 60, "warmup": 3, "num_threads": 1}],
    }
    return msgspec.json.format(msgspec.json.encode(config), indent=2).decode() + "\n"
