"""How a method becomes a tool: its parameters as they are described, its output schema, its errors."""

import difflib
import functools
import inspect
import typing
from collections.abc import Awaitable, Callable
from typing import Any

import msgspec
from mcp.server.mcpserver.exceptions import ToolError
from mcp.server.mcpserver.tools import Tool
from mcp.types import CallToolResult, TextContent, ToolAnnotations
from pydantic import ValidationError

from model_profiling.base import files
from model_profiling.base.errors import InputError, KitError
from model_profiling.base.visible import visible
from model_profiling.mcp_server import parameters as p
from model_profiling.mcp_server.boundary import LONGEST_CALL, Workspace

Method = Callable[..., Awaitable[msgspec.Struct]]


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
            before = faults.get(name)
            faults[name] = (
                f"{before} or {said}" if before else f"{tool} cannot take {name}={each['input']!r:.80}: {said}"
            )
            fixes.append(f"{name}: {known[name]['description']}")
    return InputError("; ".join(faults.values()), " ".join(dict.fromkeys(fixes)))


def tool_of(method: Method, annotations: ToolAnnotations, workspace: Workspace) -> Tool:
    """Return a tool that answers with the method's Struct as structured content, and as JSON text for older clients."""
    description = " ".join((method.__doc__ or "").split())
    tool = KitTool.from_function(
        _answering(method, workspace), description=description, annotations=annotations, structured_output=False
    )
    tool.fn_metadata.output_schema = output_schema(typing.get_type_hints(method)["return"])
    # A parameter that is misspelt would be ignored otherwise, and the answer would be to another question.
    tool.fn_metadata.arg_model.model_config["extra"] = "forbid"
    tool.fn_metadata.arg_model.model_rebuild(force=True)
    tool.parameters = tool.fn_metadata.arg_model.model_json_schema(by_alias=True)
    for shape in tool.parameters["properties"].values():
        shape.pop("title", None)  # the name once more
    return tool


def output_schema(type_: type[msgspec.Struct]) -> dict[str, Any]:
    """Return a Struct's JSON Schema with an object at its root, as the protocol wants, not a reference."""
    schema = files.json_schema(type_)
    root = schema["$defs"].pop(schema.pop("$ref").removeprefix("#/$defs/"))
    return {**root, **({"$defs": schema["$defs"]} if schema["$defs"] else {})}


def _told(error: KitError) -> ToolError:
    fix = f"\nfix: {error.hint}" if error.hint else ""
    return ToolError(f"{error.message}{fix}\n(exit code {error.exit_code})")


def _answering(method: Method, workspace: Workspace) -> Callable[..., Awaitable[CallToolResult]]:
    """Return what the kit would tell a person, told to the assistant: what is wrong, what to do, and the exit code."""
    parameters = inspect.signature(method).parameters
    texts = {name for name, each in parameters.items() if p.TEXT in getattr(each.annotation, "__metadata__", ())}

    @functools.wraps(method)
    async def answering(*args: Any, **kwargs: Any) -> CallToolResult:
        try:
            given = {name: value for name, value in kwargs.items() if name != "context"}
            if sum(workspace.check(name, value, name in texts) for name, value in given.items()) > LONGEST_CALL:
                raise InputError("the arguments of the call are too long", f"Give up to {LONGEST_CALL} characters.")
            answer = await method(*args, **kwargs)
        except KitError as error:
            raise _told(error) from None
        text = visible(msgspec.json.encode(answer).decode())
        # Through JSON, so that both contents are the same: a key or a number may be another in Python.
        return CallToolResult(content=[TextContent(text=text)], structured_content=msgspec.json.decode(text))

    # Of the bound method: `wraps` takes over what a decorator said of the function, `self` included.
    answering.__signature__ = inspect.signature(method)  # type: ignore[attr-defined]
    return answering
