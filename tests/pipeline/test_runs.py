"""The runs of a directory: nothing is replaced unasked, an interrupted run goes on, each is named by its label."""

import hashlib
import json
import os
import random
import shutil
import signal
import subprocess
import sys
import textwrap
import time
import zipfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import hypothesis.strategies as st
import pytest
from hypothesis import given, settings

from model_profiling.analysis.run.validation import check_staleness, problems
from model_profiling.base import files
from model_profiling.base.errors import InputError
from model_profiling.cli.main import main
from model_profiling.pipeline.config import parse_config
from model_profiling.pipeline.config_types import Experiment
from model_profiling.pipeline.partial_run import remove_leftovers
from model_profiling.pipeline.progress_log import (
    ALONE,
    Entry,
    PlanRecord,
    ProcessEnd,
    ProgressLog,
    RemainingRounds,
    SessionStart,
    TurnRecord,
    remaining_rounds,
)
from model_profiling.pipeline.schedule import TRACED_RUNS, Lane, LaneKind, Round, first_round, later_rounds
from model_profiling.store.run_directory import RunDirectory, Turn
from model_profiling.store.runs import (
    InterruptedRun,
    checked_label,
    earlier_labels,
    interrupted_runs,
    list_runs,
    remove,
    resolve,
    unique_label,
)
from tests.conftest import QUICK, ROOT, SAMPLED, TORCH, kit, needs
from tests.helpers.contract_check import check_files, check_printed
from tests.helpers.run_forge import forge_run
from tests.helpers.waiting import LONGEST_S

KNOWN_GOOD = ROOT / "tests" / "data" / "known_good_run"
APART = ("earlier", "programs", ".partial", ".lock")
TINY_NET = """
import torch

class Tiny(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.conv = torch.nn.Conv2d(3, 8, 3, padding=1)

    def forward(self, x):
        return self.conv(x).relu()
"""


@pytest.fixture(scope="module")
def tiny(tmp_path_factory: pytest.TempPathFactory) -> Path:
    needs(TORCH, "torch")
    home = tmp_path_factory.mktemp("tiny")
    (home / "net.py").write_text(TINY_NET)
    words = f"export {home / 'net.py'}:Tiny --input-shape 1,3,16,16 --dtype fp32 --outdir {home}"
    assert main(words.split()) == 0
    return next(home.glob("*.pte"))


def hashes(root: Path) -> dict[str, str]:
    """Every visible file of a run, without those that belong to several."""
    found = [path for path in root.rglob("*") if path.is_file()]
    names = {path.relative_to(root): path for path in found}
    kept = {name: path for name, path in names.items() if name.parts[0] not in APART}
    return {str(name): hashlib.sha256(path.read_bytes()).hexdigest() for name, path in kept.items()}


def two_runs(home: Path) -> Path:
    """A directory with a latest run and an earlier one called `before`."""
    root = home / "run"
    shutil.copytree(KNOWN_GOOD, root)
    shutil.copytree(KNOWN_GOOD, root / "earlier" / "before")
    return root


# Labels


@pytest.mark.parametrize(
    "label",
    [
        *("", ".", "..", "../x", "a/b", "a\\b", "a\nb", "a\n", "-rf", ".partial", "earlier", "Latest", "failed"),
        *("x" * 65, "a b", "a@b", "a:b", "a\0", "é", "end."),
    ],
)
def test_what_cannot_be_a_label_is_refused_in_a_flag_and_in_a_config(label: str, tmp_path: Path) -> None:
    with pytest.raises(InputError, match="cannot be a label"):
        checked_label(label)
    model = tmp_path / "m.pte"
    model.touch()
    raw = {"model": str(model), "output_root": "out", "experiments": [{"name": "a"}], "label": label}
    with pytest.raises(InputError, match="cannot be a label"):
        parse_config(raw, "here")


