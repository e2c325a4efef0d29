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

from model_profiling.base import cache
from model_profiling.base.elf import read_library
from model_profiling.base.errors import SetupError
from model_profiling.base.kept_hashes import kept_sha256
from model_profiling.runner.build import LIBRARY_FLAGS, Build, build_inputs, compile_library
from model_profiling.upstream.kernel_calls import INVOKE, trace_problem, traceable_kernels
from model_profiling.upstream.libraries import BACKEND, file_of

TRACE_VARIABLE = "SME2_KIT_KERNEL_TRACE"
_SHIM = "libsme2_kit_trace.so"
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
    made_from = {
        **build_inputs(build.target, build.sdk, build.command, build.compiler),
        "flags": " ".join(LIBRARY_FLAGS),
        "source": cache.digest(source),
        "library": kept_sha256(backend),
    }
    home = cache.entry("shim", "kernel trace library", made_from, lambda folder: _compile(build, folder, source))
    return home / _SHIM


def _compile(build: Build, folder: Path, source: str) -> None:
    (folder / "shim.cpp").write_text(source, encoding="utf-8")
    compile_library(build, folder, "the kernel trace shim", "shim.cpp", "-o", _SHIM, "-ldl")


def preload_environment(library: Path) -> dict[str, str]:
    """Return variables that preload `library`: by its name, as a space in LD_PRELOAD ends a path."""
    folders = filter(None, [str(library.parent), os.environ.get("LD_LIBRARY_PATH")])
    return {"LD_PRELOAD": library.name, "LD_LIBRARY_PATH": os.pathsep.join(folders)}


def generate_shim(symbols: list[str]) -> str:
    """Return the shim's source: one trampoline per kernel, and a recorder."""
    names = ",\n".join(f'  "{name}"' for name in symbols)
    trampolines = "\n".join(_trampoline(index, name) for index, name in enumerate(symbols))
    values = {"@NAMES@": names, "@COUNT@": str(len(symbols)), "@BACKEND@": _BACKEND}
    recorder = _RECORDER
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


# Records are {kernel, calls} or {-1 for a mark, ns told}; written as text when the process ends.
_RECORDER = r"""
#include <dlfcn.h>
#include <link.h>
#include <pthread.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

static const char *const kNames[] = {
@NAMES@
};
struct Record { int32_t kernel; uint64_t value; };
static Record *records;
static size_t used, room;
static uint64_t reads, told;
static void *real[@COUNT@];
static uintptr_t backend_start, backend_end;
static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;

static void add(int32_t kernel, uint64_t value) {
  // Calls of one kernel for one operator are one record: an operator has few kernels and may call them very often.
  for (size_t i = used; kernel >= 0 && i > 0 && records[i - 1].kernel >= 0; --i) {
    if (records[i - 1].kernel != kernel) continue;
    records[i - 1].value++;
    return;
  }
  if (used == room) {
    const size_t more = room ? 2 * room : 4096;
    Record *const grown = static_cast<Record *>(realloc(records, more * sizeof(Record)));
    if (grown == nullptr) abort();  // a trace with holes would be believed
    records = grown;
    room = more;
  }
  records[used++] = Record{kernel, value};
}

extern "C" __attribute__((visibility("hidden"))) void *sme2_kit_note(int32_t kernel) {
  pthread_mutex_lock(&lock);
  if (real[kernel] == nullptr) {
    real[kernel] = dlsym(dlopen("@BACKEND@", RTLD_NOLOAD | RTLD_NOW), kNames[kernel]);
    if (real[kernel] == nullptr) abort();
  }
  add(kernel, 1);
  pthread_mutex_unlock(&lock);
  return real[kernel];
}

static int find_backend(dl_phdr_info *info, size_t, void *) {
  if (strstr(info->dlpi_name, "@BACKEND@") == nullptr) return 0;
  backend_start = info->dlpi_addr;
  for (int i = 0; i < info->dlpi_phnum; ++i) {
    const uintptr_t end = info->dlpi_addr + info->dlpi_phdr[i].p_vaddr + info->dlpi_phdr[i].p_memsz;
    if (info->dlpi_phdr[i].p_type == PT_LOAD && end > backend_end) backend_end = end;
  }
  return 1;
}

// Each read is another number of microseconds, XNNPACK's unit, after the one before it.
static uint64_t tell() {
  pthread_mutex_lock(&lock);
  const uint64_t now = told += (1 + reads++ % 4096) * 1000;
  add(-1, now);
  pthread_mutex_unlock(&lock);
  return now;
}

// The kit's runner has a clock of its own, which asks here; other runners read the C library's, which is below.
extern "C" int sme2_kit_read_clock(void *from, clockid_t clock, timespec *at) {
  const uintptr_t caller = reinterpret_cast<uintptr_t>(from);
  if (backend_end == 0) dl_iterate_phdr(find_backend, nullptr);
  if (caller >= backend_start && caller < backend_end) {
    const uint64_t now = tell();
    *at = timespec{time_t(now / 1000000000u), long(now % 1000000000u)};
    return 0;
  }
  return syscall(SYS_clock_gettime, clock, at);
}

extern "C" int clock_gettime(clockid_t clock, timespec *at) {
  return sme2_kit_read_clock(__builtin_return_address(0), clock, at);
}

__attribute__((destructor)) static void report() {
  const char *const path = getenv("SME2_KIT_KERNEL_TRACE");
  if (path == nullptr) return;
  FILE *const file = fopen(path, "w");
  if (file == nullptr) return;
  for (size_t i = 0; i < used; ++i) {
    const Record &r = records[i];
    fprintf(file, "%s %llu\n", r.kernel < 0 ? "-" : kNames[r.kernel], (unsigned long long)r.value);
  }
  fputs("end\n", file);
  fclose(file);
}
"""
