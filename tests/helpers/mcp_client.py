"""The official MCP client, talking to `sme2-kit mcp` over standard input and output, as an assistant does.

Every call is held to what the server says of its tool: the output schema, and what it may change.
"""

import hashlib
import os
import sys
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

import anyio
import jsonschema
from mcp import Client, StdioServerParameters, stdio_client

from tests.conftest import QUICK, ROOT, shared_home
from tests.helpers import warm, warm_drawing
from tests.helpers.waiting import LONGEST_S

_SERVE = """import sys
sys.executable = {python!r}
from model_profiling.cli.main import main
sys.exit(main(['mcp', '--workspace', {workspace!r}]))
"""


class Assistant:
    """A conversation with the server of one workspace."""

    def __init__(self, client: Client, workspace: Path, tools: dict[str, Any]) -> None:
        self.client = client
        self.workspace = workspace
        self.tools = tools
        self.said: list[str] = []
        self.progress: list[float] = []

    async def call(self, tool: str, **arguments: object) -> dict[str, Any]:
        """Call a tool that must succeed; returns its structured content, which its schema must describe."""
        hints, before = self.tools[tool].annotations, self._files()
        result = await self._asked(tool, arguments)
        assert not result.is_error, result.content
        content = result.structured_content
        assert isinstance(content, dict)
        jsonschema.validate(content, self.tools[tool].output_schema, jsonschema.Draft202012Validator)
        after = self._files()
        if hints.read_only_hint:
            assert after == before, f"{tool} is read-only and changed {_changed(before, after)}"
        if not hints.destructive_hint:
            # What derives from measurements may be written again; nothing else of what was there changes.
            kept = {name for name in before if not name.endswith((".json", ".md", ".csv"))}
            assert not kept & set(_changed(before, after)), f"{tool} is not destructive"
        return content

    async def call_twice(self, tool: str, **arguments: object) -> dict[str, Any]:
        """The same call twice; if the tool says that this changes nothing, nothing may have changed."""
        await self.call(tool, **arguments)
        before = self._files()
        content = await self.call(tool, **arguments)
        assert self.tools[tool].annotations.idempotent_hint
        assert self._files() == before, _changed(before, self._files())
        return content

    async def refused(self, tool: str, **arguments: object) -> str:
        result = await self._asked(tool, arguments)
        assert result.is_error, result
        return " ".join(getattr(part, "text", "") for part in result.content)

    async def _asked(self, tool: str, arguments: dict[str, object]) -> Any:
        self.said, self.progress = [], []

        async def note(progress: float, total: float | None, message: str | None) -> None:
            assert total is None or progress <= total
            self.progress.append(progress)
            self.said.append(message or "")

        result = await self.client.call_tool(tool, arguments, progress_callback=note)
        assert self.progress == sorted(set(self.progress)), "progress must rise"
        return result

    def _files(self) -> dict[str, str]:
        found = sorted(path for path in self.workspace.rglob("*") if path.is_file() and "__pycache__" not in path.parts)
        return {
            str(path.relative_to(self.workspace)): hashlib.sha256(path.read_bytes()).hexdigest()
            for path in found
            if not path.name.startswith(".") and not path.name.endswith(".lock")
        }


def _changed(before: dict[str, str], after: dict[str, str]) -> list[str]:
    return sorted(name for name in {*before, *after} if before.get(name) != after.get(name))


def drive(workspace: Path, conversation: Callable[[Assistant], Awaitable[None]], cold: bool = False) -> None:
    """Start the server in the workspace and hold a conversation with it; `cold`: it and its commands as users do."""
    python = sys.executable
    environment = {**os.environ, "PYTHONPATH": str(ROOT), **QUICK}
    if not cold and warm.available():
        python = str(warm.python(shared_home()))
        environment[warm_drawing.VARIABLE] = warm.drawing_address(shared_home())
    # Started elsewhere: nothing may depend on where the server itself was started.
    program = _SERVE.format(python=python, workspace=str(workspace))
    server = StdioServerParameters(command=python, args=["-c", program], cwd=ROOT, env=environment)

    async def talk() -> None:
        with anyio.fail_after(LONGEST_S):
            async with Client(stdio_client(server)) as client:
                tools = {tool.name: tool for tool in (await client.list_tools()).tools}
                await conversation(Assistant(client, workspace, tools))

    anyio.run(talk)
