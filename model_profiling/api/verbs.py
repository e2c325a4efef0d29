"""Every verb: a typed function whose signature and docstring are the definition of the command and the tool, too.

Importing this imports nothing heavy, so that the command line can list flags at once: what a verb needs to do its work
is imported when it is called.
"""

from __future__ import annotations

import contextlib
import functools
from collections.abc import Iterator, Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from model_profiling.api import parameters as p
from model_profiling.api.calling import call_with, caller, own_place, path_of, place, runs_folder, takes_options, verb
from model_profiling.api.notebook import notebook_progress
from model_profiling.base.dtypes import ARITHMETICS
from model_profiling.base.errors import InputError
from model_profiling.base.on_progress import OnProgress

if TYPE_CHECKING:
    from typing_extensions import Unpack

    from model_profiling.analysis.accuracy.numerics import Numerics
    from model_profiling.analysis.roofs.roof_rates import Roofs
    from model_profiling.analysis.sme2.forecast_record import Forecast
    from model_profiling.analysis.sme2.forecast_validation import ForecastValidation
    from model_profiling.api.comparing import Comparisons
    from model_profiling.api.history_api import History
    from model_profiling.api.loaded_run import Run
    from model_profiling.api.records import Records
    from model_profiling.api.runtime_comparing import ComparedRuntimes
    from model_profiling.export.options import ExportKeywords, ProfileKeywords, TuneKeywords
    from model_profiling.export.request import ExportResult
    from model_profiling.fleet.sweep.result import SweepResult
    from model_profiling.pipeline.schedule import Counts
    from model_profiling.platforms.base import Platform
    from model_profiling.platforms.platform_table import Choice
    from model_profiling.tune.tune_result import TuneResult


@contextlib.contextmanager
def _measuring(
    platform: str | Choice | Platform | None, lock: bool, on_progress: OnProgress | None, *programs: Path
) -> Iterator[tuple[Platform, OnProgress]]:
    """Open the platform, and provide who is told of progress."""
    from model_profiling.api.measuring import open_platform

    chosen = open_platform(platform, caller().on_note, *programs, lock=lock)
    with notebook_progress(on_progress) as report, chosen as opened:
        yield opened, report


def _counts(
    runs: int | None,
    launches: int | None,
    budget_s: float | None,
    threads: int | Sequence[int] | None,
    startup_launches: int | None = None,
    page_cache: p.PageCache = "warm",
) -> Counts:
    """Return how much to measure; what cannot be is refused in the caller's words."""
    from model_profiling.pipeline.schedule import checked_counts

    return checked_counts(runs, launches, budget_s, threads, caller().spelled, startup_launches, page_cache)


def _is_judged(metric: object, data: object, max_drop: float | None, lower_is_better: bool) -> bool:
    """Return whether a metric judges; what of it is given alone is refused."""
    others = {"data": data, "max_drop": max_drop, "lower_is_better": lower_is_better or None}
    if metric is None and (stray := [name for name, given in others.items() if given is not None]):
        raise InputError(f"{caller().spelled(stray[0])} is for a metric, and there is none", "Give a metric, too.")
    if metric is not None and data is None:
        raise InputError("there are no samples to compute the metric of", f"Give {caller().spelled('data')}.")
    return metric is not None


def _first(threads: int | Sequence[int] | None) -> int:
    return threads if isinstance(threads, int) else next(iter(threads or ()), 1)


