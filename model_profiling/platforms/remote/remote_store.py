"""The kit's folder on another machine: what is pushed stays under the name of its content, so it is pushed once."""

import contextlib
import re
import secrets
import time
from collections.abc import Mapping
from pathlib import Path

from model_profiling.base import files
from model_profiling.base.errors import KitError, RunError
from model_profiling.base.on_progress import say_note
from model_profiling.platforms.bundle import Bundle
from model_profiling.platforms.remote.device import Device, read_script, script_words

# Something else may have taken the place of a folder or a file: `mv` would move into a folder.
_FOLDER = '[ -d "$1" ] && [ ! -L "$1" ] || rm -rf "$1"; mkdir -p "$1"'
_RENAME = '[ -f "$2" ] && [ ! -L "$2" ] || rm -rf "$2"; mv -f "$1" "$2"'
_EXECUTABLE = 'for f in "$@"; do [ -x "$f" ] || chmod 755 "$f" || exit 1; done'
# Every question costs a way there and back.
_NEXT = 'home=$1; shift; [ $# -eq 0 ] || rm -rf "$@"; mkdir -p "$home"'


class Store:
    """Pushes bundles, models and inputs where they are missing, and hands out folders for sessions.

    No name that a user or a device chose becomes part of a path: files are named by their hash.
    """

    def __init__(self, device: Device, root: str) -> None:
        self.root = root
        self._device = device
        self._known: set[str] = set()
        self._ended: list[str] = []
        self.pushed_bytes = 0
        self.skipped_bytes = 0
        self.push_s = 0.0
        self._device.must(f"make the folder {root}", *script_words(read_script("make_store"), root))

    def bundle(self, bundle: Bundle) -> str:
        """Return the folder that holds exactly this bundle, proven by the hash of every file."""
        home = f"{self.root}/bundle-{bundle.key}"
        if home in self._known:
            return home
        paths = {name: f"{home}/{name}" for name in bundle.sources}
        absent = self._missing({path: bundle.hashes[name] for name, path in paths.items()})
        missing = [name for name, path in paths.items() if path in absent]
        self.skipped_bytes += sum(bundle.sources[name].stat().st_size for name in paths if name not in missing)
        if missing:
            self._device.must(f"make the folder {home}", *script_words(_FOLDER, home))
            self._push({bundle.hashes[name]: (bundle.sources[name], paths[name]) for name in missing}, home)
        self._device.must("make the runner executable", *script_words(_EXECUTABLE, *paths.values()))
        self._known.add(home)
        return home

    def file(self, path: Path) -> str:
        """Return where a file's content lies on the device."""
        digest = files.sha256(path)
        suffix = path.suffix if re.fullmatch(r"\.[A-Za-z0-9]{1,10}", path.suffix) else ""
        remote = f"{self.root}/files/{digest}{suffix}"
        if remote not in self._known:
            if self._missing({remote: digest}):
                self._push({digest: (path, remote)}, f"{self.root}/files")
            else:
                self.skipped_bytes += path.stat().st_size
            self._known.add(remote)
        return remote

    def session(self) -> str:
        """Return a new folder for one process and what it writes."""
        home = f"{self.root}/session-{secrets.token_hex(8)}"
        ended, self._ended = self._ended, []
        self._device.must(f"make the folder {home}", *script_words(_NEXT, home, *ended))
        return home

    def done_with(self, home: str) -> None:
        """Note that a session has ended in order: its folder is removed when the next one is made, or at the end."""
        self._ended.append(home)

    def clear(self) -> None:
        """Remove the folders of all sessions that have ended in order."""
        ended, self._ended = self._ended, []
        if ended:
            self._device.shell("rm", "-rf", *ended)

    def counts(self) -> dict[str, float]:
        """Return what was pushed and what was there already, since the last call."""
        counts = (self.pushed_bytes, round(self.push_s, 3), self.skipped_bytes)
        self.pushed_bytes, self.push_s, self.skipped_bytes = 0, 0.0, 0
        return dict(zip(("pushed_bytes", "push_s", "already_there_bytes"), counts, strict=True))

    def _missing(self, wanted: Mapping[str, str]) -> list[str]:
        """Return those of some files that are not there with this content."""
        there = self._device.sha256(list(wanted))
        missing = [path for path, digest in wanted.items() if there.get(path) != digest]
        if damaged := [path.rpartition("/")[2] for path in missing if path in there]:
            say_note(f"damaged on {self._device.title}, and pushed again: {', '.join(damaged)}")
        return missing

    def _push(self, sources: Mapping[str, tuple[Path, str]], folder: str) -> None:
        """Push beside their places what these hashes name, prove the content, then move each file to its place: nobody
        ever meets half a file."""
        start = time.monotonic()
        token = secrets.token_hex(4)
        parts = {digest: f"{remote.rpartition('/')[2]}.part-{token}" for digest, (_, remote) in sources.items()}
        try:
            self._device.push({parts[digest]: source for digest, (source, _) in sources.items()}, folder)
            there = self._device.sha256([f"{folder}/{part}" for part in parts.values()])
            for digest, (source, remote) in sources.items():
                if there.get(f"{folder}/{parts[digest]}") != digest:
                    raise RunError(
                        f"{source.name} was damaged on its way to the device", f"Run again; {self._device.link}."
                    )
                self._device.must(
                    f"rename {parts[digest]}", *script_words(_RENAME, f"{folder}/{parts[digest]}", remote)
                )
        except KitError:
            with contextlib.suppress(KitError):
                self._device.shell("rm", "-f", *(f"{folder}/{part}" for part in parts.values()))
            raise
        self.pushed_bytes += sum(source.stat().st_size for source, _ in sources.values())
        self.push_s += time.monotonic() - start
