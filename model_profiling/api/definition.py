"""The definition of a verb: what its function's signature says, for whoever makes a parser, a tool or a page of it."""

import dataclasses
import typing
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, cast

from model_profiling.api import parameters
from model_profiling.api.parameter import Parameter

if TYPE_CHECKING:
    from model_profiling.export.options import Option, Verb

# The default of what has none.
EMPTY = object()
_UNIONS = (typing.Union, type(int | None))
# Switches that are on unless asked otherwise.
_ON = ("lock", "trial", "keep_program")


def parameter(name: str, annotation: Any, default: Any = EMPTY, plain: bool = False) -> Parameter:
    """Return what an annotation says of a parameter, with what follows from where it stands."""
    declared, *marks = typing.get_args(annotation)
    row = next((mark for mark in marks if isinstance(mark, Parameter)), Parameter())
    kinds = list(typing.get_args(declared)) if typing.get_origin(declared) in _UNIONS else [declared]
    several = next((each for each in kinds if typing.get_origin(each) in (Sequence, Mapping)), None)
    kind = next(k for k in kinds if k is not type(None)) if several is None else typing.get_args(several)[-1]
    made: Parameter = dataclasses.replace(
        row,
        help=next((mark for mark in marks if isinstance(mark, str)), ""),
        name=name,
        type=kind if kind in (bool, int, float, Path) else str,
        many=several is not None,
        pairs=typing.get_origin(several) is Mapping,
        default=None if default is EMPTY else default,
        plain=plain and not row.flag,
        required=default is EMPTY,
    )
    return made


def _of_option(row: "Option", verb: "Verb") -> Parameter:
    usual = f" (default: {row.default})" if row.default not in (None, (), True, False) else ""
    text = f"{'do not ' if row.default is True else ''}{row.help_of(verb)}{usual}"
    said: dict[str, Any] = {"help": f"{text}{'; may be repeated' if row.repeated else ''}", "name": row.name}
    said |= {"type": row.kind, "many": row.repeated, "default": row.default}
    return Parameter(row.metavar, "path" if row.kind is Path else "name", row.choices, row.flag, **said)


def parameters_of(function: Callable[..., Any]) -> list[Parameter]:
    """Return the parameters of a verb that can be said in words, options of an export among them."""
    from inspect import Parameter as Given

    exports: Verb | None = vars(function).get("exports")
    options = {row.name: row for row in (_options(exports) if exports else ())}
    found = []
    for each in vars(function)["definition"].parameters.values():
        if exports and (row := options.get(each.name)) is not None:
            found.append(_of_option(row, exports))
        elif (alias := alias_of(each.annotation)) is not None:
            default = EMPTY if each.default is Given.empty else each.default
            found.append(parameter(each.name, alias, default, each.kind is each.POSITIONAL_OR_KEYWORD))
    return found


def alias_of(annotation: Any) -> Any:
    """Return what the annotation of a verb stands for, None if it says nothing of a parameter."""
    text = str(annotation)
    if text.startswith("Annotated["):  # of one verb alone
        own = type("", (), {"__annotations__": {"it": text}})
        return typing.get_type_hints(own, vars(parameters), None, True)["it"]
    alias = vars(parameters).get(text.removeprefix("p.").removesuffix(" | None"))
    return alias if typing.get_origin(alias) is Annotated else None


def find(text: str) -> Iterator[Parameter]:
    """Yield parameters by their names: `runs`; `name=Alias` is one that is called otherwise; `!` behind it makes it a
    plain argument, `?` one that may be left out. `@check` are a model's and the options of an export that `check`
    has, `@machine` where to measure, `@counts` how much."""
    for word in text.split():
        name, _, alias = word.strip("!?@").partition("=")
        if word == "@counts":
            yield from find("runs launches budget_s")
        elif word == "@machine":
            yield from find("platform=PlatformName lock")
            yield from machines()
        elif word.startswith("@"):
            yield from (_of_option(row, cast("Verb", name)) for row in _options(cast("Verb", name)))
            yield from find("input_shapes settings checkpoint")
        elif name in ("device", "remote_device", "host", "power_mode", "cool_down") and not alias:
            yield next(each for each in machines() if each.name == name)
        else:
            annotation = vars(parameters)[alias or "".join(part.capitalize() for part in name.split("_"))]
            on = True if name in _ON or alias.startswith("No") else None
            yield parameter(name, annotation, EMPTY if word.endswith("!") else on, word[-1] in "!?")


def takes(function: Callable[..., Any] | None = None, more: str = "", without: str = "") -> list[Parameter]:
    """Return the parameters of a verb: those of its function, then those that only commands or tools have."""
    own = [each for each in parameters_of(function) if each.name not in without.split()] if function else []
    own += list(machines()) if any(each.name == "lock" for each in own) else []
    names = {each.name for each in own}
    return own + [each for each in find(more) if each.name not in names]


def machines() -> Iterator[Parameter]:
    """Yield how another machine is named and treated, as the table of platforms says it."""
    from model_profiling.platforms.platform_table import FLAGS

    for name, flag in FLAGS.items():
        switch, kind = flag.get("action") == "store_true", flag.get("type", str)
        said: dict[str, Any] = {"group": "another machine", "help": flag["help"], "name": name}
        said |= {"type": bool if switch else kind, "default": False if switch else None}
        yield Parameter(flag.get("metavar"), "path" if kind is Path else "part", flag.get("choices", ()), **said)


def _options(verb: "Verb") -> "list[Option]":
    from model_profiling.export.options import options_of

    return options_of(verb)
