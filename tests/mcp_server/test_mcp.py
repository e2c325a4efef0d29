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
from model_profiling.mcp_server.child import ProgressCounter
from model_profiling.mcp_server.commands import Commands, settings_words
from model_profiling.mcp_server.run_tools import RunTools
from model_profiling.pipeline.config import json_schema as config_schema
from tests.conftest import QUICK, ROOT, kit, needs_hardware
from tests.helpers.mcp_client import Assistant, drive

KNOWN_GOOD = ROOT / "tests" / "data" / "known_good_run"


def test_reading_tools_on_a_known_run(tmp_path: Path) -> None:
    run = tmp_path / "run"
    shutil.copytree(KNOWN_GOOD, run)

    async def conversation(assistant: Assistant) -> None:
        call, refused = assistant.call, assistant.refused
        prediction = await call("what_if", run_dir="run", speedups={"CONV": 3})
        assert all(entry["label"] == "prediction" for entry in prediction["predictions"].values())
        assert "had SME2" in await refused("forecast", run_dir="run", emulated_dir="run")
        report = await call("report", run_dir="run", html=False, title="A title")
        assert "run/report.md" in report["files"] and "A title" in (run / "report.md").read_text()
        names = list((await call("analyze", run_dir="run", most=2))["experiments"])
        on, off = sorted(names, key=lambda name: name.endswith("off"))
        slower = await call(
            "compare",
            before="run",
            before_experiment=on,
            after="run",
            after_experiment=off,
            fail_if_slower=5,
        )
        assert slower["gate"] == "failed"
        assert "its own baseline" in await refused("compare", before="run", after="run", fail_if_slower=5)
        assert "no run directory" in await refused("analyze", run_dir="nowhere")
        listed = await call("history", question="list", model="toy_cnn")
        assert [entry["path"] for entry in listed["runs"]] == ["run"] and listed["total"] == 1
        trend = await call("history", question="trend", model="toy_cnn")
        assert all(each["runs"] == 1 and each["last"][0]["path"] == "run" for each in trend["series"])
        assert (await call("history", question="top", most=2))["operators"][0]["category"] == "CONV"
        assert (await call("history", question="coverage", below=50))["coverage"][0]["percent"] is None
        assert (await call("history", question="regressions", labels={"branch": "main"}))["steps"] == []
        assert "no run of" in await refused("history", question="trend", model="other")
        assert (await call("validate", run_dir="run"))["valid"]
        assert (await call("validate_skill", name="05_analyze_results", run_dir="run"))["ok"]
        missing = await call("validate_skill", name="03", model="nothing", out=".")
        assert missing["skill"] == "03_export_model" and not missing["ok"]
        assert "no skill" in await refused("validate_skill", name="--help")
        (run / "metrics.json").unlink()
        broken = await call("validate", run_dir="run", files=["run/report.md"])
        assert not broken["valid"] and any("metrics.json" in problem for problem in broken["problems"])

    drive(tmp_path, conversation)


def test_paths_stay_inside_the_workspace(tmp_path: Path) -> None:
    workspace, outside = tmp_path / "work", tmp_path / "outside"
    workspace.mkdir()
    shutil.copytree(KNOWN_GOOD, outside)
    (workspace / "link").symlink_to(outside)
    (workspace / "out_toy_cnn").symlink_to(outside)
    (workspace / "net.pte").write_bytes(b"")

    async def conversation(assistant: Assistant) -> None:
        refused = assistant.refused
        for path in (str(outside), "../outside", "link", "x/../../outside", "/etc"):
            for tool in ("analyze", "report"):
                assert "outside the workspace" in await refused(tool, run_dir=path)
            assert "outside the workspace" in await refused("compare", before=path, after=path)
            assert "outside the workspace" in await refused("run", model=f"{path}/a.pte")
            assert "outside the workspace" in await refused("run", model="net.pte", output_root=path)
            for tool in ("run", "profile"):
                assert "outside the workspace" in await refused(tool, model="net.pte", executorch=["1.5.0", path])
            assert "outside the workspace" in await refused("compare", before="net.pte", executorch=["1.5.0", path])
            assert "outside the workspace" in await refused("kernels", model="net.pte", output_root=path)
            assert "outside the workspace" in await refused("export", model=f"{path}/net.py:Net")
            assert "outside the workspace" in await refused("export", model="toy_cnn", outdir=path)
            assert "outside the workspace" in await refused("export", model="toy_cnn", checkpoint=f"{path}/w.pt")
            assert "outside the workspace" in await refused("tune", model="toy_cnn", out=path)
            file = f"{path}/a.onnx"
            assert "outside the workspace" in await refused("compare_runtimes", model=file, runtimes=["eager"])
            assert "outside the workspace" in await refused("compare_runtimes", model="net.pte", runtimes=[file])
            assert "outside the workspace" in await refused("profile", model=f"{path}/net.pte")
            assert "outside the workspace" in await refused("run", model="net.pte", inputs=[f"{path}/x.npy"])
            assert "outside the workspace" in await refused("run", config=f"{path}/config.json")
            assert "outside the workspace" in await refused("validate", run_dir=".", files=[path])
        # Where the default would lead out, through a link that was there before.
        assert "outside the workspace" in await refused("export", model="toy_cnn")
        experiment = "../../outside/linux_fp16arith_on"
        words = await refused("compare", before=".", after=".", before_experiment=experiment)
        assert "outside the workspace" in words

    drive(workspace, conversation)
    assert not (outside / "report.md").exists() and not (outside / "artifacts").exists()


