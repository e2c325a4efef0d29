"""ExecuTorch as a C++ SDK: the installed wheel, another one that pip fetches, or a build of the user's own."""

import base64
import contextlib
import errno
import hashlib
import importlib.metadata
import os
import platform
import re
import shutil
import sys
import zipfile
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from model_profiling.base import cache, files, zips
from model_profiling.base.cache import kept_sha256
from model_profiling.base.code_path import python_command
from model_profiling.base.directories import from_home
from model_profiling.base.elf import MACHINES, read_library
from model_profiling.base.errors import InputError, KitError, SetupError
from model_profiling.base.installation import install_command
from model_profiling.base.programs import run_program
from model_profiling.runner import features
from model_profiling.upstream.libraries import (
    BACKEND,
    CUSTOM_OPERATORS,
    INITIALIZE_SYMBOL,
    INITIALIZE_XNNPACK,
    LINKED,
    TABLE_SYMBOL,
    file_of,
)
from model_profiling.upstream.reliance import executorch_folder

# A compiler in a Python package, which is called through Python; see `call_compiler`.
ZIG = "ziglang"


@dataclass(frozen=True)
class BuildTarget:
    """A platform the runner is built for, the pip tag of its wheel, and who can compile for it from elsewhere."""

    name: str
    arch: str
    pip_platform: str
    cross_compiler: tuple[str, ...]
    library_suffix: str = ".so"

    @property
    def backend(self) -> str:
        """The XNNPACK backend, as the runner opens it."""
        name = file_of(BACKEND, self.library_suffix)
        return f"@rpath/{name}" if self.library_suffix == ".dylib" else name


TARGETS = {
    target.name: target
    for target in (
        BuildTarget("linux-x86_64", "x86_64", "manylinux_2_28_x86_64", ("x86_64-linux-gnu-g++",)),
        BuildTarget("linux-aarch64", "aarch64", "manylinux_2_28_aarch64", ("aarch64-linux-gnu-g++",)),
        BuildTarget("macos-arm64", "aarch64", "macosx_14_0_arm64", (ZIG, "c++", "-target", "aarch64-macos"), ".dylib"),
    )
}


def host_target() -> BuildTarget:
    """Return the target this machine runs natively."""
    system = "macos" if sys.platform == "darwin" else sys.platform
    arch = features.architecture(platform.machine())
    name = f"{system}-{'arm64' if system == 'macos' and arch == 'aarch64' else arch}"
    if name not in TARGETS:
        raise SetupError(
            f"ExecuTorch has no C++ wheel for {name}", f"The kit runs on {', '.join(TARGETS)}; use one of those."
        )
    return TARGETS[name]


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


def installed_libraries() -> str:
    """Return one hash of the libraries of the installed wheel as they are now: one may have been replaced since it was
    installed; '' if there is none."""
    try:
        sdk = installed_sdk()
    except SetupError:
        return ""
    places = sorted((*sdk.libraries.glob("lib*"), *sdk.root.glob(f"{_OPERATORS}*")))
    return cache.digest(*(f"{path.name} {kept_sha256(path)}" for path in places if path.is_file()))


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
        # A damaged zip makes us look at a place that no file has, or for a folder that is not in it.
        if getattr(error, "errno", None) not in (None, errno.EINVAL, errno.ENOENT):
            raise
        raise SetupError(
            f"the wheel {wheel.name} is damaged: {error}", "Run the command again to download it again."
        ) from None


_NATIVE = Path(__file__).parent / "native"
# What the runner takes from cpuinfo in order to mask features; and what only the backend may bring.
_SYMBOLS = (INITIALIZE_SYMBOL, TABLE_SYMBOL)
_VERSION = re.compile(r"[0-9][0-9A-Za-z.+!-]{0,40}")
_MACH_O_ARM64 = bytes.fromhex("cffaedfe0c000001")
_LAYOUT = "an install prefix has include/executorch and lib, as the executorch package of a wheel has"
_HOW = (
    "Build ExecuTorch with shared libraries, the event tracer, and the optimized and quantized kernels, install it "
    f"(cmake --install BUILD --prefix PREFIX), and give PREFIX: {_LAYOUT}."
)
_STATIC = (
    "CPU features must be masked before XNNPACK's initialiser runs, and the kit does that by loading the backend "
    "library after masking; a static build has none to load"
)


