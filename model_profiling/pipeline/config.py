"""The experiment config: JSON in the learning path's spelling, checked until every mistake has a name and a fix."""

import difflib
import json
import os
import re
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, TypeVar

import msgspec

from model_profiling.base import files
from model_profiling.base.directories import from_home
from model_profiling.base.errors import InputError
from model_profiling.base.visible import not_utf8
from model_profiling.pipeline.axes import expand, take_lists, version_pairs
from model_profiling.pipeline.config_types import MOST_COUNTS, NAME_PATTERN, PATH_FORMAT, Analysis, Config, Experiment
from model_profiling.runner.sdk import MOST_CHOICES
from model_profiling.store.artifacts import EARLIER, FAILED, PROGRAMS
from model_profiling.store.labels import checked_labels
from model_profiling.store.run_directory import Mode, without_threads
from model_profiling.store.runs import checked_label

T = TypeVar("T")
MODES: dict[str, Mode] = {"timing": "timing", "etdump": "timing", "trace": "trace", "xnntrace": "trace"}
# Names that belong to what else lies in a run directory.
_FILES = (".json", ".md", ".html", ".csv", ".png", ".svg", ".etdump")
_FOLDERS = ("report_charts", FAILED, EARLIER, PROGRAMS)
_ALIASES = {"runs": "num_runs", "threads": "num_threads"}

# Where the user's clone of ExecuTorch lies: configs of the learning path name runners in it.
REPOSITORY = "EXECUTORCH_REPO"


def json_schema() -> dict[str, Any]:
    """Return the JSON Schema of a config, with the spellings the learning path also uses."""
    schema = files.json_schema(Config)
    properties = schema["$defs"]["Experiment"]["properties"]
    properties["mode"] = {"enum": sorted(MODES), "default": "timing"}
    count = {key: value for key, value in properties["num_threads"].items() if key != "default"}
    several = {"type": "array", "items": count, "minItems": 1, "maxItems": MOST_COUNTS, "uniqueItems": True}
    properties["num_threads"] = {"anyOf": [count, several], "default": 1}
    path = {"type": "string", "format": PATH_FORMAT}
    several = {"type": "array", "items": path, "minItems": 1, "maxItems": MOST_CHOICES, "uniqueItems": True}
    properties["executorch"] = {"anyOf": [path, several, {"type": "null"}], "default": None}
    for alias, name in _ALIASES.items():
        properties[alias] = properties[name]
    schema["$defs"]["Config"]["properties"]["$schema"] = {"type": "string"}
    return {"$schema": "https://json-schema.org/draft/2020-12/schema", "title": "sme2-kit experiment config", **schema}


def named_paths(raw: Any) -> list[str]:
    """Return every path that a decoded config names, whatever else is wrong with it."""
    schema = json_schema()
    return list(_paths_in(raw, schema, schema["$defs"]))


def _paths_in(value: Any, schema: dict[str, Any], types: dict[str, Any]) -> Iterator[str]:
    schema = types[schema["$ref"].rpartition("/")[2]] if "$ref" in schema else schema
    if isinstance(value, str) and schema.get("format") == PATH_FORMAT:
        yield from dict.fromkeys((value, *value.split(",")))  # one text may name several versions of ExecuTorch
    for each in schema.get("anyOf", []):
        yield from _paths_in(value, each, types)
    if isinstance(value, dict):
        for key, inner in schema.get("properties", {}).items():
            yield from _paths_in(value.get(key), inner, types)
    elif isinstance(value, list) and isinstance(schema.get("items"), dict):
        for entry in value:
            yield from _paths_in(entry, schema["items"], types)


def load_config(path: Path) -> Config:
    """Read a config file. Relative paths in it are relative to the working directory, as in the learning path."""
    return parse_config(read_object(path, "config", "Start from model_profiling/configs/templates/."), str(path))


def read_object(path: Path, what: str, instead: str) -> dict[str, Any]:
    """Return the JSON object in a file that a user wrote; `instead` is what to do where it holds something else."""
    try:
        raw = json.loads(files.read_bytes(path, what, limit=16 << 20))
    except ValueError as error:
        where = "a number of thousands of digits"
        if isinstance(error, json.JSONDecodeError):
            where = f"line {error.lineno}, column {error.colno}: {error.msg}"
        elif isinstance(error, UnicodeDecodeError):
            where = "not UTF-8"
        raise InputError(
            f"{what} {path} is not JSON ({where})", "Correct that place; a JSON Schema ships with the kit."
        ) from None
    except RecursionError:
        raise InputError(f"{what} {path} is nested too deeply", "Check that it is the file you meant.") from None
    if not isinstance(raw, dict):
        raise InputError(f"{what} {path} is not a JSON object", instead)
    return raw


