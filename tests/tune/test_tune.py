"""tune tries what may help, finds a win on toy_cnn that an interval supports, and does nothing twice."""

import json
from pathlib import Path
from types import SimpleNamespace
from typing import cast

import msgspec
import pytest

pytest.importorskip("executorch.exir")

from model_profiling.analysis.timing.latency import Comparison
from model_profiling.formats.pte.dataflow import DataFlow, FlowStep
from model_profiling.formats.pte.xnnpack_graph import XnnpackNode
from model_profiling.store.artifacts import RewriteChoice
from model_profiling.tune.tune_report import document
from model_profiling.tune.tune_result import TriedVariant, TuneResult, won
from model_profiling.tune.variants import TuneVariant, first_round, left_out, second_round
from tests.conftest import kit, tune_home
from tests.helpers.contract_check import check_printed
from tests.helpers.kit_here import kit_here
from tests.helpers.screens import flat, shown

BASE = TuneVariant("fp32")
FP16 = {"fp16arith"}


def names(variants: list[TuneVariant]) -> list[str]:
    return [variant.name for variant in variants]


def flow(conv: int = 0, gemm: int = 0, turned: bool = False) -> DataFlow:
    """A program with so much work in convolutions and in linear layers, and perhaps a transpose between them."""
    of = {"Conv2d": conv, "FullyConnected": gemm}
    nodes = [SimpleNamespace(multiply_accumulates=work, debug_handle=1) for work in of.values()]
    steps = [FlowStep(0, cast("XnnpackNode", node), op, (), ()) for op, node in zip(of, nodes, strict=True)]
    moved = [FlowStep(1, cast("XnnpackNode", nodes[0]), "StaticTranspose", (), (), (0, 2, 1))] if turned else []
    return DataFlow((*steps, *moved), (), True, frozenset())


def test_the_program_decides_what_is_tried() -> None:
    assert names(first_round(BASE, flow(conv=7, gemm=2), {}, FP16)) == ["fp16", "int8"]
    assert names(first_round(BASE, flow(conv=7, gemm=2), {}, set())) == ["int8"]
    assert names(first_round(BASE, flow(gemm=9), {}, FP16)) == ["fp16", "int8", "int8-dynamic", "int4"]
    assert names(first_round(BASE, flow(), {}, FP16)) == []
    # A program that nobody can read may have anything.
    assert names(first_round(BASE, None, {}, FP16)) == ["fp16", "int8", "int8-dynamic", "int4"]
    assert names(first_round(BASE, flow(turned=True), {}, FP16)) == ["fp32+channels_last"]
    # Of rewrites, those that the export saw to find something, and alone those of them that `auto` leaves out.
    matched = {"keepdim": ["/home/x/model.py:36", ""], "silu": [""], "layout": []}
    tried = first_round(BASE, flow(conv=7), matched, set())
    assert names(tried) == ["fp32+auto", "int8"]
    assert tried[0].reason == "of keepdim and silu what makes the program smaller"
    choices = [RewriteChoice("keepdim", True, "saves 3"), RewriteChoice("silu", False, "would add 1 delegate call")]
    alone = left_out(BASE, choices)
    assert names(alone) == ["fp32+silu"] and alone[0].reason == "would add 1 delegate call"
    # fp32 loses nothing, and is faster where the CPU has no such arithmetic; others need an accuracy to keep.
    assert names(first_round(TuneVariant("fp16"), flow(conv=9), {}, FP16)) == ["fp32", "int8"]
    assert names(first_round(TuneVariant("int8"), flow(), {}, FP16)) == ["fp32"]
    assert names(first_round(TuneVariant("fp16"), flow(), {}, FP16, any_dtype=True)) == [
        *("fp32", "int8", "int8-dynamic", "int4")
    ]


