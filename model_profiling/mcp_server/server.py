"""The server: the tools with what they may change, and the playbooks."""

import difflib
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Annotated, Any

import msgspec
from mcp.server.mcpserver import Context, MCPServer
from mcp.server.mcpserver.exceptions import ToolError
from mcp.server.mcpserver.prompts import Prompt
from mcp.server.mcpserver.resources import TextResource
from mcp.server.mcpserver.tools import Tool
from mcp.types import CallToolResult, TextContent
from pydantic import Field, ValidationError

from model_profiling import __version__
from model_profiling.base import files
from model_profiling.base.errors import InputError, KitError
from model_profiling.base.visible import visible
from model_profiling.mcp_server.boundary import LONGEST_CALL, Workspace
from model_profiling.mcp_server.tool_table import TOOLS, ToolRow
from model_profiling.mcp_server.tools import Tools, signature_of
from model_profiling.skills.catalogue import Skill, skills

SCHEME = "sme2-kit://playbooks/"
_WITH_TOOLS = """Follow this playbook. Where this server has a tool, call it instead of the command: `sme2-kit export`
is the tool `export`, and so on; `--flag value` is the parameter `flag`. Scripts stand for commands: export_model.py for
`export`, linux_pipeline.py and mac_pipeline.py for `run`, analyze_results.py for `analyze`, generate_report.py for
`report`, validate_results.py for `validate`, validate_setup.py for `doctor`; `sme2-kit skills validate` is the tool
`validate_skill`. Paths are relative to the workspace."""
_SUBJECT = "What to do it with, in words: a model, a .pte, a run directory (default: as the playbook says)."


def add_playbooks(server: MCPServer[Any]) -> None:
    for skill in skills():
        server.add_resource(
            TextResource(
                uri=f"{SCHEME}{skill.name}",
                name=skill.name,
                title=skill.description,
                description=f"When to use: {skill.when_to_use}",
                mime_type="text/markdown",
                text=skill.body,
            )
        )
        server.add_prompt(_prompt(skill))


def _prompt(skill: Skill) -> Prompt:
    def start(subject: Annotated[str, Field(description=_SUBJECT)] = "") -> str:
        about = f"\n\nDo it for: {subject}" if subject.strip() else ""
        verify = f"It is done when `{skill.verify}` ends with exit code {skill.exit_code}."
        return f"{_WITH_TOOLS} {verify}{about}\n\n{skill.body}"

    return Prompt.from_function(
        start, name=skill.name, title=skill.description, description=f"{skill.description} Use when {skill.when_to_use}"
    )


INSTRUCTIONS = f"""Profiles ExecuTorch models: where the time goes, what acceleration changes, what to fix next.

From a model to a fix: `profile` (or `check`, `export`, `run`, `analyze` one by one). Its advice names the line of the
model and the gain to expect. If an advice has a `rewrite`, `export` again with `rewrites` and another `out`, then
`compare` the two .pte. `tune` does that for all advice. Otherwise change the model's code and profile again.
`kernels` and `forecast` show what SME2 would change on a machine without SME2; `report` writes it all for people.
Playbooks: prompts, and resources {SCHEME}NAME.

All paths are relative to the workspace and must stay inside it. Quote a speedup only with its interval, and none if
`contended` is true or `high` is null; times of the emulator are never latency; `what_if`, `forecast` and `gain` are
predictions, not measurements."""


def build_server(root: Path) -> MCPServer[Any]:
    """Return a server whose tools work in `root` and nowhere else."""
    tools = Tools(Workspace(root))
    server: MCPServer[Any] = MCPServer(
        "sme2-kit",
        title="SME2 ExecuTorch Profiling Kit",
        instructions=INSTRUCTIONS,
        version=__version__,
        tools=[tool_of(tools, row) for row in TOOLS],
    )
    add_playbooks(server)
    return server


class KitTool(Tool):
    """A tool that says in the kit's words which of its arguments are wrong."""

    async def run(self, *args: Any, **kwargs: Any) -> Any:
        try:
            return await super().run(*args, **kwargs)
        except ToolError as error:
            if not isinstance(error.__cause__, ValidationError):
                raise
            raise _told(wrong_arguments(self.name, error.__cause__, self.parameters["properties"])) from None


