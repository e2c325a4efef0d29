"""What a device is: model, chip, Android, cores and clusters, CPU features, memory, battery, heat."""

import re

from model_profiling.base.errors import SetupError
from model_profiling.platforms import cpus
from model_profiling.platforms.cpus import CpuCluster, DeviceFacts
from model_profiling.platforms.heat import SEVERITIES
from model_profiling.platforms.remote.adb import AdbDevice
from model_profiling.platforms.remote.android_thermal import read_heat

# Android's name for an architecture: the kit's target.
TARGETS = {"arm64-v8a": "linux-aarch64", "x86_64": "linux-x86_64"}


def probe_device(device: AdbDevice) -> DeviceFacts:
    """Ask the device everything that could explain a number."""
    properties = _properties(device.must("report its properties", "getprop"))
    abi = properties.get("ro.product.cpu.abi", "")
    if abi not in TARGETS:
        raise SetupError(
            f"the device {device.serial} runs {abi or 'an unknown ABI'}; ExecuTorch's wheels are for arm64 and x86_64",
            "Use a device with arm64-v8a or x86_64, or give your own runner through runner_path on one.",
        )
    arch = TARGETS[abi].removeprefix("linux-")
    present = cpus.features(device.shell("cat", "/proc/cpuinfo").stdout, arch)
    clusters = cpus.clusters_in(device.script(cpus.CLUSTERS).stdout)
    unique = " ".join([properties.get("ro.serialno") or device.serial, properties.get("ro.product.model", "")])
    environment = _environment(device, properties, abi, clusters)
    return DeviceFacts(TARGETS[abi], arch, present, clusters, device.boot_id(), unique, environment)


def _environment(
    device: AdbDevice, properties: dict[str, str], abi: str, clusters: tuple[CpuCluster, ...]
) -> dict[str, object]:
    maker, model = properties.get("ro.product.manufacturer", ""), properties.get("ro.product.model", "")
    chip = " ".join(filter(None, (properties.get("ro.soc.manufacturer"), properties.get("ro.soc.model"))))
    heat = read_heat(device)
    facts: dict[str, object] = {
        "cpu": ", ".join(filter(None, (f"{maker} {model}".strip(), chip or properties.get("ro.board.platform")))),
        "device": {"serial": device.serial, "manufacturer": maker, "model": model, "soc": chip},
        "system": f"Android {properties.get('ro.build.version.release', '?')}",
        "api_level": properties.get("ro.build.version.sdk"),
        "build": properties.get("ro.build.fingerprint"),
        "abi": abi,
        "cores": sum(len(cluster.cpus) for cluster in clusters) or None,
        "clusters": cpus.named_clusters(clusters),
        "sme_units": cpus.sme_units(device.script(cpus.SME_REGISTERS).stdout),
        "memory_bytes": cpus.memory_bytes(device.shell("cat", "/proc/meminfo").stdout),
        "battery": _battery(device.shell("dumpsys", "battery").stdout),
        "temperature_celsius": heat.celsius,
        "thermal_status": SEVERITIES[heat.status],
    }
    return {key: value for key, value in facts.items() if value not in (None, "", {}, [])}


def _properties(text: str) -> dict[str, str]:
    return dict(re.findall(r"^\[([^\]\n]+)\]: \[(.*)\]\r?$", text, re.MULTILINE))


def _battery(text: str) -> dict[str, object]:
    """Charge in percent, temperature, and whether it is plugged in: charging heats, and not charging saves power."""
    level = re.search(r"^\s*level: ([0-9]{1,9})(?!\d)", text, re.MULTILINE)
    tenths = re.search(r"^\s*temperature: (-?[0-9]{1,9})(?!\d)", text, re.MULTILINE)
    if not level:
        return {}
    plugged = re.findall(r"^\s*(AC|USB|Wireless|Dock) powered: true", text, re.MULTILINE)
    return {
        "level_percent": int(level[1]),
        "celsius": int(tenths[1]) / 10 if tenths else None,
        "plugged": plugged[0] if plugged else "no",
    }
