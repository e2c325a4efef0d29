"""The tools: each checks its paths, runs one command of the kit, and answers with the part an assistant acts on."""

import functools
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any, Literal, ParamSpec

from mcp.server.mcpserver import Context, MCPServer
from mcp.server.mcpserver.exceptions import ToolError
from mcp.types import ToolAnnotations

from model_profiling import __version__
from model_profiling.artifacts import ExportPaths
from model_profiling.errors import KitError
from model_profiling.mcp_server import results
from model_profiling.mcp_server.boundary import Workspace
from model_profiling.mcp_server.child import Ended, Progress, run_kit
from model_profiling.pipeline.defaults import default_output_root
from model_profiling.pipeline.pipeline import export_record, model_dtype
from model_profiling.platforms.local import local_name

P = ParamSpec("P")
Answer = dict[str, Any]
_READS = ToolAnnotations(read_only_hint=True, open_world_hint=False)
_WRITES = ToolAnnotations(read_only_hint=False, destructive_hint=False, open_world_hint=False)
INSTRUCTIONS = """Profiles ExecuTorch models. Usual order: doctor, export, run, analyze; then compare, what_if, report;
kernels and forecast show what SME2 would change on a machine without SME2.
All paths are relative to the workspace and must stay inside it. Quote a speedup only with its interval; times of the
emulator are never latency; a what_if or a forecast is a prediction, not a measurement."""


def kit_errors(tool: Callable[P, Awaitable[Answer]]) -> Callable[P, Awaitable[Answer]]:
    """What the kit would tell a person, told to the assistant: what is wrong, what to do, and the exit code."""

    @functools.wraps(tool)
    async def guarded(*args: P.args, **kwargs: P.kwargs) -> Answer:
        try:
            return await tool(*args, **kwargs)
        except KitError as error:
            fix = f" Fix: {error.hint}" if error.hint else ""
            raise ToolError(f"{error.message}.{fix} (exit code {error.exit_code})") from None

    return guarded


