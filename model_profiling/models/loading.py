"""A name becomes a PyTorch model and its example inputs, or an error that says exactly what is missing."""

import contextlib
import functools
import importlib
import importlib.metadata
import inspect
import pkgutil
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any, Literal

import torch

from model_profiling.base.errors import InputError, KitError, RunError, SetupError
from model_profiling.base.installation import install_command
from model_profiling.models import failed_folders, registered_models
from model_profiling.models.checkpoint import load_checkpoint
from model_profiling.models.lookup import check_name, file_target
from model_profiling.models.model_base import EagerModelBase
from model_profiling.models.options import LoadOptions as LoadOptions
from model_profiling.models.own_copy import own_copy, own_inputs
from model_profiling.models.refused_inputs import explained_call, own_line
from model_profiling.models.remedies import find_remedy
from model_profiling.models.state import changed_buffers, settle_batch_norms
from model_profiling.models.torch_companions import watch_imports
from model_profiling.models.user_file import FileModel, unknown_setting
from model_profiling.models.zoo import zoo_models

# Where the package on PyPI has another name than the module it brings.
PYPI_NAMES = {"PIL": "pillow", "cv2": "opencv-python", "yaml": "pyyaml"}

# Libraries through which models fetch weights: an exception of theirs is a download that failed.
DOWNLOADERS = ("urllib", "http", "requests", "urllib3", "httpx", "httpcore", "huggingface_hub", "socket", "ssl")


@dataclass(frozen=True)
class LoadedModel:
    """A model ready for torch.export, with what torch.export needs to call it."""

    name: str
    source: str
    weights: str
    module: torch.nn.Module
    inputs: tuple[Any, ...]
    keyword_inputs: dict[str, Any]
    dynamic_shapes: Any
    # Where it can be had again: by its name, from its file, or only in the process that has it.
    origin: Literal["registry", "file", "memory"] = "registry"


def load_model(name: str, seed: int = 0, options: LoadOptions = LoadOptions()) -> LoadedModel:  # noqa: B008 - frozen
    """Build the model called `name`, ours or ExecuTorch's or a file's, with torch's random generator seeded for it."""
    target, source = find_model(name, options)
    with _explained(name), torch.random.fork_rng(devices=[]):
        watch_imports()
        make = pkgutil.resolve_name(target) if isinstance(target, str) else target
        # A model of a file hands its settings on to the class that the file names, and checks them itself.
        settings = dict(options.settings) if file_target(name) is None else {}
        _check_settings(name, make, settings)
        torch.default_generator.manual_seed(seed)
        model = make(**settings)
        module = model.get_eager_model()
        torch.default_generator.manual_seed(seed)
        inputs = model.get_example_inputs()
        keywords = _optional(model, "get_example_kwarg_inputs") or {}
        shapes = _optional(model, "get_dynamic_shapes")
    if not isinstance(module, torch.nn.Module) or not isinstance(inputs, (tuple, list)):
        raise InputError(
            f"{name} does not keep the contract of EagerModelBase",
            "get_eager_model() returns a torch.nn.Module, get_example_inputs() a tuple of tensors.",
        )
    # What cannot be copied is almost never shared with anybody.
    with contextlib.suppress(InputError):
        module = own_copy(module)
    inputs, keywords = own_inputs((tuple(inputs), keywords))
    known = registered_models().get(name)
    weights = getattr(model, "weights", (known and known.weights) or EagerModelBase.weights)
    origin = _origin(name, target)
    with _explained(name), explained_call(module, inputs, keywords, origin):
        if options.checkpoint is not None:
            module.eval()
            weights = load_checkpoint(module, options.checkpoint, lambda: changed_buffers(module, inputs, keywords))
        elif weights == "random":
            settle_batch_norms(module, inputs, keywords)
    return LoadedModel(name, source, str(weights), module.eval(), inputs, keywords, shapes, origin)


