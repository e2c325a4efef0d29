"""Replace functions of torch and ExecuTorch for one thread, while a block runs.

The contract:
- Only the thread that runs the block gets the replacements. Each begins with `if get_ident() != block.thread`, and then
  calls what it replaced: every other thread of the process computes with stock torch.
- One thread at a time: a second one that wants such a block waits until the first has left it.
- Afterwards every attribute is the very object that it was; what a class did not define itself is deleted again.
- If other code replaced one of them while the block ran, its replacement stays. It may have kept ours as what it calls,
  which goes on as a call of the stock function: a block that is over belongs to no thread.
- Nothing that a block remembers (shapes, lists of operators, verified graphs) outlives it.
"""

import contextlib
import threading
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any, TypeVar

T = TypeVar("T", bound=list[Any] | dict[Any, Any])
_MISSING = object()
_one_at_a_time = threading.RLock()


class Block:
    """A block with replacements: the thread that they are for, 0 once it is over, and what they remember."""

    __slots__ = ("_remembered", "thread")

    def __init__(self) -> None:
        self.thread = threading.get_ident()
        self._remembered: list[Any] = []

    def remember(self, empty: T) -> T:
        """Return an empty list or dict, which is emptied again when the block is over."""
        self._remembered.append(empty)
        return empty

    def end(self) -> None:
        self.thread = 0
        for each in self._remembered:
            each.clear()


@dataclass(frozen=True)
class Replacement:
    """`value` in place of an attribute of a class or module."""

    owner: Any
    name: str
    value: Any


# Makes its replacements for a block, from what the attributes are by then.
Saving = Callable[[Block], Iterator[Replacement]]
# Those that are in place; only the thread that holds the lock looks at it.
_in_place: set[Saving] = set()


@contextlib.contextmanager
def replaced_here(*savings: Saving) -> Iterator[None]:
    """Run the block with the replacements for this thread, but for those that a block around it has made."""
    with _one_at_a_time, contextlib.ExitStack() as undo:
        new = [saving for saving in savings if saving not in _in_place]
        _in_place.update(new)
        undo.callback(_in_place.difference_update, new)
        block = Block()
        for each in (replacement for saving in new for replacement in saving(block)):
            undo.callback(_put_back, each, vars(each.owner).get(each.name, _MISSING))
            setattr(each.owner, each.name, each.value)
        undo.callback(block.end)
        yield


def _put_back(each: Replacement, before: Any) -> None:
    if vars(each.owner).get(each.name) is not each.value:
        return
    if before is _MISSING:
        delattr(each.owner, each.name)
    else:
        setattr(each.owner, each.name, before)
