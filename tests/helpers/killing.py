"""Kill a writer at any instant: `python -m tests.helpers.killing COMMAND RUN FOLDER EACH`, and look at what it leaves.

A fork does the command's work and ends at its first call that changes a file system, the next one EACH calls later, and
so on, until one gets through. After each, the directory must be as it was or as it is to be, and nothing else.
"""

import contextlib
import os
import shutil
import signal
import sys
from collections.abc import Callable
from pathlib import Path

from model_profiling.analysis.run.validation import Staleness, check_staleness, problems
from model_profiling.report.files import report_files
from model_profiling.store.derived import write_listed, write_manifest
from model_profiling.store.run_directory import RunDirectory
from model_profiling.store.runs import resolve
from sme2_kit import Run
from tests.helpers.sketching import Sketcher

_CHANGES = {"open", "os.rename", "os.remove", "os.mkdir", "os.rmdir", "os.link", "os.chmod", "os.utime"}


def _report(run: Run) -> None:
    report_files.write_report(run, Sketcher(), run.path / "report.md", page=True)


def _measured_again(run: Run) -> None:
    manifest = run.run_directory.manifest()
    next(iter(manifest.experiments.values())).notes[:] = ["hot"]
    write_manifest(run.run_directory, manifest)


COMMANDS: dict[str, Callable[[Run], object]] = {
    "analyze": lambda run: run.save(),
    "report": _report,
    "graph": lambda run: run.graph(),
    "model-explorer": report_files.write_model_explorer,
    "tool": lambda run: write_listed(run.path / "operator_analysis.json", "{}\n", "python tool.py"),
    "run": _measured_again,
}


def kill_everywhere(command: str, source: Path, home: Path, each: int) -> int:
    """Returns how many instants there are; at one of `each` the command was killed."""
    left = [-1]

    def hook(event: str, arguments: object) -> None:
        if left[0] >= 0 and event in _CHANGES:
            left[0] -= 1
            if left[0] < 0:
                os.kill(os.getpid(), signal.SIGKILL)

    root, before = home / "run", home / "before"
    shutil.copytree(source, root)
    # What is there was made with other categories, so that all of it is outdated and some of it goes.
    table = home / "categories.json"
    table.write_text('{"operators": {"mean.out": "CONV"}}')
    _report(Run.open(root, table))
    shutil.copytree(root, before)
    run = Run.open(root, "builtin" if command != "tool" else None)
    COMMANDS[command](run)
    wanted, old, kills = _state(root), _state(before), 0
    assert wanted != old
    sys.addaudithook(hook)
    while True:
        shutil.rmtree(root)
        shutil.copytree(before, root)
        if (child := os.fork()) == 0:
            left[0] = kills
            with contextlib.suppress(BaseException):
                COMMANDS[command](run)
                os._exit(0)
            os._exit(1)
        code = os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
        if code == 0:
            return kills
        assert code == -signal.SIGKILL, code
        there, directory = _state(root), RunDirectory(resolve(root))
        assert _state(root) == there, kills
        resolve(root, writes=True)
        assert problems(directory) == [], kills
        assert check_staleness(directory) in (Staleness(), Staleness(awaited=True)), kills
        after = _state(root)
        assert after in (old, wanted), (kills, sorted(set(after.items()) ^ set(wanted.items()))[:3])
        if kills % 10 == 0:
            COMMANDS[command](run)
            assert _state(root) == wanted, kills
        kills += each


def _state(root: Path) -> dict[str, bytes]:
    return {str(path.relative_to(root)): path.read_bytes() for path in sorted(root.rglob("*")) if path.is_file()}


if __name__ == "__main__":
    sys.stdout.write(f"{kill_everywhere(sys.argv[1], Path(sys.argv[2]), Path(sys.argv[3]), int(sys.argv[4]))}\n")
