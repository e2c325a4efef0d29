"""Builds the native runner against ExecuTorch, once per source, ExecuTorch, compiler and target."""

import os
import shlex
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from model_profiling.base import cache, files
from model_profiling.base.cache import kept_sha256
from model_profiling.base.code_path import python_command
from model_profiling.base.directories import CACHE_VARIABLE, cache_directory
from model_profiling.base.errors import InputError, SetupError
from model_profiling.base.programs import run_program
from model_profiling.runner import features
from model_profiling.runner.features import CpuId, Feature, HwCap
from model_profiling.runner.protocol import Exit
from model_profiling.runner.sdk import PYTHON_TAG, TARGETS, ZIG, BuildTarget, Sdk, host_target, sdk_for
from model_profiling.upstream import libraries as upstream
from model_profiling.upstream.libraries import LINKED, OFFSETS, table_problem
from model_profiling.upstream.reliance import why_not

NATIVE = Path(__file__).parent / "native"
PRIVATE_SYMBOLS = Path(upstream.__file__).parent / "native"
RUNNER_NAME = "sme2_runner"
WARNINGS = ("-Wall", "-Wextra")
LIBRARY_FLAGS = ("-O1", "-fPIC", "-shared", *WARNINGS)
_XCR0_BITS = {"sse": 0x0, "avx": 0x6, "avx512": 0xE6}
_REGISTERS = ("eax", "ebx", "ecx", "edx")


@dataclass(frozen=True)
class Build:
    """A finished runner and what made it; `compiler` is how `command` names itself."""

    path: Path
    target: BuildTarget
    sdk: Sdk
    compiler: str
    command: tuple[str, ...]


def build_runner(target_name: str | None = None, executorch: str | None = None) -> Build:
    """Return the runner for this machine, or for `target_name`; compiled only if it is not in the cache.

    `executorch` is a release or an install prefix to build it against; None: the installed one.
    """
    host = host_target()
    if target_name is not None and target_name not in TARGETS:
        raise InputError(f"unknown runner target '{target_name}'", f"Choose one of {', '.join(TARGETS)}.")
    target = TARGETS[target_name] if target_name else host
    problem = why_not(upstream.NAMES) or why_not(upstream.THREAD_COUNT)
    if problem and target == host and executorch is None:
        raise SetupError(problem, "Install an ExecuTorch that the kit knows: sme2-kit doctor --upstream names them.")
    command = host_compiler() if target == host else target.cross_compiler
    if target != host:
        _require(command, target)
    sdk = sdk_for(target, executorch)
    compiler = _compiler_version(command)
    tables = generate_tables(target, table_problem(sdk.libraries, target.arch))
    made_from = {
        **build_inputs(target, sdk, command, compiler),
        # Wherever this kit lies: the sources have a hash of their own.
        "calls": cache.digest(
            str(_calls(target, sdk, command, Path()))
            .replace(str(NATIVE), "native")
            .replace(str(PRIVATE_SYMBOLS), "upstream")
        ),
        "tables": cache.digest(tables),
        "sources": files.folder_sha256(NATIVE, "*") + files.folder_sha256(PRIVATE_SYMBOLS, "*"),
        # A header may be replaced in place; libraries are found when the runner is started.
        "headers": files.folder_sha256(sdk.include_directories[0], "*.h", cache.file_sha256),
    }

    def make(folder: Path) -> None:
        (folder / "kit_tables.h").write_text(tables, encoding="utf-8")
        log = cache.home_of("runner", made_from).with_suffix(".log")
        for call in _calls(target, sdk, command, folder):
            done = call_compiler(call, folder)
            if done.returncode != 0:
                files.write_text(log, f"{shlex.join(call)}\n\n{done.stderr}")
                first = next((line for line in done.stderr.splitlines() if "error" in line), "no message")
                raise SetupError(f"the runner did not compile: {first.strip()}", f"The compiler output is in {log}.")
        if not os.access(folder / RUNNER_NAME, os.X_OK):
            raise SetupError(
                f"programs in {cache_directory()} cannot be executed",
                f"Its file system may be mounted noexec: set {CACHE_VARIABLE} to a folder on another one.",
            )

    home = cache.entry("runner", "runner", made_from, make)
    return Build(home / RUNNER_NAME, target, sdk, compiler, command)


