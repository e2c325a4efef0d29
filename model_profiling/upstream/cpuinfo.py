"""cpuinfo's table of CPU features, from which XNNPACK chooses kernels: where each feature has its byte."""

import platform
from pathlib import Path

from model_profiling.base.elf import Library, read_library
from model_profiling.upstream.libraries import THREADPOOL, file_of, installed_library
from model_profiling.upstream.reliance import PROVEN, Reliance, why_not

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


def _check() -> str:
    machine = platform.machine().lower()
    arch = {"arm64": "aarch64", "amd64": "x86_64"}.get(machine, machine)
    return _size_problem(installed_library(THREADPOOL), arch)


FEATURE_TABLE = Reliance(
    "feature-table",
    "cpuinfo",
    f"`{TABLE_SYMBOL}`: which byte stands for which CPU feature, read once by XNNPACK when its library is loaded",
    f"cpuinfo in {PROVEN}",
    "the table's size in the library, and every byte against HWCAP, CPUID or sysctl each time the runner starts",
    _check,
    "features cannot be switched off: one experiment, no on/off comparison",
)
RELIANCES = (FEATURE_TABLE,)
