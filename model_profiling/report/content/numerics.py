"""Accuracy by layer: how far the outputs are off, which layers cause it, and what to do."""

import math
import shlex

from model_profiling.analysis.accuracy.numerics import Gap, Layer, Numerics, Trial, first_loss, gain_db, level, side
from model_profiling.base.dtypes import dtype_of
from model_profiling.base.units import counted
from model_profiling.export.options import DECIDING
from model_profiling.report import numbers
from model_profiling.report.blocks import (
    Block,
    Bullets,
    Fact,
    Name,
    Number,
    Paragraph,
    Picture,
    Report,
    Row,
    Section,
    Table,
)

WORST, MOST_SAID = 10, 4
# How many layers to say a command for.
MENDED = 3
_BETTER_DB = 6.0
# What `tune` decides by itself.
_NOT_TUNED = [row.flag for row in DECIDING if "tune" not in row.verbs]
CAPTION = (
    "Signal to noise of every layer, in the order in which they run. Grey: against eager fp32, with all that was lost "
    "before; a line leads from a layer to each that reads it. Coloured points: what each layer adds by itself, by "
    "operator. Red: NaN or infinite values."
)
COLUMNS = ("layer", "operator", "alone", "adds", "error", "dtype", "backend", "range in fp32", "where")
LEGEND = (
    "All in decibel of signal to noise. alone: the outputs if only this layer were not exact, on inputs as fp32 gives "
    "them. adds: the layer against fp32 on its own inputs. error: against eager fp32, with what it inherits. dtype: "
    "eager PyTorch in this dtype against fp32. backend: the program against eager PyTorch in its dtype."
)
EVIDENCE = "Layers were handed out by taps, which keep operators from being fused: such a program is never timed."


def section(found: Numerics | None) -> Section | None:
    """Return what `sme2-kit numerics` found of the .pte of a run; None if nobody asked."""
    if found is None:
        return None
    said = sentences(found)
    blocks: list[Block] = [
        Bullets([f"{sentence}." for sentence in said]),
        Picture("numerics", CAPTION),
        Table("numerics", COLUMNS, rows(found), short=WORST),
        Paragraph(LEGEND),
        Bullets([f"{item}." for item in what_to_do(found)]),
        Paragraph(EVIDENCE),
    ]
    return Section("numerics", "Accuracy by layer", blocks, True, "; ".join(said[:2]))


def report(found: Numerics) -> Report:
    """Return what `numerics` says of a program."""
    whole = section(found)
    said, todo = ([(each,) for each in every[:MOST_SAID]] for every in (sentences(found), what_to_do(found)))
    worst = Table("glance", (*COLUMNS[:5], "where"), [(*row[:5], row[8]) for row in rows(found, WORST)])
    return Report(
        f"{found.model}, {found.dtype}",
        f"on {found.platform}, {counted(len(found.layers), 'layer')}",
        opening=[[Fact("Outputs", rows=[*said])], [worst] if worst.rows else [], [Fact("To do", rows=[*todo])]],
        sections=[whole] if whole is not None else [],
    )


def sentences(found: Numerics) -> list[str]:
    """Return how far the outputs are off, where accuracy is lost first, and what stands out."""
    said = [f"{each.title}: outputs {decibel(each.outputs)} against eager fp32" for each in found.variants]
    said += [f"{alarm.layer.place} {alarm.sentence}" for alarm in found.alarms[:WORST]]
    if not found.alarms:
        said.append("no layer stands out")
    first = first_loss(found)
    if first is not None:
        said.append(f"the first layer that is far from fp32 is {first.place} ({decibel(side(found, first).error)})")
    if found.looked_at_alone < found.to_look_at:
        said.append(f"{found.looked_at_alone} of {counted(found.to_look_at, 'layer')} were looked at alone")
    if found.not_apart:
        said.append(
            f"{counted(found.not_apart, 'layer')} could only be looked at with the inputs that the program gives"
        )
    return [*said, *(f"{counted(count, 'value')} left out: {why}" for why, count in found.left_out.items())]


def rows(found: Numerics, most: int | None = None) -> list[Row]:
    """Return the layers that are not exact, worst first."""
    return [_row(found, layer) for layer in found.worst[:most]]


def _row(found: Numerics, layer: Layer) -> Row:
    own = side(found, layer)
    reach = "-" if layer.low is None or layer.high is None else f"{layer.low:.3g} to {layer.high:.3g}"
    operator = Name(" + ".join([layer.operator.removeprefix("aten.").partition(".")[0], *layer.fused]))
    gaps = (own.alone, own.added, own.error, layer.dtype, own.backend)
    cells = [numbers.UNKNOWN if gap is None else Number(decibel(gap, ""), gap.sqnr_db) for gap in gaps]
    return (Name(layer.place), operator, *cells, reach, Name(layer.source) if layer.source else "-")


