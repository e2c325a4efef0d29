"""A model straight from the user's file, without registering anything.

`file.py:Name` names an EagerModelBase class, or anything that gives an nn.Module: a class or a function that is called
with the user's settings and nothing else, or a module object. The inputs of one inference are looked for in this order:
`get_example_inputs` or `example_inputs` of the model, then `get_example_inputs` or `example_inputs` of the file. Each
is a tensor, a tuple of tensors or a dict of them by name, or a function that returns them. `get_example_kwarg_inputs`
and `get_dynamic_shapes` are taken along.
"""

import contextlib
import ctypes
import importlib.util
import inspect
import os
import signal
import sys
import threading
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from types import FrameType, ModuleType
from typing import Any, NoReturn

import torch

from model_profiling.base.directories import working_directory
from model_profiling.base.errors import InputError
from model_profiling.models.lookup import CONTRACT, FileTarget
from model_profiling.models.model_base import EagerModelBase
from model_profiling.models.options import InputSpec, LoadOptions

_SIGNALS, _LEAVE = (signal.SIGINT, signal.SIGTERM, signal.SIGCHLD), os._exit
_ENDING = {signal.SIGINT, signal.SIGTERM}
_TIMERS = (signal.SIGALRM, signal.SIGVTALRM, signal.SIGPROF)  # of ITIMER_REAL, ITIMER_VIRTUAL and ITIMER_PROF
INPUT_NAMES = ("get_example_inputs", "example_inputs")


class FileModel:
    """Keeps EagerModelBase's contract for a module found in a file."""

    weights = EagerModelBase.weights

    def __init__(self, target: FileTarget, options: LoadOptions = LoadOptions()) -> None:  # noqa: B008 - frozen
        self._target = target
        self._inputs = options.inputs
        self._settings = dict(options.settings)
        self._file = import_file(target.path)
        if not hasattr(self._file, target.attribute):
            raise InputError(f"{target.path} does not define {target.attribute!r}", f"Name {CONTRACT}.")
        self._found = getattr(self._file, target.attribute)
        self._owner: Any = None

    def get_eager_model(self) -> torch.nn.Module:
        found = self._found
        if isinstance(found, torch.nn.Module):
            if self._settings:
                raise InputError(
                    f"{self._target.attribute} of {self._target.path} is a module and takes no settings",
                    "Leave --set out, or name its class.",
                )
            self._owner = found
        elif callable(found):
            self._owner = self._called(found)
        module = self._owner
        if hasattr(module, "get_eager_model"):
            self.weights = getattr(module, "weights", self.weights)
            module = module.get_eager_model()
        if not isinstance(module, torch.nn.Module):
            raise InputError(
                f"{self._target.attribute} of {self._target.path} does not give a torch.nn.Module", f"Name {CONTRACT}."
            )
        return module

    def _called(self, found: Any) -> Any:
        try:
            signature = inspect.signature(found)
        except ValueError:
            return found(**self._settings)  # written in C: it has no signature to look at
        named = f"{self._target.attribute} of {self._target.path}"
        any_name = any(parameter.kind is parameter.VAR_KEYWORD for parameter in signature.parameters.values())
        for key in self._settings:
            if key not in signature.parameters and not any_name:
                raise unknown_setting(named, key, signature.parameters)
        try:
            signature.bind(**self._settings)
        except TypeError as error:
            how = f"with {', '.join(self._settings)} alone" if self._settings else "without arguments"
            kinds = (inspect.Parameter.POSITIONAL_OR_KEYWORD, inspect.Parameter.KEYWORD_ONLY)
            needed = [p.name for p in signature.parameters.values() if p.default is p.empty and p.kind in kinds]
            example = " ".join(f"--set {name}=VALUE" for name in needed) or "--set NAME=VALUE"
            raise InputError(
                f"{named} cannot be called {how}: {error}",
                f"Give its arguments with --set, for example {example}, or write "
                "`def make(): return TheClass(...)` next to it and name that function.",
            ) from None
        return found(**self._settings)

    def get_example_inputs(self) -> tuple[Any, ...] | Mapping[str, Any]:
        if self._inputs:
            return tuple(map(random_input, self._inputs))
        inputs = self._look_up(*INPUT_NAMES)
        if inputs is None:
            raise InputError(
                f"no example inputs for {self._target.attribute} of {self._target.path}",
                "Give --input 1,3,224,224 (once for each input), for token ids --input int64:1,128:0..30522; or "
                "add `example_inputs = (torch.randn(1, 3, 224, 224),)` to the class or the file.",
            )
        if isinstance(inputs, Mapping):
            return inputs
        return (inputs,) if isinstance(inputs, torch.Tensor) else tuple(inputs)

    def get_example_kwarg_inputs(self) -> Any:
        return self._look_up("get_example_kwarg_inputs")

    def get_dynamic_shapes(self) -> Any:
        return self._look_up("get_dynamic_shapes")

    def _look_up(self, *names: str) -> Any:
        for place in (self._owner, self._file):
            for name in names:
                if (value := getattr(place, name, None)) is not None:
                    return value() if callable(value) else value
        return None


