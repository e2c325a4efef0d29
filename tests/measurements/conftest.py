"""Tests that judge what they measure (`make test-measurements`): one at a time, with the machine to themselves.

None of them is part of `make test`, in which no assertion depends on a time. Each states what a measurement should show
and leaves the verdict to `tests/helpers/repeated_verdict.py`.
"""

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.helpers import distorted_clock

HERE = Path(__file__).parent


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    for item in items:
        if HERE in item.path.parents:
            item.add_marker("measures")


@pytest.fixture(scope="package", autouse=True)
def true_clock(session_home: None) -> Iterator[None]:
    with distorted_clock.true_clock():
        yield
