"""Files and names that nobody should trust: nothing of them is obeyed, nothing is written where it does not belong."""

import json
import os
import re
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from model_profiling.base import files, printing
from model_profiling.base.errors import InputError, KitError, SetupError
from model_profiling.base.file_locks import folder_held
from model_profiling.gates.ci_files import job_summary
from model_profiling.pipeline.config import parse_config
from model_profiling.report.files.tables import csv_text
from model_profiling.store.run_directory import RunDirectory
from tests.conftest import ROOT, processes_naming
from tests.helpers.kit_here import kit_here
from tests.helpers.waiting import LONGEST_S, until

KNOWN_GOOD = ROOT / "tests" / "data" / "known_good_run"
Toy = Callable[[str], Path]


@pytest.fixture
def run(tmp_path: Path) -> Path:
    return shutil.copytree(KNOWN_GOOD, tmp_path / "run")


def changed(run: Path, change: Callable[[dict[str, Any]], None]) -> None:
    manifest = json.loads((run / "manifest.json").read_text())
    change(manifest)
    (run / "manifest.json").write_text(json.dumps(manifest))


def everything(root: Path) -> dict[str, bytes]:
    return {str(p.relative_to(root)): p.read_bytes() for p in sorted(root.rglob("*")) if p.is_file()}


@pytest.mark.parametrize(
    "text", ["\x1b[31mred", "\0[2J", "\x9b2J", "a\rb", "\u202eabc", "\x7f", "\ue0001\ue001", "\ud800"]
)
def test_nothing_but_our_own_colours_reaches_a_terminal(text: str) -> None:
    printed = printing.clean(f"name: {text}\n{printing.paint(32, 'green')}")
    assert printed.endswith("\n\033[32mgreen\033[0m")
    head = printed.partition("\n")[0]
    assert head.isprintable(), head


def test_names_of_operators_and_files_are_printed_without_escapes(run: Path) -> None:
    hostile = "linux\x1b]0;owned\x07"
    done = kit_here("analyze", run.parent / hostile)
    assert done.returncode == 2 and "\x1b" not in done.stderr and "owned" in done.stderr
    done = kit_here("an\x1b[31malyze")
    assert done.returncode == 2 and "\x1b" not in done.stderr


def test_a_lock_that_is_a_link_is_not_followed(run: Path, tmp_path: Path) -> None:
    precious = tmp_path / "precious"
    precious.write_text("precious")
    (run / ".lock").unlink(missing_ok=True)
    (run / ".lock").symlink_to(precious)
    with pytest.raises(SetupError, match="lock"), files.locked(run, "pipeline"):
        pass
    assert precious.read_text() == "precious"


@pytest.mark.parametrize("name", ["../out", "a/../../out", "..", "", "a\nb", "a\0b", "x" * 300, "/abs"])
@pytest.mark.parametrize("where", ["stem", "experiment", "record"])
def test_names_in_a_manifest_lead_nowhere_else(run: Path, tmp_path: Path, name: str, where: str) -> None:
    def change(manifest: dict[str, Any]) -> None:
        key, record = next(iter(manifest["experiments"].items()))
        if where == "stem":
            manifest["model"]["stem"] = name
        elif where == "experiment":
            manifest["experiments"][name] = manifest["experiments"].pop(key)
        else:
            record["name"] = name

    changed(run, change)
    before = everything(tmp_path)
    with pytest.raises(InputError, match="cannot be part of a file's name"):
        RunDirectory(run).manifest()
    assert everything(tmp_path) == before


def test_a_linked_experiment_is_not_written_through(run: Path, tmp_path: Path) -> None:
    name = next(iter(json.loads((run / "manifest.json").read_text())["experiments"]))
    elsewhere = tmp_path / "elsewhere"
    (run / name).rename(elsewhere)
    (run / name).symlink_to(elsewhere)
    before = everything(elsewhere)
    done = kit_here("analyze", run)
    assert done.returncode == 2 and "points outside" in done.stderr
    assert everything(elsewhere) == before


@pytest.mark.parametrize(
    "cell", ["=1+1", "+1", "-1+cmd|' /C calc'!A0", "@SUM(A1)", "\t=1", "\r=1", " =1", "|x", "a\r=1", "\n=1"]
)
def test_no_cell_is_a_formula(cell: str) -> None:
    line = csv_text((), [[cell]])
    value = line.strip('"\n')
    if value != "+1":  # a number
        assert value[0] not in "=+-@|\t\r", line
    assert "\r" not in line
    assert csv_text((), [["-0.500000", "1e-5", "-3"]]) == "-0.500000,1e-5,-3\n"  # numbers stay numbers


