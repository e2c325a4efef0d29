"""How this copy of the kit got here, as a clone or through pip, and so which command brings what is missing."""

import shlex
import sys
from pathlib import Path

from model_profiling.base.directories import working_directory

NAME = "executorch-sme2-kit"
PACKAGE = Path(__file__).resolve().parents[1]
# What `make setup` brings; other extras are added to what it made.
_OF_SETUP = ("run", "export")


def clone() -> Path | None:
    """Return the root of the clone that the package lies in; None where pip installed it."""
    root = PACKAGE.parent
    described = root / "pyproject.toml"
    if not (root / "Makefile").is_file() or not described.is_file():
        return None
    # Somebody else's project may hold a copy of the package: its `make setup` is not ours.
    return root if f'name = "{NAME}"' in described.read_text(encoding="utf-8") else None


def stands_in_clone() -> bool:
    """Return whether the working directory is the clone, or its package: then the user works on the kit itself."""
    root, here = clone(), Path(working_directory())
    return root is not None and (here == root or here.is_relative_to(PACKAGE))


def default_output(model: str) -> Path:
    """Return where quick tests leave results: out_<model> here, or, in the clone, where the documentation has it."""
    root = clone()
    return Path("model_profiling" if root == Path(working_directory()) else "") / f"out_{model}"


def install_command(extra: str) -> str:
    """Return the shell command that brings what `extra` names to the way the kit was installed here."""
    root = clone()
    if root is None:
        return f"pip install '{NAME}[{extra}]'"
    own = root / ".venv"
    in_own = Path(sys.prefix).resolve() == own.resolve()
    # In an environment of the user's own, or in one that make believes complete, `make setup` would change nothing.
    useless = (own / ".setup").is_file() if in_own else sys.prefix != sys.base_prefix
    if extra in _OF_SETUP and not useless:
        make = "make" if relative_to_here(root) == Path() else f"make -C {shlex.quote(str(root))}"
        return f"{make} setup && source {shlex.quote(str(relative_to_here(own / 'bin' / 'activate')))}"
    return f"pip install -e {shlex.quote(f'{relative_to_here(root)}[{extra}]')}"


def relative_to_here(path: Path) -> Path:
    """Return the path as it is typed from here: relative where it lies below."""
    here = working_directory()
    return path.relative_to(here) if here and path.is_relative_to(here) else path
