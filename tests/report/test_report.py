"""Reports say what the analysis found, in every format the same, and what is missing."""

import csv
import html.parser
import json
import re
import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import msgspec
import numpy as np
import pytest

from model_profiling.analysis.run.dumps import AnalysisSummary
from model_profiling.analysis.sme2.coverage import Coverage, CoveredOperator
from model_profiling.base.files import read_json
from model_profiling.report import charts, numbers
from model_profiling.report.drawing.drawing_process import DrawingPool
from model_profiling.report.drawing.theme import CATEGORY_COLOURS
from model_profiling.report.drawing.vega import svg
from model_profiling.report.files.report_files import write_picture, write_report
from model_profiling.report.kernel_view import kernel_rows
from model_profiling.report.words import BareOperator, unique_labels
from model_profiling.store.artifacts import REPORT
from model_profiling.store.run_directory import Manifest, RunDirectory
from sme2_kit import Run
from tests.conftest import ROOT, kit
from tests.helpers.run_forge import forge_run
from tests.helpers.sketching import Sketcher

_artists: list[DrawingPool] = []


@pytest.fixture(scope="module", autouse=True)
def one_artist() -> Iterator[None]:
    """Every command starts one, which takes a second: these tests have one together."""
    with DrawingPool() as artist:
        _artists.append(artist)
        yield
        _artists.clear()


def report(directory: Path, artist: DrawingPool) -> Path:
    """Write all of a run's report, as `sme2-kit report --html` does, and return where."""
    write_report(Run.open(directory), artist, directory / REPORT, "", True, True)
    return directory


