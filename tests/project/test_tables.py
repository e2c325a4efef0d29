"""Dtypes and platforms stand in one table each: nothing else lists them, and every surface offers what is in it."""

import ast
import re
from collections.abc import Iterator
from dataclasses import fields
from importlib import import_module
from pathlib import Path

import msgspec
import pytest

from model_profiling.base import dtypes
from model_profiling.fleet.sweep import sweep_file
from model_profiling.pipeline.defaults import output_root_of
from model_profiling.platforms import platform_table
from model_profiling.platforms.platform_table import PLATFORMS, Choice
from model_profiling.runner import features
from model_profiling.upstream import xnnpack_schema
from tests.conftest import ROOT
from tests.helpers.parsers import parser_of

PACKAGE = ROOT / "model_profiling"
DTYPE_TABLE, PLATFORM_TABLE = "base/dtypes.py", "platforms/platform_table.py"
# XNNPACK's own types, and the types of operators' tensors: other vocabularies, in which some words are the same.
OTHER_VOCABULARIES = {"upstream/xnnpack_schema.py", "analysis/timing/work.py"}
TENSOR_TYPES = {"analysis/graph/operator_work.py", "analysis/advice/compute.py"}
DTYPES = {*dtypes.NAMES}
NAMES = {*platform_table.NAMES, platform_table.LOCAL}


def modules(names: set[str], *without: str) -> Iterator[tuple[str, ast.Module]]:
    """The modules that write one of the names, but for the models, which say what each of them supports."""
    written = re.compile(rf"""["'|(]({"|".join(names)})["'|)]""")
    for path in sorted(PACKAGE.rglob("*.py")):
        name = path.relative_to(PACKAGE).as_posix()
        models = name.startswith("models/") and name.endswith("/__init__.py")
        if not models and name not in without and written.search(text := path.read_text()):
            yield name, ast.parse(text)


def listed(node: ast.AST) -> set[object]:
    """The constants that a literal lists: in brackets, as keys and values, as cases, or as choices of a pattern."""
    found: list[ast.expr | None] = []
    if isinstance(node, ast.List | ast.Tuple | ast.Set):
        found = [*node.elts]
    elif isinstance(node, ast.Dict):
        found = [*node.keys, *node.values]
    elif isinstance(node, ast.MatchOr):
        found = [each.value for each in node.patterns if isinstance(each, ast.MatchValue)]
    elif isinstance(node, ast.IfExp):
        found = [node.body, node.orelse]
    elif isinstance(node, ast.Constant) and isinstance(node.value, str) and "|" in node.value:
        return {*node.value.replace("(", "|").replace(")", "|").split("|")}
    return {each.value for each in found if isinstance(each, ast.Constant)}


def lists_of(names: set[str], *without: str) -> list[str]:
    return [
        f"{name}:{getattr(node, 'lineno', 0)}"
        for name, tree in modules(names, *without)
        for node in ast.walk(tree)
        if len(names & listed(node)) > 1
    ]


def comparisons_with(names: set[str], word: str, *without: str) -> list[str]:
    """Where a name of a table decides: `request.dtype == "fp16"`."""
    found = []
    for name, tree in modules(names, *without):
        for node in (each for each in ast.walk(tree) if isinstance(each, ast.Compare)):
            asked, told = ast.unparse(node.left), {c.value for c in node.comparators if isinstance(c, ast.Constant)}
            if asked.split(".")[-1] == word and asked != "sys.platform" and told & names:
                found.append(f"{name}:{node.lineno}")
    return found


def test_nothing_but_the_table_lists_dtypes() -> None:
    assert lists_of(DTYPES, DTYPE_TABLE, *OTHER_VOCABULARIES) == []
    assert comparisons_with(DTYPES, "dtype", DTYPE_TABLE, *TENSOR_TYPES) == []


def test_nothing_but_the_table_lists_platforms() -> None:
    # The models' scaffold comes before platforms and names a folder only.
    assert lists_of(NAMES, PLATFORM_TABLE, "models/scaffold.py") == []
    assert comparisons_with(NAMES, "platform") == []


