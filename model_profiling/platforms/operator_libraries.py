"""Which operators a program needs: those that the runner has, that a library beside it has, and that none has."""

import contextlib
import functools
from pathlib import Path

import msgspec

from model_profiling.base.elf import read_library
from model_profiling.base.errors import SetupError
from model_profiling.base.programs import run_program
from model_profiling.formats import pte
from model_profiling.formats.graph_terms import CUSTOM_OPERATORS
from model_profiling.runner.build import Build, built_libraries
from model_profiling.runner.protocol import Operators, decode_message
from model_profiling.upstream import libraries
from model_profiling.upstream.reliance import why_not
from model_profiling.upstream.torch_stubs import STUBS, generate_stubs


def libraries_for(build: Build, model: Path) -> tuple[Path, ...]:
    """Return the libraries to load for a program, in order; none for one that cannot be read: the runner says so."""
    try:
        program = pte.read(model)
    except pte.PteError:
        return ()
    return operator_libraries(build) if any(name.startswith(CUSTOM_OPERATORS) for name in _called(program)) else ()


def missing_operators(build: Build, model: Path) -> list[str]:
    """Return the operators that a program calls and that neither the runner nor its libraries have, each once.

    Of an ExecuTorch whose files the kit does not know, none: the runner names the first one that is missing.
    """
    if pte.why_unknown():
        return []
    called, libraries = _called(pte.read(model)), tuple[Path, ...]()
    with contextlib.suppress(SetupError):  # none for this machine: their operators are missing
        libraries = libraries_for(build, model)
    known = operators_of(build.path, libraries)
    return [name for name in called if name not in known]


def refuse_missing_operators(build: Build, model: Path) -> None:
    """Refuse a program of one method that the runner cannot load; of several, only one may be run."""
    missing: list[str] = []
    with contextlib.suppress(pte.PteError):  # the runner says what is wrong with it
        missing = missing_operators(build, model) if len(pte.read(model).methods) == 1 else []
    if missing:
        raise SetupError(
            f"{model} needs operators that the kit's runner does not have: {', '.join(missing)}",
            "Give a runner_path built with these operators, or write the model without: `sme2-kit check MODEL` names "
            "their lines.",
        )


@functools.cache
def operators_of(runner: Path, libraries: tuple[Path, ...] = ()) -> frozenset[str]:
    """Return all operators that a runner of this machine has, `aten::add.out`, with those of libraries."""
    flags = [f"--operator_library={library}" for library in libraries]
    done = run_program([str(runner), "--list_operators", *flags], doing="")
    try:
        message = decode_message(done.stdout.splitlines()[-1]) if done.stdout else None
    except msgspec.DecodeError:
        message = None
    if not isinstance(message, Operators):
        raise SetupError(f"the runner {runner} does not say which operators it has", "Run `sme2-kit doctor`.")
    return frozenset(message.names)


def _called(program: pte.Program) -> list[str]:
    kernels = (step.name for method in program.methods for step in method.instructions if step.kind == pte.KERNEL)
    return list(dict.fromkeys(kernels))


LIBRARY = Path(libraries.CUSTOM_OPERATORS)
_OWN = "Give a runner_path with these operators built in, or export without them."
_SYSTEM = ("libstdc++.", "libm.", "libgcc_s.", "libc.", "libdl.", "libpthread.", "librt.", "ld-linux")


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
    home = built_libraries(build, "operators", "operator library", library, generate_stubs(taken), stubs)
    return (*(home / name for name in stubs), library)
