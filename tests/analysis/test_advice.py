"""Findings of real profiles are true of the graph, count each millisecond once, and name only what was tried."""

import math
import re
import subprocess
from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import hypothesis.strategies as st
import msgspec
import numpy as np
import pytest
from hypothesis import given, settings

pytest.importorskip("executorch.exir")

from model_profiling.analysis.accuracy.agreement import agreement_of, expected_outputs, read_outputs
from model_profiling.analysis.advice.finding import by_flag
from model_profiling.analysis.advice.rules import LEAST_SHARE, Evidence, Finding, advise
from model_profiling.analysis.graph.graph import ModelGraph, read_graph
from model_profiling.analysis.graph.sources import read_sources
from model_profiling.analysis.movement.inverse_transposes import (
    contiguous_layout,
    is_in_order,
    reshape_layout,
    transpose_layout,
)
from model_profiling.analysis.movement.layout_reasons import transposes
from model_profiling.analysis.movement.movement import LAYOUT_KINDS, data_movement
from model_profiling.analysis.timing.breakdown import Breakdown, break_down
from model_profiling.analysis.timing.categories import load_table
from model_profiling.analysis.timing.profile import profiles
from model_profiling.base.units import shown_ms
from model_profiling.export.exporter import ExportRequest, ExportResult, export
from model_profiling.formats import etdump, pte
from model_profiling.formats.pte.dataflow import data_flow
from model_profiling.pipeline.pipeline import sample_inputs
from model_profiling.store.artifacts import ExportRecord
from tests.conftest import ROOT

pytestmark = pytest.mark.wide

FP32 = ("Siamese", "ThereAndBack", "Kept", "Lookups", "TinyClamp", "Means", "Scaled", "Attending", "Ranked")
NETS = dict.fromkeys(FP32, "fp32") | {"Gates": "fp16", "Many": "fp16"}
# Findings about particular operators of the model.
ABOUT_LINES = {"dtype conversions", "portable operator", "needless layout changes", "undone transposes"}
DUMPS = Path(__file__).parents[1] / "data" / "etdump"


@dataclass(frozen=True)
class Case:
    """One network that was exported and run, and what is known of it."""

    made: ExportResult
    breakdown: Breakdown
    graph: ModelGraph | None
    outputs: list[Any]

    def advice(self, breakdown: Breakdown | None = None, record: ExportRecord | None = None) -> list[Finding]:
        chosen = breakdown or self.breakdown
        return advise(Evidence(chosen, None, record or self.made.record, self.graph))

    def where_everything_costs(self, **times: float) -> "Case":
        """The same case with made-up times: `times` of operators by their kind, and one microsecond of all others."""
        return replace(self, breakdown=timed(self.breakdown, lambda entry: times.get(entry.kind, 0.001)))


def timed(breakdown: Breakdown, ms: Callable[[Any], float]) -> Breakdown:
    """The breakdown with other times, which still add up."""
    instances = [msgspec.structs.replace(entry, ms=ms(entry)) for entry in breakdown.instances]
    whole = sum(entry.ms for entry in instances)
    shared = [msgspec.structs.replace(entry, share=entry.ms / whole) for entry in instances]
    categories = []
    for entry in breakdown.categories:
        part = sum(x.ms for x in instances if x.category == entry.category)
        categories.append(msgspec.structs.replace(entry, ms=part, share=part / whole))
    return msgspec.structs.replace(breakdown, instances=shared, execute_ms=whole, categories=categories)


def run(runner: Path, made: ExportResult, home: Path) -> Case:
    dump, out = home / "x.etdump", home / "out"
    inputs = ",".join(map(str, sample_inputs(made.paths, made.record)))
    program = [f"--model_path={made.paths.pte}", f"--inputs={inputs}", f"--etdump_path={dump}", f"--output_file={out}"]
    counts = ["--num_executions=10", "--warmup=2", "--cpu_threads=1"]
    subprocess.run([runner, *program, *counts], check=True, capture_output=True)
    profile = profiles(etdump.read(dump), load_table())[0]
    breakdown = break_down(profile, read_sources(made.paths.pte).lines(profile.instances))
    graph = read_graph(profile.instances, made.paths.pte)
    return Case(made, breakdown, graph, read_outputs(out, made.record.outputs))


