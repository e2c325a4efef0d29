"""Keeps an assistant's paths inside the workspace the server was started in, whatever they are made of."""

import json
from pathlib import Path
from typing import Any

from model_profiling.api.parameter import Kind
from model_profiling.base import files
from model_profiling.base.errors import InputError
from model_profiling.models.public_zoos import zoo_name
from model_profiling.pipeline.config import named_paths
from model_profiling.runner.sdk import RELEASE
from model_profiling.runtimes.runtime_table import OF_FILES, RUNTIMES
from model_profiling.skills.catalogue import find_skill
from model_profiling.store.runs import resolve

# What one text, one list and all arguments of a call may have: a command line has its limits, too.
_LONGEST_TEXT, _MOST_ENTRIES, LONGEST_CALL = 4096, 1000, 1 << 16


class Workspace:
    """The directory tools may read and write. Symlinks are followed before the question is asked."""

    def __init__(self, root: Path) -> None:
        self.root = root.resolve()

    def check(self, name: str, value: Any, is_text: bool) -> int:
        """Refuse what no command can take, and, unless it `is_text`, what leads out as a path; return its length."""
        if isinstance(value, dict | list):
            if len(value) > _MOST_ENTRIES:
                raise InputError(f"{name} has {len(value)} entries", f"Give up to {_MOST_ENTRIES}.")
            parts = [*value, *value.values()] if isinstance(value, dict) else value
            return sum(self.check(name, each, is_text) for each in parts)
        if not isinstance(value, str):
            return 0
        if len(value) > _LONGEST_TEXT:
            raise InputError(f"{name} is {len(value)} characters long: {value[:40]}...", f"Give up to {_LONGEST_TEXT}.")
        if "\0" in value or any("\ud800" <= each <= "\udfff" for each in value):
            raise InputError(f"{name} has a zero byte or half a character: {value!r:.80}", "Leave that character out.")
        # `file.py:Class` and `DIR:EXPERIMENT` are a path and a name; a name alone may be that of a model, too.
        for path in () if is_text else (value if "/" in value or value == ".." else "", value.rpartition(":")[0]):
            self.inside(path)
        return len(value)

    def inside(self, text: str) -> Path:
        """Return the real path `text` means, seen from the workspace; an error if that is outside."""
        try:
            path = (self.root / Path(text).expanduser()).resolve()  # as commands read it
        except (OSError, ValueError, RuntimeError):
            raise InputError(f"{text!r:.200} is not a path", "Give a path relative to the workspace.") from None
        if path != self.root and self.root not in path.parents:
            raise InputError(f"{text} is outside the workspace", "Give a path inside the directory the server serves.")
        return path

    def run(self, text: str) -> Path:
        """Return the run directory that `DIR` or `DIR@LABEL` means, or a file in one; it must be inside."""
        return self.inside(str(resolve(self.inside(text))))

    def relative(self, path: Path | str) -> str:
        """Return how to name a path to the assistant: relative to the workspace where it is inside."""
        real = (self.root / path).resolve()
        short = str(real.relative_to(self.root)) if self.root in real.parents else "~"
        return str(path) if short.startswith("~") else short  # a command takes ~ for a home directory

    def model(self, text: str) -> str:
        """Return a model to export: a registered name as it is, or `file.py:Class` with the file inside.

        Relative to the workspace, where commands are run: so it is written into records and reports.
        """
        if (of_zoo := zoo_name(text)) is not None:
            self.inside(of_zoo[1])  # a folder with a configuration, perhaps
            return text
        file, colon, name = text.rpartition(":")
        if not colon and ("/" in text or text.endswith(".py")):
            raise InputError(f"{text} names no class", "Write path/to/file.py:ClassName.")
        return f"{self.relative(self.inside(file))}:{name}" if colon else text

    def word(self, kind: Kind, text: str) -> str:
        """Return text as a command is to read it, by what it may become; what leads out is refused."""
        if kind == "model" and not text.endswith((".pte", *OF_FILES)):
            return self.model(text)
        if kind == "code":
            file, colon, name = text.rpartition(":")
            return f"{self.inside(file)}:{name}" if colon else str(self.inside(text))
        if kind == "run":
            given = self.run(text)
            # A command may take a model in its place, and measure that.
            if not given.is_dir() and given.suffix != ".etdump":
                raise InputError(f"there is no run directory or .etdump at {text}", "`history` lists the runs.")
            return str(given)
        if kind == "side":
            path, colon, experiment = text.partition(":")
            real = self.run(path)
            self.inside(f"{real}/{experiment}")
            return f"{real}{colon}{experiment}"
        if kind == "config":
            return str(self.config(text)[0])
        if kind == "part":
            self.inside(text)
        if kind == "skill":
            return find_skill(text).name
        if kind in ("release", "runtime"):  # the command line takes a text apart at its commas
            known = RELEASE.fullmatch if kind == "release" else RUNTIMES.get
            return ",".join(part if known(part) else str(self.inside(part)) for part in text.split(","))
        return str(self.inside(text)) if kind in ("path", "model") else text

    def config(self, text: str) -> tuple[Path, Path | None]:
        """Return a config whose own paths are inside, too, and its output_root, if it has one."""
        path = self.inside(text)
        try:
            # The same reader as the pipeline's: another might see other values where a key stands twice.
            raw = json.loads(files.read_bytes(path, "config", limit=16 << 20))
        except (ValueError, RecursionError):
            return path, None  # `run` says what is wrong with it
        for value in named_paths(raw):
            self.inside(value)
        root = raw.get("output_root") if isinstance(raw, dict) else None
        return path, self.inside(root) if isinstance(root, str) else None
