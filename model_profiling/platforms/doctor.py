"""Looks at the machine: compiler, wheel, CPU features, torch, emulator, adb, and how quiet it is."""

import importlib.metadata
import importlib.util
import os
import platform
import re
import shlex
import shutil
import statistics
import sys
import time
from collections.abc import Callable

import msgspec

from model_profiling.base import cache
from model_profiling.base.directories import cache_directory
from model_profiling.base.dtypes import ARITHMETICS
from model_profiling.base.errors import KitError
from model_profiling.base.installation import install_command
from model_profiling.base.programs import StartError, TimedOutError, run_program
from model_profiling.base.units import counted
from model_profiling.platforms.emulator import NEEDED, find_qemu, how_to_install
from model_profiling.platforms.environment import describe_host
from model_profiling.platforms.platform_table import PLATFORMS, Tool
from model_profiling.platforms.process_platform import list_features
from model_profiling.runner import features
from model_profiling.runner.build import build_runner
from model_profiling.runner.sdk import TARGETS, host_target, installed_sdk

_OLDEST, _NEWEST = (3, 10), (3, 14)
# In percent above the median: on a machine that has nothing else to do, 19 of 20 repeats of some work take less.
_MOST_P95 = 25
_MOST_NAMED = 3


class Check(msgspec.Struct, frozen=True):
    """One thing looked at. Without an essential one neither export nor run works here."""

    what: str
    ok: bool
    found: str
    fix: str = ""
    essential: bool = False


def essential_checks() -> list[Check]:
    """Return what `export` and `run` on this machine cannot do without."""
    return [
        Check(
            "Python",
            _OLDEST <= sys.version_info[:2] <= _NEWEST,
            platform.python_version(),
            "Use Python 3.10 to 3.14.",
            essential=True,
        ),
        _guarded("ExecuTorch", lambda: f"{installed_sdk().version}, with C++ libraries"),
        _guarded("runner", lambda: f"built for {(build := build_runner()).target.name} with {build.compiler}"),
        _guarded("CPU features", _features),
        _package("torch", " (docs/install.md: how to take a CPU build)"),
        _package("torchao"),
    ]


def further_checks() -> list[Check]:
    """Return what other platforms and quiet measurements need."""
    found, ok = "qemu-aarch64 is not in PATH: SME2 kernels cannot be traced here", False
    if (qemu := find_qemu()) is not None:
        ok = qemu.version >= NEEDED
        found = f"QEMU {qemu.text}, supports SME2" if ok else f"QEMU {qemu.text} supports SME but not SME2 (10.1 does)"
    load, cores = os.getloadavg()[0], os.cpu_count() or 1
    said = f"{load:.2f} on {counted(cores, 'core')}"
    return [
        Check("emulator", ok, found, "" if ok else how_to_install()),
        _cross_compiler(),
        *(_tool(row.tool) for row in PLATFORMS if row.tool is not None),
        _cache(),
        Check("load", load < 0.5 * cores, said, "Stop other work while measuring."),
        _governor(),
        _jitter(),
    ]


def _guarded(what: str, find: Callable[[], str]) -> Check:
    try:
        return Check(what, True, find(), essential=True)
    except KitError as error:
        return Check(what, False, error.message, error.hint, essential=True)


def _features() -> str:
    """Return the CPU's features, and which of them an on/off comparison would switch."""
    said = list_features([str(build_runner().path)])
    if said is None:
        raise KitError("the runner could not list them", "Run `sme2-kit build` to see why.")
    if said.unproven:
        return f"not known: {said.unproven}"
    present = set(said.present)
    chosen = {dtype: features.default_accelerator(said.arch, present, dtype) for dtype in ARITHMETICS}
    pairs = ", ".join(f"{dtype}: {name or 'nothing to switch'}" for dtype, name in chosen.items())
    return f"{' '.join(said.present) or 'none'} (proven by {said.proof}); on/off switches {pairs}"


def _package(name: str, remark: str = "") -> Check:
    found = importlib.util.find_spec(name) is not None
    fix = install_command("export") + remark
    return Check(name, found, importlib.metadata.version(name) if found else "not installed", fix, essential=True)


def _tool(tool: Tool) -> Check:
    name, path = tool.command, shutil.which(tool.command)
    if path is None:
        return Check(name, False, f"{name} is not in PATH", tool.install)
    try:
        done = run_program([path, tool.asked], timeout_s=20, doing=f"asking {name} for its version")
    except (StartError, TimedOutError) as error:
        return Check(name, False, error.message, error.hint)
    version = re.search(tool.answer, done.stdout + done.stderr)
    return Check(name, True, f"{name} {version[1] if version else ''}".strip())


def _cross_compiler() -> Check:
    """Check for what it takes to run Arm code on a machine that is not Arm."""
    target = TARGETS["linux-aarch64"]
    if host_target() == target:
        return Check("Arm compiler", True, "this machine's own")
    command = target.cross_compiler[0]
    found = shutil.which(command) is not None
    return Check("Arm compiler", found, command if found else f"{command} is not in PATH", how_to_install())


def _cache() -> Check:
    """Check the cache, after the runner, which was made again if it was damaged."""
    try:
        home, damaged = cache_directory(), cache.damaged_entries()
    except KitError as error:
        return Check("cache", False, error.message, error.hint)
    if not damaged:
        return Check("cache", True, f"{home}, nothing damaged")
    names = [str(path.relative_to(home)) for path in damaged]
    more = [f"and {len(names) - _MOST_NAMED} more"] if len(names) > _MOST_NAMED else []
    removable = damaged if not more else sorted({path.parent for path in damaged})
    fix = f"Made again when it is used. To remove it: rm -r {shlex.join(map(str, removable))}"
    return Check("cache", False, f"damaged in {home}: {', '.join(names[:_MOST_NAMED] + more)}", fix)


def _governor() -> Check:
    governors = describe_host().get("governors")
    if not isinstance(governors, list) or not governors:
        return Check("clock policy", True, "not visible here (virtual machine or macOS)")
    fix = "sudo cpupower frequency-set -g performance, for steadier numbers"
    return Check("clock policy", governors == ["performance"], ", ".join(governors), fix)


def _jitter() -> Check:
    """Return how much a fixed piece of work varies here: the noise every measurement will meet."""
    times = []
    for _ in range(200):
        start = time.perf_counter()
        sum(range(20_000))
        times.append(time.perf_counter() - start)
    middle = statistics.median(times)
    mad = statistics.median(abs(value - middle) for value in times) / middle * 100
    worst = (statistics.quantiles(times, n=20)[-1] / middle - 1) * 100
    said = f"a fixed workload varies by {mad:.1f} % (MAD); its p95 is {worst:+.0f} % from the median"
    return Check("noise", mad < 2 and worst < _MOST_P95, said, "Stop other work; take more runs.")
