"""A machine behind ssh, such as an Arm board or server: pushed to, paced and fetched from as a phone is."""

import contextlib

from model_profiling.base.errors import KitError, SetupError
from model_profiling.base.on_progress import OnNote
from model_profiling.platforms.bundle import Bundle, kit_bundle, small_bundle
from model_profiling.platforms.heat import HeatLog
from model_profiling.platforms.locks import wait_and_take
from model_profiling.platforms.machine_names import checked_machine, machine_folder
from model_profiling.platforms.platform_table import Choice
from model_profiling.platforms.process_platform import features_in
from model_profiling.platforms.remote.device import PATIENCE, CommandOutput
from model_profiling.platforms.remote.remote_platform import RemoteMachine, RemotePlatform
from model_profiling.platforms.remote.remote_store import Store
from model_profiling.platforms.remote.ssh import SshDevice
from model_profiling.platforms.remote.ssh_lock import TargetLock
from model_profiling.platforms.remote.ssh_probe import probe_board, read_heat
from model_profiling.runner.build import Build

_WAIT_FOR_HOST_S = 5.0 * PATIENCE
# How long to wait before a host is asked again whether somebody still measures on it, which costs it a little time.
_LOOK_S = 5.0
# Where the kit may keep its files, best first. A folder that anybody could have made must be the user's own.
_FOLDERS = ("${XDG_CACHE_HOME:-$HOME/.cache}/sme2_kit", "/var/tmp/sme2_kit-$(id -u)", "/tmp/sme2_kit-$(id -u)")
# Makes a folder, private, and runs something in it: home directories may be mounted without the right to.
_TRY_FOLDER = """umask 077
mkdir -p "$1" || exit 1
[ "$(stat -c %u "$1")" = "$(id -u)" ] || { echo "it belongs to somebody else" >&2; exit 1; }
cd "$1" || exit 1
try=$1/try-$$
printf '#!/bin/sh\\nexit 0\\n' > "$try" && chmod 700 "$try" && "$try"
code=$?
rm -f "$try"
exit $code"""
# What lies in the kit's folder and runs while nobody else holds the machine was left behind by a lost connection.
_END_STALE = """for p in "$1"/session-*/pid; do
  [ -r "$p" ] || continue
  pid=$(cat "$p"); case "$pid" in ''|*[!0-9]*) continue ;; esac
  case "$(tr '\\0' ' ' < /proc/$pid/cmdline 2> /dev/null)" in *"$1"*) kill -9 "$pid" && echo "$pid" ;; esac
done
true"""


class Board(RemoteMachine):
    """A machine behind ssh in use."""

    def __init__(self, choice: Choice) -> None:
        super().__init__()
        self.device = self._ssh = SshDevice(choice.host or "", choice.ssh_config)
        self._folder = choice.remote_dir
        self._lock = TargetLock(self.device)
        try:
            self.facts = probe_board(self.device)
        except BaseException:
            self._ssh.close()
            raise
        self.heat = HeatLog(lambda: read_heat(self.device), self.device.title, choice.cool_down)

    def take(self) -> Store:
        wait_and_take(self._lock.take, _LOOK_S)
        root = self._usable_folder()
        self.device.script(_END_STALE, root)
        return Store(self.device, root)

    def bundle(self, build: Build) -> Bundle:
        """Return the target's own C library if the runner starts with it, else the one that the kit brings."""
        own = small_bundle(build)
        why = self._tried(own)
        if not why:
            self.c_library = "the target's own"
            return own
        whole = kit_bundle(build)
        why_not = self._tried(whole)
        if why_not:
            raise SetupError(
                f"the runner does not start on {self.device.title}: {why_not} (with its own C library: {why})",
                "Look at the reason; --remote-dir names another folder for the kit's files.",
            )
        self.c_library = f"the kit's ({why})"
        return whole

    def libraries(self, build: Build) -> dict[str, str]:
        """Return the hashes of all that may be pushed, and which C library the machine has itself: which of the two is
        used is known only when the runner was started there."""
        hashes = small_bundle(build).hashes
        with contextlib.suppress(SetupError):  # there is none for it on this machine
            hashes = kit_bundle(build).hashes
        return {**hashes, "libc": str(self.facts.environment.get("own_c_library") or "")}

    def let_go(self, remove_pushed: bool) -> str:
        """Stop everything that still runs; if the connection was lost, one more is tried for that alone."""
        store = self.pushed
        try:
            if store is not None:
                with contextlib.suppress(KitError):
                    if self.device.reconnect(_WAIT_FOR_HOST_S):
                        self.device.script(_END_STALE, store.root)
                        if remove_pushed:
                            self.device.shell("rm", "-rf", store.root)
            self._lock.release()
        finally:
            self._ssh.close()
        return ""

    def _tried(self, bundle: Bundle) -> str:
        """Return why the kit's runner does not start from a bundle; empty if it does."""
        home = self.store.bundle(bundle)
        output = self.device.shell(*bundle.start(home), "--list_features", timeout_s=60 * max(1.0, PATIENCE))
        return "" if features_in(output.stdout) else _reason(output)

    def _usable_folder(self) -> str:
        """Return a folder in which files can be written and run."""
        if self._folder is not None:
            names = [self._folder]
        else:
            expanded = self.device.script("\n".join(f'echo "{name}"' for name in _FOLDERS)).stdout.splitlines()
            names = [name for name in expanded if name.startswith("/")]
        refusals = []
        for name in names:
            output = self.device.script(_TRY_FOLDER, name)
            if output.code == 0:
                return name
            refusals.append((name, _reason(output)))
        if len(refusals) == 1 or all("No space left" in why for _, why in refusals):
            raise self.device.refused(f"{self.device.title} has no use of the folder {refusals[0][0]}", refusals[0][1])
        tried = "; ".join(f"{name}: {why}" for name, why in refusals)
        raise SetupError(
            f"{self.device.title} has no folder where the runner could lie ({tried})",
            "Name one that you may write, on a file system mounted without noexec, with --remote-dir DIR.",
        )


def _reason(output: CommandOutput) -> str:
    said = (output.stderr or output.stdout).strip().splitlines()
    return said[-1][:200] if said else f"exit code {output.code}"


def open_platform(choice: Choice, emulated: bool, on_note: OnNote) -> RemotePlatform:
    """Open the platform `ssh`; the connection is made when it is first needed."""
    folder = machine_folder("ssh", checked_machine(choice.host or ""))
    return RemotePlatform("ssh", folder, "", lambda: Board(choice), emulated, choice.remove_pushed, on_note)
