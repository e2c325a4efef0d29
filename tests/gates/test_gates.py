"""Gates for CI users: what passes, what fails, what is an error, and what CI systems are told."""

import json
import re
import shutil
import xml.etree.ElementTree as ET
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from tests.conftest import ROOT
from tests.helpers.kit_here import kit_here as kit

KNOWN_GOOD = ROOT / "tests" / "data" / "known_good_run"
Change = Callable[[dict[str, Any]], None]
Toy = Callable[[str], Path]


def _copy(home: Path, slower: float = 1.0, change: Change = lambda _: None) -> Path:
    """A run like the known-good one, its executions so many times slower, its manifest changed."""
    shutil.copytree(KNOWN_GOOD, home)
    for path in home.glob("*/*_samples.json"):
        _changed(path, lambda turn: turn.update(ns=[int(ns * slower) for ns in turn["ns"]]))
    manifest = json.loads((home / "manifest.json").read_text())
    change(manifest)
    (home / "manifest.json").write_text(json.dumps(manifest))
    return home


def _changed(path: Path, change: Change) -> None:
    """Change every turn of an experiment."""
    samples = json.loads(path.read_text())
    for turn in samples["timed"]:
        change(turn)
    path.write_text(json.dumps(samples))


def test_the_known_good_run_is_whole_small_and_names_no_folder_of_a_machine() -> None:
    assert kit("validate", "--results", KNOWN_GOOD).returncode == 0
    files = [file for file in KNOWN_GOOD.rglob("*") if file.is_file()]
    assert sum(file.stat().st_size for file in files) < 500_000
    for file in files:
        found = re.search(rb"/(home|work|root|tmp|Users|var|opt|mnt)/[\w.]+", file.read_bytes())
        assert found is None, (file, found)


def test_a_run_as_fast_as_the_known_good_one_passes(tmp_path: Path) -> None:
    done = kit("compare", KNOWN_GOOD, _copy(tmp_path / "new"), "--fail-if-slower", 10)
    assert done.returncode == 0, done.stderr
    assert done.stderr.count("is not slower by more than 10 %") == 2


def test_a_slower_run_fails_and_every_output_says_so(tmp_path: Path) -> None:
    junit, summary = tmp_path / "out" / "junit.xml", tmp_path / "summary.md"
    summary.write_text("# of another step\n")
    slow = _copy(tmp_path / "slow", slower=1.5)
    arguments = ("--fail-if-slower", 10, "--junit", junit, "--summary", summary)
    done = kit("compare", KNOWN_GOOD, slow, *arguments)
    assert done.returncode == 1, done.stderr
    suite = ET.parse(junit).getroot()
    assert (suite.get("tests"), suite.get("failures")) == ("2", "2")
    assert all("slower by more than 10 %" in (failure.get("message") or "") for failure in suite.iter("failure"))
    text = summary.read_text()
    assert text.startswith("# of another step\n## Performance gate: failed\n")
    assert text.count("| FAIL |") == 2 and "| CONV |" in text
    # Without a limit, the same outputs report and nothing fails.
    done = kit("compare", KNOWN_GOOD, slow, "--junit", tmp_path / "j.xml", "--summary", tmp_path / "s.md")
    assert done.returncode == 0, done.stderr
    assert ET.parse(tmp_path / "j.xml").getroot().get("failures") == "0"
    assert (tmp_path / "s.md").read_text().startswith("## Performance\n")


def _at(*place: str, value: object) -> Change:
    """What puts another value at a place of a manifest; '' is the first experiment."""

    def change(manifest: dict[str, Any]) -> None:
        for key in place[:-1]:
            manifest = manifest[key] if key else next(iter(manifest.values()))
        manifest[place[-1]] = value

    return change


_other_cpu = _at("environment", "cpu", value="another CPU")


@pytest.mark.parametrize(
    ("change", "words"),
    [
        (_other_cpu, "of another CPU"),
        (_at("model", "stem", value="another_xnnpack_fp16"), "of another model"),
        (_at("experiments", "", "threads", value=2), "other threads or features"),
        (lambda manifest: manifest["experiments"].popitem(), "no finished experiment"),
    ],
)
def test_a_wrong_baseline_is_an_error_and_not_a_pass(change: Change, words: str, tmp_path: Path) -> None:
    new = _copy(tmp_path / "new", change=change)
    done = kit("compare", KNOWN_GOOD, new, "--fail-if-slower", 10)
    assert (done.returncode, words in done.stderr) == (2, True), done.stderr
    if change is _other_cpu:
        assert kit("compare", KNOWN_GOOD, new, "--fail-if-slower", 10, "--any-baseline").returncode == 0


def test_a_missing_damaged_or_meaningless_baseline_is_an_error(tmp_path: Path) -> None:
    new, damaged = _copy(tmp_path / "new"), _copy(tmp_path / "damaged")
    next(damaged.glob("*/*.etdump")).write_bytes(b"fifteen bytes..")
    (tmp_path / "empty").mkdir()
    cases: list[tuple[object, object, str]] = [
        (tmp_path / "nowhere", new, "does not exist"),
        (tmp_path / "empty", new, "is a folder and not a run directory"),
        (damaged, new, "is damaged"),
        (KNOWN_GOOD, KNOWN_GOOD, "its own baseline"),
        (f"{KNOWN_GOOD}:nothing", new, "no experiment"),
        (KNOWN_GOOD, tmp_path / "nowhere", "does not exist"),
    ]
    for before, after, words in cases:
        done = kit("compare", before, after, "--fail-if-slower", 10, "--junit", tmp_path / "junit.xml")
        assert (done.returncode, words in done.stderr) == (2, True), (before, done.stderr)
        assert not (tmp_path / "junit.xml").exists()
    for limit in ("-1", "nan", "inf"):
        assert kit("compare", KNOWN_GOOD, new, f"--fail-if-slower={limit}").returncode == 2


def test_a_noisy_dont_know_fails_only_when_strict(tmp_path: Path) -> None:
    def spread(turn: dict[str, Any]) -> None:
        """As many turns faster as slower: the median stays, the interval is wide."""
        turn["ns"] = [int(ns * (0.6, 1.0, 1.6)[turn["turn"] % 3]) for ns in turn["ns"]]

    noisy = _copy(tmp_path / "noisy")
    for path in noisy.glob("*/*_samples.json"):
        _changed(path, spread)
    loose = kit("compare", KNOWN_GOOD, noisy, "--fail-if-slower", 1)
    assert loose.returncode == 0 and "cannot be ruled out" in loose.stderr
    assert kit("compare", KNOWN_GOOD, noisy, "--fail-if-slower", 1, "--strict").returncode == 1


def test_what_cannot_be_measured_in_turns_is_refused(toy: Toy, tmp_path: Path) -> None:
    def refused(*arguments: object) -> str:
        done = kit("compare", *arguments)
        assert (done.returncode, done.stdout) == (2, "")
        return done.stderr

    fp32 = toy("fp32")
    assert "does not exist" in refused(fp32, tmp_path / "none.pte")
    assert "has not been measured" in refused(fp32, KNOWN_GOOD)
    assert "its own baseline" in refused(fp32, fp32, "--fail-if-slower", 5)
    assert "at least 1" in refused(fp32, toy("int8"), "--runs", 0)
    assert "for two .pte" in refused(KNOWN_GOOD, KNOWN_GOOD, "--runs", 5)
    (tmp_path / "broken.pte").write_bytes(b"nothing")
    assert "error:" in refused(fp32, tmp_path / "broken.pte")
