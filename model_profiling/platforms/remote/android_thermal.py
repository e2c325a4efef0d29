"""What Android's thermal service, the battery and the clock limits say of the device's heat."""

import re

from model_profiling.platforms.heat import SEVERITIES, Heat
from model_profiling.platforms.remote.device import Device

# What throttling listens to comes first: android.hardware.thermal's TemperatureType, skin, CPU, battery.
_SENSORS = (("3", "skin"), ("0", "CPU"), ("2", "battery"))
_SCRIPT = """dumpsys thermalservice 2> /dev/null
echo '--- battery'
dumpsys battery 2> /dev/null
echo '--- limits'
cat /sys/devices/system/cpu/cpufreq/policy*/scaling_max_freq 2> /dev/null
true"""


def read_heat(device: Device) -> Heat:
    """Ask the thermal service, the battery and the clock limits in one call."""
    said = device.script(_SCRIPT).stdout
    service, _, rest = said.partition("--- battery")
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
