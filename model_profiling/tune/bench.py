"""What all ways of tuning share: exports variants of one model, measures them in turns, and keeps what they find."""

import contextlib
import hashlib
import time
from collections.abc import Callable, Iterable, Mapping, Sequence, Set
from dataclasses import dataclass, field, replace
from pathlib import Path

import msgspec
import numpy as np

from model_profiling.analysis.accuracy.agreement import agreement_of, expected_outputs, read_outputs
from model_profiling.analysis.compare.comparison import MetricValue
from model_profiling.analysis.compare.program_changes import ProgramChanges, largest
from model_profiling.analysis.run.selection import changes_between, measured_side
from model_profiling.analysis.timing.latency import compare
from model_profiling.base import files
from model_profiling.base.dtypes import dtype_of
from model_profiling.base.errors import InputError, KitError
from model_profiling.base.file_memo import program_sha256
from model_profiling.base.on_progress import OnProgress, say_note
from model_profiling.export.options import OPTIONS
from model_profiling.export.request import ExportRequest, ExportResult
from model_profiling.formats import pte
from model_profiling.formats.pte.dataflow import DataFlow, data_flow
from model_profiling.pipeline.group_state import MeasuredProgram
from model_profiling.pipeline.pipeline import sample_inputs
from model_profiling.pipeline.schedule import CHOSEN, LEAST_LAUNCHES, Counts, default_budget_s
from model_profiling.pipeline.side_by_side import maker_of, measure, programs_of
from model_profiling.platforms.base import Platform
from model_profiling.runner.protocol import TensorInfo
from model_profiling.store.made_by import Maker
from model_profiling.store.run_directory import Phase, Process, Turn, experiment_file, possible
from model_profiling.tune.tune_result import TriedVariant, TuneCost, TuneResult, TuneStep, Turns, won
from model_profiling.tune.variants import TuneVariant

RESULT = "tune.json"
# What tracing the winner and the baseline gets of the budget.
_TRACE_SHARE = 0.11
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


class RoundTurns(msgspec.Struct, frozen=True, forbid_unknown_fields=True, omit_defaults=True):
    """What was measured in one round, by variant; `key` is a hash of everything that decides it. Of a phase of a
    language model its processes and outputs, too."""

    key: str
    turns: dict[str, list[Turn]]
    maker: Maker | None = None
    processes: dict[str, list[Process]] = {}
    outputs: dict[str, list[TensorInfo]] = {}


