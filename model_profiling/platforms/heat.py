"""Heat between turns: what a machine's sensors and clock limits say, and waiting until it has cooled."""

import contextlib
import re
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import get_args

from model_profiling.base.errors import KitError, RunError
from model_profiling.platforms.remote.device import Device, read_script
from model_profiling.store.run_directory import HeatSample, ThermalStatus

SEVERITIES: tuple[ThermalStatus, ...] = get_args(ThermalStatus)
_BETWEEN_SAMPLES_S = 1.0
_BETWEEN_LOOKS_S = 2.0
LONGEST_COOL_DOWN_S = 900.0


@dataclass(frozen=True)
class Heat:
    """One look at the device. `celsius` is None where no sensor may be read."""

    celsius: float | None
    sensor: str
    status: int
    limits_khz: tuple[int, ...]


@dataclass
class HeatLog:
    """Samples the device between turns, not more often than once a second, and cools it down where that is asked."""

    look: Callable[[], Heat]
    title: str
    cool_down: float | None
    samples: list[HeatSample] = field(default_factory=list)
    waited_s: float = 0.0
    _start: float | None = None
    _last: float = 0.0
    _free_khz: tuple[int, ...] = ()

    def before_turn(self) -> None:
        """Look, unless we just did, and wait if the device is hotter than asked."""
        if self.samples and time.monotonic() - self._last < _BETWEEN_SAMPLES_S:
            return
        heat = self._look()
        if self.cool_down is None:
            return
        if heat.celsius is None:
            raise RunError(f"{self.title} does not report a temperature", "Run without --cool-down.")
        begin = time.monotonic()
        while heat.celsius is not None and heat.celsius > self.cool_down:
            if time.monotonic() - begin > LONGEST_COOL_DOWN_S:
                raise RunError(
                    f"the device is still at {heat.celsius:g} °C ({heat.sensor}) after {LONGEST_COOL_DOWN_S:g} s; "
                    f"--cool-down asks for {self.cool_down:g} °C",
                    "Put it somewhere cooler, unplug fast chargers, or ask for a higher temperature.",
                )
            time.sleep(_BETWEEN_LOOKS_S)
            heat = self._look()
        self.waited_s += time.monotonic() - begin

    def finish(self) -> tuple[list[HeatSample], str, float]:
        """Return all samples since the last call, why the device counts as throttled (empty if it did not), and how
        many seconds turns waited for it to cool."""
        with contextlib.suppress(KitError):  # it is gone: what was seen of it counts
            self._look()
        samples, waited = self.samples, round(self.waited_s, 3)
        self.samples, self._start, self.waited_s = [], None, 0.0
        return samples, throttling(samples), waited

    def _look(self) -> Heat:
        heat = self.look()
        now = time.monotonic()
        self._start = now if self._start is None else self._start
        self._free_khz = self._free_khz or heat.limits_khz
        capped = any(now_khz < free for now_khz, free in zip(heat.limits_khz, self._free_khz, strict=False))
        at_s = round(now - self._start, 3)
        self.samples.append(HeatSample(at_s, heat.celsius, heat.sensor, SEVERITIES[heat.status], capped))
        self._last = now
        return heat


def throttling(samples: list[HeatSample]) -> str:
    """Return what says that the device throttled, in words; empty if nothing does."""
    worst = max((SEVERITIES.index(sample.status) for sample in samples), default=0)
    temperatures = [sample.celsius for sample in samples if sample.celsius is not None]
    heat = f" at up to {max(temperatures):g} °C" if temperatures else ""
    if worst:
        return f"the device throttled ({SEVERITIES[worst]}){heat}"
    if any(sample.clock_capped for sample in samples):
        return f"the device lowered its clock limit{heat}"
    return ""


# What throttling listens to comes first: android.hardware.thermal's TemperatureType, skin, CPU, battery.
_SENSORS = (("3", "skin"), ("0", "CPU"), ("2", "battery"))


def read_heat(device: Device) -> Heat:
    """Ask the thermal service, the battery and the clock limits in one call."""
    service, _, rest = device.script(read_script("android_heat")).stdout.partition("--- battery")
    battery, _, limits = rest.partition("--- limits")
    celsius, sensor = _temperature(service, battery)
    status = re.search(r"Thermal Status: ([0-9]{1,9})(?!\d)", service)
    level = min(int(status[1]), len(SEVERITIES) - 1) if status else 0
    return Heat(celsius, sensor, level, tuple(map(int, re.findall(r"(?<!\S)[0-9]{1,12}(?!\S)", limits))))


def _temperature(service: str, battery: str) -> tuple[float | None, str]:
    # The service lists cached values first and the current ones after them; the current ones count.
    current = service.partition("Current temperatures from HAL")[2] or service
    readings = re.findall(r"Temperature\{mValue=(-?[0-9]{1,9}(?:\.[0-9]{0,9})?), mType=(\d+), mName=([^,}]*)", current)
    for kind, name in _SENSORS:
        values = [float(value) for value, type_, _ in readings if type_ == kind]
        if values:
            return max(values), name
    tenths = re.search(r"^\s*temperature: (-?[0-9]{1,9})(?!\d)", battery, re.MULTILINE)
    return (int(tenths[1]) / 10, "battery") if tenths else (None, "")
