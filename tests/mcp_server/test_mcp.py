"""The MCP server, driven by the official client over standard input and output, as an assistant does."""

import os
import shutil
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

import anyio
import pytest
from mcp import Client, StdioServerParameters, stdio_client

from model_profiling.errors import InputError
from model_profiling.mcp_server.boundary import Workspace
from tests.conftest import ROOT, kit, shared_home
from tests.helpers import warm

KNOWN_GOOD = ROOT / "tests" / "data" / "known_good_run"
TOOLS = {"doctor", "models", "export", "run", "runs", "analyze", "compare", "kernels", "report", "what_if", "forecast"}


def drive(workspace: Path, conversation: Callable[[Client], Awaitable[None]]) -> None:
    """Start `sme2-kit mcp` in the workspace and hold a conversation with it."""
    environment = {**os.environ, "PYTHONPATH": str(ROOT)}
    python = str(warm.python(shared_home()))
    server = StdioServerParameters(
        command=python, args=["-m", "model_profiling", "mcp"], cwd=workspace, env=environment
    )

    async def talk() -> None:
        with anyio.fail_after(600):
            async with Client(stdio_client(server)) as client:
                await conversation(client)

    anyio.run(talk)


async def call(client: Client, tool: str, said: list[str] | None = None, **arguments: object) -> dict[str, Any]:
    async def note(progress: float, total: float | None, message: str | None) -> None:
        if said is not None:
            said.append(message or "")

    result = await client.call_tool(tool, arguments, progress_callback=note)
    assert not result.is_error, result.content
    assert result.structured_content is not None
    return dict(result.structured_content)


async def refused(client: Client, tool: str, **arguments: object) -> str:
    result = await client.call_tool(tool, arguments)
    assert result.is_error, result
    return " ".join(getattr(part, "text", "") for part in result.content)


def test_an_assistant_goes_from_doctor_to_comparison(tmp_path: Path) -> None:
    async def conversation(client: Client) -> None:
        listed = {tool.name: tool for tool in (await client.list_tools()).tools}
        assert set(listed) == TOOLS
        assert all(tool.description and tool.input_schema["type"] == "object" for tool in listed.values())
        assert set(listed["export"].input_schema["properties"]) == {"model", "dtype", "outdir", "input_shapes"}

        assert (await call(client, "doctor"))["ready"]
        assert "toy_cnn" in {model["name"] for model in (await call(client, "models"))["models"]}

        stages: list[str] = []
        export = await call(client, "export", stages, model="toy_cnn", dtype="fp16")
        assert export["pte"] == "out_toy_cnn/artifacts/toy_cnn_xnnpack_fp16.pte"
        assert (tmp_path / export["pte"]).is_file()
        assert any("lower to the backend" in stage for stage in stages)

        turns: list[str] = []
        before = await call(client, "run", turns, model=export["pte"], runs=20)
        assert any("turn" in turn for turn in turns)
        after = await call(client, "run", model=export["pte"], runs=20, output_root="out_toy_cnn/runs/again")
        assert before["timing"] == "measured" and before["run_dir"].startswith("out_toy_cnn/runs/")
        for comparison in before["comparisons"]:
            assert comparison["low"] <= comparison["ratio"] <= comparison["high"]

        analysis = await call(client, "analyze", run_dir=before["run_dir"])
        for experiment in analysis["experiments"].values():
            parts = sum(category["ms"] for category in experiment["categories"])
            assert parts == pytest.approx(experiment["execute_ms"], rel=1e-3)

        compared = await call(client, "compare", before=before["run_dir"], after=after["run_dir"], fail_if_slower=900)
        assert compared["gate"] == "passed"
        assert {entry["verdict"] for entry in compared["comparisons"]} <= {"faster", "slower", "no difference seen"}

    drive(tmp_path, conversation)


def test_reading_tools_on_a_known_run(tmp_path: Path) -> None:
    run = tmp_path / "run"
    shutil.copytree(KNOWN_GOOD, run)

    async def conversation(client: Client) -> None:
        prediction = await call(client, "what_if", run_dir="run", speedups={"CONV": 3})
        assert all(entry["label"] == "prediction" for entry in prediction["predictions"].values())
        assert "uses SME2" in await refused(client, "forecast", run_dir="run", emulated_dir="run")
        report = await call(client, "report", run_dir="run", html=False)
        assert "run/report.md" in report["files"] and (run / "report.md").is_file()
        names = list((await call(client, "analyze", run_dir="run"))["experiments"])
        on, off = sorted(names, key=lambda name: name.endswith("off"))
        slower = await call(
            client,
            "compare",
            before="run",
            before_experiment=on,
            after="run",
            after_experiment=off,
            fail_if_slower=5,
        )
        assert slower["gate"] == "failed"
        assert "its own baseline" in await refused(client, "compare", before="run", after="run", fail_if_slower=5)
        assert "no run directory" in await refused(client, "analyze", run_dir="nowhere")
        words = await refused(client, "export", model="toy_cnm")
        assert "toy_cnn" in words and "exit code 2" in words and "Traceback" not in words

    drive(tmp_path, conversation)


def test_paths_stay_inside_the_workspace(tmp_path: Path) -> None:
    workspace, outside = tmp_path / "work", tmp_path / "outside"
    workspace.mkdir()
    shutil.copytree(KNOWN_GOOD, outside)
    (workspace / "link").symlink_to(outside)
    (workspace / "out_toy_cnn").symlink_to(outside)
    (workspace / "net.pte").write_bytes(b"")

    async def conversation(client: Client) -> None:
        for path in (str(outside), "../outside", "link", "x/../../outside", "/etc"):
            for tool in ("analyze", "report"):
                assert "outside the workspace" in await refused(client, tool, run_dir=path)
            assert "outside the workspace" in await refused(client, "compare", before=path, after=path)
            assert "outside the workspace" in await refused(client, "run", model=f"{path}/a.pte")
            assert "outside the workspace" in await refused(client, "run", model="net.pte", output_root=path)
            assert "outside the workspace" in await refused(client, "kernels", model="net.pte", output_root=path)
            assert "outside the workspace" in await refused(client, "export", model=f"{path}/net.py:Net")
            assert "outside the workspace" in await refused(client, "export", model="toy_cnn", outdir=path)
        # Where the default would lead out, through a link that was there before.
        assert "outside the workspace" in await refused(client, "export", model="toy_cnn")
        experiment = "../../outside/linux_fp16arith_on"
        words = await refused(client, "compare", before=".", after=".", before_experiment=experiment)
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


def test_a_workspace_that_is_none_is_an_error(tmp_path: Path) -> None:
    done = kit("mcp", "--workspace", tmp_path / "nowhere")
    assert done.returncode == 2 and "not a directory" in done.stderr
