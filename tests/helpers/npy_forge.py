"""Headers of .npy files that nobody's program writes, and what is left of good ones after damage."""

import random

from tests.helpers import fuzz_mutations as mutations

GOOD = "{'descr': '<f4', 'fortran_order': False, 'shape': (1, 2, 6, 6), }"
_SHAPES = (
    "(True,)", "(" + "-" * 3000 + "1,)", "", "(", "()", "(,)", "(1 3)", "(1, 2, 6, -4)", "(1, 2, 6, 6.0)",
    "(0x1, 2, 6, 6)", "(1, 2, 6, 6" + "0" * 30 + ")", "(" * 4000 + ")" * 4000, "(1,) * 4", "[1, 3, 4, 4]", "(72)",
    "None", "(1, 2, 6, 6", "(" + "1, " * 3000 + ")",
    "(\u0663, 2, 6, 6)", "(1e0, 2, 6, 6)", "'(1, 2, 6, 6)'",
    "(99999999999999999999,)", "(1,, 3)", "(0, 999999999999999999)", "(1_0, 3)", "(1, 2, 6, 6)(",
    "__import__('os')", "{}",
)  # fmt: skip
_DESCRS = (
    "True", "'|O'", "'O'", "''", "'", "'<f0'", "'|V0'", "'<f4", "[('a', '<f4')]", "'<f4, <f4'", "'<f99999999999'",
    "'|S999'", "'x'", "'" + "<" * 5000 + "'", "'M8[s]'", "None", "'<f4'*9",
)  # fmt: skip
_ORDERS = ("", "0", "'False'", "Falsey", "None", "not True", "-" * 3000 + "0", "F", "(False)")
_WHOLE = (
    "", "{", "}", "{}", "[]", " " * 9000, "{" * 9000, GOOD + GOOD, GOOD[:-1], GOOD[1:], GOOD + "x", "\0" * 100,
    GOOD.replace("'shape'", "'descr'"), GOOD.replace(", }", ", 'x': 1}"), GOOD.replace(",", ""), GOOD.replace("'", '"'),
    GOOD.replace("}", "'shape': (1, 2, 6, 6), }"), GOOD + " " * 60_000,
)  # fmt: skip
HOSTILE = [
    *(GOOD.replace("(1, 2, 6, 6)", shape) for shape in _SHAPES),
    *(GOOD.replace("'<f4'", descr) for descr in _DESCRS),
    *(GOOD.replace("False", order) for order in _ORDERS),
    *_WHOLE,
]


def npy(header: str, values: bytes = b"\0" * 288, version: int = 1) -> bytes:
    """A file with this header, and values of it."""
    text = header.encode("utf-8")
    return b"\x93NUMPY" + bytes([version, 0]) + len(text).to_bytes(2 if version == 1 else 4, "little") + text + values


def damaged(source: random.Random) -> bytes:
    """A file that is damaged anywhere, or whose header alone is, by words that mean something to a parser."""
    if source.random() < 0.3:
        whole = npy(GOOD)
        return mutations.binary(whole, [whole], source)
    header = list(GOOD)
    for _ in range(source.choice((1, 1, 2, 4))):
        at = source.randrange(len(header))
        words = ("", " ", "'", "(", ")", ",", ":", "{", "}", "-", "9", "True", "\t", "\xe9", header[at] * 2)
        header[at : at + source.choice((0, 1, 1, 9))] = source.choice(words)
    return npy("".join(header), version=source.choice((1, 1, 1, 2, 3)))