@pytest.fixture(scope="module")
def reported(measured_run: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    home = tmp_path_factory.mktemp("reported") / "run"
    shutil.copytree(measured_run, home)
    done = kit("report", home, "--html")
    assert done.returncode == 0, done.stderr
    return home


def analysis(directory: Path) -> AnalysisSummary:
    return read_json(directory / "analysis_summary.json", AnalysisSummary, "analysis")


class Tables(html.parser.HTMLParser):
    """The page's tables by key: rows of cells, each its text and its exact value. `kinds` has each row's class."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.found: dict[str, list[list[list[list[str]]]]] = {}
        self.kinds: dict[str, list[list[str]]] = {}
        self.key = ""
        self.cell: list[str] | None = None
        self.feed(text)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        given = dict(attrs)
        if tag == "div" and "data-table" in given:
            self.key = given["data-table"] or ""
        elif tag == "table":
            self.found.setdefault(self.key, []).append([])
            self.kinds.setdefault(self.key, []).append([])
        elif tag == "tr":
            self.found[self.key][-1].append([])
            self.kinds[self.key][-1].append(given.get("class") or "")
        elif tag in ("td", "th"):
            self.cell = ["", given.get("data-value") or ""]
            self.found[self.key][-1][-1].append(self.cell)

    def handle_endtag(self, tag: str) -> None:
        if tag in ("td", "th"):
            self.cell = None

    def rows(self, key: str, *kinds: str) -> list[list[list[str]]]:
        """The rows below the header of the first such table, of these kinds ("" for a row of its own)."""
        rows = zip(self.found[key][0], self.kinds[key][0], strict=True)
        return [row for row, kind in list(rows)[1:] if kind in kinds]

    def handle_data(self, data: str) -> None:
        if self.cell is not None:
            self.cell[0] += data


def markdown_rows(text: str, first_column: str) -> list[dict[str, str]]:
    """The rows of the first Markdown table whose first column is called so."""
    lines = iter(text.splitlines())
    for line in lines:
        if line.startswith(f"| {first_column} |"):
            header = _cells(line)
            next(lines)
            rows = []
            for row in lines:
                if not row.startswith("|"):
                    break
                rows.append(_cells(row))
            # Columns may have equal names ("share"); number them.
            names = [name if header.index(name) == i else f"{name} {i}" for i, name in enumerate(header)]
            return [dict(zip(names, row, strict=True)) for row in rows]
    raise AssertionError(f"no table begins with {first_column}")


def _cells(line: str) -> list[str]:
    return [re.sub(r"\\(.)", r"\1", cell).replace("`", "").strip() for cell in re.split(r"(?<!\\)\|", line)[1:-1]]


def test_markdown_page_csv_and_json_give_the_same_numbers(reported: Path) -> None:
    summary = analysis(reported)
    raw = json.loads((reported / "analysis_summary.json").read_text())
    markdown, page = (reported / "report.md").read_text(), Tables((reported / "report.html").read_text())
    comparison = summary.comparisons[0]

    # Latency: JSON twice, robust stats and page; of Markdown the first screen's line.
    metrics = json.loads((reported / "metrics.json").read_text())
    in_page = {row[0][0]: row for row in page.found["latency"][0][1:]}
    assert summary.metrics is not None
    labels = Run.open(reported).labels
    assert set(in_page) == set(labels.values())
    for name, experiment in summary.metrics.experiments.items():
        latency, label = experiment.latency, labels[name]
        assert latency is not None
        assert metrics["experiments"][name]["latency"]["median_ms"] == latency.median_ms
        stats = json.loads(next((reported / name).glob("*_robust_stats.json")).read_text())
        assert stats["latency"]["median_ms"] == latency.median_ms
        shown = [numbers.ms(latency.median_ms), numbers.spread(latency.mad_percent), numbers.ms(latency.p95_ms)]
        cells = in_page[label]
        assert [float(cell[1]) for cell in cells[1:3]] == [latency.median_ms, latency.mad_percent]
        assert [cell[0] for cell in cells[1:4]] == shown
    this_cpu = next(line for line in markdown.splitlines() if line.startswith("- This CPU: "))
    run, (measured,) = Run.open(reported), summary.metrics.comparisons
    told = run.told(measured)
    # Of turns that both sides have, unless other work was in the way of the comparison.
    pair = {} if told.contended else {told.before: told.before_ms, told.after: told.after_ms}
    times = [ms for name in labels if (ms := pair.get(name) or run.execution_ms(name)) is not None]
    assert times and all(numbers.ms(ms) in this_cpu for ms in times)

    # Categories: JSON, Markdown, page.
    rows = [list(row.values()) for row in markdown_rows(markdown, "category")]
    assert rows == [[cell[0] for cell in row] for row in page.found["categories"][0][1:]]
    changes = [change for change in comparison.categories if change.before_ms or change.after_ms]
    for row, exact, change in zip(rows, page.found["categories"][0][1:], changes, strict=False):
        shown = [numbers.ms(change.before_ms), numbers.share(change.before_share), numbers.ms(change.after_ms)]
        assert row[:4] == [change.name, *shown]
        bounds = (change.low, change.high)
        assert row[5] == numbers.bounded_speedup(change.ratio, *bounds)
        assert float(exact[1][1]) == change.before_ms and float(exact[3][1]) == change.after_ms
    assert raw["comparisons"][0]["categories"][0]["before_ms"] == comparison.categories[0].before_ms

    # Operators: JSON, Markdown's first ones, all of the page's, and CSV.
    assert "Intervals are over launches" in markdown
    rows = [list(row.values()) for row in markdown_rows(markdown, "operator")]
    assert rows == [[cell[0] for cell in row] for row in page.rows("operators", "group", "")[: len(rows)]]
    singles = page.rows("operators", "member", "")
    assert sorted((float(cells[1][1]), float(cells[2][1])) for cells in singles) == sorted(
        (entry.change.before_ms, entry.change.after_ms) for entry in comparison.operators
    )
    changes_by_times = {(e.change.before_ms, e.change.after_ms): e.change for e in comparison.operators}
    for cells in singles:
        change = changes_by_times[float(cells[1][1]), float(cells[2][1])]
        assert [cell[0] for cell in cells[1:3]] == [numbers.ms(change.before_ms), numbers.ms(change.after_ms)]
        # Several operators may have taken no time at all.
        if change.before_ms:
            assert cells[3][0] == numbers.bounded_speedup(change.ratio, change.low, change.high)
    for name, experiment_analysis in summary.experiments.items():
        with next((reported / name).glob("*_ops_stats.csv")).open() as file:
            lines = list(csv.DictReader(file))
        operators = experiment_analysis.breakdown.operators
        assert [line["operator"] for line in lines] == [operator.operator for operator in operators]
        assert [float(line["ms"]) for line in lines] == [round(operator.ms, 6) for operator in operators]


def test_operators_of_one_name_are_told_apart_by_module_line_or_instruction(reported: Path) -> None:
    rows = Tables((reported / "report.html").read_text()).rows("operators", "member", "")
    names = [row[0][0] for row in rows]
    assert len(set(names)) == len(names) and "delegate call (instruction 0)" in names
    # As the terminal lists kernels.
    places = [("GEMM #1", 0), ("IGEMM #1", 0), ("GEMM #1", 2)]
    operators = [CoveredOperator(name, "GEMM", "", "delegated", "", at, "SME2", [], 1, "", "") for name, at in places]
    shown = [row[0] for row in kernel_rows(Coverage(3, 3, 0, 3, 3, "", operators))]
    assert shown == ["GEMM #1 (instruction 0)", "IGEMM #1", "GEMM #1 (instruction 2)"]
    # The shortest that no other one of that name has; what is not known tells nothing.
    known = [("a", "net.py:1"), ("b", "net.py:1"), ("b", "net.py:2"), ("c", "net.py:3"), ("c", "net.py:3"), ("", "")]
    said = unique_labels(BareOperator("GEMM #1", number, *place) for number, place in enumerate(known))
    expected = ["a", "b net.py:1", "net.py:2", "instruction 3", "instruction 4", "instruction 5"]
    assert said == [f"GEMM #1 ({place})" for place in expected]


def test_the_csv_of_one_run_adds_up_to_the_trace_of_the_same_run(reported: Path) -> None:
    trace = json.loads((reported / "trace.json").read_text())["traceEvents"]
    tracks = {e["args"]["name"]: e["tid"] for e in trace if e["ph"] == "M" and e["name"] == "thread_name"}
    assert set(tracks) == set(analysis(reported).experiments)
    for name, track in tracks.items():
        events = [event for event in trace if event["ph"] == "X" and event["tid"] == track]
        execution = events[0]["args"]["execution"]
        with next((reported / name).glob("*_all_runs_timeline.csv")).open() as file:
            rows = [row for row in csv.DictReader(file) if int(row["run"]) == execution]
        inside = [e for e in events if e["args"]["execution"] == execution and e["args"]["where"] != "runtime"]
        expected = sorted((r["name"], float(r["duration_ms"])) for r in rows if r["where"] != "runtime")
        assert sorted((e["name"], round(e["dur"] / 1000, 6)) for e in inside) == expected


def test_in_the_trace_calls_lie_within_the_method_and_operators_within_calls(reported: Path) -> None:
    trace = json.loads((reported / "trace.json").read_text())["traceEvents"]
    methods = [event for event in trace if event["name"].startswith("Method::execute")]
    assert len(methods) == 10 * len(analysis(reported).experiments)
    for event in trace:
        if event["ph"] == "X" and event not in methods:
            own = [m for m in methods if m["tid"] == event["tid"]]
            (around,) = [m for m in own if m["ts"] <= event["ts"] < m["ts"] + m["dur"]]
            assert event["ts"] + event["dur"] <= around["ts"] + around["dur"] + 1
            assert event["cat"] == event["args"]["category"] in CATEGORY_COLOURS
    calls = [e for e in trace if e["name"] == "delegate call"]
    operators = [e for e in trace if e["ph"] == "X" and e["args"]["where"] == "delegated"]
    for operator in operators:
        inside = [c for c in calls if c["tid"] == operator["tid"] and c["ts"] <= operator["ts"] <= c["ts"] + c["dur"]]
        assert inside, operator


def test_pictures_lie_beside_the_markdown_that_shows_them(reported: Path) -> None:
    shown = re.findall(r"!\[[^]]*\]\(([^)]+)\)", (reported / "report.md").read_text())
    assert sorted(Path(name).stem for name in shown) == ["operators", "shift", "sme2"]
    for name in shown:
        assert (reported / name).read_bytes().startswith(b"\x89PNG")
        assert (reported / name).with_suffix(".svg").read_text().startswith("<svg")


@pytest.mark.wide
@pytest.mark.parametrize("name", ["shift", "latency", "modules", "operators"])
def test_one_picture_at_paper_quality(reported: Path, tmp_path: Path, name: str) -> None:
    pictures = [tmp_path / "one.png", tmp_path / "one.svg"]
    for picture in pictures:
        if name == "shift":
            done = kit("report", reported, "--png", name, "--output", picture, "--theme", "dark")
            assert done.returncode == 0, done.stderr
        else:
            write_picture(Run.open(reported), _artists[0], name, picture, "dark", charts.WIDE)
    assert int.from_bytes(pictures[0].read_bytes()[16:20], "big") >= 2900, "about 430 dots per inch over a page's width"
    assert pictures[1].read_text().startswith("<svg")


def test_bars_begin_at_zero_and_axes_have_units(reported: Path) -> None:
    for name in ("shift", "operators"):
        drawn = (reported / "report_charts" / f"{name}.svg").read_text()
        assert re.search(r"time \(ms(, traced)?\)", drawn)
        assert re.search(r">0(\.0+)?</text>", drawn), f"{name}'s axis shows its zero"
    assert "latency (ms)" in (reported / "report_charts" / "latency.svg").read_text()


def seen_without_green(colour: str) -> Any:
    """A colour as someone with deuteranopia sees it, in CIELAB (Machado, Oliveira and Fernandes 2009, severity 1)."""
    rgb = np.array([int(colour[i : i + 2], 16) for i in (1, 3, 5)]) / 255
    linear = np.where(rgb <= 0.04045, rgb / 12.92, ((rgb + 0.055) / 1.055) ** 2.4)
    matrix = [[0.367322, 0.860646, -0.227968], [0.280085, 0.672501, 0.047413], [-0.011820, 0.042940, 0.968881]]
    seen = np.clip(np.array(matrix) @ linear, 0, 1)
    to_xyz = [[0.4124, 0.3576, 0.1805], [0.2126, 0.7152, 0.0722], [0.0193, 0.1192, 0.9505]]
    xyz = np.array(to_xyz) @ seen / np.array([0.9505, 1.0, 1.089])
    f = np.where(xyz > 0.008856, np.cbrt(xyz), 7.787 * xyz + 16 / 116)
    return np.array([116 * f[1] - 16, 500 * (f[0] - f[1]), 200 * (f[1] - f[2])])


def test_categories_can_be_unique_labels_with_deuteranopia() -> None:
    colours = {name: seen_without_green(colour) for name, colour in CATEGORY_COLOURS.items()}
    for name, one in colours.items():
        for other, two in colours.items():
            if name != other:
                assert np.linalg.norm(one - two) > 15, f"{name} and {other} look alike"


@pytest.mark.wide
def test_the_documented_scripts_are_doors_to_the_same_reports(reported: Path, tmp_path: Path) -> None:
    scripts = ROOT / "model_profiling" / "scripts"
    one = [scripts / "generate_report.py", "--run-dir", reported]
    one += ["--output", tmp_path / "a.md", "--title", "My | title"]
    both = [scripts / "generate_combined_report.py", reported, reported, "--output", tmp_path / "b.md"]
    for command in (one, both):
        done = subprocess.run([sys.executable, *map(str, command)], capture_output=True, text=True, check=False)
        assert done.returncode == 0, done.stderr
    assert (tmp_path / "a.md").read_text().startswith("# My \\| title\n")
    combined = (tmp_path / "b.md").read_text()
    assert combined.startswith("# 2 runs side by side")
    assert (tmp_path / "b_charts" / "speedups.png").is_file() and (tmp_path / "b_charts" / "shift.png").is_file()


def test_a_report_made_twice_is_the_same(reported: Path) -> None:
    names = ("report.md", "report.html", "trace.json", "report_charts/shift.svg")
    before = {name: (reported / name).read_bytes() for name in names}
    assert kit("report", reported, "--html").returncode == 0
    assert before == {name: (reported / name).read_bytes() for name in names}


def test_a_page_of_500_operators_is_under_two_megabytes(measured_run: Path, tmp_path: Path) -> None:
    directory = report(forge_run(measured_run, tmp_path / "run", operators=500, executions=40), _artists[0])
    operators = next(iter(analysis(directory).experiments.values())).breakdown.instances
    assert sum(entry.where != "runtime" for entry in operators) == 500
    assert (directory / "report.html").stat().st_size < 2_000_000


def drop_one(manifest: Manifest) -> None:
    manifest.experiments.pop(next(iter(manifest.experiments)))
    manifest.compare_pairs.clear()


def fail(manifest: Manifest, most: int | None = None) -> None:
    for name, record in list(manifest.experiments.items())[:most]:
        why = "the runner | was <killed>"
        manifest.experiments[name] = msgspec.structs.replace(record, status="failed", failure=why, features=None)


def forget_export(manifest: Manifest) -> None:
    manifest.model = msgspec.structs.replace(manifest.model, export=None, path="gone.pte")


def forged(measured_run: Path, tmp_path: Path, change: Any) -> tuple[str, str, Path]:
    # What its pictures show is not looked at.
    directory = report(forge_run(measured_run, tmp_path / "run", change=change), Sketcher())
    return (directory / "report.md").read_text(), (directory / "report.html").read_text(), directory


def test_a_run_with_one_experiment_says_that_nothing_was_compared(measured_run: Path, tmp_path: Path) -> None:
    markdown, page, directory = forged(measured_run, tmp_path, drop_one)
    assert "no two experiments were compared" in page
    assert "faster" not in next(line for line in markdown.splitlines() if line.startswith("- This CPU: "))
    assert 'id="whatif"' in page and 'id="timeline"' in page
    assert (directory / "report_charts" / "shift.png").is_file()


def test_a_failed_experiment_is_named_first_and_the_rest_is_still_reported(measured_run: Path, tmp_path: Path) -> None:
    markdown, page, directory = forged(measured_run, tmp_path, lambda manifest: fail(manifest, 1))
    name = Run.open(directory).label(next(iter(RunDirectory(directory).manifest().experiments)))
    assert f"- {name} failed: the runner" in markdown.split("##")[0]
    assert "the runner | was <killed>" in markdown.replace("\\", "")
    assert "was &lt;killed&gt;" in page and "<killed>" not in page
    assert "## Where the time goes" in markdown and " ms**" in markdown.split("##")[0]


def test_a_run_in_which_all_failed_still_has_a_report(measured_run: Path, tmp_path: Path) -> None:
    markdown, page, directory = forged(measured_run, tmp_path, fail)
    assert "there is nothing to report" in markdown and "there is nothing to report" in page
    assert not (directory / "trace.json").exists()


def test_without_export_and_etrecord_the_report_says_so(measured_run: Path, tmp_path: Path) -> None:
    _, page, _ = forged(measured_run, tmp_path, forget_export)
    missing = re.sub(r"<[^>]*>", "", page.split("<h2>What was not measured")[1].split("<h2>")[0])
    assert "there is no export_meta.json next to the model" in missing


def test_an_emulated_run_shows_operators_and_kernels_and_no_time_at_all(measured_run: Path, tmp_path: Path) -> None:
    markdown, page, directory = forged(measured_run, tmp_path, lambda manifest: setattr(manifest, "timing", "emulated"))
    for text in (markdown, page.split('<script type="application/json"')[0].split("</style>")[1]):
        visible = re.sub(r"<[^>]*>", " ", text)
        assert not re.search(r"\d (ms|us)\b|\d+\.\d+x|\d \u00b5s", visible)
        assert "faster" not in visible and "times are left out" in visible
        assert "IGEMM" in visible and "emulated" in visible
    data = json.loads(page.split('id="data">')[1].split("</script>")[0])
    assert data["experiments"] == {} and data["timelines"] == {}
    assert not (directory / "trace.json").exists()
    assert not (directory / "report_charts").exists()
    refused = kit("report", directory, "--png", "latency")
    assert refused.returncode == 2 and "emulated" in refused.stderr


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        ([], "no run directory"),
        (["nowhere"], "nowhere"),
        (["a", "b", "--model-explorer"], "one run directory"),
        (["a", "--width", "5"], "out of range"),
    ],
)
def test_wrong_use_is_two_lines_and_exit_2(arguments: list[str], words: str) -> None:
    done = kit("report", *arguments)
    assert done.returncode == 2 and words in done.stderr
    assert len(done.stderr.splitlines()) == 2


def test_text_in_pictures_is_never_markup() -> None:
    values = [{"a": "<img src=x onerror=alert(1)>&\"'", "b": 1}]
    encoding = {"y": {"field": "a"}, "x": {"field": "b", "type": "quantitative"}}
    drawn = svg({"data": {"values": values}, "mark": "bar", "encoding": encoding})
    assert "<img" not in drawn and "&lt;img" in drawn


def test_the_summary_after_a_run_fits_a_screen_and_is_ascii_in_a_pipe(reported: Path, tmp_path: Path) -> None:
    calm = forge_run(reported, tmp_path / "run", launches=6, times=lambda _, name, __: 50_000 if name else 2_000)
    done = kit("analyze", calm, env={"PYTHONIOENCODING": "utf-8"})
    assert done.returncode == 0, done.stderr
    # There are three actions to tell at most, of a few lines each.
    lines = [line for line in done.stdout.splitlines() if not line.startswith(("  warning", " " * 11))]
    told = [line for line in lines if line.startswith(("  1. ", "  2. ", "  3. ", "     "))]
    assert len(told) <= 3 * 4 and len(lines) - len(told) <= 63 and max(map(len, lines)) <= 120
    assert done.stdout.replace(str(calm), "").isascii() and "\033" not in done.stdout


def test_where_the_files_are_is_said_as_seen_from_here(reported: Path, tmp_path: Path) -> None:
    for place, said in ((reported.parent, "run"), (tmp_path, reported)):
        assert f"\nReport     {said}/report.html\n" in kit("analyze", reported, cwd=place).stdout
