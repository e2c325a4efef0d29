"""Several versions of ExecuTorch become experiments of one group, which take turns on the same program."""

import json
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import hypothesis.strategies as st
import jsonschema
import msgspec
import pytest
from hypothesis import given

from model_profiling.analysis.compare.comparison import compare_kernels
from model_profiling.analysis.sme2.kernel_assignment import KernelCalls, KernelEvidence, OperatorKernels
from model_profiling.base.errors import InputError
from model_profiling.pipeline.axes import choose_versions, version_labels
from model_profiling.pipeline.config import compare_pairs, json_schema, named_paths, parse_config
from model_profiling.pipeline.config_types import NAME_PATTERN, Config
from model_profiling.pipeline.schedule import groups
from model_profiling.report.words import kernels_sentence
from model_profiling.runner.sdk import host_target, installed_sdk
from model_profiling.store.made_by import executorch_name
from model_profiling.store.run_directory import RunDirectory
from tests.conftest import kit, needs_emulator, needs_hardware
from tests.helpers.prefixes import prefix, slow_prefix

Toy = Callable[[str], Path]
HERE = Path(__file__)
ON: dict[str, Any] = {"name": "linux_sme2_on"}
OFF: dict[str, Any] = {"name": "linux_sme2_off", "disable_features": ["sme2"]}


def config(experiments: list[dict[str, Any]], pairs: list[list[str]] | None = None) -> Config:
    analysis = {} if pairs is None else {"analysis": {"compare_pairs": pairs}}
    return parse_config({"model": str(HERE), "output_root": "out", "experiments": experiments, **analysis}, "c.json")


def with_versions(*versions: str, **common: Any) -> list[dict[str, Any]]:
    return [{**side, "executorch": list(versions), **common} for side in (ON, OFF)]


def test_a_list_of_versions_is_an_experiment_for_each_on_and_off_all_of_one_group() -> None:
    found = config(with_versions("1.5.0", "1.5.1"))
    on, off = ([f"linux_sme2_{side}_et{version}" for version in ("1.5.0", "1.5.1")] for side in ("on", "off"))
    assert [each.name for each in found.experiments] == [*on, *off]
    assert [each.executorch for each in found.experiments] == ["1.5.0", "1.5.1"] * 2
    # The releases first: before and after as they were named. Then on and off of each.
    assert compare_pairs(found) == [(on[0], on[1]), (off[0], off[1]), (off[0], on[0]), (off[1], on[1])]
    assert len(groups(found)) == 1


def test_one_version_keeps_its_names_and_pairs() -> None:
    for experiments in (with_versions("1.5.0"), [{**side, "executorch": "1.5.0"} for side in (ON, OFF)]):
        found = config(experiments)
        assert [each.name for each in found.experiments] == [ON["name"], OFF["name"]]
        assert compare_pairs(found) == [(OFF["name"], ON["name"])]
        assert {each.executorch for each in found.experiments} == {"1.5.0"}


def test_on_and_off_of_different_versions_are_not_compared() -> None:
    three = config([ON, {**OFF, "executorch": "1.5.0"}, {**OFF, "name": "other", "executorch": "1.5.1"}])
    assert compare_pairs(three) == [(OFF["name"], "other")]


def test_pairs_that_are_asked_for_are_of_one_version_and_versions_are_compared_as_well() -> None:
    experiments: list[dict[str, Any]] = [
        {"name": "a", "executorch": ["1.5.0", "./b"]},
        {"name": "c", "executorch": ["./b"]},
        {"name": "d"},
    ]
    found = config(experiments, [["d", "a"], ["a", "c"]])
    assert found.analysis.compare_pairs == [
        ("a_et1.5.0", "a_etb"),
        ("d", "a_et1.5.0"),
        ("d", "a_etb"),
        ("a_et1.5.0", "c"),
        ("a_etb", "c"),
    ]


