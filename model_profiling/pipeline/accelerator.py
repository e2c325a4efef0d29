"""A config that says `{accelerator}` fits any CPU: its best feature for the model's dtype is filled in."""

import msgspec

from model_profiling.base.errors import InputError
from model_profiling.pipeline.config_types import ACCELERATOR, Analysis, Config, Experiment
from model_profiling.platforms.base import Platform
from model_profiling.runner import features


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
