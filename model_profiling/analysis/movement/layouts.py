"""How a tensor's values lie in memory after transposes and reshapes, exactly and without the values.

A dimension is a list of runs, each of so many steps of so many places in the tensor one began with, outermost first.
A transpose reorders dimensions, a reshape cuts and joins runs. The order is the first tensor's own again when all runs
together are one run of single steps.
"""

from math import prod

Run = tuple[int, int]
Layout = tuple[tuple[Run, ...], ...]


def contiguous_layout(shape: tuple[int, ...]) -> Layout:
    """Return the layout of a tensor as it is."""
    return tuple(((size, prod(shape[axis + 1 :])),) for axis, size in enumerate(shape))


def transpose_layout(layout: Layout, permutation: tuple[int, ...]) -> Layout | None:
    if sorted(permutation) != list(range(len(layout))):
        return None
    return tuple(layout[axis] for axis in permutation)


def reshape_layout(layout: Layout, shape: tuple[int, ...]) -> Layout | None:
    """Return the same values under other sizes; None where a size would cut across the layout's runs."""
    runs = list(reversed(_joined(layout)))
    found = []
    for size in shape:
        dimension: list[Run] = []
        left = size
        while left > 1:
            if not runs:
                return None
            count, step = runs.pop()
            if count == 0:
                return None  # nothing is in it, in any order
            if left % count == 0:
                dimension.append((count, step))
                left //= count
            elif count % left == 0:
                dimension.append((left, step * (count // left)))
                runs.append((count // left, step))
                left = 1
            else:
                return None
        found.append(tuple(dimension))
    return tuple(found) if not runs else None


def is_in_order(layout: Layout) -> bool:
    """Return whether the values lie as they did at first, whatever the sizes are called now."""
    runs = _joined(layout)
    return not runs or (len(runs) == 1 and runs[0][1] == 1)


def _joined(layout: Layout) -> list[Run]:
    """Return all runs, outermost first, without those of one step, and neighbours that continue each other as one."""
    joined: list[Run] = []
    for count, step in (run for dimension in layout for run in dimension if run[0] != 1):
        if joined and joined[-1][1] == count * step:
            joined[-1] = (joined[-1][0] * count, step)
        else:
            joined.append((count, step))
    return joined
