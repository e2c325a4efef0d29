"""Which platform a command means: this machine, the emulator, or an Android device and how to treat it."""

import argparse
import contextlib
from collections.abc import Iterator
from pathlib import PurePosixPath
from typing import TYPE_CHECKING

from model_profiling.saying import warn

if TYPE_CHECKING:
    from model_profiling.platforms.base import Platform

_ANDROID = ("device", "remote_device", "power_mode", "cool_down", "remove_pushed")


def prepare_parser(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "--platform", choices=("linux", "mac", "emulator", "android"), help="default: that of this machine"
    )
    android = parser.add_argument_group("Android")
    android.add_argument("--device", metavar="SERIAL", help="which device, if adb sees several")
    android.add_argument("--remote-device", metavar="HOST:PORT", help="a device to connect to over the network")
    android.add_argument(
        "--power-mode",
        choices=("boost", "app", "keep"),
        help="the device's settings while it is measured, restored afterwards (keep: as they are)",
    )
    android.add_argument("--cool-down", type=float, metavar="CELSIUS", help="let the device cool to this before a turn")
    android.add_argument(
        "--remove-pushed", action="store_true", help="remove pushed files (default: keep them for the next run)"
    )


@contextlib.contextmanager
def chosen_platform(args: argparse.Namespace) -> Iterator["Platform"]:
    """The platform the flags name; when the command ends, however it ends, the machine is as it was."""
    from model_profiling.errors import InputError
    from model_profiling.platforms.emulator import EmulatorPlatform
    from model_profiling.platforms.local import LocalPlatform

    platform: Platform
    if args.platform == "android":
        platform = _android(args)
    else:
        given = [name for name in _ANDROID if getattr(args, name)]
        if given:
            flag = f"--{given[0].replace('_', '-')}"
            raise InputError(f"{flag} is for Android devices", "Add --platform android, or leave it out.")
        platform = EmulatorPlatform() if args.platform == "emulator" else LocalPlatform(args.platform)
    with contextlib.closing(platform):
        yield platform


def _android(args: argparse.Namespace) -> "Platform":
    from model_profiling.errors import InputError
    from model_profiling.pipeline.config import load_config
    from model_profiling.platforms.android import AndroidOptions, AndroidPlatform

    if args.device and args.remote_device:
        raise InputError("--device and --remote-device name two devices", "Give one of them.")
    options = AndroidOptions(
        args.device, args.remote_device, args.power_mode or "keep", args.cool_down, args.remove_pushed
    )
    prefixes = [e.launch_prefix for e in load_config(args.config).experiments] if args.config else []
    emulated = any(PurePosixPath(word).name.startswith("qemu-") for prefix in prefixes for word in prefix)
    return AndroidPlatform(options, emulated, lambda trouble: warn(f"warning: {trouble}\n"))