class _KeptChanges(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """What was traced, under such a key."""

    key: str
    changes: ProgramChanges


def earlier(path: Path, key: str, maker: Maker, names: Set[str]) -> RoundTurns | None:
    """Return what was measured before, if it is of exactly these programs and made by the same machine and code."""
    with contextlib.suppress(InputError):
        if (found := files.read_json(path, RoundTurns, "measurements")).key == key:
            whole = found.turns.keys() == names and {*found.processes} == {*found.outputs} <= names
            whole = whole and all(found.turns.values())
            return found if whole and possible(found.turns.values(), found.processes.values()) else None
        if why := maker.difference(found.maker):
            say_note(f"existing results are not reused: {why}")
    return None


def round_key(programs: Mapping[str, MeasuredProgram], maker: Maker, threads: int, counts: Counts) -> str:
    digest = hashlib.sha256(f"{maker.identity} {threads} {counts}".encode())
    for name, program in sorted(programs.items()):
        digest.update(f"{name} {program_sha256(program.pte)}".encode())
        for path in (*program.inputs, *([program.tokens] if program.tokens is not None else [])):
            digest.update(files.sha256(path).encode())
    return digest.hexdigest()


@dataclass
class Bench:
    """`command` says how the user exports a variant. What was exported is in `made`, by variant; of several with the
    same program `same_as` names the first, which is measured."""

    request: TuneRequest
    platform: Platform
    exporting: Exporting
    report: OnProgress
    command: Callable[[ExportRequest], str]
    made: dict[str, ExportResult] = field(default_factory=dict)
    failures: dict[str, str] = field(default_factory=dict)
    same_as: dict[str, str] = field(default_factory=dict)
    costs: list[TuneCost] = field(default_factory=list)
    rounds: int = 0
    traced: bool = False
    # What the user's metric says of an export, by its name, where that judges.
    metric: Callable[[str], MetricValue] | None = None

    def __post_init__(self) -> None:
        self.base = TuneVariant(self.request.base.dtype, reason="the baseline")
        self.home = self.request.base.outdir

    def export(self, variants: Iterable[TuneVariant]) -> None:
        """Export what is missing; only the baseline must succeed."""
        started, count = time.monotonic(), 0
        for variant in variants:
            if variant.name in self.made or variant.name in self.failures:
                continue
            count += 1
            try:
                made = self.exporting(self.asking(variant))
            except KitError as error:
                if not self.made:
                    raise
                self.failures[variant.name] = error.message
                continue
            digest = program_sha256(made.paths.pte)
            first = (n for n, e in self.made.items() if n not in self.same_as and program_sha256(e.paths.pte) == digest)
            if (same := next(first, None)) is not None:
                self.same_as[variant.name] = same
            self.made[variant.name] = made
        self._cost("export", count, started)

    def asking(self, variant: TuneVariant) -> ExportRequest:
        base = self.made.get(self.base.name)
        return replace(
            self.request.base,
            outdir=self.home / variant.name,
            **variant.options,
            calibration=self.request.base.calibration if dtype_of(variant.dtype).calibrated else None,
            # If the baseline is wrong without, so are the others.
            mend=base is None,
            leave_out=tuple(base.record.request.options.get("leave_out", ())) if base is not None else (),
        )

    def flow(self) -> DataFlow | None:
        """Return the data flow of the baseline's program; None where nobody can read it."""
        program = pte.parse_own(self.made[self.base.name].paths.pte)
        return data_flow(program, program.methods[0]) if program is not None else None

    def matched(self) -> dict[str, set[str]]:
        """Return the rewrites that find something in the graph of each dtype that was exported without any."""
        records = [made.record for name, made in self.made.items() if name == made.record.dtype]
        return {record.dtype: {n for n, at in (record.rewrites or {}).items() if at} for record in records}

    def counts(self, share: float) -> Counts:
        """Return what to measure with a part of the budget; each larger part of the default one has intervals."""
        asked = self.request.counts
        if asked.budget_s is None and share >= _TRACE_SHARE:
            return asked
        return replace(asked, budget_s=share * (asked.budget_s or 3 * default_budget_s()))

    def measure(self, step: str, variants: Iterable[TuneVariant], share: float = 1.0) -> Turns:
        """Export what is missing, and measure it all in turns with the baseline, unless exactly that was before."""
        named = {each.name: each for each in [self.base, *variants]}
        self.export(named.values())
        names = [name for name in named if name in self.made and name not in self.same_as]
        self.rounds += 1
        return self.taken(f"round-{self.rounds}", self.programs(names), share, step=step).turns

    def taken(
        self, place: str, programs: dict[str, MeasuredProgram], share: float, phase: Phase | None = None, step: str = ""
    ) -> RoundTurns:
        """Measure programs in turns, in one of their phases if they have several, unless exactly that was before."""
        path, counts, threads = self.home / f"{place}.json", self.counts(share), self.request.threads
        maker, key = self.identified(programs, counts)
        if not self.request.force and (known := earlier(path, key, maker, programs.keys())) is not None:
            return known
        started, home = time.monotonic(), self.home / "measured" / (phase.in_names if phase else "")
        outcomes = measure(self.platform, programs, home, threads, self.report, counts=counts, phase=phase)
        found = RoundTurns(key, {name: outcome.timed for name, outcome in outcomes.items()}, maker)
        if phase is not None:
            processes = {name: outcome.processes for name, outcome in outcomes.items()}
            outputs = {name: each.done.outputs if each.done is not None else [] for name, each in outcomes.items()}
            found = msgspec.structs.replace(found, processes=processes, outputs=outputs)
        files.write_json(path, found)
        if step:
            self._cost(step, len(programs), started)
        return found

    def _cost(self, step: str, programs: int, started: float) -> None:
        if programs:
            self.costs.append(TuneCost(step, programs, time.monotonic() - started))

    def tried(self, variants: Iterable[TuneVariant], turns: Turns) -> dict[str, TriedVariant]:
        """Return what is known of all variants that were measured, fastest first."""
        found = [self._tried(each, turns) for each in variants if each.name in turns]
        return {entry.name: entry for entry in sorted(found, key=lambda entry: -entry.ratio)}

    def won(self, entry: TriedVariant | None) -> bool:
        return won(entry, self.request.min_sqnr_db, self.request.base.dtype)

    def _tried(self, variant: TuneVariant, turns: Turns) -> TriedVariant:
        made, reference = self.made[variant.name], self.made[self.base.name]
        output = experiment_file(made.paths.stem, variant.name, self.request.threads, "_output")
        ours = read_outputs(self.home / "measured" / variant.name / output, made.record.outputs)
        # Every variant answers to the eager model of the baseline's dtype, not to its own.
        theirs = expected_outputs(reference.paths.directory, reference.record)
        how = variant.dtype, made.record.dtype_cost
        entry = self.entry(variant)
        mine, base = turns[variant.name], self.base.name
        return msgspec.structs.replace(
            entry,
            median_ms=float(np.median([ns for turn in mine for ns in turn.ns])) / 1e6,
            comparison=None if variant.name == base else compare((base, turns[base]), (variant.name, mine), True),
            agreement=agreement_of(variant.name, ours, "eager", theirs, *how) if ours and theirs else None,
            metric=self.metric(variant.name) if self.metric is not None else None,
        )

    def entry(self, variant: TuneVariant) -> TriedVariant:
        """Return what was asked for, and why there is nothing more, if so."""
        asked = {row.name: row.plain(getattr(variant, row.name)) for row in OPTIONS if hasattr(variant, row.name)}
        name = variant.name
        failure, same = self.failures.get(name, ""), self.same_as.get(name, "")
        command = self.command(self.asking(variant))
        return TriedVariant(name, variant.reason, command, failure=failure, same_as=same, **asked)

    def finished(
        self,
        variants: Iterable[TuneVariant],
        tried: Mapping[str, TriedVariant],
        winner: str | None = None,
        steps: Sequence[TuneStep] = (),
        as_fast: Sequence[str] = (),
    ) -> TuneResult:
        """Return what was tried, and what could not be, by rank; it is written down as well."""
        failed = [self.entry(v) for v in variants if v.name in self.failures or v.name in self.same_as]
        if winner is None:
            winner = next((name for name, entry in tried.items() if self.won(entry)), "")
        base = self.base.name
        changes = self.changes(winner) if winner else None
        result = TuneResult(
            self.request.base.model,
            base,
            self.platform.name,
            [*tried.values(), *failed],
            winner,
            program=str(self.made[winner or base].paths.pte),
            baseline_program=str(self.made[base].paths.pte),
            steps=list(steps),
            as_fast=list(as_fast),
            min_sqnr_db=self.request.min_sqnr_db,
            changes=changes,
            costs=self.costs,
        )
        files.write_json(self.home / RESULT, result)
        return result

    def changes(self, winner: str) -> ProgramChanges | None:
        """Trace the baseline and the winner, in turns, of language models in the last phase; return the largest changes
        of lines, as they were found before if the programs are the same. None where they cannot be traced."""
        counts, started = self.counts(_TRACE_SHARE), time.monotonic()
        if counts.launches is None and counts.runs is None:
            counts = replace(counts, launches=LEAST_LAUNCHES)
        path = self.home / "changes.json"
        _, key = self.identified(self.programs([self.base.name, winner]), counts)
        with contextlib.suppress(KitError):
            if self.traced or not self.request.force:
                known = files.read_json(path, _KeptChanges, "changes")
                if known.key == key:
                    return known.changes
        try:
            programs, phases = programs_of({name: self.made[name].paths.pte for name in (self.base.name, winner)})
            phase, threads = phases[-1] if phases else None, self.request.threads
            how = (self.platform, programs, self.home / "traced", threads, self.report)
            traced = measure(*how, counts=counts, phase=phase, timed=False)
            before, after = (measured_side(outcome, name, phase) for name, outcome in traced.items())
            found = largest(changes_between(before, after))
        except KitError as error:
            say_note(f"what changed is not known: {error.message}")
            return None
        files.write_json(path, _KeptChanges(key, found))
        self._cost("trace", 2, started)
        self.traced = True
        return found

    def programs(self, names: Sequence[str]) -> dict[str, MeasuredProgram]:
        """Return exports as they are measured."""
        made = {name: self.made[name] for name in names}
        return {
            name: MeasuredProgram(each.paths.pte, each.paths.stem, sample_inputs(each.paths, each.record))
            for name, each in made.items()
        }

    def identified(self, programs: Mapping[str, MeasuredProgram], counts: Counts) -> tuple[Maker, str]:
        """Return what measures programs, and the hash of all that decides the result."""
        maker = maker_of(self.platform, *(program.pte for program in programs.values()))
        return maker, round_key(programs, maker, self.request.threads, counts)
