"""The server: the tools with what they may change, and the playbooks."""

from pathlib import Path
from typing import Any

from mcp.server.mcpserver import MCPServer
from mcp.types import ToolAnnotations

from model_profiling import __version__
from model_profiling.mcp_server.boundary import Workspace
from model_profiling.mcp_server.commands import Commands
from model_profiling.mcp_server.playbooks import SCHEME, add_playbooks
from model_profiling.mcp_server.read_tools import ReadTools
from model_profiling.mcp_server.registration import Method, tool_of
from model_profiling.mcp_server.run_tools import RunTools

INSTRUCTIONS = f"""Profiles ExecuTorch models: where the time goes, what acceleration changes, what to fix next.

From a model to a fix: `profile` (or `check`, `export`, `run`, `analyze` one by one). Its advice names the line of the
model and the gain to expect. If an advice has a `rewrite`, `export` again with `rewrites` and another `out`, then
`compare` the two .pte. `tune` does that for all advice. Otherwise change the model's code and profile again.
`kernels` and `forecast` show what SME2 would change on a machine without SME2; `report` writes it all for people.
Playbooks: prompts, and resources {SCHEME}NAME.

All paths are relative to the workspace and must stay inside it. Quote a speedup only with its interval, and none if
`contended` is true or `high` is null; times of the emulator are never latency; `what_if`, `forecast` and `gain` are
predictions, not measurements."""


def _hints(read_only: bool, destructive: bool, idempotent: bool, open_world: bool = False) -> ToolAnnotations:
    return ToolAnnotations(
        read_only_hint=read_only, destructive_hint=destructive, idempotent_hint=idempotent, open_world_hint=open_world
    )


_READS = _hints(read_only=True, destructive=False, idempotent=True)
# Runs the model's code, builds the runner, or writes again what derives from measurements; nothing else is replaced.
_ADDS = _hints(read_only=False, destructive=False, idempotent=True)
# Replaces files of an earlier call. The same call again changes nothing.
_REPLACES = _hints(read_only=False, destructive=True, idempotent=True)
# With `force`, the same call again measures again.
_MEASURES = _hints(read_only=False, destructive=True, idempotent=False)
# A device over the network, whose settings change while it is measured.
_MEASURES_ANYWHERE = _hints(read_only=False, destructive=True, idempotent=False, open_world=True)


def build_server(root: Path) -> MCPServer[Any]:
    """Return a server whose tools work in `root` and nowhere else."""
    commands = Commands(Workspace(root))
    reading, making = ReadTools(commands), RunTools(commands)
    reads = (reading.doctor, reading.models, reading.runs, reading.history, reading.roofs, reading.what_if)
    replacing = (making.export, making.profile, making.kernels, reading.report, making.numerics, reading.graph)
    kinds: list[tuple[ToolAnnotations, tuple[Method, ...]]] = [
        (_READS, (*reads, reading.forecast, reading.validate, reading.compare)),
        (_ADDS, (making.check, reading.analyze, reading.validate_skill)),
        (_REPLACES, (*replacing, making.compare_runtimes)),
        (_MEASURES, (making.tune,)),
        (_MEASURES_ANYWHERE, (making.run,)),
    ]
    tools = [tool_of(method, hints, commands.workspace) for hints, methods in kinds for method in methods]
    server: MCPServer[Any] = MCPServer(
        "sme2-kit", title="SME2 ExecuTorch Profiling Kit", instructions=INSTRUCTIONS, version=__version__, tools=tools
    )
    add_playbooks(server)
    return server
