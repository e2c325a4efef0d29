"""The fastest program whose metric, the user's own, falls by no more than was allowed: data types, `auto` rewrites, and
layers kept in fp32 where a fast data type loses too much."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace

import msgspec

from model_profiling.analysis.accuracy.numerics import Numerics
from model_profiling.analysis.run.run_forecasts import program_outlook
from model_profiling.analysis.run.selection import measured_side
from model_profiling.analysis.timing.latency import compare
from model_profiling.base import files
from model_profiling.base.errors import KitError
from model_profiling.base.on_progress import say_note
from model_profiling.base.rewrites import AUTO
from model_profiling.export.request import ExportRequest, ExportResult
from model_profiling.pipeline.side_by_side import measure
from model_profiling.store.run_directory import ExperimentRecord
from model_profiling.tune.bench import RESULT, Bench
from model_profiling.tune.formats import pareto
from model_profiling.tune.metric import Judge
from model_profiling.tune.tune_result import KeptLayer, Sme2Outlook, TriedVariant, TuneResult, Turns, appended
from model_profiling.tune.tuning import MOST_AGAIN, decided, sure
from model_profiling.tune.variants import TuneVariant, keeping, kept_layers, other_dtypes

Numbering = Callable[[ExportRequest, ExportResult], Numerics]
# Parts of a budget: data types, then layers that stay in fp32; what is left is for what can still win, and for traces.
_DTYPES, _KEPT, _TRACES = 0.35, 0.25, 0.05
# So many layers are looked at one by one: whether one can do without, and what it costs.
_MOST_SPARED = 12


def best_within_drop(judge: Judge, numerics: Numbering) -> TuneResult:
    """Find the fastest program within the drop; programs that cannot be it any more are not looked at."""
    bench, base = judge.bench, judge.bench.base
    judge.begin()
    bench.metric = judge.value
    variants = _data_types(bench)
    known = {each.name: each for each in [base, *variants]}
    turns, left = sure(bench, known, bench.measure("data types", variants, _DTYPES), MOST_AGAIN)
    lossy = [known[name] for name in _worth_mending(bench, bench.tried(known.values(), turns))]
    kept = [mended(judge, each, numerics) for each in lossy]
    if more := {each.name: each for found in kept for each in found}:
        known |= more
        turns = appended(turns, bench.measure("layers in fp32", more.values(), _KEPT))
        turns, left = sure(bench, known, turns, left)
    result = decided(bench, known, turns, left)
    winner = next((found for found in kept if found and found[0].name == result.winner), [])
    summary = msgspec.structs.replace(judge.summary(), kept=_prices(judge, winner, turns))
    result = msgspec.structs.replace(result, tried=_told(bench, result.tried), metric=summary)
    files.write_json(bench.home / RESULT, result)
    return result


def _data_types(bench: Bench) -> list[TuneVariant]:
    """Return the data types that may be faster, and each of them with the rewrites that `auto` chooses."""
    base, flow = bench.base, bench.flow()
    dtypes = [base, *other_dtypes(base, flow, set(bench.platform.probe().features), flow is None)]
    rewritten = [replace(each, rewrites=(AUTO,), reason=f"what makes it smaller, in {each.dtype}") for each in dtypes]
    return [*dtypes[1:], *rewritten]


def _worth_mending(bench: Bench, tried: Mapping[str, TriedVariant]) -> list[str]:
    """Return of each data type what is fastest, if it loses too much, and is faster than all that does not."""
    most = max((entry.ratio for entry in tried.values() if bench.won(entry)), default=1.0)
    first: dict[str, str] = {}
    for name, entry in tried.items():
        high = entry.comparison.high if entry.comparison is not None else None
        lossy = entry.metric is not None and entry.metric.verdict != "within" and entry.dtype != bench.base.dtype
        if lossy and (high if high is not None else entry.ratio) > most:
            first.setdefault(entry.dtype, name)
    return list(first.values())


def mended(judge: Judge, lossy: TuneVariant, numerics: Numbering) -> list[TuneVariant]:
    """Return the variant with no more layers in fp32 than it takes, and what it is without each of these; if none is
    enough, the one that comes nearest."""
    bench = judge.bench
    try:
        worst = (found := numerics(bench.asking(lossy), bench.made[lossy.name])).worst
    except KitError as error:
        say_note(f"which layers of {lossy.name} lose accuracy is not known: {error.message}")
        return []

    def within(variant: TuneVariant) -> bool:
        bench.export([variant])
        return judge.value(variant.name).verdict == "within"

    more = [each for each in kept_layers(lossy, found, len(worst)) if each.keep_fp32]
    chosen = next((each for each in more if within(each)), None)
    if chosen is None:
        drops = {each: drop for each in more if (drop := judge.value(each.name).drop) is not None}
        return sorted(drops, key=lambda each: drops[each])[:1]
    layers = worst[: chosen.worst]
    for number in range(len(layers), max(0, len(layers) - _MOST_SPARED), -1):
        fewer = keeping(lossy, layers, [*chosen.spared, number])
        if fewer.keep_fp32 and len(fewer.keep_fp32) < len(chosen.keep_fp32) and within(fewer):
            chosen = fewer
    left = [number for number in range(1, len(layers) + 1) if number not in chosen.spared][:_MOST_SPARED]
    without = [keeping(lossy, layers, [*chosen.spared, number]) for number in left]
    # What others keep as well is no layer of its own.
    fewer_kept = [each for each in without if len(each.keep_fp32) < len(chosen.keep_fp32)]
    return [chosen, *(each if each.keep_fp32 else lossy for each in fewer_kept)]


def _prices(judge: Judge, kept: Sequence[TuneVariant], turns: Turns) -> list[KeptLayer]:
    """Return what the layers of the first in fp32 cost and save, as programs without one of them tell."""
    prices = []
    for chosen, each in ((kept[0], each) for each in kept[1:]):
        name = judge.bench.same_as.get(each.name, each.name)
        gone = [layer for layer in chosen.keep_fp32 if layer not in each.keep_fp32]
        if name in turns and chosen.name in turns:
            price = compare((name, turns[name]), (chosen.name, turns[chosen.name]), paired=True)
            with_it, without = judge.value(chosen.name).drop, judge.value(each.name).drop
            saved = None if with_it is None or without is None else without - with_it
            prices.append(KeptLayer(gone, name, price, saved))
    return prices


def _told(bench: Bench, tried: Sequence[TriedVariant]) -> list[TriedVariant]:
    """Add which programs no other beats in speed and metric, their size, and what SME2 would do for each."""
    judged = {e.name: (e.ratio, -e.metric.drop) for e in tried if e.metric is not None and e.metric.drop is not None}
    best, outlooks = pareto(judged), _outlooks(bench, [e.name for e in tried if e.metric is not None])

    def told(entry: TriedVariant) -> TriedVariant:
        size = bench.made[entry.name].paths.pte.stat().st_size
        return msgspec.structs.replace(entry, pareto=entry.name in best, file_bytes=size, sme2=outlooks.get(entry.name))

    return [told(entry) if entry.metric is not None else entry for entry in tried]


def _outlooks(bench: Bench, names: Sequence[str]) -> dict[str, Sme2Outlook]:
    """Trace programs side by side, and return what SME2 would do for each; nothing where they cannot be traced."""
    threads, probe = bench.request.threads, bench.platform.probe()
    how = bench.platform, bench.programs(names), bench.home / "traced", threads, bench.report
    try:
        traced = measure(*how, counts=replace(bench.counts(_TRACES), launches=1), timed=False)
    except KitError as error:
        say_note(f"what SME2 would change is not known: {error.message}")
        return {}
    found = {}
    for name, outcome in traced.items():
        breakdown = measured_side(outcome, name).profiled().breakdown
        record = ExperimentRecord(name, "ok", "", "", "timing", threads, [], outcome.runner, "", "", outcome.features)
        program = bench.made[name].paths.pte, bench.made[name].record.dtype
        covered, forecast = program_outlook(breakdown, record, *program, probe.arch == "aarch64")
        gains = (forecast.target, forecast.ratio, forecast.ratio_low, forecast.ratio_high) if forecast else ()
        found[name] = Sme2Outlook(covered.eligible, covered.on_sme2, *gains)
    return found
