"""ExecuTorch's shared libraries, and what is in them: cpuinfo's table of CPU features, and KleidiAI's kernels."""

import platform
import sys
from pathlib import Path

from model_profiling.base.elf import MACHINES, Library, read_library
from model_profiling.upstream.reliance import NotCheckable, executorch_folder, installed_file, reliance, why_not

# Linked at build time: everything but the XNNPACK backend, which is loaded after the features are masked.
LINKED = (
    *("executorch", "executorch_etdump", "executorch_kernels_optimized", "executorch_kernels_quantized"),
    "executorch_threadpool",
)
BACKEND = "executorch_backend_xnnpack"
# What the names of all its libraries begin with.
PREFIX = "libexecutorch"
# It also has cpuinfo, for all the others.
THREADPOOL = "executorch_threadpool"
# ExecuTorch's operators for language models, in a library made for export.
CUSTOM_OPERATORS = "extension/llm/custom_ops/libcustom_ops_aot_lib.so"
_POOL = "10executorch9extension10threadpool"
_POOL_MEMBERS = (
    f"_ZN{_POOL}14get_threadpoolEv",
    f"_ZN{_POOL}10ThreadPool24_unsafe_reset_threadpoolEj",
    f"_ZNK{_POOL}10ThreadPool16get_thread_countEv",
)


def file_of(name: str, suffix: str = ".so") -> str:
    """Return the name of a library's file: `libexecutorch.so` of `executorch`."""
    return f"lib{name}{suffix}"


def missing_libraries(folder: Path, suffix: str = ".so") -> list[str]:
    """Return the files that a runner needs and that a folder of libraries does not have."""
    return [file for name in (*LINKED, BACKEND) if not (folder / (file := file_of(name, suffix))).is_file()]


def installed_library(name: str) -> Library:
    """Return what a library of the installed wheel defines; raises NotCheckable where there are no ELF libraries."""
    if sys.platform == "darwin":
        raise NotCheckable("libraries of macOS are not looked into; the runner finds out when it starts")
    return read_library(installed_file(f"lib/{file_of(name)}"))


def _check_names() -> str:
    if (folder := executorch_folder()) is None:
        raise NotCheckable("executorch is not installed")
    missing = missing_libraries(folder / "lib", ".dylib" if sys.platform == "darwin" else ".so")
    return f"the installed executorch has no {', '.join(missing)}" if missing else ""


def _check_pool() -> str:
    defined = installed_library(THREADPOOL).defined
    missing = [name for name in _POOL_MEMBERS if name not in defined]
    return f"{file_of(THREADPOOL)} does not export {missing[0]}" if missing else ""


NAMES = reliance("library-names", _check_names)
THREAD_COUNT = reliance("thread-count", _check_pool)

# cpuinfo's table of CPU features, from which XNNPACK chooses kernels: where each feature has its byte.

TABLE_SYMBOL, INITIALIZE_SYMBOL = "cpuinfo_isa", "cpuinfo_initialize"
# How large the table is: a cpuinfo that has another size has another layout.
_TABLE_BYTES = {"aarch64": 32, "x86_64": 85}
OFFSETS: dict[str, dict[str, int]] = {
    "aarch64": {
        **{"atomics": 0, "bf16": 1, "sve": 2, "sve2": 3, "i8mm": 4, "sme": 5, "sme2": 6, "sme2p1": 7},
        **{"sme_i16i32": 8, "sme_bi32i32": 9, "sme_b16b16": 10, "sme_f16f16": 11},
        **{"rdm": 20, "fp16arith": 21, "dot": 22},
    },
    "x86_64": {
        **{"ssse3": 17, "sse4_1": 18, "avx": 22, "avxvnni": 23, "fma3": 24, "f16c": 27, "avx2": 28, "avx512f": 29},
        **{"avx512cd": 32, "avx512dq": 33, "avx512bw": 34, "avx512vl": 35, "avx512ifma": 36, "avx512vbmi": 37},
        **{"avx512vbmi2": 38, "avx512bitalg": 39, "avx512vpopcntdq": 40, "avx512vnni": 41, "avx512bf16": 42},
        **{"avx512fp16": 43, "amx_bf16": 49, "amx_tile": 50, "amx_int8": 51},
    },
}


def table_problem(libraries: Path, arch: str) -> str:
    """Return why features cannot be masked with the libraries in a folder; '' if nothing speaks against it."""
    if problem := why_not(FEATURE_TABLE):
        return problem
    library = libraries / file_of(THREADPOOL)
    return _size_problem(read_library(library), arch) if library.is_file() else ""


def _size_problem(library: Library, arch: str) -> str:
    size, expected = library.defined.get(TABLE_SYMBOL), _TABLE_BYTES[arch]
    if size == expected:
        return ""
    found = "is not exported" if size is None else f"has {size} bytes, not {expected}"
    return f"{TABLE_SYMBOL} in {file_of(THREADPOOL)} {found}"


def _check_table() -> str:
    machine = platform.machine().lower()
    arch = {"arm64": "aarch64", "amd64": "x86_64"}.get(machine, machine)
    return _size_problem(installed_library(THREADPOOL), arch)


FEATURE_TABLE = reliance("feature-table", _check_table)

# KleidiAI's kernels as the XNNPACK backend calls them, and XNNPACK's clock: what kernel traces are made of.

# What the names of its functions begin with, and of those that multiply matrices.
KERNEL_PREFIX = "kai_run_"
MATRIX_KERNEL = "kai_run_matmul"
# XNNPACK's own entry into a delegate, which ExecuTorch calls in the same way.
INVOKE = "xnn_invoke_runtime"
# What a library exports that has XNNPACK in it.
INITIALIZE_XNNPACK = "xnn_initialize"
_NO_KERNELS = f"{file_of(BACKEND)} calls no {KERNEL_PREFIX}* function in a way that can be seen"


def traceable_kernels(library: Library) -> list[str]:
    """Return the kernels of a backend library that a preloaded library can stand in for, in order."""
    return sorted(name for name in library.bound_late & library.defined.keys() if name.startswith(KERNEL_PREFIX))


def trace_problem(libraries: Path) -> str:
    """Return why kernels cannot be traced with the aarch64 libraries in a folder; '' if they can."""
    if problem := why_not(KERNEL_CALLS):
        return problem
    return "" if traceable_kernels(read_library(libraries / file_of(BACKEND))) else _NO_KERNELS


def _check_calls() -> str:
    backend = installed_library(BACKEND)
    if backend.machine != MACHINES["aarch64"]:
        raise NotCheckable("the backend for this machine has no KleidiAI kernels; checked when one for Arm is used")
    return "" if traceable_kernels(backend) else _NO_KERNELS


def _checked_by_trace() -> str:
    raise NotCheckable("every trace is checked against its ETDump")


KERNEL_CALLS = reliance("kernel-calls", _check_calls)
CLOCK_READS = reliance("clock-reads", _checked_by_trace)
