"""How functions of the API take the options of an export: as keywords, one by one in their signature."""

import functools
import inspect
from collections.abc import Callable
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
                raise TypeError(f"{function.__name__}() {error}") from None
            return function(*args, **keywords)

        called.__signature__ = signature  # type: ignore[attr-defined]
        return cast(Function, called)

    return decorated