def test_the_boundary_follows_links_and_refuses_what_is_no_path(tmp_path: Path) -> None:
    workspace = Workspace(tmp_path)
    assert workspace.inside(".") == tmp_path.resolve()
    assert workspace.inside("a/../b") == tmp_path.resolve() / "b"
    assert workspace.model("toy_cnn") == "toy_cnn"
    assert workspace.relative(tmp_path / "a" / "b") == "a/b"
    (tmp_path / "loop").symlink_to(tmp_path / "loop")
    for text in ("..", "\0", f"{tmp_path}-sibling", "loop/../.."):
        with pytest.raises(InputError):
            workspace.inside(text)
    for text in ("net.py", "a/b", "../net.py:Net"):
        with pytest.raises(InputError):
            workspace.model(text)


def test_a_model_has_the_directory_that_the_command_line_gives_it(tmp_path: Path) -> None:
    (tmp_path / "net.py").write_text("import torch\nclass Net(torch.nn.Module): pass\n")
    making = RunTools(Commands(Workspace(tmp_path)))
    assert making._home("net.py:Net", None) == "out_net"
    assert making._home("net.py:Net", {"width": 8, "depth": 2}) == "out_net_depth2_width8"
    assert making._home("toy_cnn", {}) == "out_toy_cnn"
    for value, words in ((True, "True"), ("relu", "relu"), ("12", "'12'"), ("true", "'true'"), ([1, 2], "[1, 2]")):
        assert settings_words({"key": value}) == [f"--set=key={words}"]


def test_a_workspace_that_is_none_is_an_error(tmp_path: Path) -> None:
    done = kit("mcp", "--workspace", tmp_path / "nowhere")
    assert done.returncode == 2 and "not a directory" in done.stderr


def test_paths_that_a_config_names_stay_inside_too(tmp_path: Path) -> None:
    workspace = Workspace(tmp_path)
    good: dict[str, Any] = {
        "model": "net.pte",
        "output_root": "out",
        "inputs": ["x.npy"],
        "experiments": [{"name": "a"}],
    }
    (tmp_path / "c.json").write_text(json.dumps(good))
    assert workspace.config("c.json") == (tmp_path.resolve() / "c.json", tmp_path.resolve() / "out")
    outside: list[dict[str, Any]] = [
        {"model": "/etc/passwd"},
        {"output_root": "../out"},
        {"inputs": ["x.npy", "../x.npy"]},
    ]
    for change in [*outside, {"experiments": [{"name": "a"}, {"name": "b", "runner_path": "/bin/true"}]}]:
        (tmp_path / "c.json").write_text(json.dumps({**good, **change}))
        with pytest.raises(InputError, match="outside the workspace"):
            workspace.config("c.json")
    # What is no config is for `run` to refuse, in its own words.
    for text in ("{", "[]", '{"experiments": 3, "inputs": "../x", "model": 1}', "[" * 100_000):
        (tmp_path / "c.json").write_text(text)
        assert workspace.config("c.json")[1] is None


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
        for outside in ("/etc/hosts", "../x", "link/hosts"):
            document = _document(key.replace("[]", ".[]").split("."), outside)
            (tmp_path / "c.json").write_text(json.dumps(document))
            with pytest.raises(InputError, match="outside the workspace"):
                Workspace(tmp_path).config("c.json")


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
    server = "import anyio, pathlib, sys\nfrom model_profiling.mcp_server.child import ProgressCounter, run_kit\n" + (
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
    until = time.monotonic() + 120
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
        until = time.monotonic() + 120
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