def build_inputs(target: BuildTarget, sdk: Sdk, command: tuple[str, ...], compiler: str) -> dict[str, str]:
    """Return what decides, with source and flags, what a compiler makes."""
    return {
        "target": target.name,
        "executorch": f"{sdk.version} {sdk.content}",
        "python": PYTHON_TAG,
        "compiler": f"{shlex.join(command)}: {compiler}",
    }


def host_compiler() -> tuple[str, ...]:
    """Return `$CXX`, else the first C++ compiler on the path."""
    candidates = [os.environ["CXX"]] if os.environ.get("CXX") else ["c++", "g++", "clang++"]
    for candidate in candidates:
        words = shlex.split(candidate)
        if words and shutil.which(words[0]):
            return tuple(words)
    hint = "xcode-select --install" if sys.platform == "darwin" else "apt-get install g++ (or your system's equivalent)"
    raise SetupError(f"no C++ compiler found (looked for {', '.join(candidates)})", f"Install one: {hint}.")


def _require(command: tuple[str, ...], target: BuildTarget) -> None:
    if command[0] == ZIG:
        available = call_compiler([ZIG, "version"]).returncode == 0
        hint = f"pip install {ZIG}"
    else:
        available = shutil.which(command[0]) is not None
        hint = f"apt-get install g++-{target.arch.replace('_', '-')}-linux-gnu"
    if not available:
        raise SetupError(f"no compiler for {target.name}", f"Install one: {hint}.")


def _compiler_version(command: tuple[str, ...]) -> str:
    # Some compilers drop temporary files where they are called.
    done = call_compiler([*command, "--version"], Path(tempfile.gettempdir()))
    if done.returncode != 0 or not done.stdout:
        raise SetupError(f"the compiler `{' '.join(command)}` does not run", "Check $CXX, or install a working one.")
    return done.stdout.splitlines()[0]


def call_compiler(words: Sequence[str], cwd: Path | None = None) -> "subprocess.CompletedProcess[str]":
    """Run a compiler; Zig's is a module of Python. Killed, it leaves nothing elsewhere than in `cwd`."""
    temporary = {} if cwd is None else {"TMPDIR": str(cwd)}
    command = python_command(*words) if words[0] == ZIG else words
    return run_program(command, cwd, doing=f"waiting for {words[0]}", env={**os.environ, **temporary})


def compile_command(
    target: BuildTarget, sdk: Sdk, command: tuple[str, ...], tables: Path, source: Path, out: Path
) -> list[str]:
    """Return the compiler call for one source file linked with ExecuTorch, without the XNNPACK backend."""
    macos = target.library_suffix == ".dylib"
    flags = ["-O2", "-std=c++17", *WARNINGS, "-DC10_USING_CUSTOM_GENERATED_MACROS", "-DET_EVENT_TRACER_ENABLED"]
    includes = [f"-I{path}" for path in (tables, NATIVE, PRIVATE_SYMBOLS)]
    # The warnings are about our code.
    includes += [word for path in sdk.include_directories for word in ("-isystem", str(path))]
    link = [f"-L{sdk.libraries}", f"-Wl,-rpath,{sdk.libraries}", *([] if macos else ["-Wl,--no-as-needed"])]
    libraries = [f"-l{name}" for name in LINKED] + [f"-l:{name}" for name in sdk.more] + ([] if macos else ["-ldl"])
    return [*command, *flags, *includes, str(source), "-o", str(out), *link, *libraries]


