"""Small libraries that are loaded into the runner before its own, to make it misbehave in a way that is known."""

import subprocess
from pathlib import Path

from model_profiling.runner.kernel_trace import preload_environment

# Every inference goes through this function of libexecutorch, whatever calls it; it returns a number.
_LEAK = """
#define _GNU_SOURCE
#include <dlfcn.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
uint32_t _ZN10executorch7runtime6Method7executeEv(void* self) {
  static uint32_t (*real)(void*);
  if (!real) real = (uint32_t (*)(void*))dlsym(RTLD_NEXT, "_ZN10executorch7runtime6Method7executeEv");
  memset(malloc(1 << 20), 1, 1 << 20);
  return real(self);
}
"""
# Whoever asks the system for an account of its memory is an hour older.
_SLOW_ACCOUNT = """
#define _GNU_SOURCE
#include <dlfcn.h>
#include <stdio.h>
#include <string.h>
#include <time.h>
static long hours;
static void look(const char* path) { if (strcmp(path, "/proc/self/statm") == 0) ++hours; }
FILE* fopen(const char* path, const char* mode) {
  look(path);
  return ((FILE* (*)(const char*, const char*))dlsym(RTLD_NEXT, "fopen"))(path, mode);
}
FILE* fopen64(const char* path, const char* mode) {
  look(path);
  return ((FILE* (*)(const char*, const char*))dlsym(RTLD_NEXT, "fopen64"))(path, mode);
}
int clock_gettime(clockid_t clock, struct timespec* at) {
  const int code = ((int (*)(clockid_t, struct timespec*))dlsym(RTLD_NEXT, "clock_gettime"))(clock, at);
  if (clock == CLOCK_MONOTONIC || clock == CLOCK_BOOTTIME) at->tv_sec += 3600 * hours;
  return code;
}
"""
# Starts a command from a small process, and prints the most kilobytes that the system says it held.
_PEAK_OF = """
#include <stdio.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>
int main(int count, char** words) {
  const pid_t child = fork();
  if (child == 0) { execv(words[1], words + 1); _exit(127); }
  int status;
  struct rusage usage;
  wait4(child, &status, 0, &usage);
  fprintf(stderr, "peak %ld\\n", usage.ru_maxrss);
  return WIFEXITED(status) ? WEXITSTATUS(status) : 1;
}
"""


def leaking(home: Path) -> Path:
    """A library with which every inference keeps 1 MiB more."""
    return _built(home / "leak.so", _LEAK, "-shared", "-fPIC")


def slow_account(home: Path) -> Path:
    """A library with which reading /proc/self/statm takes an hour, by the clock of the process."""
    return _built(home / "slow.so", _SLOW_ACCOUNT, "-shared", "-fPIC")


def before(library: Path) -> list[str]:
    """The words before a command that load a library into it."""
    return ["env", *(f"{name}={value}" for name, value in preload_environment(library).items())]


def peak_of(home: Path) -> Path:
    """A program that runs another one and says its peak, as `/usr/bin/time -v` does."""
    return _built(home / "peak_of", _PEAK_OF)


def _built(target: Path, source: str, *flags: str) -> Path:
    file = target.with_suffix(".c")
    file.write_text(source)
    subprocess.run(["cc", *flags, "-o", str(target), str(file), "-ldl"], check=True)
    return target
