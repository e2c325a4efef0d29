"""A config that is wrong says which key, which value, and what to do."""

import itertools
import json
import re
from pathlib import Path
from typing import Any

import jsonschema
import pytest

from model_profiling.base.errors import InputError
from model_profiling.pipeline.axes import fill_in
from model_profiling.pipeline.config import compare_pairs, json_schema, load_config, parse_config
from model_profiling.pipeline.config_types import Config, Experiment
from model_profiling.pipeline.schedule import (
    BUDGET_S,
    Cost,
    LaneKind,
    Round,
    first_round,
    groups,
    lanes_of,
    later_rounds,
    plan,
)
from model_profiling.platforms.base import Capabilities
from model_profiling.platforms.process_platform import LocalPlatform

pytestmark = pytest.mark.fast

ROOT = Path(__file__).resolve().parents[2]
CONFIGS = ROOT / "model_profiling" / "configs"
MEASURED = (LaneKind.TIMED, LaneKind.TRACED, LaneKind.STARTUP)


@pytest.fixture
def write(tmp_path: Path) -> Any:
    model = tmp_path / "m_fp16.pte"
    model.write_bytes(b"not read here")

    def _write(**changes: Any) -> Path:
        raw: dict[str, Any] = {
            "model": str(model),
            "output_root": str(tmp_path / "out"),
            "experiments": [{"name": "mac_sme2_on"}, {"name": "mac_sme2_off", "disable_features": ["sme2"]}],
        }
        raw.update(changes)
        path = tmp_path / "config.json"
        path.write_text(json.dumps({key: value for key, value in raw.items() if value is not None}))
        return path

    return _write


def test_the_learning_paths_spellings_are_read(write: Any) -> None:
    config = load_config(write(experiments=[{"name": "a", "runs": 7, "threads": 2}, {"name": "b", "mode": "xnntrace"}]))
    assert (config.experiments[0].num_runs, config.experiments[0].num_threads) == (7, 2)
    assert load_config(write()).experiments[0].num_runs == 10


@pytest.mark.parametrize(
    ("changes", "message", "hint"),
    [
        ({"modle": "x"}, "unknown field `modle`", "Did you mean `model`?"),
        ({"experiments": [{"name": "a", "thread": 2}]}, "unknown field `thread`", "Did you mean `threads`?"),
        (
            {"experiments": [{"name": "a", "num_runs": "ten"}]},
            "Expected `int`, got `str` - at `experiments[0].num_runs`",
            "",
        ),
        ({"experiments": [{"name": "a", "num_runs": 0}]}, ">= 1", ""),
        ({"experiments": [{"name": "a", "num_runs": 1, "runs": 2}]}, "both `runs` and `num_runs`", "Keep `num_runs`"),
        ({"experiments": [{"name": "a"}, {"name": "a"}]}, "two experiments are named 'a'", "its own name"),
        ({"experiments": [{"name": "../a"}]}, "matching regex", ""),
        ({"experiments": [{"name": "a; rm -rf b"}]}, "matching regex", ""),
        ({"experiments": []}, "length >= 1", ""),
        ({"experiments": [{"name": "a", "mode": "fast"}]}, "has mode 'fast'", "timing"),
        ({"experiments": [{"name": "a", "runner_path": "/no/runner"}]}, "runner_path '/no/runner'", "kit's own runner"),
        ({"analysis": {"compare_pairs": [["mac_sme2_on", "x"]]}}, "names 'x'", "mac_sme2_on"),
        ({"analysis": {"compare_pairs": [["mac_sme2_on", "mac_sme2_on"]]}}, "with itself", ""),
        ({"model": "/no/model.pte"}, "model '/no/model.pte' does not exist", "Export it first"),
        ({"model": None}, "missing required field `model`", "templates"),
        ({"inputs": ["/no/input.npy"]}, "input file '/no/input.npy'", ""),
    ],
)
def test_each_mistake_has_a_name_and_a_fix(write: Any, changes: dict[str, Any], message: str, hint: str) -> None:
    with pytest.raises(InputError) as caught:
        load_config(write(**changes))
    assert message in caught.value.message
    assert hint in caught.value.hint
    assert caught.value.hint


