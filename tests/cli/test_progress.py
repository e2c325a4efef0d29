"""Progress on a terminal: one live line that nothing else is mixed with, and plain lines everywhere else."""

import os
import re
import sys

import pytest
from hypothesis import given
from hypothesis import strategies as st

from model_profiling.cli.progress import LiveLine
from tests.conftest import ROOT
from tests.helpers.terminal import written_to_terminal

pytestmark = pytest.mark.fast

WORK = """
import sys, time
from model_profiling.base.printing import say, warn
from model_profiling.cli.progress import progress
with progress(plain="plain" in sys.argv) as report:
    report("load \\x1b[2J" + "a long name " * 20, 0, 0)
    time.sleep(0.5)
    warn("a note\\n")
    for done in range(4):
        report("on", done, 4)
        time.sleep(0.25)
say("the result\\n")
"""


def shown(*words: str, **environment: str) -> str:
    """What a terminal of 40 columns gets from the work above."""
    known = {**os.environ, "PYTHONPATH": str(ROOT), "TERM": "xterm", **environment}
    return written_to_terminal([sys.executable, "-c", WORK, *words], 40, known)


def left_over(printed: str) -> list[str]:
    """The lines that stay when all has been printed: what stood before an erasure does not."""
    return [re.sub(r"\x1b\[\?7[lh]", "", line.rpartition("\r\x1b[K")[2]) for line in printed.split("\n")]


def test_a_live_line_is_redrawn_and_nothing_of_it_stays() -> None:
    printed = shown()
    assert left_over(printed) == ["a note", "the result", ""]
    drawn = re.findall(r"\r\x1b\[K\x1b\[\?7l(.*?)\x1b\[\?7h", printed)
    assert drawn[0].startswith(r"load \u001b[2Ja long name") and "\x1b[2J" not in printed
    # One character of the name takes six columns, and the terminal cuts what is too wide.
    assert all(len(line) < 40 + 6 for line in drawn)
    assert any(line.startswith("on ") and "[###" in line for line in drawn)


@pytest.mark.parametrize(("words", "environment"), [(["plain"], {}), ([], {"TERM": "dumb"})])
def test_without_a_live_line_there_are_only_lines(words: list[str], environment: dict[str, str]) -> None:
    printed = shown(*words, **environment)
    assert "\x1b" not in printed and "\r" not in printed
    assert printed.startswith("load") and "a note\nrun: on\n" in printed and printed.endswith("the result\n")


@given(
    of=st.sampled_from(["runs", "jobs"]),
    label=st.text(max_size=60),
    done=st.integers(0, 10**6),
    more=st.integers(0, 10**6),
    took=st.floats(0, 1e6),
    width=st.integers(20, 200),
)
def test_a_live_line_fits_whatever_it_says(of: str, label: str, done: int, more: int, took: float, width: int) -> None:
    line = LiveLine(of)
    line.report(label, 0, done + more)
    line.report(label, done, done + more)
    assert len(line.text(line.began + took, width)) < width


def test_the_time_left_is_judged_by_the_pace_so_far() -> None:
    line = LiveLine("runs")
    line.report("on", 10, 100)
    line.report("on", 40, 100)
    assert line.text(line.began + 30, 80) == f"{'on':<24} [####........] 40/100 runs 0:01:00 left"
