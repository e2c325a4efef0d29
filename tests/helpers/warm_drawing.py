"""One process that draws for all commands of a test session: starting the library takes a second, a picture a tenth.

Commands that `warm.py` forks ask it through a socket, in the words of the kit's own pipe (`drawing_process.py`).
"""

import contextlib
import functools
import importlib.abc
import importlib.util
import pickle
import socket
import sys
import threading
from collections.abc import Sequence
from importlib.machinery import ModuleSpec
from pathlib import Path
from types import ModuleType
from typing import Any

# Tests whose commands have to draw by themselves take it out of the environment.
VARIABLE = "TESTS_DRAWING"
_MODULE = "model_profiling.report.drawing.drawing_process"


def draw_at(address: str) -> None:
    """Let the kit's drawing module, loaded or yet to be, ask the process at `address` instead of starting one."""
    if _MODULE in sys.modules:
        _change(sys.modules[_MODULE], address)
    else:
        sys.meta_path.insert(0, _Changing(address))


def _change(module: Any, address: str) -> None:
    start = module._started

    @functools.wraps(start)
    def started(said: Any) -> Any:
        try:
            return Connection(address)
        except OSError:
            return start(said)

    module._started = started


class _Changing(importlib.abc.MetaPathFinder):
    """Changes the module when it is imported."""

    def __init__(self, address: str) -> None:
        self._address = address

    def find_spec(self, name: str, path: Sequence[str] | None, target: ModuleType | None = None) -> ModuleSpec | None:
        if name != _MODULE:
            return None
        sys.meta_path.remove(self)
        spec = importlib.util.find_spec(name)
        assert spec is not None and spec.loader is not None
        load = spec.loader.exec_module

        def load_and_change(module: ModuleType) -> None:
            load(module)
            _change(module, self._address)

        spec.loader.exec_module = load_and_change  # type: ignore[method-assign]
        return spec


class Connection:
    """What a `DrawingProcess` takes for its process."""

    def __init__(self, address: str) -> None:
        self._socket = socket.socket(socket.AF_UNIX)
        self._socket.connect(address)
        self.stdin, self.stdout = self._socket.makefile("wb"), self._socket.makefile("rb")

    def kill(self) -> None:
        self._socket.close()

    def wait(self, timeout: float | None = None) -> int:
        self._socket.close()
        return 0


def _serve(listener: socket.socket) -> None:
    """Answer whoever connects; ends with the process that started it, which holds the other end of standard input."""
    from model_profiling.report.drawing import drawing_process, vega

    for name in ("svg", "draw"):
        setattr(vega, name, _remembering(getattr(vega, name)))

    def accept() -> None:
        while True:
            connection, _ = listener.accept()
            threading.Thread(target=answer, args=(connection,), daemon=True).start()

    def answer(connection: socket.socket) -> None:
        asked, answers = connection.makefile("rb"), connection.makefile("wb")
        with contextlib.suppress(OSError), connection, asked, answers:
            drawing_process.answer_all(asked, answers)

    threading.Thread(target=accept, daemon=True).start()
    sys.stdin.read()


def _remembering(draw: Any) -> Any:
    """The same specification gives the same picture: every `DrawingPool` begins with the same sketch."""

    @functools.lru_cache(maxsize=64)
    def drawn(question: bytes) -> Any:
        return draw(*pickle.loads(question))

    return lambda *question: drawn(pickle.dumps(question))


def listening(address: Path) -> socket.socket:
    address.unlink(missing_ok=True)
    listener = socket.socket(socket.AF_UNIX)
    listener.bind(str(address))
    listener.listen(64)
    return listener


if __name__ == "__main__":
    _serve(socket.socket(fileno=int(sys.argv[1])))
