"""The one place that prints. Nothing that came from a file, a name or a device reaches a terminal as a command to it.

Text may hold colours of our own, made by `paint`; every other control character is dropped, and so are characters that
change the direction of what follows.
"""

import os
import re
import sys
from typing import Any

# Nobody else can write our colours: the mark is drawn anew in every process.
_MARK = os.urandom(8).hex()
_OURS = re.compile(f"\ue000{_MARK}([0-9]{{1,2}})\ue001")


def paint(code: int, text: str) -> str:
    """`text` in one of the terminal's colours, when it is printed by `say` or `warn`."""
    return f"\ue000{_MARK}{code}\ue001{text}\ue000{_MARK}0\ue001"


def clean(text: str) -> str:
    """Only what can be seen, line breaks, and our own colours."""
    # Splitting by a pattern with one group alternates between what is around it and the group.
    parts = _OURS.split(text)
    return "".join(f"\033[{part}m" if number % 2 else _visible(part) for number, part in enumerate(parts))


def say(text: str) -> None:
    """Print a result."""
    sys.stdout.write(clean(text))


def warn(text: str) -> None:
    """Print what is not a result: progress, notes, errors."""
    sys.stderr.write(clean(text))


def say_json(value: Any) -> None:
    """Print data; what cannot be seen is escaped, as JSON allows, so that nothing of it is lost."""
    import msgspec

    text = msgspec.json.format(msgspec.json.encode(value)).decode()
    sys.stdout.write("".join(c if c == "\n" or c.isprintable() else _escaped(c) for c in text) + "\n")


def _escaped(character: str) -> str:
    units = character.encode("utf-16-be").hex()
    return "".join(f"\\u{units[start : start + 4]}" for start in range(0, len(units), 4))


def _visible(text: str) -> str:
    return text if text.isprintable() else "".join(c for c in text if c == "\n" or c.isprintable())
