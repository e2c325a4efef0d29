"""Stand-ins for what ExecuTorch's operators for language models take from PyTorch and Python, and never use.

The wheel has these operators only in a library made for export, which registers them with ExecuTorch and with PyTorch.
Stubs are made from its own symbol table: registrations with PyTorch go nowhere, all else ends the process.
ExecuTorch's part of the library uses none of it.
"""

import re
import sys

from model_profiling.base.elf import Library, read_library
from model_profiling.upstream.libraries import CUSTOM_OPERATORS
from model_profiling.upstream.reliance import NotCheckable, installed_file, reliance

# Who gives what the library takes: the runner has loaded these before it.
_LOADED = ("executorch", "cpuinfo")
# Compilers ask for these without needing them.
_OPTIONAL = ("_ITM_", "__gmon_start__", "__pthread_key_create", "__cxa_finalize")
# Called while the library is loaded, in order to register operators with PyTorch.
_QUIET = ("7LibraryC", "4_defE", "5_implE", "CppFunctionD", "8TypeMeta", "ios_base_library_init")
# These return a c10::FunctionSchema, of which nothing is read: it must only survive being moved and destroyed, which
# zeros do. What has a destructor in it, two strings twice and two vectors, lies in these bytes.
_SCHEMA = ("parseSchema", "make_function_schema")
SCHEMA_BYTES = 112
# Whose symbols may be stubs: PyTorch's namespaces in mangled names, BLAS, which is in PyTorch, Python's functions, and
# what a C++ library may be too old to have.
_ABSENT = re.compile(r"_Z\w*(3c10|2at|5torch|6caffe2)|[sdcz]gemm_$|_?Py|_ZN?O?St")


def generate_stubs(library: Library) -> str:
    """Return definitions of all that it takes from libraries which are absent."""
    lines = ["#include <stdlib.h>", f"struct Schema {{ ~Schema() {{}} long zero[{SCHEMA_BYTES // 8}]; }};"]
    for index, name in enumerate(library.taken):
        if not _is_absent(name):
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


def _is_absent(name: str) -> bool:
    """Return whether nobody gives a symbol that the library takes: neither the runner nor a compiler's runtime."""
    return not name.startswith(_OPTIONAL) and not any(part in name for part in _LOADED)


def _check() -> str:
    if sys.platform == "darwin":
        raise NotCheckable("the kit's runner does not load them on macOS")
    library = read_library(installed_file(CUSTOM_OPERATORS))
    absent = [name for name in library.taken if _is_absent(name)]
    if unknown := [name for name in absent if not _ABSENT.match(name)]:
        return f"{CUSTOM_OPERATORS} takes {unknown[0]}, which is nothing of PyTorch or Python"
    parts = (("registers operators", _QUIET[:1]), ("reads their schemas", _SCHEMA))
    missing = [what for what, names in parts if not any(each in name for name in absent for each in names)]
    return f"{CUSTOM_OPERATORS} no longer {missing[0]} as it did" if missing else ""


STUBS = reliance("operator-stubs", _check)