def test_threads_and_versions_go_together() -> None:
    found = config(with_versions("1.5.0", "1.5.1", num_threads=[1, 2]))
    assert found.experiments[1].name == "linux_sme2_on_et1.5.0_threads2"
    assert len(found.experiments) == 8 and len(compare_pairs(found)) == 8
    raw = msgspec.to_builtins(config([{**ON, "threads": [1, 2]}]))
    again = parse_config(choose_versions(raw, ["1.5.0", "x"], "c.json"), "c.json")
    assert [each.name for each in again.experiments][:2] == [
        "linux_sme2_on_et1.5.0_threads1",
        "linux_sme2_on_etx_threads1",
    ]


@given(st.lists(st.text(min_size=1).filter(lambda text: "\0" not in text), min_size=1, max_size=8, unique=True))
def test_labels_are_unique_and_fit_into_names(choices: list[str]) -> None:
    labels = version_labels(choices)
    assert len(set(labels.values())) == len(choices)
    assert all(re.search(NAME_PATTERN, f"linux_{label}") and len(label) <= 25 for label in labels.values()), labels


def test_folders_of_one_name_are_told_apart_by_the_folder_around_them() -> None:
    assert version_labels(["a/install", "b/install", "1.5.1"]) == {
        "a/install": "a-install",
        "b/install": "b-install",
        "1.5.1": "1.5.1",
    }


@pytest.mark.parametrize(
    ("experiment", "what"),
    [
        ({"executorch": []}, "not a list of releases"),
        ({"executorch": [1]}, "not a list of releases"),
        ({"executorch": ["1.5.0", "1.5.0"]}, "twice"),
        ({"executorch": ""}, "empty"),
        ({"executorch": "1.5.0", "runner_path": str(HERE)}, "`runner_path` and `executorch`"),
        ({"executorch": ["1.5.0", "1.5.1"], "runner_path": str(HERE)}, "`runner_path` and `executorch`"),
    ],
)
def test_what_cannot_be_is_an_error_with_a_fix(experiment: dict[str, Any], what: str) -> None:
    with pytest.raises(InputError) as caught:
        config([{"name": "a", **experiment}])
    assert what in caught.value.message and caught.value.hint


def test_the_schema_knows_both_spellings_and_whoever_serves_others_sees_every_path() -> None:
    for executorch in ("1.5.0", ["1.5.0", "../elsewhere"], None):
        raw = {"model": "m.pte", "output_root": "out", "experiments": [{"name": "a", "executorch": executorch}]}
        jsonschema.validate(raw, json_schema())
        given_paths = [executorch] if isinstance(executorch, str) else executorch or []
        assert named_paths(raw) == ["m.pte", "out", *given_paths]


def test_an_own_build_is_named_by_its_version_and_its_content() -> None:
    assert executorch_name("1.5.1", "") == "1.5.1" and executorch_name("", "") == ""
    assert executorch_name("1.5.1", "3f2a91c0ff") == "1.5.1 (own build 3f2a91c0)"
    assert executorch_name("own build 3f2a91c0", "3f2a91c0ff") == "own build 3f2a91c0"


def evidence(*kernels: str, unknown: str = "") -> KernelEvidence:
    operators = [OperatorKernels("Conv (NHWC)", 0, [KernelCalls(kernel, 1)] if kernel else []) for kernel in kernels]
    return KernelEvidence([], operators, [], unknown)


def test_kernels_are_compared_operator_by_operator_and_unknown_is_said() -> None:
    same = compare_kernels(("a", evidence("k", "l")), ("b", evidence("k", "l")))
    assert (same.operators, same.changed) == (2, []) and "the same in all 2 operators" in kernels_sentence(same)
    other = compare_kernels(("a", evidence("k", "l")), ("b", evidence("k", "m", "")))
    assert [(change.before, change.after) for change in other.changed] == [(["l"], ["m"])] and other.operators == 3
    assert "1 of 3 operators" in kernels_sentence(other) and "l, now m" in kernels_sentence(other)
    for one, reason, said in ((None, "x86 has none", "x86 has none"), (evidence(unknown="lost"), "", "lost")):
        unknown = compare_kernels(("a", one), ("b", evidence("k")), reason)
        assert (unknown.operators, unknown.unknown) == (None, said)
        assert kernels_sentence(unknown) == f"kernels: unknown: {said}"