def prefix_sdk(target: BuildTarget, given: str) -> Sdk:
    """Return the SDK in a prefix, as it is now; all that is wrong with it is one error."""
    root = _root(given)
    if wrong := problems(target, root):
        raise InputError(f"{given} is not an ExecuTorch build to use for {target.name}: {'; '.join(wrong)}", _HOW)
    try:
        parts = _parts(target, root)
        content = _content(parts)
    except OSError as error:
        raise InputError(
            f"{given} cannot be read: {error}", "Check its rights, and that no build is at work."
        ) from None

    def make(folder: Path) -> None:
        for name, path in parts.items():
            (folder / name).parent.mkdir(parents=True, exist_ok=True)
            files.copy_file(path, folder / name)
        if _content({name: folder / name for name in parts}) != content:
            raise SetupError(f"{given} changed while it was copied", "Wait until the build has ended.")
        drop_pages(folder)

    made_from = {"prefix": content, "target": target.name}
    home = cache.entry("sdk", f"copy of {given}", made_from, make, "copied")
    linked = _with_needed(target, [_library(target, root, name) for name in LINKED])
    more = tuple(path.name for path in linked[len(LINKED) :])
    return Sdk(_version(root) or f"own build {content[:8]}", home, content, given, more)


def _root(given: str) -> Path:
    """Return the folder with `include` and `lib`: what was given, or `executorch` in it."""
    path = from_home(given)
    try:
        if not path.is_dir():
            what = "is not a folder" if path.exists() else "does not exist"
            raise InputError(f"the ExecuTorch build {given} {what}", "Give a release such as 1.5.1, or a prefix.")
        found = [root for root in (path, path / "executorch") if (root / "lib").is_dir() or (root / "include").is_dir()]
    except (OSError, ValueError) as error:
        raise InputError(
            f"{given[:200]!r} cannot be the path of an ExecuTorch build: {getattr(error, 'strerror', error)}",
            f"Correct it; {_LAYOUT}.",
        ) from None
    if not found:
        raise InputError(f"{given} has neither include nor lib, nor has executorch in it", _HOW)
    return found[0].resolve()


def problems(target: BuildTarget, root: Path) -> list[str]:
    """Return all that keeps the runner from being built against a prefix, one sentence each."""
    libraries = {name: _library(target, root, name) for name in (*LINKED, BACKEND)}
    missing = [path.name for path in libraries.values() if not files.is_file(path)]
    if len(missing) == len(libraries) and any((root / "lib").glob("lib*.a")):
        return [f"it is a static build (lib/*.a and no {libraries['executorch'].name}): {_STATIC}"]
    wrong = [f"lib/ lacks {', '.join(missing)}"] if missing else []
    there = [path for path in libraries.values() if path.name not in missing]
    damaged = [sentence for path in there for sentence in _wrong_library(target, path)]
    wrong += damaged
    if target.library_suffix == ".so" and not missing and not damaged:
        wrong += _wrong_symbols(target, [libraries[name] for name in LINKED])
    include, c10 = Sdk("", root).include_directories
    code = "".join(files.content(path).decode() for path in sorted(_NATIVE.iterdir()))
    wanted = sorted(set(re.findall(r"#include <(executorch/[^>]+)>", code)))
    lacking = [header for header in wanted if not files.is_file(include / header)]
    lacking += [] if c10.is_dir() else [f"{c10.relative_to(include)}/"]
    if lacking:
        more = f" and {len(lacking) - 3} more" if len(lacking) > 3 else ""
        wrong.append(f"include/ lacks {', '.join(lacking[:3])}{more}")
    return wrong


def _wrong_symbols(target: BuildTarget, linked: list[Path]) -> list[str]:
    """Return what keeps features from being masked before XNNPACK is loaded."""
    defined = {path.name: read_library(path).defined for path in _with_needed(target, linked)}
    absent = [symbol for symbol in _SYMBOLS if not any(symbol in symbols for symbols in defined.values())]
    wrong = [f"no library exports {', '.join(absent)}, by which CPU features are masked"] if absent else []
    early = [name for name, symbols in defined.items() if INITIALIZE_XNNPACK in symbols]
    if early:
        wrong.append(f"lib/{early[0]} brings XNNPACK, which would read the CPU's features before they are masked")
    return wrong