@pytest.mark.parametrize("text", ["", "{", "[]", "\xff", "[" * 100_000, '{"model": 1}'])
def test_a_file_that_is_no_config_is_an_error_and_not_a_crash(tmp_path: Path, text: str) -> None:
    path = tmp_path / "config.json"
    path.write_bytes(text.encode("latin-1"))
    with pytest.raises(InputError):
        load_config(path)


def test_pairs_are_found_from_what_is_switched_off_or_how_it_is_named(write: Any) -> None:
    assert compare_pairs(load_config(write())) == [("mac_sme2_off", "mac_sme2_on")]
    named = load_config(write(experiments=[{"name": "x_on"}, {"name": "x_off"}]))
    assert compare_pairs(named) == [("x_off", "x_on")]


def test_compared_experiments_share_a_group_and_take_turns(write: Any) -> None:
    config = load_config(
        write(
            experiments=[
                {"name": "on", "num_runs": 60, "traced_runs": 20},
                {"name": "alone", "num_threads": 2, "num_runs": 4},
                {"name": "off", "disable_features": ["sme2"], "num_runs": 60, "traced_runs": 20},
            ]
        )
    )
    assert [[e.name for e in group] for group in groups(config)] == [["on", "off"], ["alone"]]
    rounds = taken(groups(config)[0])
    assert len(rounds) == 20
    # Timed lanes are launched in every round, three runs each; those with a tracer or that only start in fewer.
    assert all(sorted(each.together) == [0, 3] and each.runs >= 6 for each in rounds)
    assert executed(rounds) == {0: 60, 1: 20, 2: 10, 3: 60, 4: 20, 5: 10}
    alone = [{lane for lane, _ in each.alone} for each in rounds]
    assert all((1 in lanes, 2 in lanes) == (4 in lanes, 5 in lanes) for lanes in alone)
    assert (sum(1 in lanes for lanes in alone), sum(2 in lanes for lanes in alone)) == (8, 10)
    assert len({each.turns for each in rounds}) > 1
    assert taken(groups(config)[0]) == rounds
    assert taken(groups(config)[0], seed=2) != rounds


def taken(experiments: list[Experiment], seed: int = 1) -> list[Round]:
    """All rounds as the pipeline takes them: the first before anything is settled."""
    lanes = lanes_of(experiments, set())
    first = first_round(lanes, seed)
    settled, _ = plan(lanes, Cost(0.1, 0.01, 0.1, 0.01), None)
    return [first, *later_rounds(settled, first, seed)]


def executed(rounds: list[Round]) -> dict[int, int]:
    """Executions by lane."""
    found: dict[int, int] = {}
    for lane, runs in (share for each in rounds for turn in (*each.turns, each.alone) for share in turn):
        found[lane] = found.get(lane, 0) + runs
    return found


def test_launches_and_runs_fit_the_budget() -> None:
    """Whatever a launch and an execution cost: within the budget, or as few as an interval takes."""
    asked = lanes_of([Experiment("on", num_runs=None), Experiment("off", num_runs=None)], set())
    costs = itertools.product([0.005, 0.05, 0.5, 5.0], [0.0002, 0.001, 0.05, 1.0], [None, 10.0, 60.0])
    for launch_s, run_s, budget_s in costs:
        lanes, reason = plan(asked, Cost(launch_s, run_s, launch_s, run_s, launch_s), budget_s)
        timed, traced, starts = ([lane for lane in lanes if lane.kind is kind] for kind in MEASURED)
        assert all(lane.runs and lane.launches and lane.runs >= 3 * lane.launches for lane in (*timed, *traced))
        assert all(lane.runs == lane.launches and 1 <= (lane.launches or 0) <= 10 for lane in starts)
        counted = [(lane.launches or 0, lane.runs or 0) for lane in (timed[0], traced[0])]
        spent = sum(launches * launch_s + runs * run_s for launches, runs in counted)
        spent += (starts[0].launches or 0) * launch_s
        fewest = 6 if budget_s is None else 1
        assert spent <= (budget_s or BUDGET_S) * 1.01 or timed[0].launches == fewest, (spent, reason)
        assert f"{budget_s or BUDGET_S:g} s" in reason
        assert {lane.launches for lane in timed} == {timed[0].launches} and (timed[0].launches or 0) <= 100


