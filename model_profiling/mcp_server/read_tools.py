"""The tools that read what is there: the machine, the models, runs, and what they say."""

from typing import Annotated, Literal

from mcp.server.mcpserver import Context
from msgspec.structs import replace
from pydantic import Field

from model_profiling.analysis.compare.comparison import PairComparison
from model_profiling.analysis.roofs.roof_rates import Roofs
from model_profiling.analysis.roofs.roof_table import kind_rows, roof_rows
from model_profiling.analysis.run.dumps import AnalysisSummary
from model_profiling.analysis.sme2.forecast_record import Forecast
from model_profiling.analysis.sme2.whatif import LEAST_SPEEDUP, MOST_SPEEDUP, Prediction
from model_profiling.base import dtypes
from model_profiling.mcp_server import answers, history_answer, results
from model_profiling.mcp_server import parameters as p
from model_profiling.mcp_server.commands import Commands, flags, machine_words, repeated, steps_of, switches
from model_profiling.platforms.doctor import Check
from model_profiling.platforms.platform_table import local_name
from model_profiling.skills.catalogue import find_skill
from model_profiling.skills.checks import skill_place
from model_profiling.store.artifacts import ANALYSIS_SUMMARY

_SHOWN = 10
Speedup = Annotated[float, Field(ge=LEAST_SPEEDUP, le=MOST_SPEEDUP)]


