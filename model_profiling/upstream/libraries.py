"""The shared libraries that ExecuTorch's wheel has, and what the runner takes of them without a header."""

import sys
from pathlib import Path

from model_profiling.base.elf import Library, read_library
from model_profiling.upstream.installed_wheel import executorch_folder, installed_file
from model_profiling.upstream.reliance import PROVEN, NotCheckable, Reliance

# Linked at build time: everything but the XNNPACK backend, which is loaded after the features are masked.
LINKED = (
    "executorch",
    "executorch_etdump",
    "executorch_kernels_optimized",
    "executorch_kernels_quantized",
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


NAMES = Reliance(
    "library-names",
    "ExecuTorch",
    "the wheel has headers in include/ and its runtime in lib/: " + ", ".join(map(file_of, (*LINKED, BACKEND))),
    PROVEN,
    "the files are there when a runner is built",
    _check_names,
    "no runner is built: give a runner of your own (runner_path)",
    essential=True,
)
THREAD_COUNT = Reliance(
    "thread-count",
    "ExecuTorch",
    "get_threadpool(), _unsafe_reset_threadpool(n) and get_thread_count() of the library, of which it has no header",
    PROVEN,
    f"{file_of(THREADPOOL)} exports them; the runner asks how many threads there are after it has set them",
    _check_pool,
    "no runner is built: give a runner of your own (runner_path)",
    essential=True,
)
RELIANCES = (NAMES, THREAD_COUNT)
