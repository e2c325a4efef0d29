"""`sme2-kit targets`: the machines that forecasts know, and where each of their numbers is from."""

import asyncio
import json
from pathlib import Path

import msgspec
import pytest

from model_profiling.analysis.sme2.target import kit_targets, targets
from tests.analysis.test_target import measured_roofs
from tests.helpers.contract_check import check_printed
from tests.helpers.kit_here import kit_here


def said(*words: object) -> str:
    done = kit_here("targets", *words)
    assert done.returncode == 0
    return done.stdout


def test_all_are_listed_with_what_is_known_of_them() -> None:
    lines = said().splitlines()
    for target in kit_targets():
        (line,) = [line for line in lines if line.split()[:1] == [target.name]]
        rates = f"{target.sme2['fp32'].value:g} : {target.neon['fp32'].value:g}"
        assert target.cpu in line and ", ".join(target.dtypes) in line and rates in line


@pytest.mark.parametrize("name", targets())
def test_every_number_of_one_has_its_range_kind_and_source(name: str) -> None:
    text = said(name)
    (target,) = [target for target in kit_targets() if target.name == name]
    assert target.about in text and all(result in text for result in target.derived_from)
    lines = text.splitlines()
    for number, figure in target.figures().items():
        (line,) = [line for line in lines if line.startswith(f"  {number}  ")]
        assert all(part in line for part in (f"{figure.value:g}", figure.unit, figure.kind, figure.source))
        assert figure.low is None or f"{figure.low:g} to {figure.high:g}" in line


def test_as_json_they_are_what_the_schema_says() -> None:
    listed = json.loads(said("--json"))
    assert [target["name"] for target in listed] == targets()
    for target in [*listed, json.loads(said("apple_m4", "--json"))]:
        check_printed("target", target)


def test_a_file_is_described_and_measured_roofs_have_a_command_of_their_own(tmp_path: Path) -> None:
    own = tmp_path / "own.json"
    own.write_bytes(msgspec.json.encode(msgspec.structs.replace(kit_targets()[0], name="mine", threads=None)))
    assert said(own).startswith("mine: ")
    (tmp_path / "roofs.json").write_bytes(msgspec.json.encode(measured_roofs(4.0)))
    done = kit_here("targets", tmp_path / "roofs.json")
    assert done.returncode == 2 and "sme2-kit roofs show" in done.stderr


def test_assistants_are_offered_the_same_targets(tmp_path: Path) -> None:
    server = pytest.importorskip("model_profiling.mcp_server.server")
    (tool,) = [tool for tool in asyncio.run(server.build_server(tmp_path).list_tools()) if tool.name == "forecast"]
    assert all(f"'{name}'" in str(tool.input_schema["properties"]["target"]) for name in (*targets(), "all"))
