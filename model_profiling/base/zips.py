"""Zips of others: what may go wrong with one, and how much it may unpack to, by its directory, before anything is."""

import lzma
import zipfile
import zlib
from collections.abc import Iterable

# All that zipfile raises for a damaged zip, one that is cut off, or one of a kind that it does not know.
ERRORS = (zipfile.BadZipFile, zlib.error, lzma.LZMAError, EOFError, OSError, ValueError, RuntimeError, OverflowError)
# ExecuTorch and torch pack nothing; graphs and headers that someone packs shrink to a fortieth, a bomb to a thousandth.
MAX_RATIO = 60


def most_unpacked(size: int) -> int:
    """Return what a zip of so many bytes may unpack to."""
    return max(4 << 20, MAX_RATIO * size)


def refuse_bomb(members: Iterable[zipfile.ZipInfo], size: int) -> None:
    """Raise a ValueError if the members of a zip of so many bytes would be larger than any that was made to be read."""
    if (whole := sum(member.file_size for member in members)) > most_unpacked(size):
        raise ValueError(f"it would unpack to {whole} bytes, more than {MAX_RATIO} times its size")
