"""The options of an export as parameters of tools, and as words of the commands that they run."""

import inspect
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Annotated, Any, Literal, TypeVar, cast

from pydantic import Field

from model_profiling.export.options import OPTIONS, Option, Verb, expanded, options_of
from model_profiling.mcp_server import parameters as p
from model_profiling.mcp_server.boundary import Workspace

_MODEL = {"input_shapes": p.InputShapes, "settings": p.Settings, "checkpoint": p.Checkpoint}
Method = TypeVar("Method", bound=Callable[..., Any])


def takes_options(verb: Verb, optional: bool = False) -> Callable[[Method], Method]:
    """Spell `**options` out in the method's signature; `optional`: None tells that an option was not given."""

    def decorated(method: Method) -> Method:
        keyword = inspect.Parameter.KEYWORD_ONLY
        parameters = [_parameter(row, verb, optional) for row in options_of(verb)]
        parameters += [inspect.Parameter(name, keyword, default=None, annotation=kind) for name, kind in _MODEL.items()]
        method.__signature__ = expanded(method, parameters)  # type: ignore[attr-defined]
        return method

    return decorated


def _parameter(row: Option, verb: Verb, optional: bool) -> inspect.Parameter:
    usual, kind = row.default, row.plain_kind
    if row.choices:
        one: Any = cast(Any, Literal)[row.choices]
        kind = list[one] if row.repeated else one
    text = row.help_of(verb)
    text = f"{text[0].upper()}{text[1:]}" + (f" (default: {usual})." if optional and usual else ".")
    default = None if optional or usual == () else usual
    annotation: Any = Annotated[kind if default is not None else kind | None, Field(description=text)]
    return inspect.Parameter(row.name, inspect.Parameter.KEYWORD_ONLY, default=default, annotation=annotation)


def option_words(given: Mapping[str, Any], workspace: Workspace) -> list[str]:
    """Return the flags of what was given; `=` keeps a value that begins with a dash from being read as a flag."""
    words = []
    for row in OPTIONS:
        value = given.get(row.name)
        if value is None:
            continue
        if row.kind is bool:
            words += row.words(value)
            continue
        for each in value if row.repeated else [value]:
            words.append(f"{row.flag}={workspace.inside(each) if row.kind is Path else each}")
    return words
