"""The MCP server, driven by the official client over standard input and output: what it reads, refuses and ends."""

import json
import os
import shutil
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import anyio
import pytest

from model_profiling.base.errors import InputError
from model_profiling.mcp_server.boundary import Workspace
from model_profiling.mcp_server.tool_table import TOOLS
from model_profiling.mcp_server.tools import LONGEST_ANSWER, ProgressCounter, Tools, limited, settings_words
from model_profiling.pipeline.config import json_schema as config_schema
from model_profiling.report.kernel_view import kernels_data
from sme2_kit import Run
from tests.conftest import QUICK, ROOT, kit, needs_hardware
from tests.helpers.mcp_client import Assistant, drive
from tests.helpers.numerics_forge import layer as forged_layer
from tests.helpers.numerics_forge import numerics as forged_numerics
from tests.helpers.waiting import LONGEST_S

KNOWN_GOOD = ROOT / "tests" / "data" / "known_good_run"


def test_reading_tools_on_a_known_run(tmp_path: Path) -> None:
    run = tmp_path / "run"
    shutil.copytree(KNOWN_GOOD, run)

    async def conversation(assistant: Assistant) -> None:
        call, refused = assistant.call, assistant.refused
        prediction = await call("what_if", run_dir="run", speedups={"CONV": 3})
        assert all(entry["label"] == "prediction" for entry in prediction["predictions"].values())
        assert "had SME2" in await refused("forecast", run_dir="run", emulated_dir="run")
        everywhere = await call("forecast", run_dir="run", target="all")
        assert everywhere["total"] == len(everywhere["targets"]) > 1 and all(
            e["why_not"] for e in everywhere["targets"]
        )
        report = await call("report", run_dir="run", html=False, title="A title")
        assert "run/report.md" in report["files"] and "A title" in (run / "report.md").read_text()
        analysed = await call("analyze", run_dir="run", most=2)
        assert analysed["left_out"] and all(len(lines) <= 2 for lines in analysed["lines"].values())
        names = list(analysed["experiments"])
        on, off = sorted(names, key=lambda name: name.endswith("off"))
        slower = await call("compare", before=f"run:{on}", after=f"run:{off}", fail_if_slower=5)
        assert slower["exit_code"] == 1 and slower["comparisons"]
        assert "its own baseline" in await refused("compare", before="run", after="run", fail_if_slower=5)
        assert "no run directory" in await refused("analyze", run_dir="nowhere")
        listed = await call("history", question="list", model="toy_cnn")
        assert [entry["path"] for entry in listed["runs"]] == ["run"] and listed["total"] == 1
        trend = await call("history", question="trend", model="toy_cnn")
        points = [each["points"] for each in trend["trend"][0]["series"]]
        assert all(len(each) == 1 and each[0]["path"] == "run" for each in points)
        assert (await call("history", question="top", most=2))["operators"][0]["category"] == "CONV"
        assert (await call("history", question="coverage", below=50))["coverage"][0]["percent"] is None
        assert (await call("history", question="regressions", labels={"branch": "main"}))["steps"] == []
        assert (await call("validate_skill", name="05_analyze_results", run_dir="run"))["ok"]
        missing = await call("validate_skill", name="03", model="nothing", out=".")
        assert missing["skill"] == "03_export_model" and not missing["ok"]
        (run / "metrics.json").unlink()
        broken = await call("validate", run_dir="run", files=["run/report.md"])
        assert not broken["valid"] and any("metrics.json" in problem for problem in broken["problems"])

    drive(tmp_path, conversation)


def test_an_answer_has_a_limit_and_says_what_is_left_out_of_it() -> None:
    rows = [{"places": [{"name": "x" * 100}] * 50, "nodes": [1], "shape": [1] * 50}] * 2000
    for most in (10, 1000):
        answer = limited({"rows": rows}, most, ("nodes",))
        shown = len(answer["rows"])
        assert len(json.dumps(answer, separators=(",", ":"))) <= LONGEST_ANSWER and 10 <= shown <= most
        assert answer["left_out"]["rows"] == 2000 - shown and answer["left_out"]["rows.places"] == 50 - shown
        assert answer["rows"][0]["nodes"] == [] and len(answer["rows"][0]["shape"]) == 50


