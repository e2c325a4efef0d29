"""The experiment after the profile: try what may make the baseline's program faster, combine what won, rank."""

import hashlib
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import msgspec
import numpy as np

from model_profiling.analysis.accuracy.agreement import agreement_of, expected_outputs, read_outputs
from model_profiling.analysis.accuracy.numerics import Numerics
from model_profiling.analysis.compare.program_changes import ProgramChanges
from model_profiling.analysis.timing.latency import compare
from model_profiling.base import files
from model_profiling.base.dtypes import dtype_of
from model_profiling.base.errors import KitError
from model_profiling.base.file_memo import program_sha256
from model_profiling.base.on_progress import OnProgress
from model_profiling.export.options import OPTIONS
from model_profiling.export.request import ExportRequest, ExportResult
from model_profiling.formats import pte
from model_profiling.formats.pte.dataflow import data_flow
from model_profiling.pipeline.group_state import MeasuredProgram
from model_profiling.pipeline.pipeline import sample_inputs
from model_profiling.pipeline.schedule import CHOSEN, Counts
from model_profiling.pipeline.side_by_side import maker_of, measure
from model_profiling.platforms.base import Platform
from model_profiling.store.made_by import Maker
from model_profiling.store.run_directory import experiment_file
from model_profiling.tune.formats import FORMATS, FormatResult, FormatTuner, RoundTurns, earlier
from model_profiling.tune.tune_result import (
    MOST_RIVALS,
    MOST_ROUNDS,
    TriedVariant,
    TuneResult,
    TuneStep,
    Turns,
    appended,
    ladder,
    preferred,
    promising,
    rivals,
    sqnr_of,
    step_gains,
    won,
)
from model_profiling.tune.variants import TuneVariant, first_round, second_round
from model_profiling.tune.winner_changes import winner_changes
from model_profiling.tune.worst_layers import best_of_both, variants_of

RESULT = "tune.json"
Exporting = Callable[[ExportRequest], ExportResult]


@dataclass(frozen=True)
class TuneRequest:
    base: ExportRequest
    threads: int = 1
    counts: Counts = CHOSEN
    force: bool = False
    # Of a language model: token ids to predict, as a .npy of int64.
    text: Path | None = None
    # Instead of all that: keep up to so many of the layers that lose most in fp32.
    worst_layers: int = 0
    # Every dtype is tried, and what has less than this signal to noise against eager PyTorch in fp32 cannot win.
    min_sqnr_db: float | None = None