def _origin(name: str, target: "Callable[[], Any] | str") -> Literal["registry", "file", "memory"]:
    """Return whether another process finds the model, too: not if this one registered a class of its own."""
    if file_target(name) is not None:
        return "file"
    ours = isinstance(target, str) or getattr(target, "__module__", "").startswith("model_profiling.models.")
    return "registry" if ours or name in zoo_models() else "memory"


def find_model(name: str, options: LoadOptions = LoadOptions()) -> tuple["Callable[[], Any] | str", str]:  # noqa: B008
    """Return where the model's class is and whose it is; a name nobody registered is an error with suggestions."""
    from_file = file_target(name)
    if from_file is not None:
        return functools.partial(FileModel, from_file, options), f"{from_file.path.name}:{from_file.attribute}"
    if options.inputs:
        raise InputError(f"{name} has its own example inputs", "Leave --input out; it is for models from a file.")
    check_name(name)
    ours = registered_models()
    if name in ours:
        target = ours[name].target
        return target, "executorch" if str(target).startswith("executorch.") else "kit"
    if name in failed_folders():
        with _explained(name):
            raise failed_folders()[name]
    return zoo_models()[name], "executorch"


def _check_settings(name: str, make: Callable[..., Any], settings: dict[str, Any]) -> None:
    """Refuse a setting that the model's class does not take, and say which it takes."""
    if not settings:
        return
    parameters = inspect.signature(make).parameters
    for key in settings:
        if key not in parameters:
            raise unknown_setting(name, key, parameters)


def _optional(model: Any, method: str) -> Any:
    return getattr(model, method)() if hasattr(model, method) else None


@contextlib.contextmanager
def _explained(name: str) -> Iterator[None]:
    """Turn whatever a model's own code raises into an error that says what the user can do."""
    try:
        yield
    except KitError:
        raise
    except SystemExit as error:
        raise RunError(
            f"the code of {name} ends the process{own_line(error)}",
            'Put what the file does as a script (argparse, sys.exit) below `if __name__ == "__main__":`.',
        ) from error
    except Exception as error:
        raise _explain(name, error) from error


def _explain(name: str, error: Exception) -> KitError:
    chain = list(_causes(error))
    for cause in chain:
        if isinstance(cause, ModuleNotFoundError) and cause.name:
            return missing_package(name, cause.name.split(".")[0])
    for cause in chain:
        if isinstance(cause, (ConnectionError, TimeoutError)) or type(cause).__module__.split(".")[0] in DOWNLOADERS:
            return SetupError(
                f"the weights of {name} could not be downloaded: {_first_line(cause)}",
                "Check the network, or put the weights where the model looks for them and export again.",
            )
    what = f"{type(error).__name__}: {_first_line(error)}"
    remedy = find_remedy(type(error).__name__, str(error))
    return RunError(
        f"{name} could not be built{own_line(error)}: {f'{remedy.kind} ({what})' if remedy else what}",
        f"{f'{remedy.advice} ' if remedy else ''}This comes from the model's own code; --debug shows the traceback.",
    )


def missing_package(model: str, package: str) -> SetupError:
    """Say which package a model lacks, and how to install it without letting pip replace torch."""
    said = f"the model {model} needs the package {package}, which is not installed"
    known = registered_models().get(model)
    if known is not None and package in known.requires and known.extra:
        return SetupError(said, install_command(known.extra))
    try:
        torch_pin = f" 'torch=={importlib.metadata.version('torch').split('+')[0]}'"
    except importlib.metadata.PackageNotFoundError:
        torch_pin = ""
    return SetupError(said, f"pip install {PYPI_NAMES.get(package, package)}{torch_pin}")


def _causes(error: BaseException) -> Iterator[BaseException]:
    seen: set[int] = set()
    cause: BaseException | None = error
    while cause is not None and id(cause) not in seen:
        seen.add(id(cause))
        yield cause
        cause = cause.__cause__ or cause.__context__


def _first_line(error: BaseException) -> str:
    lines = str(error).strip().splitlines()
    return lines[0][:300] if lines else type(error).__name__
