"""An ExecuTorch build of the user's own: an install prefix, checked before anything is built, and kept by its content.

What the runner needs of it is copied into the cache under a hash of all of it: libraries that are built again in their
place are others, and a run is of one state of them.
"""

import hashlib
import re
from pathlib import Path

from model_profiling.base import cache, files
from model_profiling.base.directories import from_home
from model_profiling.base.elf import MACHINES, read_library
from model_profiling.base.errors import InputError, KitError, SetupError
from model_profiling.runner.sdk import Sdk, drop_pages
from model_profiling.runner.targets import BuildTarget
from model_profiling.upstream.cpuinfo import INITIALIZE_SYMBOL, TABLE_SYMBOL
from model_profiling.upstream.kernel_calls import INITIALIZE_XNNPACK
from model_profiling.upstream.libraries import BACKEND, CUSTOM_OPERATORS, LINKED, file_of

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
    lacking = [header for header in _headers() if not files.is_file(include / header)]
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


def _headers() -> list[str]:
    """Return the headers that the runner's own source includes."""
    code = "".join(files.content(path).decode() for path in sorted(_NATIVE.iterdir()))
    return sorted(set(re.findall(r"#include <(executorch/[^>]+)>", code)))


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
    for path, pattern in (
        (root / "version.txt", r"\s*(\S+)"),
        (root / "version.py", r"__version__ *= *[\"'](.+?)[\"']"),
    ):
        if files.is_file(path):
            found = re.search(pattern, files.read_bytes(path, "version", 1 << 16).decode(errors="replace"))
            if found and _VERSION.fullmatch(found[1]):
                return found[1]
    beside = sorted(root.parent.glob("executorch-*.dist-info")) if root.name == "executorch" else []
    names = [path.name.removeprefix("executorch-").removesuffix(".dist-info") for path in beside]
    return next((name for name in names if _VERSION.fullmatch(name)), "")
