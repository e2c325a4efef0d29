"""Builds the kit with hatchling, and writes the JSON Schemas of its files into a wheel.

An editable install has no schemas (`make schema` writes them), so it builds without what the types need.
"""

import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

from hatchling import build
from hatchling.build import *  # noqa: F403 - a build backend is the functions of a module
from hatchling.builders.hooks.plugin.interface import BuildHookInterface


def get_requires_for_build_wheel(config_settings: dict[str, Any] | None = None) -> list[str]:
    return [*build.get_requires_for_build_wheel(config_settings), "msgspec>=0.19", "numpy>=1.26"]


class Schemas(BuildHookInterface):  # type: ignore[type-arg]
    PLUGIN_NAME = "custom"

    def initialize(self, version: str, build_data: dict[str, Any]) -> None:
        if self.target_name != "wheel" or version == "editable":
            return
        self.folder = tempfile.TemporaryDirectory()
        command = [sys.executable, "-B", "-m", "model_profiling.schemas", self.folder.name]
        subprocess.run(command, cwd=self.root, check=True)
        for path in Path(self.folder.name).rglob("*.json"):
            inside = path.relative_to(self.folder.name)
            build_data["force_include"][str(path)] = f"model_profiling/{inside.as_posix()}"

    def finalize(self, version: str, build_data: dict[str, Any], artifact_path: str) -> None:
        if hasattr(self, "folder"):
            self.folder.cleanup()