def test_counts_that_are_asked_for_are_kept(write: Any) -> None:
    def counted(**asked: int | None) -> tuple[int, int]:
        experiments = load_config(write(experiments=[{"name": "a", **asked}])).experiments
        rounds = taken(experiments)
        assert executed(rounds)[1] <= 56
        return executed(rounds)[0], sum(bool(each.turns) for each in rounds)

    assert counted(num_runs=60) == (60, 20)
    assert counted(num_runs=60, launches=4) == (60, 4)
    assert counted(num_runs=10) == (10, 6)
    assert counted(num_runs=2) == (2, 2)
    assert counted(num_runs=3, launches=50) == (3, 3)
    assert counted(num_runs=None, launches=1) == (20, 1)
    assert counted(num_runs=7, launches=1) == (7, 1)


def test_every_run_that_is_planned_is_taken() -> None:
    """Whatever is asked for and whatever it costs: as many executions and launches as the plan says, none dropped."""
    costs = (Cost(0.001, 1e-5, 0.001, 1e-5), Cost(5.0, 2.0, 5.0, 2.0))
    cases = itertools.product([None, 0.001, 60.0], [None, 1, 2, 3, 7, 59, 1000], [None, 1, 2, 6, 100], costs)
    for budget_s, num_runs, launches, cost in cases:
        lanes = lanes_of([Experiment(name, num_runs=num_runs, launches=launches) for name in ("a", "b")], {"b"})
        first = first_round(lanes, 0)
        settled, _ = plan(lanes, cost, budget_s)
        rounds = [first, *later_rounds(settled, first, 0)]
        assert executed(rounds) == {number: lane.runs for number, lane in enumerate(settled)}
        parts = [{i for turn in (*each.turns, each.alone) for i, _ in turn} for each in rounds]
        assert [sum(n in part for part in parts) for n in range(len(settled))] == [lane.launches for lane in settled]
        if num_runs is not None:
            assert settled[0].runs == num_runs
        if launches is not None:
            assert settled[0].launches == min(launches, num_runs or launches)


def test_a_budget_is_for_the_tracer_a_foreign_runner_is_launched_as_often_and_evidence_once() -> None:
    chosen = [Experiment("a", num_runs=None), Experiment("b", num_runs=None)]
    lanes, _ = plan(lanes_of(chosen, set()), Cost(8.0, 2.0, 8.0, 2.0, 8.0), 20.0)
    assert [lane.launches for lane in lanes] == [1, 1, 1, 1, 1, 1]
    lanes, _ = plan(lanes_of([Experiment("own", num_runs=30)], {"own"}), Cost(0.1, 0.001), None)
    assert [(lane.kind, lane.runs, lane.launches) for lane in lanes] == [(LaneKind.LAUNCHED, 30, 10)]
    evidence = [Experiment("t", mode="trace", num_runs=None), Experiment("u", num_runs=None)]
    assert [(lane.runs, lane.launches) for lane in lanes_of(evidence, set(), timed=False)] == [(1, 1)] * 2


@pytest.mark.parametrize("name", ["", " ", ",", "sme2,", "sve sme", "a;b"])
def test_a_feature_to_disable_has_a_name(write: Any, name: str) -> None:
    with pytest.raises(InputError, match="disable_features"):
        load_config(write(experiments=[{"name": "off", "disable_features": [name]}]))