class ReadTools:
    def __init__(self, commands: Commands) -> None:
        self._commands = commands
        self._workspace = commands.workspace

    async def doctor(
        self,
        context: Context,
        essentials: Annotated[
            bool, Field(description="Check only what export and run need (else also emulator, Android, profiling).")
        ] = True,
    ) -> answers.Readiness:
        """Return what this machine can do, what is missing, and the command that fixes it."""
        words = switches(essentials=essentials)
        ended = await self._commands.kit(steps_of(context), "doctor", "--json", *words, accept=(0, 3))
        checks = ended.read(list[Check])
        return answers.Readiness(all(check.ok for check in checks if check.essential), checks)

    async def models(self, context: Context) -> answers.KnownModels:
        """Return the models that can be exported by name, those in files of the workspace too, and what packages they
        lack."""
        ended = await self._commands.kit(steps_of(context), "models", "--json")
        return answers.KnownModels(ended.read(list[answers.KnownModel]))

    async def runs(self, context: Context, run_dir: p.RunDir) -> answers.ListedRuns:
        """Return the runs of a run directory: the latest, earlier ones by label, and interrupted ones, with their
        medians."""
        path = self._workspace.run(run_dir)
        found = (await self._commands.kit(steps_of(context), "runs", str(path), "--json")).read(list[answers.ListedRun])
        relative = self._workspace.relative
        named = [replace(e, directory=relative(e.directory), path=e.path and relative(e.path)) for e in found]
        return answers.ListedRuns(named)

    async def history(
        self,
        context: Context,
        question: Annotated[
            Literal["list", "trend", "regressions", "top", "coverage"],
            Field(
                description="list: all runs; trend: latency over time of one model; regressions: steps of all models; "
                "top: operators over all models' latest runs; coverage: how much of each model runs on SME2."
            ),
        ],
        model: Annotated[
            str | None, Field(description="Only this model, as `list` names it; `trend` needs it.", min_length=1)
        ] = None,
        platform: Annotated[
            str | None, Field(description="Only runs of this platform, such as linux or android.")
        ] = None,
        dtype: Annotated[str | None, Field(description="Only runs of this data type, such as fp16.")] = None,
        labels: Annotated[
            dict[str, str] | None,
            Field(description='Only runs with these labels: {"branch": "main"}; commit and branch are labels, too.'),
            p.TEXT,
        ] = None,
        since: Annotated[str | None, Field(description="Only runs since a date, 2026-11-01, or 90d, 12h.")] = None,
        below: Annotated[
            float | None, Field(description="coverage: only models with less than so many percent on SME2.")
        ] = None,
        most: Annotated[int, Field(description="How many entries to answer with.", ge=1, le=1000)] = 20,
    ) -> answers.HistoryAnswer:
        """Return all runs in the workspace over time. A step in a series is a candidate: call it a regression only if
        its state is "confirmed", which takes `sme2-kit history bisect` at a terminal. Nothing is measured or
        written."""
        words = flags(model=model, platform=platform, dtype=dtype, since=since, below=below)
        words += repeated("label", (f"{key}={value}" for key, value in (labels or {}).items()))
        ended = await self._commands.kit(steps_of(context), "history", question, "--json", *words)
        return history_answer.history(self._workspace, question, ended, most)

    async def analyze(
        self,
        context: Context,
        run_dir: p.RunOrDump,
        most: Annotated[
            int, Field(description="How many operators and lines of the model to list.", ge=1, le=1000)
        ] = _SHOWN,
    ) -> answers.AnalysisAnswer:
        """Return where the time goes in a run directory or an .etdump: categories, operators, lines of the model, how
        the bottleneck moved, and advice: what to change, where, and the gain to expect. Writes the analysis into the
        run directory again."""
        path = self._workspace.run(run_dir)
        summary = (await self._commands.kit(steps_of(context), "analyze", str(path), "--json")).read(AnalysisSummary)
        file = self._workspace.relative(path / ANALYSIS_SUMMARY) if path.is_dir() else ""
        return results.analysis_answer(self._workspace, summary, most, file)

    async def what_if(
        self,
        context: Context,
        run_dir: p.RunOrDump,
        speedups: Annotated[
            dict[str, Speedup],
            Field(description='How many times faster each category or operator becomes: {"CONV": 3}.', min_length=1),
            p.TEXT,
        ],
    ) -> answers.Predictions:
        """Predict latency and next bottleneck if categories or operators became faster. This is no measurement."""
        path = self._workspace.run(run_dir)
        words = [f"--what-if={name}={value}" for name, value in speedups.items()]
        ended = await self._commands.kit(steps_of(context), "analyze", str(path), "--json", *words)
        return answers.Predictions(ended.read(dict[str, Prediction]))

    async def forecast(
        self,
        context: Context,
        run_dir: Annotated[str, Field(description="A run measured without SME2 (tool `run`).", min_length=1)],
        emulated_dir: Annotated[
            str | None,
            Field(
                description="The run directory that `kernels` made of the same model, as proof of which operators SME2 "
                "runs (default: the table of known kernels).",
                min_length=1,
            ),
        ] = None,
        speedups: Annotated[
            list[float] | None,
            Field(description="Assumed speedups of all operators that SME2 runs, 1 or more, instead of a target."),
        ] = None,
        target: Annotated[
            Literal["apple_m4", "apple_m4_pro", "arm_c1_pro", "arm_phone"] | None,
            Field(description="The machine with SME2 from which gains are derived (default: apple_m4)."),
        ] = None,
    ) -> answers.Forecasts:
        """Predict what SME2 would change in a run measured without it. This is no measurement."""
        sides = [str(self._workspace.run(path)) for path in (run_dir, emulated_dir) if path is not None]
        words = repeated("speedup", speedups) + flags(target=target)
        found = (await self._commands.kit(steps_of(context), "forecast", *sides, "--json", *words)).read(list[Forecast])
        return answers.Forecasts([results.forecast(entry, _SHOWN) for entry in found])

    async def roofs(
        self,
        context: Context,
        file: Annotated[
            str | None, Field(description="A roofs.json in the workspace, such as that of a run (default: this CPU's).")
        ] = None,
    ) -> answers.KnownRoofs:
        """Return what a CPU reaches at its best with this backend, as `sme2-kit roofs` measured it: best rates and
        bandwidths by dtype, features and threads. Analyses compare every operator with it."""
        words = [] if file is None else [str(self._workspace.inside(file))]
        found = (await self._commands.kit(steps_of(context), "roofs", "show", *words, "--json")).read(Roofs)
        return answers.KnownRoofs(found.cpu, found.created, found.executorch, roof_rows(found), kind_rows(found))

    async def compare(
        self,
        context: Context,
        before: p.Side,
        after: p.OtherSide = None,
        before_experiment: p.SideExperiment = None,
        after_experiment: p.SideExperiment = None,
        fail_if_slower: Annotated[
            float | None,
            Field(description="Limit in percent: `gate` is failed if the whole 95 % interval is above it.", ge=0),
        ] = None,
        fail_if_startup_slower: Annotated[
            float | None, Field(description="The same of the time to the first result.", ge=0)
        ] = None,
        fail_if_memory_above: Annotated[
            float | None, Field(description="The same of peak memory: `after` takes so many percent more.", ge=0)
        ] = None,
        strict: Annotated[
            bool, Field(description="With a limit: the gate also fails if that cannot be ruled out.")
        ] = False,
        any_baseline: Annotated[
            bool, Field(description="With a limit: accept a `before` of another model, machine or setting.")
        ] = False,
        runs: p.Runs = None,
        launches: p.Launches = None,
        budget_s: p.Budget = None,
        threads: p.Threads = None,
        startup_launches: p.StartupLaunches = None,
        page_cache: p.PageCache = None,
        executorch: p.ComparedExecutorch = None,
        machine: p.Machine = None,
    ) -> answers.CompareAnswer:
        """Compare two .pte (measured now, interleaved), two run directories (experiments of equal name), two
        experiments, or two .etdump: latency, start-up and peak memory; or one .pte under two versions of ExecuTorch:
        outputs and kernels, too. runs, launches, budget_s, threads, startup_launches, page_cache, executorch and
        machine are for .pte. Nothing is written."""
        sides = [self._side(before, before_experiment)]
        sides += [] if after is None else [self._side(after, after_experiment)]
        limits = flags(
            fail_if_slower=fail_if_slower,
            fail_if_startup_slower=fail_if_startup_slower,
            fail_if_memory_above=fail_if_memory_above,
        )
        words = [*limits, *flags(runs=runs, launches=launches, budget=budget_s, threads=threads)]
        words += flags(startup_launches=startup_launches, page_cache=page_cache)
        words += [*machine_words(machine), *repeated("executorch", self._workspace.executorch(executorch))]
        words += switches(strict=strict, any_baseline=any_baseline)
        ended = await self._commands.kit(steps_of(context), "compare", *sides, "--json", *words, accept=(0, 1))
        found = [results.compared_pair(entry) for entry in ended.read(list[PairComparison])]
        if not limits:
            return answers.CompareAnswer("none", found)
        return answers.CompareAnswer("failed" if ended.code else "passed", found)

    async def validate(
        self,
        context: Context,
        run_dir: p.RunDir,
        files: Annotated[
            list[str] | None,
            Field(description="Reports or pictures elsewhere that should be of this run, to check too."),
        ] = None,
    ) -> answers.ValidationAnswer:
        """Check that a run directory is complete and consistent, and that no report in it is older than its data."""
        words = [str(self._workspace.inside(file)) for file in files or []]
        path = self._workspace.run(run_dir)
        ended = await self._commands.kit(
            steps_of(context), "validate", "--json", "--results", str(path), *words, accept=(0, 1)
        )
        return ended.read(answers.ValidationAnswer)

    async def validate_skill(
        self,
        context: Context,
        name: Annotated[str, Field(description="Name of the playbook, for example 03_export_model.", min_length=1)],
        model: Annotated[
            str | None, Field(description="The model it worked on (default: toy_cnn, or the playbook's own).")
        ] = None,
        dtype: p.Dtype = dtypes.DEFAULT_DTYPE,
        out: Annotated[str | None, Field(description="Directory of the model (default: out_<model>).")] = None,
        run_dir: Annotated[
            str | None, Field(description="Its run directory (default: runs/<this machine's platform> in `out`).")
        ] = None,
    ) -> answers.PlaybookState:
        """Check that the results of a playbook are there and valid: the last step of each."""
        model, usual = skill_place(find_skill(name).name, model, self._workspace.root)
        home = self._workspace.inside(str(out or usual))
        run = self._workspace.run(run_dir or f"{home}/runs/{local_name()}")
        self._workspace.inside(f"{home}/artifacts")
        words = ["validate-skill", "--json", *flags(model=model, dtype=dtype, out=home, run_dir=run), "--", name]
        ended = await self._commands.kit(steps_of(context), *words, accept=(0, 1))
        return ended.read(answers.PlaybookState)

    async def report(
        self,
        context: Context,
        run_dir: p.RunDir,
        html: p.Html = True,
        forecast_from: Annotated[
            str | None,
            Field(description="A run directory that `kernels` made of the same model: adds what SME2 would change."),
        ] = None,
        title: Annotated[
            str | None, Field(description="Title of the report (default: model and platform)."), p.TEXT
        ] = None,
    ) -> answers.WrittenFiles:
        """Write the report of a run directory: report.md with pictures and, with `html`, report.html. Replaces earlier
        ones there."""
        path = self._workspace.run(run_dir)
        emulated = None if forecast_from is None else self._workspace.run(forecast_from)
        words = switches(html=html) + flags(forecast=emulated, title=title)
        return answers.WrittenFiles(await self._commands.written(steps_of(context), "report", str(path), *words))

    async def graph(
        self,
        context: Context,
        run_dir: p.RunDir,
        forecast_from: Annotated[
            str | None,
            Field(description="A run directory that `kernels` made of the same model: adds the kernels of SME2."),
        ] = None,
    ) -> answers.WrittenFiles:
        """Write graph.html into a run directory: the operators as an interactive graph for people, with times, shapes,
        kernels and source lines. `analyze` has the same numbers for you."""
        path = self._workspace.run(run_dir)
        emulated = None if forecast_from is None else self._workspace.run(forecast_from)
        words = flags(forecast=emulated)
        return answers.WrittenFiles(await self._commands.written(steps_of(context), "graph", str(path), *words))

    def _side(self, path: str, experiment: str | None) -> str:
        real = self._workspace.run(path)
        if experiment is None:
            return str(real)
        self._workspace.inside(f"{real}/{experiment}")
        return f"{real}:{experiment}"