def test_labels_differ_in_more_than_case(tmp_path: Path) -> None:
    root = two_runs(tmp_path)
    assert unique_label(root, "other") == "other"
    assert unique_label(root, "BEFORE") == "BEFORE-2"


def test_a_run_is_found_by_its_label_and_what_exists_is_taken_as_it_is(tmp_path: Path) -> None:
    root = two_runs(tmp_path)
    before = root / "earlier" / "before"
    latest = list_runs(root)[0].label
    assert resolve(f"{root}@before") == resolve(before) == before
    assert resolve(f"{root}@{latest}") == resolve(f"{root}@latest") == resolve(root) == root
    assert str(resolve(f"{root}@before:x_on")) == f"{before}:x_on"
    assert resolve(f"{root}@before/x_on") == before / "x_on"
    with pytest.raises(InputError) as caught:
        resolve(f"{root}@nobody")
    assert "before" in caught.value.hint and latest in caught.value.hint
    odd = tmp_path / "run@before"
    shutil.copytree(KNOWN_GOOD, odd)
    assert resolve(odd) == odd
    assert str(resolve(f"{odd}:x_on")) == f"{odd}:x_on"
    assert resolve(tmp_path / "nowhere@x") == tmp_path / "nowhere@x"
    with pytest.raises(InputError, match="has no run labelled"):
        resolve(f"{root}@../../x")


def test_a_run_that_was_killed_when_it_was_in_place_leaves_nothing_behind(tiny: Path, tmp_path: Path) -> None:
    root = tmp_path / "run"
    words = ["run", tiny, "--output-root", root, "--runs", 2, "--launches", 1, "--startup-launches", 0, "--quiet"]
    assert kit(*words).returncode == 0
    manifest = RunDirectory(root).manifest()
    prints = {name: record.fingerprint for name, record in manifest.experiments.items()}
    runners = {name: record.runner for name, record in manifest.experiments.items()}
    place = root / ".partial" / "0123456789ab"
    files.write_json(place / "run.json", InterruptedRun(manifest, prints, runners, [1]))
    assert [entry.status for entry in list_runs(root)] == ["complete", "interrupted"]
    assert kit(*words).returncode == 0
    assert [entry.status for entry in list_runs(root)] == ["complete"] and not place.parent.exists()
    # One that is to measure something else, or is another run, stays.
    files.write_json(place / "run.json", InterruptedRun(manifest, prints | {"more": "x"}, runners, [1]))
    assert kit(*words).returncode == 0 and place.is_dir()


def test_earlier_runs_go_when_asked_and_the_latest_does_not(tmp_path: Path) -> None:
    root = two_runs(tmp_path)
    latest = list_runs(root)[0].label
    for label, words in ((latest, "is the latest run"), ("nobody", "has no run labelled")):
        with pytest.raises(InputError, match=words):
            remove(root, label)
    remove(root, "before")
    assert [entry.label for entry in list_runs(root)] == [latest]
    assert not (root / "earlier").exists() and hashes(root) == hashes(KNOWN_GOOD)


# Putting a run in place