@pytest.mark.parametrize(
    "code",
    ['("fp32", "int8")', '{"fp16": 1, "int4": 2}', 'r"_(fp32|fp16)$"', '"int8" if x else "fp16"', "['a', 'fp32']"],
)
def test_lists_are_found_whatever_they_are_written_as(code: str) -> None:
    found = any(len(DTYPES & listed(node)) > 1 for node in ast.walk(ast.parse(code)))
    assert found == (code[0] != "[")


def offered(command: str) -> tuple[str, ...]:
    return next(tuple(a.choices or ()) for a in parser_of(command)._actions if "--dtype" in a.option_strings)


def test_every_surface_offers_the_dtypes_that_can_be_exported() -> None:
    assert all(offered(command) == dtypes.NAMES for command in ("export", "check", "tune"))
    # What has rates of its own: one of each arithmetic.
    assert offered("roofs") == dtypes.ARITHMETICS
    swept = sweep_file.json_schema()["$defs"]["SweepFile"]["properties"]["dtypes"]["items"]
    assert tuple(swept["enum"]) == dtypes.NAMES
    for name in dtypes.NAMES:
        assert output_root_of(Path(f"net_xnnpack_{name}.pte"), "linux").parts[0] == "out_net"


def test_tools_offer_what_the_tables_have() -> None:
    pytest.importorskip("mcp")
    from model_profiling.analysis.sme2.target import kit_targets
    from model_profiling.mcp_server.tool_table import TOOLS
    from model_profiling.mcp_server.tools import signature_of

    shown = {row.name: str(signature_of(row)) for row in TOOLS}
    assert all(repr(name) in shown["export"] for name in dtypes.NAMES)
    assert all(repr(target.name) in shown["forecast"] for target in kit_targets())
    assert all(example in shown["run"] for example in platform_table.EXAMPLES)


@pytest.mark.parametrize("row", dtypes.EXPORTED, ids=lambda row: row.name)
def test_a_dtype_says_all_that_is_asked_of_it(row: dtypes.Dtype) -> None:
    assert row.weight_bits and row.element_bytes and row.computes_as in dtypes.ARITHMETICS
    assert row.accelerators.keys() == features.TABLES.keys()
    assert {*row.activations, *row.weights} <= {*xnnpack_schema.DTYPES} and (row.activations or row.weights)
    assert (row.numerics.least_sqnr_db is None) == (not row.converts)
    assert row.quantized or row.numerics.rounding is not None
    assert not row.calibrated or row.quantized == "graph"


def test_a_dtype_that_the_table_does_not_have_is_treated_with_care() -> None:
    row = dtypes.dtype_of("a dtype from the future")
    assert not row.exportable and row.converts and row.numerics == dtypes.DtypeNumerics()


@pytest.mark.parametrize("row", PLATFORMS, ids=lambda row: row.name)
def test_a_platform_can_be_opened_and_takes_what_a_choice_has(row: platform_table.PlatformRow) -> None:
    assert callable(import_module(row.module).open_platform)
    assert {*row.takes} <= platform_table.FLAGS.keys()
    assert bool(row.machine) == bool(row.example) == bool(row.title) == bool(row.takes)


def test_every_surface_offers_the_platforms_and_all_that_they_take() -> None:
    for command in ("profile", "run", "compare", "kernels", "numerics", "tune", "roofs", "history"):
        flags = {action.dest: action for action in parser_of(command)._actions}
        assert {part.name for part in fields(Choice)} - {"no_lock"} <= flags.keys() and "lock" in flags
    assert tuple(flags["platform"].choices or ()) == platform_table.NAMES
    settings = {name for name, owners in platform_table.OWNERS.items() if owners}
    # A sweep keeps what was pushed: its next run needs it.
    assert {*sweep_file.SweepTarget.__struct_fields__} - {"platform", "name"} == settings - {"remove_pushed"}
    schema = msgspec.json.schema(sweep_file.SweepTarget)["$defs"]["SweepTarget"]["properties"]["platform"]
    assert {*schema["enum"]} == {*platform_table.SWEPT}


def test_each_type_of_xnnpack_and_torch_stands_for_one_dtype() -> None:
    rows = [*dtypes.EXPORTED, *(dtypes.dtype_of(name) for name in ("bf16", "fp64"))]
    types = [name for row in rows for name in (*row.activations, *row.weights, *row.integers)]
    types += [row.floats for row in rows if not row.quantized]
    assert len(types) == len({*types})