@pytest.mark.parametrize(
    ("arch", "present", "dtype", "name"),
    [
        ("aarch64", ("fp16arith", "dot", "sme", "sme2"), "fp16", "sme2"),
        ("aarch64", ("fp16arith", "dot"), "fp16", "fp16arith"),
        ("x86_64", ("avx2", "avx512f", "avx512fp16"), "fp16", "avx512fp16"),
        ("x86_64", ("avx2", "avx512f", "avx512vnni"), "int8", "avx512vnni"),
    ],
)
def test_a_config_may_leave_the_accelerator_to_the_cpu(
    write: Any, arch: str, present: tuple[str, ...], dtype: str, name: str
) -> None:
    experiments = [
        {"name": "linux_{accelerator}_on"},
        {"name": "linux_{accelerator}_off", "disable_features": ["{accelerator}"]},
    ]
    pairs = {"compare_pairs": [["linux_{accelerator}_off", "linux_{accelerator}_on"]]}
    config = fill_in(load_config(write(experiments=experiments, analysis=pairs)), Cpu(arch, present), dtype)
    assert [e.name for e in config.experiments] == [f"linux_{name}_on", f"linux_{name}_off"]
    # Without SME2 alone, XNNPACK would run the kernels of SME.
    assert config.experiments[1].disable_features == ([name, "sme"] if name == "sme2" else [name])
    assert compare_pairs(config) == [(f"linux_{name}_off", f"linux_{name}_on")]


def test_a_cpu_without_such_an_accelerator_says_so(write: Any) -> None:
    config = load_config(write(experiments=[{"name": "off", "disable_features": ["{accelerator}"]}]))
    with pytest.raises(InputError, match="no accelerator for fp32 that can be switched off"):
        fill_in(config, Cpu("aarch64", ("fp16arith",)), "fp32")
    named = load_config(write())
    assert fill_in(named, Cpu("aarch64", ()), "fp32") is named


class Cpu(LocalPlatform):
    """This machine with another CPU."""

    def __init__(self, arch: str, present: tuple[str, ...]) -> None:
        super().__init__()
        self._probe_of = Capabilities(arch, present, "stated")

    def probe(self) -> Capabilities:
        return self._probe_of


def test_the_schema_knows_every_key_and_accepts_every_example() -> None:
    schema = json_schema()
    assert set(Config.__struct_fields__) <= set(schema["$defs"]["Config"]["properties"])
    for path in CONFIGS.glob("*/*.json"):
        jsonschema.validate(json.loads(path.read_text()), schema)


@pytest.mark.parametrize("path", sorted(CONFIGS.glob("*/*.json")), ids=lambda path: path.name)
def test_the_templates_and_examples_are_valid_but_for_their_placeholders(path: Path, tmp_path: Path) -> None:
    model = tmp_path / "m.pte"
    model.touch()
    text = re.sub(r'"model": "[^"]*"', lambda _: f'"model": {json.dumps(str(model))}', path.read_text())
    copy = tmp_path / path.name
    copy.write_text(text)
    config = load_config(copy)
    assert compare_pairs(config)


@pytest.mark.parametrize("text", ["0", "-1", "long", "nan", "inf", "1e9"])
def test_a_budget_that_is_none_is_refused(monkeypatch: pytest.MonkeyPatch, text: str) -> None:
    monkeypatch.setenv("SME2_KIT_BUDGET_S", text)
    with pytest.raises(InputError, match="SME2_KIT_BUDGET_S"):
        plan([], Cost(1, 1), None)
    monkeypatch.setenv("SME2_KIT_BUDGET_S", "")
    assert plan([], Cost(1, 1), None)[0] == []


@pytest.mark.parametrize("name", ["x\udcff.pte", "x\ud800.pte"])
def test_a_name_that_is_no_utf8_is_named(name: str) -> None:
    raw = {"model": f"out/{name}", "output_root": "out", "experiments": [{"name": "a"}]}
    with pytest.raises(InputError, match=r"^config here: out/x\\(xff|ud800)\.pte is not valid UTF-8$") as caught:
        parse_config(raw, "here")
    assert "Rename" in caught.value.hint
