"""What the kit leaves behind has the rights that the umask leaves new files: what is closed stays closed."""

import json
import os
import stat
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from model_profiling.base import files
from model_profiling.platforms import locks
from model_profiling.store import transaction
from tests.conftest import QUICK, ROOT, TORCH, needs

KNOWN_GOOD = ROOT / "tests" / "data" / "known_good_run"
UMASKS = (0o077, 0o027, 0o022, 0o002)


def rights(root: Path) -> dict[str, int]:
    """The rights of everything below a folder; what a test put there itself is not asked for."""
    found = {str(path.relative_to(root)): path.lstat() for path in root.rglob("*") if not path.is_symlink()}
    return {name: stat.S_IMODE(state.st_mode) for name, state in found.items()}


def assert_left_by(umask: int, found: dict[str, int], root: Path) -> None:
    assert found
    for name, mode in found.items():
        path = root / name
        whole = 0o777 if path.is_dir() or mode & stat.S_IXUSR else 0o666
        assert mode & 0o777 == whole & ~umask, f"{name} is {mode:o} under umask {umask:o}"


@pytest.fixture(params=UMASKS, ids=lambda umask: f"{umask:03o}")
def umask(request: pytest.FixtureRequest) -> int:
    return int(request.param)


def under(umask: int, words: list[str], cwd: Path, **more: str) -> None:
    """Run a command as a user with this umask does."""
    program = (
        f"import os; os.umask({umask}); from model_profiling.cli.main import main; raise SystemExit(main({words}))"
    )
    environment = {**os.environ, "PYTHONPATH": str(ROOT), **QUICK, **more}
    done = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, cwd=cwd, env=environment, check=False
    )
    assert done.returncode == 0, done.stderr


def test_every_way_to_write_a_file_asks_the_umask(umask: int, tmp_path: Path) -> None:
    before = os.umask(umask)
    try:
        home = tmp_path / "home"
        files.write_text(home / "new" / "a.txt", "a")
        files.append_line(home / "line", b"a")
        with files.locked(home / "locked", "test"):
            pass
        closed, open_ = tmp_path / "closed", tmp_path / "open"
        for path, mode in ((closed, 0o600), (open_, 0o666)):
            path.write_text("a")
            path.chmod(mode)
            for link in (False, True):
                files.copy_file(path, home / f"{path.name}_{link}", link=link)
        change = transaction.begin(home)
        assert change is not None
        change.write("changed/a.txt", b"a")
        with change.committing():
            pass
        handle = locks.job_lock(home / "jobs" / "one.lock")
        assert handle is not None
        os.close(handle)
        found = rights(home)
    finally:
        os.umask(before)
    # A second name of a file that is closed is as closed as that.
    assert found.pop("closed_True") == 0o600
    assert_left_by(umask, found, home)


def test_who_may_write_in_its_folder_may_wait_for_a_lock(tmp_path: Path) -> None:
    before = os.umask(0o077)
    try:
        for mode, wanted in ((0o1777, 0o644), (0o2775, 0o640), (0o755, 0o600), (0o700, 0o600)):
            home = tmp_path / f"{mode:o}"
            home.mkdir()
            home.chmod(mode)
            handle = locks.job_lock(home / "a.lock")
            assert handle is not None
            os.close(handle)
            assert stat.S_IMODE((home / "a.lock").stat().st_mode) == wanted
    finally:
        os.umask(before)


@pytest.mark.wide
@pytest.mark.parametrize(
    "umask", [0o077, pytest.param(0o002, marks=pytest.mark.again)], ids=lambda umask: f"{umask:03o}"
)
def test_a_report_and_a_history_are_as_closed_as_the_user_wants(umask: int, tmp_path: Path) -> None:
    run = tmp_path / "run"
    before = os.umask(umask)
    try:
        files.copy_tree(KNOWN_GOOD, run)
    finally:
        os.umask(before)
    cache = {"SME2_KIT_CACHE": str(tmp_path / "cache")}
    under(umask, ["report", str(run), "--html"], tmp_path, **cache)
    under(umask, ["graph", str(run)], tmp_path, **cache)
    under(umask, ["history", "--root", str(tmp_path), "trend", "toy_cnn", "--output", "t.html"], tmp_path, **cache)
    under(umask, ["history", "--root", str(tmp_path), "export", "--csv", "h.csv"], tmp_path, **cache)
    assert_left_by(umask, rights(tmp_path), tmp_path)


@pytest.mark.wide
@pytest.mark.again
@pytest.mark.parametrize("umask", [0o077], ids=lambda umask: f"{umask:03o}")
def test_a_run_and_its_program_and_its_runner_are_as_closed_as_the_user_wants(
    umask: int, toy: Callable[[str], Path], tmp_path: Path
) -> None:
    program = tmp_path / "toy_cnn_xnnpack_fp16.pte"
    program.write_bytes(toy("fp16").read_bytes())
    program.chmod(0o644 & ~umask)
    cache = {"SME2_KIT_CACHE": str(tmp_path / "cache")}
    words = ["run", str(program), "--output-root", "run", "--runs", "5", "--startup-launches", "0", "--html"]
    under(umask, words, tmp_path, **cache)
    under(umask, [*words, "--force"], tmp_path, **cache)
    found = rights(tmp_path)
    found.pop(program.name)
    assert json.loads((tmp_path / "run" / "manifest.json").read_text())["status"] == "complete"
    assert any(name.startswith("run/earlier/") for name in found) and any("sme2_runner" in name for name in found)
    assert_left_by(umask, found, tmp_path)


@pytest.mark.wide
@pytest.mark.again
def test_an_export_is_as_closed_as_the_user_wants(tmp_path: Path) -> None:
    needs(TORCH, "torch")
    under(0o077, ["export", "--model", "toy_cnn", "--outdir", "out", "--dtype", "fp32"], tmp_path)
    assert_left_by(0o077, rights(tmp_path), tmp_path)
