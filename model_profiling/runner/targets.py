"""Platforms that the runner is built for."""

import platform
import sys
from dataclasses import dataclass

from model_profiling.base.errors import SetupError
from model_profiling.runner import features
from model_profiling.upstream.libraries import BACKEND, file_of

# A compiler in a Python package, which is called through Python; see `call_compiler`.
ZIG = "ziglang"


@dataclass(frozen=True)
class BuildTarget:
    """A platform the runner is built for, the pip tag of its wheel, and who can compile for it from elsewhere."""

    name: str
    arch: str
    pip_platform: str
    cross_compiler: tuple[str, ...]
    library_suffix: str = ".so"

    @property
    def backend(self) -> str:
        """The XNNPACK backend, as the runner opens it."""
        name = file_of(BACKEND, self.library_suffix)
        return f"@rpath/{name}" if self.library_suffix == ".dylib" else name


TARGETS = {
    target.name: target
    for target in (
        BuildTarget("linux-x86_64", "x86_64", "manylinux_2_28_x86_64", ("x86_64-linux-gnu-g++",)),
        BuildTarget("linux-aarch64", "aarch64", "manylinux_2_28_aarch64", ("aarch64-linux-gnu-g++",)),
        BuildTarget("macos-arm64", "aarch64", "macosx_14_0_arm64", (ZIG, "c++", "-target", "aarch64-macos"), ".dylib"),
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
