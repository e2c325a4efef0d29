"""Measure one program: choose the platform and the config, run the pipeline, open what it made."""

import contextlib
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import msgspec

from model_profiling.api.calling import caller
from model_profiling.api.loaded_run import Run
from model_profiling.base.errors import InputError, KitError
from model_profiling.base.on_progress import OnNote, OnProgress, no_notes
from model_profiling.pipeline.axes import choose_versions
from model_profiling.pipeline.config import load_config, parse_config
from model_profiling.pipeline.config_types import Config
from model_profiling.pipeline.defaults import checked_program, default_config, output_root_of
from model_profiling.pipeline.phase_experiments import Lengths
from model_profiling.pipeline.pipeline import Pipeline, PipelineResult
from model_profiling.pipeline.schedule import CHOSEN, Counts
from model_profiling.platforms.base import Platform
from model_profiling.platforms.locks import announce
from model_profiling.platforms.platform_table import Choice, checked, named
from model_profiling.platforms.platform_table import chosen as open_chosen
from model_profiling.store.derived import notes as outdated_notes
from model_profiling.store.labels import checked_labels
from model_profiling.store.run_directory import RunDirectory
from model_profiling.store.runs import checked_label


@dataclass(frozen=True)
class RunRequest:
    """What to measure, and how. Of `model` and `config` one is given; what is None is chosen for the platform."""

    model: Path | None = None
    config: Path | None = None
    inputs: Sequence[Path] = ()
    out: Path | None = None
    counts: Counts = CHOSEN
    threads: int | Sequence[int] | None = None
    # Of a language model: how many tokens its phases read, and which; and the method to run of any program.
    lengths: Lengths = Lengths()  # noqa: RUF009 - frozen
    token_file: Path | None = None
    method: str | None = None
    # Releases or prefixes of ExecuTorch to run with; several are compared. None: the installed release.
    executorch: Sequence[str] = ()
    # Keys of the config that are said beside it: its label and labels, and what else a parameter is called like.
    keys: Mapping[str, Any] = field(default_factory=dict)
    only: list[str] | None = None
    force: bool = False
    # NEON, SME and SME2 one after another, with a kernel trace.
    ladder: bool = False
    # What a user typed for it; empty if a program asks.
    command: str = ""


@dataclass(frozen=True)
class MeasuredRun:
    """The run, which experiments were measured now and which were there already.

    `remark` is about what was chosen for this machine, `reused` about what was not measured now; '' for nothing.
    """

    run: Run
    ran: list[str]
    kept: list[str]
    remark: str
    reused: str


def kernels_request(
    model: Path, platform: Platform, levels: Sequence[str] | None, out: Path | None = None, command: str = ""
) -> RunRequest:
    """Return one traced execution at each level that the platform's CPU has, in a place where no timed run lies."""
    only = [f"{platform.name}_{level}" for level in levels] if levels else None
    place = out or output_root_of(model, platform.kernels_folder)
    return RunRequest(model=model, out=place, ladder=True, only=only, command=command)


@contextlib.contextmanager
def open_platform(
    chosen: str | Choice | Platform | None,
    on_note: OnNote,
    *programs: Path,
    lock: bool = True,
    config: Path | None = None,
) -> Iterator[Platform]:
    """Open a platform by its name, `android:SERIAL`, `ssh:HOST`, or None for this machine; closed at the end unless it
    is the caller's own. Without `lock`, others who measure on this machine are not waited for. What is wrong with the
    programs to measure is said before what this machine lacks; experiments of a `config` may name an emulator."""
    if chosen is not None and not isinstance(chosen, str | Choice):
        yield chosen
        return
    meant = chosen if isinstance(chosen, Choice) else named(chosen)
    choice = checked(replace(meant, no_lock=not lock), caller().spelled)
    announce(caller().command())
    for program in programs:
        checked_program(program)
    prefixes = [tuple(each.launch_prefix) for each in load_config(config).experiments] if config is not None else []
    with contextlib.closing(open_chosen(choice, prefixes, on_note)) as platform:
        yield platform


