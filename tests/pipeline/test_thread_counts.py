"""Several numbers of threads become experiments of one group, which take turns as any others do."""

import argparse
import json
from pathlib import Path
from typing import Any

import hypothesis.strategies as st
import jsonschema
import pytest
from hypothesis import given, settings

from model_profiling.base.errors import InputError
from model_profiling.cli.arguments import several
from model_profiling.pipeline.config import compare_pairs, json_schema, parse_config
from model_profiling.pipeline.config_types import MOST_COUNTS, Config
from model_profiling.pipeline.schedule import (
    Cost,
    LaneKind,
    checked_counts,
    first_round,
    groups,
    lanes_of,
    later_rounds,
    plan,
)
from model_profiling.store.run_directory import threads_name, without_threads

COUNTS = st.lists(st.integers(1, 1024), min_size=2, max_size=5, unique=True)
HERE = Path(__file__)


def config(experiments: list[dict[str, Any]], pairs: list[list[str]] | None = None) -> Config:
    analysis = {} if pairs is None else {"analysis": {"compare_pairs": pairs}}
    raw = {"model": str(HERE), "output_root": "out", "experiments": experiments, **analysis}
    return parse_config(raw, "c.json")


def on_and_off(threads: object, **common: Any) -> list[dict[str, Any]]:
    off = {"name": "linux_sme2_off", "disable_features": ["sme2"]}
    return [{**side, "num_threads": threads, **common} for side in ({"name": "linux_sme2_on"}, off)]


def names(found: Config) -> list[str]:
    return [experiment.name for experiment in found.experiments]


def test_a_list_of_threads_is_an_experiment_for_each_on_and_off() -> None:
    found = config(on_and_off([1, 2, 4]))
    ends = ["threads1", "threads2", "threads4"]
    assert names(found) == [f"linux_sme2_{side}_{end}" for side in ("on", "off") for end in ends]
    assert [experiment.num_threads for experiment in found.experiments] == [1, 2, 4] * 2
    assert compare_pairs(found) == [(f"linux_sme2_off_{end}", f"linux_sme2_on_{end}") for end in ends]
    # How a process starts is seen with the first number, unless a number of launches is asked for.
    assert [experiment.startup_launches for experiment in found.experiments] == [None, 0, 0] * 2
    asked = config(on_and_off([4, 1], startup_launches=3))
    assert [experiment.startup_launches for experiment in asked.experiments] == [3] * 4


@pytest.mark.parametrize("threads", [2, [2]])
def test_one_number_keeps_its_names(threads: object) -> None:
    found = config(on_and_off(threads))
    assert names(found) == ["linux_sme2_on", "linux_sme2_off"]
    assert [experiment.num_threads for experiment in found.experiments] == [2, 2]
    alias = config([{"name": "a", "threads": threads}])
    assert (names(alias), alias.experiments[0].num_threads) == (["a"], 2)


def test_pairs_that_are_asked_for_are_of_equal_threads() -> None:
    experiments: list[dict[str, Any]] = [
        {"name": "a", "threads": [1, 2, 4]},
        {"name": "b", "threads": [4, 2]},
        {"name": "c"},
    ]
    pairs = [["a", "b"], ["c", "a"], ["a_threads1", "a_threads4"]]
    found = config(experiments, pairs).analysis.compare_pairs
    assert found == [
        ("a_threads2", "b_threads2"),
        ("a_threads4", "b_threads4"),
        ("c", "a_threads1"),
        ("a_threads1", "a_threads4"),
    ]
    with pytest.raises(InputError, match="no number of threads in common"):
        config([{"name": "a", "threads": [1, 2]}, {"name": "b", "threads": [4]}], [["a", "b"]])


def test_the_learning_paths_names_are_paired_for_every_number() -> None:
    found = config([{"name": "x_on", "threads": [1, 2]}, {"name": "x_off", "threads": [1, 2]}])
    assert compare_pairs(found) == [("x_off_threads1", "x_on_threads1"), ("x_off_threads2", "x_on_threads2")]
    # Numbers of threads of one experiment are no before and after: analysis/process/scaling.py compares them.
    assert compare_pairs(config([{"name": "alone", "threads": [1, 2]}])) == []


