"""Text from files, names and devices on its way to people: nothing in it can command a terminal or change what is read.

Control characters, marks that change the direction of text, and characters without a width are shown as JSON and
JavaScript escape them (`\\u202e`): in a JSON document or a script the data stay the same, elsewhere a person sees them.
"""

import re
from typing import Any

SPACES = "\u00a0\u2000\u2001\u2002\u2003\u2004\u2005\u2006\u2007\u2008\u2009\u200a\u202f\u205f\u3000"
# How much of a text is shown around what is wrong in it.
_NEAR = 200
_DOUBTFUL = re.compile(r"[^ -~\n\t]")


def visible(text: str, only_ascii: bool = False) -> str:
    """Return `text` with all that cannot be seen escaped, but for spaces, tabs and line breaks."""
    if text.isprintable() and not only_ascii:
        return text
    return _DOUBTFUL.sub(_escaped if only_ascii else _shown, text)


def _shown(found: re.Match[str]) -> str:
    # Wide and hard spaces are none of Python's printable characters.
    return found[0] if found[0].isprintable() or found[0] in SPACES else _escaped(found)


def _escaped(found: re.Match[str]) -> str:
    code = ord(found[0])
    # How Python holds a byte of a name that is no text.
    if 0xDC80 <= code <= 0xDCFF:
        return f"\\x{code - 0xDC00:02x}"
    units = found[0].encode("utf-16-be", "surrogatepass").hex()
    return "".join(f"\\u{units[start : start + 4]}" for start in range(0, len(units), 4))


def not_utf8(error: UnicodeEncodeError) -> str:
    """Return a sentence that names what has bytes, or halves of a character, that are no text."""
    return f"{error.object[max(error.start - _NEAR, 0) : error.end + _NEAR]} is not valid UTF-8"


def visible_values(value: Any) -> Any:
    """Return plain data with every text and key in it made visible."""
    if isinstance(value, str):
        return visible(value)
    if isinstance(value, dict):
        return {visible_values(key): visible_values(item) for key, item in value.items()}
    return [visible_values(item) for item in value] if isinstance(value, list | tuple) else value
