"""Zips of others: what may go wrong with one, and how much it may unpack to, by its directory, before anything is."""

import lzma
import zipfile
import zlib
from collections.abc import Iterable
from typing import BinaryIO

# All that zipfile raises for a damaged zip, one that is cut off, or one of a kind that it does not know.
ERRORS = (zipfile.BadZipFile, zlib.error, lzma.LZMAError, EOFError, OSError, ValueError, RuntimeError, OverflowError)
# ExecuTorch and torch pack nothing; real graphs and headers, if someone packs them, shrink to a fortieth, and a bomb
# shrinks to a thousandth.
MAX_RATIO = 60
_RATIO_FROM = 4 << 20


def most_unpacked(size: int) -> int:
    """Return what a zip of so many bytes may unpack to."""
    return max(_RATIO_FROM, MAX_RATIO * size)


def refuse_bomb(members: Iterable[zipfile.ZipInfo], size: int) -> None:
    """Raise a ValueError if the members of a zip of so many bytes would be larger than any that was made to be read."""
    whole = sum(member.file_size for member in members)
    if whole > most_unpacked(size):
        raise ValueError(f"it would unpack to {whole} bytes, more than {MAX_RATIO} times its size")


def refuse_bomb_in(file: BinaryIO, size: int) -> None:
    """Do that for a file that may be a zip; what is none is for others to judge."""
    if zipfile.is_zipfile(file):
        file.seek(0)
        with zipfile.ZipFile(file) as archive:
            refuse_bomb(archive.infolist(), size)
