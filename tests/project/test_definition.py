"""A parameter is said once: where a verb has one more, every surface has it."""

import json
import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from tests.conftest import ROOT

_NEW = '    dummy: Annotated[int | None, "what a new parameter does", Parameter("N", least=3)] = None,\n'
_PLACE = "    only: p.Only = None,\n"
# What carries it out: the key of a config that it is.
_KEY, _BEHIND = "    dummy: int | None = None\n", "    keep_program: bool = True\n"
_IMPORT = "from model_profiling.api import parameters as p\n"
_LOOK = """if True:
    import asyncio, inspect, json, sys, tempfile
    from pathlib import Path
    import sme2_kit
    from model_profiling.api.measuring import config_keys
    from model_profiling.cli.main import make_parser
    from model_profiling.schemas.contracts import schema_named
    from model_profiling.mcp_server.server import build_server
    sys.path.insert(0, sys.argv[1])
    from api_signatures import parameter_rows

    (commands,) = [each for each in make_parser(["run"])._actions if getattr(each, "choices", None)]
    listed = asyncio.run(build_server(Path(tempfile.mkdtemp())).list_tools())
    found = {
        "help": commands.choices["run"].format_help(),
        "read": make_parser(["run"]).parse_args(["run", "a.pte", "--dummy", "7"]).dummy,
        "signature": str(inspect.signature(sme2_kit.run)),
        "tool": next(tool.input_schema["properties"] for tool in listed if tool.name == "run").get("dummy"),
        "schema": schema_named("config")["$defs"]["Config"]["properties"].get("dummy"),
        "keys": config_keys({"dummy": 7, "runs": 3, "label": None}),
        "page": [row for row in parameter_rows(sme2_kit.run) if "dummy" in row],
    }
    print(json.dumps(found))
"""


@pytest.mark.wide
def test_a_parameter_that_is_added_in_one_file_and_a_key_in_another_are_on_every_surface(tmp_path: Path) -> None:
    for package in ("model_profiling", "sme2_kit", "agent_skill_ml_profiling"):
        ignored = shutil.ignore_patterns("out_*", "__pycache__", "*.etdump")
        shutil.copytree(ROOT / package, tmp_path / package, ignore=ignored)
    verb = tmp_path / "model_profiling" / "api" / "verbs.py"
    text = verb.read_text(encoding="utf-8")
    assert text.count(_PLACE) == text.count(_IMPORT) == 1
    more = "from typing import Annotated\nfrom model_profiling.api.parameter import Parameter\n"
    verb.write_text(text.replace(_PLACE, _NEW + _PLACE).replace(_IMPORT, _IMPORT + more), encoding="utf-8")
    config = tmp_path / "model_profiling" / "pipeline" / "config_types.py"
    text = config.read_text(encoding="utf-8")
    assert text.count(_BEHIND) == 1
    config.write_text(text.replace(_BEHIND, _BEHIND + _KEY), encoding="utf-8")
    environment = {**os.environ, "PYTHONPATH": str(tmp_path)}
    command = [sys.executable, "-c", _LOOK, str(ROOT / "docs")]
    done = subprocess.run(command, cwd=tmp_path, env=environment, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    found = json.loads(done.stdout)
    assert "--dummy N" in found["help"] and "what a new parameter does" in found["help"] and found["read"] == 7
    assert "dummy: int | None = None" in found["signature"]
    assert found["tool"]["description"] == "What a new parameter does." and found["tool"]["anyOf"][0]["minimum"] == 3
    assert found["schema"]["anyOf"][0] == {"type": "integer"} and found["keys"] == {"dummy": 7}
    (row,) = found["page"]
    assert "`--dummy`" in row and "What a new parameter does." in row
