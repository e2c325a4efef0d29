"""What the kit asks of another machine, a phone behind adb or a board behind ssh: commands, files, signs of life.

Words are never a shell's to interpret: scripts are constants of this package and take what varies as `$1`, `$2`, …
"""

import os
import re
from abc import ABC, abstractmethod
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from model_profiling.base import files
from model_profiling.base.errors import KitError, RunError, SetupError


def _patience() -> float:
    """Return how much longer to wait for devices than usual (SME2_KIT_PATIENCE), for slow ones or to give up sooner."""
    try:
        return min(100.0, max(0.05, float(os.environ.get("SME2_KIT_PATIENCE", "1"))))
    except ValueError:
        return 1.0


PATIENCE = _patience()
# A device that says nothing for this long to a question that needs no work is not going to answer.
ANSWER_S = 20.0 * PATIENCE
# A pipe would be read for ever.
_SHA256 = 'for f in "$@"; do { [ -f "$f" ] && sha256sum < "$f"; } 2> /dev/null || echo -; done'
_SIZE_AND_SHA256 = 'stat -c %s "$1" && sha256sum < "$1"'
# A slow machine reads so long in a large file.
_HASHING_S = 120.0 * max(1.0, PATIENCE)
_REASONS = r"No space left|Disk quota|Permission denied|Read-only"
# So many paths go into one question.
_AT_ONCE = 50


class DeviceLostError(RunError):
    """The way to the device is gone: cable, reboot, network, adb's server, ssh's connection."""


@dataclass(frozen=True)
class CommandOutput:
    """What a command on the device said, and its exit code there."""

    code: int
    stdout: str
    stderr: str

    @property
    def reason(self) -> str:
        """Why it failed: the last line of what it said."""
        said = (self.stderr or self.stdout).strip().splitlines()
        return said[-1][:200] if said else f"exit code {self.code}"


def read_script(*names: str) -> str:
    """Return scripts of this package as one, without their comments."""
    texts = (Path(__file__).with_name("scripts") / f"{name}.sh" for name in names)
    lines = [line for path in texts for line in path.read_text(encoding="utf-8").splitlines()]
    return "\n".join(line for line in lines if not line.startswith("#"))


def script_words(text: str, *parameters: str, name: str = "sh") -> list[str]:
    """Return the words that run a script of this package; what varies is in `$1`, `$2`, …"""
    return ["sh", "-c", text, name, *parameters]


class Device(ABC):
    """One machine that is reached by commands. Once it is lost, every further call fails at once until `reconnect`."""

    # What to call it in a sentence, and what tells it from others on this computer.
    title: str
    key: str
    # How to make the connection better if a file arrives damaged, and where the kit may write.
    link: str
    # How the program that leads to the device says that the way is gone.
    gone: re.Pattern[str]
    # What may have cut a connection that is there again.
    cut: str
    writable: str
    # The line after which the output of `command` is the command's own; b"" where all of it is.
    begins = b""
    _lost: DeviceLostError | None = None

    @abstractmethod
    def command(self, *words: str) -> list[str]:
        """Return the process here that runs these words there, with its standard streams; `freed` when it has ended."""

    def freed(self, command: list[str]) -> None:
        """Note that what `command` gave has ended, or was never started."""
        del command

    @abstractmethod
    def shell(self, *words: str, timeout_s: float = ANSWER_S) -> CommandOutput:
        """Run one command on the device to its end; its exit code is the caller's to judge."""

    @abstractmethod
    def push(self, sources: Mapping[str, Path], folder: str) -> None:
        """Copy files into a folder of the device, each under its name; the caller verifies what arrived by `sha256`."""

    @abstractmethod
    def fetch(self, remote: str, size: int, local: Path) -> None:
        """Copy a file from the device; `pull` verifies what arrived."""

    @abstractmethod
    def present(self) -> bool:
        """Return whether there is a working connection, as far as that is known without asking the device."""

    @abstractmethod
    def answers(self, within_s: float) -> bool:
        """Return whether the device's shell still does something."""

    @abstractmethod
    def reconnect(self, wait_s: float) -> bool:
        """Return whether the device answers, or does again within `wait_s`."""

    def complains(self, line: str) -> bool:
        """Return whether the program that leads to the device says here that the way is gone."""
        return self.gone.match(line) is not None

    def script(self, text: str, *parameters: str, timeout_s: float = ANSWER_S) -> CommandOutput:
        return self.shell(*script_words(text, *parameters), timeout_s=timeout_s)

    def must(self, what: str, *words: str, timeout_s: float = ANSWER_S) -> str:
        """Run `shell` for a command that has to succeed, and return what it said."""
        output = self.shell(*words, timeout_s=timeout_s)
        if output.code != 0:
            said = (output.stderr or output.stdout).strip()
            raise self.refused(f"{self.title} cannot {what}", said or f"exit code {output.code}")
        return output.stdout

    def refused(self, what: str, why: str) -> KitError:
        """Return an error that knows the common reasons, in whichever line they stand; else the last line counts."""
        lines = why.splitlines()
        why = next((line for line in lines if re.search(_REASONS, line)), lines[-1] if lines else "").strip()
        if "No space left" in why or "Disk quota" in why:
            hint = "Free some space there (17 MB and the model), then run again."
            return RunError(f"{what}: its disk is full ({why})", hint)
        if "Permission denied" in why or "Read-only" in why:
            return SetupError(f"{what}: {why}", self.writable)
        return RunError(f"{what}: {why}", "Look at the device, then run again: what was finished is kept.")

    def pull(self, remote: str, local: Path) -> None:
        """Copy a file from the device and make sure that it arrived whole."""
        said = self.script(_SIZE_AND_SHA256, remote, timeout_s=_HASHING_S).stdout
        found = re.match(r"([0-9]{1,18})\s+([0-9a-f]{64})\b", said)
        if found is None:
            raise RunError(f"{self.title} has no {remote}", "Look into the runner's log.")
        self.fetch(remote, int(found[1]), local)
        if files.sha256(local) != found[2]:
            raise RunError(f"{local.name} was damaged on its way from the device", f"Run again; {self.link}.")

    def sha256(self, remotes: list[str]) -> dict[str, str]:
        """Return the hash of each of these files that is there."""
        found: dict[str, str] = {}
        for start in range(0, len(remotes), _AT_ONCE):
            part = remotes[start : start + _AT_ONCE]
            lines = self.script(_SHA256, *part, timeout_s=_HASHING_S).stdout.splitlines()
            found |= {path: line.split()[0] for path, line in zip(part, lines, strict=False) if len(line) >= 64}
        return found

    def boot_id(self) -> str:
        return self.shell("cat", "/proc/sys/kernel/random/boot_id").stdout.strip()

    def lost(self, why: str) -> DeviceLostError:
        """Remember that the device is gone, and say so."""
        hint = "Connect it again and run the same command: what was finished is kept."
        self._lost = DeviceLostError(f"{self.title} {why}", hint)
        return self._lost
