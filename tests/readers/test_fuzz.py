"""Every reader answers or raises KitError, whatever it is given; what once failed is read again for ever."""

import random
import subprocess
import sys
from pathlib import Path

import pytest

from tests.conftest import ROOT
from tests.helpers.fuzz import CORPUS, replay
from tests.helpers.fuzz_readers import READERS

_CASES = 100


@pytest.mark.wide
def test_no_reader_fails_in_another_way_than_by_saying_so() -> None:
    # In a child, since its memory is bounded for good; one for all readers, since they load the same things.
    code = f"""
from tests.helpers.fuzz import fuzz, limited
from tests.helpers.fuzz_readers import READERS
limited()
print(*[words for name in READERS for words in fuzz(name, {_CASES}, seed=20261115, keep=None)], sep="\\n")
"""
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, cwd=ROOT, check=False)
    assert (done.returncode, done.stdout.strip()) == (0, ""), done.stdout + done.stderr


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
