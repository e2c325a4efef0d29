"""What is pushed to another machine is known by its hash: whatever takes its place there, the right file is pushed."""

import os
import shutil
import subprocess
from collections.abc import Mapping
from pathlib import Path

import pytest

from model_profiling.base.files import sha256
from model_profiling.base.on_progress import listen_to_notes
from model_profiling.platforms.bundle import Bundle
from model_profiling.platforms.remote.device import ANSWER_S, CommandOutput, Device
from model_profiling.platforms.remote.remote_store import Store
from tests.helpers.file_faults import CHANGED, FAULTS


class Here(Device):
    """A folder of this machine as a device: its shell and its commands are real."""

    title, key, link, cut, writable = "the device", "here", "use another cable", "", "elsewhere"

    def __init__(self) -> None:
        self.pushed: list[str] = []

    def command(self, *words: str) -> list[str]:
        return list(words)

    def shell(self, *words: str, timeout_s: float = ANSWER_S) -> CommandOutput:
        done = subprocess.run(words, capture_output=True, text=True, timeout=timeout_s, check=False)
        return CommandOutput(done.returncode, done.stdout, done.stderr)

    def push(self, sources: Mapping[str, Path], folder: str) -> None:
        for name, source in sources.items():
            self.pushed.append(name.partition(".part-")[0])
            shutil.copyfile(source, Path(folder, name))

    def fetch(self, remote: str, size: int, local: Path) -> None:
        shutil.copyfile(remote, local)

    def present(self) -> bool:
        return True

    def answers(self, within_s: float) -> bool:
        return True

    def reconnect(self, wait_s: float) -> bool:
        return True

    def complains(self, line: str) -> bool:
        return False


@pytest.fixture
def bundle(tmp_path: Path) -> Bundle:
    sources = {}
    for name in ("runner", "libone.so", "libtwo.so"):
        sources[name] = tmp_path / name
        sources[name].write_bytes(f"content of {name}".encode())
    return Bundle(sources, "runner")


@pytest.mark.parametrize("fault", FAULTS)
def test_a_file_that_is_damaged_on_the_device_is_pushed_again(fault: str, bundle: Bundle, tmp_path: Path) -> None:
    device, root = Here(), tmp_path / "device"
    for name in ("bundle", "file"):
        first = Store(device, str(root))
        home, file = Path(first.bundle(bundle)), Path(first.file(bundle.sources["runner"]))
        device.pushed.clear()
        path = home / "libone.so" if name == "bundle" else file
        inode = path.stat().st_ino
        FAULTS[fault](path)
        notes: list[str] = []
        listen_to_notes(notes.append)
        again = Store(device, str(root))
        assert (Path(again.bundle(bundle)), Path(again.file(bundle.sources["runner"]))) == (home, file)
        assert {each.name: sha256(each) for each in home.iterdir()} == bundle.hashes
        assert all(os.access(each, os.X_OK) for each in home.iterdir())
        assert sha256(file) == bundle.hashes["runner"] and list(file.parent.iterdir()) == [file]
        # Where only a right is missing, nothing has to be pushed; the administrator may read everything.
        same = fault == "not executable" or (fault == "unreadable" and os.geteuid() == 0)
        assert device.pushed == ([] if same else [path.name]) and (path.stat().st_ino == inode or not same)
        said = any("damaged on the device, and pushed again" in note for note in notes)
        assert said == (fault in CHANGED)


@pytest.mark.parametrize("folder", ["bundle", "files"])
def test_a_folder_whose_place_is_taken_is_made_again(folder: str, bundle: Bundle, tmp_path: Path) -> None:
    device, root = Here(), tmp_path / "device"
    store = Store(device, str(root))
    home = Path(store.bundle(bundle)) if folder == "bundle" else root / "files"
    for fault in ("emptied", "a dangling link"):
        shutil.rmtree(home)
        home.touch()
        FAULTS[fault](home)
        store = Store(device, str(root))
        made, file = Path(store.bundle(bundle)), Path(store.file(bundle.sources["runner"]))
        assert {each.name: sha256(each) for each in made.iterdir()} == bundle.hashes
        assert sha256(file) == bundle.hashes["runner"]
