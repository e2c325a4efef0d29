"""The table of runtimes: what each is called, what installs it, which files and dtypes it takes; imports none."""

import importlib.metadata
from pathlib import Path
from typing import NamedTuple

from model_profiling.base.code_path import python_command
from model_profiling.base.errors import InputError
from model_profiling.base.installation import install_command
from model_profiling.store.made_by import RunnerRecord

EXECUTORCH = "executorch"
EAGER = "eager"
_PYTHON = python_command("model_profiling.runtimes.runtime_process")[0]


class Runtime(NamedTuple):
    """One runtime. Of ExecuTorch the kit's own runner is the process, all others have a module of this folder."""

    name: str
    label: str
    # The module of this folder, and the packages that it imports: the version of the first is the runtime's.
    module: str
    packages: tuple[str, ...]
    # What pip installs them with.
    extra: str
    # What the files that it reads end with; the model itself is made again from the record beside the .pte.
    suffix: str
    # Whether the kit makes its program of a model, in dtypes that are not quantized; else it takes the user's files.
    made: bool = True
    # Whether its first start compiles what later ones find; and whether it can write a profile of its operators.
    compiles: bool = False
    profiles: bool = False

    @property
    def install(self) -> str:
        return install_command(self.extra)

    @property
    def versions(self) -> dict[str, str]:
        """The versions of its packages, as far as they are installed."""
        found = {}
        for package in self.packages:
            try:
                found[package] = importlib.metadata.version(package)
            except importlib.metadata.PackageNotFoundError:
                continue
        return found

    @property
    def record(self) -> RunnerRecord:
        """The runner that this runtime is: a process of this Python."""
        return RunnerRecord("runtime", _PYTHON, "", runtime=self.name, packages=self.versions)


_TORCH = ("torch",)

RUNTIMES = {
    row.name: row
    for row in (
        Runtime(EXECUTORCH, "ExecuTorch", "", ("executorch",), "run", ".pte", profiles=True),
        Runtime(EAGER, "eager PyTorch", "eager", _TORCH, "export", ".pte"),
        Runtime("compile", "torch.compile", "eager", _TORCH, "export", ".pte", compiles=True),
        Runtime("onnxruntime", "ONNX Runtime", "onnx_runtime", ("onnxruntime",), "onnxruntime", ".onnx", profiles=True),
        Runtime("litert", "LiteRT", "litert", ("ai-edge-litert",), "litert", ".tflite", made=False),
    )
}
# The runtime of a file of the user's, by what its name ends with.
OF_FILES = {row.suffix: row for row in RUNTIMES.values() if row.suffix != ".pte"}


def optimized_file(profile: Path) -> Path:
    """Return where a runtime leaves what its optimizer made of a program, by the profile of one of its launches."""
    return profile.with_name(f"{profile.name.partition('.etdump')[0]}_optimized.onnx")


def runtime_of(name: str) -> Runtime:
    """Return the runtime of a name; a name that is none is an error that lists them."""
    if name not in RUNTIMES:
        raise InputError(
            f"there is no runtime {name!r}", f"Use {', '.join(RUNTIMES)}, or a file: {', '.join(OF_FILES)}."
        )
    return RUNTIMES[name]
