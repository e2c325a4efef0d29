"""Rows of the Python API are what the analysis found: a field of one name is of one type."""

import enum
import typing
from typing import Any, Literal, get_args, get_origin, get_type_hints

import msgspec
import pytest

from model_profiling.analysis.advice.finding import Finding
from model_profiling.analysis.compare.operator_scaling import OperatorThreads
from model_profiling.analysis.graph.cost_tree import CostNode
from model_profiling.analysis.process.memory import Memory
from model_profiling.analysis.process.startup import MedianTime
from model_profiling.analysis.roofs.group_work import GroupWork
from model_profiling.analysis.sme2.coverage import CoveredOperator
from model_profiling.analysis.timing.breakdown import CategoryTime, OperatorTime
from model_profiling.analysis.timing.latency import Latency
from model_profiling.api import records
from model_profiling.api.records import row_of

# A row, what it is made of, and the fields that it has in another form.
ROWS: list[tuple[type[msgspec.Struct], type[msgspec.Struct], set[str]]] = [
    (records.OperatorRow, OperatorTime, set()),
    (records.OperatorRow, GroupWork, set()),
    (records.CategoryRow, CategoryTime, set()),
    (records.ModuleRow, CostNode, set()),
    (records.LatencyRow, Latency, set()),
    (records.StartupRow, MedianTime, set()),
    (records.MemoryRow, Memory, set()),
    (records.OperatorThreadRow, OperatorThreads, {"ms"}),
    (records.AdviceRow, Finding, set()),
    (records.KernelRow, CoveredOperator, {"kernels"}),
]


def plain(hint: Any) -> set[str]:
    """The types that a field may be of, but for None; a word out of a list is text."""
    parts = get_args(hint) if get_origin(hint) in (typing.Union, type(int | str)) else (hint,)
    words = (
        "str" if get_origin(p) is Literal or (isinstance(p, type) and issubclass(p, enum.Enum)) else p for p in parts
    )
    return {p if isinstance(p, str) else getattr(p, "__name__", "") + str(get_args(p)) for p in words} - {"NoneType()"}


@pytest.mark.parametrize(("row", "source", "other"), ROWS, ids=lambda value: getattr(value, "__name__", ""))
def test_a_field_of_a_row_has_the_type_it_has_in_the_analysis(
    row: type[msgspec.Struct], source: type[msgspec.Struct], other: set[str]
) -> None:
    ours, theirs = get_type_hints(row), get_type_hints(source)
    shared = {name for name in row.__struct_fields__ if name in source.__struct_fields__} - other
    assert shared
    for name in shared:
        left, right = ({"str" if part == "str()" else part for part in plain(hint[name])} for hint in (ours, theirs))
        assert left == right, f"{row.__name__}.{name}"


def test_a_row_takes_fields_by_name_and_leaves_times_open_where_none_were_measured() -> None:
    found = CategoryTime("CONV", 1.5, 0.5, 3)
    assert row_of(records.CategoryRow, found, experiment="on") == records.CategoryRow("on", "CONV", 1.5, 0.5, 3)
    untimed = row_of(records.CategoryRow, None, found, experiment="on", timed=False)
    assert untimed == records.CategoryRow("on", "CONV", None, None, 3)
