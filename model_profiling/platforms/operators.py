"""Which libraries a program needs beside the runner: those of operators that the runner does not have."""

from pathlib import Path

from model_profiling import pte
from model_profiling.runner.build import Build
from model_profiling.runner.custom_operators import needs_custom_operators, operator_libraries


def libraries_for(build: Build, model: Path) -> tuple[Path, ...]:
    """The libraries to load for a program, in order; none for one that cannot be read, which the runner will say."""
    try:
        program = pte.read(model)
    except pte.PteError:
        return ()
    names = (step.name for method in program.methods for step in method.instructions)
    return operator_libraries(build) if needs_custom_operators(names) else ()
