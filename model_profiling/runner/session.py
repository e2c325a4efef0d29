"""A paced runner as a process: started with pipes, asked for turns, ended in order or killed."""

import contextlib
import os
import re
import signal
import subprocess
import time
from collections.abc import Sequence
from pathlib import Path
from typing import BinaryIO, TypeVar

import msgspec

from model_profiling.base import files
from model_profiling.base.errors import InputError, KitError, RunError, SetupError
from model_profiling.base.programs import is_ready, start
from model_profiling.runner.protocol import Done, Exit, Features, Predicted, Ran, Ready, TurnEnd, decode_message

MessageT = TypeVar("MessageT", Features, Ready, Ran, TurnEnd, Predicted, Done)
_LONGEST_LINE = 1 << 20
# Which of the runner's exit codes are the user's input, and which this machine; the rest are failed runs.
_INPUT_CODES = {Exit.USAGE, Exit.MODEL_UNREADABLE, Exit.MODEL_INVALID, Exit.INPUTS_WRONG, Exit.UNKNOWN_FEATURE}
_SETUP_CODES = {Exit.FEATURES_UNPROVEN, Exit.THREADS_REFUSED, Exit.BACKEND_MISSING, Exit.OPERATOR_MISSING}
HINTS = {
    Exit.MODEL_UNREADABLE: "Check the path and its permissions.",
    Exit.MODEL_INVALID: "Export the model again; a copy may have been cut short.",
    Exit.BACKEND_MISSING: "Export with the XNNPACK backend, or give a runner_path that has this one.",
    Exit.OPERATOR_MISSING: "Give a runner_path built with these operators, or change the model to do without.",
    Exit.INPUTS_WRONG: "Give one file per input, with the type and shape named.",
    Exit.UNKNOWN_FEATURE: "Use one of the names listed; `sme2-kit doctor` shows what this CPU has.",
    Exit.FEATURES_UNPROVEN: "Use a release that `sme2-kit doctor --upstream` names, or runners of your own.",
    Exit.OUTPUT_UNWRITABLE: "Check free space and permissions, then run again.",
}


