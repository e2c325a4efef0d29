"""What is said of one parameter, for the command line, Python and assistants alike."""

from dataclasses import dataclass
from typing import Any, Literal

# What text may become: a path; a run, or a file of one (DIR, DIR@LABEL); a side of a comparison (also DIR:EXPERIMENT);
# a model by its name or in a file; a release or a path; a runtime or a path; a config, which names paths; a platform
# with its machine; a target of forecasts; a playbook; a name in a Python file, or a folder (`code`). A `name` is
# looked up among names, a `part`, as of an experiment or a machine, becomes part of a path, and `text` does not.
Kind = Literal[
    "name", "part", "text", "path", "run", "side", "model", "release", "runtime", "config", "machine", "target",
    "skill", "code",
]  # fmt: skip


@dataclass(frozen=True, eq=False)
class Parameter:
    """How a parameter is said. The last group follows from where it is used: `parameter` fills it in."""

    metavar: str | None = None
    kind: Kind = "name"
    # These, and `most`, may be the place of a constant instead (see `looked_up`).
    choices: tuple[str, ...] | str = ()
    # '' for the name with dashes, behind `--no-` where it is on unless asked otherwise.
    flag: str = ""
    # Spellings that work and are not listed; without dashes, names that a tool had.
    earlier: tuple[str, ...] = ()
    group: str = ""
    least: float | str | None = None
    most: float | str | None = None
    # One word has several values, a flag has so many words, what a flag without a value means.
    commas: bool = False
    words: int | Literal["+"] | None = None
    bare: Any = None
    # A file that a result is put in, perhaps after minutes: whether it can be is looked at first.
    written: bool = False

    help: str = ""
    name: str = ""
    type: Any = str
    many: bool = False
    pairs: bool = False
    default: Any = None
    plain: bool = False
    required: bool = False

    @property
    def spelled(self) -> str:
        """How the command line writes it."""
        if self.plain:
            return self.metavar or self.name
        return self.flag or f"--{'no-' if self.default is True else ''}{self.name.replace('_', '-')}"

    @property
    def sentence(self) -> str:
        return f"{self.help[:1].upper()}{self.help[1:]}."

    def word_list(self, value: Any) -> list[str]:
        """Return the words of a command that say this value, a flag in one with it: values begin with -, too."""
        if self.type is bool:
            return [self.spelled] if value is not bool(self.default) else []
        if self.pairs:
            values = [f"{key}={each}" for key, each in value.items()]
        else:
            values = list(map(str, value)) if isinstance(value, list | tuple) else [str(value)]
        if self.commas:
            values = [",".join(values)]
        return values if self.plain else [f"{self.spelled}={each}" for each in values]


def looked_up(given: Any) -> Any:
    """Return a constant by its place in the package, as `module.NAME`; anything else as it is."""
    if not isinstance(given, str):
        return given
    from importlib import import_module

    module, _, name = given.rpartition(".")
    return getattr(import_module(module), name)
