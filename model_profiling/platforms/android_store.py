"""The kit's folder on a device: what is pushed stays under the name of its content, so it is pushed once."""

import re
import secrets
import time
from pathlib import Path

from model_profiling import files
from model_profiling.errors import RunError
from model_profiling.platforms.adb import Device
from model_profiling.platforms.bundle import Bundle

ROOT = "/data/local/tmp/sme2_kit"
# What a run that was cut off left behind a day ago is nobody's any more.
_SWEEP = """mkdir -p "$1/files" || exit 1
find "$1" -maxdepth 1 -name 'session-*' -mmin +1440 -exec rm -rf {} + 2> /dev/null
find "$1" -name '*.part-*' -mmin +1440 -exec rm -rf {} + 2> /dev/null
true"""


class Store:
    """Pushes bundles, models and inputs where they are missing, and hands out folders for sessions.

    No name that a user or a device chose becomes part of a path: files are named by their hash.
    """

    def __init__(self, device: Device) -> None:
        self._device = device
        self._known: dict[str, str] = {}
        self.pushed_bytes = 0
        self.skipped_bytes = 0
        self.push_s = 0.0
        output = device.script(_SWEEP, ROOT)
        if output.code != 0:
            raise device.refusal(f"make the folder {ROOT}", output)

    def bundle(self, bundle: Bundle) -> str:
        """The folder that holds exactly this bundle, proven by the hash of every file."""
        home = f"{ROOT}/bundle-{bundle.key}"
        if home in self._known:
            return home
        paths = {name: f"{home}/{name}" for name in bundle.sources}
        there = self._device.sha256(list(paths.values()))
        missing = [name for name, path in paths.items() if there.get(path) != bundle.hashes[name]]
        self.skipped_bytes += sum(bundle.sources[name].stat().st_size for name in paths if name not in missing)
        if missing:
            self._device.must(f"make the folder {home}", "mkdir", "-p", home)
            for name in missing:
                self._push(bundle.sources[name], paths[name], bundle.hashes[name])
            self._device.must("make the runner executable", "chmod", "755", *paths.values())
        self._known[home] = home
        return home

    def file(self, path: Path) -> str:
        """Where a file's content lies on the device."""
        digest = files.sha256(path)
        suffix = path.suffix if re.fullmatch(r"\.[A-Za-z0-9]{1,10}", path.suffix) else ""
        remote = f"{ROOT}/files/{digest}{suffix}"
        if remote not in self._known:
            if self._device.sha256([remote]).get(remote) == digest:
                self.skipped_bytes += path.stat().st_size
            else:
                self._push(path, remote, digest)
            self._known[remote] = remote
        return remote

    def session(self) -> str:
        """A new folder for one process and what it writes."""
        home = f"{ROOT}/session-{secrets.token_hex(8)}"
        self._device.must(f"make the folder {home}", "mkdir", "-p", home)
        return home

    def remove(self, home: str) -> None:
        self._device.shell("rm", "-rf", home)

    def counts(self) -> dict[str, float]:
        """What was pushed and what was there already, since the last call."""
        counted = {
            "pushed_bytes": self.pushed_bytes,
            "push_s": round(self.push_s, 3),
            "already_there_bytes": self.skipped_bytes,
        }
        self.pushed_bytes, self.push_s, self.skipped_bytes = 0, 0.0, 0
        return counted

    def _push(self, source: Path, remote: str, digest: str) -> None:
        """Push beside the place, prove the content, then move it there: nobody ever meets half a file."""
        start = time.monotonic()
        part = f"{remote}.part-{secrets.token_hex(4)}"
        self._device.push(source, part)
        if self._device.sha256([part]).get(part) != digest:
            self._device.shell("rm", "-f", part)
            raise RunError(f"{source.name} was damaged on its way to the device", "Run again; try another cable.")
        self._device.must(f"rename {part}", "mv", part, remote)
        self.pushed_bytes += source.stat().st_size
        self.push_s += time.monotonic() - start
