"""Graph modules that are compiled when they are used, and are stock modules in every other way.

`GraphModule.recompile` writes Python code for its graph and compiles it. Passes do so hundreds of times, and one graph
in a thousand is called. Here `recompile` notes that it is to be done; the first who wants the result has it done, on
any thread and long after the block: a call, `forward`, `code`, `str`, pickling, the PythonCode that `recompile`
returned. The code is that of the graph at that moment: who changes a graph calls `recompile`, as torch asks for.

A subclass with a `recompile`, a `forward` or a way of pickling of its own is compiled at once.
"""

import functools
import threading
import weakref
from collections.abc import Callable, Iterator
from threading import get_ident
from typing import Any

from torch.fx import GraphModule
from torch.fx.graph import PythonCode, _PyTreeCodeGen
from torch.fx.graph_module import _WrappedCall

from model_profiling.upstream.patching import Block, Replacement

Recompile = Callable[[Any], PythonCode]
# What compiling sets in a module, as it is before the first time.
_AT_FIRST = {"_code": "", "_lineno_map": None, "_prologue_start": 0}
# What reads them from the module's dictionary.
_PICKLING = ("__reduce__", "__reduce_package__", "__getstate__")
_LATER = "_compiled_later"
_OVERRIDES = (
    *(*_AT_FIRST, *_PICKLING, "recompile", "forward", "code", "graph", "__call__", "_wrapped_call", "__reduce_ex__"),
    *("_recompile_submodules", "__getattribute__", "__getattr__", "__setattr__", "__delattr__", "__str__"),
)
_compiling = threading.RLock()


def compiled_when_used(block: Block) -> Iterator[Replacement]:
    """Put off compiling graphs."""
    stock = GraphModule.recompile

    def recompile(module: GraphModule) -> PythonCode:
        # Every graph module has a class of its own, whose base is the class that it was made from.
        if get_ident() != block.thread or not _is_plain(type(module).__mro__[1]):
            return stock(module)
        _put_off(module, stock)
        return _LateCode(module, stock)

    yield Replacement(GraphModule, "recompile", recompile)


@functools.cache
def _is_plain(base: type) -> bool:
    """Return whether a class and all up to GraphModule leave to it what is done late here."""
    own = base.__mro__[: base.__mro__.index(GraphModule)]
    return not any(name in vars(each) for each in own for name in _OVERRIDES)


def _put_off(module: Any, stock: Recompile) -> None:
    """Do what costs nothing of compiling, and have the rest done by the first who wants it."""
    codegen, cls = module._graph._codegen, type(module)
    if isinstance(codegen, _PyTreeCodeGen):
        module._in_spec, module._out_spec = codegen.pytree_info.in_spec, codegen.pytree_info.out_spec
    if _LATER not in vars(cls):
        for name, value in _AT_FIRST.items():
            module.__dict__.setdefault(name, value)
            setattr(cls, name, _LateValue(name))
        for name in _PICKLING:
            setattr(cls, name, _compiled_before(name))
        cls.forward = _LateForward(module, stock)
        setattr(cls, _LATER, stock)
        if "_wrapped_call" not in vars(cls):
            cls._wrapped_call = _WrappedCall(cls, cls.__call__ if "__call__" in vars(cls) else None)
            cls.__call__ = _call_wrapped
    module._recompile_submodules()


def _call_wrapped(self: Any, *args: Any, **kwargs: Any) -> Any:
    return self._wrapped_call(self, *args, **kwargs)


def _compile(module: Any) -> None:
    """Compile a module now if that was put off."""
    cls = type(module)
    with _compiling:
        if stock := vars(cls).get(_LATER):
            forward = vars(cls).get("forward")
            stock(module)
            if not isinstance(forward, _LateForward):
                cls.forward = forward  # somebody has given it another one since


class _LateValue:
    """An attribute that compiling sets: to read it compiles, and to set it is to have compiled."""

    def __init__(self, name: str) -> None:
        self._name = name

    def __get__(self, module: Any, cls: Any) -> Any:
        if module is None:
            raise AttributeError(self._name)
        _compile(module)
        return module.__dict__[self._name]

    def __set__(self, module: Any, value: Any) -> None:
        module.__dict__[self._name] = value
        cls = type(module)
        # Everything of ours goes from its class.
        ours = [name for name in (*_AT_FIRST, *_PICKLING, _LATER) if name in vars(cls)]
        for name in ours:
            delattr(cls, name)


class _LateForward:
    """A module's `forward`, also where it is asked of its class."""

    def __init__(self, module: GraphModule, stock: Recompile) -> None:
        self._module, self._stock = weakref.ref(module), stock

    def __get__(self, module: Any, cls: Any) -> Any:
        compiled = self._module() if module is None else module
        if compiled is None:
            raise AttributeError("forward")
        with _compiling:
            if vars(type(compiled)).get("forward") is self:
                self._stock(compiled)
        return getattr(cls if module is None else module, "forward")  # noqa: B009 - another one by now


def _compiled_before(name: str) -> Callable[..., Any]:
    def compiled_before(module: Any, *args: Any) -> Any:
        _compile(module)
        return getattr(module, name)(*args)

    return compiled_before


class _LateCode(PythonCode):  # type: ignore[misc]
    """What `recompile` returns: whoever looks at it finds the PythonCode of the module, which is compiled for that."""

    def __init__(self, module: GraphModule, stock: Recompile) -> None:
        object.__setattr__(self, "_compiled", (module, stock))

    def __getattribute__(self, name: str) -> Any:
        held = object.__getattribute__(self, "__dict__")
        with _compiling:
            if "_compiled" in held:
                module, stock = held["_compiled"]
                code = stock(module)
                held.clear()
                held.update(vars(code))
                object.__setattr__(self, "__class__", PythonCode)
        return getattr(self, name)
