"""A name becomes a PyTorch model and its example inputs, or an error that says exactly what is missing."""

import contextlib
import difflib
import functools
import importlib
import importlib.metadata
import inspect
import pkgutil
import re
import sys
import types
import unittest.mock
import zipfile
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Literal

import torch
from torch.fx.experimental.proxy_tensor import get_proxy_mode

from model_profiling.base import files, zips
from model_profiling.base.errors import InputError, KitError, RunError, SetupError, shortly
from model_profiling.base.installation import install_command
from model_profiling.models import failed_folders, registered_models
from model_profiling.models.failures import explained_call, find_remedy, own_line
from model_profiling.models.lookup import check_name, file_target
from model_profiling.models.model_base import EagerModelBase
from model_profiling.models.options import LoadOptions as LoadOptions
from model_profiling.models.public_zoos import ZOOS, ZooModel, zoo_name
from model_profiling.models.state import changed_buffers, let_signals_through, own_copy, own_inputs
from model_profiling.models.torch_companions import watch_imports
from model_profiling.models.user_file import FileModel, causes, contained, random_input, unknown_setting
from model_profiling.models.zoo import zoo_models
from model_profiling.upstream.captured_graphs import Call, named_leaves

# Where the package on PyPI has another name than the module it brings.
PYPI_NAMES = {"PIL": "pillow", "cv2": "opencv-python", "yaml": "pyyaml"}
PYPI_NAMES |= {"detectron2": "'git+https://github.com/facebookresearch/detectron2'"}

# Libraries through which models fetch weights: an exception of theirs is a download that failed.
DOWNLOADERS = ("urllib", "http", "requests", "urllib3", "httpx", "httpcore", "huggingface_hub", "socket", "ssl")

# The settings that say which part of a model is wanted: of any model, so its own class is not asked for them.
UNTIL, OUTPUTS = "until", "only_outputs"
# Where training code likes to put the state dict inside what it saves.
_WRAPPERS = ("state_dict", "model_state_dict", "model", "module")


@dataclass(frozen=True)
class LoadedModel:
    """A model ready for torch.export, with what torch.export needs to call it."""

    name: str
    source: str
    weights: str
    module: torch.nn.Module
    # Its example inputs.
    call: Call
    dynamic_shapes: Any
    # Where it can be had again: by its name, from its file, or only in the process that has it.
    origin: Literal["registry", "file", "memory"] = "registry"


def load_model(name: str, seed: int = 0, options: LoadOptions = LoadOptions()) -> LoadedModel:  # noqa: B008 - frozen
    """Build the model called `name`, ours or ExecuTorch's or a file's, with torch's random generator seeded for it."""
    part = {key: value for key, value in options.settings if key in (UNTIL, OUTPUTS)}
    options = replace(options, settings=tuple(pair for pair in options.settings if pair[0] not in part))
    target, source = find_model(name, options)
    with _explained(name), torch.random.fork_rng(devices=[]):
        watch_imports()
        make = pkgutil.resolve_name(target) if isinstance(target, str) else target
        # A model of a file hands its settings on to the class that the file names, and checks them itself.
        settings = dict(options.settings) if file_target(name) is None and zoo_name(name) is None else {}
        parameters = inspect.signature(make).parameters if settings else {}
        for key in settings:
            if key not in parameters:
                raise unknown_setting(name, key, parameters)
        torch.default_generator.manual_seed(seed)
        before = torch.random.get_rng_state()
        try:
            with _watched_loads(fetch=True) as loads:
                model = make(**settings)
                module = model.get_eager_model()
        except Exception as error:
            if source != "executorch" or _fetching(error) is None:
                raise
            with _watched_loads(fetch=False) as loads:
                model = make(**settings)
                module = model.get_eager_model()
        drawn = not loads and not torch.equal(before, torch.random.get_rng_state())
        torch.default_generator.manual_seed(seed)
        inputs = model.get_example_inputs()
        keywords, shapes = (
            getattr(model, method, lambda: None)() for method in ("get_example_kwarg_inputs", "get_dynamic_shapes")
        )
        if zoo_name(name) is not None and options.inputs:
            inputs, keywords = tuple(map(random_input, options.inputs)), {}
    if isinstance(inputs, Mapping):
        keywords, inputs = {**inputs, **(keywords or {})}, ()
    if not isinstance(module, torch.nn.Module) or not isinstance(inputs, (tuple, list)):
        raise InputError(
            f"{name} does not keep the contract of EagerModelBase",
            "get_eager_model() returns a torch.nn.Module, get_example_inputs() a tuple of tensors, or a dict of them.",
        )
    if zoo_name(name) is None:  # those are made anew
        # What cannot be copied is almost never shared with anybody.
        with contextlib.suppress(InputError):
            module = own_copy(module)
    shortened(module, part)
    call = own_inputs((tuple(inputs), keywords or {}))
    known = registered_models().get(name)
    weights = getattr(model, "weights", (known and known.weights) or EagerModelBase.weights)
    if drawn and weights == EagerModelBase.weights:
        weights = f"random, as the model's own code draws them (seed {seed})"
    # Another process finds the model, too, unless this one registered a class of its own.
    ours = isinstance(target, str) or getattr(target, "__module__", "").startswith("model_profiling.models.")
    found = ours or name in zoo_models() or zoo_name(name) is not None
    origin: Literal["registry", "file", "memory"] = "registry" if found else "memory"
    if file_target(name) is not None:
        origin = "file"
    with _explained(name), explained_call(module, call, origin):
        if options.checkpoint is not None:
            module.eval()
            weights = load_checkpoint(module, options.checkpoint, lambda: changed_buffers(module, call))
        elif weights == "random":
            let_signals_through(module, call)
    return LoadedModel(name, source, str(weights), module.eval(), call, shapes, origin)


