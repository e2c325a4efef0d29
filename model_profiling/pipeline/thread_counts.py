"""Several numbers of threads: one experiment of a config becomes one for each, and all of them take turns together."""

from collections.abc import Mapping, Sequence
from typing import Any

import msgspec

from model_profiling.base.errors import InputError
from model_profiling.pipeline.config_types import MOST_COUNTS, MOST_THREADS, Config, Experiment
from model_profiling.store.run_directory import threads_name

# What may differ between experiments that are one but for their threads: starting is measured for the first of them.
_OWN = ("name", "num_threads", "startup_launches")


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
    pairs = [each for pair in config.analysis.compare_pairs for each in _pairs(*pair, by_count, where)]
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


def _pairs(before: str, after: str, by_count: Mapping[str, Mapping[int, str]], where: str) -> list[tuple[str, str]]:
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
    return msgspec.json.encode(
        {key: getattr(experiment, key) for key in experiment.__struct_fields__ if key not in _OWN}
    )
