"""Where the installed ExecuTorch lies, found without importing it."""

import importlib.util
from pathlib import Path

from model_profiling.upstream.flatbuffer_schemas import Schema, difference, read_schema
from model_profiling.upstream.reliance import NotCheckable, installed_version


def executorch_folder() -> Path | None:
    """Return the folder of the installed package; None if there is none.

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


def schema_difference(ours: Schema, relative: str) -> str:
    """Return what the installed wheel's schema has in another way than the kit reads it; '' if nothing."""
    found = difference(ours, read_schema(installed_file(relative)))
    return f"{relative} of executorch {installed_version('executorch')} is another one: {found}" if found else ""
