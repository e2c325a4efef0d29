"""What an export says that a rewrite would change is what the export with that rewrite has."""

from pathlib import Path

import hypothesis.strategies as st
import pytest
from hypothesis import given, settings

pytest.importorskip("executorch.exir")

from model_profiling.analysis.movement.candidates import difference
from model_profiling.analysis.movement.layout_reasons import transposes
from model_profiling.export.exporter import ExportRequest, export
from model_profiling.export.in_memory import export_module
from model_profiling.export.request import ExportResult
from model_profiling.formats import pte
from model_profiling.formats.pte.dataflow import DataFlow, data_flow
from tests.conftest import ROOT
from tests.helpers.random_layouts import random_network

NETS = ROOT / "tests" / "helpers" / "advice_nets.py"


def flow_of(made: ExportResult) -> DataFlow:
    program = pte.read(made.paths.pte)
    flow = data_flow(program, program.methods[0])
    assert flow is not None
    return flow


@pytest.mark.parametrize(
    ("name", "dtype"),
    [
        ("ThereAndBack", "fp16"),
        pytest.param("Pyramid", "fp16", marks=[pytest.mark.wide, pytest.mark.again]),
        pytest.param("Many", "int8", marks=pytest.mark.wide),
    ],
)
def test_what_a_rewrite_would_give_is_what_it_gives(name: str, dtype: str, tmp_path: Path) -> None:
    def made(rewrites: tuple[str, ...], candidates: bool = False) -> ExportResult:
        outdir = tmp_path / "-".join(("out", *rewrites))
        return export(
            ExportRequest(name, outdir, dtype, target=f"{NETS}:{name}", rewrites=rewrites, candidates=candidates)
        )

    base = made((), candidates=True)
    found = {rewrite for rewrite, places in (base.record.rewrites or {}).items() if places}
    # Of an int8 graph, what comes before quantization cannot be seen after it.
    assert set(base.record.candidates) == found if dtype != "int8" else set(base.record.candidates) <= found
    for rewrite, changes in base.record.candidates.items():
        after = flow_of(made((rewrite,)))
        assert sorted(changes) == sorted(difference(flow_of(base), after)), rewrite
        if rewrite == "layout":
            gone = sum(change.count for change in changes if change.permutation)
            assert gone == sum(bool(s.permutation) for s in after.steps) - sum(
                bool(s.permutation) for s in flow_of(base).steps
            )


@pytest.mark.wide
@pytest.mark.again
@settings(max_examples=6, deadline=None, derandomize=True)
@given(st.lists(st.integers(0, 10**6), min_size=3, max_size=8), st.sampled_from([(1, 4, 6, 8), (2, 3, 8, 8)]))
def test_random_networks_lose_as_many_transposes_as_was_recorded(
    tmp_path_factory: pytest.TempPathFactory, numbers: list[int], shape: tuple[int, ...]
) -> None:
    network, x = random_network(numbers, shape)
    before = export_module(network, x, tmp_path_factory.mktemp("before"), candidates=True, dtype="fp32")
    after = export_module(network, x, tmp_path_factory.mktemp("after"), rewrites=("layout",), dtype="fp32")
    one, other = flow_of(before), flow_of(after)
    changes = before.record.candidates.get("layout")
    if changes is None:
        assert len(transposes(other)) == len(transposes(one)) or not (before.record.rewrites or {}).get("layout")
    else:
        assert sorted(changes) == sorted(difference(one, other))
