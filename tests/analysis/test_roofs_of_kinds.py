"""Operators of every kind, measured beside the probes, are near the roof of their own kind, whatever their size."""

from pathlib import Path

import msgspec
import numpy as np
import pytest

import sme2_kit
from model_profiling.analysis.roofs.roof_rates import Rates
from model_profiling.analysis.roofs.roofline import roofline
from model_profiling.analysis.timing.breakdown import Breakdown
from sme2_kit import Run

SINGLE = Path(__file__).parents[1] / "helpers" / "single_operators.py"
# A machine's neighbours and its caches make that much of a difference.
NEAR = 3.0
KINDS = (
    "GELU",
    "TanH",
    "Sigmoid",
    "Exp",
    "Softmax",
    "HardSwish",
    "Divide",
    "Add",
    "native_layer_norm.out",
    "Convolution",
)


@pytest.fixture(scope="module")
def rates(tmp_path_factory: pytest.TempPathFactory) -> Rates:
    found = sme2_kit.roofs(("fp32",), runs=12, launches=2, out=tmp_path_factory.mktemp("roofs") / "roofs.json")
    return Rates(found.measurements[0])


@pytest.fixture(scope="module")
def single(tmp_path_factory: pytest.TempPathFactory) -> Run:
    target = f"{SINGLE}:SingleOperators"
    return sme2_kit.profile(target, dtype="fp32", out=tmp_path_factory.mktemp("single"), runs=12, launches=2)


def at_best(run: Run) -> Breakdown:
    """The breakdown with each operator's fastest tenth: what other load took from it is left out."""
    (name,) = run.shown
    breakdown = run.summary.experiments[name].breakdown
    best = np.quantile(run.profiles[name].times, 0.1, axis=1) / 1e6
    instances = [
        msgspec.structs.replace(entry, ms=ms) for entry, ms in zip(breakdown.instances, best.tolist(), strict=True)
    ]
    return msgspec.structs.replace(breakdown, instances=instances, execute_ms=sum(entry.ms for entry in instances))


# Quotients of fastest executions: other tests may run beside it.
@pytest.mark.wide
@pytest.mark.again
def test_operators_of_every_kind_are_near_their_own_roof(rates: Rates, single: Run) -> None:
    breakdown = at_best(single)
    found = roofline(breakdown, rates, "", "")
    held = {entry.row: breakdown.instances[entry.row] for entry in found.operators}
    assert {entry.operator.partition(" (")[0] for entry in held.values()} >= set(KINDS)
    far = {held[e.row].name: e.of_roof for e in found.operators if not 1 / NEAR < e.of_roof < NEAR}
    assert len(far) <= len(held) / 10, far
    reached = np.median([entry.of_roof for entry in found.operators])
    assert 1 / 1.5 < reached < 1.5