class Tools:
    """The kit's verbs for one workspace."""

    def __init__(self, workspace: Workspace) -> None:
        self._workspace = workspace

    async def _kit(self, context: Context, *arguments: str, accept: tuple[int, ...] = (0,)) -> Ended:
        return await run_kit(list(arguments), self._workspace.root, _progress(context), accept)

    @kit_errors
    async def doctor(self, context: Context, essentials: bool = True) -> Answer:
        """What this machine can do, what is missing, and the command that fixes it."""
        flags = ["--essentials"] if essentials else []
        checks = (await self._kit(context, "doctor", "--json", *flags, accept=(0, 3))).data()
        return {"ready": all(check["ok"] for check in checks if check["essential"]), "checks": checks}

    @kit_errors
    async def models(self, context: Context) -> Answer:
        """The models that can be exported by name, and which packages each lacks here."""
        return {"models": (await self._kit(context, "models", "--json")).data()}

    @kit_errors
    async def export(
        self,
        context: Context,
        model: str,
        dtype: Literal["fp32", "fp16", "int8", "int8-dynamic", "int4"] = "fp16",
        outdir: str | None = None,
        input_shapes: list[str] | None = None,
    ) -> Answer:
        """Export a PyTorch model to a .pte. `model` is a name of `models`, or path/to/file.py:ClassName; for a class
        without example inputs give `input_shapes`, such as ["1,3,224,224"]."""
        from model_profiling.models.lookup import model_name

        target = self._workspace.model(model)
        place = self._workspace.inside(outdir or f"out_{model_name(target)}/artifacts")
        shapes = [f"--input-shape={shape}" for shape in input_shapes or []]
        flags = [f"--model={target}", "--dtype", dtype, "--outdir", str(place), *shapes]
        return results.export(self._workspace, (await self._kit(context, "export", "--json", *flags)).data())

    @kit_errors
    async def run(
        self,
        context: Context,
        model: str,
        runs: int | None = None,
        threads: int = 1,
        output_root: str | None = None,
        label: str | None = None,
    ) -> Answer:
        """Measure a .pte on this machine with its accelerator on and off, interleaved. What is finished is not run
        again; without `runs` there are as many as fit 30 s. A run that other settings replace is kept: `runs` lists
        all, and every tool takes DIR@LABEL. Answers with latencies, the comparison with its 95 % interval, and output
        agreement."""
        path = self._workspace.inside(model)
        place = self._output(path, output_root, local_name())
        flags = [str(path), "--threads", str(threads), "--output-root", str(place)]
        flags += ["--runs", str(runs)] if runs is not None else []
        flags += [f"--label={label}"] if label is not None else []
        summary = (await self._kit(context, "run", "--json", *flags)).data()
        return {"run_dir": self._workspace.relative(place), **results.measured(summary)}

    @kit_errors
    async def runs(self, context: Context, run_dir: str) -> Answer:
        """The runs of a run directory: the latest, earlier ones by label, and interrupted ones, with their medians."""
        path = self._workspace.run(run_dir)
        found = (await self._kit(context, "runs", str(path), "--json")).data()
        named = [{**entry, "directory": self._workspace.relative(entry["directory"])} for entry in found]
        return {"runs": [{**e, "path": e["path"] and self._workspace.relative(e["path"])} for e in named]}

    @kit_errors
    async def kernels(self, context: Context, model: str, output_root: str | None = None) -> Answer:
        """Which SME2 kernels a .pte uses, operator by operator, under emulation, without times. Where
        `unknown` has a reason, only the kernels are known, not which operators use them."""
        path = self._workspace.inside(model)
        place = self._output(path, output_root, "emulator")
        flags = [str(path), "--output-root", str(place), "--json"]
        # Exit code 4 with an answer: what ran is known, for which operators is not, and the answer says so.
        data = (await self._kit(context, "kernels", *flags, accept=(0, 4))).data()
        return {"run_dir": self._workspace.relative(place), **results.kernels(data)}

    @kit_errors
    async def analyze(self, context: Context, run_dir: str, detail: bool = False) -> Answer:
        """Where the time goes in a run directory or an .etdump: categories, top operators, bottleneck shift, advice.
        `detail` returns the whole analysis, which is long."""
        path = self._workspace.run(run_dir)
        summary: Answer = (await self._kit(context, "analyze", str(path), "--json")).data()
        return summary if detail else results.analysis(summary)

    @kit_errors
    async def what_if(self, context: Context, run_dir: str, speedups: dict[str, float]) -> Answer:
        """Predict latency and next bottleneck if categories or operators became faster: {"CONV": 3}."""
        path = self._workspace.run(run_dir)
        flags = [f"--what-if={name}={value}" for name, value in speedups.items()]
        return {"predictions": (await self._kit(context, "analyze", str(path), "--json", *flags)).data()}

    @kit_errors
    async def forecast(
        self, context: Context, run_dir: str, emulated_dir: str, speedups: list[float] | None = None
    ) -> Answer:
        """Predict what SME2 would change in a run measured without it, from the run directory that `kernels` made of
        the same model; `speedups` are the assumed speedups of operators that SME2 runs (default: 3, 8 and 15)."""
        sides = [str(self._workspace.run(path)) for path in (run_dir, emulated_dir)]
        flags = [f"--speedup={value}" for value in speedups or []]
        found = (await self._kit(context, "forecast", *sides, "--json", *flags)).data()
        return {"forecasts": [results.forecast(entry) for entry in found]}

    @kit_errors
    async def compare(
        self,
        context: Context,
        before: str,
        after: str,
        before_experiment: str | None = None,
        after_experiment: str | None = None,
        fail_if_slower: float | None = None,
    ) -> Answer:
        """Compare two run directories (experiments of equal name), two experiments, or two .etdump files. With
        `fail_if_slower` (percent) `gate` in the result is passed or failed; a wrong baseline is an error."""
        sides = [self._side(before, before_experiment), self._side(after, after_experiment)]
        gate = [] if fail_if_slower is None else [f"--fail-if-slower={fail_if_slower}"]
        ended = await self._kit(context, "compare", *sides, "--json", *gate, accept=(0, 1))
        outcome = "none" if not gate else "failed" if ended.code else "passed"
        return {"gate": outcome, "comparisons": [results.comparison(entry) for entry in ended.data()]}

    @kit_errors
    async def report(self, context: Context, run_dir: str, html: bool = True) -> Answer:
        """Write the report of a run directory: Markdown with pictures and, with `html`, a self-contained HTML page."""
        path = self._workspace.run(run_dir)
        ended = await self._kit(context, "report", str(path), *(["--html"] if html else []))
        return {"files": [self._workspace.relative(line) for line in ended.stdout.splitlines() if line]}

    def _output(self, model: Path, given: str | None, platform: str) -> Path:
        paths = ExportPaths(model)
        place = given or str(default_output_root(paths, platform, model_dtype(paths, export_record(paths))))
        return self._workspace.inside(place)

    def _side(self, path: str, experiment: str | None) -> str:
        real = self._workspace.run(path)
        if experiment is None:
            return str(real)
        self._workspace.inside(f"{real}/{experiment}")
        return f"{real}:{experiment}"


def _progress(context: Context) -> Progress:
    async def report(done: float, total: float | None, message: str) -> None:
        await context.report_progress(done, total, message)

    return report


def build_server(root: Path) -> MCPServer[Any]:
    """A server whose tools work in `root` and nowhere else."""
    server: MCPServer[Any] = MCPServer("sme2-kit", instructions=INSTRUCTIONS, version=__version__)
    tools = Tools(Workspace(root))
    for reads in (tools.doctor, tools.models, tools.runs, tools.what_if, tools.forecast, tools.compare):
        server.add_tool(reads, annotations=_READS)
    for writes in (tools.export, tools.run, tools.kernels, tools.analyze, tools.report):
        server.add_tool(writes, annotations=_WRITES)
    return server
