"""What the runner says: its exit codes and the JSON lines on its standard output."""

from enum import IntEnum

import msgspec


class Exit(IntEnum):
    """The runner's exit codes; `build.py` hands the same numbers to the C++ side."""

    OK = 0
    USAGE = 2
    MODEL_UNREADABLE = 10
    MODEL_INVALID = 11
    BACKEND_MISSING = 12
    OPERATOR_MISSING = 13
    INPUTS_WRONG = 14
    UNKNOWN_FEATURE = 15
    FEATURES_UNPROVEN = 16
    THREADS_REFUSED = 17
    EXECUTION_FAILED = 18
    OUTPUT_UNWRITABLE = 19
    LOAD_FAILED = 20


class TensorInfo(msgspec.Struct, frozen=True):
    shape: list[int]
    dtype: str
    nonfinite: int = 0


class Features(msgspec.Struct, frozen=True, tag_field="event", tag="features"):
    """The CPU's features before and after masking. `disabled` went, `absent` was asked for but was not there.

    `unproven` is why they are not known, and cannot be masked; empty if they are.
    """

    arch: str
    proof: str
    present: list[str]
    disabled: list[str]
    absent: list[str]
    active: list[str]
    unproven: str = ""


class Operators(msgspec.Struct, frozen=True, tag_field="event", tag="operators"):
    """The operators that have a kernel: those of the runner and of the libraries that it was told to load."""

    names: list[str]


class Ready(msgspec.Struct, frozen=True, tag_field="event", tag="ready"):
    """The model is loaded and warm.

    Times are durations, but for `first_result_ns`, which counts from when the system started the process. Memory is in
    bytes. 0 is not known, as is -1 of the page cache. Loading is reading the program, then its method, with packing,
    then the inputs.
    """

    method: str
    threads: int
    load_ns: int
    warmup_ns: list[int]
    backends: list[str]
    inputs: list[TensorInfo]
    outputs: list[TensorInfo]
    before_load_ns: int = 0
    program_ns: int = 0
    method_ns: int = 0
    first_result_ns: int = 0
    # Which part of the .pte the system had in its page cache before it was loaded.
    cached_percent: int = -1
    resident_before: int = 0
    resident_loaded: int = 0
    resident_first: int = 0
    # After the last warm-up execution.
    resident_warm: int = 0
    # The part of it that is no file's.
    anonymous_before: int = 0
    anonymous_loaded: int = 0
    anonymous_first: int = 0
    # XNNPACK's load options in force; '' if it does not say.
    workspace: str = ""
    weight_cache: str = ""
    # How many CPUs this process may run on.
    cpus: int = 0
    # Tokens that were read after the load and before the first execution, to fill a cache.
    filled: int = 0
    # What else decides how fast another runtime is (runtimes/), in words.
    settings: dict[str, str] = {}
    # 1: operators' times in the ETDump leave out what the system gave to other processes.
    stops_clock: int = 0


class Ran(msgspec.Struct, frozen=True, tag_field="event", tag="run"):
    """One timed execution."""

    index: int
    ns: int


class TurnEnd(msgspec.Struct, frozen=True, tag_field="event", tag="turn"):
    """The end of one `run N`: NaN and Inf in the last outputs, the runs in which others took the processor, and the
    bytes that are in memory now."""

    runs: int
    nonfinite: int
    preempted: int = 0
    resident: int = 0


class Predicted(msgspec.Struct, frozen=True, tag_field="event", tag="predicted"):
    """The end of one `inputs FILE...`: its outputs are on disk."""

    outputs: list[TensorInfo]


class Done(msgspec.Struct, frozen=True, tag_field="event", tag="done"):
    """Everything asked for is on disk. `peak` is the most bytes that were in memory, `life_ns` the process's age."""

    runs: int
    outputs: list[TensorInfo]
    resident: int = 0
    peak: int = 0
    life_ns: int = 0
    # How many tokens were predicted from those before, and the sum of -log of the probabilities that they got;
    # None if it is no number.
    surprise: float | None = 0.0
    scored: int = 0


Message = Features | Operators | Ready | Ran | TurnEnd | Predicted | Done

_decoder = msgspec.json.Decoder(Message)


def decode_message(line: bytes | str) -> Message:
    """Return what a line says; a line that is no message, in whatever way, is a msgspec.DecodeError."""
    try:
        message: Message = _decoder.decode(line)
    except (UnicodeError, RecursionError) as error:
        raise msgspec.DecodeError(str(error)) from None
    return message
