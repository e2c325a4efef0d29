"""tune holds programs to the user's own metric: each runs in the kit's runner, and what int8 ruins stays in fp32."""

import itertools
import json
import os
import runpy
import signal
import sys
from collections.abc import Callable
from contextlib import AbstractContextManager
from dataclasses import replace
from pathlib import Path
from typing import Any

import msgspec
import numpy as np
import pytest

pytest.importorskip("executorch.exir")
import torch

import sme2_kit
from model_profiling.analysis.compare.comparison import MetricChange, MetricValue, PairComparison
from model_profiling.analysis.timing.latency import Comparison
from model_profiling.api import exporting
from model_profiling.api.answers import Exported
from model_profiling.base.errors import InputError, RunError
from model_profiling.base.on_progress import listen_to_notes, no_progress
from model_profiling.export.check.prediction import Forward, Predictor, predicting
from model_profiling.export.in_memory import export_module, loader
from model_profiling.export.request import ExportRequest
from model_profiling.gates.verdict import Limits, judge
from model_profiling.platforms.process_platform import LocalPlatform
from model_profiling.report.charts.frame import WIDE
from model_profiling.report.drawing.theme import LIGHT
from model_profiling.store.artifacts import ExportPaths
from model_profiling.tune.bench import Bench, TuneRequest
from model_profiling.tune.metric import MOST_SAMPLES, Judge, Metric
from model_profiling.tune.tune_report import document, picture
from model_profiling.tune.tune_result import KeptLayer, MetricSummary, TriedVariant, TuneResult, won
from model_profiling.tune.variants import TuneVariant
from model_profiling.tune.within_drop import mended
from tests.conftest import ROOT, kit
from tests.helpers.contract_check import check_printed
from tests.helpers.screens import flat, shown

EXAMPLE = ROOT / "docs" / "examples" / "digits"


class Answer(torch.nn.Module):  # type: ignore[misc]
    """Takes inputs by position and by name, and answers with a dict that holds a tuple."""

    def __init__(self) -> None:
        super().__init__()
        self.linear = torch.nn.Linear(4, 3)

    def forward(self, x: Any, *, scale: Any, shift: Any) -> Any:
        y = self.linear(x) * scale
        return {"pair": (y, y + shift), "sum": y.sum(1)}


def predictor(module: Any, inputs: Any, home: Path, dtype: str = "fp32") -> AbstractContextManager[Predictor]:
    made = export_module(module, inputs, home, dtype=dtype)
    forward = Forward(loader("net", module, inputs, None)())
    return predicting(forward, made, LocalPlatform(), 1, home / "log")


@pytest.mark.parametrize("dtype", ["fp32", "fp16"])
def test_a_program_is_called_as_the_model_is_and_answers_as_it_does(tmp_path: Path, dtype: str) -> None:
    class Both(torch.nn.Module):  # type: ignore[misc]
        def forward(self, x: Any, y: Any) -> Any:
            return [torch.relu(x) + y, {"product": x * y}]

    example = (torch.randn(1, 4), torch.randn(1, 4))
    module, tolerance = Both().eval(), {"fp32": 1e-6, "fp16": 2e-2}[dtype]
    with predictor(module, example, tmp_path, dtype) as predict:
        for sample in [(torch.randn(1, 4), torch.randn(1, 4)) for _ in range(3)]:
            for answer in (predict(sample), predict(*sample), predict([part.numpy() for part in sample])):
                assert torch.allclose(answer[0], module(*sample)[0], atol=tolerance)
                assert torch.allclose(answer[1]["product"], module(*sample)[1]["product"], atol=tolerance)
        for wrong, said in (
            ((torch.randn(2, 4), torch.randn(2, 4)), f"float32 [2, 4], and the program takes float{dtype[2:]} [1, 4]"),
            (torch.randn(1, 4), "predict got 1 inputs by position"),
            ((torch.ones(1, 4, dtype=torch.int64), torch.randn(1, 4)), "is int64 [1, 4], and the program takes"),
        ):
            with pytest.raises(InputError) as raised:
                predict(wrong)
            assert said in raised.value.message
        assert predict(example)[0].shape == (1, 4)  # the process is still there