def test_what_won_alone_is_tried_together() -> None:
    fp16, layout = TuneVariant("fp16"), TuneVariant("fp32", "channels_last")
    mean = TuneVariant("fp32", rewrites=("keepdim",))
    both = {"fp32": {"keepdim"}, "fp16": {"keepdim"}}
    assert names(second_round(BASE, [fp16, layout, mean], both)) == ["fp16+channels_last+auto+keepdim"]
    assert names(second_round(BASE, [layout, mean], both)) == ["fp32+channels_last+keepdim"]
    border = TuneVariant("fp32", io_layout="channels_last")
    assert names(second_round(BASE, [fp16, border, mean], both)) == ["fp16+io-layout+auto+keepdim"]
    kept = TuneVariant("fp32", rewrites=("layout",))
    matched = {"fp32": {"layout", "keepdim"}, "fp16": {"layout", "keepdim"}}
    assert names(second_round(BASE, [kept, border, mean], matched)) == ["fp32+io-layout+keepdim+layout"]
    # In another dtype other rewrites may pay, and what was chosen for all of it goes with what else won.
    assert names(second_round(BASE, [fp16], both)) == ["fp16+auto"]
    assert names(second_round(BASE, [fp16], {"fp16": set()})) == [] == names(second_round(BASE, [], both))
    auto = TuneVariant("fp32", rewrites=("auto",))
    assert names(second_round(BASE, [auto, border], both, ["keepdim"])) == ["fp32+io-layout+auto"]
    # Where what was chosen for all of it did not win, a part of it may.
    assert names(second_round(BASE, [], both, ["keepdim", "silu"])) == ["fp32+keepdim", "fp32+silu"]
    assert names(second_round(BASE, [], both, ["keepdim"])) == []


def test_a_rewrite_is_not_tried_in_a_dtype_where_it_finds_nothing() -> None:
    half, gate = TuneVariant("fp16"), TuneVariant("fp16", rewrites=("silu",))
    assert names(second_round(half, [TuneVariant("int8"), gate], {"fp16": {"silu"}, "int8": set()})) == []
    layout = TuneVariant("fp16", "channels_last")
    assert names(second_round(half, [TuneVariant("int8"), gate, layout], {"int8": set()})) == ["int8+channels_last"]


def test_what_a_busy_machine_measured_does_not_win() -> None:
    faster = Comparison("fp32", "int8", 2.0, 1.9, 2.1, 0.95, "faster", 1.0, True, 20)
    assert won(TriedVariant("int8", "", "", 1.0, faster)) and not won(None)
    disturbed = TriedVariant("int8", "", "", 1.0, msgspec.structs.replace(faster, contended=True))
    assert not won(disturbed)
    result = TuneResult("net", "fp32", "linux", [disturbed], program="a.pte")
    assert "the machine was busy: int8 looks 2.00x faster" in flat(shown(document(result)))


@pytest.mark.wide
def test_a_tune_tries_what_it_should_and_a_second_one_does_nothing_again(
    pytestconfig: pytest.Config, tmp_path: Path
) -> None:
    home = tune_home(pytestconfig, tmp_path)
    for measured in home.glob("round-*.json"):
        measured.unlink()
    done = kit("tune", "toy_cnn", "--dtype", "fp32", "--json", "--outdir", home, cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    result = json.loads(done.stdout)
    check_printed("tune", result)
    tried = {entry["name"]: entry for entry in result["tried"]}
    assert {"fp32", "int8", "fp32+auto"} <= set(tried) and not any(entry["failure"] for entry in result["tried"])
    auto = tried["fp32+auto"]
    assert auto["agreement"]["verdict"] == "agrees" and auto["comparison"]["verdict"] and "keepdim" in auto["reason"]
    # What each step took is said, and what was kept from before took nothing.
    text = flat(shown(document(msgspec.convert(result, TuneResult))))
    assert {"single changes"} <= {cost["step"] for cost in result["costs"]} and "Took " in text
    for entry in result["tried"]:
        assert entry["command"].startswith("sme2-kit export toy_cnn --dtype ")
    # What won says by which lines; what did not has nothing to say.
    assert bool(result["winner"]) == (result["changes"] is not None)
    if result["changes"]:
        parts = result["changes"]["parts"]
        assert sum(p["difference_ms"] for p in parts) == pytest.approx(result["changes"]["difference_ms"])
        assert any(part["source_line"].startswith("toy_cnn/model.py:") for part in parts)
    keep = tried[result["winner"]]["command"] if result["winner"] else "keep"

    again = kit("tune", "toy_cnn", "--dtype", "fp32", "--outdir", home, cwd=tmp_path)
    assert again.returncode == 0 and keep in flat(again.stdout)
    assert "export" not in again.stderr and "launch" not in again.stderr

    (home / "round-1.json").write_text("{")
    (home / "fp32+auto" / "toy_cnn_xnnpack_fp32.pte").unlink()
    resumed = kit("tune", "toy_cnn", "--dtype", "fp32", "--outdir", home, cwd=tmp_path)
    assert "export fp32+auto" in resumed.stderr and "export int8:" not in resumed.stderr
    assert "launch" in resumed.stderr


def test_an_unknown_model_or_count_is_refused(tmp_path: Path) -> None:
    assert kit_here("tune", "toy_cn", cwd=tmp_path).returncode == 2
    assert kit_here("tune", "toy_cnn", "--runs", 0, cwd=tmp_path).returncode == 2