_KILLED_AT_EVERY_CALL = """
import json, os, shutil, sys
from pathlib import Path
from model_profiling.base import files
from model_profiling.store import runs, transaction
from model_profiling.store.run_directory import RunDirectory
from model_profiling.store.runs import resolve

PLACE = ".partial/x"
good, home = Path(sys.argv[1]), Path(sys.argv[2])
EVENTS = {"open", "os.rename", "os.remove", "os.mkdir", "os.rmdir", "os.link", "os.chmod"}
left = None

def hook(event, arguments):
    global left
    if left is not None and event in EVENTS:
        left -= 1
        if left < 0:
            os._exit(9)

def prepare(root):
    shutil.copytree(good, root)
    place = root / PLACE
    manifest = RunDirectory(root).manifest()
    first, second = manifest.experiments
    shutil.copytree(root / first, place / "ready" / first)
    (place / "ready" / first / "new").write_text("new")
    manifest.label = "new"
    del manifest.experiments[second]
    return manifest, [first], [second], "old"

def state(root):
    found = (p for p in sorted(root.rglob("*")) if p.is_file() and p.name != ".lock")
    return {str(p.relative_to(root)): p.read_bytes() for p in found}

sys.addaudithook(hook)
whole = home / "whole"
runs.publish(whole, whole / PLACE, *prepare(whole))
wanted = state(whole)
kills = 0
while True:
    root = home / f"killed{kills}"
    asked = prepare(root)
    before = state(root)
    if (pid := os.fork()) == 0:
        left = kills
        runs.publish(root, root / PLACE, *asked)
        os._exit(0)
    code = os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])
    if code == 0:
        break
    note_there = any(root.glob(".change-*/change.json"))
    there = state(root)
    resolve(root)
    assert state(root) == there and bool(transaction.interrupted(root)) == note_there
    resolve(root, writes=True)
    after = {k: v for k, v in state(root).items() if ".sme2-kit.tmp" not in k}
    known = [wanted, before] if not note_there else [wanted]
    assert after in known, (kills, sorted(after.keys() ^ wanted.keys()))
    shutil.rmtree(root)
    kills += int(sys.argv[3])
print(kills)
"""


@pytest.mark.wide
def test_a_run_killed_between_any_two_system_calls_while_it_is_put_in_place_loses_nothing(tmp_path: Path) -> None:
    """Whoever looks next finds the old run untouched, or the new one complete and the old one kept."""
    done = subprocess.run(
        [sys.executable, "-c", _KILLED_AT_EVERY_CALL, str(KNOWN_GOOD), str(tmp_path), "4" if SAMPLED else "1"],
        capture_output=True,
        text=True,
        env={**os.environ, "PYTHONPATH": str(ROOT)},
        check=False,
    )
    assert done.returncode == 0, done.stderr
    assert int(done.stdout) > 50
    whole = tmp_path / "whole"
    assert hashes(whole / "earlier" / "old") == hashes(KNOWN_GOOD)
    assert RunDirectory(whole).manifest().label == "new" and not list(whole.glob(".change-*"))


def test_an_archive_does_not_follow_a_link_out_of_the_directory(tmp_path: Path) -> None:
    from model_profiling.store import runs

    root, outside = tmp_path / "run", tmp_path / "outside"
    shutil.copytree(KNOWN_GOOD, root)
    outside.mkdir()
    (root / "earlier").symlink_to(outside)
    place = root / ".partial" / "x"
    place.mkdir(parents=True)
    with pytest.raises(InputError, match="points outside"):
        runs.publish(root, place, RunDirectory(root).manifest(), [], [], "old")
    assert not any(outside.iterdir())


@pytest.mark.parametrize("name", ["earlier", "failed", ".partial"])
@pytest.mark.parametrize("target", ["../theirs", "src"])
def test_nothing_is_removed_from_where_a_link_leads(name: str, target: str, tmp_path: Path) -> None:
    root = forge_run(KNOWN_GOOD, tmp_path / "run")
    precious = [root / target / part for part in ("kept/a.py", "old/manifest.json", "old/run.json")]
    for path in precious:
        path.parent.mkdir(parents=True, exist_ok=True)
        shutil.copy(KNOWN_GOOD / "manifest.json", path)
    (root / name).symlink_to(target)
    (root / "earlier").mkdir(exist_ok=True) if name != "earlier" else None
    with pytest.raises(InputError, match="points outside"):
        remove_leftovers(root)
    with pytest.raises(InputError, match="no run labelled 'old'"):
        remove(root, "old")
    assert earlier_labels(root) == [] and list(interrupted_runs(root)) == []
    assert all(path.is_file() for path in precious)


