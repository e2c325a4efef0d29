"""Tables of flatbuffer schemas as the kit reads them, and whether an installed `.fbs` file still has them so."""

import re
from collections.abc import Mapping, Sequence
from pathlib import Path

import msgspec

from model_profiling.base import files
from model_profiling.upstream.reliance import installed_file, installed_version

Fields = Mapping[str, int]

# No schema of ExecuTorch is larger than a tenth of this.
_LARGEST = 1 << 20
_COMMENT = re.compile(r"//[^\n]*")
_BLOCK = re.compile(r"\b(table|union|enum)\s+(\w+)[^{;]*\{([^}]*)\}")
_FIELD = re.compile(r"(\w+)\s*:\s*\[?\s*(\w+)")


class Schema(msgspec.Struct, frozen=True):
    """What a `.fbs` file says: fields of tables by slot, members of unions and names of enums in their order."""

    identifier: str
    tables: Mapping[str, Sequence[str]] = {}
    unions: Mapping[str, Sequence[str]] = {}
    enums: Mapping[str, Mapping[str, int]] = {}

    def fields(self, table: str) -> Fields:
        """Return the slots of a table's fields, which count from 0; a union has two, of which the first is its type."""
        return {name: slot for slot, name in enumerate(self.tables[table])}


def own_schema(name: str) -> Schema:
    """Return the tables as the kit reads them: those of a file beside this one, in the schemas' own language."""
    return read_schema(Path(__file__).with_name(f"{name}.fbs"))


def read_schema(path: Path) -> Schema:
    """Read a `.fbs` file as far as it says which slot a field has."""
    text = _COMMENT.sub("", files.content(path, _LARGEST).decode("utf-8", "replace"))
    blocks = _BLOCK.findall(text)
    unions = {name: _members(body) for kind, name, body in blocks if kind == "union"}
    tables = {name: _slots(body, unions) for kind, name, body in blocks if kind == "table"}
    enums = {name: _values(body) for kind, name, body in blocks if kind == "enum"}
    found = re.search(r'file_identifier\s+"(\w{4})"', text)
    return Schema(found[1] if found else "", tables, unions, enums)


def _members(body: str) -> list[str]:
    """Return a union's members, each with its table if that has another name: `XNNAdd: _XNNNode2x1`."""
    return [" ".join(part.replace(":", ": ").split()) for part in body.split(",") if part.strip()]


def _slots(body: str, unions: Mapping[str, Sequence[str]]) -> list[str]:
    found: list[str] = []
    for line in body.split(";"):
        if field := _FIELD.search(line):
            name, kind = field.groups()
            found += [f"{name}_type", name] if kind in unions else [name]
    return found


def _values(body: str) -> dict[str, int]:
    found, following = {}, 0
    for part in filter(None, map(str.strip, body.split(","))):
        name, _, number = part.partition("=")
        following = int(number, 0) if number.strip() else following
        found[name.strip()] = following
        following += 1
    return found


def difference(ours: Schema, theirs: Schema) -> str:
    """Return the first thing that we read in another way than a schema has it; '' if there is none.

    What a schema has besides, at the end of a table, a union or an enum, is fine: that is how schemas grow.
    """
    if ours.identifier != theirs.identifier:
        return f"its identifier is {theirs.identifier or 'not there'}, not {ours.identifier}"
    for name, slots in ours.tables.items():
        if list(slots) != list(theirs.tables.get(name, ()))[: len(slots)]:
            return f"table {name} has other fields"
    for name, members in ours.unions.items():
        if list(members) != list(theirs.unions.get(name, ()))[: len(members)]:
            return f"union {name} has other members"
    for name, values in ours.enums.items():
        if not values.items() <= theirs.enums.get(name, {}).items():
            return f"enum {name} has other values"
    return ""


def schema_difference(ours: Schema, relative: str) -> str:
    """Return what the installed wheel's schema has in another way than the kit reads it; '' if nothing."""
    found = difference(ours, read_schema(installed_file(relative)))
    return f"{relative} of executorch {installed_version('executorch')} is another one: {found}" if found else ""