@contextlib.contextmanager
def _watched_loads(fetch: bool) -> Iterator[list[str]]:
    """Note which functions that load weights are called; without `fetch`, leave out what would be fetched."""
    calls: list[str] = []
    nothing: dict[str, Any] = {}
    load, load_state = torch.load, torch.nn.Module.load_state_dict

    def loaded(*args: Any, **keywords: Any) -> Any:
        calls.append("load")
        return load(*args, **keywords)

    def loaded_state(module: torch.nn.Module, state: Any, *args: Any, **keywords: Any) -> Any:
        calls.extend([] if state is nothing else ["load_state_dict"])
        return None if state is nothing else load_state(module, state, *args, **keywords)

    patches: dict[str, Any] = {"torch.load": loaded, "torch.nn.Module.load_state_dict": loaded_state}
    for package in () if fetch else {"torch.hub", "torchvision.models._api"} & sys.modules.keys():
        patches[f"{package}.load_state_dict_from_url"] = lambda *_, **__: nothing
    with contextlib.ExitStack() as stack:
        for path, instead in patches.items():
            stack.enter_context(unittest.mock.patch(path, instead))
        yield calls


def find_model(name: str, options: LoadOptions = LoadOptions()) -> tuple["Callable[[], Any] | str", str]:  # noqa: B008
    """Return where the model's class is and whose it is; a name nobody registered is an error with suggestions."""
    from_file = file_target(name)
    if from_file is not None:
        return functools.partial(FileModel, from_file, options), f"{from_file.path.name}:{from_file.attribute}"
    if (of_zoo := zoo_name(name)) is not None:
        return functools.partial(ZooModel, *of_zoo, dict(options.settings)), ZOOS[of_zoo[0]]
    if options.inputs:
        raise InputError(f"{name} has its own example inputs", "Leave --input out; it is for models of files and zoos.")
    check_name(name)
    ours = registered_models()
    if name in ours:
        target = ours[name].target
        return target, "executorch" if str(target).startswith("executorch.") else "kit"
    if name in failed_folders():
        with _explained(name):
            raise failed_folders()[name]
    return zoo_models()[name], "executorch"


