"""What the server says of its tools, prompts and resources, and that it is so: for every tool, whichever there are."""

import json
import shutil
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import anyio
import jsonschema
import pytest
from mcp import Client

from model_profiling.base.errors import InputError
from model_profiling.cli.main import COMMANDS
from model_profiling.export.options import OPTIONS
from model_profiling.mcp_server import tools as tools_module
from model_profiling.mcp_server.boundary import Workspace
from model_profiling.mcp_server.server import SCHEME, build_server
from model_profiling.mcp_server.tool_table import TOOLS
from model_profiling.mcp_server.tools import _RUN
from model_profiling.skills.catalogue import skills
from tests.conftest import ROOT
from tests.helpers.planted import plant, snapshot

# What a person does at a terminal and an assistant has other ways for. Sweeps and validations take longer than a call.
NOT_TOOLS = {
    *("build", "clean", "completions", "mcp", "new-model", "quicktest", "schema", "skills", "sweep", "targets"),
    "validate-forecast",
}
KNOWN_GOOD = ROOT / "tests" / "data" / "known_good_run"
READ_ONLY = {"doctor", "forecast", "history", "models", "roofs", "runs", "validate", "what_if"}


def ask_all(workspace: Path, requests: list[tuple[Any, ...]]) -> list[Any]:
    """Requests to a server in this process, each a method of the client and its arguments."""

    async def talk() -> Any:
        async with Client(build_server(workspace)) as client:
            return [await getattr(client, method)(*arguments) for method, *arguments in requests]

    answers: list[Any] = anyio.run(talk)
    return answers


def ask(workspace: Path, method: str, *arguments: Any) -> Any:
    return ask_all(workspace, [(method, *arguments)])[0]


@pytest.fixture(scope="module")
def tools() -> dict[str, Any]:
    return {tool.name: tool for tool in ask(Path(), "list_tools").tools}


def test_every_command_that_answers_is_a_tool(tools: dict[str, Any]) -> None:
    wanted = {name.replace("-", "_") for name in COMMANDS if name not in NOT_TOOLS}
    assert set(tools) == wanted | {"compare_runtimes", "profile", "what_if"}


def test_every_tool_is_described_and_all_that_it_takes_and_answers_has_a_type(tools: dict[str, Any]) -> None:
    for tool in tools.values():
        assert len(tool.description) > 20 and "\n" not in tool.description and "  " not in tool.description
        taken, answered = tool.input_schema, tool.output_schema
        assert taken["additionalProperties"] is False
        assert all(len(each.get("description", "")) > 15 for each in taken["properties"].values()), tool.name
        assert answered["type"] == "object" and answered["required"]
        for schema in (taken, answered):
            jsonschema.Draft202012Validator.check_schema(schema)
            for definition in [schema, *schema.get("$defs", {}).values()]:
                for name, field in definition.get("properties", {}).items():
                    assert field.keys() & {"type", "anyOf", "enum", "$ref", "const"}, f"{tool.name}: {name} is anything"


def test_hints_say_what_a_tool_may_change(tools: dict[str, Any]) -> None:
    for name, tool in tools.items():
        hints = tool.annotations
        assert None not in (hints.read_only_hint, hints.destructive_hint, hints.idempotent_hint, hints.open_world_hint)
        assert hints.read_only_hint == (name in READ_ONLY)
        assert not (hints.read_only_hint and hints.destructive_hint)
        # What can be told to do its work again does something the second time.
        assert hints.idempotent_hint == ("force" not in tool.input_schema["properties"]), name
    assert {name for name, tool in tools.items() if tool.annotations.open_world_hint} == {"run"}
    for row in TOOLS:  # clients do not ask before they call what only reads, and what runs code may do anything
        assert row.name not in READ_ONLY or not {each.kind for each in row.parameters} & _RUN.keys(), row.name
    assert {"run", "export", "profile", "tune"} <= {n for n, tool in tools.items() if tool.annotations.destructive_hint}