def exported_net(name: str, dtype: str, outdir: Path, **options: Any) -> ExportResult:
    target = f"{ROOT / 'tests' / 'helpers' / 'advice_nets.py'}:{name}"
    return export(ExportRequest(name, outdir, dtype, target=target, **options))


@pytest.fixture(scope="module")
def cases(runner: Path, exported: dict[str, Any], tmp_path_factory: pytest.TempPathFactory) -> dict[str, Case]:
    """Every network of the family and toy_cnn in each dtype, exported, run and analysed."""
    found = {}
    for name, dtype in NETS.items():
        home = tmp_path_factory.mktemp(name)
        found[name] = run(runner, exported_net(name, dtype, home), home)
    for dtype, made in exported.items():
        found[f"toy_{dtype}"] = run(runner, made, tmp_path_factory.mktemp(f"toy_{dtype}"))
    return found


def check(findings: list[Finding], breakdown: Breakdown) -> None:
    """What holds for the findings of any profile."""
    whole = breakdown.execute_ms
    claimed = [row for finding in findings for row in finding.instances]
    assert len(claimed) == len(set(claimed)), "a millisecond is claimed twice"
    assert sum(finding.ms for finding in findings) <= whole * (1 + 1e-9)
    for finding in findings:
        entries = [breakdown.instances[row] for row in finding.instances]
        assert finding.ms == pytest.approx(sum(entry.ms for entry in entries))
        assert finding.share == pytest.approx(finding.ms / whole) and finding.share >= LEAST_SHARE
        # Nothing is predicted, no number is said twice, and the title begins with the costliest line, if it has one.
        assert (finding.label, finding.gain, finding.saved_ms) == ("suggestion", None, 0.0)
        assert finding.title.endswith(f": {100 * finding.share:.0f} % of the time") and "%" not in finding.next_step
        lines = [entry for entry in sorted(entries, key=lambda x: -x.ms) if entry.source and entry.source.file]
        if finding.rule in ABOUT_LINES and lines:
            assert finding.title.startswith(lines[0].source_line)
        if finding.rewrite:
            assert f"--rewrite {finding.rewrite} " in finding.next_step
        # Evidence names the costliest first, with its time and its line of the model.
        for line, entry in zip(finding.evidence, sorted(entries, key=lambda x: -x.ms)[:3], strict=False):
            assert line.startswith(f"{entry.name}: {shown_ms(entry.ms)} ")
            assert entry.source is None or not entry.source.file or f"at {entry.source.file}:" in line
        if finding.rule == "layout changes":
            assert {entry.kind for entry in entries} <= set(LAYOUT_KINDS)
    # What a flag can do comes before what only a redesign can, and of both the larger share first, another dtype last.
    assert [by_flag(finding) for finding in findings] == sorted(map(by_flag, findings), reverse=True)
    for flag in (True, False):
        order = [
            (finding.rule == "compute in fp32", -finding.share) for finding in findings if by_flag(finding) is flag
        ]
        assert order == sorted(order)


def test_attention_hides_no_transpose(cases: dict[str, Case]) -> None:
    """One transpose less runs than the graph has; the others keep their nodes, and so their lines and their work."""
    case = cases["Attending"]
    assert case.graph is not None
    rows = [row for row, entry in enumerate(case.breakdown.instances) if entry.kind == "transpose"]
    nodes = [step for step in case.graph.flow.steps if step.op == "StaticTranspose"]
    assert len(nodes) == len(rows) + 1 and all(case.graph.step(row) is not None for row in rows)
    # The last one moves a dimension of one value: it runs, and changes no order.
    assert len(transposes(case.graph.flow)) == len(rows) - 1


def test_findings_of_real_profiles_hold_together(cases: dict[str, Case]) -> None:
    for case in cases.values():
        check(case.advice(), case.breakdown)
        for finding in case.advice():
            assert not finding.rewrite or (case.made.record.rewrites or {})[finding.rewrite]
    for path in DUMPS.glob("*.etdump"):
        for profile in profiles(etdump.read(path), load_table()):
            breakdown = break_down(profile)
            findings = advise(Evidence(breakdown))
            check(findings, breakdown)
            # Without the .pte nobody knows what feeds what, and nobody guesses.
            graph_needed = {"undone transposes", "input layout", "needless layout changes", "dtype conversions"}
            assert not graph_needed & {finding.rule for finding in findings}
            assert not any(finding.rewrite for finding in findings)