def test_a_link_among_the_runs_of_a_directory_is_none_of_them(tmp_path: Path) -> None:
    root = forge_run(KNOWN_GOOD, tmp_path / "run")
    forge_run(KNOWN_GOOD, root / "src")
    (root / "earlier").mkdir()
    (root / "earlier" / "old").symlink_to("../src")
    with pytest.raises(InputError, match="no run labelled 'old'"):
        remove(root, "old")
    assert earlier_labels(root) == [] and (root / "src" / "manifest.json").is_file()


# What an interrupted group still has to do


@st.composite
def _lanes(draw: st.DrawFn) -> list[Lane]:
    """Experiments that are timed (some also started alone), only traced, or launched by a foreign runner."""
    lanes = []
    for number in range(draw(st.integers(1, 3))):
        launches = draw(st.integers(1, 4))
        runs = draw(st.integers(launches, 20))
        experiment = Experiment(f"e{number}", num_runs=runs, launches=launches)
        kind = draw(st.sampled_from(("timed", "traced", "launched")))
        if kind == "launched":
            lanes.append(Lane(experiment, LaneKind.LAUNCHED, runs, launches))
        elif kind == "traced":
            lanes.append(Lane(experiment, LaneKind.TRACED, 1, 1))
        else:
            lanes += [
                Lane(experiment, LaneKind.TIMED, runs, launches),
                Lane(experiment, LaneKind.TRACED, runs, launches),
            ]
            lanes += [Lane(experiment, LaneKind.STARTUP, n, n) for n in [draw(st.integers(0, 5))] if n]
    return lanes


def steps(lanes: list[Lane], rest: RemainingRounds, kept: list[Entry]) -> list[Entry]:
    """What taking the rest of the rounds notes, in order; the plan is that each lane is as it was asked for."""
    found: list[Entry] = []
    turns = len({e.turn.turn for e in kept if isinstance(e, TurnRecord)})

    def take(each: Round) -> None:
        nonlocal turns
        launch = each.launch + rest.shift
        for step, shares in enumerate(each.turns, each.taken):
            found.extend(
                TurnRecord(each.launch, step, lanes[i].label, Turn(turns, 0.0, [1] * n, 0, launch)) for i, n in shares
            )
            turns += 1
        found.extend(ProcessEnd(each.launch, lanes[i].label, launch, None) for i in each.together)
        for i, n in each.alone:
            found.append(TurnRecord(each.launch, ALONE, lanes[i].label, Turn(turns, 0.0, [1] * n, 0, launch)))
            found.append(ProcessEnd(each.launch, lanes[i].label, launch, None))
        turns += bool(each.alone)

    if rest.first is not None:
        take(rest.first)
    later = rest.later
    if not any(isinstance(entry, PlanRecord) for entry in kept):
        found.append(PlanRecord([(lane.runs, lane.launches) for lane in lanes], "asked"))
        later = later_rounds(lanes, first_round(lanes, 0), 0)
    for each in later:
        take(each)
    return found


@settings(max_examples=60, deadline=None)
@given(_lanes(), st.randoms(use_true_random=False))
def test_interrupted_anywhere_and_as_often_as_you_like_everything_is_measured_once(
    lanes: list[Lane], chance: random.Random
) -> None:
    kept: list[Entry] = []
    for sitting in range(5):
        kept, rest = remaining_rounds(kept, lanes, 0, lambda lane, launch, runs: True)
        done = steps(lanes, rest, kept)
        # What is kept is of complete turns, and what comes has numbers of its own.
        cut = len(done) if sitting == 4 else chance.randint(0, len(done))
        kept = [*kept, *done[:cut]]
    wanted = steps(lanes, RemainingRounds(first_round(lanes, 0), [], 0), [])
    taken = [entry for entry in kept if isinstance(entry, TurnRecord)]
    assert sorted((e.round, e.step, e.lane, len(e.turn.ns)) for e in taken) == sorted(
        (e.round, e.step, e.lane, len(e.turn.ns)) for e in wanted if isinstance(e, TurnRecord)
    )
    for lane in lanes:
        mine = [entry for entry in taken if entry.lane == lane.label]
        assert len({entry.turn.turn for entry in mine}) == len(mine)
        # A launch is one process: its turns follow each other, and are of one round.
        assert [e.turn.launch for e in mine] == sorted(e.turn.launch for e in mine)
        assert all(len({e.round for e in mine if e.turn.launch == n}) == 1 for n in {e.turn.launch for e in mine})
    for step in {(e.round, e.step) for e in taken if e.step != ALONE}:
        # Lanes that took a turn together ran side by side.
        assert len({e.turn.launch for e in taken if (e.round, e.step) == step}) == 1


