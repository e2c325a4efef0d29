"""For the site: functions that take the options of an export are shown with the parameters of their signature."""

import importlib
import inspect
from typing import Any

import griffe

_API = "model_profiling.api"


class ApiSignatures(griffe.Extension):
    def on_function_instance(self, *, func: griffe.Function, **_: Any) -> None:
        if func.parent is not None and func.parent.path == _API and "options" in func.parameters:
            function = getattr(importlib.import_module(_API), func.name)
            func.parameters = griffe.Parameters(*map(_parameter, inspect.signature(function).parameters.values()))


def _parameter(given: inspect.Parameter) -> griffe.Parameter:
    annotation = inspect.formatannotation(given.annotation).replace("collections.abc.", "").replace("pathlib.", "")
    return griffe.Parameter(
        given.name,
        kind=griffe.ParameterKind(given.kind.description),
        annotation=annotation.strip("'"),
        default=None if given.default is given.empty else repr(given.default),
    )
