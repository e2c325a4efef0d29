"""Is this the right baseline? A gate against a damaged run, or one of another model or machine, would prove nothing."""

from collections.abc import Callable
from pathlib import Path

from model_profiling.analysis.run.selection import run_and_experiment
from model_profiling.analysis.run.validation import problems
from model_profiling.base.errors import InputError
from model_profiling.store.run_directory import Manifest, RunDirectory

_ANYWAY = "Use the right baseline, or pass --any-baseline to compare anyway."
# What a run has to share with its baseline.
_SHARED: dict[str, Callable[[Manifest], object]] = {
    "model": lambda manifest: manifest.model.stem,
    "platform": lambda manifest: manifest.platform,
    "CPU": lambda manifest: manifest.environment.get("cpu") or manifest.environment.get("arch"),
}


def refuse_wrong_baseline(before: str, after: str, any_baseline: bool) -> None:
    """Raise unless `before` is whole and was measured as `after` was; bare dumps do not say how they were measured."""
    if Path(before).exists() and Path(before).resolve() == Path(after).resolve():
        raise InputError(f"{before} is its own baseline", "Give the baseline as A and the new run as B.")
    sides = [_run(before), _run(after)]
    if sides[0] is None or sides[1] is None:
        return
    (baseline, _), (_, name) = sides[0], sides[1]
    found = problems(baseline)
    if found:
        if not baseline.path.is_dir():
            raise InputError(
                f"the baseline {baseline.path} does not exist", "Check the path, or measure one with sme2-kit run."
            )
        raise InputError(f"the baseline {baseline.path} is damaged: {found[0]}", "Restore it, or measure it again.")
    if any_baseline:
        return
    old, new = baseline.manifest(), sides[1][0].manifest()
    for what, value in _SHARED.items():
        if value(old) != value(new):
            raise InputError(f"the baseline is of another {what}: {value(old)}, not {value(new)}", _ANYWAY)
    if sides[0][1] is None and name is None:
        _same_experiments(old, new)


def _same_experiments(old: Manifest, new: Manifest) -> None:
    for name, record in old.experiments.items():
        other = new.experiments.get(name)
        if other is None or other.status != "ok":
            raise InputError(f"the new run has no finished experiment '{name}', which the baseline has", _ANYWAY)
        if (record.threads, record.disable_features) != (other.threads, other.disable_features):
            raise InputError(f"'{name}' has other threads or features than in the baseline", _ANYWAY)
        workspace = ("workspace", record.workspace, other.workspace)
        for what, was, now in (workspace, ("weight cache", record.weight_cache, other.weight_cache)):
            # Not every runner says it.
            if was and now and was != now:
                raise InputError(f"XNNPACK's {what} of '{name}' was {was} in the baseline and is {now}", _ANYWAY)


def _run(text: str) -> tuple[RunDirectory, str | None] | None:
    """Return the run directory `text` names and which experiment of it; None for a dump."""
    named = run_and_experiment(text)
    return (RunDirectory(named[0]), named[1]) if named is not None else None