def test_a_launch_whose_dump_is_gone_is_measured_again() -> None:
    experiment = Experiment("e", num_runs=6, launches=2)
    lanes = [Lane(experiment, LaneKind.TIMED, 6, 2), Lane(experiment, LaneKind.TRACED, 6, 2)]
    whole = steps(lanes, RemainingRounds(first_round(lanes, 0), [], 0), [])
    _, rest = remaining_rounds(whole, lanes, 0, lambda lane, launch, runs: launch != 1)
    assert [(each.launch, each.turns, len(each.alone)) for each in rest.later] == [(1, (), 1)]


def test_progress_survives_a_torn_line_and_whatever_is_in_the_file(tmp_path: Path) -> None:
    path = tmp_path / "x.progress"
    progress = ProgressLog(path)
    sitting = SessionStart("s", ["e"], "2026-01-01", 0.0, 0.0, "boot", {})
    taken = TurnRecord(0, 0, "e:timed", Turn(0, 0.0, [1]))
    progress.add(sitting)
    progress.add(taken)
    whole = path.read_bytes()
    deep = b'{"type": "taken", "more": ' + b"[" * 100_000
    for torn in (b'{"type":"tak', b"\0" * 40, b"\xff\xfe", b"[]", deep, whole[:-1]):
        path.write_bytes(whole + torn)
        assert ProgressLog(path).entries[:2] == [sitting, taken]
    path.write_bytes(b"\0" * 100)
    assert ProgressLog(path).entries == []


# The real thing


def config(home: Path, model: Path, runs: int, launches: int, **more: Any) -> Path:
    """Two experiments side by side."""
    experiments = [{"name": name, "num_runs": runs, "launches": launches, "warmup": 1} for name in ("left", "right")]
    path = home / f"c{runs}.json"
    raw = {"model": str(model), "output_root": str(home / "out"), "experiments": experiments, **more}
    path.write_text(json.dumps(raw))
    return path


def here(capsys: pytest.CaptureFixture[str], *arguments: object) -> tuple[int, str, str]:
    """`sme2-kit` in this process: its exit code and what it said."""
    capsys.readouterr()
    code = main([str(argument) for argument in arguments])
    return code, *capsys.readouterr()