def parse_config(raw: dict[str, Any], where: str) -> Config:
    """Turn decoded JSON into a checked Config; `where` names the source in messages."""
    raw = {key: value for key, value in raw.items() if key != "$schema"}
    experiments = raw.get("experiments")
    named = [_with_full_names(item, where) for item in experiments] if isinstance(experiments, list) else []
    first, lists = take_lists(named, where)
    raw |= {"experiments": first} if named else {}
    levels = {"": Config, "experiments": Experiment, "analysis": Analysis}
    keys = {level: {*of.__struct_fields__} for level, of in levels.items()}
    keys["experiments"] |= {*_ALIASES}
    config = typed_object(raw, Config, f"config {where}", keys, "Compare with model_profiling/configs/templates/.")
    replace = msgspec.structs.replace
    found = [replace(e, runner_path=_runner(e.runner_path)) if e.runner_path else e for e in config.experiments]
    return _checked(expand(replace(config, experiments=found), lists, where), where)


def typed_object(raw: Any, type_: type[T], what: str, keys: Mapping[str, set[str]], hint: str) -> T:
    """Return decoded JSON of a user as a record; `keys` are those that are known, by where they stand ('': at the top),
    and `hint` is what to do about other mistakes."""
    try:
        # Half of a character's two halves is no text, and no file is named by it.
        msgspec.json.encode(raw)
        return msgspec.convert(raw, type_)
    except (UnicodeEncodeError, RecursionError) as error:
        why = not_utf8(error) if isinstance(error, UnicodeEncodeError) else "it is nested too deeply"
        raise InputError(f"{what}: {why}", "Rename that file or folder, or correct that text.") from None
    except msgspec.ValidationError as error:
        said = str(error)
    if unknown := re.search(r"unknown field `([^`]+)`", said):
        level = re.search(r"at `\$\.(\w+)", said)
        known = keys.get(level[1] if level else "", keys[""])
        close = difflib.get_close_matches(unknown[1], sorted(known), n=1)
        hint = f"Did you mean `{close[0]}`?" if close else f"Known keys: {', '.join(sorted(known))}."
    plain = said.replace("Object contains", "there is an").replace(" | null`", "`")
    raise InputError(f"{what}: {plain.replace('`$.', '`').replace('`$`', 'the top level')}", hint)


def _with_full_names(experiment: Any, where: str) -> Any:
    """Accept `runs` and `threads` for `num_runs` and `num_threads`."""
    if not isinstance(experiment, dict):
        return experiment
    result = dict(experiment)
    for alias, name in _ALIASES.items():
        if alias in result:
            if name in result:
                raise InputError(f"config {where}: an experiment has both `{alias}` and `{name}`", f"Keep `{name}`.")
            result[name] = result.pop(alias)
    return result


def _runner(path: str) -> str:
    """Return a runner's path; `[executorch/]cmake-out/…` is in $EXECUTORCH_REPO if it is not here."""
    repository = os.environ.get(REPOSITORY)
    if not repository or Path(path).is_absolute() or files.is_file(Path(path)):
        return path
    parts = Path(path).parts
    inside = from_home(repository).joinpath(*parts[1:] if parts[:1] == ("executorch",) else parts)
    return str(inside) if files.is_file(inside) else path


def is_experiment_name(name: str) -> bool:
    """Return whether an experiment may have this name: its folder lies beside the files of the run."""
    return re.search(NAME_PATTERN, name) is not None and not name.endswith(_FILES) and name not in _FOLDERS


