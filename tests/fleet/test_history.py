"""History: every run below a folder, asked as a user asks."""

import json
import os
import shutil
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import hypothesis
import msgspec
import numpy as np
import pytest
from hypothesis import strategies as st

import sme2_kit
from model_profiling.base.cache import read_sealed, write_sealed
from model_profiling.base.errors import InputError
from model_profiling.cli.main import main
from model_profiling.fleet.history.run_history import RunHistory, parse_since, place_of
from model_profiling.fleet.history.run_rows import real_roots
from model_profiling.fleet.history.steps import with_steps
from model_profiling.fleet.history.trends import KeptPrograms
from tests.conftest import ROOT, needs
from tests.helpers.contract_check import check_printed
from tests.helpers.history_forge import Forge
from tests.helpers.waiting import LONGEST_S

KNOWN_GOOD = ROOT / "tests" / "data" / "known_good_run"
FAST, SLOW = "a" * 64, "b" * 64


@pytest.fixture(autouse=True)
def cache(tmp_path_factory: pytest.TempPathFactory, monkeypatch: pytest.MonkeyPatch) -> Path:
    home = tmp_path_factory.mktemp("cache")
    monkeypatch.setenv("SME2_KIT_CACHE", str(home))
    return home


@pytest.fixture
def forge() -> Forge:
    return Forge(KNOWN_GOOD)


@pytest.fixture
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    home = tmp_path / "work"
    home.mkdir()
    monkeypatch.chdir(home)
    return home


def asked(capsys: pytest.CaptureFixture[str], *words: object) -> Any:
    """What `history … --json` answers."""
    capsys.readouterr()
    assert main(["history", *map(str, words), "--json"]) == 0
    return json.loads(capsys.readouterr().out)


def noisy(count: int, step_at: int | None = None, percent: float = 5.0) -> list[float]:
    series = np.random.default_rng(3).normal(1, 0.01, count)
    if step_at is not None:
        series[step_at:] *= 1 + percent / 100
    return [float(value) for value in series]


# Finding and indexing


def test_every_run_is_found_once_wherever_it_lies(here: Path, forge: Forge, capsys: pytest.CaptureFixture[str]) -> None:
    forge.series(here / "out_a" / "runs" / "linux", [1, 1, 1])
    forge.run(here / "deep" / "er" / "sweep" / "job", 9, labels={"team": "vision"})
    elsewhere = forge.run(here.parent / "elsewhere", 5)
    (here / "link").symlink_to(elsewhere)
    (here / "deep" / "up").symlink_to(here)
    (here / "extension").mkdir()
    (here / "extension" / "manifest.json").write_text('{"manifest_version": 3}')
    paths = [run["path"] for run in asked(capsys, "list")]
    assert sorted(paths) == [
        "deep/er/sweep/job",
        "out_a/runs/linux",
        "out_a/runs/linux/earlier/r0",
        "out_a/runs/linux/earlier/r1",
    ]
    assert [run["path"] for run in asked(capsys, "list", "--label", "team=vision")] == ["deep/er/sweep/job"]
    both = asked(capsys, "list", "--root", here, "--root", here / "out_a", "--root", elsewhere)
    assert len(both) == 5


def test_a_damaged_run_is_listed_with_the_reason_and_the_others_answer(
    here: Path, forge: Forge, capsys: pytest.CaptureFixture[str]
) -> None:
    for number, text in enumerate(
        [
            '{"kit_version": 1}',
            "{",
            '{"kind": "manifest", "kit_version": "9"}',
            '{"kit_version": "9", "model": ' + "[" * 9999,
        ]
    ):
        home = here / f"bad{number}"
        home.mkdir()
        (home / "manifest.json").write_text(text)
    newer = forge.run(here / "newer", 1, schema=99)
    broken = forge.run(here / "broken", 2)
    (broken / "metrics.json").write_text("no metrics")
    forge.run(here / "good", 3)
    found = asked(capsys, "list")
    problems = {run["path"]: run["problem"] for run in found}
    assert problems.pop("good") == "" and all(problems.values()) and len(problems) == 6
    assert "newer kit" in problems[newer.name] and "metrics.json" in problems["broken"]
    assert asked(capsys, "top") and main(["history", "list"]) == 0


