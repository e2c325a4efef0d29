"""ExecuTorch's operators for language models (`llama::custom_sdpa`, `llama::update_cache` and so on), without PyTorch.

The wheel has them only in a library made for export, which registers them with ExecuTorch and with PyTorch, and wants
libtorch and Python loaded. What it takes from those is defined here instead, in stub libraries under their names, made
from its own symbol table: registrations with PyTorch go nowhere, all else ends the process. ExecuTorch's part of the
library uses none of it.
"""

from collections.abc import Iterable
from pathlib import Path

from model_profiling.base import cache
from model_profiling.base.errors import SetupError
from model_profiling.formats.graph_terms import CUSTOM_OPERATORS
from model_profiling.runner.build import LIBRARY_FLAGS, Build, build_inputs, compile_library
from model_profiling.runner.elf import Library, read_library
from model_profiling.runner.sdk import OPERATOR_LIBRARY

LIBRARY = OPERATOR_LIBRARY
_OWN = "Give a runner_path with these operators built in, or export without them."
# Who gives what the library takes: the runner has loaded these before it.
_LOADED = ("executorch", "cpuinfo")
_SYSTEM = ("libstdc++.", "libm.", "libgcc_s.", "libc.", "libdl.", "libpthread.", "librt.", "ld-linux")
# Compilers ask for these without needing them.
_OPTIONAL = ("_ITM_", "__gmon_start__", "__pthread_key_create", "__cxa_finalize")
# Called while the library is loaded, in order to register operators with PyTorch.
_QUIET = ("7LibraryC", "4_defE", "5_implE", "CppFunctionD", "8TypeMeta", "ios_base_library_init")
# These return a c10::FunctionSchema, of which nothing is read: it must only survive being moved and destroyed, which
# zeros do. What has a destructor in it, two strings twice and two vectors, lies in these bytes.
_SCHEMA = ("parseSchema", "make_function_schema")
SCHEMA_BYTES = 112


def needs_custom_operators(operators: Iterable[str]) -> bool:
    return any(name.startswith(CUSTOM_OPERATORS) for name in operators)


def operator_libraries(build: Build) -> tuple[Path, ...]:
    """Return what the runner has to load, in this order, to have ExecuTorch's operators for language models."""
    library = build.sdk.root / LIBRARY
    if build.target.library_suffix != ".so":
        raise SetupError(f"the kit's runner cannot load {CUSTOM_OPERATORS}* operators on {build.target.name}", _OWN)
    if not library.is_file():
        raise SetupError(f"executorch {build.sdk.version} has no {LIBRARY.name} for {build.target.name}", _OWN)
    taken = read_library(library)
    # Those that it wants loaded and that the runner does not have.
    stubs = [name for name in taken.needed if not name.startswith((*_SYSTEM, "libexecutorch"))]
    source = generate_stubs(taken)
    made_from = {
        **build_inputs(build.target, build.sdk, build.command, build.compiler),
        "libraries": " ".join(stubs),
        "flags": " ".join(LIBRARY_FLAGS),
        "source": cache.digest(source),
    }
    home = cache.entry(
        "operators", "operator library", made_from, lambda folder: _compile(build, folder, stubs, source)
    )
    return (*(home / name for name in stubs), library)


def generate_stubs(library: Library) -> str:
    """Return definitions of all that it takes from libraries which are absent."""
    lines = ["#include <stdlib.h>", f"struct Schema {{ ~Schema() {{}} long zero[{SCHEMA_BYTES // 8}]; }};"]
    for index, name in enumerate(library.taken):
        if name.startswith(_OPTIONAL) or any(part in name for part in _LOADED):
            continue
        label = f'asm("{name}")'
        if name.endswith("_singletonE"):
            lines.append(f'extern "C" char f{index}[4096] {label}; char f{index}[4096];')
        elif any(part in name for part in _SCHEMA):
            lines.append(f"Schema f{index}() {label}; Schema f{index}() {{ return Schema{{{{}}}}; }}")
        else:
            body = "" if any(part in name for part in _QUIET) else " abort(); "
            lines.append(f'extern "C" void f{index}() {label}; void f{index}() {{{body}}}')
    return "\n".join(lines) + "\n"


def _compile(build: Build, folder: Path, names: list[str], source: str) -> None:
    """Compile all stubs into the first library; the others only have to be there."""
    (folder / "stubs.cpp").write_text(source, encoding="utf-8")
    (folder / "empty.cpp").write_text("", encoding="utf-8")
    for index, name in enumerate(names):
        code = "empty.cpp" if index else "stubs.cpp"
        compile_library(build, folder, f"the stubs for {LIBRARY.name}", f"-Wl,-soname,{name}", "-o", name, code)