@pytest.mark.parametrize("name", ["a\n", "manifest.json", "report.md", "x.etdump", "report_charts", "..", ".partial"])
def test_an_experiment_is_not_named_like_something_else(tmp_path: Path, name: str) -> None:
    (tmp_path / "m.pte").touch()
    raw = {"model": str(tmp_path / "m.pte"), "output_root": str(tmp_path), "experiments": [{"name": name}]}
    with pytest.raises(InputError):
        parse_config(raw, "test")


def test_a_folder_that_holds_anything_else_is_no_place_of_an_experiment(
    toy: Toy, runner: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A config may come with somebody's code, and name that code's folders."""
    monkeypatch.chdir(tmp_path)
    config = {"model": str(toy("fp16")), "output_root": ".", "experiments": [{"name": "src", "num_runs": 1}]}
    Path("c.json").write_text(json.dumps(config))
    Path("src").mkdir()
    Path("src", "main.py").write_text("precious")
    done = kit_here("run", "--config", "c.json")
    assert done.returncode == 2 and "src/main.py is no result of the kit" in done.stderr
    assert Path("src", "main.py").read_text() == "precious" and not Path("manifest.json").exists()


def test_a_job_summary_has_no_markup_of_others(run: Path) -> None:
    from model_profiling.analysis.compare.comparison import PairComparison, compare_profiles
    from model_profiling.analysis.run.selection import choose
    from model_profiling.analysis.timing.latency import compare

    hostile = '<img src=x onerror="alert(1)">'
    side = next(iter(choose(str(run)).values()))
    profiled = replace(side, name=hostile).profiled()
    parts = compare_profiles(profiled, profiled, True)
    latency = compare((hostile, side.turns), (hostile, side.turns), True)
    summary = job_summary([PairComparison(latency, parts, side.metrics, side.metrics)], [])
    assert "<img" not in summary.replace("\\<img", "")


def test_what_killed_writers_left_is_swept(tmp_path: Path) -> None:
    (tmp_path / "e").mkdir()
    for left in (tmp_path / ".abc.sme2-kit.tmp", tmp_path / "e" / ".def.sme2-kit.tmp"):
        left.write_text("half")
        os.utime(left, (0, 0))
    at_work = tmp_path / ".ghi.sme2-kit.tmp"
    at_work.write_text("half")
    with files.locked(tmp_path, "pipeline"):
        pass
    assert list(tmp_path.rglob("*.tmp")) == [at_work]


def test_no_device_is_replaced() -> None:
    """Who may write in /dev would put a file in the place of /dev/null, for all programs."""
    for check in (files.refuse_unwritable, lambda path: files.write_bytes(path, b"x")):
        with pytest.raises(KitError, match="a place for devices"):
            check(Path("/dev/no-such-device"))
    assert not Path("/dev/no-such-device").exists()


@pytest.mark.parametrize("flag", ["--out", "--picture"])
def test_a_file_that_cannot_be_written_is_named_before_anything_is_measured(flag: str, tmp_path: Path) -> None:
    (tmp_path / "file").write_text("a file where a folder is needed")
    for place in (tmp_path, tmp_path / "file" / "roofs.png"):
        done = kit_here("roofs", flag, place, "--dtype", "no such dtype")
        assert done.returncode == 3 and f"{place} cannot be written" in done.stderr
    assert len(list(tmp_path.iterdir())) == 1


@pytest.mark.wide
@pytest.mark.parametrize("end", ["TERM", "KILL"])
def test_a_runner_ends_with_the_kit(toy: Toy, tmp_path: Path, end: str) -> None:
    """Also in the middle of a long turn, and also when the kit is ended without a word."""
    model = Path(shutil.copy(toy("fp16"), tmp_path / f"long_{end}.pte"))
    experiments = [{"name": "long", "num_runs": 1_000_000, "launches": 1}]
    config = tmp_path / "c.json"
    config.write_text(json.dumps({"model": str(model), "output_root": str(tmp_path / "o"), "experiments": experiments}))
    command = [sys.executable, "-m", "model_profiling", "run", "--config", str(config)]
    environment = {**os.environ, "PYTHONPATH": str(ROOT)}
    process = subprocess.Popen(command, env=environment, stderr=subprocess.PIPE, text=True)

    def runners() -> list[str]:
        return processes_naming(f"model_path={model}")

    until(runners)
    time.sleep(0.5)
    process.terminate() if end == "TERM" else process.kill()
    process.wait(timeout=LONGEST_S)
    if end == "TERM":
        assert process.stderr is not None and "interrupted" in process.stderr.read()
        assert process.returncode == 143
    until(lambda: not runners())


@pytest.mark.parametrize("name", ["manifest.json", "samples", "derived.json"])
@pytest.mark.parametrize(
    "content", [b"\xff\xfe{}", b'{"a": "\xff"}', b"", b"[" * 100_000, b"null", b"{}", b'"\\ud800"']
)
def test_a_damaged_file_of_a_run_is_one_error(run: Path, name: str, content: bytes) -> None:
    path = next(run.glob("*/*_samples.json")) if name == "samples" else run / name
    path.write_bytes(content)
    for words in (["analyze", run], ["validate", "--results", run], ["compare", run, run]):
        done = kit_here(*words)
        assert done.returncode in (0, 1, 2) and not re.search("unexpected|Traceback", done.stderr), done


@pytest.mark.parametrize(
    "turn", [*({"ns": ns} for ns in ([], [0], [-1], [1 << 62])), {"launch": -1}, {"turn": 1 << 62}]
)
def test_times_that_cannot_be_are_one_error(run: Path, turn: dict[str, Any]) -> None:
    path = next(run.glob("*/*_samples.json"))
    samples = json.loads(path.read_text())
    samples["timed"][0].update(turn)
    path.write_text(json.dumps(samples))
    done = kit_here("analyze", run)
    assert done.returncode == 2 and "times that no execution can have" in done.stderr


@pytest.mark.parametrize("content", [b"", b"\x93NUMPY", b"\x93NUMPY\x01\x00v\x00{'descr': '|O'", b"nothing"])
def test_a_damaged_expected_output_is_one_error(tmp_path: Path, content: bytes) -> None:
    from model_profiling.analysis.accuracy.agreement import _expected

    (tmp_path / "x.npy").write_bytes(content)
    with pytest.raises(InputError, match="is not a readable"):
        _expected(tmp_path / "x.npy")


@pytest.mark.parametrize("changes", [{"timeout_s": 1e308}, {"timeout_s": float("inf")}, {"comment": "\ud800"}])
def test_odd_values_of_a_config_are_one_error(tmp_path: Path, changes: dict[str, Any]) -> None:
    (tmp_path / "m.pte").touch()
    raw = {"model": str(tmp_path / "m.pte"), "output_root": "o", "experiments": [{"name": "a"}], **changes}
    (tmp_path / "c.json").write_text(json.dumps(raw))
    done = kit_here("run", "--config", tmp_path / "c.json")
    assert done.returncode == 2 and "unexpected" not in done.stderr, done.stderr


def test_a_picture_is_drawn_of_any_text() -> None:
    from model_profiling.report.drawing import vega

    spec = {"data": {"values": [{"a": "x\0\x1b\u202e\ud800", "b": 1}]}, "mark": "bar"}
    spec["encoding"] = {"x": {"field": "a"}, "y": {"field": "b", "type": "quantitative"}}
    assert vega.svg(spec).startswith("<svg")


def test_a_temporary_directory_goes_with_its_process_or_with_the_next_one(tmp_path: Path) -> None:
    def killed() -> Path:
        reading, writing = os.pipe()
        if (child := os.fork()) == 0:
            os.write(writing, bytes(files.make_scratch("of-tests-", tmp_path)))
            os.kill(os.getpid(), signal.SIGKILL)
        os.waitpid(child, 0)
        return Path(os.fsdecode(os.read(reading, 4096)))

    left, mine = killed(), files.make_scratch("of-tests-", tmp_path)
    assert not left.parent.exists() and mine.is_dir()
    left = killed()
    with files.scratch_directory("of-tests-", tmp_path) as other:
        assert other.is_dir() and mine.is_dir() and not left.parent.exists()
        # It may be a run directory, which is locked, too.
        with folder_held(other):
            pass
    assert not other.parent.exists()
    (mine / "log").write_text("")
    (mine / "rest").write_text("")
    files.remove_scratch(mine, KitError("it failed", f"See {mine}/log."))
    killed()
    files.remove_scratch(files.make_scratch("of-tests-", tmp_path))
    assert [path.name for path in mine.iterdir()] == ["log"]
