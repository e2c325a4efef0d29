"""The command that shows a run in Google's Model Explorer: its graph, and the overlays on it."""

import importlib.util
import shutil
from pathlib import Path

from model_profiling.analysis.run.run_view import RunView
from model_profiling.base.code_path import python_command
from model_profiling.base.errors import InputError, SetupError
from model_profiling.base.installation import install_command
from model_profiling.base.programs import start
from model_profiling.store.artifacts import EXPLORER_GRAPH, MODEL_EXPLORER, OVERLAY

_PACKAGE, _EXECUTABLE = "model_explorer", "model-explorer"
# Arm's extension, which draws .pte files; it needs a Python before 3.13.
_PTE_ADAPTER = "pte_adapter_model_explorer"


def explorer_command(run: RunView, written: list[Path]) -> list[str]:
    """Return what to type, for files that were written for it; with Arm's adapter beside it, it shows the .pte, too."""
    home = run.path / MODEL_EXPLORER
    models = [str(path) for path in written if path.name.endswith(EXPLORER_GRAPH)]
    # Those of the ETRecord belong to a graph that is not opened here. It shows the first model, and of it the last
    # overlay that was read.
    overlays = [path for path in written if path.name.endswith(OVERLAY) and path.parent == home][::-1]
    overlays.sort(key=lambda path: path.name.endswith(f"_time{OVERLAY}"))
    extensions: list[str] = []
    program = run.manifest.model.file()
    if program is not None and importlib.util.find_spec(_PTE_ADAPTER) is not None:
        models.append(str(program))
        extensions = [f"--extensions={_PTE_ADAPTER}"]
    return [_EXECUTABLE, *models, f"--node_data_paths={','.join(map(str, overlays))}", *extensions]


def pair_command(written: list[Path]) -> list[str]:
    """Return what to type for the graphs of two programs; the overlay that is given last is shown first."""
    overlays = [str(path) for path in written if path.name.endswith(OVERLAY)]
    models = [str(path) for path in written if path.name.endswith(EXPLORER_GRAPH)]
    return [_EXECUTABLE, *models, f"--node_data_paths={','.join(overlays)}"]


def open_explorer(command: list[str]) -> None:
    """Start Model Explorer with a command of `explorer_command` and wait until it is stopped (Ctrl-C)."""
    # It takes lists apart at commas.
    if "," in command[1]:
        raise InputError(
            f"Model Explorer cannot open a path with a comma in it: {command[1]}", "Move the run directory."
        )
    if importlib.util.find_spec(_PACKAGE) is not None:
        words = python_command(_PACKAGE)
    elif (found := shutil.which(_EXECUTABLE)) is not None:
        words = [found]
    else:
        raise SetupError("Google's Model Explorer is not installed", f"Run `{install_command('explorer')}`.")
    with start([*words, *command[1:]]) as process:
        try:
            process.wait()
        finally:
            process.end_all()