def test_layers_and_roofs_are_answered_with_what_is_read_of_them_first() -> None:
    rows = {row.name: row for row in TOOLS}
    found = forged_numerics([forged_layer(n, 40.0 - n) for n in range(30)])
    beside = {name: make(found) for name, make in rows["numerics"].made.items()}
    assert beside == {"alarms": found.alarms, "worst": found.worst} and beside["worst"][0].index == 29
    assert set(rows["roofs"].made) == {"rows", "kinds"} and rows["roofs"].cut == ("measurements",)


def test_paths_stay_inside_the_workspace(tmp_path: Path) -> None:
    """Every text of every tool is in test_tools.py; here a server that is a process, and names with a meaning."""
    workspace, outside = tmp_path / "work", tmp_path / "outside"
    workspace.mkdir()
    shutil.copytree(KNOWN_GOOD, outside)
    (workspace / "out_toy_cnn").symlink_to(outside)
    (workspace / "net.pte").write_bytes(b"")

    async def conversation(assistant: Assistant) -> None:
        for tool, words in (
            ("report", {"run_dir": str(outside)}),
            ("compare", {"before": "net.pte", "executorch": ["1.5.0", "../outside"]}),
            ("compare", {"before": "net.pte", "executorch": ["1.5.0,../outside"]}),
            ("compare_runtimes", {"model": "net.pte", "runtimes": ["../outside/a.onnx"]}),
            ("compare_runtimes", {"model": "net.pte", "runtimes": ["eager,../outside/a.onnx"]}),
            # Where the default would lead out, through a link that was there before.
            ("export", {"model": "toy_cnn"}),
            ("compare", {"before": ".:../../outside/linux_fp16arith_on", "after": "."}),
        ):
            assert "outside the workspace" in await assistant.refused(tool, **words)

    drive(workspace, conversation)
    assert not (outside / "report.md").exists() and not (outside / "artifacts").exists()


def test_the_boundary_follows_links_and_refuses_what_is_no_path(tmp_path: Path) -> None:
    workspace = Workspace(tmp_path)
    assert workspace.inside(".") == tmp_path.resolve()
    assert workspace.inside("a/../b") == tmp_path.resolve() / "b"
    assert workspace.model("toy_cnn") == "toy_cnn"
    assert workspace.relative(tmp_path / "a" / "b") == "a/b"
    (tmp_path / "loop").symlink_to(tmp_path / "loop")
    for text in ("..", "\0", f"{tmp_path}-sibling", "loop/../..", "~", "~nobody-has-this-name/x"):
        with pytest.raises(InputError):
            workspace.inside(text)
    here = tmp_path.resolve()
    assert workspace.model("a/../~/net.py:Net") == f"{here}/~/net.py:Net"
    assert workspace.word("release", "1.5.0,1.5.1rc1,own") == f"1.5.0,1.5.1rc1,{here}/own"
    assert workspace.word("runtime", "eager,a.onnx") == f"eager,{here}/a.onnx"
    for text in ("net.py", "a/b", "../net.py:Net", "~/net.py:Net", "~root/net.py:Net"):
        with pytest.raises(InputError):
            workspace.model(text)


def test_a_model_has_the_directory_that_the_command_line_gives_it(tmp_path: Path) -> None:
    (tmp_path / "net.py").write_text("import torch\nclass Net(torch.nn.Module): pass\n")
    tools, export = Tools(Workspace(tmp_path)), next(row for row in TOOLS if row.name == "export")
    for model, settings, home in (
        ("net.py:Net", None, "out_net"),
        ("net.py:Net", {"width": 8, "depth": 2}, "out_net_depth2_width8"),
        ("toy_cnn", {}, "out_toy_cnn"),
    ):
        assert tools.place(export, {"model": model, "settings": settings}) == tmp_path.resolve() / home / "artifacts"
    for value, words in ((True, "True"), ("relu", "relu"), ("12", "'12'"), ("true", "'true'"), ([1, 2], "[1, 2]")):
        assert settings_words({"key": value}) == [f"--set=key={words}"]