def test_a_tool_that_reads_changes_nothing_whatever_unfinished_work_is_there(tmp_path: Path) -> None:
    run = Path(shutil.copytree(KNOWN_GOOD, tmp_path / "space" / "run"))
    plant(run)
    (tmp_path / "space" / "net.py").write_text("open('ran', 'w')\nclass Net: pass\n")
    (tmp_path / "space" / "net.pte").write_bytes(b"")
    before = snapshot(tmp_path / "space")
    arguments: dict[str, dict[str, Any]] = {
        **{name: {"run_dir": "run"} for name in ("runs", "validate", "forecast")},
        "what_if": {"run_dir": "run", "speedups": {"CONV": 2}},
        "history": {"question": "list"},
        **{name: {} for name in ("doctor", "models", "roofs")},
    }
    assert arguments.keys() == READ_ONLY
    asked: list[tuple[str, dict[str, Any]]] = [
        *arguments.items(),
        ("compare", {"before": "run", "after": "run"}),
        *((n, {"run_dir": p}) for n in ("forecast", "runs") for p in ("net.py:Net", "net.pte")),
    ]
    told = ask_all(tmp_path / "space", [("call_tool", name, words) for name, words in asked])
    assert snapshot(tmp_path / "space") == before
    assert not any("Traceback" in result.content[0].text for result in told)


def test_choices_are_those_of_the_kit(tools: dict[str, Any]) -> None:
    parameters = tools["export"].input_schema["properties"]
    for row in OPTIONS:
        assert not row.choices or json.dumps(list(row.choices)) in json.dumps(parameters[row.name]), row.name


def test_a_misspelt_or_impossible_argument_is_refused_by_every_tool(tools: dict[str, Any], tmp_path: Path) -> None:
    samples = {"string": "x", "object": {"CONV": 2}, "array": ["eager"]}
    wrong: list[tuple[str, str, dict[str, Any]]] = []
    for name, tool in tools.items():
        properties, required = tool.input_schema["properties"], tool.input_schema.get("required", [])
        enough = {each: samples[properties[each]["type"]] for each in required}
        wrong.append((name, "rewrite", {**enough, "rewrite": ["keepdim"]}))
        counts = [each for each in ("runs", "threads", "launches", "budget_s") if each in properties]
        wrong += [(name, each, {**enough, each: 0}) for each in counts]
    results = ask_all(tmp_path, [("call_tool", name, arguments) for name, _, arguments in wrong])
    for (name, parameter, _), result in zip(wrong, results, strict=True):
        told = result.content[0].text
        assert result.is_error and parameter in told and "\nfix: " in told, f"{name}.{parameter}"
        assert "pydantic" not in told and "(exit code 2)" in told
    assert not list(tmp_path.iterdir())


def _texts(schema: dict[str, Any], types: dict[str, Any]) -> Iterator[Callable[[str], Any]]:
    """Every place of a parameter that takes any text, as a function that makes the argument."""
    schema = types[schema["$ref"].rpartition("/")[2]] if "$ref" in schema else schema
    for each in schema.get("anyOf", []):
        yield from _texts(each, types)
    if schema.get("type") == "string" and "enum" not in schema:
        yield str
    if schema.get("type") == "array":
        yield from ((lambda text, make=make: [make(text)]) for make in _texts(schema["items"], types))
    if schema.get("type") == "object" and isinstance(schema.get("additionalProperties"), dict):
        yield lambda text: {text: 2}
        yield from (
            (lambda text, make=make: {"a": make(text)}) for make in _texts(schema["additionalProperties"], types)
        )


