"""A second sample: other inputs, so that a program that ignores its input, or is wrong for some, is found."""

from collections.abc import Callable
from dataclasses import dataclass, replace

import msgspec
import numpy as np

from model_profiling.analysis.accuracy.agreement import agreement_of
from model_profiling.export.check.verification import VerificationOutcome, execute_program, uncompared
from model_profiling.export.prepare import samples
from model_profiling.export.prepare.preparation import Prepared
from model_profiling.export.publish import write_samples
from model_profiling.store.artifacts import DtypeCost, ExportPaths, ExportRecord

# How much smaller than the change that another input makes an error is to be.
_ROOM_DB = 6.0


@dataclass(frozen=True)
class SecondSample:
    """Other samples beside the program (None: there are none), what the dtype costs of them, and how far apart the
    outputs of both are in decibel."""

    paths: ExportPaths | None = None
    cost: DtypeCost | None = None
    apart_db: float | None = None
    why_none: str = ""


def second_sample(prepared: Prepared, paths: ExportPaths) -> SecondSample:
    """Lay the program beside other samples, if there are some that test it."""
    inputs, outputs, cost = prepared.second
    if not inputs or not outputs:
        return SecondSample()
    first, changed = samples.arrays_of(prepared.outputs), samples.arrays_of(outputs)
    pairs = zip(first, changed, strict=False)
    if all(a.shape == b.shape and np.allclose(a, b, rtol=1e-6, atol=0, equal_nan=True) for a, b in pairs):
        return SecondSample(why_none="the outputs do not depend on the input")
    if prepared.quantized:  # what that costs depends on the input, and is known of the first
        return SecondSample()
    other = ExportPaths(paths.directory / "second" / paths.pte.name)
    other.directory.mkdir()
    other.pte.symlink_to(paths.pte)
    write_samples(replace(prepared, inputs=inputs, outputs=outputs), other)
    between = agreement_of("second", changed, "first", first, "")
    return SecondSample(other, cost, between.sqnr_db if between is not None else None)


def execute_on_both(
    paths: ExportPaths, second: SecondSample, record: ExportRecord, unsure: Callable[[], dict[int, str]] = dict
) -> VerificationOutcome:
    """Execute a program on its samples, and then on the second ones; each is judged by what its dtype costs there."""
    outcome = execute_program(paths, record, unsure)
    if outcome.verification.verdict != "agrees" or second.paths is None:
        return outcome
    own = msgspec.structs.replace(record, files={}, dtype_cost=second.cost)
    again = execute_program(second.paths, own, unsure)
    return again if again.failure is not None else outcome


def tested(outcome: VerificationOutcome, second: SecondSample) -> VerificationOutcome:
    """Return an outcome that agrees as untested where a program that ignores its input would agree as well."""
    error, apart = outcome.verification.sqnr_db, second.apart_db
    if outcome.failure is not None or not outcome.verification.verdict:
        return outcome
    if second.why_none:
        return uncompared(outcome, second.why_none)
    if outcome.verification.verdict == "differs" or error is None or apart is None or error > apart + _ROOM_DB:
        return outcome
    return uncompared(outcome, f"the outputs change with the input by less ({apart:.0f} dB) than the program's error")