@contextlib.contextmanager
def _explained(name: str) -> Iterator[None]:
    """Turn whatever a model's own code raises into an error that says what the user can do."""
    try:
        with contained():
            yield
    except KitError:
        raise
    except SystemExit as error:
        raise RunError(
            f"the code of {name} ends the process{own_line(error)}",
            'Put what the file does as a script (argparse, sys.exit) below `if __name__ == "__main__":`.',
        ) from error
    except Exception as error:
        if (package := next(filter(None, map(_lacking, causes(error))), None)) is not None:
            raise missing_package(name, package) from error
        if (failed := _fetching(error)) is not None:
            raise SetupError(
                f"the weights of {name} could not be downloaded: {shortly(failed)}",
                "Check the network, or put the weights where the model looks for them and export again.",
            ) from error
        what, hint = shortly(error), "This comes from the model's own code; --debug shows the traceback."
        if remedy := find_remedy(type(error).__name__, str(error)):
            what, hint = f"{remedy.kind} ({what})", f"{remedy.advice} {hint}"
        raise RunError(f"{name} could not be built{own_line(error)}: {what}", hint) from error


def _lacking(error: BaseException) -> str | None:
    """Return the package that could not be imported; transformers says so in words of its own."""
    if isinstance(error, ModuleNotFoundError) and error.name:
        return error.name.split(".")[0]
    said = re.search(r"requires the (\w+) library but it was not found", str(error))
    return said[1] if said is not None and isinstance(error, ImportError) else None


def _fetching(error: Exception) -> BaseException | None:
    """Return which of the causes of an error is a download that failed."""
    kinds = (ConnectionError, TimeoutError)
    failed = (e for e in causes(error) if isinstance(e, kinds) or type(e).__module__.split(".")[0] in DOWNLOADERS)
    return next(failed, None)


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


def shortened(model: torch.nn.Module, settings: dict[str, Any]) -> None:
    """Let a model answer with the part of it that `settings` name."""
    path, outputs = settings.get(UNTIL), settings.get(OUTPUTS, ())
    wanted = [str(name) for name in (outputs if isinstance(outputs, tuple) else str(outputs).split(","))]
    whole = getattr(model.forward, "__func__", type(model).forward)
    if path is not None:
        path = _named("module", str(path), [name for name, _ in model.named_modules() if name], "--until")

    @functools.wraps(whole)
    def forward(self: torch.nn.Module, *inputs: Any, **keywords: Any) -> Any:
        result = _up_to(path, self, whole, inputs, keywords) if path else whole(self, *inputs, **keywords)
        if not wanted:
            return result
        found = {name or str(index): leaf for index, (leaf, name) in enumerate(zip(*named_leaves(result), strict=True))}
        return {name: found[_named("output", name, found, "--outputs")] for name in wanted}

    if settings:
        model.forward = types.MethodType(forward, model)


class _ReachedError(Exception):
    """The module has answered."""

    def __init__(self, result: Any) -> None:
        super().__init__()
        self.result = result


def _up_to(path: str, model: torch.nn.Module, whole: Any, inputs: tuple[Any, ...], keywords: dict[str, Any]) -> Any:
    """Call a model, and return what the module at `path` gives the first time that it is called."""

    def stop(module: torch.nn.Module, given: Any, result: Any) -> None:
        raise _ReachedError(result)

    # The modules that torch.export is in, innermost last; nothing if it does not trace this.
    stack: Any = getattr(getattr(get_proxy_mode(), "tracer", None), "module_stack", {})
    depth = len(stack)
    hook = model.get_submodule(path).register_forward_hook(stop)
    try:
        whole(model, *inputs, **keywords)
    except _ReachedError as reached:
        # torch.export counts the modules that it is in, and not those that an exception leaves.
        while len(stack) > depth:
            stack.popitem()
        return reached.result
    finally:
        hook.remove()
    raise RunError(f"the model does not call {path} with these inputs", "Name another module with --until.")


def _named(what: str, name: str, known: Iterable[str], flag: str) -> str:
    """Return a name that the model has; one that it does not have is an error with those that it has."""
    if name in (names := list(known)):
        return name
    close = difflib.get_close_matches(name, names, n=3, cutoff=0.4) or names[:5]
    raise InputError(f"the model has no {what} {name!r}", f"{flag} may name {', '.join(close)}, among others.")


