"""Reading a run needs no right to write: what would be kept beside it is not kept, and nothing else changes."""

import ctypes
import json
import os
import shutil
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from model_profiling.analysis.roofs.roof_rates import slug
from model_profiling.analysis.run.validation import problems
from model_profiling.base import files
from model_profiling.cli.main import COMMANDS
from model_profiling.store import transaction
from model_profiling.store.run_directory import RunDirectory
from model_profiling.store.runs import resolve
from model_profiling.store.transaction import interrupted
from sme2_kit import Run
from tests.conftest import ROOT, needs
from tests.helpers.planted import interrupted_change, plant, snapshot
from tests.helpers.roof_forge import forged_roofs
from tests.helpers.run_forge import forge_emulated, forge_run

KNOWN_GOOD = ROOT / "tests" / "data" / "known_good_run"
# RUN and EMULATED are run directories that cannot be written, HERE is a folder that can.
READS = (
    "analyze RUN",
    "analyze --json RUN",
    "analyze --what-if CONV=2 RUN",
    "analyze --categories HERE/categories.json RUN",
    "validate --results EMULATED",
    "report -o HERE/report.md --html RUN",
    "report -o HERE/page.html RUN",
    "report -o HERE/shift.png --png shift RUN",
    "report -o HERE/both.md RUN EMULATED",
    "graph -o HERE/graph.html RUN",
    "graph --json RUN",
    "compare RUN RUN@old",
    "runs RUN",
    "history --root RUN list",
    "history --root RUN trend toy_cnn",
    "history --root RUN coverage",
    "history --root RUN export --csv HERE/history.csv",
    "validate-skill 05_analyze_results --run-dir RUN",
)
# Commands that read, and only read; RUN can be written by them, and holds notes of unfinished work that others planted.
ONLY_READ = (
    "runs RUN",
    "runs RUN --json",
    "history --root RUN list",
    "history --root RUN trend toy_cnn",
    "history --root RUN regressions",
    "history --root RUN top",
    "history --root RUN coverage",
    "validate --results RUN",
    "validate --results RUN@old",
    "analyze --what-if CONV=2 RUN",
    "graph --json RUN",
    "compare RUN RUN@old",
    "compare RUN RUN@old --json",
    "forecast RUN",
    "roofs show RUN/roofs.json",
    "models",
    "targets",
    "schema",
    "skills",
    "completions bash",
    "clean --outputs",
)
# All others write or measure; some of those above do so with other words.
WRITING = {
    *("profile", "check", "tune", "doctor", "kernels", "validate-forecast", "report", "numerics", "sweep", "export"),
    *("run", "build", "new-model", "mcp", "quicktest", "validate-skill"),
}
DRAWS = ("report", "history --root RUN trend")
WRITES = ("report RUN", "report --png shift RUN", "report --model-explorer RUN", "graph RUN", "runs RUN --remove old")
_SCRIPT = """
import contextlib, io, json, sys
from model_profiling.cli.main import main

answers = []
for words in json.loads(sys.argv[1]):
    said = io.StringIO()
    with contextlib.redirect_stdout(said), contextlib.redirect_stderr(said):
        try:
            code = main(words)
        except SystemExit as end:
            code = end.code
    answers.append([code, said.getvalue()])
print(json.dumps(answers))
"""


def _without_override() -> None:
    """Have root obey the rights of files, as everyone else must, from the next program on (capabilities(7))."""
    ctypes.CDLL(None).prctl(24, 1, 0, 0, 0)


def obeying() -> Callable[[], None] | None:
    """What a child calls to be bound to the rights of files."""
    if os.geteuid() != 0:
        return None
    needs(sys.platform == "linux", "a user other than root")
    return _without_override


