"""A file of a newer kit is called newer, with what to install; one of version 1 is read; a damaged one is damaged."""

import json
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from model_profiling import __version__
from model_profiling.analysis.run.dumps import AnalysisSummary
from model_profiling.base.errors import InputError
from model_profiling.base.files import read_json
from model_profiling.store.artifacts import ExportMeta
from model_profiling.store.derived import DerivedIndex
from model_profiling.store.run_directory import Manifest, RunDirectory
from tests.conftest import ROOT
from tests.helpers.kit_here import kit_here

KNOWN_GOOD = ROOT / "tests" / "data" / "known_good_run"
# What a newer version may have done to a file: anything, so long as it still says its version.
CHANGES: dict[str, Callable[[dict[str, Any]], Any]] = {
    "a new field": lambda data: data.update(brand_new={"of": "some kind"}),
    "a new type": lambda data: data.update({key: [key] for key in data if key != "schema"}),
    "nothing else left": lambda data: [data.pop(key) for key in list(data) if key != "schema"],
    "nothing else changed": lambda data: None,
}
READ: dict[str, tuple[type[Any], dict[str, Any]]] = {
    "manifest": (Manifest, json.loads((KNOWN_GOOD / "manifest.json").read_text())),
    "export record": (ExportMeta, {"schema": 1, "exports": {}}),
    "index": (DerivedIndex, {"schema": 1, "kit": "", "categories": "", "files": {}, "roofs": ""}),
    "analysis": (AnalysisSummary, json.loads((KNOWN_GOOD / "analysis_summary.json").read_text())),
}


@pytest.mark.parametrize("change", CHANGES)
@pytest.mark.parametrize("what", READ)
def test_a_newer_file_says_so_and_what_to_install(what: str, change: str, tmp_path: Path) -> None:
    type_, today = READ[what]
    data = json.loads(json.dumps(today))
    path = tmp_path / "file.json"
    path.write_text(json.dumps(data))
    read_json(path, type_, what)
    CHANGES[change](data)
    path.write_text(json.dumps(data | {"schema": 7}))
    with pytest.raises(InputError) as caught:
        read_json(path, type_, what)
    assert "with schema 7" in caught.value.message and f"sme2-kit {__version__} reads schema" in caught.value.message
    assert "pip install --upgrade executorch-sme2-kit" in caught.value.hint


def test_an_unknown_field_of_todays_version_may_be_a_newer_kits(tmp_path: Path) -> None:
    path = tmp_path / "manifest.json"
    path.write_text(json.dumps(READ["manifest"][1] | {"brand_new": 1}))
    with pytest.raises(InputError, match=r"does not know.*brand_new") as caught:
        read_json(path, Manifest, "manifest")
    assert "pip install --upgrade" in caught.value.hint and "restore" in caught.value.hint


@pytest.mark.parametrize("schema", ["seven", 1.5, True, None, [], 0, -1])
def test_a_version_that_is_none_is_damage(schema: object, tmp_path: Path) -> None:
    (tmp_path / "manifest.json").write_text(json.dumps(READ["manifest"][1] | {"schema": schema}))
    with pytest.raises(InputError) as caught:
        RunDirectory(tmp_path).manifest()
    assert "restore it" in caught.value.hint and "upgrade" not in caught.value.hint


def test_a_command_that_opens_such_a_run_says_it(tmp_path: Path) -> None:
    shutil.copytree(KNOWN_GOOD, tmp_path / "run")
    assert RunDirectory(tmp_path / "run").manifest().schema == 1
    newer = READ["manifest"][1] | {"schema": 2, "brand_new": 1, "kit_version": "9.1.0"}
    (tmp_path / "run" / "manifest.json").write_text(json.dumps(newer))
    done = kit_here("analyze", tmp_path / "run")
    assert done.returncode == 2 and "was written by sme2-kit 9.1.0 with schema 2" in done.stderr, done.stderr
    assert "pip install --upgrade" in done.stderr
