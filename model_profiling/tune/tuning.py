"""The experiment after the profile: try what may make the baseline's program faster, combine what won, rank."""

from collections.abc import Callable, Mapping
from dataclasses import replace

import msgspec

from model_profiling.analysis.accuracy.numerics import Numerics
from model_profiling.base import files
from model_profiling.base.on_progress import OnProgress
from model_profiling.base.rewrites import AUTO
from model_profiling.export.request import ExportRequest, ExportResult
from model_profiling.platforms.base import Platform
from model_profiling.tune.bench import Bench, Exporting, TuneRequest
from model_profiling.tune.formats import best_format, pareto
from model_profiling.tune.tune_result import (
    WORTH,
    TriedVariant,
    TuneResult,
    Turns,
    appended,
    ladder,
    preferred,
    promising,
    replace_comparison,
    rivals,
    step_gains,
)
from model_profiling.tune.variants import TuneVariant, first_round, kept_layers, left_out, second_round

# Parts of a budget: changes one by one, combinations, and up to three times what can still win. A trace has the rest.
_FIRST, _COMBINED, _AGAIN, MOST_AGAIN = 0.4, 0.25, 0.08, 2


def tune(
    request: TuneRequest,
    platform: Platform,
    exporting: Exporting,
    report: OnProgress,
    command: Callable[[ExportRequest], str],
    numerics: Callable[[ExportRequest, ExportResult], Numerics],
    search: Callable[[Bench], TuneResult] | None = None,
) -> TuneResult:
    """Find the best variant, by a `search` if one is given; exports and finished rounds are taken from disk. `numerics`
    finds the worst layers."""
    bench = Bench(request, platform, exporting, report, command)
    with files.locked(bench.home, "tune"):
        bench.export([bench.base])
        if search is not None:
            return search(bench)
        if bench.made[bench.base.name].record.sequence is not None:
            return best_format(bench)
        return best_kept_layers(bench, numerics) if request.worst_layers else best_program(bench)


def best_program(bench: Bench) -> TuneResult:
    """Try single changes, then what won together; go on only with what can still win by its interval."""
    base, variants = bench.base, _single_changes(bench)
    known = {variant.name: variant for variant in [base, *variants]}
    turns, left = sure(bench, known, bench.measure("single changes", variants, _FIRST), MOST_AGAIN)
    auto = bench.made.get(replace(base, rewrites=(AUTO,)).name)
    chosen = [each.name for each in auto.record.auto if each.applied] if auto is not None else []
    leading = _leading(bench, bench.tried(known.values(), turns))
    combined = second_round(base, [known[name] for name in leading], bench.matched(), chosen)
    if combined:
        known |= {each.name: each for each in combined}
        best = [known[name] for name in leading[:1]]
        turns = appended(turns, bench.measure("combined", [*best, *combined], _COMBINED))
        turns, left = sure(bench, known, turns, left)
    return decided(bench, known, turns, left)


def _single_changes(bench: Bench) -> list[TuneVariant]:
    """Return what to try alone: dtypes, layouts, `auto`, the rewrites that it leaves out, and those asked for."""
    base, floor = bench.base, bench.request.min_sqnr_db
    made = bench.made[base.name]
    flow = bench.flow()
    features = set(bench.platform.probe().features)
    variants = first_round(base, flow, made.record.rewrites or {}, features, floor is not None)
    auto = [each for each in variants if AUTO in each.rewrites]
    bench.export(auto)
    for each in auto:
        variants += left_out(base, bench.made[each.name].record.auto) if each.name in bench.made else []
    asked = [replace(base, rewrites=(name,), reason="asked for") for name in bench.request.base.rewrites]
    return variants + [each for each in asked if each.name not in {variant.name for variant in variants}]


def sure(bench: Bench, known: Mapping[str, TuneVariant], turns: Turns, left: int) -> tuple[Turns, int]:
    """Measure again, up to `left` times, what may be faster than all that is known to be; returns what is left."""
    while left and (looks := promising(bench.tried(known.values(), turns).values(), bench.won)):
        turns = appended(turns, bench.measure("again", [known[name] for name in looks], _AGAIN))
        left -= 1
    return turns, left


def decided(bench: Bench, known: dict[str, TuneVariant], turns: Turns, left: int) -> TuneResult:
    """Measure the best ones again while one may be faster, beside what lies between them and the baseline."""
    base = bench.base
    while winners := [name for name, entry in bench.tried(known.values(), turns).items() if bench.won(entry)]:
        tried = bench.tried(known.values(), turns)
        equal = rivals(turns, winners[0], winners)
        best = preferred([winners[0], *equal], {name: entry.sqnr_db for name, entry in tried.items()}, known)
        between = {each.name: each for each in ladder(base, known[best]) if each.name not in bench.failures}
        missing = [name for name in between if name not in turns and name not in bench.same_as]
        again = rivals(turns, winners[0], winners, WORTH) if left else []
        if not missing and not again:
            as_fast = [name for name in (winners[0], *equal) if name != best]
            return bench.finished(known.values(), tried, best, step_gains(base, known[best], turns), as_fast)
        known = between | known
        names = dict.fromkeys((winners[0], *again, *(between if missing else ())))
        turns = appended(turns, bench.measure("again", [known[name] for name in names], _AGAIN))
        left = max(0, left - 1)
    # On a busy machine the fastest is kept if its operators are faster: a trace leaves out what other processes took.
    tried = bench.tried(known.values(), turns)
    best = next(iter(_leading(bench, tried)), "")
    changes = bench.changes(best) if best else None
    surely = changes is not None and changes.high_ms is not None and changes.high_ms < 0
    return bench.finished(known.values(), tried, best if surely else "")


def _leading(bench: Bench, tried: Mapping[str, TriedVariant]) -> list[str]:
    """Return what is faster and right, whether the machine was busy or not, fastest first."""
    calm = {n: replace_comparison(e, contended=False) for n, e in tried.items() if e.comparison is not None}
    return [name for name, entry in calm.items() if bench.won(entry)]


def best_kept_layers(bench: Bench, numerics: Callable[[ExportRequest, ExportResult], Numerics]) -> TuneResult:
    """Keep ever more of the layers that lose most in fp32, each measured beside the baseline."""
    base = bench.base
    found = numerics(bench.asking(base), bench.made[base.name])
    variants = kept_layers(base, found, bench.request.worst_layers)
    tried = bench.tried([base, *variants], bench.measure("layers in fp32", variants))
    best = pareto({name: time_and_accuracy(entry) for name, entry in tried.items()})
    return bench.finished(variants, {n: msgspec.structs.replace(entry, pareto=n in best) for n, entry in tried.items()})


def time_and_accuracy(entry: TriedVariant) -> tuple[float, float]:
    """Return what a variant is good at, each the larger the better; what is not known is as bad as can be."""
    worst, noise = float("-inf"), entry.sqnr_db
    return (worst if entry.median_ms is None else -entry.median_ms, worst if noise is None else noise)