@pytest.mark.parametrize(("timing", "expected"), [("measured", "traced"), ("emulated", "emulated")])
def test_kernels_say_what_ran_them(timing: str, expected: str, tmp_path: Path) -> None:
    home = tmp_path / "run"
    shutil.copytree(KNOWN_GOOD, home)
    raw = json.loads((home / "manifest.json").read_text())
    raw["timing"] = timing
    (home / "manifest.json").write_text(json.dumps(raw))
    data = kernels_data(Run.open(home))
    assert data.timing == expected


def test_a_workspace_that_is_none_is_an_error(tmp_path: Path) -> None:
    done = kit("mcp", "--workspace", tmp_path / "nowhere")
    assert done.returncode == 2 and "not a directory" in done.stderr


# Keys of a config whose text is no path. A key that is in neither list is a question to whoever adds it.
_NO_PATHS = {
    *("experiments[].name", "experiments[].mode", "experiments[].disable_features[]", "experiments[].page_cache"),
    *("experiments[].workspace", "experiments[].method", "experiments[].phase.kind", "experiments[].launch_prefix[]"),
    *("experiments[].affinity", "analysis.compare_pairs[][]", "label", "labels.*", "comment", "$schema"),
}


def _text_keys(schema: dict[str, Any], types: dict[str, Any], at: str = "") -> Iterator[tuple[str, bool]]:
    """Every place of a document that may hold text, and whether the schema says that it is a path."""
    schema = types[schema["$ref"].rpartition("/")[2]] if "$ref" in schema else schema
    if schema.get("type") == "string" or any(isinstance(each, str) for each in schema.get("enum", [])):
        yield at, schema.get("format") == "path"
    for each in schema.get("anyOf", []):
        yield from _text_keys(each, types, at)
    for each in [schema["items"]] if schema.get("items") else schema.get("prefixItems", []):
        yield from _text_keys(each, types, f"{at}[]")
    more = schema.get("additionalProperties")
    inner = {**schema.get("properties", {}), **({"*": more} if isinstance(more, dict) else {})}
    for key, value in inner.items():
        yield from _text_keys(value, types, f"{at}.{key}" if at else key)


def _document(keys: list[str], value: str) -> Any:
    """The smallest document that has `value` at a place."""
    for key in reversed(keys):
        value = [value] if key == "[]" else {key: value}  # type: ignore[assignment]
    return value


def test_every_path_that_a_config_may_name_has_to_lie_in_the_workspace(tmp_path: Path) -> None:
    schema = config_schema()
    found = dict(_text_keys(schema, schema["$defs"]))
    paths = {key for key, is_path in found.items() if is_path}
    assert set(found) - paths == _NO_PATHS
    assert {"model", "output_root", "inputs[]", "token_file", "experiments[].runner_path"} <= paths
    (tmp_path / "link").symlink_to("/etc")
    for key in sorted(paths):
        for outside in ("/etc/hosts", "../x", "link/hosts", "~/x", "1.5.0,../x"):
            document = _document(key.replace("[]", ".[]").split("."), outside)
            (tmp_path / "c.json").write_text(json.dumps(document))
            with pytest.raises(InputError, match="outside the workspace"):
                Workspace(tmp_path).config("c.json")
    workspace = Workspace(tmp_path)
    (tmp_path / "c.json").write_text('{"model": "net.pte", "output_root": "out", "experiments": [{"name": "a"}]}')
    assert workspace.config("c.json") == (tmp_path.resolve() / "c.json", tmp_path.resolve() / "out")
    # What is no config is for `run` to refuse, in its own words.
    for text in ("{", "[]", '{"experiments": 3, "inputs": "../x", "model": 1}', "[" * 100_000):
        (tmp_path / "c.json").write_text(text)
        assert workspace.config("c.json")[1] is None