@settings(max_examples=40, deadline=None)
@given(data=st.data())
def test_findings_hold_together_however_the_time_is_spread(cases: dict[str, Case], data: st.DataObject) -> None:
    case = cases[data.draw(st.sampled_from(sorted(cases)))]
    seed = data.draw(st.integers(0, 2**32 - 1))
    times = iter(np.random.default_rng(seed).exponential(size=len(case.breakdown.instances)) ** 3)
    breakdown = timed(case.breakdown, lambda entry: float(next(times)))
    check(case.advice(breakdown), breakdown)
    check(case.advice(breakdown, msgspec.structs.replace(case.made.record, rewrites=None)), breakdown)


def rules(findings: list[Finding]) -> set[str]:
    return {finding.rule for finding in findings}


def test_transposes_that_follow_each_other_in_time_do_not_undo_each_other(cases: dict[str, Case]) -> None:
    case = cases["Siamese"].where_everything_costs(transpose=1.0)
    assert sum(entry.kind == "transpose" for entry in case.breakdown.instances) >= 2
    assert data_movement(case.breakdown, case.graph).inverse_pairs == []
    assert "undone transposes" not in rules(case.advice())


def test_two_inputs_that_are_transposed_are_one_finding(cases: dict[str, Case], tmp_path: Path) -> None:
    case = cases["Siamese"].where_everything_costs(transpose=1.0)
    (found,) = [finding for finding in case.advice() if finding.rule == "input layout"]
    # The flag also leaves the output as it is: one export, one finding.
    assert len(found.instances) == 3 and "2 times and the output is transposed" in found.title
    assert "--io-layout channels_last" in found.next_step
    # What it recommends is true: in that layout nothing transposes an input or an output, and nothing is left to say.
    made = exported_net("Siamese", "fp32", tmp_path, io_layout="channels_last")
    program = pte.read(made.paths.pte)
    flow = data_flow(program, program.methods[0])
    assert flow is not None and not any(step.permutation for step in flow.steps)
    assert not {"input layout", "output layout"} & rules(case.advice(record=made.record))
    assert case.made.record.request is not None
    apart = msgspec.structs.replace(case.made.record.request, delegation="per-op")
    alone = msgspec.structs.replace(case.made.record, request=apart)
    assert not {"input layout", "output layout"} & rules(case.advice(record=alone))


def test_a_permute_that_is_undone_is_found_with_its_line(cases: dict[str, Case]) -> None:
    case = cases["ThereAndBack"].where_everything_costs(transpose=1.0)
    pairs = data_movement(case.breakdown, case.graph).inverse_pairs
    # XNNPACK's own change of layout undoes each of the model's two.
    assert [len(pair.instances) for pair in pairs] == [2, 2] and all("advice_nets.py:" in pair.at[0] for pair in pairs)
    # The export saw that a rewrite removes them, so that is recommended.
    (found,) = [finding for finding in case.advice() if finding.rewrite == "layout"]
    assert set(found.instances) == {row for pair in pairs for row in pair.instances}
    unseen = msgspec.structs.replace(case.made.record, rewrites={})
    undone = [finding for finding in case.advice(record=unseen) if finding.rule == "undone transposes"]
    assert [finding.ms for finding in undone] == pytest.approx([2.0, 2.0])
    assert not any(finding.rewrite for finding in undone) and all("advice_nets.py:" in f.next_step for f in undone)


def test_what_layout_left_is_explained_and_the_rewrite_is_not_named_again(cases: dict[str, Case]) -> None:
    case = cases["Attending"].where_everything_costs(transpose=1.0)
    assert any(finding.rewrite == "layout" for finding in case.advice())
    assert case.made.record.request is not None
    asked = msgspec.structs.replace(case.made.record.request, rewrites=["layout"])
    findings = case.advice(record=msgspec.structs.replace(case.made.record, request=asked))
    assert findings and not any(finding.rewrite == "layout" for finding in findings)
    (left,) = [finding for finding in findings if finding.rule == "layout changes"]
    assert "needed" in left.next_step and any("matrix multiplication" in line for line in left.evidence)


