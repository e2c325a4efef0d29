"""Kernels and advice of a language model, phase by phase, on small programs that really run."""

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import msgspec
import pytest

pytest.importorskip("executorch.exir")

from model_profiling.analysis.advice.finding import FindingKind
from model_profiling.analysis.advice.rules import Evidence, Finding, advise
from model_profiling.analysis.graph.graph import ModelGraph, read_graph
from model_profiling.analysis.llm.phases import DepthCost, layer_kinds
from model_profiling.analysis.roofs.roofline import OperatorRoof, Roofline
from model_profiling.analysis.timing.breakdown import Breakdown, InstanceTime
from sme2_kit import Run
from tests.conftest import kit, needs_emulator
from tests.helpers import small_decoder
from tests.helpers.llm_programs import stored
from tests.helpers.small_decoder import VOCABULARY, WIDTH

PREFILL, DEPTHS = 16, (8, 32)
LINEAR = ("Fully Connected", "linear", "mm")
COUNTS = ("--runs", "12", "--launches", "1", "--startup-launches", "0")


def run_of(model: Path, home: Path) -> Run:
    lengths = ("--prefill", str(PREFILL), "--decode", "4", "--depth", ",".join(map(str, DEPTHS)))
    done = kit("run", model, *lengths, *COUNTS, "--output-root", home)
    assert done.returncode == 0, done.stderr
    return Run.open(home)


@pytest.fixture(scope="module")
def plain(tmp_path_factory: pytest.TempPathFactory) -> Run:
    """A decoder of ordinary operators that answers for every token."""
    return run_of(small_decoder.STORED, tmp_path_factory.mktemp("plain"))


@pytest.fixture(scope="module")
def custom(tmp_path_factory: pytest.TempPathFactory) -> Run:
    """A transformer with custom operators that answers for the last token."""
    return run_of(stored("custom"), tmp_path_factory.mktemp("custom"))


class Case:
    """One phase: real operators and their graph, with times that a test chooses."""

    def __init__(self, run: Run, kind: str) -> None:
        named = {n: m for n, m in run.metrics.experiments.items() if m.phase is not None and m.phase.kind == kind}
        # Decode at the greatest depth.
        name = max(named, key=lambda n: phase.depth if (phase := named[n].phase) is not None else 0)
        self.metrics = named[name]
        self.breakdown = run.summary.experiments[name].breakdown
        phase = run.manifest.experiments[name].phase
        assert phase is not None
        model = Path(run.manifest.model.path)
        graph = read_graph(self.breakdown.instances, model, tokens=phase.tokens_read)
        assert graph is not None
        self.graph: ModelGraph = graph

    def rows(self, wanted: Callable[[InstanceTime], bool]) -> list[int]:
        return [row for row, entry in enumerate(self.breakdown.instances) if wanted(entry)]

    def advice(
        self, costly: list[int], depths: tuple[DepthCost, ...] = (), roofs: Roofline | None = None
    ) -> dict[FindingKind, Finding]:
        """The findings where these rows take a millisecond each and all others a microsecond."""
        breakdown = timed(self.breakdown, costly)
        known = Evidence(breakdown, None, None, self.graph, roofs, measured=self.metrics, depths=list(depths))
        return {finding.rule: finding for finding in advise(known)}


def timed(breakdown: Breakdown, costly: list[int]) -> Breakdown:
    chosen = set(costly)
    instances = [
        msgspec.structs.replace(entry, ms=1.0 if row in chosen else 0.001)
        for row, entry in enumerate(breakdown.instances)
    ]
    return msgspec.structs.replace(breakdown, instances=instances, execute_ms=sum(entry.ms for entry in instances))


def linear(case: Case) -> list[int]:
    return case.rows(lambda entry: entry.operator.startswith(LINEAR))


def head(case: Case) -> list[int]:
    return linear(case)[-1:]


def runtime(case: Case) -> list[int]:
    return case.rows(lambda entry: entry.where == "runtime")


