"""How to write on a terminal or into a pipe: colours, bars, the width of sentences."""

import os
import sys
import textwrap

import msgspec

from model_profiling.analysis.timing.latency import Comparison
from model_profiling.base.printing import paint, room

_BAR = 24
# Of sentences where the output is no terminal.
_WIDTH = 118


class Style(msgspec.Struct, frozen=True):
    """How to write on this output: colours or not, blocks or ASCII."""

    colour: bool
    blocks: bool
    # What is bold or has the colour of a verdict elsewhere is dim.
    subdued: bool = False

    @classmethod
    def of_stdout(cls) -> "Style":
        tty = sys.stdout.isatty() and os.environ.get("TERM") != "dumb"
        utf8 = (sys.stdout.encoding or "").lower().replace("-", "") == "utf8"
        return cls(colour=tty and not os.environ.get("NO_COLOR"), blocks=tty and utf8)

    def paint(self, code: int, text: str) -> str:
        return paint(code, text) if self.colour and text else text

    def bold(self, text: str) -> str:
        return self.paint(2 if self.subdued else 1, text)

    def dim(self, text: str) -> str:
        return self.paint(2, text)

    def verdict(self, comparison: Comparison, text: str) -> str:
        """Paint a verdict green or red, only where it may be relied on."""
        if comparison.verdict == "no difference seen" or self.subdued:
            return self.dim(text) if self.subdued else text
        return self.paint({"faster": 32, "slower": 31}[comparison.verdict] if comparison.reliable else 33, text)

    def bar(self, share: float, width: int = _BAR) -> str:
        filled = round(max(0.0, min(1.0, share)) * width)
        return ("█" if self.blocks else "#") * filled + ("·" if self.blocks else ".") * (width - filled)


def wrapped(sentence: str, indent: int = 4) -> str:
    """Return a long sentence on several lines, those after the first indented."""
    return f"\n{' ' * indent}".join(textwrap.wrap(sentence, room(indent, _WIDTH), break_long_words=False))
