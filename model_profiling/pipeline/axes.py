"""What a config leaves open: one experiment becomes one for each value of a list (ExecuTorch, number of threads) and
for each phase of a language model, and `{accelerator}` the CPU's best feature for the model's dtype."""

import itertools
import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import msgspec

from model_profiling.base.errors import InputError
from model_profiling.base.records import by_key
from model_profiling.pipeline.config_types import ACCELERATOR, MOST_COUNTS, MOST_THREADS, Analysis, Config, Experiment
from model_profiling.platforms.base import Platform
from model_profiling.runner import features
from model_profiling.runner.sdk import RELEASE, split_choices
from model_profiling.store.run_directory import extended_name, threads_name

_LONGEST_LABEL = 20


class ExperimentAxis(NamedTuple):
    """A field in which experiments may differ that are otherwise one, and what each is then called.

    If not all of them measure how they `start`, the first alone does unless it is asked for. Who has a single value is
    compared with every value of others if it is `loose`, else with its own.
    """

    key: str
    words: str
    named: Callable[[Experiment, Any], str]
    start: bool = False
    loose: bool = True


_THREADS = ExperimentAxis("num_threads", "number of threads", lambda e, count: threads_name(e.name, count), loose=False)
PHASES = ExperimentAxis("phase", "phase", lambda e, phase: extended_name(e.name, e.num_threads, phase.in_names))


def _versions(choices: Iterable[str]) -> ExperimentAxis:
    labels = version_labels(list(dict.fromkeys(choices)))

    def named(experiment: Experiment, choice: str) -> str:
        return extended_name(experiment.name, experiment.num_threads, f"et{labels[choice]}")

    return ExperimentAxis("executorch", "ExecuTorch", named, start=True)


def version_labels(choices: Sequence[str]) -> dict[str, str]:
    """Return a short and unique label for each choice: a release's number, else the name of its folder."""
    for parts in (1, 2):
        found = {choice: choice if RELEASE.fullmatch(choice) else _folder_label(choice, parts) for choice in choices}
        if len(set(found.values())) == len(choices):
            return found
    return {c: c if RELEASE.fullmatch(c) else f"build{number}" for number, c in enumerate(choices, 1)}


def _folder_label(path: str, parts: int) -> str:
    name = "-".join(part for part in Path(path).absolute().parts[-parts:] if part != "/")
    return re.sub(r"[^A-Za-z0-9]+", "-", name)[-_LONGEST_LABEL:].strip("-") or "build"


def choose_versions(raw: dict[str, Any], choices: Sequence[str], where: str) -> dict[str, Any]:
    """Return a config, as JSON, whose experiments all use these versions; those of others cannot be told to."""
    for experiment in raw["experiments"]:
        for key in ("runner_path", "executorch"):
            if experiment.get(key) is not None:
                hint = "Leave it out, or --executorch."
                raise InputError(f"config {where}: experiment '{experiment['name']}' has a `{key}` of its own", hint)
    return {**raw, "experiments": [{**each, "executorch": list(choices)} for each in raw["experiments"]]}


Lists = Mapping[int, Sequence[Any]]


def take_lists(experiments: list[Any], where: str) -> tuple[list[Any], list[tuple[ExperimentAxis, Lists]]]:
    """Return experiments as JSON with the first value of each list, and the lists by the place of their experiment."""
    found: dict[str, dict[int, list[Any]]] = {"executorch": {}, "num_threads": {}}
    first = list(experiments)
    for place, experiment in enumerate(experiments):
        for key, lists in found.items() if isinstance(experiment, dict) else ():
            if isinstance(given := experiment.get(key), list):
                what = f"config {where}: `{key}` of experiment {place + 1}"
                lists[place] = checked_threads(given, what) if key == "num_threads" else _choices(given, what)
                first[place] = {**first[place], key: lists[place][0]}
    versions = _versions(choice for choices in found["executorch"].values() for choice in choices)
    several = [{at: values for at, values in lists.items() if len(values) > 1} for lists in found.values()]
    return first, [*zip((versions, _THREADS), several, strict=True)]


def _choices(given: list[Any], what: str) -> list[str]:
    if not given or not all(isinstance(each, str) for each in given):
        raise InputError(f"{what} is not a list of releases and prefixes", 'For example ["1.5.0", "1.5.1"].')
    return split_choices(given, what)


def checked_threads(counts: Sequence[Any], what: str) -> list[int]:
    """Return numbers of threads, each once, if a model can run with them; `what` is how the user wrote it."""
    hint = "For example 1,2,4."
    if not 1 <= len(counts) <= MOST_COUNTS:
        raise InputError(f"{what} must name 1 to {MOST_COUNTS} numbers of threads, not {len(counts)}", hint)
    for count in counts:
        if not isinstance(count, int) or isinstance(count, bool) or count < 1:
            raise InputError(f"{what} must be at least 1, not {count!r}", hint)
        if count > MOST_THREADS:
            raise InputError(f"{what} must be at most {MOST_THREADS}, not {count}", hint)
    for count in counts:
        if list(counts).count(count) > 1:
            raise InputError(f"{what} names {count} threads twice", "Name each number once.")
    return list(counts)


