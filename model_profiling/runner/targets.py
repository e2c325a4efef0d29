"""Platforms that the runner is built for, and the libraries of ExecuTorch that it needs on each of them."""

import platform
import sys
from dataclasses import dataclass

from model_profiling.base.errors import SetupError
from model_profiling.runner import features

# A compiler in a Python package, which is called through Python; see `call_compiler`.
ZIG = "ziglang"
# Linked at build time: everything but the XNNPACK backend, which is loaded after the features are masked.
LINKED = (
    "executorch",
    "executorch_etdump",
    "executorch_kernels_optimized",
    "executorch_kernels_quantized",
    "executorch_threadpool",
)
BACKEND = "executorch_backend_xnnpack"


@dataclass(frozen=True)
class BuildTarget:
    """A platform the runner is built for, the pip tag of its wheel, and who can compile for it from elsewhere."""

    name: str
    arch: str
    pip_platform: str
    cross_compiler: tuple[str, ...]
    library_suffix: str = ".so"


TARGETS = {
    target.name: target
    for target in (
        BuildTarget("linux-x86_64", "x86_64", "manylinux_2_28_x86_64", ("x86_64-linux-gnu-g++",)),
        BuildTarget("linux-aarch64", "aarch64", "manylinux_2_28_aarch64", ("aarch64-linux-gnu-g++",)),
        BuildTarget(
            "macos-arm64",
            "aarch64",
            "macosx_14_0_arm64",
            (ZIG, "c++", "-target", "aarch64-macos"),
            ".dylib",
        ),
    )
}


def host_target() -> BuildTarget:
    """Return the target this machine runs natively."""
    system = "macos" if sys.platform == "darwin" else sys.platform
    arch = features.architecture(platform.machine())
    name = f"{system}-{'arm64' if system == 'macos' and arch == 'aarch64' else arch}"
    if name not in TARGETS:
        raise SetupError(
            f"ExecuTorch has no C++ wheel for {name}", f"The kit runs on {', '.join(TARGETS)}; use one of those."
        )
    return TARGETS[name]
