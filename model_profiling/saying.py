"""The one place that prints. Nothing that came from a file, a name or a device reaches a terminal as a command to it.

Text may hold colours of our own, made by `paint`; every other control character is escaped, and so are characters that
change the direction of what follows (visible.py).
"""

import contextlib
import os
import re
import sys
from typing import Any, TextIO

from model_profiling.visible import visible

# Nobody else can write our colours: the mark is drawn anew in every process.
_MARK = os.urandom(8).hex()
_OURS = re.compile(f"\ue000{_MARK}([0-9]{{1,2}})\ue001")
# Nothing can be laid out in less.
_NARROWEST = 20
_documents = 0


def paint(code: int, text: str) -> str:
    """`text` in one of the terminal's colours, when it is printed by `say` or `warn`."""
    return f"\ue000{_MARK}{code}\ue001{text}\ue000{_MARK}0\ue001"


def clean(text: str) -> str:
    """Only what can be seen, line breaks, and our own colours."""
    # Splitting by a pattern with one group alternates between what is around it and the group.
    parts = _OURS.split(text)
    return "".join(f"\033[{part}m" if number % 2 else visible(part) for number, part in enumerate(parts))


def say(text: str) -> None:
    """Print a result as it is."""
    sys.stdout.write(clean(text))


def tell(text: str) -> None:
    """Print a result for people: no line is wider than the terminal, save where a single word (a path) is."""
    say(fitted(text, columns()))


def warn(text: str, stream: TextIO | None = None) -> None:
    """Print what is not a result: progress, notes, errors. `stream`: standard error as it was before a redirection."""
    stream = sys.stderr if stream is None else stream
    # Programs that read standard error go by its lines: only a terminal gets them wrapped.
    stream.write(clean(fitted(text, columns(stream)) if stream.isatty() else text))


def columns(stream: TextIO | None = None) -> int | None:
    """How wide standard output is: $COLUMNS, else what the terminal says; None where it is no terminal."""
    stream = sys.stdout if stream is None else stream
    with contextlib.suppress(ValueError):
        if (chosen := int(os.environ.get("COLUMNS") or 0)) > 0:
            return max(chosen, _NARROWEST)
    with contextlib.suppress(ValueError, OSError):
        if stream.isatty():
            # A terminal that does not know its width says 0.
            return max(os.get_terminal_size(stream.fileno()).columns or 80, _NARROWEST)
    return None


def fitted(text: str, width: int | None) -> str:
    """`text` with every line that is wider than `width` broken between words, and what follows indented."""
    if width is None:
        return text
    return "\n".join(part for line in text.split("\n") for part in fitted_line(line, width))


def fitted_line(line: str, width: int, hanging: int = 4) -> list[str]:
    """One line as several that fit; a word that does not has a line of its own."""
    if _length(line) <= width:
        return [line]
    indent = len(line) - len(line.lstrip(" "))
    lines, current = [], ""
    for word in re.findall(r" *[^ ]+", line):
        if current.strip() and _length(current) + _length(word) > width:
            lines.append(current)
            current = " " * (indent + hanging) + word.lstrip(" ")
        else:
            current += word
    return [*lines, current]


def _length(text: str) -> int:
    return len(_OURS.sub("", text))


def documents() -> int:
    """How many JSON documents this process has printed: a reader of standard output expects one."""
    return _documents


def say_json(value: Any) -> None:
    """Print data; what cannot be seen is escaped, as JSON allows, so that nothing of it is lost."""
    import msgspec

    global _documents
    _documents += 1
    sys.stdout.write(visible(msgspec.json.format(msgspec.json.encode(value)).decode()) + "\n")