def random_input(spec: InputSpec) -> torch.Tensor:
    """Return a tensor of random values as asked for, from torch's generator."""
    dtype: torch.dtype = getattr(torch, spec.dtype)
    if spec.dtype == "bool":
        return torch.randint(2, spec.shape, dtype=torch.uint8).to(torch.bool)
    if spec.bounds is None:
        return torch.randn(spec.shape).to(dtype)
    low, high = spec.bounds
    if spec.integer:
        return torch.randint(int(low), int(high), spec.shape, dtype=dtype)
    return (torch.rand(spec.shape, dtype=torch.float64) * (high - low) + low).to(dtype)


def unknown_setting(named: str, key: str, known: Iterable[str]) -> InputError:
    """Return what a class or function takes, for who set something else."""
    takes = [name for name in known if name != "self"]
    return InputError(
        f"{named} has no setting called {key!r}",
        f"It takes: {', '.join(takes)}." if takes else "It takes none; leave --set out.",
    )


def import_file(path: Path) -> ModuleType:
    """Run the file as `python file.py` would find its neighbours, under a name that meets no other module's."""
    name = f"sme2_kit_user_{path.stem}"
    spec = importlib.util.spec_from_file_location(name, path.resolve())
    assert spec is not None and spec.loader is not None  # the path ends in .py
    module = importlib.util.module_from_spec(spec)
    sys.modules[name] = module
    # Compiled files would lie beside the user's: nothing is written there, by this import or by those that follow.
    sys.dont_write_bytecode = True
    # It stays on the path: models import their parts when they are built, too.
    folder = str(path.resolve().parent)
    if folder not in sys.path:
        sys.path.insert(0, folder)
    spec.loader.exec_module(module)
    return module


def causes(error: BaseException) -> Iterator[BaseException]:
    """Return an error and what led to it, outermost first."""
    seen: set[int] = set()
    cause: BaseException | None = error
    while cause is not None and id(cause) not in seen:
        seen.add(id(cause))
        yield cause
        cause = cause.__cause__ or cause.__context__


def _readable(error: BaseException) -> bool:
    """Return whether an error says what it is: a class, or that of a cause, may raise anything there."""
    try:
        return all(isinstance(f"{each}{each!r}", str) for each in causes(error))
    except BaseException:  # noqa: BLE001
        return False


def _hear(number: int, handler: Any) -> None:
    """Let Python handle a signal, and the system the next one if Python could not: code in C may not return."""
    if not callable(handler):
        return

    def heard(number: int, frame: FrameType | None) -> None:
        _hear(number, handler)
        handler(number, frame)

    signal.signal(number, heard)
    # struct sigaction: `sa_flags` follows the handler and a mask of 128 bytes, on macOS of 4; and SA_RESETHAND.
    at, once = (12, 4) if sys.platform == "darwin" else (136, 1 << 31)
    libc, action = ctypes.CDLL(None), ctypes.create_string_buffer(256)
    libc.sigaction(number, None, action)
    flags = ctypes.c_uint32.from_buffer(action, at)
    flags.value |= once
    libc.sigaction(number, action, None)


@contextlib.contextmanager
def contained() -> Iterator[None]:
    """Run code of the user: what it changes of the process is put back, and a child that it forks ends with it."""
    process, deepest, own = os.getpid(), sys.getrecursionlimit(), threading.current_thread() is threading.main_thread()
    handlers = {each: signal.getsignal(each) or signal.SIG_DFL for each in (*_SIGNALS, *_TIMERS) if own}
    silent = [each for each in _TIMERS if handlers.get(each) == signal.SIG_DFL]
    for each in silent:  # a timer would end the process without a word
        signal.signal(each, signal.SIG_IGN)
    for each in _ENDING & handlers.keys():
        _hear(each, handlers[each])

    def end(status: int) -> NoReturn:
        if os.getpid() != process:
            _LEAVE(status)
        raise SystemExit(status)

    home, os._exit = working_directory(), end
    try:
        yield
    except KeyboardInterrupt:
        raise
    except BaseException as error:
        sys.setrecursionlimit(deepest)
        if (readable := _readable(error)) and isinstance(error, (Exception, SystemExit)):
            raise
        said = f"{type(error).__name__}: {error if readable else 'what it says of itself cannot be read'}"
        # Two of a kind, so that nobody looks for a cause in the one that cannot be read.
        told, cause = (RuntimeError(said).with_traceback(sys.exc_info()[2]) for _ in range(2))
        raise told from cause
    finally:
        if os.getpid() != process:
            _LEAVE(0)
        os._exit = _LEAVE
        sys.setrecursionlimit(deepest)
        for each in silent:
            # By this one, an interruption that Python dropped comes again.
            if signal.getsignal(each) is signal.default_int_handler:
                del handlers[each]
            else:
                signal.setitimer(_TIMERS.index(each), 0)
        for each, handler in handlers.items():
            signal.signal(each, handler)
        with contextlib.suppress(OSError):
            os.chdir(home or ".")
