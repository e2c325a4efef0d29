"""The package stays within the number of lines that CONTRIBUTING.md states."""

import re
from pathlib import Path

import pytest

from tests.helpers.size import PACKAGES, ROOT, functions, lines_by_file, lines_by_folder

pytestmark = pytest.mark.fast


def test_the_package_is_within_its_budget() -> None:
    stated = re.search(r"Budget: ([\d,]+) lines of Python", (ROOT / "CONTRIBUTING.md").read_text())
    assert stated, (
        "CONTRIBUTING.md states no budget: `Budget: 48,000 lines of Python in model_profiling/ and sme2_kit/`"
    )
    budget, lines = int(stated[1].replace(",", "")), sum(lines_by_file(*PACKAGES).values())
    assert lines <= budget, (
        f"{' and '.join(PACKAGES)} have {lines:,} lines of Python, {lines - budget:,} more than the budget: "
        "see `make size`, simplify, or raise the number in CONTRIBUTING.md and say why in the message of the commit"
    )


def test_every_line_is_counted_once() -> None:
    files = lines_by_file(*PACKAGES)
    assert sum(lines_by_folder(files).values()) == sum(files.values()) > 1000
    own = Path("tests", "helpers", "size.py")
    assert {name.split()[1] for name, _ in functions([own])} >= {"lines_by_file", "functions", "report"}
    assert sum(lines for _, lines in functions([own])) < lines_by_file("tests")[own]
