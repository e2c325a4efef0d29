"""Several programs on one device, taking turns as the experiments of one program do."""

from collections.abc import Collection, Mapping, Sequence
from pathlib import Path
from types import MappingProxyType
from typing import Any

import msgspec

from model_profiling.base.errors import InputError
from model_profiling.base.on_progress import OnProgress
from model_profiling.pipeline import phase_experiments
from model_profiling.pipeline.config_types import Experiment
from model_profiling.pipeline.defaults import checked_program
from model_profiling.pipeline.execution import GroupRun
from model_profiling.pipeline.group_state import ExperimentOutcome, GroupState, MeasuredProgram
from model_profiling.pipeline.manifest_records import clear_directory, collect
from model_profiling.pipeline.pipeline import export_record, sample_inputs
from model_profiling.pipeline.schedule import CHOSEN, Counts, LaneKind, lanes_of
from model_profiling.platforms.base import Platform
from model_profiling.store.artifacts import ExportPaths
from model_profiling.store.made_by import Maker, RunnerRecord, machine_of
from model_profiling.store.run_directory import Phase

TIMEOUT_S = 600.0


def programs_of(
    models: Mapping[str, Path],
    lengths: phase_experiments.Lengths = phase_experiments.Lengths(),  # noqa: B008
) -> tuple[dict[str, MeasuredProgram], list[Phase]]:
    """Return programs as they can be measured side by side, and the phases to do it in if they are language models."""
    paths = {name: ExportPaths(checked_program(model).resolve()) for name, model in models.items()}
    records = {name: export_record(each) for name, each in paths.items()}
    sequences = {name: phase_experiments.sequence_of(each.pte) for name, each in paths.items()}
    known = [sequence for sequence in sequences.values() if sequence is not None]
    if len(known) < len(models):
        if lengths.asked:
            raise InputError("not all of these are language models", "Leave --prefill, --decode and --depth out.")
        # What all of them take decides: a language model can be run as any program.
        inputs = {name: sample_inputs(paths[name], records[name]) for name in models}
        return {name: MeasuredProgram(paths[name].pte, paths[name].stem, inputs[name]) for name in models}, []
    phases = phase_experiments.chosen_phases(known[0], lengths)
    if any(phase_experiments.chosen_phases(sequence, lengths) != phases for sequence in known[1:]):
        raise InputError("these programs do not take the same numbers of tokens", "Give --prefill and --decode.")
    needed = max(phase_experiments.positions(sequence, phase) for sequence in known for phase in phases)
    vocabulary = min((s.vocabulary for s in known if s.vocabulary is not None), default=None)
    begin = next(
        (found for name in models if (found := phase_experiments.exported_tokens(paths[name], records[name]))), None
    )
    tokens = phase_experiments.random_tokens(begin, needed, vocabulary, 0)
    return {n: MeasuredProgram(paths[n].pte, paths[n].stem, (), sequences[n], tokens) for n in models}, phases


def maker_of(platform: Platform, *models: Path) -> Maker:
    """Return what measures programs side by side: the machine, and the runner with all that it loads for them."""
    probe = platform.probe()
    runners = [platform.runner(None, model=model) for model in models]
    libraries = {name: digest for runner in runners for name, digest in runner.libraries.items()}
    machine = machine_of(probe.arch, probe.features, probe.environment, f"{platform.name} {platform.identity}".strip())
    return Maker(machine, msgspec.structs.replace(runners[0], libraries=libraries))


def measure(
    platform: Platform,
    programs: dict[str, MeasuredProgram],
    home: Path,
    threads: int,
    report: OnProgress,
    traced: bool = False,
    counts: Counts = CHOSEN,
    phase: Phase | None = None,
    disable_features: Sequence[str] = (),
    executorch: Mapping[str, str] = MappingProxyType({}),
    evidence: bool = False,
    timed: bool = True,
    runtimes: Mapping[str, RunnerRecord] = MappingProxyType({}),
    profiled: Collection[str] = (),
    keep_failures: bool = False,
    timeout_s: float = TIMEOUT_S,
) -> dict[str, ExperimentOutcome]:
    """Time each program, and execute it some more with a tracer if asked; files are left in home/<name>.

    How they start is measured if the counts say how often. `executorch` says of a program, by its name, with which
    release or build it runs, `runtimes` which other runtime does instead, with a tracer only if its program is in
    `profiled`. With `evidence`, each is executed once with a kernel trace instead, and not timed; without `timed`, with
    a tracer only. A program that fails is an error, or with `keep_failures` an outcome that says why.
    """
    # Each is checked, and built, before anything is measured.
    runners = {name: runtimes.get(name) or platform.runner(None, executorch.get(name)) for name in programs}
    once: dict[str, Any] = {"mode": "trace", "warmup": 0} if evidence else {}
    outcomes = {}
    for name, program in programs.items():
        experiment = Experiment(
            name,
            num_threads=threads,
            phase=phase,
            disable_features=list(disable_features),
            executorch=executorch.get(name),
            **counts.of_experiment,
            **once,
        )
        clear_directory(home / name)
        (home / name).mkdir(parents=True)
        outcomes[name] = ExperimentOutcome(program, experiment, runners[name], home / name)
    experiments, startups = [outcome.experiment for outcome in outcomes.values()], bool(counts.startup_launches)
    lanes = lanes_of(experiments, set(), traced=traced or not timed, startups=startups)
    if not timed:
        lanes = [lane for lane in lanes if lane.kind is LaneKind.TRACED]
    silent = {*runtimes} - {*profiled}
    lanes = [lane for lane in lanes if lane.kind is not LaneKind.TRACED or lane.experiment.name not in silent]
    with platform.exclusive():
        GroupRun(platform, GroupState(lanes, outcomes), report, timeout_s, counts.budget_s).run()
    for outcome in outcomes.values():
        collect(outcome, outcome.scratch)
        if outcome.failure is not None and not keep_failures:
            raise outcome.failure
    return outcomes
