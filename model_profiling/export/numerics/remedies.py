"""Try what would be recommended: export the model with layers kept in fp32, run it once, and see what it gives."""

from collections.abc import Iterator
from dataclasses import dataclass, replace
from pathlib import Path

import torch

from model_profiling.analysis.accuracy.numerics import Alarm, Gap, Numerics, Trial, helps, is_fine
from model_profiling.base.errors import KitError
from model_profiling.base.on_progress import OnProgress
from model_profiling.export.exporter import export_loaded
from model_profiling.export.numerics.graph_pair import Load
from model_profiling.export.numerics.tapped_runs import RunVariant, execute_once, own_outputs
from model_profiling.export.numerics.taps import TappedLayer
from model_profiling.export.request import ExportRequest
from model_profiling.export.stages import Announce
from model_profiling.pipeline.pipeline import sample_inputs
from model_profiling.platforms.base import Platform

# How many layers are kept at once at most, of those that alarms name, and of the next worst.
_MOST_ALARMS, _NEXT_WORST = 10, 3


@dataclass(frozen=True)
class RemedyRun:
    """Exports the model with more layers in fp32 and runs it on every side."""

    request: ExportRequest
    load: Load
    platform: Platform
    sides: list[RunVariant]
    # Of eager fp32.
    reference: list[torch.Tensor]
    home: Path
    report: OnProgress

    def outputs(self, keep: list[str], number: int) -> dict[str, Gap]:
        home = self.home / str(number)
        asked = replace(self.request, keep_fp32=(*self.request.keep_fp32, *keep), outdir=home)
        made = export_loaded(asked, self.load, self._announce(number), cacheable=False)
        inputs = sample_inputs(made.paths, made.record)
        found = {}
        for side in self.sides:
            outputs = execute_once(self.platform, made.paths.pte, inputs, side, home / side.name)
            found[side.name] = own_outputs(outputs, len(outputs), self.reference)
        return found

    def _announce(self, number: int) -> Announce:
        return lambda stage: self.report(f"try remedy {number}: {stage}", 0, 0)


def try_remedies(numerics: Numerics, layers: list[TappedLayer], run: RemedyRun) -> list[Trial]:
    """Keep what the worst alarm names, then what all name; where nothing helps, their neighbours and the next worst."""
    best = {variant.name: variant.outputs for variant in numerics.variants}
    trials: list[Trial] = []
    unusable: set[str] = set()
    for keep in _wider_and_wider(numerics, layers, trials):
        wanted = [name for name in dict.fromkeys(keep) if name not in unusable]
        if not wanted or any(set(wanted) == set(trial.keep) for trial in trials):
            continue
        try:
            outputs = run.outputs(wanted, len(trials) + 1)
        except KitError as error:
            trials.append(Trial(wanted, failure=error.message))
            unusable |= set(wanted)
            continue
        trials.append(Trial(wanted, outputs, helps(numerics, best, outputs)))
        best = outputs if trials[-1].helps else best
    return trials


def _wider_and_wider(numerics: Numerics, layers: list[TappedLayer], trials: list[Trial]) -> Iterator[list[str]]:
    alarms = numerics.alarms[:_MOST_ALARMS]
    if not alarms:
        return
    # Outputs stay NaN until all of those are kept that give it.
    broken = [alarm for alarm in alarms if alarm.kind == "not finite"]
    yield _names(broken or alarms[:1])
    named = _names(alarms)
    yield named
    if is_fine(numerics) or any(trial.helps for trial in trials):
        return
    named = [*named, *_neighbours(named, layers)]
    yield named
    if not any(trial.helps for trial in trials):
        rest = [layer for layer in numerics.worst if layer.keep and not set(layer.keep) <= set(named)]
        yield [*named, *(name for layer in rest[:_NEXT_WORST] for name in layer.keep)]


def _names(alarms: list[Alarm]) -> list[str]:
    return list(dict.fromkeys(name for alarm in alarms for name in alarm.layer.keep))


def _neighbours(names: list[str], layers: list[TappedLayer]) -> list[str]:
    """Return the layers that read those named, or are read by them."""
    by_name = {layer.reference: layer for layer in layers}
    found = []
    for layer in layers:
        readers = [by_name[reader].own_name for reader in layer.readers if reader in by_name]
        found += readers if layer.own_name in names else []
        found += [layer.own_name] if set(readers) & set(names) else []
    return [name for name in dict.fromkeys(found) if name and name not in names]
