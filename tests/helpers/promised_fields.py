"""The fields of the kit's JSON files, in one short text: what docs/contracts.md promises stays as it is.

`make schema` writes it anew. A field that is gone from it, or has another type, needs a new version of its file.
"""

import json
import re
import textwrap
from typing import Any

from model_profiling.schemas.contracts import CONTRACTS, json_schema
from tests.conftest import ROOT

PROMISED = ROOT / "tests" / "data" / "promised_fields.txt"
Fields = dict[str, dict[str, str]]


def fields_of_types() -> Fields:
    """Return the fields of every object in the kit's JSON files by name, `?` behind those that may be missing."""
    found: Fields = {}
    for contract in CONTRACTS:
        for name, definition in json_schema(contract)["$defs"].items():
            required = definition.get("required", [])
            fields = definition.get("properties", {})
            found[name] = {f if f in required else f"{f}?": _type(shape) for f, shape in fields.items()}
        found[f"{contract.kind}-{contract.version}"] = {"is": contract.type.__name__}
    return {name: fields for name, fields in sorted(found.items()) if fields}


def _type(shape: dict[str, Any]) -> str:
    """Return a type in few letters, without spaces."""
    if "$ref" in shape:
        return str(shape["$ref"]).rpartition("/")[2]
    if "const" in shape or "enum" in shape:
        return "|".join(map(json.dumps, shape.get("enum", [shape.get("const")]))).replace(" ", "_")
    if "anyOf" in shape:
        return "|".join(map(_type, shape["anyOf"]))
    if shape.get("type") == "array":
        items = shape.get("prefixItems") or [shape.get("items") or {}]
        return f"[{','.join(map(_type, items))}]"
    if shape.get("type") == "object":
        return f"{{{_type(shape.get('additionalProperties') or {})}}}"
    return str(shape.get("type", "any"))


def written(fields: Fields) -> str:
    """Return the text, a paragraph for each object."""
    lines = [f"{name}: {' '.join(f'{f}={type_}' for f, type_ in each.items())}" for name, each in fields.items()]
    form: dict[str, Any] = {"width": 120, "subsequent_indent": "  "}
    return "".join(textwrap.fill(line, break_long_words=False, break_on_hyphens=False, **form) + "\n" for line in lines)


def promised() -> Fields:
    """Return the fields that the text states."""
    lines = re.sub(r"\n +", " ", PROMISED.read_text()).splitlines()
    pairs = (line.split(": ", 1) for line in lines)
    return {name: dict(field.split("=", 1) for field in fields.split(" ")) for name, fields in pairs}


def broken(before: Fields, now: Fields) -> list[str]:
    """Return what a reader of today's files would miss in those of `now`."""
    wrong = []
    for name, fields in before.items():
        here = now.get(name, {})
        wrong += [f"{name}.{field} was {type_}" for field, type_ in fields.items() if here.get(field) != type_]
        new = [field for field in here if field not in fields and not field.endswith("?")]
        wrong += [f"{name}.{field} is new and not optional" for field in new]
    return wrong


if __name__ == "__main__":
    PROMISED.write_text(written(fields_of_types()))