class Tuner:
    """Holds what the rounds share: where things lie, how to export, on what to measure."""

    def __init__(
        self,
        request: TuneRequest,
        platform: Platform,
        exporting: Exporting,
        report: OnProgress,
        command: Callable[[ExportRequest], str],
        numerics: Callable[[ExportRequest, ExportResult], Numerics] | None = None,
    ) -> None:
        """`command` says how the user exports a variant; where it is put is up to them. `numerics` looks at layers."""
        self._request = request
        self._platform = platform
        self._exporting = exporting
        self._report = report
        self._typed = command
        self._numerics = numerics
        self._home = request.base.outdir
        self._made: dict[str, ExportResult] = {}
        self._failures: dict[str, str] = {}
        # The first variant with each program, and others that have the same.
        self._first: dict[str, str] = {}
        self._same: dict[str, str] = {}

    def run(self) -> TuneResult:
        """Run two rounds: single changes, then what won together. Exports and finished rounds are taken from disk."""
        with files.locked(self._home, "tune"):
            base = TuneVariant(self._request.base.dtype, reason="the baseline")
            self._export(base, must=True)
            if self._made[base.name].record.sequence is not None:
                return self._formats(base)
            if self._request.worst_layers:
                return self._worst_layers(base)
            features, floor = set(self._platform.probe().features), self._request.min_sqnr_db
            made = self._made[base.name]
            program = pte.parse_own(made.paths.pte)
            flow = data_flow(program, program.methods[0]) if program is not None else None
            variants = first_round(base, flow, made.record.rewrites or {}, features, floor is not None)
            asked = [replace(base, rewrites=(name,), reason="asked for") for name in self._request.base.rewrites]
            variants += [each for each in asked if each.name not in {variant.name for variant in variants}]
            turns = self._sure(1, base, variants, self._round(1, base, variants))
            tried = self._all_tried(base, variants, turns)
            faster = [v for v in variants if self._won(tried.get(v.name))]
            faster.sort(key=lambda v: tried[v.name].median_ms or 0.0)
            combined = second_round(base, faster, self._matched())
            if combined:
                # All of them again, so that every row of the table was measured side by side.
                variants = [*variants, *combined]
                turns = self._sure(2, base, variants, self._round(2, base, variants))
            return self._decided(base, variants, turns)

    def _sure(self, number: int, base: TuneVariant, variants: list[TuneVariant], turns: Turns) -> Turns:
        """Measure again what looks faster than all that is known to be, and has too few turns to tell."""
        known = {variant.name: variant for variant in variants}
        for again in range(1, 1 + MOST_ROUNDS):
            tried = self._all_tried(base, variants, turns)
            looks = promising(tried.values(), self._won)
            if not looks:
                break
            turns = appended(turns, self._round(10 * number + again, base, [known[name] for name in looks]))
        return turns

    def _decided(self, base: TuneVariant, variants: list[TuneVariant], turns: Turns) -> TuneResult:
        """Measure the best ones again until they can be told apart, beside what lies between them and the baseline."""
        known = {variant.name: variant for variant in [base, *variants]}
        for number in range(3, 4 + MOST_ROUNDS):
            tried = self._all_tried(base, known.values(), turns)
            winners = sorted((n for n, e in tried.items() if self._won(e)), key=lambda n: tried[n].median_ms or 0.0)
            if not winners:
                return self._finished(base, known.values(), tried)
            equal = rivals(turns, winners[0], winners)[:MOST_RIVALS]
            best = preferred([winners[0], *equal], {name: sqnr_of(entry) for name, entry in tried.items()}, known)
            between = {each.name: each for each in ladder(base, known[best]) if each.name not in self._failures}
            unknown = [step for step in step_gains(base, known[best], turns) if step.comparison.high is None]
            if number == 3 + MOST_ROUNDS or not (equal or unknown or set(between) - set(turns)):
                break
            known = between | known
            again = {name: known[name] for name in (winners[0], *equal, *between)}
            turns = appended(turns, self._round(number, base, [*again.values()]))
        as_fast = [name for name in (winners[0], *equal) if name != best]
        return self._finished(base, known.values(), tried, best, step_gains(base, known[best], turns), as_fast)

    def _worst_layers(self, base: TuneVariant) -> TuneResult:
        """Keep ever more of the layers that lose most in fp32, each measured beside the baseline."""
        assert self._numerics is not None
        made = self._made[base.name]
        found = self._numerics(self._asking(base), made)
        variants = variants_of(base, found, self._request.worst_layers)
        tried = [*self._all_tried(base, variants, self._round(1, base, variants)).values()]
        best = best_of_both([(entry.name, entry.median_ms, sqnr_of(entry)) for entry in tried])
        tried = [msgspec.structs.replace(entry, pareto=entry.name in best) for entry in tried]
        return self._finished(base, variants, {entry.name: entry for entry in tried})

    def _formats(self, base: TuneVariant) -> TuneResult:
        """Measure every weight format of a language model, each against the baseline in every phase."""
        others = [TuneVariant(dtype, reason="weight format") for dtype in FORMATS if dtype != base.dtype]
        for variant in others:
            self._export(variant)
        request = self._request
        where = (self._platform, self._home, request.threads, request.counts)
        tuner = FormatTuner(*where, self._report, request.text)
        found = tuner.results(
            self._made,
            base.name,
            lambda programs, maker: round_key(programs, maker, request.threads, request.counts),
            request.force,
        )
        tried = {
            variant.name: self._tried_format(variant, found[variant.name])
            for variant in [base, *others]
            if variant.name in found
        }
        return self._finished(base, others, tried)

    def _tried_format(self, variant: TuneVariant, found: FormatResult) -> TriedVariant:
        last = found.phases[-1]
        return TriedVariant(
            variant.name,
            variant.reason,
            self._typed(self._asking(variant)),
            last.metrics.tpot_ms or last.metrics.ttft_ms,
            last.comparison,
            last.agreement,
            format=found,
            **_asked(variant),
        )

    def _export(self, variant: TuneVariant, must: bool = False) -> None:
        if variant.name in self._made or variant.name in self._failures:
            return
        try:
            made = self._made[variant.name] = self._exporting(self._asking(variant))
            digest = program_sha256(made.paths.pte)
            if (first := self._first.setdefault(digest, variant.name)) != variant.name:
                self._same[variant.name] = first
        except KitError as error:
            if must:
                raise
            self._failures[variant.name] = error.message

    def _asking(self, variant: TuneVariant) -> ExportRequest:
        return replace(
            self._request.base,
            outdir=self._home / variant.name,
            **variant.options,
            calibration=self._request.base.calibration if dtype_of(variant.dtype).calibrated else None,
        )

    def _matched(self) -> dict[str, set[str]]:
        """Return the rewrites that find something in the graph of each dtype that was exported without any."""
        records = [made.record for name, made in self._made.items() if name == made.record.dtype]
        return {record.dtype: {n for n, at in (record.rewrites or {}).items() if at} for record in records}

    def _round(self, number: int, base: TuneVariant, variants: list[TuneVariant]) -> Turns:
        """Export what is missing, and measure it all side by side unless exactly that was measured before."""
        for variant in variants:
            self._export(variant)
        usable = [variant.name for variant in [base, *variants] if variant.name in self._made]
        return self._round_turns(number, [*dict.fromkeys(name for name in usable if name not in self._same)]).turns

    def _all_tried(self, base: TuneVariant, variants: Iterable[TuneVariant], turns: Turns) -> dict[str, TriedVariant]:
        """Return what is known of all variants that were measured."""
        measured = {each.name: each for each in [base, *variants] if each.name in turns}
        return {name: self._tried(variant, base, turns) for name, variant in measured.items()}

    def _won(self, entry: TriedVariant | None) -> bool:
        return won(entry, self._request.min_sqnr_db, self._request.base.dtype)

    def _round_turns(self, number: int, names: list[str]) -> RoundTurns:
        """Return the round's measurements: those on disk if they are of exactly these programs, else new ones."""
        path = self._home / f"round-{number}.json"
        programs, maker, key = self._identified(names)
        threads, counts = self._request.threads, self._request.counts
        if not self._request.force and (known := earlier(path, RoundTurns, key, maker)) is not None:
            return known
        outcomes = measure(self._platform, programs, self._home / "measured", threads, self._report, counts=counts)
        turns = RoundTurns(key, {name: outcome.timed for name, outcome in outcomes.items()}, maker)
        files.write_json(path, turns)
        return turns

    def _tried(self, variant: TuneVariant, base: TuneVariant, taken: Turns) -> TriedVariant:
        record, reference = self._made[variant.name].record, self._made[base.name]
        home, stem = self._home / "measured" / variant.name, self._made[variant.name].paths.stem
        ours = read_outputs(
            home / experiment_file(stem, variant.name, self._request.threads, "_output"), record.outputs
        )
        # Every variant answers to the eager model of the baseline's dtype, not to its own.
        theirs = expected_outputs(reference.paths.directory, reference.record)
        agreement = (
            agreement_of(variant.name, ours, "eager", theirs, variant.dtype, record.dtype_cost)
            if ours and theirs
            else None
        )
        turns = taken[variant.name]
        same = variant.name == base.name
        return TriedVariant(
            variant.name,
            variant.reason,
            self._typed(self._asking(variant)),
            float(np.median([ns for turn in turns for ns in turn.ns])) / 1e6,
            None if same else compare((base.name, taken[base.name]), (variant.name, turns), paired=True),
            agreement,
            **_asked(variant),
        )

    def _finished(
        self,
        base: TuneVariant,
        variants: Iterable[TuneVariant],
        tried: Mapping[str, TriedVariant],
        winner: str | None = None,
        steps: Sequence[TuneStep] = (),
        as_fast: Sequence[str] = (),
    ) -> TuneResult:
        """Return what was tried, and what could not be, by rank; it is written down as well."""
        left: dict[str, dict[str, Any]] = {name: {"failure": why} for name, why in self._failures.items()}
        left |= {name: {"same_as": other} for name, other in self._same.items()}
        failed = [
            TriedVariant(v.name, v.reason, self._typed(self._asking(v)), **left[v.name], **_asked(v))
            for v in variants
            if v.name in left
        ]
        ranked = sorted([*tried.values(), *failed], key=lambda entry: (entry.median_ms is None, entry.median_ms or 0.0))
        if winner is None:
            winner = next((entry.name for entry in ranked if self._won(entry)), "")
        result = TuneResult(
            self._request.base.model,
            base.name,
            self._platform.name,
            ranked,
            winner,
            program=str(self._made[winner or base.name].paths.pte),
            baseline_program=str(self._made[base.name].paths.pte),
            steps=list(steps),
            as_fast=list(as_fast),
            min_sqnr_db=self._request.min_sqnr_db,
            changes=self._changes(base.name, winner) if winner else None,
        )
        files.write_json(self._home / RESULT, result)
        return result

    def _changes(self, base: str, winner: str) -> ProgramChanges | None:
        """Trace the baseline and the winner, in turns."""
        *_, key = self._identified([base, winner])
        models = {name: self._made[name].paths.pte for name in (base, winner)}
        how = (self._request.threads, self._request.counts, self._report)
        return winner_changes(self._platform, models, self._home, key, how, self._request.force)

    def _identified(self, names: Sequence[str]) -> tuple[dict[str, MeasuredProgram], Maker, str]:
        """Return programs as they are measured, what measures them, and the hash of all that decides the result."""
        programs = {name: _program(self._made[name]) for name in names}
        maker = maker_of(self._platform, *(program.pte for program in programs.values()))
        return programs, maker, round_key(programs, maker, self._request.threads, self._request.counts)


def round_key(programs: dict[str, MeasuredProgram], maker: Maker, threads: int, counts: Counts) -> str:
    digest = hashlib.sha256(f"{maker.identity} {threads} {counts}".encode())
    for name, program in sorted(programs.items()):
        digest.update(f"{name} {program_sha256(program.pte)}".encode())
        for path in (*program.inputs, *([program.tokens] if program.tokens is not None else [])):
            digest.update(files.sha256(path).encode())
    return digest.hexdigest()


def _asked(variant: TuneVariant) -> dict[str, Any]:
    return {row.name: row.plain(getattr(variant, row.name)) for row in OPTIONS if hasattr(variant, row.name)}


def _program(made: ExportResult) -> MeasuredProgram:
    return MeasuredProgram(made.paths.pte, made.paths.stem, sample_inputs(made.paths, made.record))
