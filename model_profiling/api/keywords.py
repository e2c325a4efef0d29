"""How functions of the API take the options of an export: as keywords from the table, one by one in their signature."""

import functools
import inspect
from collections.abc import Callable
from typing import Any, TypeVar, cast

from model_profiling.export.options import ExportKeywords, Verb, expanded, options_of

Function = TypeVar("Function", bound=Callable[..., Any])


def takes_options(verb: Verb) -> Callable[[Function], Function]:
    """Spell `**options` out in the function's signature, and raise TypeError for others as Python does."""

    def decorated(function: Function) -> Function:
        kinds, keyword = ExportKeywords.__annotations__, inspect.Parameter.KEYWORD_ONLY
        options = [
            inspect.Parameter(row.name, keyword, default=row.default_of(verb), annotation=kinds[row.name])
            for row in options_of(verb)
        ]
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