def test_inputs_by_name_are_taken_in_any_order(tmp_path: Path) -> None:
    module = Answer().eval()
    given = {"x": torch.randn(2, 4), "scale": torch.randn(1), "shift": torch.randn(1)}
    with predictor(module, given, tmp_path) as predict:
        other = {name: torch.randn(part.shape) for name, part in reversed(given.items())}
        answer, wanted = predict(other), module(**other)
        assert type(answer["pair"]) is tuple and torch.allclose(answer["pair"][1], wanted["pair"][1], atol=1e-5)
        assert torch.allclose(predict(**other)["sum"], wanted["sum"], atol=1e-5)
        with pytest.raises(InputError, match="by name x, scale"):
            predict({"x": given["x"], "scale": given["scale"]})


def test_an_export_says_what_the_metric_is_of_it_and_of_eager_pytorch(tmp_path: Path) -> None:
    module, calls = Answer().eval(), []
    given = {"x": torch.randn(2, 4), "scale": torch.randn(1), "shift": torch.randn(1)}
    samples = [{name: torch.randn(part.shape) for name, part in given.items()} for _ in range(4)]

    def score(predict: Any, data: list[Any]) -> float:
        calls.append(len(data))
        return float(sum(predict(sample)["pair"][1].sum() for sample in data))

    made = sme2_kit.export(module, given, out=tmp_path, dtype="fp16", metric=score, data=samples)
    found = made.metric
    printed = msgspec.json.encode(Exported({}, made.record, found))
    assert msgspec.json.decode(printed, type=Exported).metric == found, "an assistant is told of it, too"
    assert found is not None and found.samples == 4 and set(calls) == {4} and found.after.verdict == ""
    assert found.before == pytest.approx(sum(module(**sample)["pair"][1].sum().item() for sample in samples), rel=1e-5)
    value = found.after.value
    assert value is not None and value != found.before and value == pytest.approx(found.before, abs=0.1)
    assert found.after.high is not None and found.after.drop == pytest.approx(found.before - value)
    with pytest.raises(InputError, match="no samples"):
        sme2_kit.export(module, given, out=tmp_path, metric=score)
    (tmp_path / "eval.py").write_text("samples = [1, 2]\n")
    with pytest.raises(InputError, match="scroe"):
        sme2_kit.export(module, given, out=tmp_path / "new", metric=tmp_path / "eval.py:scroe", data=samples)
    assert not [*(tmp_path / "new").rglob("*.pte")], "a mistake is said before the export"


