"""The tools that make something: exports, runs, profiles, tuned variants."""

from collections.abc import Mapping
from pathlib import Path
from typing import Annotated, Any, Literal

from mcp.server.mcpserver import Context
from pydantic import Field

from model_profiling.analysis.accuracy.numerics import Numerics
from model_profiling.analysis.compare.runtime_comparison import RuntimeComparison
from model_profiling.analysis.run.dumps import AnalysisSummary
from model_profiling.base.errors import InputError
from model_profiling.export.options import settled
from model_profiling.mcp_server import answers, results
from model_profiling.mcp_server import parameters as p
from model_profiling.mcp_server.child import ProgressCounter
from model_profiling.mcp_server.commands import (
    Commands,
    flags,
    machine_words,
    repeated,
    settings_words,
    steps_of,
    switches,
)
from model_profiling.mcp_server.export_options import option_words, takes_options
from model_profiling.models.options import input_spec
from model_profiling.platforms.choosing import folder_of, named
from model_profiling.platforms.platform_table import Choice
from model_profiling.report.kernel_view import Kernels
from model_profiling.runtimes.runtime_table import OF_FILES, RUNTIMES
from model_profiling.store.artifacts import ANALYSIS_SUMMARY
from model_profiling.tune.tune_result import TuneResult

_SHOWN = 10