def test_a_changed_setting_keeps_the_earlier_run_in_full(
    tiny: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    root, twelve, eighteen = tmp_path / "out", config(tmp_path, tiny, 12, 6), config(tmp_path, tiny, 18, 6)
    assert here(capsys, "run", "--config", twelve, "--label", "twelve", "--html", "--quiet")[0] == 0
    first = hashes(root)
    assert {"report.md", "report.html", "metrics.json", "derived.json"} <= first.keys()
    code, _, said = here(capsys, "run", "--config", eighteen, "--quiet")
    assert code == 0 and f"kept as {root}@twelve" in said, said
    assert hashes(root / "earlier" / "twelve") == first
    second = hashes(root)
    # Measured again as it was: another run, with the earlier ones untouched.
    assert here(capsys, "run", "--config", eighteen, "--quiet", "--force")[0] == 0
    labels = earlier_labels(root)
    assert labels[0] == "twelve" and hashes(root / "earlier" / labels[1]) == second != hashes(root)
    code, _, said = here(capsys, "run", "--config", twelve, "--label", "twelve")
    assert code == 2 and "has a run labelled 'twelve' already" in said
    for place in (root, f"{root}@twelve", f"{root}@{labels[1]}"):
        assert here(capsys, "validate", "--results", place)[0] == 0


@pytest.mark.wide
def test_a_zip_of_all_runs_answers_elsewhere_as_it_does_here(
    tiny: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    for runs, label in ((12, "twelve"), (18, "eighteen")):
        path = config(tmp_path, tiny, runs, 6)
        assert here(capsys, "run", "--config", path, "--quiet", "--label", label)[0] == 0
    shutil.make_archive(str(tmp_path / "copy"), "zip", tmp_path / "out")
    shutil.rmtree(tmp_path / "out")
    there = tmp_path / "elsewhere"
    with zipfile.ZipFile(tmp_path / "copy.zip") as archive:
        archive.extractall(there)
    rows = json.loads(here(capsys, "runs", there, "--json")[1])
    assert [(row["kind"], row["label"]) for row in rows] == [("latest", "eighteen"), ("earlier", "twelve")]
    assert all(set(row["median_ms"]) == {"left", "right"} for row in rows)
    compared = json.loads(here(capsys, "compare", f"{there}@twelve", there, "--json")[1])
    assert [entry["latency"]["after"] for entry in compared] == ["B:left", "B:right"]
    assert not any(entry["latency"]["paired"] for entry in compared)
    for entry in compared:
        check_printed("comparison", entry)
    assert here(capsys, "compare", f"{there}@twelve:left", f"{there}@latest:right")[0] == 0
    assert here(capsys, "analyze", f"{there}@twelve")[0] == 0
    assert here(capsys, "report", f"{there}@twelve", there, "-o", tmp_path / "both.md")[0] == 0
    assert "2 runs side by side" in (tmp_path / "both.md").read_text()
    assert here(capsys, "validate", "--results", there)[0] == 0


def start(path: Path, *flags: str) -> "subprocess.Popen[str]":
    command = [sys.executable, "-m", "model_profiling", "run", "--config", str(path), "--quiet", *flags]
    environment = {**os.environ, "PYTHONPATH": str(ROOT), **QUICK}
    return subprocess.Popen(command, env=environment, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True)


def end_after(process: "subprocess.Popen[str]", how: signal.Signals, root: Path, reached: Callable[[str], bool]) -> str:
    """End the kit when its progress says so; returns what it said."""
    until = time.monotonic() + LONGEST_S
    while time.monotonic() < until and process.poll() is None:
        if any(reached(path.read_text()) for path in root.glob(".partial/*/*.progress")):
            break
        time.sleep(0.01)
    process.send_signal(how)
    return process.communicate(timeout=LONGEST_S)[1]


def complete(root: Path, runs: int) -> RunDirectory:
    """A run with every execution that was asked for, each pair of turns side by side."""
    run = RunDirectory(root)
    manifest = run.manifest()
    assert manifest.status == "complete" and not (root / ".partial").exists()
    sides = [run.samples(manifest, name) for name in ("left", "right")]
    for side in sides:
        assert sum(len(turn.ns) for turn in side.timed) == runs
        assert sum(len(turn.ns) for turn in side.traced) == min(runs, TRACED_RUNS)
        assert [turn.at_s for turn in side.timed] == sorted(turn.at_s for turn in side.timed)
    assert [(t.turn, t.launch) for t in sides[0].timed] == [(t.turn, t.launch) for t in sides[1].timed]
    # Starts of both sides are of the same launches, each of which is there once.
    starts = [[process.launch for process in side.starts] for side in sides]
    assert starts[0] == starts[1] == sorted(set(starts[0])) and len(starts[0]) >= 6
    (schedule,) = manifest.schedules.values()
    assert {turn.launch for turn in sides[0].timed} == set(range(schedule.launches))
    assert len(schedule.order) == schedule.turns
    assert not problems(run) and not check_staleness(run).stale
    return run


@pytest.mark.wide
def test_killed_at_any_moment_the_same_command_goes_on(tiny: Path, tmp_path: Path) -> None:
    path, root, chance = config(tmp_path, tiny, 192, 64), tmp_path / "out", random.Random(1)
    seen, said = 0, ""
    for moment in range(4):
        goal = seen + chance.randint(1, 9)
        how = signal.SIGTERM if moment == 2 else signal.SIGKILL
        said += end_after(start(path), how, root, lambda text, goal=goal: text.count("taken") >= goal)  # type: ignore[misc]
        assert not (root / "manifest.json").exists()
        seen = max([text.read_text().count("taken") for text in root.glob(".partial/*/*.progress")], default=0)
    assert seen > 4 and "planned launches are kept" in said and "Run the same command to resume" in said
    done = kit("run", "--config", path, "--quiet")
    assert done.returncode == 0 and "resuming an interrupted run" in done.stderr, done.stderr
    run = complete(root, 192)
    manifest = run.manifest()
    assert any("interrupted after" in note for note in manifest.experiments["left"].notes)
    (schedule,) = manifest.schedules.values()
    assert 64 <= schedule.launches <= 64 + 4


def test_a_part_can_be_analysed_and_is_called_one_everywhere(
    tiny: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path, root = config(tmp_path, tiny, 60, 20), tmp_path / "out"
    assert "there is no interrupted run" in here(capsys, "run", "--config", path, "--analyze-partial")[2]
    said = end_after(start(path), signal.SIGINT, root, lambda text: text.count("ended") >= 9)
    assert "of 20 planned launches are kept" in said and "--analyze-partial" in said
    kept = {p: p.read_bytes() for p in root.glob(".partial/*/*.progress")}
    code, shown, said = here(capsys, "run", "--config", path, "--analyze-partial", "--html")
    assert code == 0, said
    assert "partial run" in shown and "of 20 planned launches" in " ".join(shown.split())
    run = RunDirectory(root)
    assert run.manifest().status == "partial" and run.manifest().label.endswith("-partial")
    for name in ("report.md", "metrics.json", f"{run.manifest().model.stem}_pipeline_summary.md"):
        assert "of 20 planned launches" in (root / name).read_text()
    check_files(root)
    assert here(capsys, "validate", "--results", root)[0] == 1
    assert {p: p.read_bytes() for p in kept} == kept

    # Other settings get a place of their own; what was interrupted is kept, and said to be.
    code, _, said = here(capsys, "run", "--config", config(tmp_path, tiny, 6, 2), "--quiet")
    assert code == 0 and "interrupted run with other settings is kept" in said, said
    assert {entry.kind for entry in list_runs(root)} == {"latest", "earlier", "interrupted"}
    assert kit("run", "--config", path, "--quiet").returncode == 0
    complete(root, 60)
    assert {entry.kind for entry in list_runs(root)} == {"latest", "earlier"}


def test_listing_runs_needs_nothing_heavy(tmp_path: Path) -> None:
    root = two_runs(tmp_path)
    code = textwrap.dedent(f"""
        import sys
        from model_profiling.cli.main import main
        assert main(["runs", {str(root)!r}]) == 0
        assert not {{"torch", "numpy", "scipy"}} & set(sys.modules)
    """)
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, cwd=ROOT, check=False)
    assert done.returncode == 0, done.stderr
    assert "before" in done.stdout and "earlier" in done.stdout
    assert "no runs here" in kit("runs", cwd=tmp_path).stdout
    (tmp_path / "out_x" / "runs").mkdir(parents=True)
    root.rename(tmp_path / "out_x" / "runs" / "linux")
    assert "out_x/runs/linux" in kit("runs", cwd=tmp_path).stdout