def decibel(found: Gap, unit: str = " dB") -> str:
    if found.exact:
        return "exact"
    if found.sqnr_db is None:
        return "not finite" if found.max_abs_error is None else "no signal"
    return f"{found.sqnr_db:.1f}{unit}"


def what_to_do(found: Numerics) -> list[str]:
    """Return how to fix what stands out."""
    alarms, dtype = found.alarms, dtype_of(found.dtype)
    reached = [each.outputs.sqnr_db for each in found.variants if each.outputs.sqnr_db is not None]
    if min(reached, default=math.inf) < dtype.numerics.floor_db and not (alarms and dtype.converts):
        named = "`export` names the operator, and what to leave out of the delegate"
        return [f"the program is wrong: {named}; --reproduce FILE.py writes a script that shows it"]
    if not alarms:
        return ["nothing to fix: what is lost is what the dtype costs"]
    if not dtype.converts:
        return ["all layers are in fp32 already: what is lost there, the backend's kernels lose"]
    unnamed = [alarm.layer.place for alarm in alarms[:MENDED] if not alarm.layer.keep]
    said = [f"{place} is in fp32 already" for place in unnamed if place in found.kept]
    made = "is made by a rewrite, or not converted: it cannot be kept in fp32 by name"
    said += [f"{place} {made}" for place in unnamed if place not in found.kept]
    said += _not_tried(found) if found.trials is None else _tried(found, found.trials)
    if dtype.calibrated:
        said.append("calibrate on real data: --calibration DIR, with .npy files as the model takes them")
    # Another side whose outputs are better by more than chance.
    own, *others = found.variants
    better = max(others, key=lambda each: level(each.outputs), default=own)
    if math.isfinite(level(better.outputs)) and level(better.outputs) >= level(own.outputs) + _BETTER_DB:
        said.append(f"with {better.title} the same program has {decibel(better.outputs)}: the backend loses the rest")
    if found.command and not any(flag in found.command for flag in _NOT_TUNED):
        tune = found.command.replace("sme2-kit export", "sme2-kit tune", 1)
        said.append(f"see what that costs in time: {tune} --worst-layers {min(len(alarms), MENDED)}")
    return said


def _tried(found: Numerics, trials: list[Trial]) -> list[str]:
    """Return what each remedy gave; only one that helps has a command."""
    said = []
    before = {variant.name: variant.outputs for variant in found.variants}
    kept: list[str] = []
    for trial in trials:
        more = [name for name in trial.keep if name not in kept]
        names = f"{', '.join(more[:WORST])}{' and more' if len(more) > WORST else ''}"
        also = " as well" if kept else ""
        if trial.failure:
            said.append(f"keeping {names} in fp32{also} was tried and is no remedy: {trial.failure}")
            continue
        both = [each for each in found.variants if each.name in before and each.name in trial.outputs]
        after = {each.name: decibel(trial.outputs[each.name]) for each in both}
        gave = ", ".join(f"{decibel(before[each.name])} -> {after[each.name]} with {each.title}" for each in both)
        if trial.helps:
            said.append(f"keep {names} in fp32{also} (tried: outputs {gave}): {keeping(found, trial.keep)}")
            kept, before = trial.keep, trial.outputs
        else:
            said.append(f"keeping {names} in fp32{also} does not help (tried: outputs {gave})")
    return said


def _not_tried(found: Numerics) -> list[str]:
    """Return the remedy for each alarm, and for all of them, as it is predicted."""
    said: list[str] = []
    sets: list[set[str]] = []
    alarms = [alarm for alarm in found.alarms[:WORST] if alarm.layer.keep]
    for alarm in alarms[:MENDED]:
        if any(set(alarm.layer.keep) <= earlier for earlier in sets):
            continue
        sets.append(set(alarm.layer.keep))
        gain = gain_db(found, alarm.layer)
        worth = f"predicted: {gain:.1f} dB better outputs, " if gain is not None and gain >= 1 else ""
        said.append(f"keep {alarm.layer.place} in fp32 ({worth}not tried): {keeping(found, alarm.layer.keep)}")
    everything = list(dict.fromkeys(name for alarm in alarms for name in alarm.layer.keep))
    if everything and not any(set(everything) <= earlier for earlier in sets):
        said.append(f"keep all of them in fp32 (not tried): {keeping(found, everything)}")
    return said


def keeping(found: Numerics, names: list[str]) -> str:
    """Return the export that keeps these layers in fp32, beside those that are."""
    if not found.command:
        return f"keep_fp32={[*found.kept, *names]}"
    return " ".join([found.command, *(f"--keep-fp32 {shlex.quote(name)}" for name in names)])
