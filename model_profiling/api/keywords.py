"""How functions of the API take the options of an export: as keywords, one by one in their signature."""

import difflib
import functools
import inspect
from collections.abc import Callable, Mapping
from typing import Any, TypeVar, cast

from model_profiling.export.options import ExportKeywords, Verb, expanded, settled

Function = TypeVar("Function", bound=Callable[..., Any])


def takes_options(verb: Verb) -> Callable[[Function], Function]:
    """Spell `**options` out in the function's signature, and raise TypeError for others as Python does."""

    def decorated(function: Function) -> Function:
        usual = {"input_shapes": (), "settings": None, "checkpoint": None, **settled(verb, {})}
        kinds, keyword = ExportKeywords.__annotations__, inspect.Parameter.KEYWORD_ONLY
        options = [inspect.Parameter(name, keyword, default=usual[name], annotation=kinds[name]) for name in usual]
        signature = expanded(function, options)

        @functools.wraps(function)
        def called(*args: Any, **keywords: Any) -> Any:
            try:
                signature.bind(*args, **keywords)
            except TypeError as error:
                raise TypeError(f"{function.__name__}() {error}{_meant(keywords, signature)}") from None
            return function(*args, **keywords)

        called.__signature__ = signature  # type: ignore[attr-defined]
        return cast(Function, called)

    return decorated


def names_keywords(function: Function) -> Function:
    """Say which keyword was meant where a function is called with one that it does not have."""
    signature = inspect.signature(function)

    @functools.wraps(function)
    def called(*args: Any, **keywords: Any) -> Any:
        if meant := _meant(keywords, signature):
            unknown = next(name for name in keywords if name not in signature.parameters)
            raise TypeError(f"{function.__name__}() got an unexpected keyword argument {unknown!r}{meant}")
        return function(*args, **keywords)

    return cast(Function, called)


def _meant(keywords: Mapping[str, Any], signature: inspect.Signature) -> str:
    """Return `; did you mean 'budget_s'?` of the first unknown keyword that is near to one that is known."""
    for name in keywords.keys() - signature.parameters.keys():
        if close := difflib.get_close_matches(name, signature.parameters, n=1):
            return f"; did you mean {close[0]!r}?"
    return ""
