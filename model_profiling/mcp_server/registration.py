"""How a method becomes a tool: its parameters as they are described, its output schema, its errors."""

import functools
import inspect
import typing
from collections.abc import Awaitable, Callable
from typing import Any

import msgspec
from mcp.server.mcpserver.exceptions import ToolError
from mcp.server.mcpserver.tools import Tool
from mcp.types import CallToolResult, TextContent, ToolAnnotations

from model_profiling.base import files
from model_profiling.base.errors import KitError
from model_profiling.base.visible import visible

Method = Callable[..., Awaitable[msgspec.Struct]]


def tool_of(method: Method, annotations: ToolAnnotations) -> Tool:
    """Return a tool that answers with the method's Struct as structured content, and as JSON text for older clients."""
    description = " ".join((method.__doc__ or "").split())
    tool = Tool.from_function(
        _answering(method), description=description, annotations=annotations, structured_output=False
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


def _answering(method: Method) -> Callable[..., Awaitable[CallToolResult]]:
    """Return what the kit would tell a person, told to the assistant: what is wrong, what to do, and the exit code."""

    @functools.wraps(method)
    async def answering(*args: Any, **kwargs: Any) -> CallToolResult:
        try:
            answer = await method(*args, **kwargs)
        except KitError as error:
            fix = f"\nfix: {error.hint}" if error.hint else ""
            raise ToolError(f"{error.message}{fix}\n(exit code {error.exit_code})") from None
        text = visible(msgspec.json.encode(answer).decode())
        # Through JSON, so that both contents are the same: a key or a number may be another in Python.
        return CallToolResult(content=[TextContent(text=text)], structured_content=msgspec.json.decode(text))

    # Of the bound method: `wraps` takes over what a decorator said of the function, `self` included.
    answering.__signature__ = inspect.signature(method)  # type: ignore[attr-defined]
    return answering