def check_versions(executorch: Sequence[str], platform: str | Choice | Platform | None) -> None:
    """Build the runner with each version: one that cannot be used is refused before anything else takes time."""
    if executorch:
        with open_platform(platform, no_notes) as opened:
            for choice in executorch:
                opened.runner(None, choice)


def measure(asked: RunRequest, platform: Platform, on_progress: OnProgress, on_note: OnNote = no_notes) -> MeasuredRun:
    """Run what is not there yet and open the run. What derives from it is not written: `Run.save` does that.

    If an experiment fails, what did finish is saved before the error is raised.
    """
    config, remark = _config(asked, platform)
    directory = RunDirectory(Path(config.output_root))
    try:
        result = Pipeline(config, platform, on_progress, asked.only, asked.force, asked.command, on_note).run()
    except (KitError, KeyboardInterrupt):
        # What did finish is worth its numbers even if another experiment failed.
        if directory.manifest_path.is_file():
            for sentence in outdated_notes(Run.open(directory.path).save()):
                on_note(sentence)
        raise
    if result.archived:
        on_note(f"the previous run is kept as {directory.path}@{result.archived}")
    return MeasuredRun(Run.open(directory.path), result.ran, result.kept, remark, _reused(result))


def _reused(result: PipelineResult) -> str:
    """Say which numbers are older than this call."""
    if not result.kept:
        return ""
    when = max(result.manifest.experiments[name].finished for name in result.kept)
    what = f" of {', '.join(result.kept)}" if result.ran else ""
    return f"reused existing results{what} from {when} (use --force to measure again)"


def _config(asked: RunRequest, platform: Platform) -> tuple[Config, str]:
    """Return the config the user wrote, or one made for this model and machine; and a remark worth making about it."""
    keys = dict(asked.keys)
    if "label" in keys:
        checked_label(keys["label"])
    if asked.config is not None:
        config, remark = load_config(asked.config), ""
    elif asked.model is not None:
        how = (platform, asked.out, asked.counts, asked.threads, asked.ladder)
        of_program = (asked.inputs, asked.lengths, asked.method, asked.token_file)
        config, remark = default_config(asked.model, *how, *of_program)
    else:
        raise InputError("there is nothing to run", "Give a .pte or a config.")
    if asked.executorch:
        raw = choose_versions(msgspec.to_builtins(config), asked.executorch, str(asked.config or "(made for it)"))
        config = parse_config(raw, "with its ExecuTorch versions")
    keys["labels"] = {**config.labels, **checked_labels(keys.get("labels", {}))}
    return msgspec.structs.replace(config, **keys), remark


def config_keys(given: Mapping[str, Any]) -> dict[str, Any]:
    """Return, of the arguments of a verb, those that are keys of a config and are not their own default."""
    made = ("model", "inputs", "budget_s")  # how these get into a config is more than a copy
    defaults = {field.name: field.default for field in msgspec.structs.fields(Config) if field.name not in made}
    named = {name: given[name] for name in defaults if name in given}
    return {name: value for name, value in named.items() if value is not None and value != defaults[name]}


def measured(
    asked: RunRequest, platform: str | Choice | Platform | None, on_progress: OnProgress, lock: bool = True
) -> Run:
    """Measure what is asked for and write all that derives from it; the caller's own notes are in the run, too."""
    notes: list[str] = []

    def note(sentence: str) -> None:
        notes.append(sentence)
        caller().on_note(sentence)

    asked = replace(asked, command=caller().command())
    with open_platform(platform, note, *filter(None, [asked.model]), lock=lock, config=asked.config) as opened:
        found = measure(asked, opened, on_progress, note)
    caller().on_part(found)
    # Kernels are not measured, and nothing says that they should be again.
    for remark in filter(None, (found.remark, "" if asked.ladder else found.reused)):
        note(remark)
    found.run.notes += notes
    found.run.check_outputs()
    if not caller().of_commands:
        found.run.save()
        found.run.check()
    return found.run
