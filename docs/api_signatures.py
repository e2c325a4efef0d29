"""For the site: a verb is shown with the types of its parameters, and with what each of them says."""

import inspect
from collections.abc import Iterator
from typing import Any

import griffe

from model_profiling import api
from model_profiling.api.definition import parameters_of


class ApiSignatures(griffe.Extension):
    def on_function_instance(self, *, func: griffe.Function, **_: Any) -> None:
        if func.parent is None or func.parent.path != f"{api.__name__}.verbs" or func.name not in api.__all__:
            return
        function = getattr(api, func.name)
        func.parameters = griffe.Parameters(*map(_parameter, inspect.signature(function).parameters.values()))
        if func.docstring is not None:
            func.docstring.value = "\n".join([inspect.cleandoc(func.docstring.value), "", *parameter_rows(function)])


def parameter_rows(function: Any) -> Iterator[str]:
    """Yield a table of what a verb takes, as the command line and tools have it from the same definition."""
    yield from ("| parameter | on the command line | |", "|---|---|---|")
    for each in parameters_of(function):
        said = each.sentence.replace("|", "\\|")
        yield f"| `{each.name}` | `{each.spelled}` | {said} |".replace("|PATH", "\\|PATH").replace("|KEY", "\\|KEY")


def _parameter(given: inspect.Parameter) -> griffe.Parameter:
    annotation = inspect.formatannotation(given.annotation).replace("collections.abc.", "").replace("pathlib.", "")
    return griffe.Parameter(
        given.name,
        kind=griffe.ParameterKind(given.kind.description),
        annotation=annotation.strip("'"),
        default=None if given.default is given.empty else repr(given.default),
    )
