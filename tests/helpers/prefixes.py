"""Install prefixes of ExecuTorch: a copy of the installed one, and what a build of one's own may have wrong."""

import shutil
import subprocess
from pathlib import Path

from model_profiling.runner.build import host_compiler
from model_profiling.runner.sdk import installed_sdk
from model_profiling.upstream.libraries import BACKEND, LINKED

_REAL, _RENAMED = "libexecutorch_threadpool.so", "libexecutorch_threadpooR.so"
# XNNPACK asks for it before it runs operators.
_SLOW = """
#include <dlfcn.h>
#include <stddef.h>
#include <time.h>

extern "C" size_t pthreadpool_get_threads_count(void* pool) {
  using Real = size_t (*)(void*);
  static const Real real = reinterpret_cast<Real>(dlsym(RTLD_NEXT, "pthreadpool_get_threads_count"));
  timespec start, now;
  clock_gettime(CLOCK_MONOTONIC, &start);
  do {
    clock_gettime(CLOCK_MONOTONIC, &now);
  } while ((now.tv_sec - start.tv_sec) * 1000000000L + now.tv_nsec - start.tv_nsec < %d);
  return real(pool);
}
"""


def prefix(home: Path) -> Path:
    """A prefix as the wheel has it, without what the runner does not need; files are second names where they can be."""
    sdk = installed_sdk()
    (home / "lib").mkdir(parents=True)
    (home / "include").mkdir()
    (home / "include" / "executorch").symlink_to(sdk.root / "include" / "executorch")
    for name in (*LINKED, BACKEND):
        shutil.copy(sdk.libraries / f"lib{name}.so", home / "lib")
    return home


def slow_prefix(home: Path, delay_ns: int) -> Path:
    """A prefix with a library of its own in front of the thread pool, which delays every operator a little."""
    lib = prefix(home) / "lib"
    (lib / _RENAMED).write_bytes((lib / _REAL).read_bytes().replace(_REAL.encode(), _RENAMED.encode()))
    (lib / _REAL).unlink()
    source = home / "slow.cpp"
    source.write_text(_SLOW % delay_ns)
    link = ["-Wl,--no-as-needed", f"-Wl,-soname,{_REAL}", "-Wl,-rpath,$ORIGIN", f"-L{lib}", f"-l:{_RENAMED}", "-ldl"]
    words = [*host_compiler(), "-shared", "-fPIC", "-O1", str(source), "-o", str(lib / _REAL), *link]
    subprocess.run(words, check=True, capture_output=True)
    return home