def test_the_index_follows_what_happens_to_runs(here: Path, forge: Forge, capsys: pytest.CaptureFixture[str]) -> None:
    root = forge.series(here / "out", [1, 1, 1])
    assert len(asked(capsys, "list")) == 3
    shutil.rmtree(root / "earlier" / "r0")
    forge.run(here / "new", 7, factor=2.0)
    forge.run(root / "earlier" / "r1", 1, factor=3.0)
    medians = {run["path"]: next(iter(run["median_ms"].values())) for run in asked(capsys, "list")}
    usual = medians["out"]
    assert medians == {"new": usual * 2, "out/earlier/r1": usual * 3, "out": usual}


def answers(root: Path) -> bytes:
    """All that history says of a folder."""
    history = RunHistory([root])
    return msgspec.json.encode([history.runs(), history.rows(), history.series(), history.top(), history.coverage()])


def damage_index(path: Path, damage: str) -> None:
    """Put something else where an index was."""
    whole = path.read_bytes()
    path.unlink()
    match damage:
        case "truncated":
            path.write_bytes(whole[: len(whole) // 2])
        case "empty":
            path.touch()
        case "garbage":
            path.write_bytes(os.urandom(9000))
        case "other rows":
            write_sealed(path, msgspec.msgpack.encode([[b"path", 1, ["model", None]]]))
        case "no list":
            write_sealed(path, msgspec.msgpack.encode({"runs": 1}))
        case "a folder":
            (path / "with" / "folders").mkdir(parents=True)
        case "a pipe":
            os.mkfifo(path)
        case "a dangling link":
            path.symlink_to(path.with_name("nowhere"))
        case "a link to a folder":
            path.symlink_to(path.parent)
        case "unreadable":
            path.write_bytes(whole)
            path.chmod(0)
        case "huge":
            with path.open("wb") as file:
                file.truncate(1 << 40)
        case "a file for its folder":
            shutil.rmtree(path.parent)
            path.parent.write_text("in the way")
        case "a closed folder":
            path.parent.chmod(0)


@pytest.mark.parametrize(
    "damage",
    [
        *("truncated", "empty", "garbage", "other rows", "no list", "a folder", "a pipe", "a dangling link"),
        *("a link to a folder", "unreadable", "huge", "a file for its folder", "a closed folder", "gone"),
    ],
)
def test_an_index_that_cannot_be_used_changes_no_answer(damage: str, here: Path, forge: Forge) -> None:
    forge.series(here / "out", [1, 1])
    forge.run(here / "other", 5, factor=2.0)
    expected = answers(here)
    path = place_of(real_roots([here]))
    damage_index(path, damage)
    try:
        assert answers(here) == expected == answers(here)
        if "folder" not in damage or damage in ("a folder", "a link to a folder"):
            assert read_sealed(path), "it is made anew"
    finally:
        path.parent.chmod(0o755)


def test_without_a_place_for_the_index_everything_is_read(
    here: Path, forge: Forge, monkeypatch: pytest.MonkeyPatch
) -> None:
    forge.series(here / "out", [1, 1])
    expected = answers(here)
    for place in ("/proc/nothing", "~nobody-has-this-name/cache"):
        monkeypatch.setenv("SME2_KIT_CACHE", place)
        assert answers(here) == expected


def test_any_damage_of_the_index_is_noticed(here: Path, forge: Forge) -> None:
    forge.series(here / "out", [1, 1])
    expected = answers(here)
    path = place_of(real_roots([here]))
    whole = path.read_bytes()

    @hypothesis.settings(max_examples=30)
    @hypothesis.given(st.integers(0, len(whole) - 1), st.integers(0, 64), st.binary(max_size=64))
    def damaged(start: int, gone: int, instead: bytes) -> None:
        path.write_bytes(whole[:start] + instead + whole[start + gone :])
        assert answers(here) == expected
        assert path.read_bytes() == whole

    damaged()


def test_an_index_that_grew_run_by_run_gives_the_answers_of_a_fresh_one(here: Path, cache: Path, forge: Forge) -> None:
    for number in range(6):
        forge.run(here / f"run{number * 7 % 6}", number, factor=1 + number)
        answers(here)
    shutil.rmtree(here / "run3")
    grown = answers(here)
    shutil.rmtree(cache)
    assert answers(here) == grown


def test_questions_asked_at_once_all_get_the_answer(here: Path, forge: Forge) -> None:
    forge.series(here / "out", noisy(60))
    script = "import sys\nfrom model_profiling.cli.main import main\nsys.exit(main(['history', 'list', '--json']))"
    environment = {**os.environ, "PYTHONPATH": str(ROOT)}
    asking = [
        subprocess.Popen([sys.executable, "-c", script], stdout=subprocess.PIPE, env=environment) for _ in range(3)
    ]
    answers = [len(json.loads(each.communicate(timeout=LONGEST_S)[0])) for each in asking]
    assert answers == [60] * 3


@pytest.mark.wide
def test_many_runs_are_read_once_and_in_little_memory(
    tmp_path: Path, forge: Forge, monkeypatch: pytest.MonkeyPatch
) -> None:
    """docs/history.md has times of ten thousand; how they grow is a study of benchmarks/growth.py."""
    for model in range(20):
        forge.series(tmp_path / "runs" / f"out_{model}", [1.0] * 80, model=f"model{model}")
    assert len(RunHistory([tmp_path / "runs"]).runs()) == 1600
    with monkeypatch.context() as patch:
        # What is indexed is not read again: without the reader the answers are the same.
        patch.setattr("model_profiling.fleet.history.run_rows.read_run", None)
        again = RunHistory([tmp_path / "runs"])
    assert len(again.top()) > 5 and len(again.coverage()) == 20 and len(again.series()) == 40
    script = (
        "import sys\nimport sme2_kit\nfrom pathlib import Path\nfound = sme2_kit.history(sys.argv[1])\n"
        "assert len(found.runs) == 1600 and len(found.series) == 40 and found.top\n"
        # What getrusage says is also of the process that started this one.
        "status = Path('/proc/self/status')\n"
        "print(status.read_text().split('VmHWM:')[1].split()[0] if status.exists() else 0)"
    )
    environment = {**os.environ, "PYTHONPATH": str(ROOT), "SME2_KIT_CACHE": str(tmp_path / "another")}
    words = [sys.executable, "-c", script, str(tmp_path / "runs")]
    done = subprocess.run(words, capture_output=True, text=True, env=environment, check=True)
    assert int(done.stdout) < 200 << 10  # kibibytes


def test_listing_imports_nothing_heavy(here: Path, forge: Forge) -> None:
    forge.run(here / "run", 1)
    script = (
        "import sys\nfrom model_profiling.cli.main import main\nmain(['history', 'list'])\n"
        "assert not {'numpy', 'torch', 'jinja2'} & set(sys.modules), 'heavy'"
    )
    environment = {**os.environ, "PYTHONPATH": str(ROOT)}
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, env=environment, check=False)
    assert done.returncode == 0, done.stderr


# Questions


def test_filters_choose_by_model_platform_dtype_label_commit_and_time(
    here: Path, forge: Forge, capsys: pytest.CaptureFixture[str]
) -> None:
    forge.run(here / "a", 1, model="alpha", labels={"k": "v"}, revision={"commit": "c1", "branch": "main"})
    forge.run(here / "b", 40, model="beta", platform="android")
    for words, wanted in (
        (["--model", "alpha"], ["a"]),
        (["--model", "*a"], ["b", "a"]),
        (["--platform", "android"], ["b"]),
        (["--dtype", "int8"], []),
        (["--label", "k=v"], ["a"]),
        (["--label", "commit=c1", "--label", "branch=main"], ["a"]),
        (["--label", "k=w"], []),
        (["--since", "2026-02-01"], ["b"]),
    ):
        assert [run["path"] for run in asked(capsys, "list", *words)] == wanted, words
    for words, error in (
        (["--model", "alfa"], "Did you mean alpha?"),
        (["--label", "name"], "has no value"),
        (["--since", "yesterday"], "is not a time"),
    ):
        assert main(["history", "list", *words]) == 2 and error in capsys.readouterr().err
    earliest, since, latest = time.time(), parse_since("90d"), time.time()
    assert earliest <= since + 90 * 86400 <= latest


def test_what_may_not_be_compared_is_another_series(here: Path, forge: Forge) -> None:
    run = json.loads((KNOWN_GOOD / "manifest.json").read_text())
    export = {**run["model"]["export"], "request": {"rewrites": ["layout"], "settings": {"size": 64}}}
    forge.run(here / "plain", 1)
    forge.run(here / "again", 2)
    forge.run(here / "phone", 3, device="Phone, 8 CPUs #12ab")
    forge.run(here / "labelled", 4, labels={"device": "rack3"})
    forge.run(here / "emulated", 5, timing="emulated", platform="emulator")
    rewritten = forge.run(here / "rewritten", 6)
    manifest = json.loads((rewritten / "manifest.json").read_text())
    manifest["model"]["export"] = export
    (rewritten / "manifest.json").write_text(json.dumps(manifest))
    series = [each for each in RunHistory([here]).series() if not each.off]
    assert sorted(len(each.points) for each in series) == [1, 1, 1, 2]
    assert {each.platform for each in series} == {"linux"}
    assert {each.variant for each in series} == {"", "rewrite layout, size=64"}
    assert any(each.device.endswith("(rack3)") for each in series)


def test_a_measurement_that_a_later_run_took_over_counts_once(here: Path, forge: Forge) -> None:
    first = forge.run(here / "out" / "earlier" / "r1", 1, factor=1.01)
    latest = forge.run(here / "out", 2, factor=1.02)
    old, new = (json.loads((home / "manifest.json").read_text()) for home in (first, latest))
    name = next(iter(old["experiments"]))
    new["experiments"][name]["session"] = old["experiments"][name]["session"]
    (latest / "manifest.json").write_text(json.dumps(new))
    metrics = json.loads((latest / "metrics.json").read_text())
    metrics["experiments"][name] = json.loads((first / "metrics.json").read_text())["experiments"][name]
    (latest / "metrics.json").write_text(json.dumps(metrics))
    points = {series.experiment: len(series.points) for series in RunHistory([here]).series()}
    assert points.pop(name) == 1 and set(points.values()) == {2}


def test_top_and_coverage_are_of_the_latest_runs_and_say_what_nobody_knows(
    here: Path, forge: Forge, capsys: pytest.CaptureFixture[str]
) -> None:
    for model in ("alpha", "beta"):
        forge.series(here / model, [1, 1], model=model)
    top = asked(capsys, "top")
    assert top[0]["operator"].startswith("Convolution") and top[0]["models"] == 2
    assert sum(entry["share"] for entry in top) == pytest.approx(1)
    summary = json.loads((KNOWN_GOOD / "analysis_summary.json").read_text())
    name = next(iter(summary["experiments"]))
    covered = {
        "eligible": 4,
        "on_sme2": 1,
        "on_sme": 0,
        "work": 1000,
        "work_on_sme2": 300,
        "headline": "",
        "operators": [],
    }
    summary["experiments"][name]["coverage"] = covered
    home = forge.run(here / "beta_traced", 9, model="beta", timing="emulated", platform="emulator")
    (home / "analysis_summary.json").unlink()
    (home / "analysis_summary.json").write_text(json.dumps(summary))
    found = {entry["model"]: entry["percent"] for entry in asked(capsys, "coverage", "--below", "50")}
    assert found == {"beta": 30.0, "alpha": None}
    assert [entry["model"] for entry in asked(capsys, "coverage", "--below", "20")] == ["alpha"]
    assert main(["history", "coverage"]) == 0 and "unknown" in capsys.readouterr().out


# Steps


def test_a_step_is_a_candidate_until_the_programs_are_compared(
    here: Path, forge: Forge, capsys: pytest.CaptureFixture[str]
) -> None:
    root = forge.series(here / "out", noisy(60, 30), [FAST] * 30 + [SLOW] * 30)
    found = asked(capsys, "regressions")
    assert [entry["step"]["state"] for entry in found] == ["program not kept"] * 2
    for sha256 in (FAST, SLOW):
        (root / "programs" / sha256[:16]).mkdir(parents=True)
    found = asked(capsys, "regressions")
    assert {entry["step"]["state"] for entry in found} == {"candidate"}
    assert {(entry["step"]["before_sha256"], entry["step"]["after_sha256"]) for entry in found} == {(FAST, SLOW)}
    assert all(entry["step"]["percent"] == pytest.approx(5, abs=1) for entry in found)
    assert main(["history", "regressions"]) == 0
    text = capsys.readouterr().out
    assert "a candidate" in text and "regression: 5" not in text


def test_a_step_at_another_executorch_is_named_by_it(
    here: Path, forge: Forge, capsys: pytest.CaptureFixture[str]
) -> None:
    for number, factor in enumerate(noisy(40, 20, 30.0)):
        home = forge.run(here / f"r{number}", number, factor)
        manifest = json.loads((home / "manifest.json").read_text())
        for record in manifest["experiments"].values():
            own = {"executorch_content": "3f2a91c0" * 8} if number >= 30 else {}
            record["runner"] = {**record["runner"], "executorch": "1.5.0" if number < 20 else "1.5.1", **own}
        (home / "manifest.json").write_text(json.dumps(manifest))
    for entry in asked(capsys, "regressions"):
        assert "slower since ExecuTorch 1.5.1 with the same program" in entry["step"]["sentence"]
        assert entry["step"]["executorch"] == ["1.5.0", "1.5.1"]
        assert "ExecuTorch was 1.5.0, then 1.5.1" in entry["step"]["differences"]
    (first, *_) = asked(capsys, "trend", "toy_cnn")["series"]
    changes = [
        place
        for place in range(1, 40)
        if first["points"][place]["executorch"] != first["points"][place - 1]["executorch"]
    ]
    assert changes == [20, 30] and first["points"][30]["executorch"] == "1.5.1 (own build 3f2a91c0)"
    assert main(["history", "trend", "toy_cnn", "--output", str(here / "trend.html")]) == 0
    text = (here / "trend.html").read_text()
    capsys.readouterr()
    assert "ExecuTorch 1.5.1 from here on, 1.5.0 before" in text
    assert "ExecuTorch 1.5.1 (own build 3f2a91c0) from here on, 1.5.1 before" in text
    assert asked(capsys, "list")[0]["executorch"] == ["1.5.1 (own build 3f2a91c0)"]


def test_the_same_program_is_never_a_regression(here: Path, forge: Forge, capsys: pytest.CaptureFixture[str]) -> None:
    """What was recorded of the machine and differs is named."""
    for number, factor in enumerate(noisy(40, 20, 30.0)):
        environment = {"cpu": "Arm X", "cores": 2, "governors": ["performance" if number < 20 else "powersave"]}
        forge.run(here / f"r{number}", number, factor, environment=environment)
    for entry in asked(capsys, "regressions"):
        assert entry["step"]["state"] == "same program"
        assert "the machine or its environment changed" in entry["step"]["sentence"]
        assert entry["step"]["differences"] == ["governors was ['performance'], then ['powersave']"]


def test_fifty_repeats_of_one_program_are_never_a_confirmed_regression(here: Path, forge: Forge) -> None:
    """Noise of a busy machine: bursts, drift, outliers, and even true steps, as the machine has them."""
    rng = np.random.default_rng(5)
    for case in range(8):
        factors = rng.lognormal(0, 0.1, 50) * (1 + 0.3 * (rng.random(50) < 0.1))
        factors[int(rng.integers(5, 45)) :] *= float(rng.choice([1.0, 1.1, 1.5]))
        root = forge.series(here / f"case{case}", factors.tolist(), model=f"m{case}")
        (root / "programs" / forge.sha256[:16]).mkdir(parents=True)
    history = RunHistory([here])
    kept = KeptPrograms(history.search.keeping)
    states = {step.state for series in history.series() for step in with_steps(series, kept).steps}
    assert states == {"same program"}


def test_what_was_compared_is_confirmed_or_refuted(
    here: Path, forge: Forge, capsys: pytest.CaptureFixture[str]
) -> None:
    root = forge.series(here / "out", noisy(60, 30), [FAST] * 30 + [SLOW] * 30)
    for sha256 in (FAST, SLOW):
        (root / "programs" / sha256[:16]).mkdir(parents=True)
    record = _compared(here, 0.95, 0.94, 0.96, "slower")
    (root / "programs" / "compared_x.json").write_text(json.dumps(record))
    check_printed("compared_programs", record)
    states = {entry["series"].split(", ")[1]: entry["step"] for entry in asked(capsys, "regressions")}
    on, off = states["linux_fp16arith_on"], states["linux_fp16arith_off"]
    assert on["state"] == "confirmed" and on["sentence"].startswith("regression: ")
    assert off["state"] == "candidate", "it was compared with the accelerator on"
    refuted = _compared(here, 1.0, 0.99, 1.01, "no difference seen", created="2026-12-01T00:00:00+00:00")
    (root / "programs" / "compared_y.json").write_text(json.dumps(refuted))
    states = {entry["series"].split(", ")[1]: entry["step"]["state"] for entry in asked(capsys, "regressions")}
    assert states["linux_fp16arith_on"] == "refuted", "the newest comparison counts"
    busy = _compared(here, 0.9, 0.8, 0.95, "slower", created="2026-12-02T00:00:00+00:00")
    busy["latency"]["contended"] = True
    (root / "programs" / "compared_z.json").write_text(json.dumps(busy))
    steps = {entry["series"].split(", ")[1]: entry["step"] for entry in asked(capsys, "regressions")}
    assert steps["linux_fp16arith_on"]["state"] == "candidate"
    assert "too busy to tell" in steps["linux_fp16arith_on"]["sentence"]
    for name in ("compared_x", "compared_y", "compared_z"):
        (root / "programs" / f"{name}.json").write_text('{"kind": "compared_programs"}')
    assert {entry["step"]["state"] for entry in asked(capsys, "regressions")} == {"candidate"}


def _compared(
    here: Path, ratio: float, low: float, high: float, verdict: str, created: str = "2026-11-30T00:00:00+00:00"
) -> dict[str, Any]:
    series = RunHistory([here]).series()[0]
    latency = {
        **{"before": "a", "after": "b", "ratio": ratio, "low": low, "high": high, "confidence": 0.95},
        **{"verdict": verdict, "resolution_percent": 0.5, "paired": True, "turns": 20},
    }
    how = {"platform": series.platform, "device": series.device, "threads": 1, "disable_features": [], "phase": ""}
    return {
        **{"kind": "compared_programs", "schema": 1, "before": FAST, "after": SLOW, **how},
        **{"created": created, "kit_version": "0.1.0", "latency": latency},
    }


# Pages and tables for others


def test_the_trend_page_is_one_file_with_pictures_links_and_hostile_names_made_harmless(
    here: Path, forge: Forge, capsys: pytest.CaptureFixture[str]
) -> None:
    hostile = "<img src=x onerror=alert(1)>"
    revision = {"commit": "f" * 40, "branch": "</script><b>", "dirty": True}
    root = forge.series(here / "out [1]", noisy(12), labels={"who": hostile}, revision=revision, device=hostile)
    (root / "report.html").write_text("a report")
    assert main(["history", "trend", "toy_cnn", "--output", str(here / "pages" / "trend.html")]) == 0
    printed = capsys.readouterr()
    assert [Path(line).name for line in printed.out.splitlines()] == ["trend.html", "trend.md", "trend.json"]
    assert printed.err.split() == ["Report", "pages/trend.html"]
    page = (here / "pages" / "trend.html").read_text()
    assert hostile not in page and "</script><b>" not in page and "onerror=alert(1)&gt;" in page
    assert page.count("<script") == page.count("</script>") == 2 and "://" not in page.split("<style>")[0]
    assert 'href="../out%20%5B1%5D/report.html"' in page
    assert len(list((here / "pages" / "trend_charts").glob("*.svg"))) == 2
    markdown = (here / "pages" / "trend.md").read_text()
    assert "trend_charts/series_1.png" in markdown and hostile not in markdown
    check_printed("trend", json.loads((here / "pages" / "trend.json").read_text()))
    check_printed("trend", asked(capsys, "trend", "toy_cnn"))


def test_a_picture_of_one_series_is_drawn_alone(here: Path, forge: Forge, capsys: pytest.CaptureFixture[str]) -> None:
    forge.series(here / "out", noisy(12))
    words = ["history", "trend", "toy_cnn", "--output"]
    assert main([*words, "a.svg"]) == 2 and "a picture shows one" in capsys.readouterr().err
    assert main([*words, "a.svg", "--experiment", "linux_fp16arith_on"]) == 0
    assert (here / "a.svg").read_text().startswith("<svg")
    assert main([*words, "a.txt"]) == 2


def test_every_measurement_goes_into_a_table_for_other_programs(
    here: Path, forge: Forge, capsys: pytest.CaptureFixture[str]
) -> None:
    forge.run(here / "run", 1, labels={"k": "=cmd()"}, label="=1+1")
    assert asked(capsys, "export", "--csv", "all.csv") == {"file": "all.csv", "rows": 2}
    lines = (here / "all.csv").read_text().splitlines()
    assert lines[0].startswith("created,model,dtype") and len(lines) == 3
    assert main(["history", "export"]) == 2


@pytest.mark.wide
def test_parquet_is_read_by_pandas(here: Path, forge: Forge, capsys: pytest.CaptureFixture[str]) -> None:
    try:
        import pyarrow.parquet
    except ModuleNotFoundError:
        assert main(["history", "export", "--parquet", "x.parquet"]) in (2, 3)
        needs(False, "pyarrow")
    forge.series(here / "out", [1, 2, 3])
    assert asked(capsys, "export", "--parquet", "all.parquet")["rows"] == 6
    table = pyarrow.parquet.read_table(here / "all.parquet")
    assert table.num_rows == 6 and str(table.schema.field("created").type) == "timestamp[us, tz=UTC]"
    assert str(table.schema.field("median_ms").type) == "double"


# Retention


def test_prune_says_first_and_removes_when_told(here: Path, forge: Forge, capsys: pytest.CaptureFixture[str]) -> None:
    root = forge.series(here / "out", [1] * 6, [FAST] * 3 + [SLOW] * 3)
    for sha256 in (FAST, SLOW):
        (root / "programs" / sha256[:16]).mkdir(parents=True)
    (root / "programs" / "calculator_tools").mkdir()  # as many letters as a program's name has, and somebody else's
    other = forge.run(here / "other", 0, model="other")
    before = sorted(here.rglob("*"))
    planned = asked(capsys, "prune", "--keep-last", 2)
    assert sorted(here.rglob("*")) == before and not planned["removed"]
    assert [Path(entry["path"]).name for entry in planned["entries"]] == ["r3", "r2", "r1", "r0", FAST[:16]]
    assert main(["history", "prune", "--keep-last", "2", "--yes"]) == 0
    assert sorted(path.name for path in (root / "earlier").iterdir()) == ["r4"]
    assert {path.name for path in (root / "programs").iterdir()} == {SLOW[:16], "calculator_tools"}
    # The latest run of a directory stays, however old it is.
    assert main(["history", "prune", "--older-than", "0d", "--yes"]) == 0
    assert (root / "manifest.json").is_file() and (other / "manifest.json").is_file()
    assert not (root / "earlier").exists() and (root / "programs" / SLOW[:16]).is_dir()
    assert main(["history", "prune"]) == 2


def test_prune_keeps_programs_where_a_run_cannot_be_read(
    here: Path, forge: Forge, capsys: pytest.CaptureFixture[str]
) -> None:
    root = forge.series(here / "out", [1] * 3)
    (root / "programs" / FAST[:16]).mkdir(parents=True)
    (root / "earlier" / "r0" / "manifest.json").write_text("{")
    planned = asked(capsys, "prune", "--keep-last", 0)
    assert [Path(entry["path"]).name for entry in planned["entries"]] == ["r1"]


# The API


def test_the_api_has_the_same_answers(here: Path, forge: Forge) -> None:
    forge.series(here / "out", noisy(30, 15), [FAST] * 15 + [SLOW] * 15)
    found = sme2_kit.history()
    assert repr(found) == "<30 runs of 1 models>"
    assert len(found.runs) == 30 and len(found.measurements) == 60
    assert {step.step.state for step in found.steps} == {"program not kept"}
    assert found.top[0].category == "CONV" and found.coverage[0].percent is None
    assert len(sme2_kit.history(here, model="toy_cnn", since="2026-01-20").runs) == 11
    with pytest.raises(InputError, match="there is no folder"):
        sme2_kit.history(here / "nowhere")