@takes_options("profile")
def profile(
    model: p.ModelOrProgram,
    example_inputs: Any = None,
    *,
    threads: p.ThreadCounts = 1,
    runs: p.Runs = None,
    launches: p.Launches = None,
    budget_s: p.BudgetS = None,
    startup_launches: p.StartupLaunches = None,
    page_cache: p.PageCache = "warm",
    out: p.Out = None,
    platform: p.PlatformName = None,
    lock: p.Lock = True,
    inputs: p.Inputs = (),
    executorch: p.ExecuTorch = None,
    label: p.Label = None,
    labels: p.Labels = None,
    keep_program: p.KeepProgram = True,
    runtimes: p.Runtimes = (),
    force: p.Force = False,
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
    from model_profiling.api import exporting
    from model_profiling.api.measuring import RunRequest, check_versions, config_keys, measured, open_platform
    from model_profiling.base.files import is_file
    from model_profiling.pipeline.defaults import root_below
    from model_profiling.runner.sdk import split_choices
    from model_profiling.store.runs import checked_label

    keys = config_keys(locals())
    # What is wrong with these is refused before the export.
    if label is not None:
        checked_label(label)
    files = [Path(file) for file in inputs]
    for path in files:
        if not is_file(path):
            raise InputError(
                f"input file {path} does not exist", f"Correct {caller().spelled('inputs')}, or leave it out."
            )
    counts = _counts(runs, launches, budget_s, threads, startup_launches, page_cache)
    versions = split_choices(executorch)
    check_versions(versions, platform)
    if runtimes:
        from model_profiling.api import runtime_comparing as comparing

        with open_platform(platform, caller().on_note, lock=lock) as opened:
            choices = comparing.others_beside(runtimes, opened, versions)
    with notebook_progress(on_progress) as report:
        exported = None
        if isinstance(model, (str, Path)) and str(model).endswith(".pte"):
            given = [caller().spelled(name) for name, value in options.items() if value]
            given += ["example_inputs"] if example_inputs is not None else []
            if given:
                what = f"{model} is exported already: {', '.join(given)} cannot change it"
                raise InputError(what, "Leave them out, or give the model itself.")
            pte, home = Path(model), own_place(out, "profile")
        else:
            below = None if out is None else Path(out) / "artifacts"
            asked = exporting.export_request("profile", model, (example_inputs, "", None), below, options, mend=True)
            if below is None and not caller().of_commands:
                asked = replace(asked, outdir=asked.outdir / "artifacts")
            make = exporting.maker(asked, model, example_inputs, report, force)
            exported = make(asked, "export")
            caller().on_part(exported)
            pte, home = exported.paths.pte, asked.outdir.parent
        if runtimes:
            comparing.program_source(pte)
        beside, own = exported is not None and not options.get("rewrites") and len(versions) < 2, counts
        if beside:
            from model_profiling.api.auto_beside import measure_auto, shared_counts

            own, pair = shared_counts(counts)
        in_memory = runtimes and not isinstance(model, (str, Path))
        load = exporting.loading(asked, (model, example_inputs)) if in_memory else None
        request = RunRequest(
            model=pte,
            inputs=files,
            out=None if home is None else root_below(home, runs_folder(platform), pte),
            counts=own,
            threads=threads,
            executorch=versions,
            keys=keys,
            force=force,
        )
        found = measured(request, platform, report, lock)
        if not (beside or runtimes):
            return found
        with open_platform(platform, caller().on_note, lock=lock) as opened:
            if beside and exported is not None:
                measure_auto(found, exported, (asked, make), (pair, _first(threads), opened, report), force)
            if runtimes:
                others = comparing.RuntimesRequest(choices, counts, _first(threads), files)
                if remark := comparing.measure_beside(found, others, load, force, opened, report):
                    caller().on_note(remark)
        if not caller().of_commands:
            found.save()
        return found


@verb
def open_run(path: str | Path, categories: p.Categories = None, emulated: str | Path | None = None) -> Run:
    """Open a run directory, `DIR@LABEL` for an earlier run of it, or one ETDump. Nothing is written.

    `categories` is a file that extends the category table. With `emulated`, a run that `kernels` made of the same
    model, there are forecasts, too. Neither torch nor executorch is needed.
    """
    from model_profiling.api.loaded_run import Run
    from model_profiling.store.runs import resolve

    return Run.open(resolve(path), categories, None if emulated is None else resolve(emulated))


def _opened(given: str | Path | Run) -> Run:
    return open_run(given) if isinstance(given, (str, Path)) else given


@takes_options("export")
def export(
    model: p.Model,
    example_inputs: Any = None,
    *,
    out: p.ArtifactsOut = None,
    name: str = "",
    dynamic_shapes: Any = None,
    metric: p.Metric = None,
    data: p.Data = None,
    lower_is_better: p.LowerIsBetter = False,
    force: p.Force = False,
    verbose: p.Verbose = False,
    on_progress: OnProgress | None = None,
    **options: Unpack[ExportKeywords],
) -> ExportResult:
    """Export a model into `out`: the .pte (`result.paths.pte`), its ETRecord, sample inputs and `result.record`.

    Models and inputs are given as to `profile`. A model by its name or from a file is not exported again while nothing
    has changed, unless `force`. `name`, `example_inputs` and `dynamic_shapes` are for a module in memory.
    `keep_fp32` names layers that are left out of fp16 or quantization; `calibration` is a folder of .npy samples that
    set the ranges of int8. Unless `verify` is False, the program is executed once with the kit's runner and compared
    with the eager model (`result.record.verification`); one that does not run is an error that names the operator.
    With `metric`, `result.metric` has what that says of the program and of eager PyTorch, on `data`.
    """
    from model_profiling.api import exporting

    is_judged = _is_judged(metric, data, None, lower_is_better)
    in_memory = example_inputs, name, dynamic_shapes
    request = exporting.export_request("export", model, in_memory, out, options, loud=verbose)
    with notebook_progress(on_progress) as report:
        make = exporting.maker(request, model, example_inputs, report, force, dynamic_shapes)
        if not is_judged:
            return make(request, "export")
        judged, pair = (metric, data, lower_is_better), (model, example_inputs)
        return exporting.export_with_metric(request, make, judged, pair, report, force)


@verb
def run(
    model: p.Program | None = None,
    *,
    config: p.Config = None,
    inputs: p.Inputs = (),
    threads: p.ThreadCounts = None,
    runs: p.Runs = None,
    launches: p.Launches = None,
    budget_s: p.BudgetS = None,
    startup_launches: p.StartupLaunches = None,
    page_cache: p.PageCache = "warm",
    prefill: p.Prefill = None,
    decode: p.Decode = None,
    depths: p.Depths = (),
    tokens: p.Tokens = None,
    method: p.Method = None,
    executorch: p.ExecuTorch = None,
    out: p.RunOut = None,
    platform: p.PlatformName = None,
    lock: p.Lock = True,
    label: p.Label = None,
    labels: p.Labels = None,
    keep_program: p.KeepProgram = True,
    only: p.Only = None,
    runtimes: p.Runtimes = (),
    force: p.Force = False,
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
    against instead of the installed release; several take turns, and each is compared with the next. `runtimes` are
    others to measure beside it, as of `compare_runtimes`: `run.runtimes`.
    """
    from model_profiling.api.measuring import RunRequest, config_keys, measured
    from model_profiling.pipeline.phase_experiments import checked_lengths
    from model_profiling.pipeline.schedule import CHOSEN
    from model_profiling.runner.sdk import split_choices

    keys = config_keys(locals())
    one_of(model, config)
    counts = _counts(runs, launches, budget_s, threads, startup_launches, page_cache)
    lengths = checked_lengths(prefill, decode, depths, caller().spelled)
    beside = out or inputs or threads or tokens or method or runtimes or lengths.asked
    if config is not None and (beside or counts != CHOSEN):
        names = ", ".join(map(caller().spelled, ("out", "inputs", "method", "tokens", "runtimes")))
        raise InputError(
            f"{names}, and all of counts, start-up and phases can be used only with a .pte",
            "Set them in the config instead.",
        )
    asked = RunRequest(
        model=None if model is None else Path(path_of(model)),
        config=None if config is None else Path(config),
        inputs=[Path(file) for file in inputs],
        lengths=lengths,
        token_file=None if tokens is None else Path(tokens),
        method=method,
        executorch=split_choices(executorch),
        # A config says where, and a command lets the platform choose.
        out=None if config is not None else own_place(out, "run"),
        counts=counts,
        threads=threads,
        keys=keys,
        only=None if only is None else list(only),
        force=force,
    )
    if not runtimes:
        with notebook_progress(on_progress) as report:
            return measured(asked, platform, report, lock)
    from model_profiling.api import runtime_comparing as comparing

    with _measuring(platform, lock, on_progress, *filter(None, [asked.model])) as (opened, report):
        choices = comparing.others_beside(runtimes, opened, asked.executorch)
        found = measured(asked, opened, report)
        try:
            others = comparing.RuntimesRequest(choices, counts, _first(threads), asked.inputs)
            remark = comparing.measure_beside(found, others, None, force, opened, report)
        except InputError as error:
            remark = f"not measured in other runtimes: {error.message}"
    if remark:
        found.notes.append(remark)
        caller().on_note(remark)
    if not caller().of_commands:
        found.save()
    return found


def one_of(model: Any, config: Any) -> None:
    """Refuse what says nothing to run, or two things."""
    if (model is None) == (config is None):
        example = "For example: sme2-kit run out_toy_cnn/artifacts/toy_cnn_xnnpack_fp16.pte"
        raise InputError(f"give a .pte or {caller().spelled('config')}, one of the two", example)


@verb
def kernels(
    model: p.Program,
    *,
    levels: p.Levels = None,
    platform: p.PlatformName = "emulator",
    lock: p.Lock = True,
    out: p.KernelsOut = None,
    on_progress: OnProgress | None = None,
) -> Run:
    """Run a .pte once under an emulated SME2 CPU and see which kernels it uses: `run.kernels`, operator by operator.
    Or on another `platform`: a CPU that has SME2.

    `levels` are the CPUs to emulate, of "neon", "sme1" and "sme2"; all of them unless said otherwise, so that their
    outputs can be compared. Times of such a run mean nothing and are never shown.
    """
    from model_profiling.api.measuring import kernels_request, measured

    for level in levels or ():
        if level not in p.LEVELS:
            raise InputError(f"there is no level {level!r}", f"Use one of {', '.join(p.LEVELS)}.")
    pte = Path(path_of(model))
    with _measuring(platform, lock, on_progress, pte) as (opened, report):
        return measured(kernels_request(pte, opened, levels, own_place(out, "kernels")), opened, report)


@verb
def compare(
    before: p.Before,
    after: p.After = None,
    *,
    threads: p.Threads = None,
    runs: p.Runs = None,
    launches: p.Launches = None,
    budget_s: p.BudgetS = None,
    startup_launches: p.StartupLaunches = None,
    page_cache: p.PageCache = "warm",
    executorch: p.ExecuTorch = None,
    categories: p.Categories = None,
    metric: p.Metric = None,
    data: p.Data = None,
    max_drop: p.MaxDrop = None,
    lower_is_better: p.LowerIsBetter = False,
    platform: p.PlatformName = None,
    lock: p.Lock = True,
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

    `metric` and `data` are those of `tune`: `metric.after` of the result has by how much it is worse for the second
    .pte, with an interval over samples, and whether that is within `max_drop`.
    """
    from model_profiling.api import comparing
    from model_profiling.platforms.platform_table import Choice
    from model_profiling.runner.sdk import split_choices
    from model_profiling.store.runs import resolve

    first = str(resolve(path_of(before)))
    second = None if after is None else str(resolve(path_of(after)))
    versions = split_choices(executorch)
    counts = _counts(runs, launches, budget_s, threads, startup_launches, page_cache)
    asked = comparing.measuring_of(first, second, versions, counts, threads)
    given = _is_judged(metric, data, max_drop, lower_is_better)
    judged = comparing.metric_of(asked, metric, data, max_drop or 0.0, lower_is_better) if given else None
    if asked is not None:
        with _measuring(platform, lock, on_progress, Path(asked.before), Path(asked.after)) as (opened, report):
            return comparing.measure_pair(asked, categories, report, opened, judged)
    chosen: object = platform
    if chosen not in (None, Choice()) or not lock:
        where = f"{caller().spelled('platform')} and {caller().spelled('no_lock')}"
        raise InputError(f"{where} are for two .pte", "What is measured already stays where it was: leave it out.")
    return comparing.compare(first, second or "", categories, counts, threads)


@takes_options("profile")
def compare_runtimes(
    model: p.AnyModel,
    example_inputs: Any = None,
    *,
    runtimes: p.Runtimes = ("executorch", "eager"),
    threads: p.Threads = 1,
    runs: p.Runs = None,
    launches: p.Launches = None,
    budget_s: p.BudgetS = None,
    startup_launches: p.StartupLaunches = None,
    page_cache: p.PageCache = "warm",
    timeout_s: p.Timeout = 600.0,
    inputs: p.Inputs = (),
    out: p.Out = None,
    platform: p.PlatformName = None,
    lock: p.Lock = True,
    force: p.Force = False,
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

    counts = _counts(runs, launches, budget_s, threads, startup_launches, page_cache)
    text = str(model) if isinstance(model, (str, Path)) else ""
    own = comparing.is_file_of_runtime(text)
    choices = comparing.runtime_choices([*([text] if own else ()), *runtimes])
    asked = comparing.RuntimesRequest(choices, counts, threads or 1, [*map(Path, inputs)], timeout_s)
    if (own or text.endswith(".pte")) and (example_inputs is not None or any(options.values())):
        raise InputError(f"{text} is taken as it is: nothing of an export can change it", "Leave the options out.")
    with _measuring(platform, lock, on_progress) as (opened, report):
        comparing.refuse_platform(opened)
        source = None
        if text.endswith(".pte"):
            source = comparing.program_source(Path(text))
        elif not own:
            home = None if out is None else Path(out) / "artifacts"
            request = exporting.export_request("profile", model, (example_inputs, "", None), home, options)
            make = exporting.maker(request, model, example_inputs, report, force)
            load = None if request.target else exporting.loading(request, (model, example_inputs))
            others = any(choice.runtime.module for choice in choices)
            source = comparing.exported_source(request, lambda: make(request, "export"), load, others)
        return comparing.measure_runtimes(asked, source, opened, report)


@verb
def history(
    *folders: str | Path,
    model: p.OfModel = None,
    platform: p.OfPlatform = None,
    dtype: p.OfDtype = None,
    labels: p.OfLabels = None,
    since: p.Since = None,
    experiment: p.OfExperiment = None,
    on_progress: OnProgress | None = None,
) -> History:
    """Return every run below some folders (this one unless said otherwise): `runs`, `series` with their steps, `top`
    operators and SME2 `coverage` of all models.

    `model` may have * in it, `labels` are of the runs (also "commit" and "branch"), `since` is a date or "90d"; with an
    `experiment`, series are of that one alone. Nothing is measured, and only an index in the cache is written.
    """
    from model_profiling.api.history_api import History
    from model_profiling.fleet.history import run_history as questions

    first = None if since is None else questions.parse_since(since)
    filters = questions.Filters(model, platform, dtype, dict(labels or {}), first)
    with notebook_progress(on_progress) as report:
        return History(questions.RunHistory(folders or (".",), filters, report), experiment)


@verb
def forecast(
    measured: p.Measured,
    emulated: p.Emulated = None,
    *,
    target: p.Target = None,
    speedups: p.Speedups = None,
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


@verb
def validate_forecast(
    models: p.Models = (),
    *,
    dtypes: p.ValidatedDtypes = ARITHMETICS,
    budget_s: p.BudgetS = None,
    out: p.ValidationOut = None,
    platform: p.PlatformName = None,
    lock: p.Lock = True,
    force: p.Force = False,
    on_progress: OnProgress | None = None,
) -> ForecastValidation:
    """Hold the forecast against a CPU: what its roofs predict of models with a feature on, against their runs.

    `models` are names, files or .pte, a few small ones unless given, each with `budget_s` seconds in each dtype. One
    that fails is in `result.failed`.

    `out` has forecast_validation.html, a page, and forecast_validation.json, which is made to be shared, and on a
    machine with SME2 is a target for `forecast`. What `out` and the cache have already is not measured again.
    """
    from model_profiling.api import forecast_validating

    _counts(None, None, budget_s, None)
    asked = forecast_validating.ValidationRequest(
        out=place(out, "validate-forecast", "out_forecast_validation"),
        models=list(dict.fromkeys(map(str, models))) or forecast_validating.MODELS,
        dtypes=tuple(dict.fromkeys(dtypes)),
        budget_s=budget_s or forecast_validating.BUDGET_S,
        force=force,
    )
    asked.check()
    with _measuring(platform, lock, on_progress) as (opened, report):
        return forecast_validating.validate_forecast(asked, opened, report, caller().on_note)


@takes_options("tune")
def tune(
    model: p.Model,
    example_inputs: Any = None,
    *,
    threads: p.Threads = 1,
    runs: p.Runs = None,
    launches: p.Launches = None,
    budget_s: p.BudgetS = None,
    out: p.TuneOut = None,
    force: p.Force = False,
    tokens: p.TuneTokens = None,
    worst_layers: p.WorstLayers = 0,
    min_sqnr_db: p.MinSqnrDb = None,
    metric: p.Metric = None,
    data: p.Data = None,
    max_drop: p.MaxDrop = None,
    lower_is_better: p.LowerIsBetter = False,
    platform: p.PlatformName = None,
    lock: p.Lock = True,
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
    With `metric` the baseline is fp32, and what falls by more than `max_drop` on `data` cannot win: `metric` of each
    variant has its value and its drop with an interval over samples, `result.metric` what layers in fp32 cost and save.
    """
    from model_profiling.api import exporting
    from model_profiling.base import files
    from model_profiling.base.dtypes import FP32, dtype_of
    from model_profiling.tune import tuning
    from model_profiling.tune.bench import TuneRequest

    others = worst_layers or min_sqnr_db is not None or tokens is not None
    if _is_judged(metric, data, max_drop, lower_is_better) and (options.setdefault("dtype", FP32) != FP32 or others):
        raise InputError("a metric decides alone, beside fp32", "Leave out dtype, worst layers, SQNR and tokens.")
    counts = _counts(runs, launches, budget_s, threads)
    base = exporting.export_request("tune", model, (example_inputs, "", None), out, options, "tune")
    if worst_layers < 0 or (worst_layers and not dtype_of(base.dtype).converts):
        raise InputError("worst layers are kept in fp32: the baseline has another dtype", "Give fp16 or int8.")
    files.refuse_unwritable(base.paths.meta)
    with _measuring(platform, lock, on_progress) as (opened, report):
        if opened.timing != "measured":
            raise InputError("variants cannot be ranked under an emulator: its times mean nothing", "Choose a machine.")
        with call_with(on_cached=lambda: None):  # of many programs; what it took is said at the end
            make = exporting.maker(base, model, example_inputs, report, force)
        given = None if base.target else (model, example_inputs)
        numerics = functools.partial(
            exporting.numerics_of, platform=opened, on_progress=report, in_memory=given, trial=False
        )
        judged = (metric, data, 0.01 if max_drop is None else max_drop, lower_is_better)
        search = None if metric is None else exporting.search_by_metric(base, judged, given, numerics)
        text = None if tokens is None else Path(tokens)
        return tuning.tune(
            TuneRequest(base, threads or 1, counts, force, text, worst_layers, min_sqnr_db),
            opened,
            lambda request: make(request, f"export {request.outdir.name}"),
            report,
            exporting.repeated_by,
            numerics,
            search,
        )


@takes_options("numerics")
def numerics(
    model: p.ModelOrProgram,
    example_inputs: Any = None,
    *,
    out: p.ArtifactsOut = None,
    platform: p.PlatformName = None,
    lock: p.Lock = True,
    trial: p.Trial = True,
    force: p.Force = False,
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

    if isinstance(model, (str, Path)) and str(model).endswith(".pte"):
        request = exporting.exported_request(Path(model), bool(force or out or any(options.values())))
    else:
        in_memory = example_inputs, "", None
        request = exporting.export_request("numerics", model, in_memory, out, options, allow_wrong=True)
    with _measuring(platform, lock, on_progress) as (opened, report):
        made = exporting.maker(request, model, example_inputs, report, force)(request, "export")
        caller().on_part(made)
        given = None if request.target else (model, example_inputs)
        return exporting.numerics_of(request, made, opened, report, given, trial=trial)


@verb
def roofs(
    dtypes: p.Dtypes = ARITHMETICS,
    *,
    threads: p.RoofThreads = (1,),
    out: p.RoofsOut = None,
    platform: p.PlatformName = None,
    lock: p.Lock = True,
    runs: p.Runs = None,
    launches: p.Launches = None,
    on_progress: OnProgress | None = None,
) -> Roofs:
    """Measure what this backend reaches at its best on a CPU: probe operators of many shapes, in each dtype.

    The result is kept in the cache under the CPU's name, where later reports and forecasts find it, or in `out`.
    """
    from model_profiling.api.roof_measuring import COUNTS, Probing, measure_roofs

    for number in threads:
        _counts(runs, launches, None, number)
    counts = replace(COUNTS, runs=runs or COUNTS.runs, launches=launches or COUNTS.launches)
    asked = Probing(tuple(dtypes), tuple(threads), counts, None if out is None else Path(out))
    with _measuring(platform, lock, on_progress) as (opened, report):
        return measure_roofs(asked, opened, report, caller().on_note)


@verb
def sweep(
    asked: p.SweepFile,
    *,
    out: p.SweepOut = None,
    only: p.Cells = (),
    fresh: p.Fresh = False,
    ray: p.Ray = None,
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
