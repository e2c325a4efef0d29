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


class Tensor(msgspec.Struct, frozen=True):
    shape: list[int]
    dtype: str
    nonfinite: int = 0


class Features(msgspec.Struct, frozen=True, tag_field="event", tag="features"):
    """The CPU's features before and after masking. `disabled` went, `absent` was asked for but was not there."""

    arch: str
    proof: str
    present: list[str]
    disabled: list[str]
    absent: list[str]
    active: list[str]


class Ready(msgspec.Struct, frozen=True, tag_field="event", tag="ready"):
    """The model is loaded and warm."""

    method: str
    threads: int
    load_ns: int
    warmup_ns: list[int]
    backends: list[str]
    inputs: list[Tensor]
    outputs: list[Tensor]


class Ran(msgspec.Struct, frozen=True, tag_field="event", tag="run"):
    """One timed execution."""

    index: int
    ns: int


class Turn(msgspec.Struct, frozen=True, tag_field="event", tag="turn"):
    """The end of one `run N`: NaN and Inf in the last outputs, and the runs in which others took the processor."""

    runs: int
    nonfinite: int
    preempted: int = 0


class Done(msgspec.Struct, frozen=True, tag_field="event", tag="done"):
    """Everything asked for is on disk."""

    runs: int
    etdump_bytes: int
    outputs: list[Tensor]


Message = Features | Ready | Ran | Turn | Done

_decoder = msgspec.json.Decoder(Message)


def decode_message(line: bytes | str) -> Message:
    """What a line says; a line that is no message, in whatever way, is a msgspec.DecodeError."""
    try:
        message: Message = _decoder.decode(line)
    except (UnicodeError, RecursionError) as error:
        raise msgspec.DecodeError(str(error)) from None
    return message
