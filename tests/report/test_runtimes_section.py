"""Other runtimes in reports: true sentences alone, and every format says the same."""

import json
import re
import shutil
from pathlib import Path

import pytest

from model_profiling.analysis.compare.runtime_comparison import RuntimeComparison, RuntimeRow, slower_lines
from model_profiling.analysis.process.startup import MedianTime
from model_profiling.analysis.run.run_view import RunView
from model_profiling.base import files
from model_profiling.report import markdown
from model_profiling.report.blocks import Bullets, Number, Picture, Section, Table, plain_rows
from model_profiling.report.charts.frame import NARROW, WIDE
from model_profiling.report.charts.runtimes import runtimes as chart
from model_profiling.report.content import runtimes as section_content
from model_profiling.report.content import whole as content
from model_profiling.report.drawing.drawing_process import DrawingPool
from model_profiling.report.drawing.theme import LIGHT
from model_profiling.report.files.page_files import write_runtimes
from model_profiling.report.terminal import render
from model_profiling.store.artifacts import RUNTIMES
from tests.helpers.chromium import Tab
from tests.helpers.page_fit import misfits
from tests.helpers.program_forge import ADD, Op
from tests.helpers.run_use import RUN
from tests.helpers.runtime_forge import ET, EXECUTORCH, FAILED, ORT, OTHER, changes, compared, means, replaced, runtimes
from tests.helpers.screens import PLAIN, flat

HOSTILE = "</script><img src=x onerror=window.taken=1>|`\n# x"


def shown(found: RuntimeComparison) -> Section:
    made = section_content.section(found)
    assert made is not None
    return made


def whole(found: RuntimeComparison) -> str:
    return flat(render(section_content.report(found), PLAIN, "whole"))


def tables(section: Section) -> dict[str, Table]:
    return {block.key: block for block in section.blocks if isinstance(block, Table)}


def test_equal_lines_of_several_modules_are_one_finding() -> None:
    said = section_content.findings(runtimes(OTHER, EXECUTORCH))
    assert len(said) == 1
    assert said[0].startswith(f"{ET} takes 12 times as long as {ORT} for `mean.out` (`ReduceMean` there) at nets.py:11")
    assert "in 5 modules" in said[0] and "at least" in said[0]


@pytest.mark.parametrize(
    ("row", "why"),
    [
        (replaced(OTHER, changes=changes(means(5, 11_000), means(5, 10_000, "ReduceMean"))), "too near"),
        (replaced(OTHER, changes=changes(means(5, 10_000), means(5, 120_000, "ReduceMean"))), "faster"),
        (replaced(OTHER, changes=changes(means(5, 300), means(5, 30, "ReduceMean"))), "below a percent"),
        (replaced(OTHER, comparison=compared(1.9, 1.8, 2.0, contended=True)), "busy machine"),
        (replaced(OTHER, changes=None), "no profile"),
    ],
)
def test_nothing_is_found_where_it_would_not_be_true(row: RuntimeRow, why: str) -> None:
    assert section_content.findings(runtimes(row, EXECUTORCH)) == [], why


def test_what_only_the_other_does_beside_a_line_may_be_fused_into_it() -> None:
    before = means(1, 30_000)
    after = [*means(1, 20_000, "ReduceMean"), Op(ADD, 30_000, "blocks.1", "z = torch.relu(y)", 12, file="nets.py")]
    assert slower_lines(changes(before, means(1, 20_000, "ReduceMean"))) and not slower_lines(changes(before, after))


def test_another_baseline_than_executorch_is_no_finding() -> None:
    other = replaced(EXECUTORCH, runtime="onnxruntime")
    assert section_content.findings(runtimes(OTHER, other)) == []


def test_lines_at_which_executorch_is_slower_come_first_and_all_add_up() -> None:
    before = [*means(3, 120_000), Op(ADD, 20_000, "tail", "x + y", 30)]
    after = [*means(3, 10_000, "ReduceMean"), Op("Add", 200_000, "tail", "x + y", 30, where="portable")]
    table = tables(shown(runtimes(replaced(OTHER, changes=changes(before, after)), EXECUTORCH)))["runtime_lines"]
    which = [row[4] for row in table.rows]
    assert which[:4] == ["slower"] * 3 + ["faster"] and not any(which[4:])
    for column in (1, 2):
        *parts, whole = (row[column].value for row in table.rows if isinstance(row[column], Number))  # type: ignore[union-attr]
        assert sum(part or 0.0 for part in parts) == pytest.approx(whole)
    assert "mean.out in ExecuTorch 1.5.0, ReduceMean in ONNX Runtime 1.27.0" in str(table.rows[0][5])


