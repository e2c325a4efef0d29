"""Records that are made of others, and lists of what has the same key."""

from collections.abc import Iterable
from typing import Any, TypeVar

import msgspec

T = TypeVar("T", bound=msgspec.Struct)
K = TypeVar("K")
V = TypeVar("V")
N = TypeVar("N", int, float)


def record_of(type_: type[T], *sources: object, **given: Any) -> T:
    """Return a record whose fields are `given`, or those of the same name of the first source that has one."""
    for source in sources:
        names = [name for name in type_.__struct_fields__ if name not in given and hasattr(source, name)]
        given |= {name: getattr(source, name) for name in names}
    return type_(**given)


def by_key(pairs: Iterable[tuple[K, V]]) -> dict[K, list[V]]:
    """Return the values of each key; keys and values keep their order."""
    found: dict[K, list[V]] = {}
    for key, value in pairs:
        found.setdefault(key, []).append(value)
    return found


def sum_by_key(pairs: Iterable[tuple[K, N]]) -> dict[K, N]:
    """Return the sum of the values of each key; keys keep their order."""
    found: dict[K, N] = {}
    for key, value in pairs:
        found[key] = found.get(key, 0) + value
    return found
