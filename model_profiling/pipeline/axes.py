"""What a config leaves open: one experiment becomes one for each ExecuTorch and number of threads of a list, and
`{accelerator}` the CPU's best feature for the model's dtype."""

import itertools
import re
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import msgspec

from model_profiling.base.errors import InputError
from model_profiling.base.records import by_key
from model_profiling.pipeline.config_types import ACCELERATOR, MOST_COUNTS, MOST_THREADS, Analysis, Config, Experiment
from model_profiling.platforms.base import Platform
from model_profiling.runner import features
from model_profiling.runner.sdk import RELEASE, split_choices
from model_profiling.store.run_directory import extended_name, threads_name

# What differs between experiments that are one but for their ExecuTorch.
_VERSION_OWN = ("name", "executorch")
_LONGEST_LABEL = 20


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


def expand_versions(raw: dict[str, Any], where: str) -> dict[str, Any]:
    """Return a config, as JSON, with an experiment for each ExecuTorch of a list, and with the pairs to compare.

    Before and after are the versions in the order of the list. What is not of the right shape is left as it is.
    """
    experiments = raw.get("experiments")
    if not isinstance(experiments, list):
        return raw
    lists = {
        place: _choices(each, place, where)
        for place, each in enumerate(experiments)
        if isinstance(each, dict) and isinstance(each.get("executorch"), list)
    }
    labels = version_labels(list(dict.fromkeys(choice for choices in lists.values() for choice in choices)))
    made: list[Any] = []
    by_version: dict[str, dict[str, str]] = {}
    for place, experiment in enumerate(experiments):
        if place not in lists:
            made.append(experiment)
            continue
        choices = lists[place]
        names = {c: _name(experiment, labels[c]) if len(choices) > 1 else experiment.get("name") for c in choices}
        made += [{**experiment, "name": name, "executorch": choice} for choice, name in names.items()]
        if len(choices) > 1:
            by_version[str(experiment.get("name"))] = names
    expanded = {**raw, "experiments": made}
    analysis = raw["analysis"] if isinstance(raw.get("analysis"), dict) else {}
    pairs = analysis.get("compare_pairs")
    if by_version and isinstance(pairs, list) and pairs:
        versions = [pair for names in by_version.values() for pair in itertools.pairwise(names.values())]
        expanded["analysis"] = {
            **analysis,
            "compare_pairs": [*versions, *(each for pair in pairs for each in _pairs(pair, by_version))],
        }
    return expanded


def _choices(experiment: dict[str, Any], place: int, where: str) -> list[str]:
    given, what = experiment["executorch"], f"config {where}: `executorch` of experiment {place + 1}"
    if not given or not all(isinstance(each, str) for each in given):
        raise InputError(f"{what} is not a list of releases and prefixes", 'For example ["1.5.0", "1.5.1"].')
    return split_choices(given, what)


def _name(experiment: dict[str, Any], label: str) -> Any:
    name = experiment.get("name")
    return extended_name(name, experiment.get("num_threads"), f"et{label}") if isinstance(name, str) else name


def _pairs(pair: Any, by_version: Mapping[str, Mapping[str, str]]) -> list[Any]:
    """Return a pair of experiments for every version that both have; one of names that are none is left as it is."""
    if not isinstance(pair, list | tuple) or len(pair) != 2 or not all(isinstance(name, str) for name in pair):
        return [pair]
    sides = [by_version.get(name, {}) for name in pair]
    if not any(sides):
        return [pair]
    versions = [version for version in sides[0] or sides[1] if all(version in side for side in sides if side)]
    return [tuple(side.get(version, name) for side, name in zip(sides, pair, strict=True)) for version in versions]


def version_pairs(experiments: Sequence[Experiment]) -> list[tuple[str, str]]:
    """Return experiments that differ only in their ExecuTorch, each with the next, in the order of the config."""
    found = by_key((_key_without(experiment, _VERSION_OWN), experiment) for experiment in experiments)
    several = [members for members in found.values() if len({each.executorch for each in members}) == len(members)]
    return [pair for members in several for pair in itertools.pairwise([each.name for each in members])]


# What may differ between experiments that are one but for their threads: starting is measured for the first of them.
_THREADS_OWN = ("name", "num_threads", "startup_launches")


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


def first_counts(experiments: Sequence[Any], where: str) -> tuple[list[Any], dict[int, list[int]]]:
    """Return experiments as JSON with the first thread count of each list, and the lists by their place."""
    found: list[Any] = []
    lists: dict[int, list[int]] = {}
    for place, experiment in enumerate(experiments):
        counts = experiment.get("num_threads") if isinstance(experiment, dict) else None
        if isinstance(counts, list):
            lists[place] = checked_threads(counts, f"config {where}: `num_threads` of experiment {place + 1}")
        found.append({**experiment, "num_threads": lists[place][0]} if place in lists else experiment)
    return found, lists


def expand_threads(config: Config, lists: Mapping[int, list[int]], where: str) -> Config:
    """Return a config with an experiment, and pairs to compare, for each thread count."""
    if not any(len(counts) > 1 for counts in lists.values()):
        return config
    experiments: list[Experiment] = []
    by_count: dict[str, dict[int, str]] = {}
    for place, experiment in enumerate(config.experiments):
        counts = lists.get(place, [experiment.num_threads])
        made = _for_counts(experiment, counts) if len(counts) > 1 else [experiment]
        experiments += made
        by_count[experiment.name] = {each.num_threads: each.name for each in made}
    pairs = [each for pair in config.analysis.compare_pairs for each in _pairs_of_counts(*pair, by_count, where)]
    analysis = msgspec.structs.replace(config.analysis, compare_pairs=pairs)
    return msgspec.structs.replace(config, experiments=experiments, analysis=analysis)


def _for_counts(experiment: Experiment, counts: Sequence[int]) -> list[Experiment]:
    """Return an experiment for each thread count; the first alone measures start-up unless asked otherwise."""
    return [
        msgspec.structs.replace(
            experiment,
            name=threads_name(experiment.name, count),
            num_threads=count,
            startup_launches=experiment.startup_launches if count == counts[0] else experiment.startup_launches or 0,
        )
        for count in counts
    ]


def _pairs_of_counts(
    before: str, after: str, by_count: Mapping[str, Mapping[int, str]], where: str
) -> list[tuple[str, str]]:
    """Return a pair of experiments for every thread count that both have; unknown names are checked later."""
    if before not in by_count or after not in by_count:
        return [(before, after)]
    sides = by_count[before], by_count[after]
    if all(len(side) == 1 for side in sides):
        return [(next(iter(sides[0].values())), next(iter(sides[1].values())))]
    common = [count for count in sides[0] if count in sides[1]]
    if not common:
        raise InputError(
            f"config {where}: compare_pairs names '{before}' and '{after}', which have no number of threads in common",
            f"Name the experiments to compare: {', '.join([*sides[0].values(), *sides[1].values()])}.",
        )
    return [(sides[0][count], sides[1][count]) for count in common]


def key_without_threads(experiment: Experiment) -> bytes:
    """Return what is the same for experiments that differ in nothing but their threads."""
    return _key_without(experiment, _THREADS_OWN)


def _key_without(experiment: Experiment, own: Sequence[str]) -> bytes:
    fields = [key for key in experiment.__struct_fields__ if key not in own]
    return msgspec.json.encode({key: getattr(experiment, key) for key in fields})


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
