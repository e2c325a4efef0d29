"""What other programs rely on: every JSON file has a kind, a version and a schema, and is what the schema says."""

import json
import re
import shutil
from pathlib import Path
from typing import Any

import msgspec
import numpy as np
import pytest

from model_profiling.analysis.accuracy.agreement import agreement_of
from model_profiling.analysis.compare.metrics import Metrics
from model_profiling.base.errors import InputError
from model_profiling.base.files import read_json
from model_profiling.report.words import agreement_sentence
from model_profiling.schemas.contracts import CONTRACTS, Contract, json_schema, schema_named, text_of
from model_profiling.store.run_directory import Manifest, RunDirectory, Samples
from tests.conftest import ROOT, kit
from tests.helpers.contract_check import check, check_files, check_printed
from tests.helpers.promised_fields import broken, fields_of_types, promised

KNOWN_GOOD = ROOT / "tests" / "data" / "known_good_run"
IN_A_RUN = {"manifest", "samples", "metrics", "analysis_summary", "robust_stats", "pipeline_summary", "derived"}


def kinds(contract: Contract) -> str:
    return contract.kind


@pytest.fixture(scope="module")
def again(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The stored run, analysed again."""
    copy = tmp_path_factory.mktemp("contracts") / "run"
    shutil.copytree(KNOWN_GOOD, copy)
    done = kit("analyze", copy, "--json")
    assert done.returncode == 0, done.stderr
    check_printed("analysis_summary", json.loads(done.stdout))
    return copy


def test_no_promised_field_goes_or_changes_its_type() -> None:
    now = fields_of_types()
    assert not broken(promised(), now), "readers rely on it: raise the version (docs/contracts.md), then `make schema`"
    assert promised() == now, "run `make schema`, which adds what is new to the promise"


def test_the_promise_is_broken_by_what_readers_would_notice() -> None:
    before = {"Metrics": {"model": "string", "label?": "string"}}
    for name, type_ in [("model", "number"), ("model?", "string"), ("label", "string"), ("added", "string")]:
        kept = {field: of for field, of in before["Metrics"].items() if field.strip("?") != name.strip("?")}
        assert broken(before, {"Metrics": kept | {name: type_}}), name
    assert broken(before, {}) == ["Metrics.model was string", "Metrics.label? was string"]
    assert not broken(before, {"Metrics": before["Metrics"] | {"added?": "string"}, "New": {"x": "string"}})


def test_every_schema_is_printed_and_every_contract_has_its_line_in_the_docs() -> None:
    listed = kit("schema").stdout
    page = (ROOT / "docs" / "contracts.md").read_text()
    for contract in CONTRACTS:
        (line,) = [line for line in page.splitlines() if line.startswith(f"| `{contract.kind}` |")]
        assert all(name.replace("*", "") in line for name in contract.names)
        assert contract.kind in listed
        assert schema_named(contract.kind)["$id"].endswith(f":{contract.kind}:{contract.version}")
    assert json.loads(kit("schema", "metrics").stdout) == json.loads(text_of(schema_named("metrics")))
    assert kit("schema", "nothing").returncode == 2


def test_stored_files_are_of_version_1_and_every_file_says_its_kind_and_version(again: Path) -> None:
    assert check_files(KNOWN_GOOD, strict=False) == IN_A_RUN
    assert read_json(KNOWN_GOOD / "metrics.json", Metrics, "metrics").schema == 1
    manifest = RunDirectory(KNOWN_GOOD).manifest()
    assert all(RunDirectory(KNOWN_GOOD).samples(manifest, name).timed for name in manifest.experiments)
    for path in [*again.glob("*.json"), *again.glob("*/*.json")]:
        data = json.loads(path.read_text())
        assert data["kind"] and data["schema"] == 1, path


def test_every_file_of_a_run_and_an_export_is_what_its_schema_says(measured_run: Path, exported: Any) -> None:
    assert check_files(measured_run) == IN_A_RUN | {"export_meta"}  # of the program that was kept
    assert check_files(exported["fp16"].paths.directory) == {"export_meta"}


def test_a_comparison_is_printed_as_its_schema_says(again: Path) -> None:
    (name, *_) = [path.name for path in again.iterdir() if path.is_dir()]
    pairs = json.loads(kit("compare", f"{again}:{name}", f"{again}:{name}", "--json").stdout)
    assert len(pairs) == 1
    check_printed("comparison", pairs[0])


def test_a_schema_accepts_a_field_of_tomorrow_and_refuses_what_changed_its_meaning(again: Path) -> None:
    contract = next(c for c in CONTRACTS if c.type is Metrics)
    data = json.loads((again / "metrics.json").read_text())
    check(contract, data | {"added_later": 1}, strict=False)
    changes: list[dict[str, Any]] = [{"schema": 2}, {"kind": "manifest"}, {"experiments": []}]
    first = next(iter(data["experiments"]))
    changes += [{"experiments": {first: data["experiments"][first] | {"status": "fine"}}}]
    for change in changes:
        with pytest.raises(AssertionError):
            check(contract, data | change, strict=False)


def test_states_are_enumerations_in_the_schemas() -> None:
    """A field that names a state lists its values, wherever it is."""
    states = {"status", "mode", "timing", "where", "verdict", "latency_source", "level", "category", "rule", "label"}
    free = {
        ("Manifest", "label"),
        ("PhaseMetrics", "label"),
        ("Point", "label"),
        ("RuntimeRow", "label"),
        ("RuntimeResult", "label"),
    }  # what the user calls a run, `pp128`, and a runtime with its version
    for contract in CONTRACTS:
        for name, definition in json_schema(contract)["$defs"].items():
            for field, shape in definition.get("properties", {}).items():
                if field in states and (name, field) not in free:
                    assert "enum" in shape or "$ref" in shape, f"{contract.kind}: {name}.{field} is {shape}"


@pytest.mark.parametrize("contract", [c for c in CONTRACTS if c.names], ids=kinds)
def test_a_newer_version_of_any_file_says_so(contract: Contract, tmp_path: Path) -> None:
    path = tmp_path / "file.json"
    path.write_text(json.dumps({"kind": contract.kind, "schema": contract.version + 1, "anything": []}))
    with pytest.raises(InputError, match=f"with schema {contract.version + 1}") as caught:
        read_json(path, contract.type, contract.kind)
    assert "pip install --upgrade" in caught.value.hint


def test_a_file_of_another_kind_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "samples.json"
    path.write_bytes(msgspec.json.encode(Samples([], [])))
    with pytest.raises(InputError, match="kind"):
        read_json(path, Manifest, "manifest")


@pytest.mark.parametrize("bad", [np.nan, np.inf, -np.inf, 1e300])
@pytest.mark.parametrize("whose", ["ours", "theirs", "both"])
def test_outputs_that_are_no_numbers_are_written_so_that_they_can_be_read(bad: float, whose: str) -> None:
    good, broken = np.ones(8), np.full(8, bad)
    ours, theirs = (broken if whose in (side, "both") else good for side in ("ours", "theirs"))
    agreement = agreement_of("on", [ours], "eager", [theirs], "fp32")
    assert agreement is not None
    metrics = Metrics("m", "linux", {}, [], [agreement])
    text = msgspec.json.encode(metrics)
    assert msgspec.json.decode(text, type=Metrics) == metrics
    check_printed("metrics", json.loads(text))
    assert not re.search(r"\b(nan|inf|None)\b", agreement_sentence(agreement))
