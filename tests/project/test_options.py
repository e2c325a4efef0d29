"""Every option of an export is on every surface that its row names, and a new row is all that a new one needs."""

import asyncio
import inspect
import os
import subprocess
import sys
import typing
from pathlib import Path
from typing import Any

import pytest

import sme2_kit
from model_profiling.api.definition import find
from model_profiling.cli import export as export_command
from model_profiling.cli.arguments import keywords
from model_profiling.export import options
from model_profiling.export.options import DECIDING, OPTIONS, ExportKeywords, Option, ProfileKeywords, TuneKeywords
from model_profiling.export.request import ExportRequest, arguments, recorded, typed
from model_profiling.store.artifacts import Delegation, ExportRecord
from tests.conftest import ROOT
from tests.helpers.parsers import parser_of

VERBS = typing.get_args(options.Verb)
KEYWORDS = {"export": ExportKeywords, "profile": ProfileKeywords, "numerics": ProfileKeywords, "tune": TuneKeywords}
EVERY = pytest.mark.parametrize("row", OPTIONS, ids=lambda row: row.name)
# A new row, and its line for type checkers.
DUMMY = '    dummy: Annotated[bool, Option("what a new option does", _ALL)] = False\n'
ROW, LINE = "    save_graph: Annotated[", "    seed: int\n"


def other(row: Option, folder: Path) -> Any:
    """A value that is not the default."""
    one = next((choice for choice in row.choices if choice != row.default), "a layer")
    found: dict[type, Any] = {bool: not row.default, int: 7, str: one, Path: folder}
    return (one,) if row.repeated else found[row.kind]


def request(tmp_path: Path, **given: Any) -> ExportRequest:
    return ExportRequest("toy_cnn", tmp_path, target="toy_cnn", **given)


def on_record(asked: ExportRequest) -> ExportRecord:
    facts: dict[str, Any] = {"source": "", "weights": "", "created": "", "delegation": Delegation(0, 0, 0, [])}
    facts |= {"inputs": [], "outputs": [], "versions": {}, "files": {}, "stage_seconds": {}}
    return ExportRecord(model=asked.model, request=asked.record("registry"), **facts, **asked.recorded("export"))


@EVERY
def test_every_command_of_a_row_has_its_flag_and_no_other_has(row: Option, tmp_path: Path) -> None:
    for verb in VERBS:
        flags = {action.dest: action for action in parser_of(verb)._actions}
        assert (row.name in flags) == (verb in row.verbs), verb
        if verb in row.verbs:
            assert row.flag in flags[row.name].option_strings
            words = row.words(other(row, tmp_path))
            given = keywords(parser_of(verb).parse_args(words), [*find(f"@{verb}")])
            assert row.read(given[row.name]) == other(row, tmp_path)


@EVERY
def test_every_function_of_a_row_has_its_keyword_with_the_default_of_the_command(row: Option) -> None:
    for verb, names in KEYWORDS.items():
        parameters = inspect.signature(getattr(sme2_kit, verb)).parameters
        assert (row.name in parameters) == (verb in row.verbs) == (row.name in names.__annotations__), verb
        if row.name in parameters:
            assert parameters[row.name].default == options.settled(verb, {})[row.name]  # type: ignore[arg-type]
        else:
            with pytest.raises(TypeError, match=rf"{verb}\(\) got an unexpected keyword argument '{row.name}'"):
                getattr(sme2_kit, verb)("toy_cnn", **{row.name: None})


@pytest.fixture(scope="module")
def tools(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Any]:
    """The schema of the parameters of each tool."""
    pytest.importorskip("mcp")
    from model_profiling.mcp_server.server import build_server

    listed = asyncio.run(build_server(tmp_path_factory.mktemp("workspace")).list_tools())
    return {tool.name: tool.input_schema["properties"] for tool in listed}


@EVERY
def test_every_tool_of_a_row_has_its_parameter(row: Option, tools: dict[str, Any], tmp_path: Path) -> None:
    from model_profiling.mcp_server.boundary import Workspace
    from model_profiling.mcp_server.tool_table import TOOLS
    from model_profiling.mcp_server.tools import Tools

    for verb in VERBS:
        properties = tools[verb]
        assert (row.name in properties) == (verb in row.verbs), verb
        if row.name in properties:
            assert row.help_of(verb)[1:] in properties[row.name]["description"]
            (tmp_path / "samples").mkdir(exist_ok=True)
            value = row.plain(other(row, Path("samples")))
            words = Tools(Workspace(tmp_path)).words(next(t for t in TOOLS if t.name == verb), {row.name: value})
            given = keywords(parser_of(verb).parse_args(words), [*find(f"@{verb}")])
            assert row.read(given[row.name]) == other(row, tmp_path / "samples")


@EVERY
def test_what_decides_enters_the_cache_key_the_record_and_the_printed_commands(row: Option, tmp_path: Path) -> None:
    from model_profiling.export.cache import describe

    (tmp_path / "sample.npy").write_bytes(b"a sample")
    usual, asked = request(tmp_path), request(tmp_path, **{row.name: other(row, tmp_path)})
    assert (describe(asked) != describe(usual)) == row.decides
    record = on_record(asked)
    assert record.request is not None
    again = recorded(record, record.request)
    words = typed(again)[2:]
    if row.decides:
        assert again == asked and row.flag in words
        parsed = export_command.export_request(parser_of("export").parse_args([*words, "--outdir", str(tmp_path)]))
        assert parsed == asked
        call = eval(f"dict({arguments(asked)})")
        assert request(tmp_path, **call) == asked
    else:
        assert row.flag not in words and row.name not in arguments(asked)


@EVERY
def test_history_keeps_apart_what_was_exported_in_another_way(row: Option, tmp_path: Path) -> None:
    import msgspec

    from model_profiling.fleet.history import run_rows

    def variant(**given: Any) -> str:
        written = msgspec.json.encode(on_record(request(tmp_path, **given)))
        return run_rows._variant(msgspec.json.decode(written, type=run_rows._Export))

    kept_apart = row in DECIDING and row.tells_apart
    assert variant() == "" and (row.title in variant(**{row.name: other(row, tmp_path)})) == kept_apart


@pytest.mark.wide
def test_a_new_row_is_all_that_a_new_option_needs(tmp_path: Path) -> None:
    """The tests above, in a process whose table has one row more."""
    table = Path(options.__file__).read_text(encoding="utf-8")
    if "dummy" in table:
        pytest.skip("this is that process")
    changed = table.replace(ROW, DUMMY + ROW).replace(LINE, f"{LINE}    dummy: bool\n", 1)
    (tmp_path / "options.py").write_text(changed, encoding="utf-8")
    program = """if True:
        import importlib.util, sys
        name, path, *words = sys.argv[1:]
        spec = importlib.util.spec_from_file_location(name, path)
        sys.modules[name] = importlib.util.module_from_spec(spec)
        spec.loader.exec_module(sys.modules[name])
        import model_profiling.export, pytest
        model_profiling.export.options = sys.modules[name]
        sys.exit(pytest.main(words))
    """
    words = [options.__name__, str(tmp_path / "options.py"), "-q", "-k", "dummy", "-p", "no:cacheprovider", __file__]
    environment = {**os.environ, "PYTHONPATH": str(ROOT)}
    command = [sys.executable, "-c", program, *words]
    done = subprocess.run(command, cwd=ROOT, env=environment, capture_output=True, text=True, check=False)
    assert done.returncode == 0 and "5 passed" in done.stdout, done.stdout + done.stderr
