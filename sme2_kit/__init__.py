"""The SME2 ExecuTorch Profiling Kit as a Python library: the public name of `model_profiling.api`, and nothing else."""

from typing import TYPE_CHECKING, Any

from model_profiling import api
from model_profiling.api import __all__ as __all__

if TYPE_CHECKING:
    from model_profiling.api import *  # noqa: F403

__doc__ = api.__doc__


def __getattr__(name: str) -> Any:
    return getattr(api, name)


def __dir__() -> list[str]:
    return dir(api)