def expand(config: Config, axes: Sequence[tuple[ExperimentAxis, Lists]], where: str) -> Config:
    """Return a config with an experiment for each of its values along every axis, and with pairs of equal ones."""
    experiments: list[Experiment] = []
    versions: list[tuple[str, str]] = []
    sides: dict[str, list[Experiment]] = {}
    for place, experiment in enumerate(config.experiments):
        made = [experiment]
        for axis, lists in axes:
            if values := lists.get(place):
                made = [_at(each, axis, value, value == values[0]) for each in made for value in values]
        experiments += made
        versions += version_pairs(made)
        sides[experiment.name] = made
    pairs = config.analysis.compare_pairs
    if pairs:
        kinds = [axis for axis, _ in axes]
        pairs = [*versions, *(each for pair in pairs for each in _equal(pair, sides, kinds, where))]
    analysis = msgspec.structs.replace(config.analysis, compare_pairs=pairs)
    return msgspec.structs.replace(config, experiments=experiments, analysis=analysis)


def _at(experiment: Experiment, axis: ExperimentAxis, value: Any, first: bool) -> Experiment:
    starts = experiment.startup_launches if axis.start or first else experiment.startup_launches or 0
    new = {axis.key: value, "name": axis.named(experiment, value), "startup_launches": starts}
    return msgspec.structs.replace(experiment, **new)


def _equal(
    pair: tuple[str, str], sides: Mapping[str, list[Experiment]], axes: Sequence[ExperimentAxis], where: str
) -> list[tuple[str, str]]:
    """Return a pair of experiments for all values that both have; unknown names are checked later."""
    if not all(name in sides for name in pair):
        return [pair]
    left, right = (sides[name] for name in pair)
    found = [(before, after) for before in left for after in right]
    for axis in axes:
        single = [len({getattr(each, axis.key) for each in side}) == 1 for side in (left, right)]
        if not (any(single) if axis.loose else all(single)):
            found = [each for each in found if getattr(each[0], axis.key) == getattr(each[1], axis.key)]
        if not found:
            what = f"compare_pairs names '{pair[0]}' and '{pair[1]}', which have no {axis.words} in common"
            hint = f"Name the experiments to compare: {', '.join(each.name for each in (*left, *right))}."
            raise InputError(f"config {where}: {what}", hint)
    return [(before.name, after.name) for before, after in found]


def alike(experiments: Iterable[Experiment], *own: str) -> list[list[Experiment]]:
    """Return those together that differ in nothing but their names and these fields."""
    keys = [key for key in Experiment.__struct_fields__ if key not in ("name", *own)]
    return [*by_key((msgspec.json.encode([getattr(e, key) for key in keys]), e) for e in experiments).values()]


def version_pairs(experiments: Sequence[Experiment]) -> list[tuple[str, str]]:
    """Return experiments that differ only in their ExecuTorch, each with the next, in the order of the config."""
    found = alike(experiments, "executorch")
    several = [members for members in found if len({each.executorch for each in members}) == len(members)]
    return [pair for members in several for pair in itertools.pairwise([each.name for each in members])]


def accelerator(platform: Platform, dtype: str) -> str | None:
    """Return the feature whose absence a run of this dtype shows on this platform, if there is one."""
    probe = platform.probe()
    return features.default_accelerator(probe.arch, set(probe.features), dtype)


def switched_off(feature: str) -> list[str]:
    """Return what "off" is without: the feature, and of SME2 also SME, whose kernels XNNPACK would run instead."""
    return [feature, "sme"] if feature == "sme2" else [feature]


def fill_in(config: Config, platform: Platform, dtype: str) -> Config:
    """Put the accelerator's name wherever the config leaves its place open; a config that leaves none is as it was."""
    if not any(ACCELERATOR in text for e in config.experiments for text in (e.name, *e.disable_features)):
        return config
    name = accelerator(platform, dtype)
    if name is None:
        raise InputError(
            f"this CPU has no accelerator for {dtype} that can be switched off, and the config asks for it",
            f"Name a feature instead of {ACCELERATOR} (sme2-kit doctor lists them), or give another dtype's export.",
        )

    def filled(text: str) -> str:
        return text.replace(ACCELERATOR, name)

    def with_name(experiment: Experiment) -> Experiment:
        off = [
            x for f in experiment.disable_features for x in (switched_off(name) if f == ACCELERATOR else [filled(f)])
        ]
        return msgspec.structs.replace(experiment, name=filled(experiment.name), disable_features=off)

    pairs = [(filled(before), filled(after)) for before, after in config.analysis.compare_pairs]
    experiments = [with_name(experiment) for experiment in config.experiments]
    return msgspec.structs.replace(config, experiments=experiments, analysis=Analysis(pairs))