def test_a_layout_that_somebody_needs_is_not_counted_as_saved(cases: dict[str, Case]) -> None:
    case = cases["Kept"].where_everything_costs(transpose=1.0)
    assert sum(entry.kind == "transpose" for entry in case.breakdown.instances) == 4
    (pair,) = data_movement(case.breakdown, case.graph).inverse_pairs
    assert len(pair.instances) == 1 and pair.ms == pytest.approx(1.0)


def test_operators_with_several_results_are_followed(cases: dict[str, Case]) -> None:
    graph = cases["Ranked"].graph
    assert graph is not None
    (position,) = [p for p, step in enumerate(graph.flow.steps) if step.op.startswith("aten::topk")]
    assert len(graph.flow.steps[position].outputs) == 2
    assert [graph.flow.steps[reader].op for reader in graph.flow.readers(position)] == ["StaticTranspose"]


def test_lookups_are_not_layout_changes(cases: dict[str, Case]) -> None:
    case = cases["Lookups"]
    looked_up = {"index_select.out", "index.Tensor_out", "embedding.out"}
    assert looked_up <= {entry.operator for entry in case.breakdown.instances}
    busy = replace(case, breakdown=timed(case.breakdown, lambda x: 1.0 if x.operator in looked_up else 0.001))
    findings = busy.advice()
    assert findings and not {"layout changes", "needless layout changes"} & rules(findings)
    assert not any("layout" in finding.title or "delegates" in finding.next_step for finding in findings)


def test_conversions_of_silu_are_attributed_to_it_and_a_rewrite_removes_them(
    cases: dict[str, Case], runner: Path, tmp_path: Path
) -> None:
    case = cases["Gates"].where_everything_costs(convert=1.0)
    (found,) = [finding for finding in case.advice() if finding.rule == "dtype conversions"]
    assert "silu and glu computed through fp16 and fp32, with 6 conversions" in found.title
    assert found.rewrite == "silu" and "--rewrite silu" in found.next_step
    assert not any(".half" in finding.next_step or "forward" in finding.next_step for finding in case.advice())

    made = exported_net("Gates", "fp16", tmp_path, rewrites=("silu",))
    assert made.record.delegation.portable_nodes == 0 and made.record.delegation.delegate_calls == 1
    assert made.record.rewrites is not None and made.record.rewrites["silu"] == []
    rewritten = run(runner, made, tmp_path)
    assert not any(entry.kind == "convert" and entry.where == "portable" for entry in rewritten.breakdown.instances)
    eager = expected_outputs(made.paths.directory, made.record)
    agreement = agreement_of("rewritten", rewritten.outputs, "eager", eager, "fp16", made.record.dtype_cost)
    assert agreement is not None and agreement.verdict == "agrees"


def test_conversions_in_the_models_code_are_named_with_their_line(cases: dict[str, Case]) -> None:
    case = cases["Many"].where_everything_costs(convert=1.0)
    found = {finding.rewrite: finding for finding in case.advice() if finding.rule == "dtype conversions"}
    assert set(found) == {"silu", ""} and "in the model's code" in found[""].title
    assert "functional.gelu(self.second(x)).float()" in found[""].next_step
    assert "advice_nets.py:" in found[""].next_step and "in the model's code" not in found["silu"].title


def test_an_operator_that_costs_nothing_is_no_finding(cases: dict[str, Case]) -> None:
    case = cases["TinyClamp"]
    assert "clamp.out" in {entry.operator for entry in case.breakdown.instances}
    slow = case.where_everything_costs(transpose=1.0)
    # What stands beside the transposes in time has not caused them.
    assert "portable operator" not in rules(slow.advice())
    check(slow.advice(), slow.breakdown)


def test_only_a_rewrite_that_finds_this_operator_is_recommended(cases: dict[str, Case]) -> None:
    case = cases["Means"].where_everything_costs(reduction=1.0)
    means = [finding for finding in case.advice() if " mean" in finding.title]
    assert {finding.rewrite for finding in means} == {"keepdim", "mean", ""}
    for finding in means:
        named = [name for name in ("keepdim", "mean") if f"--rewrite {name}" in finding.next_step]
        assert named == [finding.rewrite] * bool(finding.rewrite)
    unknown = msgspec.structs.replace(case.made.record, rewrites=None)
    for finding in case.advice(record=unknown):
        assert not finding.rewrite and "Export with --rewrite" not in finding.next_step
    assert any("not known" in finding.next_step for finding in case.advice(record=unknown))


