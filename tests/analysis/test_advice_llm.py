"""Kernels and advice of a language model, phase by phase, on a small decoder that really runs."""

from collections.abc import Callable
from pathlib import Path

import msgspec
import pytest

pytest.importorskip("executorch.exir")

from model_profiling.analysis.advice import Evidence, Finding, advise
from model_profiling.analysis.advice_llm import DepthCost
from model_profiling.analysis.breakdown import Breakdown, InstanceTime
from model_profiling.analysis.finding import Kind
from model_profiling.analysis.graph import ModelGraph, read_graph
from model_profiling.analysis.layer_kinds import kind_of, layer_kinds
from model_profiling.analysis.movement import data_movement
from model_profiling.analysis.phases import PhaseMetrics
from model_profiling.analysis.roofline import OperatorRoof, Roofline
from sme2_kit import Run
from tests.conftest import kit, needs_emulator
from tests.helpers.small_decoder import VOCABULARY, WIDTH, program

PREFILL, DEPTHS = 16, (8, 32)


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return program(tmp_path_factory.mktemp("decoder") / "decoder.pte")


@pytest.fixture(scope="module")
def measured(model: Path) -> Run:
    lengths = ["--prefill", PREFILL, "--decode", 4, "--depth", ",".join(map(str, DEPTHS))]
    counts = ["--runs", 12, "--launches", 1, "--startup-launches", 0]
    done = kit("run", model, *map(str, [*lengths, *counts]), "--output-root", model.parent / "measured")
    assert done.returncode == 0, done.stderr
    return Run.open(model.parent / "measured")


class Case:
    """One phase of the decoder: real operators and graph, with times that a test chooses."""

    def __init__(self, run: Run, model: Path, kind: str) -> None:
        metrics = run.metrics.experiments
        name, self.metrics = next(
            (n, m) for n, m in reversed(metrics.items()) if m.phase is not None and m.phase.kind == kind
        )
        self.breakdown = run.summary.experiments[name].breakdown
        graph = read_graph(self.breakdown.instances, model)
        assert graph is not None
        self.graph: ModelGraph = graph

    @property
    def phase(self) -> PhaseMetrics:
        assert self.metrics.phase is not None
        return self.metrics.phase

    def timed(self, ms: Callable[[InstanceTime], float]) -> Breakdown:
        instances = [msgspec.structs.replace(entry, ms=ms(entry)) for entry in self.breakdown.instances]
        whole = sum(entry.ms for entry in instances)
        return msgspec.structs.replace(self.breakdown, instances=instances, execute_ms=whole)

    def advice(
        self, ms: Callable[[InstanceTime], float], depths: tuple[DepthCost, ...] = (), roofs: Roofline | None = None
    ) -> dict[Kind, Finding]:
        breakdown = self.timed(ms)
        movement = data_movement(breakdown, self.graph)
        evidence = Evidence(
            breakdown, movement, None, None, self.graph, roofs, measured=self.metrics, depths=list(depths)
        )
        return {finding.rule: finding for finding in advise(evidence)}


@pytest.fixture(scope="module")
def prefill(measured: Run, model: Path) -> Case:
    return Case(measured, model, "prefill")


@pytest.fixture(scope="module")
def decode(measured: Run, model: Path) -> Case:
    return Case(measured, model, "decode")


def where(kind: str) -> Callable[[InstanceTime], float]:
    """A millisecond for operators of a kind of layer, a microsecond for all others."""
    return lambda entry: 1.0 if kind_of(entry) == kind else 0.001


def test_kernels_of_every_matrix_operator_are_known_in_both_phases(model: Path) -> None:
    needs_emulator()
    done = kit("kernels", model, "--level", "sme2", "--output-root", model.parent / "kernels")
    assert done.returncode == 0, done.stderr
    run = Run.open(model.parent / "kernels")
    found = {run.phase(name): e.coverage for name, e in run.summary.experiments.items() if e.coverage is not None}
    assert sorted(label[:2] for label in found) == ["pp", "tg"]
    for label, coverage in found.items():
        linear = [operator for operator in coverage.operators if operator.kind == "fully connected"]
        assert len(linear) == 7 and not coverage.unknown
        instructions = "sme2_mopa" if label.startswith("pp") else "sme2_mla"
        for operator in linear:
            assert operator.weights == "fp32"
            assert next(c.kernel for c in operator.kernels if "matmul" in c.kernel).endswith(instructions)
        # The program takes any number of tokens: the work is that of this phase.
        weights = 4 * WIDTH * WIDTH + 4 * WIDTH * WIDTH + WIDTH * VOCABULARY
        tokens = PREFILL if label.startswith("pp") else 1
        assert sum(operator.multiply_accumulates or 0 for operator in linear) == tokens * weights
        assert [(entry.operators, entry.on_sme2) for entry in coverage.formats] == [(7, 7)]
        assert "weights in fp32: SME2 runs 7 of 7 (7 x " in done.stdout


def test_kinds_of_layers_are_known_from_module_paths(prefill: Case) -> None:
    kinds = [kind_of(entry) for entry in prefill.breakdown.instances]
    for kind in ("attention", "MLP", "head", "cache", "embedding", "runtime"):
        assert kind in kinds
    found = layer_kinds(prefill.breakdown, prefill.graph)
    assert sum(found.values()) == pytest.approx(prefill.breakdown.execute_ms)


