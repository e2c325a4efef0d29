"""Execute an exported program once with the kit's runner, and hold its outputs against the eager model's.

Needs neither torch nor executorch: a program on disk is verified from its files.
"""

import contextlib
import os
import re
import signal
from collections.abc import Callable
from dataclasses import dataclass, replace

import msgspec
import numpy as np

from model_profiling.analysis.accuracy.agreement import (
    Agreement,
    Array,
    agreement_of,
    expected_outputs,
    read_outputs,
    suspicious,
    without,
)
from model_profiling.base import files
from model_profiling.base.errors import KitError, SetupError
from model_profiling.platforms.base import LaunchRequest
from model_profiling.platforms.operator_libraries import missing_operators
from model_profiling.platforms.process_platform import LocalPlatform
from model_profiling.runner.build import Build, build_runner
from model_profiling.runner.protocol import Exit
from model_profiling.runner.sdk import installed_libraries
from model_profiling.store.artifacts import ExportPaths, ExportRecord, Verification

NOT_ASKED = "--no-verify"
# Loading and one execution; a program that takes longer is left unverified.
_TIMEOUT_S = 300.0
# Ends of the runner that say nothing of the program.
_NOT_THE_PROGRAM = {
    Exit.USAGE,
    Exit.MODEL_UNREADABLE,
    Exit.INPUTS_WRONG,
    Exit.UNKNOWN_FEATURE,
    Exit.FEATURES_UNPROVEN,
    Exit.THREADS_REFUSED,
    Exit.OUTPUT_UNWRITABLE,
    -signal.SIGKILL,
    -signal.SIGTERM,
    -signal.SIGINT,
}


@dataclass(frozen=True)
class Failure:
    """How a program fails in the runner; `what` continues `the program`, `said` are the runner's own words."""

    what: str
    said: str = ""
    log: str = ""
    # Operators that the runner does not have; the kernel that failed, and its instruction.
    missing: tuple[str, ...] = ()
    operator: str = ""
    instruction: int | None = None
    # It runs, and its outputs are not those of the model.
    wrong: bool = False

    def __str__(self) -> str:
        return f"{self.what}: {self.said}" if self.said else self.what


@dataclass(frozen=True)
class VerificationOutcome:
    """What came of one execution; `remarks` are for the user."""

    verification: Verification
    failure: Failure | None = None
    remarks: tuple[str, ...] = ()


def unverified(reason: str) -> VerificationOutcome:
    return VerificationOutcome(Verification("not verified", reason))


def uncompared(outcome: VerificationOutcome, why: str) -> VerificationOutcome:
    """Return the outcome of a program that ran and whose outputs cannot be compared."""
    known = outcome.verification
    verification = Verification("verified", why, known.runner, libraries=known.libraries)
    return VerificationOutcome(verification, None, (f"outputs not compared: {why}",))


def execute_program(
    paths: ExportPaths, record: ExportRecord, not_comparable: Callable[[], dict[int, str]] = dict
) -> VerificationOutcome:
    """Load a program, execute it on its sample inputs, and compare its outputs; where they differ, without those that
    are `not_comparable`."""
    try:
        build = build_runner()
        platform = LocalPlatform()
        runner = platform.runner(None)
    except SetupError as error:
        return unverified(f"no runner: {error.message}")
    with files.scratch_directory("sme2-kit-verify-") as scratch:
        log, base = scratch / "run.log", scratch / "output"
        inputs = tuple(paths.directory / tensor.file for tensor in record.inputs)
        request = LaunchRequest(
            runner,
            paths.pte,
            inputs,
            threads=min(4, os.cpu_count() or 1),
            warmup=0,
            disable_features=(),
            log=log,
            output_base=base,
            timeout_s=_TIMEOUT_S,
            once=True,
        )
        try:
            with contextlib.closing(platform.open(request)) as session:
                done = session.finish()
        except KitError as error:
            return _failed(error, build, paths, files.tail(log, 1 << 20))
        ours = read_outputs(base, done.outputs)
        found = _compared(ours, len(done.outputs), paths, record, build.target.name, not_comparable)
    return replace(found, verification=msgspec.structs.replace(found.verification, libraries=installed_libraries()))