def test_an_operator_of_the_model_that_is_many_in_the_trace_is_one_finding(cases: dict[str, Case]) -> None:
    case = replace(cases["Scaled"], breakdown=timed(cases["Scaled"].breakdown, lambda entry: 1.0))
    (found,) = [finding for finding in case.advice() if finding.rewrite == "attention"]
    assert len({case.breakdown.instances[row].operator for row in found.instances}) > 3
    assert "scaled_dot_product_attention" in found.title


def test_layout_changes_that_an_operator_causes_are_part_of_its_finding(cases: dict[str, Case]) -> None:
    case = cases["Means"].where_everything_costs(reduction=1.0, transpose=2.0)
    pixels = next(finding for finding in case.advice() if finding.rewrite == "keepdim")
    kinds = [case.breakdown.instances[row].kind for row in pixels.instances]
    assert sorted(kinds) == ["reduction", "transpose"]
    assert re.fullmatch(
        r"helpers/advice_nets\.py:\d+: mean\(.*\) runs outside the delegate, with 1 transpose: \d+ % of the time",
        pixels.title,
    )


def test_a_program_of_its_own_export_is_needed_for_its_graph(cases: dict[str, Case], tmp_path: Path) -> None:
    case = cases["Siamese"]
    assert read_graph(case.breakdown.instances, tmp_path / "none.pte") is None
    # Another model's graph has no place for these operators.
    other = read_graph(cases["Lookups"].breakdown.instances, case.made.paths.pte)
    assert other is not None and other.steps == {}


def test_every_operand_is_made_before_it_is_read(cases: dict[str, Case]) -> None:
    for case in cases.values():
        assert case.graph is not None
        flow = case.graph.flow
        for position, step in enumerate(flow.steps):
            assert step.outputs and all(tensor.source < position for tensor in step.inputs)
            for tensor in step.inputs:
                if tensor.source >= 0:
                    made = [out for out in flow.steps[tensor.source].outputs if out.dtype == tensor.dtype]
                    assert any(math.prod(out.shape) == math.prod(tensor.shape) for out in made), (step, tensor)
        # All that leaves the model was made by a step, and all that was made is read or leaves.
        assert flow.returned
        assert all(flow.readers(p) or p in flow.returned for p in range(len(flow.steps)))
        portable = [row for row, entry in enumerate(case.breakdown.instances) if entry.where == "portable"]
        assert all(row in case.graph.steps for row in portable)


@st.composite
def _changes(draw: st.DrawFn) -> tuple[tuple[int, ...], list[tuple[str, tuple[int, ...]]]]:
    """A shape, and transposes and reshapes one after the other."""
    shape = tuple(draw(st.lists(st.sampled_from([1, 2, 3, 4, 6]), min_size=1, max_size=4)))
    start, steps = shape, []
    for _ in range(draw(st.integers(1, 5))):
        if draw(st.booleans()):
            order = tuple(draw(st.permutations(range(len(shape)))))
            steps.append(("transpose", order))
            shape = tuple(shape[axis] for axis in order)
        else:
            left = math.prod(shape)
            sizes: list[int] = []
            while left > 1 and len(sizes) < 3:
                size = draw(st.sampled_from([n for n in range(1, left + 1) if left % n == 0]))
                sizes.append(size)
                left //= size
            shape = (*sizes, left)
            steps.append(("reshape", shape))
    return start, steps


@given(_changes())
def test_layouts_are_followed_as_numpy_does_it(changes: tuple[tuple[int, ...], list[tuple[str, Any]]]) -> None:
    start, steps = changes
    values = np.arange(math.prod(start)).reshape(start)
    layout = contiguous_layout(start)
    for kind, argument in steps:
        values = values.transpose(argument) if kind == "transpose" else values.reshape(argument)
        after = transpose_layout(layout, argument) if kind == "transpose" else reshape_layout(layout, argument)
        if after is None:
            return  # cut across: nothing is claimed of it
        layout = after
        assert is_in_order(layout) == bool((values.ravel() == np.arange(values.size)).all())
