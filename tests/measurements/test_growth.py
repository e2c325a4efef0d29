"""Work grows as its input does: no part of the kit is quadratic in what a large model or a long run has many of."""

import pytest

from benchmarks.growth import STUDIES, GrowthStudy, grow
from tests.helpers.repeated_verdict import Sighting, judge

# Linear work measures 0.8 to 1.1 here, n log n a little more; quadratic work comes near 2 as soon as it matters.
_MOST = 1.35


@pytest.mark.wide
@pytest.mark.parametrize("study", STUDIES, ids=lambda study: study.name)
def test_time_grows_no_faster_than_its_input(study: GrowthStudy) -> None:
    def measure(attempt: int) -> Sighting:
        exponent = grow(study, factors=(1, 6), tries=2).exponent
        return exponent < _MOST, f"exponent {exponent:.2f}"

    judge(measure)
