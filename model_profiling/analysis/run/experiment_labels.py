"""What people call an experiment: `fp16 arithmetic on` for `linux_fp16arith_on`."""

import re
from collections.abc import Mapping

from model_profiling.base.units import counted
from model_profiling.runner.features import ALIASES, TABLES, feature_label
from model_profiling.store.run_directory import ExperimentRecord, Manifest, without_threads, without_version

_SWITCHES = {feature.name for table in TABLES.values() for feature in table}
_SPELLINGS = {alias: name for aliases in ALIASES.values() for alias, name in aliases.items()}
# What a run without anything to switch is called.
_BASELINE = "baseline"
_NAME = re.compile(r"(?:[a-z0-9]+_)?([a-z0-9_]+)_(on|off)")


def labels_of(manifest: Manifest) -> dict[str, str]:
    """Return the label of every experiment; its own name where the name does not say a feature and a side, where the
    record does not bear that out (another runner may switch nothing), or where two would be called the same."""
    own = {name: name for name in manifest.experiments}
    found = {name: _label(name, record, manifest.platform) for name, record in manifest.experiments.items()}
    if None in found.values() or len(set(found.values())) < len(found):
        return own
    return {name: label or name for name, label in found.items()}


def curve_label(manifest: Manifest, name: str) -> str:
    """Return what to call experiments that differ from this one only in their threads."""
    record = manifest.experiments[name]
    return _label(without_threads(name, record.threads)[0], record, manifest.platform) or name


def _label(name: str, record: ExperimentRecord, platform: str) -> str | None:
    """Return the label; None where the name promises a side that the record does not show."""
    alone, named = without_threads(name, record.threads)
    if named:
        label = _label(alone, record, platform)
        return label and with_detail(label, counted(record.threads, "thread"))
    if record.phase is not None and name.endswith(f"_{record.phase.in_names}"):
        label = _label(name.removesuffix(f"_{record.phase.in_names}"), record, platform)
        return label and with_detail(label, record.phase.label)
    before, version = without_version(name, record.runner)
    if version:
        label = _label(before, record, platform)
        return label and with_detail(label, f"ExecuTorch {version}")
    matched = _NAME.fullmatch(name.removeprefix(f"{platform}_"))
    feature = matched and (_switch(matched[1]) or _switch(matched[0].rpartition("_")[0]))
    if not matched or not feature:
        return _BASELINE if name == f"{platform}_{_BASELINE}" else name
    switched = {_SPELLINGS.get(each, each) for each in record.disable_features}
    if (matched[2] == "off") != (feature in switched):
        return None
    return f"{feature_label(feature)} {matched[2]}"


def with_detail(label: str, detail: str) -> str:
    """Return `dot product on (pp128)`, and with another detail `dot product on (pp128, 2 threads)`."""
    return f"{label[:-1]}, {detail})" if label.endswith(")") else f"{label} ({detail})"


def _switch(word: str) -> str | None:
    word = _SPELLINGS.get(word, word)
    return word if word in _SWITCHES else None


def switched_features(manifest: Manifest, before: str, after: str) -> list[str]:
    """Return the features that `before` ran without and `after` had; SME goes with SME2."""
    records = manifest.experiments
    if before not in records or after not in records:
        return []
    off, on = (set(records[name].disable_features) for name in (before, after))
    switched = off - on if off > on else set[str]()
    return sorted(switched - {"sme"} if "sme2" in switched else switched)


def other_executorch(manifest: Manifest, before: str, after: str) -> bool:
    """Return whether two experiments are known to have run with different versions or builds of ExecuTorch."""
    names = [manifest.experiments[name].runner.executorch_name for name in (before, after)]
    return all(names) and names[0] != names[1]


def replace_names(text: str, labels: Mapping[str, str]) -> str:
    """Return the text with experiments called by their labels; names that are part of a path stay."""
    changed = [re.escape(name) for name, label in labels.items() if name in text and name != label]
    if not changed:
        return text
    names = "|".join(sorted(changed, key=len, reverse=True))
    return re.sub(rf"(?<![\w./-])({names})(?![\w/-]|\.\w)", lambda found: labels[found[1]], text)