@pytest.mark.wide
@pytest.mark.parametrize("form", ["decoder", "custom", "two_methods"])
def test_kernels_of_every_linear_layer_are_known_in_both_phases(form: str, tmp_path: Path) -> None:
    """With a concatenation before attention, executions that fill a cache, and in one method or two."""
    needs_emulator()
    model = small_decoder.STORED if form == "decoder" else stored(form)
    done = kit("kernels", model, "--level", "sme2", "--output-root", tmp_path)
    assert done.returncode == 0, done.stderr
    run = Run.open(tmp_path)
    found = {run.phase(name): e.coverage for name, e in run.summary.experiments.items() if e.coverage is not None}
    assert sorted(label[:2] for label in found) == ["pp", "tg"]
    for label, coverage in found.items():
        layers = [operator for operator in coverage.operators if operator.kind == "fully connected"]
        assert len(layers) == (7 if form == "decoder" else 15) and not coverage.unknown
        # The head of a program that answers for the last token has one row in prefill, too.
        several = len(layers) if form == "decoder" else len(layers) - 1
        names = [next(c.kernel for c in layer.kernels if "matmul" in c.kernel) for layer in layers]
        assert sum(name.endswith("sme2_mopa") for name in names) == (several if label.startswith("pp") else 0)
        assert all("_sme2_" in name for name in names)
        assert [(e.weights, e.operators, e.on_sme2) for e in coverage.formats] == [("fp32", len(layers), len(layers))]
        if form == "decoder":
            # The program takes any number of tokens: the work is that of this phase.
            tokens = PREFILL if label.startswith("pp") else 1
            work = sum(layer.multiply_accumulates or 0 for layer in layers)
            assert work == tokens * (8 * WIDTH * WIDTH + WIDTH * VOCABULARY)


def test_without_module_paths_the_data_flow_tells_kinds_of_layers(custom: Run) -> None:
    for phase in ("prefill", "decode"):
        case = Case(custom, phase)
        # Two layers: four projections and three layers of the MLP each, and the head.
        found = layer_kinds(timed(case.breakdown, linear(case)), case.graph)
        assert {kind: round(found[kind]) for kind in ("attention", "MLP", "head")} == {
            "attention": 8,
            "MLP": 6,
            "head": 1,
        }
        assert sum(layer_kinds(case.breakdown, case.graph).values()) == pytest.approx(case.breakdown.execute_ms)


def test_logits_of_all_tokens_are_found_in_prefill_only(plain: Run, custom: Run) -> None:
    case = Case(plain, "prefill")
    finding = case.advice(head(case))[FindingKind.HEAD_OF_ALL_TOKENS]
    assert f"all {PREFILL} tokens" in finding.title and finding.instances == head(case)
    assert finding.label == "suggestion" and finding.gain is None
    for other in (Case(plain, "decode"), Case(custom, "prefill"), Case(custom, "decode")):
        assert FindingKind.HEAD_OF_ALL_TOKENS not in other.advice(head(other))


def test_copies_of_the_cache_ask_for_custom_operators(plain: Run, custom: Run) -> None:
    for phase in ("prefill", "decode"):
        case = Case(plain, phase)
        writes = case.rows(lambda entry: entry.operator.startswith(("index_put", "copy_")))
        finding = case.advice(writes)[FindingKind.PLAIN_ATTENTION]
        assert set(writes) <= set(finding.instances) and not set(linear(case)) & set(finding.instances)
        assert "llama::custom_sdpa" in finding.next_step
        assert finding.label == "suggestion" and finding.gain is None
        other = Case(custom, phase)
        assert FindingKind.PLAIN_ATTENTION not in other.advice(other.rows(lambda entry: entry.where == "portable"))


