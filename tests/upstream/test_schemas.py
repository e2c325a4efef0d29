"""Schemas of flatbuffers: the kit's tables are those of the installed wheel, and whatever differs is noticed."""

import re
from collections.abc import Callable
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from model_profiling.upstream import etdump_schema, program_schema, xnnpack_schema
from model_profiling.upstream.flatbuffer_schemas import Schema, difference, read_schema
from model_profiling.upstream.installed_wheel import executorch_folder
from tests.conftest import needs

pytestmark = pytest.mark.fast
Change = Callable[[list[str], int], list[str]]
OURS: dict[str, tuple[Schema, str]] = {
    "program": (program_schema._OURS, "schema/program.fbs"),
    "xnnpack": (xnnpack_schema._OURS, "backends/xnnpack/serialization/schema.fbs"),
    "etdump": (etdump_schema._OURS, "devtools/etdump/etdump_schema_flatcc.fbs"),
}


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
def test_the_kits_tables_are_the_wheels(name: str) -> None:
    folder = executorch_folder()
    needs(folder is not None, "executorch")
    assert folder is not None
    ours, file = OURS[name]
    assert difference(ours, read_schema(folder / file)) == ""


@pytest.mark.parametrize("name", OURS)
def test_a_schema_that_says_the_same_is_read_as_the_same(name: str, tmp_path: Path) -> None:
    assert difference(OURS[name][0], read(tmp_path, text_of(OURS[name][0]))) == ""


def _renamed(names: list[str], at: int) -> list[str]:
    return [*names[:at], f"{names[at]}x", *names[at + 1 :]]


def _removed(names: list[str], at: int) -> list[str]:
    return [*names[:at], *names[at + 1 :]]


def _inserted(names: list[str], at: int) -> list[str]:
    return [*names[:at], "something_new", *names[at:]]


@given(data=st.data(), change=st.sampled_from((_renamed, _removed, _inserted)))
def test_any_change_of_what_is_read_is_noticed(
    data: st.DataObject, change: Callable[[list[str], int], list[str]]
) -> None:
    ours = OURS[data.draw(st.sampled_from(sorted(OURS)))][0]
    kind = data.draw(st.sampled_from(["tables", "unions"] if ours.unions else ["tables"]))
    entries = getattr(ours, kind)
    name = data.draw(st.sampled_from(sorted(entries)))
    at = data.draw(st.integers(0, len(entries[name]) - 1))
    other = {**entries, name: change(list(entries[name]), at)}
    changed = Schema(ours.identifier, **{**{k: getattr(ours, k) for k in ("tables", "unions", "enums")}, kind: other})
    assert name in difference(ours, changed)


@given(data=st.data())
def test_what_is_added_at_the_end_is_no_difference(data: st.DataObject) -> None:
    ours = OURS[data.draw(st.sampled_from(sorted(OURS)))][0]
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
    assert by_name["Concatenate5"].inputs == (1, 2, 3, 4, 7) and by_name["Concatenate2"].inputs == (1, 2)
    assert by_name["Conv2d"].inputs == (15, 16, 17) and by_name["Conv2d"].window == (4, 5)
    assert by_name["ArgMaxPooling2d"].outputs == (7, 8) and by_name["ArgMaxPooling2d"].window == ()
    assert re.fullmatch(r"\w+", xnnpack_schema.NODES[-1].name)