def load_checkpoint(module: torch.nn.Module, path: Path, remembered: Callable[[], Collection[str]] = tuple) -> str:
    """Put the weights of `path` into `module`, all of them or none, and say in words where they came from.

    `remembered` names the buffers that a call changes, if it comes to that: they are no weights, and stay as they are.
    """
    if not path.is_file():
        raise InputError(f"checkpoint {path} does not exist", "Check the path.")
    state = _state_dict(path)
    own = module.state_dict()
    if state.keys() != own.keys() or any(tensor.shape != own[name].shape for name, tensor in state.items()):
        spare = set(remembered())
        state = {name: tensor for name, tensor in state.items() if name not in spare}
        own = {name: tensor for name, tensor in own.items() if name not in spare}
    # Weights that are one tensor under two names, such as a head that is the embedding, may be saved under one.
    given = {own[name].data_ptr() for name in state if name in own}
    missing = sorted(name for name in own.keys() - state.keys() if own[name].data_ptr() not in given)
    unknown = sorted(state.keys() - own.keys())
    if missing or unknown:
        parts = [f"lacks {len(missing)} ({', '.join(missing[:3])})"] if missing else []
        parts += [f"has {len(unknown)} that the model does not know ({', '.join(unknown[:3])})"] if unknown else []
        raise InputError(
            f"checkpoint {path} does not fit the model: of {len(own)} tensors it {' and '.join(parts)}",
            "Check that it was saved from this architecture; rename its keys if only a prefix differs.",
        )
    first: dict[int, str] = {}
    for name, tensor in state.items():
        if tensor.shape != own[name].shape or tensor.is_complex() > own[name].is_complex():
            here, wanted = (f"{str(each.dtype)[6:]}{list(each.shape)}" for each in (tensor, own[name]))
            what = f"checkpoint {path}: {name} is {here}, the model's is {wanted}"
            raise InputError(what, "Check that it was saved from this size of the architecture.")
        # Of two different tensors for what is one in the model, one would be lost.
        other = first.setdefault(own[name].data_ptr(), name)
        if other != name and own[name].numel() and not torch.equal(state[other], tensor):
            raise InputError(
                f"checkpoint {path}: {other} and {name} are one tensor in the model and two different ones here",
                "Check that it was saved from this architecture.",
            )
    module.load_state_dict(state, strict=False)  # what may be missing was decided above
    return f"checkpoint {path.name} (sha256 {files.sha256(path)[:12]})"


def _state_dict(path: Path) -> dict[str, torch.Tensor]:
    value = _read(path)
    for name in _WRAPPERS:
        if isinstance(value, dict) and isinstance(value.get(name), dict):
            value = value[name]
    if not isinstance(value, dict) or not value or not all(isinstance(leaf, torch.Tensor) for leaf in value.values()):
        raise InputError(f"checkpoint {path} contains no state dict", "Save model.state_dict(), not the model.")
    for key, tensor in value.items():
        kinds = {"nested": tensor.is_nested, "quantized": tensor.is_quantized, "without values": tensor.is_meta}
        kinds[str(tensor.layout).removeprefix("torch.")] = tensor.layout != torch.strided
        unusual = [f"{key} is a tensor that is {kind}" for kind, found in kinds.items() if found]
        if wrong := unusual if isinstance(key, str) else [f"the key {key!r:.80} is not text"]:
            raise InputError(f"checkpoint {path}: {wrong[0]}", "Save model.state_dict(): plain tensors by their names.")
    # DataParallel puts this before every name.
    prefix = "module." if all(key.startswith("module.") for key in value) else ""
    return {key.removeprefix(prefix): tensor for key, tensor in value.items()}


def _read(path: Path) -> Any:
    try:
        with files.open_file(path) as file:
            if path.suffix == ".safetensors":
                from safetensors.torch import load_file

                return load_file(str(path))
            if zipfile.is_zipfile(file):
                zips.refuse_bomb(zipfile.ZipFile(file).infolist(), files.size_of(file))
            return torch.load(path, map_location="cpu", weights_only=True)
    except ModuleNotFoundError:
        raise SetupError("safetensors is not installed", "pip install safetensors") from None
    except Exception as error:  # noqa: BLE001 - a file that is no pickle is read as one, and anything may come of that
        raise InputError(
            f"checkpoint {path} cannot be loaded as plain weights: {shortly(error)}",
            "Download it again, or save model.state_dict(): files that must run code to load are refused.",
        ) from None