class Calls:
    """Every call with a text of ours in one parameter and enough in the others; commands are noted, and not run."""

    def __init__(self, tools: dict[str, Any], patch: pytest.MonkeyPatch) -> None:
        self.tools = tools
        self.words: list[str] = []

        async def run_kit(words: list[str], *_: Any, **_accepted: Any) -> Any:
            self.words = words
            raise InputError("a command is run", "")

        patch.setattr(tools_module, "run_kit", run_kit)

    def make(self, workspace: Path, text: str) -> list[tuple[str, str, str, list[str]]]:
        """Each tool and parameter, what the call was answered with, and the words of the command that it came to."""

        async def talk() -> list[tuple[str, str, str, list[str]]]:
            found = []
            async with Client(build_server(workspace)) as client:
                for name, parameter, arguments in self._arguments(text):
                    self.words = []
                    told = (await client.call_tool(name, arguments)).content[0].text  # type: ignore[union-attr]
                    found.append((name, parameter, told, self.words))
            return found

        return anyio.run(talk)

    def _arguments(self, text: str) -> Iterator[tuple[str, str, dict[str, Any]]]:
        samples = {"string": "net.pte", "object": {"CONV": 2}, "array": ["eager"]}
        for name, tool in self.tools.items():
            properties = tool.input_schema["properties"]
            enough = {each: properties[each].get("enum", [None])[0] for each in tool.input_schema.get("required", [])}
            enough = {each: value or samples[properties[each]["type"]] for each, value in enough.items()}
            enough |= {"model": "toy_cnn"} if "dtype" in properties and "model" in enough else {}
            enough |= {"name": "03_export_model"} if name == "validate_skill" else {}
            for parameter, shape in properties.items():
                for make in _texts(shape, tool.input_schema.get("$defs", {})):
                    more = {"model": "net.pte"} if name == "run" and parameter != "config" else {}
                    yield name, parameter, {**enough, **more, parameter: make(text)}


# Text that becomes no part of a path: a command may get it as it is.
TEXTS = {("report", "title"), ("what_if", "speedups"), ("history", "labels"), ("run", "labels")}


# Names that a command looks up elsewhere than among the files of its folder, which may have a file of that name.
NAMES = {"dtype", "experiments", "keep_fp32", "label", "leave_out", "method", "model", "platform", "since"}


@pytest.fixture
def workspace(tmp_path: Path) -> Path:
    """A workspace with links that lead out of it, wherever a default would lead to."""
    outside, home = tmp_path / "outside", tmp_path / "work"
    for folder in (outside / "artifacts", outside / "runs" / "linux", home):
        folder.mkdir(parents=True)
    (outside / "net.py").write_text("import torch\nclass Net(torch.nn.Module): pass\n")
    for name in ("x.pte", "x.npy", "manifest.json"):
        (outside / name).write_bytes(b"")
    (home / "net.pte").write_bytes(b"")
    for name in ("link", "out_link", "out_link.pte"):
        (home / name).symlink_to(outside)
    (home / "link.py").symlink_to(outside / "net.py")
    return home


ESCAPES = (
    *("../outside", "/etc", "/etc/hosts", "toy_cnn/../../outside", "x/../../outside/net.py:Net", "link/net.py:Net"),
    *("link", "link.py:Net", "link/x.pte", "~", "~/x.pte", "link@x", "link:x", "-", "--out=/etc", "x\n/etc"),
)


