"""Where a program loses accuracy: run it with taps on every layer, and compare each with eager PyTorch in fp32."""

import os
from collections.abc import Iterator
from dataclasses import dataclass, replace
from pathlib import Path

import msgspec
import torch

from model_profiling.analysis.accuracy.numerics import Alarm, Gap, Numerics, Trial, Variant, helps, is_fine
from model_profiling.base import files
from model_profiling.base.dtypes import dtype_of
from model_profiling.base.errors import KitError
from model_profiling.base.on_progress import OnProgress
from model_profiling.export.exporter import export_loaded
from model_profiling.export.host import host_untouched
from model_profiling.export.missing_parts import require_for_numerics
from model_profiling.export.numerics.compare_layers import compare_layers
from model_profiling.export.numerics.eager_layers import eager_layers
from model_profiling.export.numerics.graph_pair import Load
from model_profiling.export.numerics.layer_programs import run_apart, run_tapped, tapped_programs
from model_profiling.export.numerics.layers_alone import measure_alone
from model_profiling.export.numerics.tapped_runs import RunVariant, execute_once, own_outputs, sides_of
from model_profiling.export.numerics.taps import TappedLayer
from model_profiling.export.quiet import kept_off_terminal
from model_profiling.export.request import ExportRequest, ExportResult
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


# The values that one tapped program may hand out: who runs it must hold them all at once.
_MOST_BYTES, _MOST_BYTES_HERE = 512 << 20, 4 << 30


def measure_numerics(
    request: ExportRequest,
    made: ExportResult,
    load: Load,
    platform: Platform,
    report: OnProgress,
    most_bytes: int | None = None,
    trial: bool = True,
) -> Numerics:
    """Look at every layer of an exported program and leave what was found beside it; `load` gives the model again.

    `trial`: export what would be recommended, too, and see what it gives.
    """
    # The rewrites have names now, if the export was to choose them.
    request = replace(request, rewrites=tuple(made.record.request.rewrites))
    require_for_numerics(request)
    sides = sides_of(platform, request.dtype)
    inputs = sample_inputs(made.paths, made.record)
    with files.scratch_directory("sme2-kit-numerics-") as home:
        with kept_off_terminal(request.loud) as said, host_untouched(request.seed):
            work = eager_layers(request, load, home, said, report)
            programs, groups = tapped_programs(work, most_bytes or _most_bytes(platform), report)
        variants, values = [], {}
        for each in sides:
            report(f"run {each.name}", 0, 0)
            place = home / each.name
            plain = execute_once(platform, made.paths.pte, inputs, each, place / "plain")
            taken, tapped = run_tapped(platform, programs, groups, inputs, each, place)
            values[each.name] = taken
            variants.append(
                Variant(
                    each.name,
                    each.title,
                    list(each.disabled_features),
                    own_outputs(plain, len(plain), work.outputs),
                    own_outputs(tapped, len(tapped) - len(groups[0]), work.outputs),
                )
            )
        with kept_off_terminal(request.loud), host_untouched(request.seed):
            numerics, errors = compare_layers(request, made, platform, work, variants, values, report)
            apart = run_apart(work, numerics, platform, sides[0], most_bytes or _most_bytes(platform), report)
            numerics = measure_alone(numerics, work, errors, apart, report)
        if trial and dtype_of(request.dtype).converts:
            run = RemedyRun(request, load, platform, sides, work.outputs, home / "remedies", report)
            numerics = msgspec.structs.replace(numerics, trials=try_remedies(numerics, work.layers, run))
    files.write_json(made.paths.numerics, numerics)
    return numerics


def _most_bytes(platform: Platform) -> int:
    """Return how much a tapped program may hand out: on this machine a part of its memory."""
    if platform.remote:
        return _MOST_BYTES
    memory = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    return max(_MOST_BYTES, min(memory // 8, _MOST_BYTES_HERE))