@pytest.fixture(scope="module")
def builds(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    needs_hardware(host_target().library_suffix == ".so", "Linux")
    home = tmp_path_factory.mktemp("builds")
    return {"good": prefix(home / "good"), "slow": slow_prefix(home / "slow", delay_ns=300_000)}


@pytest.mark.wide
def test_a_run_with_two_versions_records_and_compares_them(toy: Toy, builds: dict[str, Path], tmp_path: Path) -> None:
    version = installed_sdk().version
    words = ("run", toy("fp32"), "--executorch", f"{version},good", "--output-root", tmp_path / "run")
    numbers = ("--runs", 12, "--launches", 6, "--startup-launches", 2)
    done = kit(*words, *numbers, "--verbose", cwd=builds["good"].parent)
    assert done.returncode == 0, done.stderr
    manifest = RunDirectory(tmp_path / "run").manifest()
    before, after = manifest.compare_pairs[0]
    assert (before.rpartition("_et")[2], after.rpartition("_et")[2]) == (version, "good")
    records = [manifest.experiments[name] for name in (before, after)]
    assert records[0].session == records[1].session, "they took turns"
    assert records[0].runner.sha256 != records[1].runner.sha256
    assert (records[0].runner.executorch, records[0].runner.executorch_path) == (version, "")
    own = records[1].runner
    assert own.executorch == f"own build {own.executorch_content[:8]}" and own.executorch_path == "good"
    assert all(f"exported by ExecuTorch {version}" in " ".join(record.notes) for record in records)
    said = " ".join(done.stdout.split())
    assert f"(ExecuTorch {version})" in said and "(ExecuTorch good): identical." in said
    again = kit(*words, *numbers, cwd=builds["good"].parent)
    assert "reused existing results" in again.stderr
    # Built again in its place: what was measured of it is not what it would do now.
    with (builds["good"] / "lib" / "libexecutorch_kernels_quantized.so").open("ab") as file:
        file.write(b"\0")
    rebuilt = kit(*words, *numbers, "--verbose", cwd=builds["good"].parent)
    assert f"ran: {after}" in rebuilt.stderr.replace(f"{before}, ", ""), rebuilt.stderr


@pytest.mark.wide
def test_compare_answers_all_of_it_as_json(toy: Toy, builds: dict[str, Path]) -> None:
    sides = f"{builds['good']},{builds['slow']}"
    done = kit("compare", toy("fp32"), "--executorch", sides, "--json", "--runs", 12, "--startup-launches", 2)
    (found,) = json.loads(done.stdout)
    assert found["outputs"]["max_abs_error"] == 0 and found["startup"] and found["memory"]
    assert (found["kernels"]["operators"] is None) == bool(found["kernels"]["unknown"])
    assert [runner["executorch_path"] for runner in found["runners"]] == sides.split(",")


@pytest.mark.parametrize(
    ("words", "what"),
    [
        (["MODEL"], "compared with nothing"),
        (["MODEL", "--executorch", "1.5.0"], "1 version of ExecuTorch is named"),
        (["MODEL", "MODEL", "--executorch", "1.5.0,1.5.1"], "too many sides"),
        (["RUN", "RUN", "--executorch", "1.5.0"], "measured now"),
        (["MODEL", "--executorch", "./nowhere,1.5.0"], "does not exist"),
        (["MODEL", "--executorch", "1.5.0,1.5.1", "--platform", "emulator"], "emulator"),
    ],
)
def test_what_cannot_be_compared_is_refused(words: list[str], what: str, toy: Toy, tmp_path: Path) -> None:
    if "emulator" in words:
        needs_emulator()
    given_words = [str(toy("fp32")) if word == "MODEL" else str(tmp_path) if word == "RUN" else word for word in words]
    done = kit("compare", *given_words)
    assert done.returncode in (2, 3) and what in done.stderr and "fix:" in done.stderr, done.stderr
