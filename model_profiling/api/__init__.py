"""The SME2 ExecuTorch Profiling Kit as a Python library; `docs/api.md` has the whole of it with examples.

    from model_profiling import api
    run = api.profile(module, example_inputs, dtype="fp16")   # export, run on and off, analyse
    run.categories, run.operators, run.latency, run.advice         # typed rows: .to_dicts(), .to_pandas()
    run.startup, run.memory                                        # until the first result; peak, growth, packing
    run.report("report.html")

Nothing here prints, ends the process or handles signals. What fails raises a `KitError`, with `message` and `hint`.
Importing this package imports neither torch nor executorch nor numpy: each function imports what it needs when called.

`out` is the directory for all files; without it they go to a temporary one that lives as long as the process.
`on_progress(label, done, total)` is called while work goes on, `total` 0 where that is not known; in a notebook a
progress bar is shown unless it is given. `runs`, `launches` and `budget_s` say how much to measure (timed executions
and processes per experiment, seconds for all of them); what is left out is chosen to fit the rest. `startup_launches`
are extra launches that measure start-up (0: none), with the .pte in the system's `page_cache` ("warm")
or dropped from it ("cold").
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from model_profiling import __version__
from model_profiling.api.keywords import names_keywords, takes_options
from model_profiling.api.notebook import notebook_progress
from model_profiling.base.dtypes import ARITHMETICS, dtype_of
from model_profiling.base.errors import GateError, InputError, InterruptionError, KitError, RunError, SetupError
from model_profiling.base.on_progress import OnProgress
from model_profiling.export.options import settled

if TYPE_CHECKING:
    import torch
    from typing_extensions import Unpack

    from model_profiling.analysis.accuracy.numerics import Numerics
    from model_profiling.analysis.compare.runtime_comparison import RuntimeComparison
    from model_profiling.analysis.roofs.roof_rates import Roofs
    from model_profiling.analysis.sme2.forecast_record import Forecast
    from model_profiling.analysis.sme2.forecast_validation import ForecastValidation
    from model_profiling.api.comparing import Compared, Comparisons
    from model_profiling.api.history_api import History
    from model_profiling.api.loaded_run import Run
    from model_profiling.api.records import Records
    from model_profiling.api.runtime_comparing import ComparedRuntimes
    from model_profiling.export.options import ExportKeywords, ProfileKeywords, TuneKeywords, Verb
    from model_profiling.export.request import ExportRequest, ExportResult
    from model_profiling.fleet.sweep.result import SweepResult
    from model_profiling.pipeline.config_types import PageCache
    from model_profiling.platforms.base import Platform
    from model_profiling.tune.tune_result import TuneResult

__all__ = [
    "Compared",
    "ComparedRuntimes",
    "Comparisons",
    "ExportResult",
    "GateError",
    "History",
    "InputError",
    "InterruptionError",
    "KitError",
    "OnProgress",
    "Records",
    "Run",
    "RunError",
    "RuntimeComparison",
    "SetupError",
    "__version__",
    "compare",
    "compare_runtimes",
    "export",
    "forecast",
    "history",
    "kernels",
    "numerics",
    "open_run",
    "profile",
    "roofs",
    "run",
    "sweep",
    "tune",
    "validate_forecast",
]

# Types that are imported when somebody asks for them: what they need takes longer than a blink.
_LATER = {
    "Compared": "model_profiling.api.comparing",
    "ComparedRuntimes": "model_profiling.api.runtime_comparing",
    "Comparisons": "model_profiling.api.comparing",
    "ExportResult": "model_profiling.export.request",
    "History": "model_profiling.api.history_api",
    "Records": "model_profiling.api.records",
    "Run": "model_profiling.api.loaded_run",
    "RuntimeComparison": "model_profiling.analysis.compare.runtime_comparison",
}


def __getattr__(name: str) -> Any:
    if name not in _LATER:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    import importlib

    return getattr(importlib.import_module(_LATER[name]), name)


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})


@takes_options("profile")
def profile(
    model: torch.nn.Module | str | Path,
    example_inputs: Any = None,
    *,
    threads: int | Sequence[int] = 1,
    runs: int | None = None,
    launches: int | None = None,
    budget_s: float | None = None,
    startup_launches: int | None = None,
    page_cache: PageCache = "warm",
    out: str | Path | None = None,
    platform: str | Platform | None = None,
    lock: bool = True,
    inputs: Sequence[str | Path] = (),
    executorch: str | Path | Sequence[str | Path] | None = None,
    label: str | None = None,
    labels: Mapping[str, str] | None = None,
    runtimes: Sequence[str | Path] = (),
    force: bool = False,
    on_progress: OnProgress | None = None,
    **options: Unpack[ProfileKeywords],
) -> Run:
    """Export a model, run it with acceleration on and off in turns, and analyse it, in one call.

    `model` is an nn.Module in memory, which stays as it is; `"file.py:Class"`; a name that `sme2-kit models` lists; or
    a .pte, which is not exported again. `example_inputs` are those of one inference of a module in memory: a tensor, a
    tuple of positional inputs, or a dict of keyword inputs. `dtype` is fp16 unless said otherwise. `input_shapes`,
    `settings` and `checkpoint` are for a model by its name or from a file; a shape may be text as of `--input`, such as
    "int64:1,128:0..30522". All other options of the export are as of `export`; `threads`, `inputs` (files), `label`,
    `labels`, `executorch` and `force` as of `run`. The installed ExecuTorch exports the model, whichever runs it.
    Unless `rewrites` are named, the model is also exported with those of `auto` and measured in turns with the program
    as it is: `run.auto`, None with `rewrites=["none"]`. A budget is for both.
    `runtimes` are others to measure beside it, as of `compare_runtimes`: `run.runtimes`, and a part of the report.
    """
    from model_profiling.api.measuring import check_versions, open_platform
    from model_profiling.pipeline.counts import checked_counts
    from model_profiling.runner.sdk_choice import split_choices

    # What is wrong with these is refused before the export.
    counts = checked_counts(runs, launches, budget_s, threads, str, startup_launches, page_cache)
    check_versions(split_choices(executorch), platform)
    home = _place(out, "profile")
    if runtimes:
        from model_profiling.api.run_runtimes import OtherRuntimes, measure_beside, refuse_runtimes
        from model_profiling.api.runtime_comparing import program_source

        with open_platform(platform, lambda _: None, lock=lock) as opened:
            refuse_runtimes(runtimes, opened, split_choices(executorch))
    with notebook_progress(on_progress) as report:
        program: Path | ExportResult
        if isinstance(model, (str, Path)) and str(model).endswith(".pte"):
            if example_inputs is not None or any(options.values()):
                raise InputError(
                    f"{model} is exported already: dtype, inputs, settings, checkpoint and rewrites are decided",
                    "Leave them out, or give the model itself.",
                )
            program = Path(str(model))
        else:
            program = export(
                model,
                example_inputs,
                out=home / "artifacts",
                force=force,
                on_progress=report,
                **settled("profile", options),
            )
        if runtimes:
            program_source(program if isinstance(program, Path) else program.paths.pte)
        beside = not options.get("rewrites") and len(split_choices(executorch)) < 2
        if beside and not isinstance(program, Path):
            from model_profiling.api import exporting
            from model_profiling.api.auto_beside import measure_auto, shared_counts

            own, pair = shared_counts(counts)
            budget_s = own.budget_s
        measured = run(
            program,
            inputs=inputs,
            executorch=executorch,
            label=label,
            labels=labels,
            force=force,
            threads=threads,
            runs=runs,
            launches=launches,
            budget_s=budget_s,
            startup_launches=startup_launches,
            page_cache=page_cache,
            out=home / "runs" / _runs_folder(platform),
            platform=platform,
            lock=lock,
            on_progress=report,
        )
        first = threads if isinstance(threads, int) else next(iter(threads), 1)
        if beside and not isinstance(program, Path):
            asked = _request("profile", model, (example_inputs, "", None), home / "artifacts", options)
            again = asked, exporting.maker(asked, model, example_inputs, report, force)
            with open_platform(platform, lambda _: None, lock=lock) as opened:
                measure_auto(measured, program, again, (pair, first, opened, report), force)
            measured.save()
        if runtimes:
            load = None
            if not isinstance(model, (str, Path)):
                from model_profiling.export.in_memory import loader

                load = loader(type(model).__name__, model, example_inputs, None)
            others = OtherRuntimes(runtimes, counts, first, tuple(map(Path, inputs)), load, force)
            with open_platform(platform, lambda _: None, lock=lock) as opened:
                measure_beside(measured, others, opened, report)
            measured.save()
        return measured


def open_run(path: str | Path, categories: str | Path | None = None, emulated: str | Path | None = None) -> Run:
    """Open a run directory, `DIR@LABEL` for an earlier run of it, or one ETDump. Nothing is written.

    `categories` is a file that extends the category table. With `emulated`, a run that `kernels` made of the same
    model, there are forecasts, too. Neither torch nor executorch is needed.
    """
    from model_profiling.api.loaded_run import Run
    from model_profiling.store.runs import resolve

    return Run.open(resolve(path), categories, None if emulated is None else resolve(emulated))


@takes_options("export")
def export(
    model: torch.nn.Module | str | Path,
    example_inputs: Any = None,
    *,
    out: str | Path | None = None,
    name: str = "",
    dynamic_shapes: Any = None,
    force: bool = False,
    verbose: bool = False,
    on_progress: OnProgress | None = None,
    **options: Unpack[ExportKeywords],
) -> ExportResult:
    """Export a model into `out`: the .pte (`result.paths.pte`), its ETRecord, sample inputs and `result.record`.

    Models and inputs are given as to `profile`. A model by its name or from a file is not exported again while nothing
    has changed, unless `force`. `name`, `example_inputs` and `dynamic_shapes` are for a module in memory.
    `keep_fp32` names layers that are left out of fp16 or quantization; `calibration` is a folder of .npy samples that
    set the ranges of int8. Unless `verify` is False, the program is executed once with the kit's runner and compared
    with the eager model (`result.record.verification`); one that does not run is an error that names the operator.
    """
    from model_profiling.api import exporting

    in_memory = example_inputs, name, dynamic_shapes
    request = _request("export", model, in_memory, out, options, loud=verbose)
    with notebook_progress(on_progress) as report:
        return exporting.maker(request, model, example_inputs, report, force, dynamic_shapes)(request, "export")


@names_keywords
def run(
    model: str | Path | ExportResult | None = None,
    *,
    config: str | Path | None = None,
    inputs: Sequence[str | Path] = (),
    threads: int | Sequence[int] | None = None,
    runs: int | None = None,
    launches: int | None = None,
    budget_s: float | None = None,
    startup_launches: int | None = None,
    page_cache: PageCache = "warm",
    prefill: int | None = None,
    decode: int | None = None,
    depths: Sequence[int] = (),
    tokens: str | Path | None = None,
    method: str | None = None,
    executorch: str | Path | Sequence[str | Path] | None = None,
    out: str | Path | None = None,
    platform: str | Platform | None = None,
    lock: bool = True,
    label: str | None = None,
    labels: Mapping[str, str] | None = None,
    keep_program: bool = True,
    only: Sequence[str] | None = None,
    force: bool = False,
    on_progress: OnProgress | None = None,
) -> Run:
    """Measure a .pte with acceleration on and off, in turns, and write all that derives from it into `out`.

    `model` is a .pte or what `export` returned; `config`, a JSON config, goes instead of it and of all that it says.
    `platform` is None for this machine, "emulator", "android", "android:SERIAL" or "ssh:HOST". Several `threads` are
    measured side by side, within one budget, and `run.scaling` compares them. What is in `out` already is not measured
    again unless `force`; `run.notes` says so. `label` is what the run is called; by `labels` (key and value) `history`
    finds it again, which can also compare its program with later ones unless `keep_program` is False.

    A language model is run by phase: `prefill` tokens at once, `decode` tokens one by one, after `depths` tokens; 0
    leaves a phase out. `tokens` is a .npy of int64 ids to read instead of random ones. `method` is that of a program
    which has several.

    `executorch` is a release such as "1.5.0", or the install prefix of a build of your own, that the runner is built
    against instead of the installed release; several take turns, and each is compared with the next.
    """
    from model_profiling.api.measuring import RunRequest
    from model_profiling.pipeline.counts import checked_counts
    from model_profiling.pipeline.phase_experiments import checked_lengths
    from model_profiling.pipeline.schedule import CHOSEN
    from model_profiling.runner.sdk_choice import split_choices

    if (model is None) == (config is None):
        raise InputError("give a .pte or a config, one of the two", "For example api.run('model.pte').")
    counts = checked_counts(runs, launches, budget_s, threads, str, startup_launches, page_cache)
    lengths = checked_lengths(prefill, decode, depths, str)
    beside = out or inputs or threads or tokens or method or lengths.asked
    if config is not None and (beside or counts != CHOSEN):
        raise InputError(
            "out, inputs, method, and what is said of counts, start-up and phases, can be used only with a .pte",
            "Set them in the config instead.",
        )
    asked = RunRequest(
        model=None if model is None else Path(_path(model)),
        config=None if config is None else Path(config),
        inputs=[Path(file) for file in inputs],
        lengths=lengths,
        token_file=None if tokens is None else Path(tokens),
        method=method,
        executorch=split_choices(executorch),
        out=_place(out, "run") if config is None else None,
        counts=counts,
        threads=threads,
        label=label,
        labels=labels or {},
        keep_program=keep_program,
        only=None if only is None else list(only),
        force=force,
    )
    with notebook_progress(on_progress) as report:
        return _measured(asked, platform, report, lock)


@names_keywords
def kernels(
    model: str | Path | ExportResult,
    *,
    levels: Sequence[str] | None = None,
    platform: str | Platform = "emulator",
    out: str | Path | None = None,
    on_progress: OnProgress | None = None,
) -> Run:
    """Run a .pte once under an emulated SME2 CPU and see which kernels it uses: `run.kernels`, operator by operator.
    Or on another `platform`: a CPU that has SME2.

    `levels` are the CPUs to emulate, of "neon", "sme1" and "sme2"; all of them unless said otherwise, so that their
    outputs can be compared. Times of such a run mean nothing and are never shown.
    """
    from model_profiling.api.measuring import kernels_request, open_platform

    for level in levels or ():
        if level not in ("neon", "sme1", "sme2"):
            raise InputError(f"there is no level {level!r}", "Use neon, sme1 or sme2.")
    pte = Path(_path(model))
    with notebook_progress(on_progress) as report, open_platform(platform, lambda _: None, pte) as opened:
        asked = kernels_request(pte, opened, levels, _place(out, "kernels"))
        return _measured(asked, opened, report)


@names_keywords
def compare(
    before: str | Path | Run | ExportResult,
    after: str | Path | Run | ExportResult | None = None,
    *,
    threads: int | None = None,
    runs: int | None = None,
    launches: int | None = None,
    budget_s: float | None = None,
    startup_launches: int | None = None,
    page_cache: PageCache = "warm",
    executorch: str | Path | Sequence[str | Path] | None = None,
    categories: str | Path | None = None,
    platform: str | Platform | None = None,
    lock: bool = True,
    on_progress: OnProgress | None = None,
) -> Comparisons:
    """Hold `after` against `before`: latency with its interval and verdict, and every category and operator; `startup`
    and `memory` where both sides have them.

    Each is a run, or its directory (`DIR`, `DIR@LABEL`, either with `:EXPERIMENT`), or an ETDump. Two .pte are measured
    now, side by side, which is the most exact comparison; threads, counts and `platform` are for those, and start-up is
    measured only if `startup_launches` says how often.

    One .pte without `after` is measured with two `executorch` in turns, the first of them before, the second after: a
    release such as "1.5.0", or the install prefix of a build of your own. Then `startup` is measured, and `outputs`
    and `kernels` are compared, too. Two .pte are both measured with one `executorch`, if it is given.
    """
    from model_profiling.api import comparing
    from model_profiling.api.measuring import open_platform
    from model_profiling.pipeline.counts import checked_counts
    from model_profiling.runner.sdk_choice import split_choices
    from model_profiling.store.runs import resolve

    first = str(resolve(_path(before)))
    second = None if after is None else str(resolve(_path(after)))
    versions = split_choices(executorch)
    counts = checked_counts(runs, launches, budget_s, threads, str, startup_launches, page_cache)
    with notebook_progress(on_progress) as report:
        if not comparing.is_to_measure(first, second, versions):
            if platform is not None:
                raise InputError("the platform is for two .pte", "A run directory is measured already: leave it out.")
            return comparing.compare(first, second or "", categories, counts, threads)
        asked = comparing.programs_to_measure(first, second, versions, counts, threads)
        with open_platform(platform, lambda _: None, Path(asked.before), Path(asked.after), lock=lock) as opened:
            return comparing.measure_pair(asked, categories, report, opened)


@takes_options("profile")
def compare_runtimes(
    model: torch.nn.Module | str | Path,
    example_inputs: Any = None,
    *,
    runtimes: Sequence[str | Path] = ("executorch", "eager"),
    threads: int = 1,
    runs: int | None = None,
    launches: int | None = None,
    budget_s: float | None = None,
    startup_launches: int | None = None,
    page_cache: PageCache = "warm",
    timeout_s: float = 600.0,
    inputs: Sequence[str | Path] = (),
    out: str | Path | None = None,
    platform: str | Platform | None = None,
    lock: bool = True,
    force: bool = False,
    on_progress: OnProgress | None = None,
    **options: Unpack[ProfileKeywords],
) -> ComparedRuntimes:
    """Measure a model in ExecuTorch and in other runtimes, in turns on this machine, each in processes of its own.

    `runtimes` are some of "executorch", "eager", "compile" (torch.compile), "onnxruntime" and "litert", or files of
    your own, .onnx and .tflite, which are taken as they are. `model` and its options are given as to `profile`, or it
    is such a file. All have the same module, weights, inputs and threads; the .onnx is made beside the .pte.

    `result.rows` has the fastest first: `latency`, its `comparison` with ExecuTorch, `startup`, `peak_bytes`, and
    `outputs` held against eager PyTorch. One whose outputs differ is not `ranked`; one that could not be measured has
    a `reason`. A runtime that says nothing for `timeout_s` seconds is given up. `result.report("runtimes.html")` writes
    a page.
    """
    from model_profiling.api import exporting
    from model_profiling.api import runtime_comparing as comparing
    from model_profiling.api.measuring import open_platform
    from model_profiling.pipeline.counts import checked_counts

    counts = checked_counts(runs, launches, budget_s, threads, str, startup_launches, page_cache)
    text = str(model) if isinstance(model, (str, Path)) else ""
    own = comparing.is_file_of_runtime(text)
    choices = comparing.runtime_choices([*([text] if own else ()), *runtimes])
    asked = comparing.RuntimesRequest(choices, counts, threads, tuple(map(Path, inputs)), timeout_s)
    if (own or text.endswith(".pte")) and (example_inputs is not None or any(options.values())):
        raise InputError(f"{text} is taken as it is: nothing of an export can change it", "Leave the options out.")
    with notebook_progress(on_progress) as report, open_platform(platform, lambda _: None, lock=lock) as opened:
        comparing.refuse_platform(opened)
        source = None
        if text.endswith(".pte"):
            source = comparing.program_source(Path(text))
        elif not own:
            load, request = (
                None,
                _request("profile", model, (example_inputs, "", None), _place(out, "compare"), options),
            )
            make = exporting.maker(request, model, example_inputs, report, force)
            if not request.target:
                from model_profiling.export.in_memory import loader

                load = loader(request.model, model, example_inputs, None)
            others = any(choice.runtime.module for choice in choices)
            source = comparing.exported_source(request, lambda: make(request, "export"), load, others)
        return comparing.measure_runtimes(asked, source, opened, report)


def history(
    *folders: str | Path,
    model: str | None = None,
    platform: str | None = None,
    dtype: str | None = None,
    labels: Mapping[str, str] | None = None,
    since: str | None = None,
    on_progress: OnProgress | None = None,
) -> History:
    """Return every run below some folders (this one unless said otherwise): `runs`, `series` with their steps, `top`
    operators and SME2 `coverage` of all models.

    `model` may have * in it, `labels` are of the runs (also "commit" and "branch"), `since` is a date or "90d". Nothing
    is measured, and only an index in the cache is written.
    """
    from model_profiling.api.history_api import History
    from model_profiling.fleet.history import run_history as questions

    first = None if since is None else questions.parse_since(since)
    filters = questions.Filters(model, platform, dtype, dict(labels or {}), first)
    with notebook_progress(on_progress) as report:
        return History(questions.RunHistory(folders or (".",), filters, report))


@names_keywords
def forecast(
    measured: torch.nn.Module | str | Path | Run,
    emulated: str | Path | Run | None = None,
    *,
    target: str | Path | None = None,
    speedups: Sequence[float] | None = None,
    example_inputs: Any = None,
    out: str | Path | None = None,
    on_progress: OnProgress | None = None,
) -> Records[Forecast]:
    """Predict what SME2 would change in a run that was measured without it; a .pte or a model is measured first, as by
    `profile`.

    Which operators SME2 runs is in the table of known kernels; `emulated`, a run that `kernels` made, is the proof, and
    `forecast.evidence` says which of them it stands on. How much faster each becomes follows from its dtype and shape
    on `target`: a machine that `sme2-kit targets` lists ("apple_m4" unless said otherwise), "all" of them, or a file
    that `roofs` wrote on a machine with SME2. Instead, `speedups` are assumed of all of them, each with its own
    prediction.
    """
    from model_profiling.analysis.run.run_forecasts import forecast_targets, forecasts
    from model_profiling.analysis.sme2.target import DEFAULT
    from model_profiling.api.loaded_run import Run
    from model_profiling.api.records import Records

    if target is not None and speedups:
        raise InputError("target and speedups exclude each other", "Give the machine, or what to assume.")
    if isinstance(measured, Run) or (isinstance(measured, (str, Path)) and Path(measured).is_dir()):
        run = _opened(measured)
    else:
        run = profile(measured, example_inputs, out=out, on_progress=on_progress)
    proof = None if emulated is None else _opened(emulated)
    if str(target) == "all":
        return Records(entry for each in forecast_targets(run, proof) for entry in each.forecasts)
    return Records(forecasts(run, proof, tuple(speedups or ()), target or DEFAULT))


@takes_options("tune")
def tune(
    model: torch.nn.Module | str | Path,
    example_inputs: Any = None,
    *,
    threads: int = 1,
    runs: int | None = None,
    launches: int | None = None,
    budget_s: float | None = None,
    out: str | Path | None = None,
    force: bool = False,
    tokens: str | Path | None = None,
    worst_layers: int = 0,
    min_sqnr_db: float | None = None,
    platform: str | Platform | None = None,
    lock: bool = True,
    on_progress: OnProgress | None = None,
    **options: Unpack[TuneKeywords],
) -> TuneResult:
    """Try what may make it faster, measured side by side and checked until the best is known: `result.winner`, with
    its .pte in `result.program` ('' and the baseline's if nothing is faster) and what each change gained in `steps`.

    With `min_sqnr_db` every dtype is tried, and what is less accurate than that cannot win.
    Models and inputs are given as to `profile`; `dtype` is that of the baseline. Of a language model the weight formats
    are tried, each phase by itself (`format` of each variant); `tokens`, a .npy of int64 ids, adds their perplexity.
    With `worst_layers`, up to so many of the layers that `numerics` ranks worst are kept in fp32 instead: `pareto` of
    each variant says whether no other is both faster and more accurate.
    """
    from model_profiling.api import exporting
    from model_profiling.api.layer_errors import numerics_of
    from model_profiling.api.measuring import open_platform
    from model_profiling.export.publish import refuse_unwritable
    from model_profiling.pipeline.counts import checked_counts
    from model_profiling.tune.tuning import Tuner, TuneRequest

    counts = checked_counts(runs, launches, budget_s, threads)
    base = _request("tune", model, (example_inputs, "", None), out, options)
    if worst_layers < 0 or (worst_layers and not dtype_of(base.dtype).converts):
        raise InputError("worst layers are kept in fp32: the baseline has another dtype", "Give fp16 or int8.")
    refuse_unwritable(base.outdir)
    with notebook_progress(on_progress) as report, open_platform(platform, lambda _: None, lock=lock) as opened:
        if opened.timing != "measured":
            raise InputError("variants cannot be ranked under an emulator: its times mean nothing", "Choose a machine.")
        make = exporting.maker(base, model, example_inputs, report, force)
        given = None if base.target else (model, example_inputs)
        tuner = Tuner(
            TuneRequest(
                base, threads, counts, force, None if tokens is None else Path(tokens), worst_layers, min_sqnr_db
            ),
            opened,
            lambda request: make(request, f"export {request.outdir.name}"),
            report,
            exporting.repeated_by,
            lambda request, made: numerics_of(request, made, opened, report, given, trial=False),
        )
        return tuner.run()


@names_keywords
def sweep(
    asked: str | Path | Mapping[str, Any],
    *,
    out: str | Path | None = None,
    only: Sequence[str] = (),
    fresh: bool = False,
    ray: str | None = None,
    on_progress: OnProgress | None = None,
) -> SweepResult:
    """Export and run models x dtypes x rewrites x threads x targets, and hold them against each other.

    `asked` is a sweep file, or its keys as a dictionary. What is finished in `out` is not done again, unless `fresh`:
    then all of it, or of the cells that `only` names, is measured anew and held against what was there. Jobs are
    processes of their own, on this machine or, with `ray` (HOST:PORT, or "auto"), on a Ray cluster. A job that fails
    raises nothing: `result.jobs` has its `failure`. `result.cells` has the numbers; `out` has the page, portfolio.html.
    """
    from model_profiling.api import sweep_api

    opened = sweep_api.open_sweep(asked, out, only)
    with notebook_progress(on_progress) as report:
        return opened.run(sweep_api.executor(ray), fresh, report)


@takes_options("numerics")
def numerics(
    model: torch.nn.Module | str | Path,
    example_inputs: Any = None,
    *,
    out: str | Path | None = None,
    platform: str | Platform | None = None,
    trial: bool = True,
    force: bool = False,
    on_progress: OnProgress | None = None,
    **options: Unpack[ProfileKeywords],
) -> Numerics:
    """Find the layer that loses the accuracy: every layer of the exported program against eager PyTorch in fp32.

    Models and inputs are given as to `profile`, the rest as to `export`. `result.alarms` are layers that something is
    wrong with, `result.worst` all that are not exact, worst first, `result.layers` all in the order in which they run.
    Remedies are exported and run once: `result.trials`, each with its `outputs` by experiment, and `helps` for those to
    follow; `trial=False` leaves that out. What is found lies beside the .pte in `out`, where reports on it find it.
    """
    from model_profiling.api import exporting
    from model_profiling.api.layer_errors import numerics_of
    from model_profiling.api.measuring import open_platform

    request = _request("numerics", model, (example_inputs, "", None), out, options)
    with notebook_progress(on_progress) as report, open_platform(platform, lambda _: None) as opened:
        made = exporting.maker(request, model, example_inputs, report, force)(request, "export")
        given = None if request.target else (model, example_inputs)
        return numerics_of(request, made, opened, report, given, trial=trial)


@names_keywords
def roofs(
    dtypes: Sequence[str] = ARITHMETICS,
    *,
    threads: Sequence[int] = (1,),
    out: str | Path | None = None,
    platform: str | Platform | None = None,
    lock: bool = True,
    runs: int | None = None,
    launches: int | None = None,
    on_progress: OnProgress | None = None,
) -> Roofs:
    """Measure what this backend reaches at its best on a CPU: probe operators of many shapes, in each dtype.

    The result is kept in the cache under the CPU's name, where later reports and forecasts find it, or in `out`.
    """
    from model_profiling.api.measuring import open_platform
    from model_profiling.api.roof_measuring import COUNTS, Probing, measure_roofs
    from model_profiling.pipeline.counts import checked_counts
    from model_profiling.pipeline.schedule import Counts

    for number in threads:
        checked_counts(runs, launches, None, number)
    counts = Counts(runs or COUNTS.runs, launches or COUNTS.launches)
    asked = Probing(tuple(dtypes), tuple(threads), counts, None if out is None else Path(out))
    with notebook_progress(on_progress) as report, open_platform(platform, lambda _: None, lock=lock) as opened:
        return measure_roofs(asked, opened, report)


def validate_forecast(
    models: Sequence[str | Path] = (),
    *,
    dtypes: Sequence[str] = ARITHMETICS,
    budget_s: float | None = None,
    out: str | Path | None = None,
    platform: str | Platform | None = None,
    lock: bool = True,
    force: bool = False,
    on_progress: OnProgress | None = None,
) -> ForecastValidation:
    """Hold the forecast against a CPU: what its roofs predict of models with a feature on, against their runs.

    `models` are names, files or .pte, a few small ones unless given, each with `budget_s` seconds in each dtype. One
    that fails is in `result.failed`.

    `out` has forecast_validation.html, a page, and forecast_validation.json, which is made to be shared, and on a
    machine with SME2 is a target for `forecast`. What `out` and the cache have already is not measured again.
    """
    from model_profiling.api import forecast_validating
    from model_profiling.api.measuring import open_platform
    from model_profiling.base.on_progress import no_notes
    from model_profiling.pipeline.counts import checked_counts

    checked_counts(None, None, budget_s, None)
    asked = forecast_validating.ValidationRequest(
        out=_place(out, "validate-forecast"),
        models=[str(model) for model in models] or forecast_validating.MODELS,
        dtypes=tuple(dtypes),
        budget_s=budget_s or forecast_validating.BUDGET_S,
        force=force,
    )
    asked.check()
    with notebook_progress(on_progress) as report, open_platform(platform, lambda _: None, lock=lock) as opened:
        return forecast_validating.validate_forecast(asked, opened, report, no_notes)


def _runs_folder(platform: str | Platform | None) -> str:
    from model_profiling.platforms.choosing import folder_of, named

    return folder_of(named(platform)) if platform is None or isinstance(platform, str) else platform.folder


def _place(out: str | Path | None, what: str) -> Path:
    """Return where results go: where nobody names a place, a directory that lives as long as the process."""
    from model_profiling.base import files

    return files.lasting_scratch(f"sme2_kit_{what}_") if out is None else Path(out)


def _request(
    verb: Verb,
    model: Any,
    in_memory: tuple[Any, str, Any],
    out: str | Path | None,
    options: Mapping[str, Any],
    **more: Any,
) -> ExportRequest:
    """Return what is asked for; `in_memory` goes with a module only: example_inputs, name and dynamic_shapes."""
    from model_profiling.api import exporting
    from model_profiling.export.request import ExportRequest
    from model_profiling.models.lookup import snake_case

    example_inputs, name, dynamic_shapes = in_memory
    given = settled(verb, options)
    loading = exporting.load_options(*(given.pop(key, None) for key in ("input_shapes", "settings", "checkpoint")))
    # What does not go with the model is refused and not ignored.
    if not isinstance(model, (str, Path)):
        if loading.inputs or loading.settings or loading.checkpoint:
            raise InputError(
                "input_shapes, settings and checkpoint are for a model by its name or from a file",
                "Give a module with its weights, and example_inputs.",
            )
        target, known = "", name or snake_case(type(getattr(model, "_orig_mod", model)).__name__)
    elif example_inputs is not None or name or dynamic_shapes is not None:
        raise InputError(
            f"{model} brings its own inputs: example_inputs, name and dynamic_shapes are for a module in memory",
            "Leave them out; input_shapes gives a model from a file random inputs.",
        )
    else:
        target, known = str(model), exporting.artifact_name(str(model), loading)
    return ExportRequest(known, _place(out, verb), target=target, options=loading, **given, **more)


def _path(given: Any) -> str | Path:
    """Return the path of whatever names a program or a run."""
    from model_profiling.export.request import ExportResult

    if isinstance(given, (str, Path)):
        return given
    if isinstance(given, ExportResult):
        return given.paths.pte
    path = getattr(given, "path", None)
    if isinstance(path, Path):
        return path
    raise InputError(f"a {type(given).__name__} is neither a path nor a result", "Give a path, a Run or an export.")


def _opened(given: str | Path | Run) -> Run:
    from model_profiling.api.loaded_run import Run

    return given if isinstance(given, Run) else open_run(given)


def _measured(asked: Any, platform: str | Platform | None, on_progress: OnProgress, lock: bool = True) -> Run:
    from model_profiling.api.measuring import measure, open_platform

    notes: list[str] = []
    with open_platform(platform, notes.append, *filter(None, [asked.model]), lock=lock) as opened:
        found = measure(asked, opened, on_progress, notes.append)
    found.run.notes += [*notes, *filter(None, (found.remark, found.reused))]
    found.run.check_outputs()
    found.run.save()
    found.run.check()
    return found.run