def wrong_arguments(tool: str, error: ValidationError, known: dict[str, Any]) -> InputError:
    """Return what is wrong with a call's arguments, each parameter once, and what to do."""
    faults: dict[str, str] = {}
    fixes = []
    for each in error.errors(include_url=False):
        name = str(each["loc"][0]) if each["loc"] else ""
        if name not in known:
            close = difflib.get_close_matches(name, known, 1, 0.5)
            faults[name] = f"{tool} has no parameter {name!r}{f'; did you mean {close[0]!r}?' if close else ''}"
            fixes.append(f"{tool} takes: {', '.join(known) or 'no parameters'}.")
        elif each["type"] == "missing":
            faults[name] = f"{tool} needs the parameter {name!r}"
            fixes.append(f"{name}: {known[name]['description']}")
        else:
            # Of a parameter that may be of several types, each type says why the value is not of it.
            said = each["msg"].replace("Input should", "should")
            first = f"{tool} cannot take {name}={each['input']!r:.80}: {said}"
            faults[name] = f"{faults[name]} or {said}" if name in faults else first
            fixes.append(f"{name}: {known[name]['description']}")
    return InputError("; ".join(faults.values()), " ".join(dict.fromkeys(fixes)))


def tool_of(tools: Tools, row: ToolRow) -> Tool:
    """Return a tool that answers with structured content, and with the same as JSON text for older clients."""
    tool = KitTool.from_function(
        _function(tools, row),
        name=row.name,
        description=row.description,
        annotations=row.change,
        structured_output=False,
        context_kwarg="context",
    )
    schema = files.json_schema(row.answers, _anything)
    definitions = schema["$defs"]
    tool.fn_metadata.output_schema = {**definitions.pop(schema["$ref"].rpartition("/")[2]), "$defs": definitions}
    # A parameter that is misspelt would be ignored otherwise, and the answer would be to another question.
    tool.fn_metadata.arg_model.model_config["extra"] = "forbid"
    tool.fn_metadata.arg_model.model_rebuild(force=True)
    tool.parameters = tool.fn_metadata.arg_model.model_json_schema(by_alias=True)
    for shape in tool.parameters["properties"].values():
        shape.pop("title", None)  # the name once more
    return tool


def _anything(type_: type[Any]) -> dict[str, Any]:
    if type_ is object:
        return {"anyOf": [{"type": name} for name in ("object", "array", "string", "number", "boolean", "null")]}
    raise NotImplementedError


def _told(error: KitError) -> ToolError:
    fix = f"\nfix: {error.hint}" if error.hint else ""
    return ToolError(f"{error.message}{fix}\n(exit code {error.exit_code})")


def _function(tools: Tools, row: ToolRow) -> Callable[..., Awaitable[CallToolResult]]:
    """Return the function of a tool, whose signature is its schema. What the kit would tell a person, it tells the
    assistant: what is wrong, what to do, and the exit code."""
    texts = {each.name for each in row.parameters if each.kind == "text"}

    async def answered(*, context: Context, **given: Any) -> CallToolResult:
        try:
            if sum(tools.workspace.check(name, value, name in texts) for name, value in given.items()) > LONGEST_CALL:
                raise InputError("the arguments of the call are too long", f"Give up to {LONGEST_CALL} characters.")
            if row.name == "run" and given.get("model") is None and given.get("config") is None:
                raise InputError("there is nothing to run", "Give `model`, a .pte, or `config`.")
            answer = await tools.call(row, context, given)
        except KitError as error:
            raise _told(error) from None
        text = visible(msgspec.json.encode(answer).decode())
        # Through JSON, so that both contents are the same: a key or a number may be another in Python.
        return CallToolResult(content=[TextContent(text=text)], structured_content=msgspec.json.decode(text))

    answered.__name__ = row.name
    answered.__signature__ = signature_of(row)  # type: ignore[attr-defined]
    return answered