def _checked(config: Config, where: str) -> Config:
    """Check everything a type cannot say: names are unique, modes and pairs exist, files are there."""

    def wrong(message: str, hint: str) -> InputError:
        return InputError(f"config {where}: {message}", hint)

    names = [experiment.name for experiment in config.experiments]
    for experiment in config.experiments:
        name, runner = experiment.name, experiment.runner_path
        if names.count(name) > 1:
            raise wrong(f"two experiments are named '{name}'", "Give each its own name.")
        if not re.search(NAME_PATTERN, name):
            raise wrong(f"'{name}' is too long for the name of an experiment", "Shorten the name.")
        if not is_experiment_name(name):
            hint = "Give it a name without that ending."
            raise wrong(f"an experiment cannot be named '{name}', as files of a run are", hint)
        if experiment.mode not in MODES:
            raise wrong(f"experiment '{name}' has mode '{experiment.mode}'", f"Use one of {', '.join(sorted(MODES))}.")
        if runner is not None and experiment.executorch is not None:
            hint = "Leave one of them out: `executorch` is for the kit's own runner."
            raise wrong(f"experiment '{name}' has a `runner_path` and `executorch`", hint)
        if experiment.executorch == "":
            raise wrong(f"`executorch` of '{name}' is empty", "Give 1.5.1, or a prefix.")
        if runner is not None and not files.is_file(Path(runner)):
            looked = f" (nor in {os.environ[REPOSITORY]}, ${REPOSITORY})" if os.environ.get(REPOSITORY) else ""
            raise wrong(
                f"runner_path '{runner}' of '{name}' does not exist{looked}",
                f"Correct it, set {REPOSITORY} to the ExecuTorch clone it lies in, or leave runner_path out to use the "
                "kit's own runner.",
            )
        if experiment.phase is not None and (config.inputs or experiment.method or runner):
            which = "inputs" if config.inputs else "method" if experiment.method else "runner_path"
            hint = "Leave one of them out; a phase makes its inputs from `token_file`, or from random tokens."
            raise wrong(f"experiment '{name}' has a `phase`, and there is a `{which}`", hint)
    phases = {experiment.name: experiment.phase for experiment in config.experiments}
    for before, after in config.analysis.compare_pairs:
        if unknown := [name for name in (before, after) if name not in names]:
            hint = f"Experiments: {', '.join(names)}."
            raise wrong(f"compare_pairs names '{unknown[0]}', which is not an experiment", hint)
        if before == after:
            raise wrong(f"compare_pairs compares '{before}' with itself", "Name two experiments.")
        if phases[before] != phases[after]:
            what = f"compare_pairs compares '{before}' and '{after}', which are different phases"
            raise wrong(what, "Compare experiments of one phase.")
    if not files.is_file(Path(config.model)):
        hint = "Export it first (sme2-kit export), or correct `model`."
        raise wrong(f"model '{config.model}' does not exist", hint)
    if config.label is not None:
        checked_label(config.label)
    checked_labels(config.labels)
    for file in [*config.inputs, *([config.token_file] if config.token_file else [])]:
        if not files.is_file(Path(file)):
            raise wrong(f"input file '{file}' does not exist", "Correct the path, or leave it out.")
    return config


def compare_pairs(config: Config) -> list[tuple[str, str]]:
    """Return the pairs asked for, else those that differ only in their ExecuTorch, and each experiment with features
    off before the one like it with nothing off."""
    if config.analysis.compare_pairs:
        return config.analysis.compare_pairs
    timed = [e for e in config.experiments if MODES[e.mode] == "timing"]
    pairs = [
        (off.name, on.name)
        for off in timed
        for on in timed
        if off.disable_features
        and not on.disable_features
        and (off.num_threads, off.phase, off.executorch) == (on.num_threads, on.phase, on.executorch)
    ]
    pairs = [*version_pairs(config.experiments), *pairs]
    phases = dict.fromkeys(experiment.phase for experiment in timed)
    return pairs or [pair for phase in phases for pair in _by_name([e for e in timed if e.phase == phase])]


def _by_name(timed: list[Experiment]) -> list[tuple[str, str]]:
    """Return two experiments where no features tell before from after, for every number of threads; of more, none."""
    alone: dict[str, dict[int | None, str]] = {}
    for experiment in timed:
        name, named = without_threads(experiment.name, experiment.num_threads)
        alone.setdefault(name, {})[experiment.num_threads if named else None] = experiment.name
    if len(alone) != 2:
        return []
    # The learning path names its experiments …_on and …_off; the slower one is the baseline.
    first, second = sorted(alone, key=lambda name: not name.endswith("off"))
    return [(name, alone[second][threads]) for threads, name in alone[first].items() if threads in alone[second]]
