"""What runs leave for the history: labels, the commit, the device, and the program that was measured."""

import json
import os
import shutil
import subprocess
from collections.abc import Callable
from pathlib import Path
from typing import Any

import msgspec
import pytest

from model_profiling.base.directories import cache_directory
from model_profiling.base.errors import InputError
from model_profiling.base.files import read_json, sha256
from model_profiling.cli.main import main
from model_profiling.fleet.history import bisection
from model_profiling.fleet.history.bisection import Measurer
from model_profiling.fleet.history.run_history import RunHistory
from model_profiling.fleet.history.trends import KeptPrograms, ProgramComparison, Series
from model_profiling.pipeline.config import parse_config
from model_profiling.platforms.process_platform import LocalPlatform
from model_profiling.report.content import method
from model_profiling.store.artifacts import ExportMeta, ExportPaths
from model_profiling.store.kept_programs import find_program, home_of, keep_program
from model_profiling.store.labels import (
    Revision,
    checked_labels,
    device_name,
    model_revision,
    revision,
    split_labels,
)
from model_profiling.store.run_directory import Manifest
from model_profiling.store.runs import resolve
from sme2_kit import Run
from tests.conftest import QUICK, ROOT, kit, needs
from tests.helpers.file_faults import FAULTS
from tests.helpers.fuzz_readers import RUN as KNOWN_GOOD
from tests.helpers.fuzz_readers import SEEDS
from tests.helpers.history_forge import Forge
from tests.helpers.run_forge import forge_run

RUN_NET = ["run", "net.pte", "--output-root", "run", "--quiet", "--no-html", "--startup-launches", "0"]
CI = (
    *("GITHUB_SHA", "GITHUB_HEAD_REF", "GITHUB_REF_NAME", "CI_COMMIT_SHA", "CI_COMMIT_REF_NAME", "BUILDKITE_COMMIT"),
    *("GIT_COMMIT", "GIT_BRANCH", "BUILDKITE_BRANCH", "CIRCLE_SHA1", "CIRCLE_BRANCH", "BUILD_SOURCEVERSION"),
)


