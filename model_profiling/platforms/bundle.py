"""What is pushed to a device so that the Linux runner works there: runner, ExecuTorch, loader and C/C++ runtime.

Android has no glibc, so the runner brings its own and is started through its own loader, as
`ld-linux-aarch64.so.1 --library-path DIR DIR/sme2_runner …`. No NDK and no second build of ExecuTorch are needed.
"""

import functools
import hashlib
import tempfile
from dataclasses import dataclass
from pathlib import Path

from model_profiling.base import cache, files
from model_profiling.base.cache import kept_sha256
from model_profiling.base.elf import MACHINES
from model_profiling.base.errors import SetupError
from model_profiling.runner.build import RUNNER_NAME, Build, call_compiler
from model_profiling.upstream.libraries import BACKEND, LINKED, file_of

_LOADERS = {"aarch64": "ld-linux-aarch64.so.1", "x86_64": "ld-linux-x86-64.so.2"}
_EXECUTORCH = tuple(map(file_of, (*LINKED, BACKEND)))
# What it says on the device: every file, its licence, and where its source is.
_LICENCE_FILE = "LICENCES.txt"
_LICENCES_HEAD = "Pushed by the SME2 ExecuTorch Profiling Kit to measure on this device."
_LICENCES_TAIL = "Sources: the packages gcc and glibc of the distribution it was built on; executorch on PyPI."
_GLIBC = ("libc.so.6", "libm.so.6", "libdl.so.2", "libpthread.so.0", "librt.so.1")
_GCC = ("libstdc++.so.6", "libgcc_s.so.1")
_OWN_LICENCE = "that of the ExecuTorch build it was installed with"
LICENCES = {
    RUNNER_NAME: "Apache-2.0",
    **dict.fromkeys(
        _EXECUTORCH, "BSD-3-Clause (ExecuTorch; XNNPACK BSD-3-Clause, KleidiAI Apache-2.0, cpuinfo BSD-2-Clause)"
    ),
    **dict.fromkeys((*_GLIBC, *_LOADERS.values()), "LGPL-2.1-or-later (GNU C Library)"),
    **dict.fromkeys(_GCC, "GPL-3.0-or-later with GCC Runtime Library Exception 3.1 (GCC)"),
}


@dataclass(frozen=True)
class Bundle:
    """Files by the name they get on the device, and the names of those among them that start the runner."""

    sources: dict[str, Path]
    runner: str
    loader: str = ""

    @functools.cached_property
    def hashes(self) -> dict[str, str]:
        return {name: kept_sha256(path) for name, path in self.sources.items()}

    @property
    def key(self) -> str:
        """A name for exactly this content."""
        text = "".join(f"{name} {digest}\n" for name, digest in sorted(self.hashes.items()))
        return hashlib.sha256(text.encode()).hexdigest()[:16]

    def start(self, home: str, preload: str | None = None) -> list[str]:
        """Return the command on the device, before the runner's own flags; `home` is the bundle's folder there.

        `preload` is loaded by its name: a space would end its path.
        """
        folder, _, name = (preload or "").rpartition("/")
        folders = f"{home}:{folder}" if preload else home
        if not self.loader:
            preloaded = [f"LD_PRELOAD={name}"] if preload else []
            return ["env", f"LD_LIBRARY_PATH={folders}", *preloaded, f"{home}/{self.runner}"]
        preloaded = ["--preload", name] if preload else []
        return [f"{home}/{self.loader}", *preloaded, "--library-path", folders, f"{home}/{self.runner}"]


def small_bundle(build: Build) -> Bundle:
    """Return the kit's runner for a Linux target whose own C and C++ runtime may do."""
    return _bundle({RUNNER_NAME: build.path, **_libraries(build)})


def kit_bundle(build: Build) -> Bundle:
    """Return the kit's runner for a Linux target with everything that it needs on a device without glibc."""
    loader = _LOADERS[build.target.arch]
    sources = {RUNNER_NAME: build.path, **_libraries(build)}
    for name in (loader, *_GLIBC, *_GCC):
        # Where the target's compiler finds this library; a bare name means that it does not.
        done = call_compiler([*build.command, f"-print-file-name={name}"], Path(tempfile.gettempdir()))
        sources[name] = Path(done.stdout.strip() or name).resolve() if "/" in done.stdout else Path(name)
    for name, path in sources.items():
        head = b""
        if path.is_file():
            with files.open_file(path) as file:
                head = file.read(20)
        if head[:4] != b"\x7fELF" or int.from_bytes(head[18:20], "little") != MACHINES[build.target.arch]:
            raise SetupError(
                f"{name} for {build.target.name} was not found (looked at {path})",
                f"Install it with the compiler: apt-get install g++-{build.target.arch.replace('_', '-')}-linux-gnu.",
            )
    return _bundle(sources, loader)


def _libraries(build: Build) -> dict[str, Path]:
    """Return the libraries of ExecuTorch; a build of the user's own may need some more, which were taken with it."""
    own = [path.name for path in build.sdk.libraries.iterdir()] if build.sdk.given else []
    return {name: build.sdk.libraries / name for name in dict.fromkeys([*_EXECUTORCH, *own])}


def _bundle(sources: dict[str, Path], loader: str = "") -> Bundle:
    licences = [f"{name}: {LICENCES.get(name, _OWN_LICENCE)}" for name in sorted(sources)]
    text = "\n".join([_LICENCES_HEAD, *licences, _LICENCES_TAIL, ""])
    home = cache.entry(
        "pushed",
        "list of licences",
        {"text": cache.digest(text)},
        lambda folder: (folder / _LICENCE_FILE).write_text(text, encoding="utf-8"),
        "written",
    )
    return Bundle({**sources, _LICENCE_FILE: home / _LICENCE_FILE}, RUNNER_NAME, loader)


def own_bundle(runner: Path) -> Bundle:
    """Return a user's own runner, for example built with the NDK, and the C++ runtime beside it if there is one."""
    beside = runner.with_name("libc++_shared.so")
    return Bundle({"runner": runner} | ({beside.name: beside} if beside.is_file() else {}), "runner")
