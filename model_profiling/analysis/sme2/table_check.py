"""The record of an operator of which the table of known kernels does not say what was traced."""

from typing import Literal

import msgspec


class TableDifference(msgspec.Struct, frozen=True):
    """It names another kernel (`differs`): the table is then wrong. Or it has no such node, or no answer for this
    ExecuTorch (`unknown`, and `why`)."""

    operator: str
    instruction: int
    traced: str
    table: str
    state: Literal["differs", "unknown"]
    why: str
