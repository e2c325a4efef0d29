"""Schemas of flatbuffers: the kit's tables are those of the installed wheel, and whatever differs is noticed."""

import re
from collections.abc import Callable
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from model_profiling.upstream import etdump_schema, program_schema, xnnpack_schema
from model_profiling.upstream.flatbuffer_schemas import Schema, difference, read_schema

pytestmark = pytest.mark.fast
Change = Callable[[list[str], int], list[str]]
# That they are the installed wheel's is held by the reliances on them (test_doctor.py).
OURS = {"program": program_schema._OURS, "xnnpack": xnnpack_schema._OURS, "etdump": etdump_schema._OURS}


def text_of(schema: Schema) -> str:
    """A schema file that says what `schema` says, with comments and spaces as people write them."""
    unions = set(schema.unions)
    parts = [f'file_identifier "{schema.identifier}";']
    for name, values in schema.enums.items():
        parts.append(f"enum {name} : byte {{ {', '.join(f'{key} = {value}' for key, value in values.items())} }}")
    for name, members in schema.unions.items():
        parts.append(f"union {name} {{\n  {', '.join(members)}, // the last\n}}")
    for name, slots in schema.tables.items():
        lines = []
        for slot in slots:
            if f"{slot}_type" in slots:
                lines.append(f"  {slot}: {next(iter(unions))}; // {'{'} a union {'}'}")
            elif not (slot.endswith("_type") and slot.removesuffix("_type") in slots):
                lines.append(f"  {slot} :[ uint ] (force_align: 16);")
        parts.append(f"table {name} {{\n" + "\n".join(lines) + "\n}")
    return "\n\n".join(parts)


def read(tmp: Path, text: str) -> Schema:
    path = tmp / "schema.fbs"
    path.write_text(text)
    return read_schema(path)


@pytest.mark.parametrize("name", OURS)
def test_a_schema_that_says_the_same_is_read_as_the_same(name: str, tmp_path: Path) -> None:
    assert difference(OURS[name], read(tmp_path, text_of(OURS[name]))) == ""


CHANGES: dict[str, Change] = {
    "renamed": lambda names, at: [*names[:at], f"{names[at]}x", *names[at + 1 :]],
    "removed": lambda names, at: [*names[:at], *names[at + 1 :]],
    "inserted": lambda names, at: [*names[:at], "something_new", *names[at:]],
}


@given(data=st.data(), how=st.sampled_from(sorted(CHANGES)))
def test_any_change_of_what_is_read_is_noticed(data: st.DataObject, how: str) -> None:
    ours = OURS[data.draw(st.sampled_from(sorted(OURS)))]
    kind = data.draw(st.sampled_from(["tables", "unions"] if ours.unions else ["tables"]))
    entries = getattr(ours, kind)
    name = data.draw(st.sampled_from(sorted(entries)))
    at = data.draw(st.integers(0, len(entries[name]) - 1))
    other = {**entries, name: CHANGES[how](list(entries[name]), at)}
    changed = Schema(ours.identifier, **{**{k: getattr(ours, k) for k in ("tables", "unions", "enums")}, kind: other})
    assert name in difference(ours, changed)


@given(data=st.data())
def test_what_is_added_at_the_end_is_no_difference(data: st.DataObject) -> None:
    ours = OURS[data.draw(st.sampled_from(sorted(OURS)))]
    more = data.draw(st.lists(st.from_regex(r"[a-z_]{1,12}", fullmatch=True), max_size=3))
    tables = {name: [*slots, *more] for name, slots in ours.tables.items()} | {"New": more}
    unions = {name: [*members, *more] for name, members in ours.unions.items()}
    enums = {name: {**values, "NEWEST": 99} for name, values in ours.enums.items()}
    assert difference(ours, Schema(ours.identifier, tables, unions, enums)) == ""


def test_another_identifier_or_number_is_a_difference() -> None:
    ours = program_schema._OURS
    assert "ET13" in difference(ours, Schema("ET13", ours.tables, ours.unions, ours.enums))
    values = {**ours.enums, "DataLocation": {"INLINE": 1, "SEGMENT": 0}}
    assert "DataLocation" in difference(ours, Schema(ours.identifier, ours.tables, ours.unions, values))


def test_a_node_of_xnnpack_is_read_by_the_names_of_its_fields() -> None:
    by_name = {kind.name: kind for kind in xnnpack_schema.NODES}
    taken = [f"input{number}_id" for number in (1, 2, 3, 4, 5)]
    assert [*by_name["Concatenate5"].inputs] == taken and [*by_name["Concatenate2"].inputs] == taken[:2]
    assert by_name["Conv2d"].inputs == ("input1_id", "filter_id", "bias_id")
    assert by_name["Conv2d"].window == ("kernel_height", "kernel_width")
    poolings = by_name["ArgMaxPooling2d"], by_name["MaxPooling2d"]
    assert poolings[0].outputs == ("output_value_id", "output_index_id")
    assert [each.window for each in poolings] == [(), ("pooling_height", "pooling_width")]
    assert re.fullmatch(r"\w+", xnnpack_schema.NODES[-1].name)
