"""An Android device behind adb: the kit's Linux runner with its own C library, paced as on a desktop."""

import contextlib

from model_profiling.base.errors import KitError
from model_profiling.base.on_progress import OnNote
from model_profiling.platforms.bundle import Bundle, kit_bundle
from model_profiling.platforms.heat import HeatLog
from model_profiling.platforms.locks import Busy, Claim, Claims, TakenError, is_inherited, target_lock, wait_and_take
from model_profiling.platforms.platform_table import Choice
from model_profiling.platforms.remote.adb import AdbDevice, choose_device, find_adb
from model_profiling.platforms.remote.android_power import PowerSettings
from model_profiling.platforms.remote.android_probe import probe_device
from model_profiling.platforms.remote.android_thermal import read_heat
from model_profiling.platforms.remote.remote_platform import RemoteMachine, RemotePlatform
from model_profiling.platforms.remote.remote_store import Store
from model_profiling.runner.build import Build

ROOT = "/data/local/tmp/sme2_kit"
# The mode that changes no settings.
_KEEP = "keep"


class AndroidDevice(RemoteMachine):
    """A device behind adb in use."""

    def __init__(self, choice: Choice) -> None:
        super().__init__()
        adb = find_adb()
        serial = choose_device(adb, choice.device, choice.remote_device)
        self.device = self._adb = AdbDevice(adb, serial, remote=choice.remote_device is not None)
        self._adb.require_exit_codes()
        self.facts = probe_device(self._adb)
        self.heat = HeatLog(lambda: read_heat(self.device), self.device.title, choice.cool_down)
        self._power = PowerSettings(self._adb, choice.power_mode or _KEEP)
        self._claim: Claim | None = None

    def take(self) -> Store:
        wait_and_take(self._hold)
        store = Store(self.device, ROOT)
        self._power.apply()
        return store

    def bundle(self, build: Build) -> Bundle:
        return kit_bundle(build)

    def libraries(self, build: Build) -> dict[str, str]:
        return kit_bundle(build).hashes

    def power(self) -> dict[str, object]:
        return self._power.record

    def system_log(self, home: str) -> str:
        """Return the system log: XNNPACK built with trace logging names its kernels there."""
        pid = self.device.shell("cat", f"{home}/pid").stdout.strip()
        if not pid.isdigit():
            return ""
        return self.device.shell("logcat", "-d", f"--pid={pid}", timeout_s=60).stdout

    def let_go(self, remove_pushed: bool) -> str:
        """Put the settings back, also those that an earlier run could not."""
        if remove_pushed and self.pushed is not None:
            with contextlib.suppress(KitError):
                self.device.shell("rm", "-rf", ROOT)
        try:
            self._hold()
            return self._power.restore_whatever_happened()
        except TakenError:
            return ""  # they are the other run's
        finally:
            if self._claim is not None:
                self._claim.close()

    def _hold(self) -> None:
        """Take the device for this run; whoever does not hold it changes nothing on it."""
        name = target_lock("android", self.device.key)
        if self._claim is None and not is_inherited(name):
            claim = Claims().try_target(name)
            if isinstance(claim, Busy):
                raise TakenError(self.device.title, claim.who)
            self._claim = claim


def open_platform(choice: Choice, emulated: bool, on_note: OnNote) -> RemotePlatform:
    """Open the platform `android`; a device is chosen when it is first needed."""
    name, mode = "android", choice.power_mode or _KEEP
    return RemotePlatform(name, name, mode, lambda: AndroidDevice(choice), emulated, choice.remove_pushed, on_note)