def _failed(error: KitError, build: Build, paths: ExportPaths, log: str) -> VerificationOutcome:
    """Tell what is the program's fault from what is not."""
    code = error.runner_exit
    if code is None or code in _NOT_THE_PROGRAM:
        return unverified(f"it could not be executed here: {error.message}")
    verification = Verification("not verified", error.message, build.target.name)
    if code == Exit.OPERATOR_MISSING:
        missing = missing_operators(build, paths.pte)
        failure = Failure("needs operators that the runner does not have", ", ".join(missing), log, tuple(missing))
        return VerificationOutcome(verification, failure if missing else Failure("does not load", error.message, log))
    words = re.findall(r"^E \[[^\]]*\] (.*)$", log, re.MULTILINE)
    said = words[0].strip().rstrip(":. ") if words else ""
    if code < 0:
        return VerificationOutcome(verification, Failure("crashes", error.message, log))
    kernel = re.search(r"KernelCall failed at instruction \d+:(\d+) in operator ([\w:.]+)", log)
    if code == Exit.EXECUTION_FAILED:
        place = (kernel[2].rstrip(":"), int(kernel[1])) if kernel else ("", None)
        failure = Failure("fails when it is executed", said or error.message, log, (), *place)
    else:
        failure = Failure("does not load", said or error.message, log)
    return VerificationOutcome(verification, failure)


def _compared(
    ours: list[Array],
    given: int,
    paths: ExportPaths,
    record: ExportRecord,
    runner: str,
    not_comparable: Callable[[], dict[int, str]],
) -> VerificationOutcome:
    """Compare as a run does; what differs more than the dtype explains is a remark, and what is wrong a failure."""
    theirs = expected_outputs(paths.directory, record)
    if len(ours) != given or len(theirs) != given or not given:
        reason = f"{given} outputs, {len(theirs)} of eager" if len(theirs) != given else "a dtype that is not compared"
        return VerificationOutcome(Verification("verified", reason, runner))
    if [array.shape for array in ours] != [array.shape for array in theirs]:
        shapes, expected = (" ".join(str(list(array.shape)) for array in arrays) for arrays in (ours, theirs))
        remark = f"the program's outputs have the shapes {shapes}, and those of eager PyTorch {expected}"
        return VerificationOutcome(Verification("verified", remark, runner, "differs"), None, (remark,))
    remarks = [f"{each}, and eager PyTorch's has not" for each in suspicious(ours) if each not in suspicious(theirs)]
    # Where eager itself gives no numbers there is nothing to compare.
    finite = [np.isfinite(array) for array in theirs]
    if not any(part.any() for part in finite):
        return VerificationOutcome(Verification("verified", "eager PyTorch gives NaN or infinite values", runner))
    ours, theirs = ([array[part] for array, part in zip(arrays, finite, strict=True)] for arrays in (ours, theirs))
    found = _agreement(ours, theirs, record)
    unsure = not_comparable() if found.verdict == "differs" else {}
    if len(unsure) == given:
        return uncompared(VerificationOutcome(Verification("verified", runner=runner)), unsure[0])
    if unsure:
        remarks += [f"output {index} not compared: {why}" for index, why in unsure.items()]
        found = _agreement(without(unsure, ours, theirs), theirs, record)
    numbers = (found.sqnr_db, found.max_abs_error, found.max_abs_reference)
    sqnr = f"SQNR {_decibel(found.sqnr_db)}, " if found.sqnr_db is not None else ""
    said, failure = f"{sqnr}max error {found.error_of_reference}", None
    if found.verdict == "differs":
        alone = f"; {record.dtype} alone costs {_decibel(found.dtype_sqnr_db)}" if found.dtype_sqnr_db else ""
        remarks.insert(0, f"the program's outputs differ from eager PyTorch's: {said}{alone}")
    if found.wrong:
        failure = Failure(f"computes something else than the eager model in {record.dtype}", said, wrong=True)
    verification = Verification("verified", "", runner, found.verdict, *numbers)
    more = {"output": found.output, "wrong": found.wrong, "not_compared": [*unsure]}
    return VerificationOutcome(msgspec.structs.replace(verification, **more), failure, tuple(remarks))


def _agreement(ours: list[Array], theirs: list[Array], record: ExportRecord) -> Agreement:
    found = agreement_of("program", ours, "eager", theirs, record.dtype, record.dtype_cost, record.output_names)
    assert found is not None
    return found


def _decibel(value: float) -> str:
    return f"{value:.1f} dB"