@pytest.fixture
def places(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> dict[str, Path]:
    """A run with an earlier one beside it and roofs that are known of its CPU, and one that was emulated."""
    run, here = forge_run(KNOWN_GOOD, tmp_path / "run"), tmp_path / "here"
    emulated = forge_emulated(run, tmp_path / "emulated", lambda operator: False)
    Run.open(run).save()
    shutil.copytree(run, run / "earlier" / "old")
    here.mkdir()
    (here / "categories.json").write_text('{"operators": {"mean.out": "CONV"}}')
    manifest = RunDirectory(run).manifest()
    record = next(iter(manifest.experiments.values()))
    cpu = str(manifest.environment["cpu"])
    assert record.features is not None
    roofs = forged_roofs(cpu, manifest.model.dtype, record.features.active, record.threads)
    files.write_json(tmp_path / "roofs" / f"{slug(cpu)}.json", roofs)
    monkeypatch.setenv("SME2_KIT_ROOFS", str(tmp_path / "roofs"))
    # They would be kept in it.
    assert "roofs.json" in Run.open(run).remembered() and not (run / "roofs.json").exists()
    for top in (run, emulated):
        for path in sorted(top.rglob("*"), reverse=True):
            path.chmod(0o555 if path.is_dir() else 0o444)
        top.chmod(0o555)
    return {"RUN": run, "EMULATED": emulated, "HERE": here}


def state(*roots: Path) -> dict[str, bytes]:
    return {str(path): path.read_bytes() if path.is_file() else b"" for root in roots for path in root.rglob("*")}


def answers(commands: tuple[str, ...], places: dict[str, Path]) -> list[tuple[int, str]]:
    """The exit code of each command, and what it said."""
    asked = []
    for command in commands:
        words = command.split(" ")
        for name, path in places.items():
            words = [word.replace(name, str(path)) for word in words]
        asked.append(words)
    home = places["HERE"].parent
    environment = {**os.environ, "PYTHONPATH": str(ROOT), "SME2_KIT_CACHE": str(home / "cache")}
    done = subprocess.run(
        [sys.executable, "-c", _SCRIPT, json.dumps(asked)],
        preexec_fn=obeying(),
        capture_output=True,
        text=True,
        env=environment,
        cwd=places["HERE"],
        check=False,
    )
    assert done.returncode == 0, done.stderr
    return [(code, said) for code, said in json.loads(done.stdout)]


@pytest.mark.parametrize(
    "commands",
    [
        tuple(c for c in READS if not c.startswith(DRAWS)),
        pytest.param(tuple(c for c in READS if c.startswith(DRAWS)), marks=pytest.mark.wide),
    ],
    ids=["without drawing", "drawing"],
)
def test_every_command_that_reads_a_run_works_where_one_may_not_write(
    commands: tuple[str, ...], places: dict[str, Path]
) -> None:
    before = state(places["RUN"], places["EMULATED"])
    for command, (code, said) in zip(commands, answers(commands, places), strict=True):
        assert code == 0 and "cannot be written" not in said, (command, said)
    assert state(places["RUN"], places["EMULATED"]) == before


def test_every_command_is_known_to_read_or_to_write() -> None:
    assert {command.split()[0] for command in ONLY_READ} | WRITING == set(COMMANDS)


@pytest.mark.parametrize("rights", ["may write", "may read"])
def test_reading_changes_nothing_whatever_unfinished_work_is_there(rights: str, tmp_path: Path) -> None:
    run, here = forge_run(KNOWN_GOOD, tmp_path / "run"), tmp_path / "here"
    here.mkdir()
    Run.open(run).save()
    shutil.copytree(run, run / "earlier" / "old")
    manifest = RunDirectory(run).manifest()
    files.write_json(run / "roofs.json", forged_roofs(str(manifest.environment["cpu"]), manifest.model.dtype, [], 1))
    plant(run)
    if rights == "may read":
        for path in (run, *run.rglob("*")):
            path.chmod(path.stat().st_mode & ~0o222)
    before = snapshot(run)
    told = answers(ONLY_READ, {"RUN": run, "HERE": here})
    assert snapshot(run) == before and not list(here.iterdir())
    for command, (code, said) in zip(ONLY_READ, told, strict=True):
        assert code < 3 and "Traceback" not in said, (command, said)
        if " RUN" in command and not command.startswith(("history", "roofs", "forecast")) and "@old" not in command:
            assert "did not begin here" in said, (command, said)


def test_a_command_that_writes_finishes_only_its_own(tmp_path: Path) -> None:
    run, here = forge_run(KNOWN_GOOD, tmp_path / "run"), tmp_path / "here"
    here.mkdir()
    Run.open(run).save()
    plant(run)
    planted = snapshot(run)
    interrupted_change(run, ["metrics.json"], {"analysis_summary.json": b"{}\n"})
    places = {"RUN": run, "HERE": here}
    ((_, said),) = answers(("runs RUN",), places)
    assert "a change of" in said and "was interrupted" in said and (run / "metrics.json").exists()
    ((code, said),) = answers(("analyze --json RUN",), places)
    assert code == 0 and "was interrupted" not in said, said
    after = snapshot(run)
    # Analysed again: what derives from the run is as it was, and nothing else was touched.
    for name, (mode, _, held) in planted.items():
        if name not in ("derived.json", ".a.sme2-kit.tmp"):
            assert (after[name][0], after[name][2]) == (mode, held), name
    assert after.keys() == planted.keys()


def test_a_directory_that_was_moved_is_read_as_it_is(tmp_path: Path) -> None:
    run = forge_run(KNOWN_GOOD, tmp_path / "run")
    Run.open(run).save()
    interrupted_change(run, ["metrics.json"], {"manifest.json": b"theirs"})
    moved = run.rename(tmp_path / "moved")
    before = snapshot(moved)
    assert resolve(moved, writes=True) == moved and snapshot(moved) == before
    assert "did not begin here" in interrupted(moved) and problems(RunDirectory(moved)) == []


@pytest.mark.parametrize("state", ["readable by others", "of another size", "a link", "nowhere"])
def test_a_secret_that_others_can_know_proves_nothing(
    state: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    home, run = tmp_path / "state", forge_run(KNOWN_GOOD, tmp_path / "run")
    key = home / "sme2-kit" / "key"
    key.parent.mkdir(parents=True)
    monkeypatch.setenv("XDG_STATE_HOME", str(home))
    target = tmp_path / "target" if state == "a link" else key
    target.write_bytes(b"k" * (31 if state == "of another size" else 32))
    target.chmod(0o644 if state == "readable by others" else 0o600)
    if state == "a link":
        key.symlink_to(target)
    if state == "nowhere":
        monkeypatch.setenv("XDG_STATE_HOME", "/dev/null")
    interrupted_change(run, [], {"manifest.json": b"theirs"})
    monkeypatch.setattr(transaction, "_UNKEPT", b"another process")
    resolve(run, writes=True)
    assert (run / "manifest.json").read_bytes() != b"theirs" and "did not begin here" in interrupted(run)
    Run.open(run).save()  # without a secret, what is written is written all the same
    assert (run / "metrics.json").exists()


@pytest.mark.wide
def test_what_is_asked_for_in_a_directory_that_cannot_be_written_is_an_error_that_says_so(
    places: dict[str, Path],
) -> None:
    for command, (code, said) in zip(WRITES, answers(WRITES, places), strict=True):
        assert code == 3 and "cannot be" in said and "Traceback" not in said, (command, said)


def test_a_run_whose_experiments_cannot_be_written_is_read_all_the_same(places: dict[str, Path]) -> None:
    """The directory is one's own, what lies in it somebody else's."""
    places["RUN"].chmod(0o755)
    before = state(places["RUN"])
    for command, (code, said) in zip(READS[:2], answers(READS[:2], places), strict=True):
        assert code == 0, (command, said)
    assert state(places["RUN"]) == before
