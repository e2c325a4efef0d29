"""The one place that prints. Nothing that came from a file, a name or a device reaches a terminal as a command to it.

Text may hold colours of our own, made by `paint`; every other control character is escaped, and so are characters that
change the direction of what follows (visible.py).
"""

import contextlib
import os
import re
import sys
from collections.abc import Iterator
from typing import Any, TextIO

from model_profiling.base.errors import OutputError, UnreadError
from model_profiling.base.visible import visible

# Nobody else can write our colours: the mark is drawn anew in every process.
_MARK = os.urandom(8).hex()
_OURS = re.compile(f"\ue000{_MARK}([0-9]{{1,2}})\ue001")
# Nothing can be laid out in less, and nobody reads more.
_NARROWEST, _WIDEST = 20, 10_000
_documents = 0
# To the start of the line, with nothing left on it.
_ERASE = "\r\033[K"
_live = False


def paint(code: int, text: str) -> str:
    """Return `text` in one of the terminal's colours, when it is printed by `say` or `warn`."""
    return f"\ue000{_MARK}{code}\ue001{text}\ue000{_MARK}0\ue001"


def clean(text: str) -> str:
    """Return text with only visible characters, line breaks, and our own colours."""
    # Splitting by a pattern with one group alternates between what is around it and the group.
    parts = _OURS.split(text)
    return "".join(f"\033[{part}m" if number % 2 else visible(part) for number, part in enumerate(parts))


def say(text: str) -> None:
    """Print a result as it is."""
    with _writing():
        sys.stdout.write(_erasing(sys.stdout) + clean(text))


def flush() -> None:
    with _writing():
        sys.stdout.flush()


@contextlib.contextmanager
def _writing() -> Iterator[None]:
    try:
        yield
    except BrokenPipeError:
        raise UnreadError("nobody reads standard output any more") from None
    except OSError as error:
        raise OutputError(
            f"standard output cannot be written: {error.strerror}", "Check where it is redirected to, and space there."
        ) from None


def tell(text: str) -> None:
    """Print a result for people: no line is wider than the terminal, save where a single word (a path) is."""
    say(fitted(text, columns()))


def warn(text: str, stream: TextIO | None = None) -> None:
    """Print what is not a result: progress, notes, errors. `stream`: standard error as it was before a redirection."""
    stream = sys.stderr if stream is None else stream
    # A result is worth having even if nothing can be said about it.
    with contextlib.suppress(OSError):
        # Programs that read standard error go by its lines: only a terminal gets them wrapped.
        stream.write(_erasing(stream) + clean(fitted(text, columns(stream)) if stream.isatty() else text))
        stream.flush()


def show_live(text: str, stream: TextIO) -> None:
    """Show one line on a terminal in place of the last one, which anything that is printed erases; '' is none."""
    global _live
    with contextlib.suppress(OSError):
        # In one write, as another thread may print; and what is wider than it seems is cut, not wrapped.
        stream.write(f"{_ERASE}\033[?7l{visible(' '.join(text.split()))}\033[?7h" if text else _erasing(stream))
        stream.flush()
    _live = bool(text)


def _erasing(stream: TextIO) -> str:
    """Return what removes the live line, if there is one, before something else is written."""
    return _ERASE if _live and stream.isatty() else ""


def columns(stream: TextIO | None = None) -> int | None:
    """Return how wide standard output is: $COLUMNS, else what the terminal says; None where it is no terminal."""
    stream = sys.stdout if stream is None else stream
    width = 0
    with contextlib.suppress(ValueError):
        width = int(os.environ.get("COLUMNS") or 0)
    with contextlib.suppress(ValueError, OSError):
        if width <= 0 and stream.isatty():
            # A terminal that does not know its width says 0.
            width = os.get_terminal_size(stream.fileno()).columns or 80
    return min(max(width, _NARROWEST), _WIDEST) if width > 0 else None


def room(indent: int, otherwise: int) -> int:
    """Return how wide text may be that begins at `indent`; `otherwise` is the width where there is no terminal."""
    return max((columns() or otherwise) - indent, _NARROWEST)


def fitted(text: str, width: int | None) -> str:
    """Return `text` with every line that is wider than `width` broken between words, and what follows indented."""
    if width is None:
        return text
    return "\n".join(part for line in text.split("\n") for part in fitted_line(line, width))


def fitted_line(line: str, width: int, hanging: int = 4) -> list[str]:
    """Return one line as several that fit; a word that does not has a line of its own."""
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
    """Return how many JSON documents this process has printed: a reader of standard output expects one."""
    return _documents


def say_json(value: Any) -> None:
    """Print data; what cannot be seen is escaped, as JSON allows, so that nothing of it is lost."""
    import msgspec

    global _documents
    _documents += 1
    try:
        text = msgspec.json.format(msgspec.json.encode(value)).decode()
    except UnicodeEncodeError:  # the name of a file that is no text
        import json

        text = json.dumps(msgspec.to_builtins(value), indent=2)
    # What the stream cannot encode is escaped here: its own way to do so is not that of JSON.
    unicode = (sys.stdout.encoding or "utf-8").lower().startswith("utf")
    with _writing():
        sys.stdout.write(visible(text, only_ascii=not unicode) + "\n")
