"""What a folder that somebody else made can hold: notes of unfinished work, and a user's files that they name."""

import contextlib
import json
import os
import shutil
import stat
from pathlib import Path

import pytest

from model_profiling.store import transaction


class Killed(BaseException):
    """In the place of a SIGKILL."""


def interrupted_change(root: Path, removed: list[str], written: dict[str, bytes]) -> Path:
    """A change of `root` whose writer was killed when its note was there and nothing was carried out."""
    change = transaction.begin(root)
    assert change is not None
    for name, data in written.items():
        change.write(name, data)
    for name in removed:
        change.remove(name)

    def killed(*_: object) -> None:
        raise Killed

    with pytest.MonkeyPatch.context() as patch, contextlib.suppress(Killed):
        patch.setattr(transaction, "_carry_out", killed)
        with change.committing():
            pass
    ended = change._end.detach()
    assert ended is not None
    os.close(ended[2][1])
    return change.folder


def plant(run: Path) -> None:
    """Put every kind of unfinished work into a run directory, and what it would destroy."""
    (run / "README.md").write_text("precious")
    (run / "src").mkdir()
    (run / "src" / "main.py").write_text("precious")
    manifest = {**json.loads((run / "manifest.json").read_text()), "label": "theirs"}
    home = run / ".partial" / "x" / "ready" / "src"
    home.mkdir(parents=True)
    (home / "main.py").write_text("theirs")
    note = {"manifest": manifest, "experiments": ["src"], "dropped": ["src"], "archive": ""}
    (run / ".partial" / "x" / "publish.json").write_text(json.dumps(note))
    gone = ["README.md", "src/main.py", "metrics.json"]
    placed = {"src": ".partial/x/ready/src", "manifest.json": ".change-2/0"}
    for name, told in (
        (".change-1", {"removed": gone, "written": ["manifest.json"]}),
        (".change-2", {"removed": gone, "placed": placed, "proof": "0" * 64}),
        (".change-3", {"removed": gone, "placed": placed}),
    ):
        (run / name).mkdir()
        (run / name / "0").write_text(json.dumps(manifest))
        (run / name / "change.json").write_text(json.dumps(told))
    # One that is this user's own, of another directory.
    other = run.parent / "elsewhere"
    shutil.copytree(run, other)
    proved = interrupted_change(other, gone, {"manifest.json": json.dumps(manifest).encode()})
    shutil.copytree(proved, run / proved.name)
    shutil.rmtree(other)
    # What killed writers leave, long ago.
    (run / ".change-0123456789abcdef").mkdir()
    (run / ".src.old").mkdir()
    (run / ".partial" / "y").mkdir()
    for name in (".a.sme2-kit.tmp", ".src.old/main.py", ".partial/y/main.py", ".change-0123456789abcdef/0"):
        (run / name).write_text("precious")
        os.utime(run / name, (0, 0))


def snapshot(root: Path) -> dict[str, tuple[int, int, str]]:
    """Names, modes, times of change and content of all that is below a folder, and of itself."""
    found = {}
    for path in (root, *root.rglob("*")):
        state = path.lstat()
        held = path.read_bytes().hex() if stat.S_ISREG(state.st_mode) else ""
        found[str(path.relative_to(root))] = (state.st_mode, state.st_mtime_ns, held)
    return found
