"""The ExecuTorch wheel as a C++ SDK: the one that is installed, or another platform's fetched through pip."""

import base64
import importlib.metadata
import importlib.util
import sys
import tempfile
import zipfile
from dataclasses import dataclass
from pathlib import Path

from model_profiling.base import cache
from model_profiling.base.code_path import python_command
from model_profiling.base.errors import SetupError
from model_profiling.base.installation import install_command
from model_profiling.base.programs import run_program
from model_profiling.runner.targets import BACKEND

# ExecuTorch's operators for language models.
OPERATOR_LIBRARY = Path("extension/llm/custom_ops/libcustom_ops_aot_lib.so")
# What of a wheel is kept.
_KEPT = ("executorch/include/", "executorch/lib/", f"executorch/{OPERATOR_LIBRARY.parent}/lib")
# There is a wheel for each Python, and its libraries differ.
PYTHON_TAG = str(sys.implementation.cache_tag)


@dataclass(frozen=True)
class Sdk:
    """Headers and libraries of one ExecuTorch; `content` is another one for other files of the same version.

    Of a build of the user's own, `given` is its path as the user wrote it; else ''.
    """

    version: str
    root: Path
    content: str = ""
    given: str = ""

    @property
    def include_directories(self) -> tuple[Path, Path]:
        include = self.root / "include"
        return include, include / "executorch" / "runtime" / "core" / "portable_type" / "c10"

    @property
    def libraries(self) -> Path:
        return self.root / "lib"


def installed_sdk() -> Sdk:
    """Return the SDK inside the installed wheel, found without importing it."""
    spec = importlib.util.find_spec("executorch")
    locations = list(spec.submodule_search_locations or []) if spec else []
    if not locations:
        raise SetupError("the executorch package is not installed", install_command("run"))
    wheel = importlib.metadata.distribution("executorch")
    # The wheel's own list of its files has the hash of each.
    content = cache.digest(wheel.read_text("RECORD") or "")
    return _checked(Sdk(wheel.version, Path(locations[0]), content), install_command("run"))


def is_release(sdk: Sdk) -> bool:
    """Return whether the installed headers and libraries are what the wheel's list of files says, by their hashes."""
    listed = importlib.metadata.distribution("executorch").files or []
    ours = [file for file in listed if str(file).startswith(_KEPT)]
    found = {str(path.relative_to(sdk.root.parent)) for path in sdk.libraries.iterdir() if path.is_file()}
    return found <= set(map(str, ours)) and all(
        file.hash is not None and file.hash.value == _record_hash(Path(str(file.locate()))) for file in ours
    )


def _record_hash(path: Path) -> str:
    """Return the hash of a file as a wheel's RECORD spells it; '' if there is none to read."""
    try:
        digest = bytes.fromhex(cache.file_sha256(path))
    except OSError:
        return ""
    return base64.urlsafe_b64encode(digest).decode().rstrip("=")


def _checked(sdk: Sdk, hint: str) -> Sdk:
    libraries = list(sdk.libraries.glob(f"lib{BACKEND}.*"))
    if not libraries or not (sdk.include_directories[0] / "executorch").is_dir():
        what = f"executorch {sdk.version} at {sdk.root} ships no C++ libraries (wheels do since 1.5.0)"
        raise SetupError(what, hint)
    return sdk


def fetched_sdk(pip_platform: str, version: str) -> Sdk:
    """Return the SDK of another platform's wheel, downloaded once; what is half downloaded or damaged is never used."""

    def make(folder: Path) -> None:
        with tempfile.TemporaryDirectory(dir=folder.parent) as scratch:
            _unpack(_download(pip_platform, version, Path(scratch)), folder)
        _checked(Sdk(version, folder), "Choose a release from 1.5.0 on.")

    made_from = {"executorch": version, "platform": pip_platform, "python": PYTHON_TAG, "parts": " ".join(_KEPT)}
    home = cache.entry("sdk", f"executorch wheel for {pip_platform}", made_from, make, "fetched")
    return Sdk(version, home, home.name)


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
            "Check that there is such a release, the network and pip's index settings; then run the command again.",
        )
    return wheels[0]


def _unpack(wheel: Path, into: Path) -> None:
    """Take headers and libraries out of `wheel`; zipfile checks each member's CRC as it reads it."""
    try:
        with zipfile.ZipFile(wheel) as archive:
            for member in archive.infolist():
                if member.filename.startswith(_KEPT):
                    archive.extract(member, wheel.parent)
        (wheel.parent / "executorch").rename(into)
    except (zipfile.BadZipFile, OSError) as error:
        raise SetupError(
            f"the wheel {wheel.name} is damaged: {error}", "Run the command again to download it again."
        ) from None
