"""tune can keep the layers that lose most in fp32, ever more of them, and shows time against accuracy."""

import json
from pathlib import Path

import pytest

pytest.importorskip("executorch.exir")

from model_profiling.tune.worst_layers import best_of_both, steps
from tests.conftest import kit
from tests.helpers.contract_check import check_printed

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
    assert [steps(count) for count in (0, 1, 3, 4, 5, 20)] == [
        [],
        [1],
        [1, 2, 3],
        [1, 2, 3, 4],
        [1, 2, 3, 4, 5],
        [1, 2, 3, 4, 8, 16, 20],
    ]


def test_only_those_that_no_other_beats_are_worth_a_look() -> None:
    tried = [("fast", 1.0, 20.0), ("both", 1.5, 40.0), ("worse", 1.6, 39.0), ("exact", 3.0, float("inf"))]
    assert best_of_both([*tried, ("unknown", None, 50.0)]) == {"fast", "both", "exact"}


@pytest.mark.wide
def test_keeping_the_worst_layer_is_measured_beside_the_rest(tmp_path: Path) -> None:
    (tmp_path / "net.py").write_text(NET)
    words = ("tune", "net.py:Net", "--dtype", "int8", "--worst-layers", 1, "--runs", 4, "--launches", 2)
    done = kit(*words, "--outdir", "tuned", cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    assert "1 worst layer in fp32: a" in done.stdout and "--keep-fp32 a --keep-fp32 b" in done.stdout
    assert (tmp_path / "tuned" / "tune_pareto.png").read_bytes().startswith(b"\x89PNG")
    result = json.loads((tmp_path / "tuned" / "tune.json").read_text())
    check_printed("tune", result)
    tried = {entry["name"]: entry for entry in result["tried"]}
    assert set(tried) == {"int8", "int8+worst-1", "fp32"}
    accuracy = {name: entry["agreement"]["sqnr_db"] for name, entry in tried.items()}
    assert accuracy["int8"] + 6 < accuracy["int8+worst-1"] < accuracy["fp32"]
    assert tried["int8+worst-1"]["keep_fp32"] == ["a", "b"] and tried["fp32"]["pareto"]


def test_there_is_nothing_to_keep_in_an_fp32_model(tmp_path: Path) -> None:
    done = kit("tune", "toy_cnn", "--dtype", "fp32", "--worst-layers", 2, cwd=tmp_path)
    assert done.returncode == 2 and "another dtype" in done.stderr
