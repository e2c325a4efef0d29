"""Turns the strings of a dump, which repeats each operator's name in every execution, into codes and a short list."""

from typing import Any

import numpy as np
import numpy.typing as npt

from model_profiling.formats.etdump.distinct import first_equal
from model_profiling.formats.etdump.flatbuffer import Positions, Tables, Words

Codes = npt.NDArray[np.int32]

# Longer strings are rare and compared one by one: gathering them as rows would make a matrix as wide as the longest.
_LONGEST_ROW = 64
# Names are remembered as the file has them, too, up to as many as a large model's; more would only take memory.
_MOST_KNOWN_ROWS = 1 << 18


class StringPool:
    """The distinct strings seen so far; code 0 is the empty string, which also stands for an absent one."""

    def __init__(self, words: Words) -> None:
        self.strings: list[str] = [""]
        self._codes: dict[str, int] = {"": 0}
        self._known_rows: dict[bytes, int] = {}
        self._words = words
        self._bytes = words.words.view(np.uint8)
        # Strings do not overlap in a sound file, so together they fit in it; twice is room for writers that share.
        self._budget = 2 * words.size

    def code(self, text: str) -> int:
        """Return the code of one string, which is new or known."""
        code = self._codes.setdefault(text, len(self.strings))
        if code == len(self.strings):
            self.strings.append(text)
        return code

    def codes(self, tables: Tables, *fields: int) -> list[Codes]:
        """Return the codes of string fields of every table; all of them are looked at together."""
        found = [tables.where(field) for field in fields]
        interned = self._intern(self._words.follow(np.concatenate([at for _, at in found]), "a string"))
        columns = []
        for rows, at in found:
            column = np.zeros(len(tables.at), np.int32)
            column[rows], interned = interned[: len(at)], interned[len(at) :]
            columns.append(column)
        return columns

    def _intern(self, strings: Positions) -> Codes:
        if not len(strings):
            return np.zeros(0, np.int32)
        lengths = self._words.lengths(strings, 1, "a string", terminated=True)
        total = int(lengths.sum())
        if total > self._budget - self._words.size:
            # Many events may share a few long strings: look at each place once.
            places, inverse = np.unique(strings, return_inverse=True)
            if len(places) < len(strings):
                return self._intern(places).take(inverse.reshape(-1))
        self._budget -= total
        if self._budget < 0:
            raise self._words.error("its strings overlap", int(strings[0]))
        # A row is the length, the bytes and their terminating zero.
        widths = np.minimum((lengths >> 2) + 2, _LONGEST_ROW + 1).astype(np.int8)
        codes = np.zeros(len(strings), np.int32)
        for width in np.flatnonzero(np.bincount(widths)).tolist():
            members = np.flatnonzero(widths == width)
            at = strings.take(members)
            codes[members] = self._codes_of_rows(at, width) if width <= _LONGEST_ROW else self._codes_of_long(at)
        return codes

    def _codes_of_long(self, strings: Positions) -> list[int]:
        lengths = self._words.words.take(strings).tolist()
        starts = (strings * 4 + 4).tolist()
        return [
            self.code(_text(self._bytes[start : start + length].tobytes()))
            for start, length in zip(starts, lengths, strict=True)
        ]

    def _codes_of_rows(self, strings: Positions, width: int) -> Codes:
        """Return the codes of strings that fill equally many words, each distinct one looked up once.

        The padding after a string is compared too. Where it is not the zeros every writer puts there, equal strings
        look different here and still get one code, since `code` compares text.
        """
        rows = self._rows(strings, width)
        first = first_equal(rows.view("<u4").reshape(len(rows), width))
        shown = np.flatnonzero(first == np.arange(len(first)))
        codes = np.zeros(len(rows), np.int32)
        distinct = rows[shown].tolist()
        # The next slice of the dump mostly shows the same names.
        found = map(self._known_rows.get, distinct)
        codes[shown] = [
            self._code_of_row(row) if code is None else code for row, code in zip(distinct, found, strict=True)
        ]
        return codes.take(first)

    def _code_of_row(self, row: bytes) -> int:
        code = self.code(_text(row[4 : 4 + int.from_bytes(row[:4], "little")]))
        if len(self._known_rows) < _MOST_KNOWN_ROWS:
            self._known_rows[row] = code
        return code

    def _rows(self, at: Positions, width: int) -> npt.NDArray[np.void]:
        """Copy `width` words from each position: one opaque item each, which numpy moves faster than a slice."""
        words = self._words
        windows: npt.NDArray[Any] = np.ndarray((words.count - width + 1,), f"V{4 * width}", words.words, 0, (4,))
        result: npt.NDArray[np.void] = windows[at]
        return result


def _text(data: bytes) -> str:
    return data.decode("utf-8", "replace")
