"""The command to type next, so that it can be copied whatever the width of the terminal."""

import shlex
from collections.abc import Iterable

from model_profiling.base.printing import columns

_LABEL = "  next:      "


def next_command(*words: object) -> str:
    """Return `next: sme2-kit …`; where that is too wide, the shell's backslash ends each line."""
    width = columns()
    parts = [shlex.quote(str(word)) for word in ("sme2-kit", *words)]
    return "\n".join(_broken(parts, width)) + "\n" if width else f"{_LABEL}{' '.join(parts)}\n"


def _broken(parts: Iterable[str], width: int) -> list[str]:
    lines = [_LABEL.rstrip(" ")]
    for part in parts:
        # Room for " \\" behind it.
        if len(lines[-1]) + 1 + len(part) + 2 > width and lines[-1] != _LABEL.rstrip(" "):
            lines[-1] += " \\"
            lines.append(f"{'':<6}{part}")
        else:
            lines[-1] = f"{lines[-1]:<{len(_LABEL) - 1}} {part}" if len(lines) == 1 else f"{lines[-1]} {part}"
    return lines
