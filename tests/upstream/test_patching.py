"""Replacements act on one thread while a block runs, and leave everything as it was."""

import threading
from collections.abc import Callable, Iterator
from typing import Any

import pytest

from model_profiling.upstream.patching import Block, Replacement, Saving, replaced_here


class Base:
    def inherited(self) -> str:
        return "stock"


class Owner(Base):
    def own(self) -> str:
        return "stock"

    @staticmethod
    def static() -> str:
        return "stock"


def replacing(name: str, remembered: list[Any] | None = None) -> Saving:
    def saving(block: Block) -> Iterator[Replacement]:
        stock = getattr(Owner, name)
        memory = block.remember([] if remembered is None else remembered)

        def ours(*args: Any) -> Any:
            if threading.get_ident() != block.thread:
                return stock(*args)
            memory.append(args)
            return "ours"

        yield Replacement(Owner, name, staticmethod(ours) if name == "static" else ours)

    return saving


def on_a_thread(work: Callable[[], Any]) -> Any:
    result: list[Any] = []
    thread = threading.Thread(target=lambda: result.append(work()))
    thread.start()
    thread.join(60)
    return result[0]


NAMES = ["own", "inherited", "static"]


@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize("ends", ["well", "with an error", "inside of another"])
def test_only_the_thread_of_the_block_sees_it_and_all_is_put_back(name: str, ends: str) -> None:
    before, owner, saving = dict(vars(Owner)), Owner(), replacing(name)

    def look() -> tuple[str, str]:
        return getattr(owner, name)(), on_a_thread(getattr(owner, name))

    if ends == "inside of another":
        with replaced_here(saving):
            with replaced_here(saving):
                assert look() == ("ours", "stock")
            assert look() == ("ours", "stock")
    elif ends == "well":
        with replaced_here(saving):
            assert look() == ("ours", "stock")
    else:
        with pytest.raises(ZeroDivisionError), replaced_here(saving):
            assert look() == ("ours", "stock")
            raise ZeroDivisionError
    assert look() == ("stock", "stock")
    # The very objects: what the class has from its base is no longer in its own dictionary.
    assert list(vars(Owner)) == list(before) and all(vars(Owner)[key] is before[key] for key in before)


@pytest.mark.parametrize("name", NAMES)
def test_what_others_replace_meanwhile_stays_and_reaches_the_stock_function(
    name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    stock = vars(Owner).get(name)
    with replaced_here(replacing(name)):
        ours = getattr(Owner, name)
        theirs = (lambda: f"theirs of {ours()}") if name == "static" else (lambda self: f"theirs of {ours(self)}")
        monkeypatch.setattr(Owner, name, staticmethod(theirs) if name == "static" else theirs)
        assert getattr(Owner(), name)() == "theirs of ours"
    assert getattr(Owner(), name)() == "theirs of stock"
    if stock is None:
        monkeypatch.delattr(Owner, name)
    else:
        monkeypatch.setattr(Owner, name, stock)
    assert getattr(Owner(), name)() == "stock"


def test_a_second_thread_waits_and_nothing_is_remembered_afterwards() -> None:
    remembered: list[Any] = []
    entered, order = threading.Event(), []

    def second() -> None:
        entered.wait(60)
        with replaced_here(replacing("own")):
            order.append(("second", Owner().own()))

    thread = threading.Thread(target=second)
    thread.start()
    with replaced_here(replacing("own", remembered)):
        entered.set()
        thread.join(0.2)
        order.append(("first", Owner().own()))
        assert remembered
    thread.join(60)
    assert order == [("first", "ours"), ("second", "ours")] and not remembered
    assert Owner().own() == "stock"