def test_progress_rises_over_all_commands_of_a_call() -> None:
    told: list[tuple[float, float | None]] = []

    async def tell(done: float, total: float | None, message: str) -> None:
        told.append((done, total))

    async def talk() -> None:
        steps = ProgressCounter(tell)
        lines = ["export: load", "run: a (10/60)", "", "run: a (40/60)", "run: a (60/60)", "note", "run: b (5/8 runs)"]
        for line in [*lines, "run: b (2/8)", "run: b (8/8)", "report"]:
            await steps.say(line)

    anyio.run(talk)
    values = [done for done, _ in told]
    assert values == sorted(set(values)) and all(total is None or done <= total for done, total in told)
    assert told[:4] == [(1, None), (11, 61), (41, 61), (61, 61)]


def test_a_call_ends_with_a_server_that_is_killed(tmp_path: Path, toy: Callable[[str], Path]) -> None:
    needs_hardware(Path("/proc/self").exists(), "Linux, which lists processes in /proc")
    server = "import anyio, pathlib, sys\nfrom model_profiling.mcp_server.tools import ProgressCounter, run_kit\n" + (
        "async def tell(value, total, line): print(line, flush=True)\n"
        "anyio.run(run_kit, sys.argv[2:], pathlib.Path(sys.argv[1]), ProgressCounter(tell))\n"
    )
    # Not what `processes` looks for: it works elsewhere, and names another place.
    (tmp_path / "work").mkdir()
    words = ["run", str(toy("fp32")), "--out", "out", "--runs", "200000", "--launches", "4", "--no-lock"]
    command = [sys.executable, "-c", server, os.path.relpath(tmp_path / "work", ROOT), *words]
    environment = {**os.environ, "PYTHONPATH": str(ROOT), **QUICK}
    with subprocess.Popen(command, cwd=ROOT, env=environment, stdout=subprocess.PIPE) as process:
        assert process.stdout is not None
        while "run: " not in (line := process.stdout.readline().decode()) or not processes(tmp_path / "work"):
            assert line, "it ended before it measured"
        process.kill()
    until = time.monotonic() + LONGEST_S
    while processes(tmp_path / "work") and time.monotonic() < until:
        time.sleep(0.1)
    assert not processes(tmp_path / "work")


def test_a_cancelled_call_ends_all_that_it_started_and_keeps_what_is_finished(
    tmp_path: Path, toy: Callable[[str], Path]
) -> None:
    needs_hardware(Path("/proc/self").exists(), "Linux, which lists processes in /proc")
    shutil.copytree(toy("fp32").parent, tmp_path / "artifacts")
    model = f"artifacts/{toy('fp32').name}"

    async def conversation(assistant: Assistant) -> None:
        measuring = anyio.Event()

        async def note(progress: float, total: float | None, message: str | None) -> None:
            if "run: " in (message or "") and processes(tmp_path):
                measuring.set()

        async def run() -> None:
            place = {"model": model, "output_root": "out", "runs": 200_000, "launches": 4}
            await assistant.client.call_tool("run", place, progress_callback=note)

        async with anyio.create_task_group() as tasks:
            tasks.start_soon(run)
            with anyio.fail_after(120):
                await measuring.wait()
            tasks.cancel_scope.cancel()
        until = time.monotonic() + LONGEST_S
        while processes(tmp_path) and time.monotonic() < until:
            await anyio.sleep(0.1)
        assert not processes(tmp_path)
        # The server is there for the next call.
        assert (await assistant.call("runs", run_dir="out"))["runs"] is not None

    drive(tmp_path, conversation, cold=True)


def processes(place: Path) -> list[str]:
    """The processes that name `place` in their command line or work in it, the server itself apart."""
    found = []
    for entry in Path("/proc").glob("[0-9]*"):
        try:
            command = (entry / "cmdline").read_bytes().replace(b"\0", b" ").decode()
            where = (entry / "cwd").readlink()
        except OSError:
            continue
        if "'mcp'" not in command and (str(place) in command or where == place):
            found.append(command)
    return found
