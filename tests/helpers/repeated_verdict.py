"""A verdict on what the kit measures, from as many measurements as it takes: Wald's sequential test.

One measurement may be wrong: a 95 % interval is, one time in twenty. So a test repeats it until either hypothesis is
refuted: that the kit is right and errs at most as often as `ERRS`, or that it is no better than a coin. A kit that is
right fails less than once in a thousand times, however often it is repeated; one that is wrong half of the time passes
less than once in five. What could not be told, because other work disturbed it, counts for neither.
"""

import math
from collections.abc import Callable

from tests.conftest import needs_hardware

# How often one measurement of a kit that is right may say the contrary: twice what its 95 % intervals promise.
ERRS = 0.1
WRONG = 0.5
FAILS_A_TRUE_KIT, PASSES_A_WRONG_ONE = 0.001, 0.2
MOST = 8

# Whether a measurement showed what it should (None: it could not be told), and what it showed.
Sighting = tuple[bool | None, object]


def judge(measure: Callable[[int], Sighting], most: int = MOST) -> None:
    """Measure until the kit is seen to be right or wrong; `measure` gets the number of the attempt, from 0.

    Fails if it is wrong. If it cannot be told in `most` attempts the test is skipped, with all that was seen.
    """
    evidence, seen = 0.0, []
    for attempt in range(most):
        right, what = measure(attempt)
        seen.append(f"{ {True: 'as it should', False: 'WRONG', None: 'not told'}[right] }: {what}")
        if right is not None:
            evidence += math.log((1 - WRONG) / (1 - ERRS) if right else WRONG / ERRS)
        if evidence < math.log(PASSES_A_WRONG_ONE):
            break
        assert evidence <= -math.log(FAILS_A_TRUE_KIT), "\n".join(seen)
    else:
        needs_hardware(False, f"a machine quiet enough to tell; seen here: {'; '.join(seen)}")
    # Shown by `make test-measurements`.
    print("\n".join(["", *seen]))  # noqa: T201
