"""The ExecuTorch wheel as a C++ SDK: the one that is installed, or another platform's fetched through pip."""

import base64
import importlib.metadata
import os
import shutil
import sys
import zipfile
from dataclasses import dataclass
from pathlib import Path

from model_profiling.base import cache, files, zips
from model_profiling.base.code_path import python_command
from model_profiling.base.errors import SetupError
from model_profiling.base.installation import install_command
from model_profiling.base.kept_hashes import kept_sha256
from model_profiling.base.programs import run_program
from model_profiling.upstream.installed_wheel import executorch_folder
from model_profiling.upstream.libraries import BACKEND, CUSTOM_OPERATORS, file_of

# What of a wheel is kept.
_OPERATORS = f"{Path(CUSTOM_OPERATORS).parent.as_posix()}/lib"
_KEPT = ("executorch/include/", "executorch/lib/", f"executorch/{_OPERATORS}")
# There is a wheel for each Python, and its libraries differ.
PYTHON_TAG = str(sys.implementation.cache_tag)


@dataclass(frozen=True)
class Sdk:
    """Headers and libraries of one ExecuTorch; `content` is another one for other files of the same version.

    Of a build of the user's own, `given` is its path as the user wrote it, and `more` are libraries in it that those
    which the runner is linked with need; else both are empty.
    """

    version: str
    root: Path
    content: str = ""
    given: str = ""
    more: tuple[str, ...] = ()

    @property
    def include_directories(self) -> tuple[Path, Path]:
        include = self.root / "include"
        return include, include / "executorch" / "runtime" / "core" / "portable_type" / "c10"

    @property
    def libraries(self) -> Path:
        return self.root / "lib"


def installed_sdk() -> Sdk:
    """Return the SDK inside the installed wheel, found without importing it."""
    folder = executorch_folder()
    if folder is None:
        raise SetupError("the executorch package is not installed", install_command("run"))
    wheel = importlib.metadata.distribution("executorch")
    # The wheel's own list of its files has the hash of each.
    content = cache.digest(wheel.read_text("RECORD") or "")
    return _checked(Sdk(wheel.version, folder, content), install_command("run"))


def _checked(sdk: Sdk, hint: str) -> Sdk:
    libraries = list(sdk.libraries.glob(file_of(BACKEND, ".*")))
    if not libraries or not (sdk.include_directories[0] / "executorch").is_dir():
        raise SetupError(f"executorch {sdk.version} ships no C++ libraries (wheels do since 1.5.0)", hint)
    return sdk


def fetched_sdk(pip_platform: str, version: str, installed: Sdk | None = None) -> Sdk:
    """Return the SDK of a platform's wheel, downloaded once; what is half downloaded or damaged is never used.

    Of the release that is `installed` on this platform it is a copy, unless files of it were replaced.
    """

    def make(folder: Path) -> None:
        if installed is None or installed.version != version or not _copied(installed, folder):
            with files.scratch_directory("wheel-", folder.parent) as scratch:
                _unpack(_download(pip_platform, version, scratch), folder)
        _checked(Sdk(version, folder), "Choose a release from 1.5.0 on.")
        drop_pages(folder)

    made_from = {"executorch": version, "platform": pip_platform, "python": PYTHON_TAG, "parts": " ".join(_KEPT)}
    home = cache.entry("sdk", f"executorch {version} wheel for {pip_platform}", made_from, make, "fetched")
    return Sdk(version, home, home.name)


def _copied(installed: Sdk, folder: Path) -> bool:
    """Copy what is kept of the installed wheel; False if a file is not what the wheel's list of its files says."""
    listed = [file for file in importlib.metadata.distribution("executorch").files or [] if str(file).startswith(_KEPT)]
    for file in listed:
        source, copy = Path(str(file.locate())), folder / Path(*file.parts[1:])
        recorded = file.hash.value if file.hash is not None else ""
        if not files.is_file(source) or _record_hash(source) != recorded:
            shutil.rmtree(folder)
            folder.mkdir()
            return False
        copy.parent.mkdir(parents=True, exist_ok=True)
        files.copy_file(source, copy)
    return bool(listed) and installed.root.name == listed[0].parts[0]


def drop_pages(folder: Path) -> None:
    """Drop files from the system's page cache, so that all SDKs come into it in one way: when their hashes are taken.

    How a file came into it decides how much of it a process holds that uses a part: one library, written at once or
    in pieces, was seen to make 13.4 or 9.7 MiB of a peak.
    """
    if not hasattr(os, "posix_fadvise"):
        return
    for path in folder.rglob("lib*"):
        if path.is_file():
            with files.open_file(path) as file:
                os.fsync(file.fileno())
                os.posix_fadvise(file.fileno(), 0, 0, os.POSIX_FADV_DONTNEED)


def _record_hash(path: Path) -> str:
    """Return the hash of a file as a wheel's RECORD spells it."""
    return base64.urlsafe_b64encode(bytes.fromhex(files.sha256(path))).decode().rstrip("=")


def library_hashes(sdk: Sdk) -> dict[str, str]:
    """Return the SHA-256 of every library of an SDK as it is now: one may have been replaced since it was installed."""
    places = [*sdk.libraries.glob("lib*"), *sdk.root.glob(f"{_OPERATORS}*")]
    return {path.name: kept_sha256(path) for path in sorted(places) if path.is_file()}


def installed_libraries() -> str:
    """Return one hash of the libraries of the installed wheel; '' if there is none."""
    try:
        return cache.digest(*map(" ".join, library_hashes(installed_sdk()).items()))
    except SetupError:
        return ""


def _download(pip_platform: str, version: str, into: Path) -> Path:
    python = f"{sys.version_info.major}.{sys.version_info.minor}"
    command = python_command("pip", "download", "--quiet", "--no-deps", "--only-binary=:all:")
    command += ["--platform", pip_platform, "--python-version", python, "--dest", str(into), f"executorch=={version}"]
    # Killed, pip leaves what it unpacked where it will be removed.
    temporary = {**os.environ, "TMPDIR": str(into)}
    done = run_program(command, doing=f"fetching executorch {version}", env=temporary)
    wheels = sorted(into.glob("executorch-*.whl"))
    if done.returncode != 0 or not wheels:
        # The last one is the conclusion.
        reason = next((x for x in reversed(done.stderr.splitlines()) if x.startswith("ERROR")), "pip gave no reason")
        raise SetupError(
            f"the {pip_platform} wheel of executorch {version} could not be fetched: {reason}",
            "Check that there is such a release, the network and pip's index settings; then run the command again.",
        )
    return wheels[0]


def _unpack(wheel: Path, into: Path) -> None:
    """Take headers and libraries out of `wheel`; zipfile checks each member's CRC as it reads it."""
    try:
        with zipfile.ZipFile(wheel) as archive:
            kept = [member for member in archive.infolist() if member.filename.startswith(_KEPT)]
            zips.refuse_bomb(kept, wheel.stat().st_size)
            archive.extractall(wheel.parent, kept)
        (wheel.parent / "executorch").rename(into)
    except zips.ERRORS as error:
        raise SetupError(
            f"the wheel {wheel.name} is damaged: {error}", "Run the command again to download it again."
        ) from None
