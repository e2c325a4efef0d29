"""Damage for files: to any bytes, to lines of text, to values at random places of JSON, to members of a zip."""

import io
import json
import random
import struct
import zipfile
from collections.abc import Callable, Sequence
from typing import Any

Mutator = Callable[[bytes, Sequence[bytes], random.Random], bytes]

_WORDS = (0, 1, 3, 4, 5, 7, 8, 0x7F, 0xFF, 0x7FFF, 0xFFFF, 0x7FFFFFFF, 0x80000000, 0xFFFFFFFC, 0xFFFFFFFF)
# What people, programs and attackers write where something else was due.
_NAMES = (
    "", " ", "x", "..", "../..", "/", "\0", "\x1b[31m", "a\nb", "\ud800", "\U0001f600", "x" * 300, "x" * 5000, "0",
)  # fmt: skip
_VALUES: tuple[Any, ...] = (
    None, True, False, 0, 1, -1, 2**31, -(2**31), 2**63, 2**64, 10**30, 10**400, 0.5, -0.0, 1e308, -1e308, 5e-324,
    float("inf"), float("nan"), *_NAMES, "1e999", "NaN", [], {}, [[]], [0], [-1], [2**40], [2**40, 2**40], {"": None},
    [""], [None] * 50, [[[[[[[[]]]]]]]], {"a": {"b": {"c": []}}},
)  # fmt: skip
_TEXT = (
    b"", b"-", b"-1", b"0", b"1e999", b"\xff\xfe", b"\xc2\xb2", b"\xd9\xa3", b"9" * 5000, b"\0", b"\r", b"\n", b"\t",
    b"nan", b"inf", b"1.2.3", b"...", b"|", b"[", b"]", b"{", b'"', b"," * 40, b"[" * 3000, b" " * 3000,
)  # fmt: skip


def binary(data: bytes, others: Sequence[bytes], source: random.Random) -> bytes:
    """One to sixteen damages of bits, words, lengths and pieces."""
    damaged = bytearray(data)
    for _ in range(source.choice((1, 1, 1, 2, 4, 16))):
        _damage(damaged, others, source)
    return bytes(damaged)


def _damage(data: bytearray, others: Sequence[bytes], source: random.Random) -> None:
    """Change `data` in one of the ways files get damaged, or an attacker would choose."""
    if len(data) < 16:
        return
    at = source.randrange(len(data))
    word = at & ~3
    kind = source.randrange(8)
    if kind == 0:
        data[at] ^= 1 << source.randrange(8)
    elif kind == 1:
        del data[at:]
    elif kind == 2:
        other = source.choice(others)
        start = source.randrange(max(1, len(other))) & ~3
        data[word : word + 64] = other[start : start + source.randrange(4, 64)]
    elif kind == 3 and word + 4 <= len(data):
        struct.pack_into("<I", data, word, source.choice(_WORDS))
    elif kind == 4 and word + 4 <= len(data):
        struct.pack_into("<I", data, word, source.randrange(len(data) + 8))
    elif kind == 5 and word + 4 <= len(data):
        # A little more or less than it was: the neighbouring field, one element too many.
        (value,) = struct.unpack_from("<I", data, word)
        struct.pack_into("<I", data, word, (value + source.choice((-8, -4, -1, 1, 4, 8))) & 0xFFFFFFFF)
    elif kind == 6:
        data[at : at + 2] = struct.pack("<H", source.choice((0, 2, 4, 6, 0xFFFE, 0xFFFF, source.randrange(64))))
    else:
        del data[word : word + source.randrange(1, 64)]


def text(data: bytes, others: Sequence[bytes], source: random.Random) -> bytes:
    """Words and lines swapped, repeated, left out, and replaced by what is no number and no name."""
    if source.random() < 0.2:
        return binary(data, others, source)
    lines = data.split(b"\n")
    for _ in range(source.choice((1, 1, 2, 5))):
        at = source.randrange(len(lines))
        kind = source.randrange(5)
        if kind == 0:
            lines[at] = source.choice(lines)
        elif kind == 1:
            lines.insert(at, source.choice(_TEXT))
        elif kind == 2 and len(lines) > 1:
            del lines[at]
        elif kind == 3:
            words = lines[at].split(b" ")
            words[source.randrange(len(words))] = source.choice(_TEXT)
            lines[at] = b" ".join(words)
        else:
            lines[at] = _digits_replaced(lines[at], source)
    return b"\n".join(lines)


def _digits_replaced(line: bytes, source: random.Random) -> bytes:
    places = [at for at, byte in enumerate(line) if 48 <= byte <= 57]
    if not places:
        return line + source.choice(_TEXT)
    at = source.choice(places)
    return line[:at] + source.choice(_TEXT) + line[at + 1 :]


def json_values(data: bytes, others: Sequence[bytes], source: random.Random) -> bytes:
    """Values at random places exchanged, keys renamed, left out or added; now and then the bytes themselves."""
    if source.random() < 0.15:
        return text(data, others, source)
    document = json.loads(data)
    for _ in range(source.choice((1, 1, 1, 2, 6))):
        holder, key = _place(document, source)
        if holder is None:
            return json.dumps(source.choice(_VALUES)).encode("utf-8", "surrogatepass")
        _change(holder, key, document, source)
    # Lone surrogates are escaped as JSON allows; written raw they would not be UTF-8.
    return json.dumps(document, ensure_ascii=source.random() < 0.7).encode("utf-8", "surrogatepass")


def _place(document: Any, source: random.Random) -> tuple[Any, Any]:
    """A random list or object of a document, and one of its places."""
    holder, key, value = None, None, document
    while isinstance(value, dict | list) and value and (holder is None or source.random() < 0.8):
        holder = value
        key = source.choice(list(value)) if isinstance(value, dict) else source.randrange(len(value))
        value = value[key]
    return holder, key


def _change(holder: Any, key: Any, document: Any, source: random.Random) -> None:
    kind, value = source.randrange(8), holder[key]
    if kind == 0:
        del holder[key]
    elif kind == 1 and isinstance(holder, dict):
        holder[source.choice(_NAMES)] = holder.pop(key)
    elif kind == 2 and isinstance(holder, list):
        holder.append(value)
    elif kind == 3 and isinstance(value, int | float) and not isinstance(value, bool) and abs(value) <= 2**100:
        holder[key] = source.choice((-value, value + 1, value * 1000, value / 3, str(value), [value]))
    elif kind == 4:
        other, place = _place(document, source)
        holder[key] = json.loads(json.dumps(other[place])) if other is not None else None
    else:
        # Copied, or a later change would reach into what all cases share.
        holder[key] = json.loads(json.dumps(source.choice(_VALUES)))


def zip_members(data: bytes, others: Sequence[bytes], source: random.Random) -> bytes:
    """One member's content damaged as what it is and packed again; or the archive's own bytes."""
    if source.random() < 0.3:
        return binary(data, others, source)
    with zipfile.ZipFile(io.BytesIO(data)) as archive:
        members = {info.filename: archive.read(info) for info in archive.infolist()}
    name = source.choice([name for name, content in members.items() if content])
    try:
        members[name] = json_values(members[name], [members[name]], source)
    except ValueError:
        members[name] = binary(members[name], list(members.values()), source)
    if source.random() < 0.05:
        members[source.choice(list(members))] = b"[" * 5000
    packed = io.BytesIO()
    with zipfile.ZipFile(packed, "w", zipfile.ZIP_DEFLATED) as archive:
        for member, content in members.items():
            archive.writestr(member, content)
    return packed.getvalue()