@pytest.fixture(autouse=True)
def outside_ci(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in CI:
        monkeypatch.delenv(name, raising=False)
    for name, value in QUICK.items():
        monkeypatch.setenv(name, value)


def own_cache(home: Path) -> str:
    """A cache with nothing in it but the runners, which take long to build."""
    runners = cache_directory() / "runner"
    runners.mkdir(parents=True, exist_ok=True)
    (home / "cache").mkdir()
    (home / "cache/runner").symlink_to(runners)
    return str(home / "cache")


@pytest.fixture(scope="module")
def measured(toy: Callable[[str], Path], tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A run of a program, and one of a slower program that took its place: the same file, as exports do."""
    home = tmp_path_factory.mktemp("two")
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("SME2_KIT_CACHE", own_cache(home))
        patch.chdir(home)
        for name, value in QUICK.items():
            patch.setenv(name, value)
        for name in CI:
            patch.delenv(name, raising=False)
        _repository(home)
        for label, program in (("fast", toy("fp16")), ("slow", _slower(home))):
            shutil.copy(program, home / "net.pte")
            shutil.copy(ExportPaths(program).etrecord, ExportPaths(home / "net.pte").etrecord)
            assert main([*RUN_NET, "--label", label, "--label", "team=vision"]) == 0
    return home


def _slower(home: Path) -> Path:
    """The same network in the same dtype with a delegate for every operator, and layout changes between them."""
    words = ("export", "toy_cnn", "--dtype", "fp16", "--delegation", "per-op", "--outdir", home / "slower")
    done = kit(*words)
    assert done.returncode == 0, done.stderr
    return next((home / "slower").glob("*.pte"))


def _repository(home: Path) -> None:
    needs(shutil.which("git") is not None, "git")
    for words in (
        ["init", "-q", "-b", "trunk"],
        ["-c", "user.name=a", "-c", "user.email=a@b", "commit", "-q", "--allow-empty", "-m", "first"],
    ):
        subprocess.run(["git", *words], cwd=home, check=True)


def manifest(run: Path) -> dict[str, Any]:
    found: dict[str, Any] = json.loads((run / "manifest.json").read_text())
    return found


# Labels


def test_a_run_says_its_labels_its_commit_and_its_device(measured: Path) -> None:
    for path in (measured / "run", measured / "run" / "earlier" / "fast"):
        found = manifest(path)
        assert found["labels"] == {"team": "vision"}
        head = subprocess.run(["git", "rev-parse", "HEAD"], cwd=measured, capture_output=True, text=True, check=True)
        assert found["revision"] == {"commit": head.stdout.strip(), "branch": "trunk", "dirty": False}
        assert found["device"] == device_name(LocalPlatform().probe().environment)
    assert resolve(f"{measured / 'run'}@fast") == measured / "run" / "earlier" / "fast"


def test_the_same_run_with_other_labels_is_not_measured_again(
    measured: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(measured)
    # The runner that measured: another build of the same source is another runner.
    monkeypatch.setenv("SME2_KIT_CACHE", str(measured / "cache"))
    before = manifest(measured / "run")
    monkeypatch.setenv("GITHUB_SHA", "e" * 40)
    assert main([*RUN_NET, "--label", "more=1"]) == 0
    assert "reused existing results" in capsys.readouterr().err
    after = manifest(measured / "run")
    assert after["labels"] == {"team": "vision", "more": "1"}
    assert after["revision"] == before["revision"], "it is of the commit that it was measured at"
    assert after["experiments"] == before["experiments"]


def test_labels_are_checked_and_one_of_them_may_be_the_name() -> None:
    assert split_labels(["base", "a=1", "b=x=y"]) == ("base", {"a": "1", "b": "x=y"})
    assert split_labels([]) == (None, {})
    for words in (["a=1", "a=2"], ["one", "two"], ["=1"], ["a b=1"], ["a="], ["a=\n"], ["a=" + "x" * 201], ["é=1"]):
        with pytest.raises(InputError):
            split_labels(words)
    with pytest.raises(InputError, match="too many"):
        checked_labels({str(number): "x" for number in range(40)})


@pytest.mark.parametrize(
    ("variables", "commit", "branch"),
    [
        ({"GITHUB_SHA": "c1", "GITHUB_REF_NAME": "12/merge", "GITHUB_HEAD_REF": "topic"}, "c1", "topic"),
        ({"GITHUB_SHA": "c1", "GITHUB_REF_NAME": "main"}, "c1", "main"),
        ({"CI_COMMIT_SHA": "c2", "CI_COMMIT_REF_NAME": "dev"}, "c2", "dev"),
        ({"BUILDKITE_COMMIT": "c3", "BUILDKITE_BRANCH": "x"}, "c3", "x"),
        ({}, "", ""),
    ],
)
def test_ci_says_which_commit_it_is(
    variables: dict[str, str], commit: str, branch: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    for name, value in variables.items():
        monkeypatch.setenv(name, value)
    found = revision({})
    assert (found.commit, found.branch) == (commit, branch)
    assert revision({"commit": "mine", "branch": "other"}).commit == "mine"


def test_changed_files_are_told(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    _repository(tmp_path)
    (tmp_path / "net.py").write_text("x = 1\n")
    assert revision({}).dirty is False, "what git does not know of is no change"
    subprocess.run(["git", "add", "net.py"], cwd=tmp_path, check=True)
    assert revision({}).dirty is True and revision({}).branch == "trunk"


@pytest.mark.parametrize("where", [".git", "."])
def test_no_program_that_a_repository_names_is_started(
    where: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A folder may come from anywhere, with a .git in it, or as a part of a clone that looks like one."""
    home = tmp_path / "cloned"
    home.mkdir()
    _repository(home)
    (home / "net.py").write_text("x = 1\n")
    (home / ".gitattributes").write_text("* filter=theirs\n")
    git = ["git", "-C", str(home), "-c", "user.name=a", "-c", "user.email=a@b"]
    for words in (["add", "net.py"], ["commit", "-q", "-m", "second"]):
        subprocess.run([*git, *words], check=True)
    theirs = {"filter.theirs.clean": f"touch '{tmp_path}/started'; cat", "core.worktree": str(home)}
    for key, value in theirs.items():
        subprocess.run([*git, "config", key, value], check=True)
    if where == ".":
        for path in (home / ".git").iterdir():
            path.rename(home / path.name)
        (home / ".git").rmdir()
    os.utime(home / "net.py", (0, 0))
    monkeypatch.chdir(home)
    assert revision({}).dirty is None and not (tmp_path / "started").exists()


def test_the_model_has_a_commit_of_its_own(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    code, here, plain = (tmp_path / name for name in ("code", "here", "plain"))
    for home in (code, here, plain):
        home.mkdir()
    for home, branch in ((code, "model"), (here, "work")):
        _repository(home)
        subprocess.run(["git", "checkout", "--quiet", "-b", branch], cwd=home, check=True)
    monkeypatch.chdir(here)
    assert revision({}).branch == "work"
    record = msgspec.json.decode((SEEDS / "export_meta.json").read_bytes(), type=ExportMeta).exports[
        "tiny_xnnpack_fp32"
    ]
    for target, place, branch in (
        ("net.py:Net", code, "model"),
        ("../code/net.py:Net", here, "model"),
        ("net.py:Net", plain, ""),
        ("net.py:Net", tmp_path / "gone", ""),
        ("a\0b/net.py:Net", code, ""),
    ):
        asked = msgspec.structs.replace(record.request, origin="file", target=target, directory=str(place))
        found = model_revision(msgspec.structs.replace(record, request=asked), here / "x.pte")
        assert (found.branch, len(found.commit) > 0, found.dirty) == (branch, bool(branch), None), target
    assert (
        model_revision(None, code / "x.pte").branch == "model" and model_revision(None, Path("x.pte")).branch == "work"
    )


def test_a_report_names_each_commit_as_what_it_is(tmp_path: Path) -> None:
    one, other = "a" * 40, "b" * 40
    mine = f"{one} on work, with changed files"
    for commit, said in (
        (one, {"commit": mine}),
        (other, {"commit, working directory": mine, "commit, model": f"{other} on model"}),
    ):

        def change(found: Manifest, commit: str = commit) -> None:
            found.revision, found.model_revision = Revision(one, "work", True), Revision(commit, "model")

        run = Run.open(forge_run(KNOWN_GOOD, tmp_path / commit, change=change))
        assert {str(name): str(value) for name, value in method._known_by(run)} == said


# Programs


def test_every_program_that_was_measured_is_kept_once(measured: Path, toy: Callable[[str], Path]) -> None:
    root = measured / "run"
    for run in (root, root / "earlier" / "fast"):
        program = find_program(root, manifest(run)["model"]["sha256"])
        assert program is not None and program.name == "net.pte"
    assert len(list((root / "programs").iterdir())) == 2
    assert not (root / "earlier" / "fast" / "programs").exists()


def test_a_program_that_was_changed_in_place_is_not_taken_for_what_it_was(measured: Path, tmp_path: Path) -> None:
    shutil.copytree(measured / "run", tmp_path / "run")
    sha256 = manifest(tmp_path / "run")["model"]["sha256"]
    program = find_program(tmp_path / "run", sha256)
    assert program is not None
    program.write_bytes(b"another program")
    assert find_program(tmp_path / "run", sha256) is None


@pytest.mark.wide
def test_an_export_of_the_kit_is_kept_with_its_inputs_and_takes_no_space(
    toy: Callable[[str], Path], tmp_path: Path
) -> None:
    shutil.copytree(toy("fp16").parent, tmp_path / "artifacts")
    pte = tmp_path / "artifacts" / toy("fp16").name
    words = f"run {pte} --output-root {tmp_path / 'run'} --quiet --runs 4 --startup-launches 0".split()
    assert main([*words, "--no-history"]) == 0
    assert not (tmp_path / "run" / "programs").exists()
    assert main(words) == 0
    (home,) = (tmp_path / "run" / "programs").iterdir()
    copy = home / pte.name
    assert copy.stat().st_ino == pte.stat().st_ino
    assert (home / "export_meta.json").is_file() and list(home.glob("*_inputs/*.npy"))
    assert main(["compare", str(copy), str(copy), "--runs", "4", "--json"]) == 0


# Confirming


def compared(percent: dict[str, float]) -> Callable[[Series, str, str], ProgramComparison]:
    """A comparison that knows how long each program takes, instead of measuring it."""
    from model_profiling.analysis.timing.latency import Comparison

    def answer(series: Series, before: str, after: str) -> ProgramComparison:
        ratio = percent[before] / percent[after]
        verdict = "slower" if ratio < 0.99 else "faster" if ratio > 1.01 else "no difference seen"
        latency = Comparison(before, after, ratio, ratio * 0.99, ratio * 1.01, 0.95, verdict, 0.5, True, 20)  # type: ignore[arg-type]
        return ProgramComparison(before, after, "linux", "d", 1, [], "", "2026-01-01T00:00:00+00:00", "0", latency)

    return answer


def test_bisecting_takes_few_comparisons_and_names_the_program(tmp_path: Path) -> None:
    names = [f"{number:064x}" for number in range(16)]
    forge = Forge(Path(__file__).parents[1] / "data" / "known_good_run")
    forge.series(tmp_path / "out", [1.0] * 16, names)
    series = RunHistory([tmp_path]).series()[0]
    for slow_from in (1, 2, 5, 15):
        times = {name: 1.05 if number >= slow_from else 1.0 for number, name in enumerate(names)}
        found = bisection.bisect(series, range(16), compared(times))
        assert (found.before_sha256, found.after_sha256) == (names[slow_from - 1], names[slow_from])
        assert len(found.comparisons) <= 6 and "+5.0 %" in found.sentence
    even = bisection.bisect(series, range(16), compared(dict.fromkeys(names, 1.0)))
    assert even.after_sha256 == "" and "not slower" in even.sentence and len(even.comparisons) == 1
    with pytest.raises(InputError, match="nothing to compare"):
        bisection.bisect(series, [3], compared(times))


@pytest.mark.wide
def test_a_slower_program_is_confirmed_by_measuring_the_kept_ones(
    measured: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """The series around the two real runs is forged, and says that one is slower; compared are the real programs."""
    monkeypatch.setenv("SME2_KIT_CACHE", own_cache(tmp_path))
    monkeypatch.chdir(tmp_path)
    root = tmp_path / "run"
    shutil.copytree(measured / "run", root, ignore=shutil.ignore_patterns("earlier"))
    fast, slow = (Forge(measured / "run" / label) for label in ("earlier/fast", "."))
    slow.take_times(fast, 2.0)
    for first, forge in ((0, fast), (20, slow)):
        for number in range(first, first + 10):
            forge.run(root / "earlier" / f"r{number}", number, 1 + 0.002 * (number % 5))
    latest = manifest(slow.run(root, 30))
    # Acceleration on; where the CPU has nothing to switch for this dtype, the one there is.
    only = ["--experiment", min(latest["experiments"], key=lambda name: not name.endswith("_on"))]
    assert main(["history", "regressions", "--json"]) == 0
    assert {entry["step"]["state"] for entry in json.loads(capsys.readouterr().out)} == {"candidate"}
    assert main(["history", "regressions", "--confirm", "--json", "--budget", "2", *only]) == 0
    found = json.loads(capsys.readouterr().out)
    records = [entry["step"]["comparison"] for entry in found]
    assert records
    for entry in found:
        latency = entry["step"]["comparison"]["latency"]
        # What it tells depends on the machine; the state is what it tells.
        reliable = latency["high"] is not None and not latency["contended"]
        seen = "confirmed" if latency["verdict"] == "slower" else "refuted"
        assert entry["step"]["state"] == (seen if reliable else "candidate"), latency
        # Its lines are those that the runs of the programs remember, and the largest changes add up with the others.
        changes = entry["step"]["comparison"]["changes"]
        assert any(part["source_line"].startswith("toy_cnn/model.py:") for part in changes["parts"])
        assert sum(part["difference_ms"] for part in changes["parts"]) == pytest.approx(changes["difference_ms"])
    assert len(list((root / "programs").glob("compared_*.json"))) == len(records)
    assert main(["history", "bisect", "net", "--json", "--budget", "2", *only]) == 0
    assert json.loads(capsys.readouterr().out)["programs"] == 2


def test_programs_are_compared_only_on_the_device_of_their_series(tmp_path: Path) -> None:
    forge = Forge(Path(__file__).parents[1] / "data" / "known_good_run")
    forge.series(tmp_path / "out", [1.0] * 2, ["a" * 64, "b" * 64], device="Another CPU, 8 CPUs")
    history = RunHistory([tmp_path])
    measurer = Measurer(KeptPrograms(history.search.keeping), LocalPlatform(), lambda *_: None)
    with pytest.raises(InputError, match="is of Another CPU"):
        measurer.compare(history.series()[0], "a" * 64, "b" * 64)


def test_a_config_may_have_labels_and_keep_no_program(toy: Callable[[str], Path], tmp_path: Path) -> None:
    raw: dict[str, Any] = {"model": str(toy("fp16")), "output_root": str(tmp_path / "run"), "labels": {"a b": "x"}}
    raw["experiments"] = [{"name": "only", "num_runs": 4, "launches": 1, "startup_launches": 0}]
    with pytest.raises(InputError, match="cannot be the key of a label"):
        parse_config(raw, "here")
    raw |= {"labels": {"team": "vision"}, "keep_program": False}
    (tmp_path / "config.json").write_text(json.dumps(raw))
    assert main(["run", "--config", str(tmp_path / "config.json"), "--label", "day=1", "--quiet"]) == 0
    assert manifest(tmp_path / "run")["labels"] == {"team": "vision", "day": "1"}
    assert not (tmp_path / "run" / "programs").exists()


@pytest.mark.parametrize("fault", FAULTS)
def test_a_kept_program_that_is_damaged_is_replaced_when_it_is_measured_again(fault: str, tmp_path: Path) -> None:
    seeds, root = ROOT / "tests" / "data" / "fuzz_seeds", tmp_path / "run"
    pte = Path(shutil.copy(seeds / "tiny_xnnpack_fp32.pte", tmp_path))
    record = read_json(seeds / "export_meta.json", ExportMeta, "export record").exports[pte.stem]
    (given,) = [tmp_path / tensor.file for tensor in record.inputs]
    given.parent.mkdir()
    given.write_bytes(b"numbers")
    record = msgspec.structs.replace(record, files={**record.files, record.inputs[0].file: sha256(given)})
    sources = {path: path.read_bytes() for path in (pte, given)}

    def put() -> dict[str, bytes]:
        # What was exported may be the same file: it is written anew, as exports do.
        for path, content in sources.items():
            path.unlink()
            path.write_bytes(content)
        keep_program(root, ExportPaths(pte), sha256(pte), record)
        home = home_of(root, sha256(pte))
        return {str(path.relative_to(home)): path.read_bytes() for path in home.rglob("*") if path.is_file()}

    expected = put()
    assert len(expected) == 3
    for name in expected:
        FAULTS[fault](home_of(root, sha256(pte)) / name)
        now = put()
        # A record is judged by what it says.
        assert now.keys() == expected.keys() and (now == expected or fault in ("longer", "a flipped bit")), name
        assert find_program(root, sha256(pte)) is not None
        assert now[pte.name] == expected[pte.name]