def _wrong_library(target: BuildTarget, path: Path) -> list[str]:
    try:
        if target.library_suffix != ".so":
            with files.open_file(path) as file:
                right = file.read(8) == _MACH_O_ARM64
            return [] if right else [f"lib/{path.name} is not a library for {target.name}"]
        library = read_library(path)
    except OSError as error:
        return [f"lib/{path.name} cannot be read: {error.strerror}"]
    except KitError:
        return [f"lib/{path.name} is truncated, damaged or no shared library"]
    if library.machine != MACHINES[target.arch]:
        built = next((arch for arch, number in MACHINES.items() if number == library.machine), "another architecture")
        return [f"lib/{path.name} is for {built}, not for {target.arch}"]
    return []


def _library(target: BuildTarget, root: Path, name: str) -> Path:
    return root / "lib" / file_of(name, target.library_suffix)


def _parts(target: BuildTarget, root: Path) -> dict[str, Path]:
    """Return what the runner needs of a prefix, by its place there: libraries, those that they need, and headers."""
    libraries = _with_needed(target, [_library(target, root, name) for name in (*LINKED, BACKEND)])
    headers = [path for path in sorted((root / "include" / "executorch").rglob("*")) if files.is_file(path)]
    operators = root / CUSTOM_OPERATORS
    more = [operators] if files.is_file(operators) else []
    return {path.relative_to(root).as_posix(): path for path in (*libraries, *headers, *more)}


def _with_needed(target: BuildTarget, libraries: list[Path]) -> list[Path]:
    """Return libraries, and after them those beside them that they need, directly or through others."""
    found = list(libraries)
    for path in found if target.library_suffix == ".so" else []:  # which grows meanwhile
        beside = [path.with_name(name) for name in read_library(path).needed]
        found += [each for each in dict.fromkeys(beside) if each not in found and files.is_file(each)]
    return found


def _content(parts: dict[str, Path]) -> str:
    lines = (f"{name} {cache.file_sha256(path)}\n" for name, path in sorted(parts.items()))
    return hashlib.sha256("".join(lines).encode()).hexdigest()


def _version(root: Path) -> str:
    """Return what a prefix, or the wheel that it is from, says of its version; '' if nothing does."""
    for name, pattern in (("version.txt", r"\s*(\S+)"), ("version.py", r"__version__ *= *[\"'](.+?)[\"']")):
        if files.is_file(path := root / name):
            found = re.search(pattern, files.read_bytes(path, "version", 1 << 16).decode(errors="replace"))
            if found and _VERSION.fullmatch(found[1]):
                return found[1]
    beside = sorted(root.parent.glob("executorch-*.dist-info")) if root.name == "executorch" else []
    names = [path.name.removeprefix("executorch-").removesuffix(".dist-info") for path in beside]
    return next((name for name in names if _VERSION.fullmatch(name)), "")


RELEASE = re.compile(r"[0-9]+(\.[0-9]+)+((a|b|rc|\.post|\.dev)[0-9]+)?")
# Each is a process that is alive while the others take their turns, on and off.
MOST_CHOICES = 8
_HINT = "Give releases or prefixes, for example 1.5.0,1.5.1 or ./my-build."


def sdk_for(target: BuildTarget, executorch: str | None) -> Sdk:
    """Return the SDK for a target: of the installed release, of another one, or of a prefix."""
    if executorch is not None and not RELEASE.fullmatch(executorch):
        return prefix_sdk(target, executorch)
    if target != host_target():
        return fetched_sdk(target.pip_platform, executorch or installed_sdk().version)
    # Releases that are compared lie in one place: where a library lies shows in a process's memory.
    if executorch is None:
        return installed_sdk()
    installed = None
    with contextlib.suppress(SetupError):
        installed = installed_sdk()
    return fetched_sdk(target.pip_platform, executorch, installed)


def split_choices(given: str | Path | Sequence[str | Path] | None, spelled: str = "executorch") -> list[str]:
    """Return what a user chose, each once: `A,B` is two, unless there is a folder of that name."""
    texts = [str(each) for each in ([given] if isinstance(given, str | Path) else given or ())]
    found = [part for text in texts for part in ([text] if os.path.isdir(text) else text.split(","))]  # noqa: PTH112
    for choice in found:
        if not choice or "\0" in choice:
            raise InputError(f"{spelled} {','.join(texts)!r} names no ExecuTorch", _HINT)
        if found.count(choice) > 1:
            raise InputError(f"{spelled} names {choice} twice", "Name each once.")
    if len(found) > MOST_CHOICES:
        raise InputError(f"{spelled} names {len(found)} versions", f"Name at most {MOST_CHOICES}.")
    return found