@pytest.mark.parametrize(
    ("threads", "message"),
    [
        ([], "1 to 16 numbers of threads, not 0"),
        (list(range(1, MOST_COUNTS + 2)), "1 to 16 numbers of threads, not 17"),
        ([1, 0], "not 0"),
        ([1, 1025], "not 1025"),
        ([1, "2"], "not '2'"),
        ([1, 2.5], "not 2.5"),
        ([1, True], "not True"),
        ([2, 1, 2], "names 2 threads twice"),
        (0, "num_threads"),
        ("1,2", "num_threads"),
    ],
)
def test_numbers_that_no_model_can_run_with_are_named(threads: object, message: str) -> None:
    with pytest.raises(InputError, match=message) as error:
        config([{"name": "first"}, {"name": "a", "num_threads": threads}])
    assert "c.json" in error.value.message and error.value.hint
    if isinstance(threads, list):
        with pytest.raises(InputError, match="--threads"):
            checked_counts(None, None, None, threads, lambda name: f"--{name}")


@pytest.mark.parametrize(
    ("text", "counts"), [("2", [2]), ("1,2,4", [1, 2, 4]), ("1,x", None), ("1,,2", None), ("", None)]
)
def test_flags_are_numbers_between_commas(text: str, counts: list[int] | None) -> None:
    if counts is not None:
        assert several(int)(text) == counts
        return
    with pytest.raises(argparse.ArgumentTypeError, match="such as 1,2,4"):
        several(int)(text)


def test_a_name_that_becomes_too_long_says_so() -> None:
    with pytest.raises(InputError, match="too long"):
        config([{"name": "a" * 60, "threads": [1, 2]}])


def test_a_mistake_elsewhere_is_counted_as_the_file_has_it() -> None:
    with pytest.raises(InputError, match=r"experiments\[1\]"):
        config([{"name": "a", "threads": [1, 2, 4]}, {"name": "b", "warmup": -1}])


def test_editors_know_that_threads_may_be_a_list() -> None:
    schema = json_schema()
    raw = {"model": "m", "output_root": "o", "experiments": [{"name": "a", "threads": [1, 2]}]}
    jsonschema.validate(raw, schema)
    jsonschema.validate(json.loads(json.dumps(raw).replace("[1, 2]", "2")), schema)
    for wrong in ("[]", "[0]", "[1, 1]", '"1"'):
        with pytest.raises(jsonschema.ValidationError):
            jsonschema.validate(json.loads(json.dumps(raw).replace("[1, 2]", wrong)), schema)


@given(COUNTS, st.integers(0, 9), st.sampled_from([None, 6, 60]), st.booleans())
@settings(max_examples=40, deadline=None)
def test_all_numbers_take_turns_in_one_group_equally_often(
    counts: list[int], seed: int, runs: int | None, off: bool
) -> None:
    found = config(on_and_off(counts, num_runs=runs)[: 2 if off else 1])
    (group,) = groups(found)
    assert group == found.experiments
    lanes = lanes_of(group, set())
    assert sum(lane.kind is LaneKind.STARTUP for lane in lanes) == (2 if off else 1)
    first = first_round(lanes, seed)
    settled, _ = plan(lanes, Cost(0.1, 0.01, 0.1, 0.01, 0.1), None)
    rounds = [first, *later_rounds(settled, first, seed)]
    timed = [place for place, lane in enumerate(lanes) if lane.kind is LaneKind.TIMED]
    assert len(timed) == len(counts) * (2 if off else 1)
    for each in rounds:
        # Every launch has all of them, and every turn all of them equally often, each time in an order of its own.
        assert sorted(each.together) in (timed, [])
        for turn in each.turns:
            assert len({executions for _, executions in turn}) == 1 and sorted(lane for lane, _ in turn) == timed
    orders = {tuple(lane for lane, _ in turn) for each in rounds for turn in each.turns}
    assert len(orders) > 1 or len(rounds) * len(timed) < 12


def test_experiments_that_differ_in_more_than_threads_are_measured_apart() -> None:
    found = config(
        [
            {"name": "a", "num_threads": 1},
            {"name": "b", "num_threads": 4},
            {"name": "other", "num_threads": 2, "warmup": 9},
            {"name": "kernels", "num_threads": 2, "mode": "trace"},
            {"name": "more", "num_threads": 4, "mode": "trace"},
        ],
        [["a", "b"]],
    )
    assert [[e.name for e in group] for group in groups(found)] == [["a", "b"], ["other"], ["kernels"], ["more"]]


@given(st.text("Aaz09_.-", min_size=1, max_size=40), st.integers(1, 1024))
def test_a_name_gives_its_threads_back(name: str, threads: int) -> None:
    assert without_threads(threads_name(name, threads), threads) == (name, True)
    assert without_threads(threads_name(name, threads), threads + 1) == (threads_name(name, threads), False)