def test_a_tie_is_a_tilde_and_what_was_not_measured_says_why() -> None:
    tie = replaced(OTHER, comparison=compared(1.01, 0.98, 1.04), changes=None)
    found = runtimes(tie, EXECUTORCH, FAILED)
    section = shown(found)
    rows = tables(section)["runtimes"].rows
    assert rows[0][2] == Number("~ (0.98 to 1.04)", 1.01) and rows[2][1] == Number("not measured", None)
    assert any("LiteRT: not measured: LiteRT takes a .tflite. Give one of your own." in b.items
               for b in section.blocks if isinstance(b, Bullets))  # fmt: skip
    text = whole(found)
    assert "~ (0.98 to 1.04)" in text and "LiteRT: not measured: LiteRT takes a .tflite" in text
    differing = replaced(OTHER, comparison=None, ranked=False, changes=None)
    assert tables(shown(runtimes(differing, EXECUTORCH)))["runtimes"].rows[0][2] == Number("not ranked", None)


@pytest.mark.parametrize(
    "rows",
    [(FAILED,), (EXECUTORCH,), (OTHER, EXECUTORCH, FAILED), (replaced(OTHER, startup=None, peak_bytes=None),)],
    ids=["none", "one", "three", "unknown"],
)
def test_a_page_and_its_picture_of_few_rows(rows: tuple[RuntimeRow, ...], tmp_path: Path) -> None:
    found = runtimes(*rows)
    with DrawingPool() as artist:
        page = write_runtimes(found, artist, tmp_path / "page.html").read_text()
    has_picture = any(isinstance(block, Picture) for block in shown(found).blocks)
    assert has_picture == ("<svg" in page) == any(row.latency is not None for row in rows)
    assert all(row.label in page for row in rows)
    if has_picture:
        wide, narrow = (chart(found, width, LIGHT, "") for width in (WIDE, NARROW))
        panels = 1 if rows[0].peak_bytes is None else 3
        assert len(wide["hconcat" if panels > 1 else "vconcat"]) == len(narrow["vconcat"]) == panels


def test_names_of_others_are_harmless(tmp_path: Path) -> None:
    names = {"label": HOSTILE, "name": HOSTILE, "file": f"a/{HOSTILE}.onnx", "notes": [HOSTILE]}
    said = {"settings": {HOSTILE: HOSTILE}, "versions": {HOSTILE: HOSTILE}}
    by_line = changes(means(2, 120_000, HOSTILE), means(2, 10_000, HOSTILE + "2"), (HOSTILE, HOSTILE))
    found = runtimes(replaced(OTHER, **names, **said, changes=by_line), EXECUTORCH, replaced(FAILED, reason=HOSTILE))
    with DrawingPool() as artist:
        page = write_runtimes(found, artist, tmp_path / "page.html").read_text()
    assert "<img" not in page and page.count("</script>") == page.count("<script")
    text = markdown.render(section_content.report(found))
    assert not re.search(r"(?<!\\)<img", text) and "\n# x" not in text
    assert json.dumps(chart(found, NARROW, LIGHT, ""), allow_nan=False)
    assert len(whole(found)) > 500


def test_the_page_fits_wide_and_narrow_windows(tab: Tab, tmp_path: Path) -> None:
    long = replaced(OTHER, name="second", label=f"ONNX Runtime 1.27.0 ({'long_name' * 12}.onnx)", peak_bytes=None)
    found = runtimes(OTHER, long, EXECUTORCH, FAILED)
    with DrawingPool() as artist:
        page = write_runtimes(found, artist, tmp_path / "page.html")
    tab.open(page)
    for scheme in ("light", "dark"):
        tab.colours(scheme)
        assert {width: misfits(tab, width) for width in (1400, 390)} == {1400: [], 390: []}
    assert tab.errors == [] and len(tab.requests) == 1


def test_a_run_shows_its_runtimes_while_they_are_of_its_program(tmp_path: Path) -> None:
    home = tmp_path / "run"
    shutil.copytree(RUN, home)
    assert RunView.open(home).runtimes is None
    sha256 = RunView.open(home).manifest.model.sha256
    for digest, there in ((sha256, True), ("0" * 64, False)):
        files.write_json(home / RUNTIMES, runtimes(OTHER, EXECUTORCH, pte_sha256=digest))
        run = RunView.open(home)
        assert (run.runtimes is not None) == there
        section = content.report(run).section("runtimes")
        assert (section is not None) == there
    (home / RUNTIMES).write_text('{"kind": "runtime_comparison", "rows": 3}')
    assert RunView.open(home).runtimes is None


def test_times_of_a_runtime_without_intervals_are_shown_without() -> None:
    row = replaced(EXECUTORCH, latency=MedianTime(1.5), startup=None, peak_bytes=None)
    assert plain_rows([section_content.cells(row, "executorch")])[0][1:5] == ("1.500 ms", "1", "unknown", "unknown")
