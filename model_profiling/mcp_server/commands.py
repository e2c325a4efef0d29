"""How tools run commands of the kit: words from arguments, and one place that knows the workspace."""

from collections.abc import Iterable, Mapping
from pathlib import Path

from mcp.server.mcpserver import Context

from model_profiling.mcp_server.boundary import Workspace
from model_profiling.mcp_server.child import CommandResult, ProgressCounter, run_kit
from model_profiling.models.options import setting
from model_profiling.pipeline.defaults import output_root_of
from model_profiling.platforms.choosing import checked, named
from model_profiling.platforms.platform_table import MACHINES


class Commands:
    """The kit's command line in one workspace."""

    def __init__(self, workspace: Workspace) -> None:
        self.workspace = workspace

    async def kit(self, steps: ProgressCounter, *words: str, accept: tuple[int, ...] = (0,)) -> CommandResult:
        return await run_kit(list(words), self.workspace.root, steps, accept)

    async def written(self, steps: ProgressCounter, *words: str) -> list[str]:
        """Return the files that a command says it wrote, as the assistant names them."""
        ended = await self.kit(steps, *words)
        # What begins with a space is for people.
        return [self.workspace.relative(line) for line in ended.stdout.splitlines() if line and line[0] != " "]

    def output(self, model: Path, given: str | None, platform: str) -> Path:
        """Return where a run of `model` goes: the given or the usual place, which must be inside as well."""
        return self.workspace.inside(given or str(output_root_of(model, platform)))


def steps_of(context: Context) -> ProgressCounter:
    """Return the progress of one call."""
    return ProgressCounter(context.report_progress)


def flags(**given: object) -> list[str]:
    """Return `--name=value` of what was given; `=` keeps a value that begins with a dash from being read as a flag."""
    return [f"--{name.replace('_', '-')}={value}" for name, value in given.items() if value is not None]


def machine_words(machine: str | None) -> list[str]:
    """Return the flags that name another machine."""
    if machine is None:
        return []
    choice = checked(named(machine))
    return flags(platform=choice.platform, **{name: getattr(choice, name) for name in MACHINES})


def switches(**given: bool) -> list[str]:
    return [f"--{name.replace('_', '-')}" for name, on in given.items() if on]


def repeated(name: str, values: Iterable[object] | None) -> list[str]:
    return [f"--{name}={value}" for value in values or ()]


def settings_words(settings: Mapping[str, object] | None) -> list[str]:
    """Return values as `--set` reads them: Python literals; text that cannot be taken for one has no quotes."""
    plain = {key for key, value in (settings or {}).items() if isinstance(value, str) and setting(value) == value}
    return repeated("set", (f"{k}={v if k in plain else repr(v)}" for k, v in (settings or {}).items()))
