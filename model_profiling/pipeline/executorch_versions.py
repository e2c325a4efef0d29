"""Several versions of ExecuTorch: one experiment of a config becomes one for each, and all of them take turns."""

import itertools
import re
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import msgspec

from model_profiling.base.errors import InputError
from model_profiling.pipeline.config_types import Experiment
from model_profiling.runner.sdk_choice import RELEASE, split_choices
from model_profiling.store.run_directory import threads_name, version_name, without_threads

# What differs between experiments that are one but for their ExecuTorch.
_OWN = ("name", "executorch")
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
                raise InputError(
                    f"config {where}: experiment '{experiment['name']}' has a `{key}` of its own",
                    "Leave it out, or --executorch.",
                )
    return {**raw, "experiments": [{**each, "executorch": list(choices)} for each in raw["experiments"]]}


def expand_versions(raw: dict[str, Any], where: str) -> dict[str, Any]:
    """Return a config, as JSON, with an experiment for each ExecuTorch of a list, and with the pairs to compare.

    Before and after are the versions in the order of the list. What is not of the right shape is left as it is.
    """
    experiments = raw.get("experiments")
    if not isinstance(experiments, list):
        return raw
    lists = {place: _choices(each, place, where) for place, each in enumerate(experiments) if _has_list(each)}
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
        versions = [pair for names in by_version.values() for pair in _neighbours(list(names.values()))]
        expanded["analysis"] = {
            **analysis,
            "compare_pairs": [*versions, *(each for pair in pairs for each in _pairs(pair, by_version))],
        }
    return expanded


def _has_list(experiment: Any) -> bool:
    return isinstance(experiment, dict) and isinstance(experiment.get("executorch"), list)


def _choices(experiment: dict[str, Any], place: int, where: str) -> list[str]:
    given, what = experiment["executorch"], f"config {where}: `executorch` of experiment {place + 1}"
    if not given or not all(isinstance(each, str) for each in given):
        raise InputError(f"{what} is not a list of releases and prefixes", 'For example ["1.5.0", "1.5.1"].')
    return split_choices(given, what)


def _name(experiment: dict[str, Any], label: str) -> Any:
    """Return the name with the version in it, before the number of threads if that is in it."""
    name = experiment.get("name")
    if not isinstance(name, str):
        return name
    alone, threads = without_threads(name)
    if threads is not None and threads == experiment.get("num_threads"):
        return threads_name(version_name(alone, label), threads)
    return version_name(name, label)


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
    found: dict[bytes, list[Experiment]] = {}
    for experiment in experiments:
        found.setdefault(_key(experiment), []).append(experiment)
    several = [members for members in found.values() if len({each.executorch for each in members}) == len(members)]
    return [pair for members in several for pair in _neighbours([each.name for each in members])]


def _key(experiment: Experiment) -> bytes:
    fields = [key for key in experiment.__struct_fields__ if key not in _OWN]
    return msgspec.json.encode({key: getattr(experiment, key) for key in fields})


def _neighbours(names: Sequence[str]) -> list[tuple[str, str]]:
    return list(itertools.pairwise(names))
