"""A workspace as a newcomer has it after cloning and setting up, and a shell to type commands into."""

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from tests.conftest import QUICK, ROOT, needs, shared_home
from tests.helpers import warm, warm_drawing


def fresh_workspace(home: Path) -> Path:
    """Copy what a clone would hold to `home` and give it this Python's environment as its .venv, already set up."""
    needs(shutil.which("git") is not None, "git")
    # Uncommitted work too, which a `git clone` would leave behind; whatever git ignores stays behind.
    listed = ["git", "ls-files", "-z", "--cached", "--others", "--exclude-standard"]
    names = subprocess.run(listed, cwd=ROOT, capture_output=True, text=True, check=True).stdout.split("\0")
    for name in filter(None, names):
        if (ROOT / name).is_file():
            (home / name).parent.mkdir(parents=True, exist_ok=True)
            shutil.copy2(ROOT / name, home / name, follow_symlinks=False)
    venv = home / ".venv"
    venv.mkdir()
    for entry in Path(sys.prefix).iterdir():
        if not entry.name.startswith(".setup"):
            (venv / entry.name).symlink_to(entry)
    warm.warm_up(shared_home(), _own_programs(venv))
    # Newer than pyproject.toml: make finds nothing to install.
    for stamp in (".setup", ".setup-dev", ".setup-wide", ".setup-docs"):
        (venv / stamp).touch()
    return home


def _own_programs(venv: Path) -> Path:
    """Make the environment's `bin`, a link to another's, a directory of links to the same programs."""
    programs = venv / "bin"
    programs.unlink()
    programs.mkdir()
    for program in (Path(sys.prefix) / "bin").iterdir():
        (programs / program.name).symlink_to(program)
    activate = programs / "activate"
    text = activate.read_text().replace(sys.prefix, str(venv))
    activate.unlink()
    activate.write_text(text)
    return programs


_shared: list[Path] = []


def shared_workspace(factory: pytest.TempPathFactory) -> Path:
    """One workspace for all tests of a session that type documented commands: what one exported, another need not."""
    if not _shared:
        _shared.append(fresh_workspace(factory.mktemp("clone") / "executorch_sme2_kit"))
    return _shared[0]


def shell(script: str, workspace: Path, timeout: float = 900) -> "subprocess.CompletedProcess[str]":
    """Run lines as a person would type them in a shell that has the workspace's environment activated."""
    path = f"{workspace / '.venv' / 'bin'}{os.pathsep}{os.environ['PATH']}"
    # The workspace's own code, wherever this environment's editable install points.
    environment = {**os.environ, "PATH": path, "PYTHONPATH": str(workspace), "VIRTUAL_ENV": str(workspace / ".venv")}
    environment |= {**QUICK, warm_drawing.VARIABLE: warm.drawing_address(shared_home())}
    # Not interactive, so an activate script that touches unset variables must not end it: no -u.
    command = ["bash", "-eo", "pipefail", "-c", script]
    return subprocess.run(
        command, cwd=workspace, env=environment, capture_output=True, text=True, timeout=timeout, check=False
    )
