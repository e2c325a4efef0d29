"""Language models: which weight format to take. Speed of each phase, memory, accuracy and SME2, in one table."""

import contextlib
import math
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import TypeVar

import msgspec
import numpy as np
import numpy.typing as npt

from model_profiling.analysis.accuracy.agreement import (
    Agreement,
    Array,
    agreement_of,
    expected_logits,
    last_logits,
    read_outputs,
)
from model_profiling.analysis.llm.phase_metrics import PhaseMetrics, phase_metrics
from model_profiling.analysis.process.memory import memory
from model_profiling.analysis.sme2.sme2_weights import sme2_share
from model_profiling.analysis.timing.latency import Comparison, compare, summarise
from model_profiling.base import files
from model_profiling.base.dtypes import EXPORTED
from model_profiling.base.errors import InputError
from model_profiling.base.on_progress import OnProgress, say_note
from model_profiling.export.request import ExportResult
from model_profiling.pipeline.group_state import ExperimentOutcome, MeasuredProgram
from model_profiling.pipeline.phase_experiments import Lengths, checked_tokens, token_count
from model_profiling.pipeline.schedule import Counts
from model_profiling.pipeline.side_by_side import maker_of, measure, programs_of
from model_profiling.platforms.base import LaunchRequest, Platform, TokenPlan
from model_profiling.runner.protocol import TensorInfo
from model_profiling.store.made_by import Maker
from model_profiling.store.run_directory import Phase, Process, Samples, Turn, experiment_file

# Of a text, so many tokens tell; and no model with finite numbers is more surprised than this by a token, in nats.
MOST_SCORED = 1024
_MOST_SURPRISE = 700.0
# In the order in which they are tried: what keeps accuracy first. One that is calibrated quantizes more than weights.
FORMATS = tuple(row.name for row in EXPORTED if not row.calibrated)


class TriedPhase(msgspec.Struct, frozen=True):
    """One phase of a variant, held against the baseline's; its logits against eager PyTorch in fp32."""

    metrics: PhaseMetrics
    comparison: Comparison | None = None
    agreement: Agreement | None = None
    # In nats, of the next token's distribution; None where it cannot be told.
    kl_divergence: float | None = None


class FormatResult(msgspec.Struct, frozen=True):
    """What is known of one weight format. `sme2_share` is the part of all linear weights that SME2 has kernels for."""

    phases: list[TriedPhase] = []
    file_bytes: int = 0
    peak_bytes: int | None = None
    sme2_share: float | None = None
    # Of the tokens that the user gave; None without any.
    perplexity: float | None = None
    # No other format is at least as good in everything: speed of each phase, accuracy, memory.
    pareto: bool = False