class ProcessSession:
    """Keeps the Session protocol over the standard streams of one process."""

    features: Features
    ready: Ready
    preempted = 0
    resident = 0
    life_ns = 0

    def __init__(self, command: list[str], log: Path, timeout_s: float, once: bool) -> None:
        """A runner that runs `once` is not paced: when this returns, it has ended."""
        self._timeout_s = timeout_s
        self._done: Done | None = None
        self._buffer = b""
        self._log_path = log
        self._log: BinaryIO = files.open_log(log)
        # Where this session's words begin: several sessions may share one log.
        self._log_start = log.stat().st_size
        began = time.monotonic_ns()
        try:
            self._process = start(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=self._log)
        except BaseException:
            self._log.close()
            raise
        try:
            self.features = self._expect(Features)
            self.ready = self._expect(Ready)
            if once:
                self._done = self._last_words()
                self.life_ns = time.monotonic_ns() - began
        except BaseException:
            self.close()
            raise

    def run(self, count: int, settle: int = 0) -> list[int]:
        # In one piece, so that the process goes from one to the other without a pause.
        self._say(f"settle {settle}\nrun {count}\n" if settle else f"run {count}\n")
        times = [self._expect(Ran).ns for _ in range(count)]
        turn = self._expect(TurnEnd)
        self.preempted, self.resident = turn.preempted, turn.resident
        return times

    def predict(self, inputs: Sequence[Path]) -> Predicted:
        """Execute once with other inputs; the outputs are then where the request asked for them."""
        self._say("inputs " + "\t".join(map(str, inputs)) + "\n")
        return self._expect(Predicted)

    def finish(self) -> Done:
        if self._done is None:
            self._say("quit\n")
            self._done = self._last_words()
        self.life_ns = self.life_ns or self._done.life_ns
        self.close()
        return self._done

    def _last_words(self) -> Done:
        """Return the last message of a process that then ends in order."""
        done = self._expect(Done)
        try:
            code = self._process.wait(timeout=self._timeout_s)
        except subprocess.TimeoutExpired:
            raise RunError("the runner did not end after its last run", "Run again; see the end of its log.") from None
        if code != 0:
            raise self._failure()
        return done

    def close(self) -> None:
        if self._process.poll() is None:
            self._process.end_all()
            self._process.wait()
        for stream in (self._process.stdin, self._process.stdout):
            if stream is not None:
                with contextlib.suppress(BrokenPipeError):
                    stream.close()
        self._log.close()

    def _say(self, line: str) -> None:
        assert self._process.stdin is not None
        try:
            self._process.stdin.write(line.encode())
            self._process.stdin.flush()
        except BrokenPipeError:
            raise self._failure() from None

    def _expect(self, wanted: type[MessageT]) -> MessageT:
        """Return the next message, which must be of the wanted kind."""
        line = self._line()
        files.append_line(self._log_path, line)
        try:
            message = decode_message(line)
        except msgspec.DecodeError:
            why = f"unexpected output from the runner: {line[:200]!r}"
            raise RunError(why, f"Its log is {self._log_path}.") from None
        if not isinstance(message, wanted):
            why = f"the runner said {type(message).__name__} where {wanted.__name__} was due"
            raise RunError(why, f"Its log is {self._log_path}.")
        return message

    def _line(self) -> bytes:
        """Return the next line of standard output, or the reason why there is none in time."""
        assert self._process.stdout is not None
        deadline = time.monotonic() + self._timeout_s
        while b"\n" not in self._buffer:
            self._await_word(deadline)
            chunk = os.read(self._process.stdout.fileno(), 1 << 16)
            if not chunk:
                raise self._failure()
            self._buffer += chunk
            if len(self._buffer) > _LONGEST_LINE and b"\n" not in chunk:
                why = f"the runner wrote a line of more than {_LONGEST_LINE >> 20} MB: {self._buffer[:80]!r}..."
                raise RunError(why, f"Its log is {self._log_path}.")
        line, _, self._buffer = self._buffer.partition(b"\n")
        return line

    def _await_word(self, deadline: float) -> None:
        """Wait until there is something to read; silence until the deadline is a failure."""
        if not is_ready(self._process.stdout, deadline - time.monotonic()):
            raise RunError(
                f"no output from the runner for {self._timeout_s:g} s",
                "Raise `timeout_s` (--timeout) if one execution takes that long.",
            )

    def _failure(self) -> KitError:
        """Return why the process ended, from its exit code and its last words."""
        try:
            code = self._process.wait(timeout=5)
        except subprocess.TimeoutExpired:
            return RunError("the runner closed its output but did not end", f"Its log is {self._log_path}.")
        return runner_failure(code, self._log_path, self._log_start)


def runner_failure(code: int, log: Path, log_start: int = 0) -> KitError:
    """Return what an exit code of the runner means to the person who started it."""
    error = _explained(code, log, log_start)
    error.runner_exit = code
    return error


def _explained(code: int, log: Path, log_start: int) -> KitError:
    words = files.tail(log, start=log_start)
    if code < 0:
        name = signal.Signals(-code).name if -code in {s.value for s in signal.Signals} else f"signal {-code}"
        why = "was killed, possibly out of memory" if name == "SIGKILL" else "crashed"
        return RunError(f"the runner {why} ({name})", f"Its log is {log}.")
    said = re.findall(r"^error: (.*)$", words, re.MULTILINE)
    message = said[-1] if said else f"the runner ended with exit code {code} and no explanation"
    known = Exit(code) if code in set(Exit) else Exit.OK
    hint = HINTS.get(known, f"Its log is {log}.")
    # The process of another runtime knows better.
    hint = next(iter(re.findall(r"^hint: (.*)$", words, re.MULTILINE)), hint)
    if known in _INPUT_CODES:
        return InputError(message, hint)
    return SetupError(message, hint) if known in _SETUP_CODES else RunError(message, hint)