@pytest.mark.parametrize("text", ESCAPES)
def test_no_text_of_any_tool_leads_out_of_the_workspace(
    text: str, tools: dict[str, Any], workspace: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    before = sorted(workspace.parent.rglob("*"))
    seen = 0
    for name, parameter, told, words in Calls(tools, monkeypatch).make(workspace, text):
        seen += 1
        assert "(exit code 2)" in told and "Error executing" not in told.replace(f"Error executing tool {name}: ", "")
        if (name, parameter) in TEXTS or parameter == "settings":
            continue
        for word in words:
            # `--flag=path`, `path:Class` and `DIR:EXPERIMENT`, seen from where the command runs.
            value = word.partition("=")[2] if word.startswith("--") else word
            for path in (value, value.rpartition(":")[0]):
                real = (workspace / path).resolve()
                by_name = value == text == "link" and parameter in NAMES
                assert real.is_relative_to(workspace) or by_name, (name, parameter, words)
    assert seen > 60 and sorted(workspace.parent.rglob("*")) == before


@pytest.mark.parametrize(
    "text", ["a\0b", "\ud800", "x" * 5000, "x" * 20_000_000], ids=["zero", "half", "long", "20 MB"]
)
def test_text_that_no_command_can_take_is_refused_by_its_parameter(
    text: str, tools: dict[str, Any], workspace: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    boundary = Workspace(workspace)
    for value in (text, [text], {"a": text}, {text: "a"}):
        for is_text in (True, False):
            with pytest.raises(InputError, match=r"^model (has a zero byte|is \d+ characters long)"):
                boundary.check("model", value, is_text)
    if len(text) > 5000:
        told = ask(workspace, "call_tool", "profile", {"model": text}).content[0].text
        assert "model is 20000000 characters long" in told and len(told) < 1000
        return
    # No client sends half a character as UTF-8.
    for _, parameter, told, words in Calls(tools, monkeypatch).make(workspace, text) if text != "\ud800" else ():
        assert not words and parameter in told and "(exit code 2)" in told and len(told) < 2000


def test_what_is_too_much_is_refused_before_a_command_is_run(workspace: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    calls = Calls({}, monkeypatch)
    for arguments, why in (
        ({"speedups": {f"op{n}": 2 for n in range(20_000)}}, "speedups has 20000 entries"),
        ({"speedups": {"x" * 4000 + str(n): 2 for n in range(100)}}, "the arguments of the call are too long"),
        ({"speedups": {"CONV": 1e-320}}, "cannot take speedups=1e-320: should be greater than or equal to 0.000001"),
        ({"speedups": {"CONV": 1e300}}, "should be less than or equal to"),
    ):
        told = ask(workspace, "call_tool", "what_if", {"run_dir": ".", **arguments}).content[0].text
        assert why in told and not calls.words, told


def test_an_error_says_what_is_wrong_its_fix_and_its_exit_code(tmp_path: Path) -> None:
    told = ask(tmp_path, "call_tool", "profile", {"modle": "x", "runs": "many"}).content[0].text
    assert "profile needs the parameter 'model'" in told and "no parameter 'modle'; did you mean 'model'?" in told
    assert (
        "cannot take runs='many': should be a valid integer" in told and "profile takes: model, input_shapes," in told
    )
    text = ask(tmp_path, "call_tool", "export", {"model": "toy_cnm"}).content[0].text
    assert "no model called 'toy_cnm'" in text and "\nfix: Did you mean toy_cnn" in text and "(exit code 2)" in text


def test_the_playbooks_are_prompts_and_resources(tmp_path: Path) -> None:
    known = {skill.name: skill for skill in skills()}
    assert len(known) == 8
    listed = ask_all(tmp_path, [("list_prompts",), ("list_resources",)])
    prompts = {prompt.name: prompt for prompt in listed[0].prompts}
    resources = {str(resource.uri): resource for resource in listed[1].resources}
    assert set(prompts) == set(known) and set(resources) == {f"{SCHEME}{name}" for name in known}
    texts = ask_all(tmp_path, [("read_resource", f"{SCHEME}{name}") for name in known])
    for (name, skill), read in zip(known.items(), texts, strict=True):
        (argument,) = prompts[name].arguments
        assert skill.description in prompts[name].description and argument.description and not argument.required
        (part,) = read.contents
        assert part.text == skill.body and part.mime_type == "text/markdown"
    (message,) = ask(tmp_path, "get_prompt", "03_export_model", {"subject": "net.py:Net"}).messages
    assert "net.py:Net" in message.content.text and known["03_export_model"].body in message.content.text


def test_scripts_of_the_playbooks_have_a_tool_that_stands_for_them(tools: dict[str, Any]) -> None:
    """The text before each playbook says which tool to call for a script; none may be missing."""
    from model_profiling.mcp_server import server

    scripts = {path.name for path in (ROOT / "model_profiling" / "scripts").glob("*.py")}
    scripts |= {"export_model.py"}
    for name in scripts:
        used = any(name in skill.body for skill in skills())
        covered = name in server._WITH_TOOLS or name in {"run_quick_test.py"}
        assert covered or not used, f"{name} is in a playbook and has no tool"
