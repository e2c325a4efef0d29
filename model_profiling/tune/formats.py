"""Language models: which weight format to take. Speed of each phase, memory, accuracy and SME2, in one table."""

import math
from collections.abc import Mapping

import msgspec
import numpy as np
import numpy.typing as npt

from model_profiling.analysis.accuracy.agreement import Array, agreement_of, expected_logits, last_logits, read_outputs
from model_profiling.analysis.llm.phases import phase_metrics
from model_profiling.analysis.process.memory import memory
from model_profiling.analysis.sme2.weight_formats import sme2_share
from model_profiling.analysis.timing.latency import compare, summarise
from model_profiling.base.dtypes import EXPORTED
from model_profiling.base.errors import InputError
from model_profiling.pipeline.group_state import MeasuredProgram
from model_profiling.pipeline.phase_experiments import Lengths, checked_tokens, token_count
from model_profiling.pipeline.side_by_side import programs_of
from model_profiling.platforms.base import LaunchRequest, TokenPlan
from model_profiling.store.run_directory import Phase, Samples, experiment_file
from model_profiling.tune.bench import Bench, RoundTurns
from model_profiling.tune.tune_result import FormatResult, TriedPhase, TuneResult
from model_profiling.tune.variants import TuneVariant

# Of a text, so many tokens tell; and no model with finite numbers is more surprised than this by a token, in nats.
MOST_SCORED = 1024
_MOST_SURPRISE = 700.0
# What each phase gets of the budget.
_PHASE = 0.44
# In the order in which they are tried: what keeps accuracy first. One that is calibrated quantizes more than weights.
FORMATS = tuple(row.name for row in EXPORTED if not row.calibrated)


def best_format(bench: Bench) -> TuneResult:
    """Measure every weight format of a language model, each against the baseline in every phase."""
    base = bench.base
    variants = [base, *(TuneVariant(dtype, reason="weight format") for dtype in FORMATS if dtype != base.dtype)]
    bench.export(variants)
    found, tried = results(bench), {}
    for variant in (each for each in variants if each.name in found):
        last = found[variant.name].phases[-1]
        tried[variant.name] = msgspec.structs.replace(
            bench.entry(variant),
            median_ms=last.metrics.tpot_ms or last.metrics.ttft_ms,
            comparison=last.comparison,
            agreement=last.agreement,
            format=found[variant.name],
        )
    return bench.finished(variants, dict(sorted(tried.items(), key=lambda item: item[1].median_ms or 0.0)))


def results(bench: Bench) -> dict[str, FormatResult]:
    """Return what there is to know of each export, by its name."""
    programs, phases = programs_of({name: each.paths.pte for name, each in bench.made.items()}, Lengths())
    if not phases:
        raise InputError("not all variants are language models", "Export the model again; its .pte has changed.")
    taken = {phase: bench.taken(phase.in_names, programs, _PHASE, phase) for phase in phases}
    found = {name: _result(bench, name, taken) for name in bench.made}
    if bench.request.text is not None:
        found = {n: msgspec.structs.replace(r, perplexity=_perplexity(bench, programs[n])) for n, r in found.items()}
    best = pareto({name: _qualities(result) for name, result in found.items()})
    return {name: msgspec.structs.replace(each, pareto=name in best) for name, each in found.items()}


def _perplexity(bench: Bench, program: MeasuredProgram) -> float | None:
    """Return how many tokens the program wavers between, on average, where the next one of the text is known."""
    sequence = program.sequence
    if sequence is None or sequence.decode is None or bench.request.text is None:
        return None
    text = checked_tokens(bench.request.text, 2, sequence.vocabulary)
    count = min(token_count(text), sequence.context or MOST_SCORED, MOST_SCORED)
    bench.report(f"perplexity of {program.stem}", 0, 1)
    session = bench.platform.open(
        LaunchRequest(
            bench.platform.runner(None),
            program.pte,
            (),
            threads=bench.request.threads,
            warmup=0,
            disable_features=(),
            log=bench.home / "measured" / "perplexity.log",
            once=True,
            method=sequence.decode.method,
            reading=TokenPlan(text, (), 0, 1, 1),
            score=count,
        )
    )
    done = session.finish()
    if done.surprise is None or not done.scored or done.surprise / done.scored > _MOST_SURPRISE:
        return None
    return math.exp(done.surprise / done.scored)


def _result(bench: Bench, name: str, taken: Mapping[Phase, RoundTurns]) -> FormatResult:
    phases = [_phase(bench, name, phase, turns) for phase, turns in taken.items()]
    held = [memory(Samples([], [], processes=turns.processes[name]))[0] for turns in taken.values()]
    peaks = [each.peak_bytes for each in held if each is not None and each.peak_bytes is not None]
    program = bench.made[name].paths.pte
    return FormatResult(phases, program.stat().st_size, max(peaks, default=None), sme2_share(program, "forward"))


def _phase(bench: Bench, name: str, phase: Phase, taken: RoundTurns) -> TriedPhase:
    base, made, turns = bench.base.name, bench.made[name], taken.turns[name]
    metrics = phase_metrics(phase, summarise(turns))
    assert metrics is not None
    file = experiment_file(made.paths.stem, name, bench.request.threads, "_output")
    read = read_outputs(bench.home / "measured" / phase.in_names / name / file, taken.outputs[name])
    ours = last_logits(read) if read else []
    # All of them answer to the eager model in fp32.
    theirs = expected_logits(bench.made[base].paths.directory, bench.made[base].record, phase)
    how = made.record.dtype, made.record.dtype_cost
    agreement = agreement_of(name, ours, "eager", theirs, *how) if ours and theirs else None
    return TriedPhase(
        metrics,
        None if name == base else compare((base, taken.turns[base]), (name, turns), paired=True),
        agreement,
        kl_divergence(theirs[0], ours[0]) if agreement is not None else None,
    )


def _qualities(result: FormatResult) -> tuple[float, ...]:
    """Return what a format is good at, each the larger the better; what is not known is as bad as can be."""
    rates = [phase.metrics.token_per_sec or 0.0 for phase in result.phases]
    divergences = [phase.kl_divergence for phase in result.phases]
    worst = max((d if d is not None else np.inf for d in divergences), default=np.inf)
    return (*rates, -float(worst), -float(result.peak_bytes if result.peak_bytes is not None else np.inf))


def pareto(qualities: Mapping[str, tuple[float, ...]]) -> set[str]:
    """Return those that no other beats: one that is as good in everything and better in something."""

    def beats(one: tuple[float, ...], other: tuple[float, ...]) -> bool:
        return one != other and all(a >= b for a, b in zip(one, other, strict=True))

    return {name for name, mine in qualities.items() if not any(beats(each, mine) for each in qualities.values())}


def _log_probabilities(logits: Array) -> npt.NDArray[np.float64]:
    values = logits.astype(np.float64)
    shifted = values - values.max(axis=-1, keepdims=True)
    found: npt.NDArray[np.float64] = shifted - np.log(np.exp(shifted).sum(axis=-1, keepdims=True))
    return found


def kl_divergence(reference: Array, ours: Array) -> float | None:
    """Return the KL divergence of our next-token distribution from the reference's, in nats; None for NaN."""
    if reference.shape != ours.shape or not (np.isfinite(reference).all() and np.isfinite(ours).all()):
        return None
    theirs, mine = _log_probabilities(reference), _log_probabilities(ours)
    return max(0.0, float((np.exp(theirs) * (theirs - mine)).sum()))