class RunTools:
    def __init__(self, commands: Commands) -> None:
        self._commands = commands
        self._workspace = commands.workspace

    @takes_options("check")
    async def check(self, context: Context, model: p.Model, **options: Any) -> answers.CheckAnswer:
        """Say which operators of a PyTorch model XNNPACK will take and which not, which transposes and copies would be
        left, why, and on which lines of the model. Lowers the model as an export does, and writes nothing."""
        words = self._model_words(model, options)
        ended = await self._commands.kit(steps_of(context), "check", "--json", *words)
        return results.check_answer(self._workspace, model, options["dtype"], ended.read(results.PrintedCheck))

    @takes_options("export")
    async def export(
        self, context: Context, model: p.Model, *, out: p.ArtifactsDir = None, **options: Any
    ) -> answers.ExportAnswer:
        """Export a PyTorch model to a .pte. Nothing is done again while nothing has changed. To try a rewrite, give it
        an `out` of its own and compare the two .pte."""
        words = self._model_words(model, options)
        return await self._export(
            steps_of(context), words, out or f"{self._home(model, options['settings'])}/artifacts"
        )

    async def run(
        self,
        context: Context,
        model: Annotated[str | None, Field(description="The .pte to measure; or give `config`.")] = None,
        config: Annotated[
            str | None,
            Field(
                description="A JSON config file instead of `model`; it says which experiments to run, how often, and "
                "where to write. Only label, experiments, force, platform and its settings can be given with it."
            ),
        ] = None,
        inputs: Annotated[
            list[str] | None,
            Field(description="Input files, .npy or raw .bin, one per input (default: the samples of the export)."),
        ] = None,
        platform: Annotated[
            p.PlatformName | None,
            Field(
                description="Where to run (default: this machine). The emulator has SME2, but its times mean nothing."
            ),
        ] = None,
        device: Annotated[
            str | None, Field(description="Serial number of the Android device, if there are several.")
        ] = None,
        remote_device: Annotated[
            str | None, Field(description="HOST:PORT of an Android device to connect to over the network.")
        ] = None,
        host: Annotated[
            str | None, Field(description="With platform ssh: the host, by its name in the user's ssh_config.")
        ] = None,
        power_mode: Annotated[
            Literal["boost", "app", "keep"] | None,
            Field(description="Settings of the Android device while it is measured; they are put back afterwards."),
        ] = None,
        cool_down: Annotated[
            float | None,
            Field(description="Let the device or host cool to this many degrees Celsius before each turn."),
        ] = None,
        experiments: Annotated[
            list[str] | None, Field(description="Only these experiments (default: all, which comparisons need).")
        ] = None,
        runs: p.Runs = None,
        launches: p.Launches = None,
        budget_s: p.Budget = None,
        threads: p.ThreadCounts = None,
        startup_launches: p.StartupLaunches = None,
        page_cache: p.PageCache = None,
        prefill: p.Prefill = None,
        decode: p.Decode = None,
        depths: p.Depths = None,
        method: p.Method = None,
        executorch: p.Executorch = None,
        label: p.Label = None,
        labels: p.Labels = None,
        force: p.Force = False,
        out: p.RunOut = None,
    ) -> answers.RunAnswer:
        """Measure a .pte with its accelerator on and off, interleaved. What is finished is not measured again. A run
        with other settings replaces the latest one of its directory, which is kept under its label (tool `runs`). On
        Android and over ssh, files are pushed to the device. Answers with latencies, start-up, memory, the comparison
        with its 95 % interval, and whether the outputs agree. A language model is run by phase, prefill and decode:
        `phase` of each experiment has time to the first token and tokens per second."""
        words = flags(device=device, remote_device=remote_device, host=host, power_mode=power_mode, cool_down=cool_down)
        words += repeated("only", experiments)
        words += flags(
            platform=platform, runs=runs, launches=launches, budget=budget_s, threads=_threads(threads), label=label
        )
        words += flags(startup_launches=startup_launches, page_cache=page_cache)
        deep = ",".join(map(str, depths)) if depths else None
        words += flags(prefill=prefill, decode=decode, depth=deep, method=method)
        words += repeated("executorch", self._workspace.executorch(executorch))
        words += switches(force=force) + repeated("label", (f"{key}={value}" for key, value in (labels or {}).items()))
        where = Choice(platform, device=device, remote_device=remote_device, host=host)
        place, what = self._what_to_run(model, config, out, folder_of(where))
        if inputs:
            words += repeated("input", (self._workspace.inside(file) for file in inputs))
        run, _ = await self._run(steps_of(context), [*what, *words], place)
        return run

    @takes_options("profile", optional=True)
    async def profile(
        self,
        context: Context,
        model: Annotated[
            str,
            Field(
                description="A name that `models` lists, path/to/file.py:ClassName, or a .pte, which is not exported "
                "again. A Python file is run: it must be code you trust.",
                min_length=1,
            ),
        ],
        *,
        runs: p.Runs = None,
        budget_s: p.Budget = None,
        threads: p.ThreadCounts = None,
        executorch: p.Executorch = None,
        html: p.Html = False,
        **options: Any,
    ) -> answers.ProfileAnswer:
        """Go from a model to what to fix next, in one call: export it, run it with its accelerator on and off, analyse
        the run and write its report. Same files as `export`, `run` and `report` with their defaults."""
        steps, made = steps_of(context), None
        versions = repeated("executorch", self._workspace.executorch(executorch))
        if model.endswith(".pte"):
            if any(value is not None for value in options.values()):
                raise InputError(
                    f"{model} is exported already: dtype, rewrites, input_shapes, settings and checkpoint are decided",
                    "Leave them out, or give the model itself.",
                )
            pte = model
        else:
            words = self._model_words(model, settled("profile", options))
            made = await self._export(steps, words, f"{self._home(model, options['settings'])}/artifacts")
            pte = made.pte
        place, what = self._what_to_run(pte, None, None, folder_of(Choice()))
        counts = flags(runs=runs, budget=budget_s, threads=_threads(threads))
        run, summary = await self._run(steps, [*what, *counts, *versions], place)
        files = await self._commands.written(steps, "report", str(place), *switches(html=html))
        analysis = results.analysis_answer(
            self._workspace, summary, _SHOWN, self._workspace.relative(place / ANALYSIS_SUMMARY)
        )
        return answers.ProfileAnswer(made, run, analysis, files)

    @takes_options("profile", optional=True)
    async def compare_runtimes(
        self,
        context: Context,
        model: Annotated[
            str,
            Field(
                description="As of `profile`; or an .onnx or .tflite, taken as it is. A Python file is run: it must be "
                "code you trust.",
                min_length=1,
            ),
        ],
        runtimes: Annotated[
            list[str],
            Field(
                description="Some of executorch, eager, compile, onnxruntime and litert, or .onnx and .tflite files.",
                min_length=1,
                max_length=8,
            ),
        ],
        *,
        runs: p.Runs = None,
        launches: p.Launches = None,
        budget_s: p.Budget = None,
        threads: p.Threads = None,
        **options: Any,
    ) -> RuntimeComparison:
        """Measure one model in ExecuTorch and in other runtimes on this machine, interleaved: latency and its ratio to
        ExecuTorch with intervals, start-up, peak memory, outputs against eager PyTorch. What differs is not `ranked`;
        what could not be measured has a `reason`."""
        if model.endswith((".pte", *OF_FILES)):
            place, given = [], str(self._workspace.inside(model))
        else:
            given = self._workspace.model(model)
            place = flags(out=self._workspace.inside(self._home(model, options["settings"])))
        names = [name if name in RUNTIMES else str(self._workspace.inside(name)) for name in runtimes]
        counts = flags(runs=runs, launches=launches, budget=budget_s, threads=threads)
        words = ["compare", given, "--json", *repeated("runtimes", names), *counts, *place]
        words += self._option_words(options)
        return (await self._commands.kit(steps_of(context), *words)).read(RuntimeComparison)

    async def kernels(
        self, context: Context, model: p.Pte, out: p.RunOut = None, machine: p.Machine = None
    ) -> answers.KernelsAnswer:
        """Return which SME2 kernels a .pte uses, operator by operator, under emulation or on another machine, without
        times. Where `unknown` has a reason, only the kernels are known, not which operators use them."""
        path = self._workspace.inside(model)
        folder = "emulator" if machine is None else f"{folder_of(named(machine))}_kernels"
        place = self._commands.output(path, out, folder)
        words = [str(path), "--out", str(place), "--json", *machine_words(machine)]
        # Exit code 4 with an answer: what ran is known, for which operators is not, and the answer says so.
        ended = await self._commands.kit(steps_of(context), "kernels", *words, accept=(0, 4))
        return results.kernels(self._workspace.relative(place), ended.read(Kernels))

    @takes_options("numerics")
    async def numerics(
        self,
        context: Context,
        model: p.Model,
        *,
        trial: Annotated[
            bool, Field(description="Whether remedies are exported and run to see what they give (default).")
        ] = True,
        platform: Annotated[
            p.PlatformHere | None,
            Field(description="Where to run (default: this machine). The emulator compares NEON with SME2."),
        ] = None,
        out: p.ArtifactsDir = None,
        **options: Any,
    ) -> answers.LayerErrors:
        """Find the layer that loses the accuracy: every layer of the exported program against eager PyTorch in fp32.
        `alarms` are layers that something is wrong with; `remedies` are exports that were tried: give `keep` of the
        last one that `helps` to `export` as `keep_fp32`. Takes minutes for a large model."""
        words = self._model_words(model, options) + flags(platform=platform)
        words += [] if trial else ["--no-trial"]
        place = self._workspace.inside(out or f"{self._home(model, options['settings'])}/artifacts")
        ended = await self._commands.kit(steps_of(context), "numerics", "--json", *words, "--out", str(place))
        return results.layer_errors(ended.read(Numerics))

    @takes_options("tune")
    async def tune(
        self,
        context: Context,
        model: p.Model,
        *,
        runs: p.Runs = None,
        launches: p.Launches = None,
        budget_s: p.Budget = None,
        threads: p.Threads = None,
        worst_layers: Annotated[
            int,
            Field(
                description="Instead of all that, keep up to so many of the layers that lose most "
                "accuracy in fp32; `pareto` of each variant says whether no other is both faster and more accurate.",
                ge=0,
            ),
        ] = 0,
        min_sqnr: Annotated[
            float | None,
            Field(description="Try every data type, and keep none whose outputs have less signal to noise (in dB)."),
        ] = None,
        force: Annotated[bool, Field(description="Export and measure again what exists already.")] = False,
        out: p.TuneOut = None,
        machine: p.Machine = None,
        **options: Any,
    ) -> TuneResult:
        """Export the variants of a model that the advice recommends (data types, rewrites, layouts), measure them
        interleaved, and rank them. This takes minutes. The winner is faster with its whole 95 % interval, and its
        outputs match; it is empty if no variant is. `program` is the .pte to keep, `steps` say what each change gained.
        To make a variant elsewhere, give its dtype, memory_format, io_layout, rewrites and delegation to `export`."""
        words = self._model_words(model, options)
        words += flags(runs=runs, launches=launches, budget=budget_s, threads=threads) + switches(force=force)
        words += [*flags(worst_layers=worst_layers or None, min_sqnr=min_sqnr), *machine_words(machine)]
        place = self._workspace.inside(out or f"{self._home(model, options['settings'])}/tune")
        ended = await self._commands.kit(steps_of(context), "tune", "--json", *words, "--out", str(place))
        return ended.read(TuneResult)

    async def _export(self, steps: ProgressCounter, words: list[str], outdir: str) -> answers.ExportAnswer:
        place = self._workspace.inside(outdir)
        ended = await self._commands.kit(steps, "export", "--json", *words, "--out", str(place))
        return results.export_answer(self._workspace, ended.read(results.PrintedExport))

    async def _run(
        self, steps: ProgressCounter, words: list[str], place: Path
    ) -> tuple[answers.RunAnswer, AnalysisSummary]:
        summary = (await self._commands.kit(steps, "run", "--json", "--no-html", *words)).read(AnalysisSummary)
        return results.run_answer(self._workspace.relative(place), summary), summary

    def _what_to_run(
        self, model: str | None, config: str | None, output_root: str | None, platform: str
    ) -> tuple[Path, list[str]]:
        """Return where the run goes, and the words that say what is run."""
        if config is not None:
            path, root = self._workspace.config(config)
            words = [str(self._workspace.inside(model))] if model is not None else []
            words += flags(config=path, out=output_root and self._workspace.inside(output_root))
            return root or self._workspace.root, words
        if model is None:
            raise InputError("there is nothing to run", "Give `model`, a .pte, or `config`.")
        path = self._workspace.inside(model)
        place = self._commands.output(path, output_root, platform)
        return place, [str(path), "--out", str(place)]

    def _model_words(self, model: str, options: Mapping[str, Any]) -> list[str]:
        """Return the words that say which model is meant and how it is exported, for every command that takes one."""
        return [*flags(model=self._workspace.model(model)), *self._option_words(options)]

    def _option_words(self, options: Mapping[str, Any]) -> list[str]:
        for text in options.get("input_shapes") or ():
            input_spec(text)  # a command that measures would take the name of a file, too
        weights = options.get("checkpoint")
        words = flags(checkpoint=None if weights is None else self._workspace.inside(weights))
        words += repeated("input-shape", options.get("input_shapes")) + settings_words(options.get("settings"))
        return words + option_words(options, self._workspace)

    def _home(self, model: str, settings: Mapping[str, p.Setting] | None) -> str:
        """Return the directory of a model with these settings, as `sme2-kit export` names it."""
        from model_profiling.api.exporting import artifact_name, load_options

        target = self._workspace.model(model)
        # The server may have been started elsewhere.
        known = str(self._workspace.root / target) if ":" in target else target
        return f"out_{artifact_name(known, load_options((), settings))}"


def _threads(asked: int | list[int] | None) -> str | None:
    """Return numbers of threads as `--threads` reads them."""
    return None if asked is None else str(asked) if isinstance(asked, int) else ",".join(map(str, asked))
