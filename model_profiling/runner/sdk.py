"""The ExecuTorch wheel as a C++ SDK: the one that is installed, or another platform's fetched through pip."""

import importlib.metadata
import importlib.util
import shutil
import sys
import tempfile
import zipfile
from dataclasses import dataclass
from pathlib import Path

from model_profiling.code_path import python_command
from model_profiling.errors import SetupError
from model_profiling.installation import install_command
from model_profiling.places import cache_directory
from model_profiling.programs import run_program

# What of a wheel is kept, and a number that changes with it: a copy that an earlier kit made has less.
_KEPT = ("executorch/include/", "executorch/lib/", "executorch/extension/llm/custom_ops/lib")
_KEPT_SINCE = 2
# There is a wheel for each Python, and its libraries differ.
PYTHON_TAG = str(sys.implementation.cache_tag)


@dataclass(frozen=True)
class Sdk:
    """Headers and libraries of one ExecuTorch wheel."""

    version: str
    root: Path

    @property
    def include_directories(self) -> tuple[Path, Path]:
        include = self.root / "include"
        return include, include / "executorch" / "runtime" / "core" / "portable_type" / "c10"

    @property
    def libraries(self) -> Path:
        return self.root / "lib"


def installed_sdk() -> Sdk:
    """The SDK inside the installed wheel, found without importing it."""
    spec = importlib.util.find_spec("executorch")
    locations = list(spec.submodule_search_locations or []) if spec else []
    if not locations:
        raise SetupError("the executorch package is not installed", install_command("run"))
    return _checked(Sdk(importlib.metadata.version("executorch"), Path(locations[0])))


def _checked(sdk: Sdk) -> Sdk:
    libraries = list(sdk.libraries.glob("libexecutorch_backend_xnnpack.*"))
    if not libraries or not (sdk.include_directories[0] / "executorch").is_dir():
        raise SetupError(
            f"executorch {sdk.version} at {sdk.root} ships no C++ libraries (wheels do since 1.5.0)",
            install_command("run"),
        )
    return sdk


def fetched_sdk(pip_platform: str, version: str) -> Sdk:
    """The SDK of another platform's wheel, downloaded once; what is half downloaded or damaged is never used."""
    home = cache_directory() / "sdk" / f"{version}-{PYTHON_TAG}-{pip_platform}-{_KEPT_SINCE}"
    if not home.is_dir():
        home.parent.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryDirectory(dir=home.parent, prefix=".fetch-") as scratch:
            unpacked = Path(scratch) / "sdk"
            _unpack(_download(pip_platform, version, Path(scratch)), unpacked)
            _checked(Sdk(version, unpacked))
            try:
                unpacked.rename(home)
            except OSError:  # another process was faster; its copy is as good
                shutil.rmtree(unpacked, ignore_errors=True)
    return _checked(Sdk(version, home))


def _download(pip_platform: str, version: str, into: Path) -> Path:
    python = f"{sys.version_info.major}.{sys.version_info.minor}"
    command = python_command("pip", "download", "--quiet", "--no-deps", "--only-binary=:all:")
    command += ["--platform", pip_platform, "--python-version", python, "--dest", str(into), f"executorch=={version}"]
    done = run_program(command)
    wheels = sorted(into.glob("executorch-*.whl"))
    if done.returncode != 0 or not wheels:
        reason = next((line for line in done.stderr.splitlines() if line.startswith("ERROR")), "pip gave no reason")
        raise SetupError(
            f"the {pip_platform} wheel of executorch {version} could not be fetched: {reason}",
            "Check the network and pip's index settings, then run the command again.",
        )
    return wheels[0]


def _unpack(wheel: Path, into: Path) -> None:
    """Take headers and libraries out of `wheel`; zipfile checks each member's CRC as it reads it."""
    try:
        with zipfile.ZipFile(wheel) as archive:
            for member in archive.infolist():
                if member.filename.startswith(_KEPT):
                    archive.extract(member, into.parent / "wheel")
        (into.parent / "wheel" / "executorch").rename(into)
    except (zipfile.BadZipFile, OSError) as error:
        raise SetupError(
            f"the wheel {wheel.name} is damaged: {error}", "Run the command again to download it again."
        ) from None