def test_custom_operators_are_not_told_to_be_rewritten(custom: Run) -> None:
    """They run outside the delegate, and delegated operators in their place are slower."""
    for phase in ("prefill", "decode"):
        case = Case(custom, phase)
        rows = case.rows(lambda entry: entry.operator.startswith("llama::"))
        assert {case.breakdown.instances[row].operator.split(".")[0] for row in rows} == {
            "llama::custom_sdpa",
            "llama::update_cache",
        }
        assert not [finding for finding in case.advice(rows).values() if set(rows) & set(finding.instances)]
        # Any other operator outside the delegate is.
        others = case.rows(lambda entry: entry.where == "portable" and not entry.operator.startswith("llama::"))
        assert case.advice(others[:1])[FindingKind.PORTABLE_OPERATOR].instances


def test_runtime_of_each_token_is_of_decode(custom: Run) -> None:
    decode, prefill = Case(custom, "decode"), Case(custom, "prefill")
    found = decode.advice(runtime(decode))
    assert "of each token" in found[FindingKind.DECODE_RUNTIME].title and FindingKind.RUNTIME_OVERHEAD not in found
    found = prefill.advice(runtime(prefill))
    assert FindingKind.RUNTIME_OVERHEAD in found and FindingKind.DECODE_RUNTIME not in found


def test_attention_that_grows_with_depth_is_measured_and_predicts_nothing(custom: Run) -> None:
    case = Case(custom, "decode")
    grown = (DepthCost(8, 0.1, 1.0), DepthCost(max(DEPTHS), 0.5, 1.4))
    finding = case.advice(linear(case), grown)[FindingKind.ATTENTION_GROWS]
    assert "10% of a token after 8 tokens, 36% after 32" in finding.title
    assert finding.label == "measurement" and finding.gain == 1.0
    level = (DepthCost(8, 0.1, 1.0), DepthCost(max(DEPTHS), 0.101, 1.0))
    for depths in (level, grown[1:], ()):
        assert FindingKind.ATTENTION_GROWS not in case.advice(linear(case), depths)


def test_decode_is_bound_by_memory_only_where_roofs_say_so(custom: Run) -> None:
    def roofs(case: Case, bound: str) -> Roofline:
        held = [OperatorRoof(row, 10.0, 20.0, "GOP/s", bound, 0.5, 0.5, 0.5) for row in linear(case)]  # type: ignore[arg-type]
        return Roofline("a CPU", "", held, 1.0, 1.0, {}, [10.0, 10.0])

    decode, prefill = Case(custom, "decode"), Case(custom, "prefill")
    finding = decode.advice(linear(decode), roofs=roofs(decode, "memory"))[FindingKind.MEMORY_BOUND]
    assert finding.label == "measurement" and "threads" in finding.next_step
    assert FindingKind.MEMORY_BOUND not in decode.advice(linear(decode), roofs=roofs(decode, "compute"))
    assert FindingKind.MEMORY_BOUND not in decode.advice(linear(decode))
    assert FindingKind.MEMORY_BOUND not in prefill.advice(linear(prefill), roofs=roofs(prefill, "memory"))


def test_weights_without_sme2_kernels_are_named_and_nothing_is_predicted(plain: Run) -> None:
    """The decoder with its weights said to be int4 in groups: what an export in --dtype int4 has."""
    case = Case(plain, "decode")
    assert FindingKind.WEIGHTS_WITHOUT_SME2 not in case.advice(linear(case))
    steps = list(case.graph.flow.steps)
    for position in (case.graph.steps[row] for row in linear(case)):
        node = steps[position].node
        assert node is not None
        weights = replace(node.inputs[1], dtype="qbint4", group=32)
        steps[position] = replace(steps[position], node=replace(node, inputs=(node.inputs[0], weights)))
    case.graph = replace(case.graph, flow=replace(case.graph.flow, steps=tuple(steps)))
    finding = case.advice(linear(case))[FindingKind.WEIGHTS_WITHOUT_SME2]
    assert (
        "int4 in groups of 32 cannot use SME2" in finding.title and "known, not seen in this run" in finding.evidence[0]
    )
    assert finding.label == "measurement" and finding.gain == 1.0 and not finding.saved_ms
