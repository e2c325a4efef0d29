"""Every reader answers or raises KitError, whatever it is given; what once failed is read again for ever."""

import random
import subprocess
import sys
from pathlib import Path

import pytest

from tests.conftest import ROOT, SAMPLED
from tests.helpers.fuzz import CORPUS, replay
from tests.helpers.fuzz_readers import READERS

_CASES = 20 if SAMPLED else 60


def _failures(expression: str) -> str:
    """What fails, each on a line. In a child, since its memory is bounded for good."""
    code = f"""
from tests.helpers.fuzz import every_kind, fuzz, limited
from tests.helpers.fuzz_readers import FILE_USES, READERS, RUN_FILES
limited()
print(*[{expression}], sep="\\n")
"""
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, cwd=ROOT, check=False)
    return done.stdout.strip() if done.returncode == 0 else f"exit code {done.returncode}: {done.stdout}{done.stderr}"


@pytest.mark.wide
def test_no_reader_fails_in_another_way_than_by_saying_so() -> None:
    assert not _failures(f"words for name in READERS for words in fuzz(name, {_CASES}, seed=20261115, keep=None)")


def test_whatever_reads_or_copies_a_file_is_given_every_kind_of_file() -> None:
    assert not _failures("*every_kind(FILE_USES)")


@pytest.mark.wide
@pytest.mark.parametrize(
    "readers",
    ["[each for each in READERS.values() if each.share == 1]", pytest.param("RUN_FILES", marks=pytest.mark.again)],
    ids=["readers", "run"],
)
def test_every_reader_and_every_file_of_a_run_may_be_any_kind_of_file(readers: str) -> None:
    assert not _failures(f"*every_kind({readers})")


@pytest.mark.parametrize("path", sorted(CORPUS.glob("*/*")), ids=lambda path: f"{path.parent.name}-{path.name}")
def test_what_once_failed_fails_no_more(path: Path) -> None:
    error = replay(path)
    assert error is None, error


@pytest.mark.parametrize("name", READERS)
def test_a_reader_accepts_what_it_is_fuzzed_from_and_damage_reaches_it(name: str, tmp_path: Path) -> None:
    reader = READERS[name]
    reader.prepare(tmp_path)
    seeds = reader.seeds()
    for data in seeds:
        reader.read(data, tmp_path)
    source = random.Random(1)
    damaged = {reader.mutate(source.choice(seeds), seeds, source) for _ in range(30)} - set(seeds)
    assert len(damaged) > 15