@pytest.mark.wide
def test_a_sweep_has_the_metric_of_every_program_until_it_changes(tmp_path: Path) -> None:
    (tmp_path / "net.py").write_text(
        "import torch\n\n\nclass Net(torch.nn.Linear):\n    def __init__(self):\n        super().__init__(4, 3)\n\n"
        "    def get_example_inputs(self):\n        return (torch.randn(1, 4),)\n"
    )
    evaluation = (
        "import torch\n\nsamples = [torch.ones(1, 4) * n for n in range(5)]\n\n\n"
        "def score(predict, data):\n    return sum(float(predict(x).sum()) for x in data)\n"
    )
    (tmp_path / "eval.py").write_text(evaluation)
    keys = {"models": ["net.py:Net"], "dtypes": ["fp32", "fp16"], "metric": "eval.py:score", "data": "eval.py:samples"}
    few = {"runs": 2, "launches": 1, "startup_launches": 0, "reports": False, "lower_is_better": True}
    (tmp_path / "few.json").write_text(json.dumps(keys | few))
    done = kit("sweep", "few.json", "--json", cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    result = json.loads(done.stdout)
    check_printed("sweep", result)
    for cell in result["cells"]:
        found = cell["metric"]
        assert found["after"]["value"] == pytest.approx(found["before"], rel=0.01) and found["lower_is_better"]
    assert "worse than eager" in (tmp_path / "out_few" / "portfolio.md").read_text()
    assert "4 jobs, 4 finished" in kit("sweep", "few.json", "--dry-run", cwd=tmp_path).stdout
    (tmp_path / "eval.py").write_text(f"{evaluation}\n\nmore = 1\n")
    assert "0 finished" in kit("sweep", "few.json", "--dry-run", cwd=tmp_path).stdout
    (tmp_path / "eval.py").write_text(evaluation.replace("return sum", "return 1 / 0 + sum"))
    failed = kit("sweep", "few.json", "--json", cwd=tmp_path)
    assert failed.returncode == 4 and "eval.py:score failed (at eval.py:" in flat(failed.stderr)
    assert (tmp_path / "out_few" / "artifacts" / "net-fp32" / "net_xnnpack_fp32.pte").is_file()


def judged(home: Path, module: Any, score: Callable[..., Any], samples: Any, most: float = 0.02) -> tuple[Bench, Judge]:
    """The module as the baseline of a tuning, and what judges it."""
    inputs = module.get_example_inputs()
    make = exporting.from_memory(module, inputs, None, no_progress)
    asked = TuneRequest(ExportRequest("net", home, dtype="fp32"))
    bench = Bench(asked, LocalPlatform(), lambda request: make(request, ""), no_progress, exporting.repeated_by)
    bench.export([bench.base])
    metric = Metric(score, samples, home / "metric_output.txt", most, False)
    return bench, Judge(metric, bench, loader("net", module, inputs, None))


def accuracy(predict: Any, data: list[tuple[Any, int]]) -> float:
    return sum(int(predict(image)["logits"].argmax()) == label for image, label in data) / len(data)


@pytest.mark.wide
def test_the_layer_that_int8_ruins_is_found_and_fresh_samples_are_within_the_drop(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    # As many as on a machine that does nothing else: how sure a value is decides which layers are kept.
    monkeypatch.setattr("model_profiling.tune.metric._RESAMPLES", 60)
    monkeypatch.setattr("model_profiling.tune.metric._RESAMPLING_S", 1e6)
    net = runpy.run_path(str(EXAMPLE / "net.py"))
    module = net["trained"](60)

    def samples(count: int, seed: int) -> list[tuple[Any, int]]:
        images, labels = net["digits"](count, seed)
        return [(image[None], int(label)) for image, label in zip(images, labels, strict=True)]

    bench, judge = judged(tmp_path, module, accuracy, lambda: iter(samples(120, 7)))
    judge.begin()
    bench.metric = judge.value
    summary = judge.summary()
    assert (summary.samples, summary.calibration_samples, summary.apart) == (90, 30, True) and summary.resamples == 60
    folder = bench.request.base.calibration
    assert folder is not None and len(list(folder.glob("*/input_0.npy"))) == 30
    int8 = TuneVariant("int8")
    bench.export([int8])
    ruined = judge.value("int8")
    assert ruined.verdict == "beyond" and ruined.significant and (ruined.drop or 0) > 0.3
    given = (module, module.get_example_inputs())
    found, *without = mended(
        judge,
        int8,
        lambda request, made: exporting.numerics_of(request, made, bench.platform, no_progress, given, trial=False),
    )
    assert set(found.keep_fp32) <= {"first", "second"} and without == [int8]
    assert judge.value(found.name).verdict == "within"
    assert "--calibration" not in bench.command(bench.asking(bench.base))
    fresh = samples(300, 8)
    forward = Forward(loader("net", *given, None)())
    with predicting(forward, bench.made[found.name], LocalPlatform(), 1, tmp_path / "log") as predict:
        assert accuracy(predict, fresh) >= accuracy(module, fresh) - 0.02


class Scaled(torch.nn.Module):  # type: ignore[misc]
    def forward(self, x: Any) -> Any:
        return 2 * x

    def get_example_inputs(self) -> Any:
        return (torch.ones(1, 2),)


def wrong_metrics() -> dict[str, tuple[Callable[..., Any], str]]:
    counted = iter(range(1000))

    def raising(predict: Any, data: Any) -> float:
        return float(predict(data[0]).sum()) / 0

    return {
        "raising": (raising, "raising failed (at test_metric.py:"),
        "nan": (lambda predict, data: float("nan"), "returned nan, which is not a finite number"),
        "text": (lambda predict, data: "good", "returned 'good', which is not a finite number"),
        "random": (lambda predict, data: next(counted), "is not deterministic: 0, then 1"),
        "exit": (lambda predict, data: sys.exit(3), "SystemExit: 3"),
        "shape": (
            lambda predict, data: predict(torch.ones(3, 2)),
            "float32 [3, 2], and the program takes float32 [1, 2]",
        ),
    }


def test_a_metric_that_is_wrong_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """One export serves them all."""
    samples = [torch.full((1, 2), float(n)) for n in range(6)]
    bench, _ = judged(tmp_path, Scaled(), len, samples)
    load = loader("net", Scaled(), Scaled().get_example_inputs(), None)
    for score, said in wrong_metrics().values():
        with pytest.raises(InputError) as raised:
            Judge(Metric(score, samples, tmp_path / "log.txt", 0.1, False), bench, load).begin()
        assert said in raised.value.message and raised.value.hint
    with pytest.raises(InputError, match=r"reading the data failed.*ZeroDivisionError"):
        Metric(len, (1 // n for n in range(3)), tmp_path / "log.txt", 0.1, False)
    with pytest.raises(InputError, match="1 samples"):
        Metric(len, samples[:1], tmp_path / "log.txt", 0.1, False)

    def talking(predict: Any, data: list[Any]) -> float:
        sys.stdout.write(f"so many: {len(data)}\n")
        return sum(float(predict(sample).sum()) for sample in data)

    notes: list[str] = []
    listen_to_notes(notes.append)
    try:
        judge = Judge(Metric(talking, samples, tmp_path / "log.txt", 0.1, True), bench, load)
        judge.begin()
        assert len(Metric(len, itertools.count(), None, 0.1, False).samples) == MOST_SAMPLES
    finally:
        listen_to_notes()
    assert notes[2:] == ["there are more than 10,000 samples: the first of them judge"]
    assert notes[0] == f"talking prints: so many: 6; see {tmp_path / 'log.txt'}" and "only 6 samples" in notes[1]
    assert (tmp_path / "log.txt").read_text() == "so many: 6\n" and judge.value("fp32").value == 60

    def killed(*_: Any) -> Any:
        raise RunError("the runner was killed", "")

    # What a full machine kept from being scored is scored by the next run; what was scored is kept.
    (tmp_path / "eval.py").write_text(
        "def score(predict, data):\n    return sum(float(predict(x).sum()) for x in data)\n"
    )
    metric, made = Metric(tmp_path / "eval.py:score", samples, None, 0.1, True), bench.made["fp32"]
    (tmp_path / "other.pte").write_bytes(made.paths.pte.read_bytes() + b"\0")
    bench.made["other"] = replace(made, paths=ExportPaths(tmp_path / "other.pte"))
    judge = Judge(metric, bench, load)
    judge.begin()
    monkeypatch.setattr(judge._scorer, "scores", killed)
    assert judge.value("other").failure == "the runner was killed"
    kept = Judge(metric, bench, load)._scores.values()
    assert kept and all(each.value == 60 for each in kept)


class _Fatal(BaseException):
    pass


class _NoNumber:
    def __float__(self) -> float:
        raise OSError("no number")


def _fails(predict: Any, data: Any) -> float:
    raise _Fatal("for good")


@pytest.mark.parametrize(
    ("score", "said"),
    [
        (lambda predict, data: 10**400, "not a finite number"),
        (lambda predict, data: torch.ones((), device="meta"), "not a finite number"),
        (lambda predict, data: _NoNumber(), "OSError: no number"),
        (lambda predict, data: os._exit(0), "SystemExit: 0"),
        (_fails, "_Fatal: for good"),
    ],
)
def test_whatever_a_metric_does_is_said_and_not_called_a_bug(score: Any, said: str) -> None:
    with pytest.raises(InputError) as raised:
        Metric(score, [1, 2], None, 0.1, False)(lambda sample: sample, [1, 2])
    assert said in raised.value.message


def test_a_metric_leaves_the_process_as_it_was() -> None:
    """Its working directory, its signals, timers and limits, and the list of samples; and what it forks does not go on
    as the kit."""

    def state() -> list[object]:
        handlers = [signal.getsignal(each) for each in (signal.SIGTERM, signal.SIGALRM, signal.SIGPROF)]
        timers = [signal.getitimer(each) for each in (signal.ITIMER_REAL, signal.ITIMER_PROF)]
        return [Path.cwd(), handlers, timers, sys.getrecursionlimit()]

    before, samples = state(), [1, 2]

    def score(predict: Any, data: list[int]) -> float:
        os.chdir("/")
        sys.setrecursionlimit(sys.getrecursionlimit() + 1)
        for each in (signal.SIGTERM, signal.SIGALRM, signal.SIGPROF):
            signal.signal(each, signal.SIG_IGN)
        signal.setitimer(signal.ITIMER_REAL, 600)
        signal.setitimer(signal.ITIMER_PROF, 600, 1)
        data.clear()
        return float(os.waitpid(child, 0)[1]) if (child := os.fork()) else 1.0

    assert Metric(score, samples, None, 0.1, False)(lambda sample: sample, samples) == 0
    assert (state(), samples) == (before, [1, 2])


def test_samples_that_cannot_be_hashed_are_never_taken_for_known_ones(tmp_path: Path) -> None:
    (tmp_path / "eval.py").write_text("def score(predict, data):\n    return len(data)\n")
    needs = [torch.ones(2, requires_grad=True)] * 2
    assert Metric(tmp_path / "eval.py:score", needs, None, 0.1, False).identity() == ""


def test_samples_may_lie_in_a_folder(tmp_path: Path) -> None:
    for number in range(3):
        np.savez(tmp_path / f"{number}.npz", x=np.full((1, 2), number, np.float32), label=number)
    (tmp_path / "eval.py").write_text("def score(predict, data):\n    return len(data)\n")
    metric = Metric(tmp_path / "eval.py:score", tmp_path, tmp_path / "log.txt", 0.1, False)
    assert [int(sample["label"]) for sample in metric.samples] == [0, 1, 2] and metric.identity()
    (tmp_path / "3.npz").write_bytes(b"PK no archive")
    with pytest.raises(InputError, match=r"reading .* failed"):
        Metric(len, tmp_path, tmp_path / "log.txt", 0.1, False)
    for name, said in (("eval.py:scor", "does not define 'scor'"), ("eval.txt:score", "is not a name in a Python")):
        with pytest.raises(InputError, match=said):
            Metric(tmp_path / name, [1, 2], tmp_path / "log.txt", 0.1, False)


FASTER = Comparison("fp32", "int8", 2.0, 1.9, 2.1, 0.95, "faster", 1.0, True, 20)


def tried(name: str, verdict: Any, drop: float, low: float, high: float) -> TriedVariant:
    value = MetricValue(0.9 - drop, drop, low, high, verdict)
    return TriedVariant(name, "", f"export {name}", 1.0, FASTER, metric=value, dtype="int8", pareto=True)


def test_the_metric_decides_and_says_what_it_cannot_tell() -> None:
    within, beyond = tried("good", "within", 0.0, -0.01, 0.01), tried("bad", "beyond", 0.4, 0.3, 0.5)
    unsure = tried("unsure", "not told", 0.02, -0.01, 0.05)
    assert won(within) and not won(beyond) and not won(unsure)
    base = TriedVariant("fp32", "", "", 2.0, metric=MetricValue(0.9, 0.0, 0.0, 0.0))
    summary = MetricSummary("eval.py:score", 200, 0.03)
    none = flat(
        shown(document(TuneResult("net", "fp32", "linux", [beyond, unsure, base], program="a", metric=summary)))
    )
    assert "200 samples do not tell whether unsure is within the drop: 0.02 (-0.01 to 0.05, not significant)" in none
    assert "bad is faster and drops 0.4 (0.3 to 0.5), 0.37 too much" in none and "keep the baseline" in none
    kept = MetricSummary("eval.py:score", 200, 0.03, kept=[KeptLayer(["a", "b"], "bad", FASTER, 0.4)])
    result = TuneResult("net", "fp32", "linux", [beyond, within, unsure, base], "good", program="a", metric=kept)
    text = flat(shown(document(result)))
    assert "Keep good" in text and "a, b: 2.00x faster" in text and "without it the metric drops 0.4 more" in text
    points = picture(result, WIDE, LIGHT)["layer"][2]["data"]["values"]
    assert {point["name"]: point["kept"] for point in points}["good (kept)"] and len(points) == 4


@pytest.mark.wide
def test_a_tuning_by_a_metric_keeps_what_is_finished(tmp_path: Path) -> None:
    for name in ("net.py", "eval.py"):
        text = (EXAMPLE / name).read_text()
        (tmp_path / name).write_text(text.replace("digits(300, 12345)", "digits(80, 12345)"))
    with (tmp_path / "eval.py").open("a") as file:
        file.write("\n\ndef bad(predict, data):\n    return 1 / 0\n")
    words = ("tune", "net.py:Digits", "--data", "eval.py:samples", "--out", "tuned")
    few = ("--runs", 4, "--launches", 2, "--max-drop", 0.05)
    failed = kit(*words, "--metric", "eval.py:bad", *few, cwd=tmp_path)
    assert failed.returncode == 2 and "eval.py:bad failed (at eval.py:" in flat(failed.stderr)
    assert "ZeroDivisionError" in failed.stderr
    assert "Traceback" not in failed.stderr
    done = kit(*words, "--metric", "eval.py:score", *few, "--json", cwd=tmp_path)
    assert done.returncode == 0 and "export fp32:" not in done.stderr, done.stderr
    result = json.loads(done.stdout)
    check_printed("tune", result)
    found = {entry["name"]: entry for entry in result["tried"]}
    assert found["int8"]["metric"]["verdict"] == "beyond" and found["fp32"]["metric"]["drop"] == 0
    assert found["int8"]["file_bytes"] < found["fp32"]["file_bytes"] and found["fp32"]["sme2"]["eligible"] == 5
    again = kit(*words, "--metric", "eval.py:score", *few, cwd=tmp_path)
    assert again.returncode == 0 and "metric of" not in again.stderr and "samples" in again.stdout
    assert (tmp_path / "tuned" / "tune_pareto.png").is_file()
    # The same metric gates two programs that were exported before.
    sides = [next((tmp_path / "tuned" / name).glob("*.pte")) for name in ("fp32", "int8")]
    asked = ("compare", *sides, "--runs", 4, "--data", "eval.py:samples", "--metric", "eval.py:score")
    gated = kit(*asked, "--max-drop", 0.05, "--junit", "junit.xml", cwd=tmp_path)
    assert gated.returncode == 1 and "a drop of eval.py:score by more than 0.05 is seen" in flat(gated.stderr)
    assert "eval.py:score drops by" in flat(gated.stdout) and ": metric" in (tmp_path / "junit.xml").read_text()
    told = kit(*asked, "--json", cwd=tmp_path)
    (pair,) = json.loads(told.stdout)
    check_printed("comparison", pair)
    found = pair["metric"]
    assert (
        told.returncode == 0
        and found["samples"] == 80
        and found["after"]["drop"] == pytest.approx(found["before"] - found["after"]["value"])
    )


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (("--max-drop", 0.1), "--max-drop is for a metric, and there is none"),
        (("--metric", "eval.py:score"), "there are no samples to compute the metric of"),
    ],
)
def test_a_comparison_by_a_metric_needs_all_of_it(words: tuple[Any, ...], said: str, tmp_path: Path) -> None:
    for name in ("a.pte", "b.pte"):
        (tmp_path / name).touch()
    done = kit("compare", "a.pte", "b.pte", *words, cwd=tmp_path)
    assert done.returncode == 2 and said in flat(done.stderr)


@pytest.mark.parametrize(
    ("verdict", "outcome", "failed"), [("within", "passed", 0), ("not told", "unsure", 1), ("beyond", "failed", 2)]
)
def test_a_gate_judges_a_metric_by_its_whole_interval(verdict: Any, outcome: str, failed: int) -> None:
    change = MetricChange("score", 60, False, 0.9, MetricValue(0.8, 0.1, 0.05, 0.15, verdict))
    profile: Any = None
    pair = PairComparison(FASTER, profile, metric=change)
    for strict in (False, True):
        (found,) = judge([pair], Limits(drop=0.1), strict)
        assert found.outcome == outcome and found.failed == (failed + strict > 1) and found.gate == "metric"
    # Without an interval a number is no verdict.
    alone = MetricChange("score", 60, False, 0.9, MetricValue(0.8, 0.1, verdict=verdict))
    assert judge([PairComparison(FASTER, profile, metric=alone)], Limits(drop=0.1), False)[0].outcome == "unsure"
    with pytest.raises(InputError, match="no metric to judge"):
        judge([PairComparison(FASTER, profile)], Limits(drop=0.1), False)
