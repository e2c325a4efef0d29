"""This machine: Linux or macOS, each under its own name, with the same code."""

import platform

from model_profiling.base.errors import SetupError
from model_profiling.base.on_progress import OnNote
from model_profiling.platforms.base import Capabilities
from model_profiling.platforms.environment import describe_host
from model_profiling.platforms.platform_table import Choice, local_name, row_of
from model_profiling.platforms.process_platform import ProcessPlatform, capabilities
from model_profiling.runner.build import build_runner


class LocalPlatform(ProcessPlatform):
    """Keeps the Platform protocol on the machine the kit itself runs on."""

    def __init__(self, name: str | None = None, no_lock: bool = False) -> None:
        wanted = name or local_name()
        if wanted != local_name():
            raise SetupError(
                f"the {wanted} platform runs only on {row_of(wanted).system}; this machine is {platform.system()}",
                f"Use scripts/{local_name()}_pipeline.py, or `sme2-kit run --platform {local_name()}`.",
            )
        super().__init__(wanted, build_runner(), prefix=(), timing="measured", no_lock=no_lock)

    def probe(self) -> Capabilities:
        return capabilities(self.features(), describe_host())


def open_platform(choice: Choice, emulated: bool, on_note: OnNote) -> LocalPlatform:
    """Open this machine."""
    return LocalPlatform(choice.platform, choice.no_lock)
