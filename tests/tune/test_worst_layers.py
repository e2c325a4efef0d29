"""tune can keep the layers that lose most in fp32, ever more of them, and shows time against accuracy."""

import json
from pathlib import Path

import pytest

pytest.importorskip("executorch.exir")

from model_profiling.analysis.accuracy.agreement import Agreement
from model_profiling.tune.formats import pareto
from model_profiling.tune.tune_result import TriedVariant
from model_profiling.tune.tuning import time_and_accuracy
from model_profiling.tune.variants import steps
from tests.conftest import kit
from tests.helpers.contract_check import check_printed
from tests.helpers.kit_here import kit_here

NET = """
import torch

class Net(torch.nn.Module):
    def __init__(self):
        super().__init__()
        torch.manual_seed(0)
        self.a, self.b, self.c = (torch.nn.Linear(16, 16) for _ in range(3))
        with torch.no_grad():
            self.a.weight[0] *= 900
            self.b.weight[:, 0] /= 900

    def forward(self, x):
        return self.c(torch.relu(self.b(torch.relu(self.a(x)))))

    def get_example_inputs(self):
        return (torch.randn(8, 16),)
"""


def test_steps_are_few_and_end_where_they_should() -> None:
    wanted = {0: [], 1: [1], 3: [1, 2, 3], 4: [1, 2, 3, 4], 5: [1, 2, 3, 4, 5], 20: [1, 2, 3, 4, 8, 16, 20]}
    assert {count: steps(count) for count in wanted} == wanted


def test_only_those_that_no_other_beats_are_worth_a_look() -> None:
    known = {"fast": (1.0, 20.0), "both": (1.5, 40.0), "worse": (1.6, 39.0)}
    tried: dict[str, tuple[float | None, float | None]] = {**known, "exact": (3.0, None), "unknown": (None, 50.0)}
    qualities = {}
    for name, (ms, db) in tried.items():
        error = 0.0 if db is None else 0.1
        agreement = Agreement(name, "eager", error, 1.0, db, 1.0, "agrees")
        qualities[name] = time_and_accuracy(TriedVariant(name, "", "", ms, agreement=agreement))
    assert pareto(qualities) == {"fast", "both", "exact"}


@pytest.mark.wide
def test_keeping_the_worst_layer_is_measured_beside_the_rest(tmp_path: Path) -> None:
    (tmp_path / "net.py").write_text(NET)
    words = ("tune", "net.py:Net", "--dtype", "int8", "--worst-layers", 1, "--runs", 4, "--launches", 2)
    done = kit(*words, "--outdir", "tuned", cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    assert (tmp_path / "tuned" / "tune_pareto.png").read_bytes().startswith(b"\x89PNG")
    result = json.loads((tmp_path / "tuned" / "tune.json").read_text())
    check_printed("tune", result)
    tried = {entry["name"]: entry for entry in result["tried"]}
    assert set(tried) == {"int8", "int8+worst-1", "fp32"}
    accuracy = {name: entry["agreement"]["sqnr_db"] for name, entry in tried.items()}
    assert accuracy["int8"] + 6 < accuracy["int8+worst-1"] < accuracy["fp32"]
    worst = tried["int8+worst-1"]
    assert worst["keep_fp32"] == ["a", "b"] and worst["reason"] == "1 worst layer in fp32: a"
    assert "--keep-fp32 a --keep-fp32 b" in worst["command"] and tried["fp32"]["pareto"]


def test_there_is_nothing_to_keep_in_an_fp32_model(tmp_path: Path) -> None:
    done = kit_here("tune", "toy_cnn", "--dtype", "fp32", "--worst-layers", 2, cwd=tmp_path)
    assert done.returncode == 2 and "another dtype" in done.stderr