def built_libraries(
    build: Build, kind: str, what: str, made_for: Path, source: str, names: Sequence[str], *words: str
) -> Path:
    """Return the folder in the cache with shared libraries for a runner's target, made for the library `made_for`.

    The first of `names` is compiled from the source; the others only have to be there.
    """
    made_from = {
        **build_inputs(build.target, build.sdk, build.command, build.compiler),
        "libraries": " ".join(names),
        "flags": " ".join((*LIBRARY_FLAGS, *words)),
        "source": cache.digest(source),
        "library": kept_sha256(made_for),
    }

    def make(folder: Path) -> None:
        for index, name in enumerate(names):
            (folder / "source.cpp").write_text("" if index else source, encoding="utf-8")
            call = [*build.command, *LIBRARY_FLAGS, f"-Wl,-soname,{name}", "source.cpp", "-o", name, *words]
            done = call_compiler(call, folder)
            if done.returncode != 0:
                first = next((line for line in done.stderr.splitlines() if "rror" in line), "no message")
                raise SetupError(f"the {what} did not compile: {first}", "Use a GNU or Clang C++ compiler.")

    return cache.entry(kind, what, made_from, make)


def _calls(target: BuildTarget, sdk: Sdk, command: tuple[str, ...], folder: Path) -> list[list[str]]:
    """Return what to call in turn to make the runner in a folder that holds its tables.

    Zig would build a C++ library into it, for a minute and more. On macOS the system has one, which ExecuTorch's
    libraries use and load: the runner finds its symbols there.
    """
    source, out = NATIVE / "main.cpp", folder / RUNNER_NAME
    whole = compile_command(target, sdk, command, folder, source, out)
    if command[0] != ZIG:
        return [whole]
    end = whole.index(str(source))
    compiled = out.with_suffix(".o")
    link = [*command, str(compiled), *whole[end + 1 :], "-nostdlib++", "-Wl,-undefined,dynamic_lookup"]
    return [[*whole[: end + 1], "-c", "-o", str(compiled)], link]


def generate_tables(target: BuildTarget, unproven: str = "") -> str:
    """Return features.py and protocol.py as a C++ header, so that there is one table of each.

    `unproven` is why features cannot be masked with this ExecuTorch; empty if they can.
    """
    table = features.TABLES[target.arch]
    exits = ", ".join(f"{code.name} = {code.value}" for code in Exit)
    rows = ",\n".join(f"    {_feature_row(feature, table, OFFSETS[target.arch])}" for feature in table)
    plain = "".join(each if each.isprintable() and each not in '"\\' else "?" for each in unproven)
    aliases = ", ".join(f'{{"{name}", "{feature}"}}' for name, feature in features.ALIASES[target.arch].items())
    return f"""// Generated by runner/build.py for {target.name}. Do not edit.
#pragma once
#include "feature_row.h"
namespace kit {{
enum class Exit {{ {exits} }};
inline constexpr char kArch[] = "{target.arch}";
inline constexpr char kUnproven[] = "{plain}";
inline constexpr char kBackendLibrary[] = "{target.backend}";
inline constexpr Feature kFeatures[] = {{
{rows}
}};
inline constexpr Alias kAliases[] = {{ {aliases} }};
}}  // namespace kit
"""


def _feature_row(feature: Feature, table: tuple[Feature, ...], offsets: dict[str, int]) -> str:
    position = {other.name: index for index, other in enumerate(table)}
    parents = [position[name] for name in feature.requires] + [-1, -1]
    place = f'"{feature.name}", {offsets[feature.name]}'
    head = f"{place}, Agreement::{feature.agreement.name}, {{{parents[0]}, {parents[1]}}}"
    match feature.proof:
        case HwCap(word, bit, sysctl, also):
            hide = sum(1 << each for each in (bit, *also))
            return f'{{{head}, {word}, {bit}, {hide:#x}ul, "{sysctl}", 0, 0, 0, 0}}'
        case CpuId(leaf, subleaf, register, bit, enabled):
            return (
                f'{{{head}, 0, {bit}, 0, "", {leaf}, {subleaf}, {_REGISTERS.index(register)}, {_XCR0_BITS[enabled]}}}'
            )
