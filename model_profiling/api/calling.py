"""How a verb is called: by a program, or by the command line, which has results where commands put them, is told of
notes as they come, and reads in errors the flags that it was given."""

from __future__ import annotations

import contextlib
import typing
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar, cast

from model_profiling.api.definition import alias_of
from model_profiling.base.errors import InputError
from model_profiling.base.on_progress import OnNote, no_notes

if TYPE_CHECKING:
    import inspect

    from model_profiling.export.options import Verb
    from model_profiling.platforms.base import Platform
    from model_profiling.platforms.platform_table import Choice

Function = TypeVar("Function", bound=Callable[..., Any])


@dataclass(frozen=True)
class Caller:
    """`command` is what was typed; `of_commands`: files go where commands put them, and what is wrong with a result is
    raised after it was shown. `spelled` is how the caller writes a parameter."""

    on_note: OnNote = no_notes
    command: Callable[[], str] = lambda: ""
    spelled: Callable[[str], str] = str
    of_commands: bool = False
    # Whether libraries may print, and what is told of the parts of its work: an export that was there, what was made.
    loud: bool = False
    on_cached: Callable[[], None] = lambda: None
    on_part: Callable[[object], object] = lambda _: None


_callers = [Caller()]


def caller() -> Caller:
    return _callers[-1]


@contextlib.contextmanager
def call_with(**changes: Any) -> Iterator[None]:
    """Let verbs know within this block who calls them."""
    _callers.append(replace(caller(), **changes))
    try:
        yield
    finally:
        _callers.pop()


def verb(function: Function) -> Function:
    """Make a function a verb: it says which keyword was meant where it is called with one that it does not have."""
    from inspect import signature

    return _made(function, signature(function))


def takes_options(exports: Verb) -> Callable[[Function], Function]:
    """Make a function a verb whose `**options` are those of an export, spelled out in its signature."""

    from inspect import Parameter

    from model_profiling.export.options import ExportKeywords, expanded, settled

    def decorated(function: Function) -> Function:
        usual = {"input_shapes": (), "settings": None, "checkpoint": None, **settled(exports, {})}
        own = {"input_shapes": "p.InputShapes", "settings": "p.Settings", "checkpoint": "p.Checkpoint"}
        kinds, keyword = {**ExportKeywords.__annotations__, **own}, Parameter.KEYWORD_ONLY
        options = [Parameter(name, keyword, default=usual[name], annotation=kinds[name]) for name in usual]
        return _made(function, expanded(function, options), exports)

    return decorated


def _made(function: Function, definition: inspect.Signature, exports: Verb | None = None) -> Function:
    import functools

    @functools.wraps(function)
    def called(*args: Any, **keywords: Any) -> Any:
        try:
            definition.bind(*args, **keywords)
        except TypeError as error:
            raise TypeError(f"{function.__name__}() {error}{_meant(keywords, definition)}") from None
        return function(*args, **keywords)

    shown = [each.replace(annotation=_declared(each.annotation)) for each in definition.parameters.values()]
    vars(called).update(definition=definition, exports=exports, __signature__=definition.replace(parameters=shown))
    return cast(Function, called)


def _declared(annotation: Any) -> Any:
    """Return the type of a parameter, as help and editors show it, without what else is said of it."""
    if (alias := alias_of(annotation)) is None:
        return annotation
    declared = typing.get_args(alias)[0]
    text = getattr(declared, "__forward_arg__", declared)
    return f"{text} | None" if isinstance(text, str) and str(annotation).endswith(" | None") else text


def _meant(keywords: Mapping[str, Any], signature: inspect.Signature) -> str:
    """Return `; did you mean 'budget_s'?` of the first unknown keyword that is near to one that is known."""
    import difflib

    for name in keywords.keys() - signature.parameters.keys():
        if close := difflib.get_close_matches(name, signature.parameters, n=1):
            return f"; did you mean {close[0]!r}?"
    return ""


def place(out: str | Path | None, what: str, of_commands: str = "") -> Path:
    """Return where results go. Where nobody names a place, it is that of commands, if it is one that asks and there is
    one; else a directory that lives as long as the process."""
    from model_profiling.base import files

    if out is None and of_commands and caller().of_commands:
        return Path(of_commands)
    return files.lasting_scratch(f"sme2_kit_{what}_") if out is None else Path(out)


def own_place(out: str | Path | None, what: str) -> Path | None:
    """Return the same; None where nobody names a place and commands have one for each platform."""
    return None if out is None and caller().of_commands else place(out, what)


def path_of(given: Any) -> str | Path:
    """Return the path of whatever names a program or a run."""
    from model_profiling.export.request import ExportResult

    if isinstance(given, (str, Path)):
        return given
    if isinstance(given, ExportResult):
        return given.paths.pte
    path = getattr(given, "path", None)
    if isinstance(path, Path):
        return path
    raise InputError(f"a {type(given).__name__} is neither a path nor a result", "Give a path, a Run or an export.")


def runs_folder(platform: str | Choice | Platform | None) -> str:
    """Return the folder among a model's runs that a platform writes to."""
    from model_profiling.platforms.platform_table import Choice, folder_of, named

    if platform is None or isinstance(platform, str):
        return folder_of(named(platform))
    return folder_of(platform) if isinstance(platform, Choice) else platform.folder