def test_logits_of_all_tokens_are_found_in_prefill_only(prefill: Case, decode: Case) -> None:
    finding = prefill.advice(where("head"))[Kind.HEAD_OF_ALL_TOKENS]
    assert f"all {PREFILL} tokens" in finding.title and len(finding.instances) == 1
    assert finding.saved_ms == pytest.approx(finding.ms * (1 - 1 / PREFILL))
    assert Kind.HEAD_OF_ALL_TOKENS not in decode.advice(where("head"))


def test_logits_of_the_last_token_are_no_finding(prefill: Case) -> None:
    """The same profile on a graph whose head has one row."""
    row = next(row for row, entry in enumerate(prefill.breakdown.instances) if kind_of(entry) == "head")
    position = prefill.graph.steps[row]
    steps = list(prefill.graph.flow.steps)
    node = steps[position].node
    assert node is not None
    from dataclasses import replace

    tensor = replace(steps[position].outputs[0], shape=(1, steps[position].outputs[0].shape[-1]))
    steps[position] = replace(steps[position], outputs=(tensor,))
    case = object.__new__(Case)
    case.breakdown, case.metrics = prefill.breakdown, prefill.metrics
    case.graph = replace(prefill.graph, flow=replace(prefill.graph.flow, steps=tuple(steps)))
    assert Kind.HEAD_OF_ALL_TOKENS not in case.advice(where("head"))


def test_copies_of_the_cache_ask_for_custom_operators(prefill: Case, decode: Case) -> None:
    for case in (prefill, decode):
        finding = case.advice(where("cache"))[Kind.PLAIN_ATTENTION]
        assert "llama::custom_sdpa" in finding.next_step
        names = [case.breakdown.instances[row].operator for row in finding.instances]
        assert any(name.startswith("index_put") for name in names)
        assert not any(name.startswith("Fully Connected") for name in names)
        assert 0 < finding.saved_ms <= finding.ms


def test_custom_operators_are_not_told_to_be_rewritten(prefill: Case) -> None:
    """They are portable as a dump has it, and slower where delegated operators take their place."""
    row = max(
        row
        for row, entry in enumerate(prefill.breakdown.instances)
        if entry.where == "portable" and kind_of(entry) == "cache"
    )
    costly = prefill.breakdown.instances[row]

    def named(name: str) -> list[Finding]:
        instances = list(prefill.breakdown.instances)
        instances[row] = msgspec.structs.replace(costly, name=name, operator=name, ms=1000.0, source=None)
        breakdown = msgspec.structs.replace(
            prefill.breakdown, instances=instances, execute_ms=sum(entry.ms for entry in instances)
        )
        found = advise(Evidence(breakdown, data_movement(breakdown, None), None, None))
        return [finding for finding in found if row in finding.instances]

    assert [finding.rule for finding in named("cumsum.out")] == [Kind.PORTABLE_OPERATOR]
    for name in ("llama::custom_sdpa.out", "llama::update_cache.out", "llama::custom_quantized_sdpa.out"):
        assert named(name) == []


def test_runtime_of_each_token_is_of_decode(prefill: Case, decode: Case) -> None:
    finding = decode.advice(where("runtime"))[Kind.DECODE_RUNTIME]
    assert "of each token" in finding.title and Kind.RUNTIME_OVERHEAD not in decode.advice(where("runtime"))
    assert Kind.DECODE_RUNTIME not in prefill.advice(where("runtime"))


def test_attention_that_grows_with_depth_is_measured_and_predicts_nothing(decode: Case) -> None:
    deepest = decode.phase.depth
    assert deepest == max(DEPTHS)
    grown = (DepthCost(8, 0.1, 1.0), DepthCost(deepest, 0.5, 1.4))
    finding = decode.advice(where("MLP"), grown)[Kind.ATTENTION_GROWS]
    assert "10% of a token after 8 tokens, 36% after 32" in finding.title
    assert finding.label == "measurement" and finding.gain == 1.0
    level = (DepthCost(8, 0.1, 1.0), DepthCost(deepest, 0.101, 1.0))
    for depths in (level, grown[1:], ()):
        assert Kind.ATTENTION_GROWS not in decode.advice(where("MLP"), depths)


def test_depths_of_a_run_are_compared_with_each_other(measured: Run) -> None:
    """Whether attention grew is for the machine to say; that both depths were looked at is not."""
    decodes = [m.phase for m in measured.metrics.experiments.values() if m.phase is not None]
    assert {phase.depth for phase in decodes if phase.kind == "decode"} == set(DEPTHS)


def test_decode_is_bound_by_memory_only_where_roofs_say_so(prefill: Case, decode: Case) -> None:
    def roofs(case: Case, bound: str) -> Roofline:
        rows = [row for row, entry in enumerate(case.breakdown.instances) if entry.category == "GEMM"]
        held = [OperatorRoof(row, 10.0, 20.0, "GOP/s", bound, 0.5, 0.5, 0.5) for row in rows]  # type: ignore[arg-type]
        return Roofline("a CPU", "", held, 1.0, 1.0, {}, [10.0, 10.0])

    linear = where("MLP")
    finding = decode.advice(linear, roofs=roofs(decode, "memory"))[Kind.MEMORY_BOUND]
    assert finding.label == "measurement" and "threads" in finding.next_step
    assert Kind.MEMORY_BOUND not in decode.advice(linear, roofs=roofs(decode, "compute"))
    assert Kind.MEMORY_BOUND not in decode.advice(linear)
    assert Kind.MEMORY_BOUND not in prefill.advice(linear, roofs=roofs(prefill, "memory"))