class RoundTurns(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """What was measured in one round, by variant; `key` is a hash of everything that decides it."""

    key: str
    turns: dict[str, list[Turn]]
    maker: Maker | None = None


class PhaseTurns(RoundTurns, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """What was measured in one phase of a language model."""

    processes: dict[str, list[Process]]
    outputs: dict[str, list[TensorInfo]]


T = TypeVar("T", bound=RoundTurns)


def earlier(path: Path, type_: type[T], key: str, maker: Maker) -> T | None:
    """Return what was measured before, if it is of exactly these programs and made by the same machine and code."""
    with contextlib.suppress(InputError):
        if (found := files.read_json(path, type_, "measurements")).key == key:
            return found
        if why := maker.difference(found.maker):
            say_note(f"existing results are not reused: {why}")
    return None


class FormatTuner:
    """Measures exports of one language model side by side, phase by phase."""

    def __init__(
        self, platform: Platform, home: Path, threads: int, counts: Counts, report: OnProgress, text: Path | None = None
    ) -> None:
        """`text` are token ids to predict, as a .npy of int64: how well that goes is the perplexity."""
        self._platform, self._home, self._text = platform, home, text
        self._threads, self._counts, self._report = threads, counts, report

    def results(
        self,
        made: Mapping[str, ExportResult],
        base: str,
        key: Callable[[dict[str, MeasuredProgram], Maker], str],
        force: bool,
    ) -> dict[str, FormatResult]:
        """Return what there is to know of each export, by its name; `key` tells measurements of other programs."""
        programs, phases = programs_of({name: each.paths.pte for name, each in made.items()}, Lengths())
        if not phases:
            raise InputError("not all variants are language models", "Export the model again; its .pte has changed.")
        maker = maker_of(self._platform, *(program.pte for program in programs.values()))
        taken = {phase: self._taken(phase, programs, key(programs, maker), maker, force) for phase in phases}
        found = {name: self._result(name, made, base, taken) for name in made}
        if self._text is not None:
            found = {n: msgspec.structs.replace(r, perplexity=self._perplexity(programs[n])) for n, r in found.items()}
        best = pareto({name: _qualities(result) for name, result in found.items()})
        return {name: msgspec.structs.replace(each, pareto=name in best) for name, each in found.items()}

    def _perplexity(self, program: MeasuredProgram) -> float | None:
        """Return how many tokens the program wavers between, on average, where the next one of the text is known."""
        sequence = program.sequence
        if sequence is None or sequence.decode is None or self._text is None:
            return None
        text = checked_tokens(self._text, 2, sequence.vocabulary)
        count = min(token_count(text), sequence.context or MOST_SCORED, MOST_SCORED)
        self._report(f"perplexity of {program.stem}", 0, 1)
        session = self._platform.open(
            LaunchRequest(
                self._platform.runner(None),
                program.pte,
                (),
                threads=self._threads,
                warmup=0,
                disable_features=(),
                log=self._home / "measured" / "perplexity.log",
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

    def _taken(
        self, phase: Phase, programs: dict[str, MeasuredProgram], key: str, maker: Maker, force: bool
    ) -> PhaseTurns:
        path = self._home / f"{phase.in_names}.json"
        if not force and (known := earlier(path, PhaseTurns, key, maker)) is not None:
            return known
        place = self._home / "measured" / phase.in_names
        outcomes = measure(
            self._platform, programs, place, self._threads, self._report, counts=self._counts, phase=phase
        )
        found = PhaseTurns(
            key,
            {name: outcome.timed for name, outcome in outcomes.items()},
            maker,
            processes={name: outcome.processes for name, outcome in outcomes.items()},
            outputs={name: _outputs(outcome) for name, outcome in outcomes.items()},
        )
        files.write_json(path, found)
        return found

    def _result(
        self, name: str, made: Mapping[str, ExportResult], base: str, taken: Mapping[Phase, PhaseTurns]
    ) -> FormatResult:
        phases = [self._phase(name, made, base, phase, turns) for phase, turns in taken.items()]
        held = [memory(Samples([], [], processes=turns.processes[name]))[0] for turns in taken.values()]
        peaks = [each.peak_bytes for each in held if each is not None and each.peak_bytes is not None]
        program = made[name].paths.pte
        return FormatResult(phases, program.stat().st_size, max(peaks, default=None), sme2_share(program, "forward"))

    def _phase(
        self, name: str, made: Mapping[str, ExportResult], base: str, phase: Phase, taken: PhaseTurns
    ) -> TriedPhase:
        turns = taken.turns[name]
        metrics = phase_metrics(phase, summarise(turns))
        assert metrics is not None
        ours = self._logits(name, made[name].paths.stem, phase, taken)
        # All of them answer to the eager model in fp32.
        theirs = expected_logits(made[base].paths.directory, made[base].record, phase)
        record = made[name].record
        agreement = (
            agreement_of(name, ours, "eager", theirs, record.dtype, record.dtype_cost) if ours and theirs else None
        )
        return TriedPhase(
            metrics,
            None if name == base else compare((base, taken.turns[base]), (name, turns), paired=True),
            agreement,
            kl_divergence(theirs[0], ours[0]) if agreement is not None else None,
        )

    def _logits(self, name: str, stem: str, phase: Phase, taken: PhaseTurns) -> list[Array]:
        base = self._home / "measured" / phase.in_names / name / experiment_file(stem, name, self._threads, "_output")
        found = read_outputs(base, taken.outputs[name])
        return last_logits(found) if found else []


def _outputs(outcome: ExperimentOutcome) -> list[TensorInfo]:
    return outcome.done.outputs if outcome.done is not None else []


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
