"""The width of the terminal is respected: no line is longer, save where a single word (a path, a name) is."""

import os
import re
import shlex
import shutil
import sys
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from model_profiling.base.printing import fitted, fitted_line
from model_profiling.cli.answer import next_command
from model_profiling.cli.main import COMMANDS
from model_profiling.report.text_table import table
from tests.conftest import ROOT
from tests.helpers.kit_here import kit_here
from tests.helpers.terminal import written_to_terminal

KNOWN_GOOD = ROOT / "tests" / "data" / "known_good_run"
DUMP = ROOT / "tests" / "data" / "etdump" / "two_methods.etdump"
WIDTHS = (1, 20, 27, 34, 50, 80, 120)
# What is narrower is laid out as this.
NARROWEST = 20
OFF, ON = "linux_fp16arith_off", "linux_fp16arith_on"
SHOWN: list[list[str]] = [
    ["analyze", "run"],
    ["analyze", str(DUMP)],
    ["analyze", "run", "--what-if", "conv=3", "--what-if", "GEMM=2"],
    ["compare", f"run:{OFF}", f"run:{ON}", "--verbose"],
    ["runs", "run"],
    ["validate", "--results", "run"],
    ["models"],
    ["skills"],
    ["targets"],
    ["targets", "apple_m4"],
    *[[command, "--help"] for command in COMMANDS],
]


@pytest.fixture
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    shutil.copytree(KNOWN_GOOD, tmp_path / "run")
    monkeypatch.chdir(tmp_path)
    return tmp_path


def too_long(text: str, width: int) -> list[str]:
    """The lines that could have been broken and were not."""
    return [line for line in text.splitlines() if len(line) > width and " " in line.strip()]


@pytest.mark.parametrize("arguments", SHOWN, ids=" ".join)
def test_nothing_a_command_prints_is_wider_than_the_terminal(arguments: list[str], here: Path) -> None:
    for width in WIDTHS:
        done = kit_here(*arguments, env={"COLUMNS": str(width)})
        assert done.returncode == 0 and done.stdout.strip()
        assert not too_long(done.stdout, max(width, NARROWEST)), width


def test_all_numbers_are_there_at_every_width(here: Path) -> None:
    texts = [kit_here("analyze", "run", env={"COLUMNS": str(width)}).stdout for width in ("", *WIDTHS)]
    first, *others = (sorted(re.findall(r"\d+\.\d+", text)) for text in texts)
    assert first and all(numbers == first for numbers in others)


def test_a_real_terminal_says_how_wide_it_is(here: Path) -> None:
    environment = {name: value for name, value in os.environ.items() if name != "COLUMNS"} | {"PYTHONPATH": str(ROOT)}
    command = [sys.executable, "-m", "model_profiling", "analyze", "run"]
    printed = written_to_terminal(command, 50, environment)
    text = re.sub(r"\x1b\[\d+m", "", printed)
    assert "Where the time goes" in text and not too_long(text, 50)


words = st.text("ab(#0.,/_-", min_size=1, max_size=25)
cells = st.lists(words, max_size=5).map(" ".join)


@given(line=cells, width=st.integers(20, 90), indent=st.integers(0, 8))
def test_a_broken_line_keeps_its_words_and_their_order(line: str, width: int, indent: int) -> None:
    parts = fitted_line(" " * indent + line, width)
    assert " ".join(parts).split() == line.split()
    assert not too_long("\n".join(parts), width)
    assert fitted(line, None) == line


@settings(deadline=None, max_examples=60)
@given(
    rows=st.integers(2, 5).flatmap(lambda size: st.lists(st.tuples(*[cells] * size), min_size=2, max_size=4)),
    width=st.integers(20, 120),
    header=st.booleans(),
)
def test_a_table_of_any_cells_fits_and_leaves_nothing_out(
    rows: list[tuple[str, ...]], width: int, header: bool
) -> None:
    lines = table(rows, words=1, header=header, width=width)
    assert not too_long("\n".join(lines), width)
    printed = re.sub(r"\s|,", "", "".join(lines))
    for row in rows[1 if header else 0 :]:
        for cell in row:
            # Wrapped cells stand beside each other: their words are all there.
            assert all(re.sub(r",", "", word) in printed for word in cell.split()), (cell, lines)


@settings(max_examples=60)
@given(parts=st.lists(words, min_size=1, max_size=12), width=st.integers(20, 100))
def test_a_command_on_several_lines_is_the_same_command(parts: list[str], width: int) -> None:
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("COLUMNS", str(width))
        printed = next_command(*parts)
    lines = printed.rstrip("\n").split("\n")
    assert all(line.endswith(" \\") for line in lines[:-1])
    label, program, *words = shlex.split(printed.replace("\\\n", " "))
    assert label == "Next" and Path(program).name == "sme2-kit" and words == parts
    assert all(len(line) <= width or len(line.split()) <= 3 for line in lines)
