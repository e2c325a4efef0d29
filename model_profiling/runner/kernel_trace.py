"""Which KleidiAI kernels really ran, and for which operator: a preloaded shim made from the backend's own symbol table.

The aarch64 backend calls its `kai_run_*` functions through its GOT, so a preloaded library that defines the same names
sees every call: each trampoline notes the call and jumps on to the real function, all argument registers untouched.
XNNPACK, with profiling on as in the wheel, reads the clock when a delegate starts and after each operator *object*; an
operator has one of them, a concatenation as many as it has inputs. The shim answers those reads (they come from inside
the backend) with times of its own, of which no two neighbours are equally far apart, and writes down each. XNNPACK
makes an operator's duration in the ETDump of them, so the dump itself says at which read each operator ended, and
kernels fall between operators exactly. A traced run is evidence and never timing.
"""

import os
from pathlib import Path

from model_profiling.base.elf import read_library
from model_profiling.base.errors import SetupError
from model_profiling.runner.build import Build, built_libraries
from model_profiling.upstream.libraries import BACKEND, INVOKE, file_of, trace_problem, traceable_kernels

TRACE_VARIABLE = "SME2_KIT_KERNEL_TRACE"
_SHIM = "libsme2_kit_trace.so"
_RECORDER = Path(__file__).with_name("trace_shim.cpp")
_BACKEND = file_of(BACKEND)


def build_shim(build: Build) -> Path:
    """Compile the shim for the runner's target, once per backend and compiler; needs an aarch64 Linux target."""
    if build.target.name != "linux-aarch64":
        raise SetupError(
            f"the XNNPACK backend for {build.target.name} has no KleidiAI kernels to trace",
            "KleidiAI is for Arm: trace on aarch64 Linux or with --platform emulator.",
        )
    backend = build.sdk.libraries / _BACKEND
    if problem := trace_problem(build.sdk.libraries):
        raise SetupError(
            f"kernels cannot be traced: {problem}", "Use a release that `sme2-kit doctor --upstream` names."
        )
    symbols = traceable_kernels(read_library(backend))
    source = generate_shim([*symbols, INVOKE])
    return built_libraries(build, "shim", "kernel trace library", backend, source, [_SHIM], "-ldl") / _SHIM


def preload_environment(library: Path) -> dict[str, str]:
    """Return variables that preload `library`: by its name, as a space in LD_PRELOAD ends a path."""
    folders = filter(None, [str(library.parent), os.environ.get("LD_LIBRARY_PATH")])
    return {"LD_PRELOAD": library.name, "LD_LIBRARY_PATH": os.pathsep.join(folders)}


def generate_shim(symbols: list[str]) -> str:
    """Return the shim's source: one trampoline per kernel, and a recorder."""
    names = ",\n".join(f'  "{name}"' for name in symbols)
    trampolines = "\n".join(_trampoline(index, name) for index, name in enumerate(symbols))
    values = {"@NAMES@": names, "@COUNT@": str(len(symbols)), "@BACKEND@": _BACKEND}
    recorder = _RECORDER.read_text(encoding="utf-8")
    for mark, value in values.items():
        recorder = recorder.replace(mark, value)
    return recorder + trampolines


def _trampoline(index: int, name: str) -> str:
    """Note the call, then jump to the real kernel with every argument register and the stack as they were."""
    pairs = [(0, 1), (2, 3), (4, 5), (6, 7)]
    save = "".join(f" stp x{a}, x{b}, [sp, #{16 + 8 * a}]\\n" for a, b in pairs) + " str x8, [sp, #80]\\n"
    save += "".join(f" stp q{a}, q{b}, [sp, #{96 + 16 * a}]\\n" for a, b in pairs)
    load = save.replace("stp", "ldp").replace("str", "ldr")
    return (
        f'__asm__(".text\\n.globl {name}\\n.type {name}, %function\\n{name}:\\n'
        " stp x29, x30, [sp, #-240]!\\n mov x29, sp\\n"
        f"{save} mov w0, #{index}\\n bl sme2_kit_note\\n mov x16, x0\\n{load} ldp x29, x30, [sp], #240\\n br x16\\n"
        f'.size {name}, .-{name}\\n");'
    )
