"""ExecuTorch's operators for language models (`llama::custom_sdpa`, `llama::update_cache` and so on), without PyTorch.

The wheel has them in a library that wants libtorch and Python loaded; stub libraries stand in for those
(`upstream/torch_stubs.py`).
"""

from collections.abc import Iterable
from pathlib import Path

from model_profiling.base import cache
from model_profiling.base.elf import read_library
from model_profiling.base.errors import SetupError
from model_profiling.base.kept_hashes import kept_sha256
from model_profiling.formats.graph_terms import CUSTOM_OPERATORS
from model_profiling.runner.build import LIBRARY_FLAGS, Build, build_inputs, compile_library
from model_profiling.upstream import libraries
from model_profiling.upstream.reliance import why_not
from model_profiling.upstream.torch_stubs import STUBS, generate_stubs

LIBRARY = Path(libraries.CUSTOM_OPERATORS)
_OWN = "Give a runner_path with these operators built in, or export without them."
_SYSTEM = ("libstdc++.", "libm.", "libgcc_s.", "libc.", "libdl.", "libpthread.", "librt.", "ld-linux")


def needs_custom_operators(operators: Iterable[str]) -> bool:
    return any(name.startswith(CUSTOM_OPERATORS) for name in operators)


def operator_libraries(build: Build) -> tuple[Path, ...]:
    """Return what the runner has to load, in this order, to have ExecuTorch's operators for language models."""
    library = build.sdk.root / LIBRARY
    if build.target.library_suffix != ".so":
        raise SetupError(f"the kit's runner cannot load {CUSTOM_OPERATORS}* operators on {build.target.name}", _OWN)
    if not library.is_file():
        raise SetupError(f"executorch {build.sdk.version} has no {LIBRARY.name} for {build.target.name}", _OWN)
    if problem := why_not(STUBS):
        raise SetupError(problem, _OWN)
    taken = read_library(library)
    # Those that it wants loaded and that the runner does not have.
    stubs = [name for name in taken.needed if not name.startswith((*_SYSTEM, libraries.PREFIX))]
    source = generate_stubs(taken)
    made_from = {
        **build_inputs(build.target, build.sdk, build.command, build.compiler),
        "libraries": " ".join(stubs),
        "flags": " ".join(LIBRARY_FLAGS),
        "source": cache.digest(source),
        "library": kept_sha256(library),
    }
    home = cache.entry(
        "operators", "operator library", made_from, lambda folder: _compile(build, folder, stubs, source)
    )
    return (*(home / name for name in stubs), library)


def _compile(build: Build, folder: Path, names: list[str], source: str) -> None:
    """Compile all stubs into the first library; the others only have to be there."""
    (folder / "stubs.cpp").write_text(source, encoding="utf-8")
    (folder / "empty.cpp").write_text("", encoding="utf-8")
    for index, name in enumerate(names):
        code = "empty.cpp" if index else "stubs.cpp"
        compile_library(build, folder, f"the stubs for {LIBRARY.name}", f"-Wl,-soname,{name}", "-o", name, code)
