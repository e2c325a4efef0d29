"""The page of a sweep: a picture, and one row for each program with what was measured and what is predicted."""

import importlib.util
from pathlib import Path

import msgspec
import pytest

from model_profiling.fleet.sweep import portfolio
from model_profiling.fleet.sweep.portfolio import panels, program_rows
from model_profiling.fleet.sweep.result import RuntimeResult, SweepResult
from model_profiling.report.blocks import Number, Row, Table
from model_profiling.report.charts.frame import NARROW, WIDE
from model_profiling.report.charts.programs import is_logarithmic, programs
from model_profiling.report.drawing.theme import LIGHT
from tests.conftest import needs
from tests.helpers.chromium import BINARY, chromium
from tests.helpers.page_fit import misfits
from tests.helpers.sweep_forge import forged_sweep

MANY = ("local", "android-9A", "emulator")
SWEEPS = {
    "one": forged_sweep(1),
    "three": forged_sweep(3),
    "fifteen": forged_sweep(15, MANY, long_names=True, faults=True),
    "emulated": forged_sweep(2, ("emulator",)),
}


def table(result: SweepResult) -> Table:
    section = portfolio.report(result).section("programs")
    assert section is not None
    return next(block for block in section.blocks if isinstance(block, Table))


def shown(row: Row) -> list[str]:
    return [cell.shown if isinstance(cell, Number) else str(getattr(cell, "text", cell)) for cell in row]


@pytest.mark.parametrize("result", SWEEPS.values(), ids=SWEEPS)
def test_each_program_on_each_measured_target_is_one_row(result: SweepResult) -> None:
    found = table(result)
    measured = {(c.model, c.dtype, *c.rewrites, c.target) for c in result.cells if c.timing == "measured"}
    only_emulated = {c.model for c in result.cells} - {c.model for c in result.cells if c.timing == "measured"}
    assert len(found.rows) == len(measured) + len(only_emulated)
    assert all(len(row) == len(found.columns) and "emulated" not in shown(row) for row in found.rows)


def test_a_row_has_what_was_measured_predicted_and_emulated() -> None:
    found = table(SWEEPS["three"])
    assert found.columns == (
        *("model", "dtype", "off", "on", "speedup (95 % interval)", "with SME2 (predicted)"),
        *("SME2 speedup (predicted range)", "SME2 coverage", "coverage, emulated"),
    )
    speedups = ["1.99x (1.93 to 2.07)", "0.042 ms", "2.40x (1.80 to 2.90)"]
    assert shown(found.rows[0]) == ["network_0", "fp16", "0.199 ms", "0.100 ms", *speedups, "75 %", "50 %"]


def test_other_runtimes_have_a_column_each_and_reasons_where_they_have_no_ratio() -> None:
    found = SWEEPS["three"]
    assert portfolio.report(found).section("runtimes") is None
    measured = [
        RuntimeResult("onnxruntime", "ONNX Runtime 1", 2.0, 1.5, 1.4, 1.6, "faster"),
        RuntimeResult("eager", "eager <b>", reason="int8 is another quantization"),
    ]
    same = RuntimeResult("onnxruntime", "ONNX Runtime 1", 2.0, 1.0, 0.9, 1.1, "no difference seen")
    first, second, *others = found.cells
    cells = [msgspec.structs.replace(first, runtimes=measured), msgspec.structs.replace(second, runtimes=[same])]
    changed = msgspec.structs.replace(found, cells=[*cells, *others])
    section = portfolio.report(changed).section("runtimes")
    assert section is not None and isinstance(section.blocks[0], Table)
    assert section.blocks[0].columns == ("cell", "ONNX Runtime 1", "eager <b>")
    assert [row[1:] for row in section.blocks[0].rows] == [
        ("1.50x (1.40 to 1.60)", "int8 is another quantization"),
        ("~ (0.90 to 1.10)", "unknown"),
    ]


def test_what_failed_waits_or_was_only_emulated_says_so_in_its_row() -> None:
    found = table(SWEEPS["fifteen"])
    on, emulated = found.columns.index("on"), found.columns.index("coverage, emulated")
    states = [row[on].shown for row in map(shown_numbers, found.rows)]
    assert {"failed", "waiting", "not measured", "unknown"} <= set(states)
    rows = program_rows(SWEEPS["fifteen"])
    assert all(row[emulated].shown for row in map(shown_numbers, found.rows)) and len(rows) == len(found.rows)
    (first, *_) = table(SWEEPS["emulated"]).rows
    assert shown(first)[2:] == ["-", "not measured", "-", "-", "-", "-", "50 %"]


def shown_numbers(row: Row) -> list[Number]:
    return [cell if isinstance(cell, Number) else Number("", None) for cell in row]


def test_the_axis_is_logarithmic_only_where_programs_differ_much() -> None:
    near, far = panels(forged_sweep(2)), panels(forged_sweep(8))
    assert not is_logarithmic(near) and is_logarithmic(far)
    for found, first in ((near, 0.0), (far, 0.02)):
        spec = programs(found, WIDE, LIGHT, "", 40)
        assert spec is not None
        scale = spec["vconcat"][0]["layer"][2]["encoding"]["x"]["scale"]
        assert scale["domain"][0] == pytest.approx(first, abs=0.02) and ("type" in scale) == (found is far)
    assert programs(panels(SWEEPS["emulated"]), WIDE, LIGHT, "", 40) is None


@pytest.mark.parametrize("width", [WIDE, NARROW])
def test_rows_of_the_picture_are_told_apart_however_long_names_are(width: int) -> None:
    spec = programs(panels(SWEEPS["fifteen"]), width, LIGHT, "", 40)
    assert spec is not None and len(spec["vconcat"]) == 2
    for panel in spec["vconcat"]:
        labels = [value["label"] for value in panel["layer"][3]["data"]["values"]]
        assert len(set(labels)) == len(labels) == 12 and any("failed" in label for label in labels)


@pytest.mark.wide
def test_nothing_is_clipped_on_a_screen_and_on_a_phone(tmp_path: Path) -> None:
    needs(BINARY is not None, "chromium")
    needs(importlib.util.find_spec("websocket") is not None, "websocket-client")
    drawn = {name: result for name, result in SWEEPS.items() if name in ("one", "fifteen")}
    for name, result in drawn.items():
        (tmp_path / name).mkdir()
        portfolio.write(result, tmp_path / name)
    with chromium() as tab:
        for name in drawn:
            tab.open(tmp_path / name / portfolio.PAGE)
            assert [*misfits(tab, 1400), *misfits(tab, 390)] == [] == tab.errors, name
