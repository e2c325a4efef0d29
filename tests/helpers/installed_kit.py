"""The kit as pip installs it: its wheel, in an environment of its own that has everything else from the tests' one."""

import os
import shlex
import subprocess
import sys
import sysconfig
import venv
from dataclasses import dataclass
from importlib.util import find_spec
from pathlib import Path

from tests.conftest import ROOT, needs, shared_home
from tests.helpers import warm
from tests.helpers.waiting import LONGEST_S


@dataclass(frozen=True)
class Installed:
    """An environment with the kit from its wheel, and everything else from the one that runs the tests."""

    wheel: Path
    home: Path

    @property
    def python(self) -> Path:
        return self.home / "bin" / "python"

    def run(self, *command: object, cwd: Path, **variables: str) -> "subprocess.CompletedProcess[str]":
        # As a user's shell has it: our own paths, and a wish for no compiled files, would hide what is written where.
        ours = ("PYTHONPATH", "PYTHONDONTWRITEBYTECODE", "PYTHONPYCACHEPREFIX")
        environment = {name: value for name, value in os.environ.items() if name not in ours}
        environment |= {"SME2_KIT_BUDGET_S": "0.3", "RUNNER_TEMP": str(self.home.parent), **variables}
        words = list(map(str, command))
        return subprocess.run(
            words, cwd=cwd, env=environment, capture_output=True, text=True, timeout=LONGEST_S, check=False
        )

    def shell(self, script: str, cwd: Path, **variables: str) -> "subprocess.CompletedProcess[str]":
        """Run a step of a workflow as GitHub does, with this environment's programs first."""
        path = f"{self.home / 'bin'}{os.pathsep}{os.environ['PATH']}"
        return self.run("bash", "-eo", "pipefail", "-c", script, cwd=cwd, PATH=path, **variables)

    def kit(self, line: str, cwd: Path) -> str:
        """What `sme2-kit …` prints; it must succeed."""
        done = self.run(self.home / "bin" / "sme2-kit", *shlex.split(line), cwd=cwd)
        assert done.returncode == 0, done.stdout + done.stderr
        assert "make " not in done.stdout + done.stderr
        return done.stdout

    def without_torch(self, line: str, cwd: Path) -> "subprocess.CompletedProcess[str]":
        """The same where torch is not installed, whatever the exit code."""
        code = (
            "import sys; sys.modules.update(dict.fromkeys(('torch', 'torchao', 'executorch')));"
            "from model_profiling.cli.main import main; sys.exit(main(sys.argv[1:]))"
        )
        cold = self.python.with_name("python-cold")
        return self.run(cold if cold.exists() else self.python, "-c", code, *shlex.split(line), cwd=cwd)


def build_wheel(home: Path) -> Path:
    """The wheel of this tree, in `home`."""
    needs(find_spec("hatchling") is not None, "hatchling")
    build = [sys.executable, "-m", "hatchling", "build", "--target", "wheel", "--directory", str(home)]
    subprocess.run(build, cwd=ROOT, check=True, capture_output=True)
    (wheel,) = home.glob("*.whl")
    return wheel


def new_environment(wheel: Path) -> Installed:
    """A new environment beside the wheel, in which nothing is installed yet."""
    venv.create(wheel.parent / "env", with_pip=False, symlinks=True)
    return Installed(wheel, wheel.parent / "env")


def add_packages(kit: Installed) -> None:
    """Give the environment, which has the kit by now, all packages of the one that runs the tests."""
    # A path in a .pth file is searched, but the .pth files in it are not read: the clone's own install stays outside.
    (site,) = (kit.home / "lib").glob("python3*/site-packages")
    (site / "others.pth").write_text("".join(f"{sysconfig.get_path(name)}\n" for name in ("purelib", "platlib")))
    warm.warm_up(shared_home(), kit.home / "bin")
