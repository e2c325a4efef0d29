"""The page as a reader meets it: in a real browser, from a disk, without a network."""

import json
import re
from pathlib import Path
from typing import Any

import pytest

from model_profiling.analysis.run.dumps import AnalysisSummary
from model_profiling.analysis.sme2.whatif import predict
from model_profiling.base.files import read_json
from model_profiling.report.words import unique_labels
from model_profiling.store.run_directory import Manifest
from sme2_kit import Run
from tests.conftest import kit
from tests.helpers.chromium import Tab
from tests.helpers.run_forge import forge_run

# With a browser, which is not the kit.
pytestmark = pytest.mark.wide

HOSTILE = "<img src=x onerror=window.taken=1>"


@pytest.fixture(scope="module")
def page(measured_run: Path) -> Path:
    return Run.open(measured_run).report(measured_run / "report.html")[-1]


@pytest.fixture
def opened(tab: Tab, page: Path) -> Tab:
    tab.requests.clear()
    tab.errors.clear()
    tab.open(page)
    unfold(tab)
    return tab


def unfold(tab: Tab) -> None:
    """Open every section, as a click on its title does."""
    tab.value("document.querySelectorAll('details.fold').forEach((box) => { box.open = true; })")


@pytest.fixture(scope="module")
def summary(measured_run: Path, page: Path) -> AnalysisSummary:
    return read_json(page.with_name("analysis_summary.json"), AnalysisSummary, "analysis")


OPERATORS = '[data-table="operators"]'


def shown_rows(tab: Tab, rows: str = "tr:not(.group)") -> list[dict[str, Any]]:
    """Operators that are not filtered away, unfolded or not, each cell with its text and exact value."""
    script = f"""[...document.querySelectorAll('{OPERATORS} tbody {rows}')].filter((row) => !row.hidden).map((row) =>
        [...row.cells].map((cell) => [cell.textContent, cell.dataset.value ?? null]))"""
    headers = tab.value(f"[...document.querySelectorAll('{OPERATORS} th')].map((cell) => cell.textContent)")
    return [dict(zip(headers, row, strict=True)) for row in tab.value(script)]


def test_the_page_opens_from_disk_without_errors_and_asks_for_nothing_else(opened: Tab, page: Path) -> None:
    assert opened.value("document.title") == opened.value("document.querySelector('h1').textContent") != ""
    assert opened.requests == [page.resolve().as_uri()]
    assert opened.errors == []
    assert opened.value("document.documentElement.scrollWidth <= innerWidth")


def test_several_runs_are_one_page_with_pictures_that_tells_them_apart(
    tab: Tab, measured_run: Path, tmp_path: Path
) -> None:
    runs = [forge_run(measured_run, tmp_path / name, operators=4, executions=4) for name in ("first", "second")]
    page = tmp_path / "both.html"
    assert kit("report", *runs, "--output", page).stdout.split() == [str(page)]
    tab.requests.clear()
    tab.errors.clear()
    for width in (1400, 390):
        tab.open(page, width)
        assert tab.value("document.documentElement.scrollWidth <= innerWidth")
        assert tab.value("[...document.querySelectorAll('figure svg')].filter((x) => x.checkVisibility()).length") == 2
    assert set(tab.requests) == {page.resolve().as_uri()} and tab.errors == []
    names = tab.value(
        "[...document.querySelectorAll('[data-table=latency] tbody tr')].map((x) => x.cells[0].textContent)"
    )
    assert len(set(names)) == 2 and any("(first)" in name for name in names)
    assert not (tmp_path / "both.md").exists()
    written = kit("report", *runs, "--html", "--output", tmp_path / "all.md").stdout.split()
    assert written == [str(tmp_path / "all.md"), str(tmp_path / "all.html")]


def test_no_script_but_the_pages_own_can_run_and_nothing_can_be_fetched(opened: Tab) -> None:
    refused = """(tried) => new Promise((done) => {
        document.addEventListener("securitypolicyviolation", (event) => done(event.effectiveDirective), { once: true });
        setTimeout(() => done("allowed"), 5000); tried(); })"""
    script = "Object.assign(document.createElement('script'), { textContent: 'window.taken = 1' })"
    assert opened.value(f"({refused})(() => document.body.append({script}))").startswith("script-src")
    assert opened.value("window.taken ?? null") is None
    assert opened.value(f"({refused})(() => fetch('https://example.org/').catch(() => 0))") == "connect-src"


def test_sorting_by_a_column_orders_the_exact_values_both_ways(opened: Tab, summary: AnalysisSummary) -> None:
    comparison = summary.comparisons[0]
    every = sorted(entry.change.after_ms for entry in comparison.operators)
    columns = opened.value(f"[...document.querySelectorAll('{OPERATORS} th')].map((cell) => cell.textContent)")
    place = 2
    for falling in (True, False):
        opened.value(f"document.querySelectorAll('{OPERATORS} th button')[{place}].click()")
        heads = [float(row[columns[place]][1]) for row in shown_rows(opened, "tr:first-child")]
        assert heads == sorted(heads, reverse=falling)
        members = opened.value(f"""[...document.querySelectorAll('{OPERATORS} tbody')].map((body) =>
            [...body.querySelectorAll('.member')].map((row) => Number(row.cells[{place}].dataset.value)))""")
        assert any(members) and all(values == sorted(values, reverse=falling) for values in members)
        assert sorted(float(row[columns[place]][1]) for row in shown_rows(opened)) == every
    direction = f"document.querySelectorAll('{OPERATORS} th')[{place}].getAttribute('aria-sort')"
    assert opened.value(direction) == "ascending"


def test_sorting_and_filtering_work_with_the_keyboard_alone(opened: Tab, summary: AnalysisSummary) -> None:
    opened.value(f"document.querySelector('{OPERATORS} .filter').focus()")
    opened.write("transpose")
    expected = [x for x in summary.comparisons[0].operators if "transpose" in (x.after or x.before).lower()]
    assert len(expected) == len(shown_rows(opened)) > 0
    assert all("transpose" in row["operator"][0].lower() for row in shown_rows(opened))
    # What one looks for is seen, in whichever group it is.
    hidden = f"[...document.querySelectorAll('{OPERATORS} tr:not([hidden])')].filter((row) => !row.offsetHeight).length"
    assert opened.value(hidden) == 0
    assert opened.value(f"document.querySelector('{OPERATORS} .count').textContent").startswith(f"{len(expected)} of ")
    opened.value(f"document.querySelector('{OPERATORS} th button').focus()")
    opened.press("Enter")
    names = [row["operator"][0].lower() for row in shown_rows(opened, "tr:first-child")]
    assert names == sorted(names)


def test_the_category_filter_shows_that_category_only(opened: Tab, summary: AnalysisSummary) -> None:
    opened.value(f"""(() => {{ const choice = document.querySelector('{OPERATORS} .category');
        choice.value = "GEMM"; choice.dispatchEvent(new Event("change")); }})()""")
    rows = shown_rows(opened)
    assert {row["category"][0] for row in rows} == {"GEMM"}
    assert len(rows) == sum(entry.category == "GEMM" for entry in summary.comparisons[0].operators)


def test_every_row_of_the_operator_table_holds_the_analysis_own_numbers(opened: Tab, summary: AnalysisSummary) -> None:
    changes = [entry.change for entry in summary.comparisons[0].operators]
    expected = [(change.before_ms, change.after_ms, change.ratio, change.after_share) for change in changes]
    exact = [[float(value) for _, value in row.values() if value] for row in shown_rows(opened)]
    assert sorted(exact) == sorted([value for value in values if value is not None] for values in expected)


def test_what_if_predicts_what_the_analysis_predicts(opened: Tab, summary: AnalysisSummary) -> None:
    name = opened.value("document.querySelector('#whatif .experiment').value")
    speedups = {"CONV": 3.0, "Data Movement": 2.5}
    for category, speedup in speedups.items():
        opened.value(f"""(() => {{ const input = document.querySelector('#whatif input[data-category="{category}"]');
            input.value = {speedup}; input.dispatchEvent(new Event("input")); }})()""")
    expected = predict(summary.experiments[name].breakdown, speedups)
    outcome = opened.value("({...document.querySelector('#whatif .outcome').dataset})")
    assert float(outcome["ms"]) == pytest.approx(expected.predicted_ms, rel=1e-9)
    assert float(outcome["ratio"]) == pytest.approx(expected.ratio, rel=1e-9)
    assert outcome["next"] == expected.next_bottleneck
    shares = opened.value("""Object.fromEntries([...[...document.querySelectorAll('#whatif .bar')].at(-1).children]
        .map((part) => [part.dataset.category, Number(part.dataset.share)]))""")
    assert shares == pytest.approx(expected.shares, rel=1e-9)
    text = opened.value("document.querySelector('#whatif .outcome').textContent")
    assert f"{expected.predicted_ms:.3f} ms" in text and f"{expected.ratio:.2f}x" in text


def test_a_slider_moves_with_the_arrow_keys(opened: Tab) -> None:
    before = float(opened.value("document.querySelector('#whatif .outcome').dataset.ms"))
    opened.value("document.querySelector('#whatif input').focus()")
    for _ in range(10):
        opened.press("ArrowRight")
    assert float(opened.value("document.querySelector('#whatif .outcome').dataset.ms")) < before


def test_the_timeline_draws_every_operator_where_it_ran(
    opened: Tab, summary: AnalysisSummary, measured_run: Path
) -> None:
    labels = Run.open(measured_run).labels
    for name, experiment in summary.experiments.items():
        script = f"""[...document.querySelectorAll('#timeline rect')].filter((rect) =>
            rect.dataset.experiment === {json.dumps(name)}).map((rect) => [Number(rect.dataset.row),
            Number(rect.dataset.start), Number(rect.dataset.duration), rect.querySelector('title').textContent,
            Number(rect.getAttribute('x')), rect.getBoundingClientRect().width])"""
        drawn = {row: rest for row, *rest in opened.value(script)}
        assert sorted(drawn) == list(range(len(experiment.breakdown.instances)))
        operators = [(row, e) for row, e in enumerate(experiment.breakdown.instances) if e.where != "runtime"]
        called = unique_labels(experiment.breakdown.instances)
        for row, entry in operators:
            assert drawn[row][2].startswith(f"{called[row]} ({entry.category}, {entry.where}) in {labels[name]}: ")
        starts = [drawn[row][0] for row, _ in operators]
        assert starts == sorted(starts)
        total = sum(drawn[row][1] for row, _ in operators) / 1000
        whole = sum(entry.ms for _, entry in operators)
        assert total == pytest.approx(whole, rel=0.5), "one execution is like the typical ones"


def test_the_timeline_zooms_and_moves_by_button_and_by_key(opened: Tab) -> None:
    view = "(({ start, end }) => [Number(start), Number(end)])(document.querySelector('#timeline .canvas').dataset)"
    widest = """[...document.querySelectorAll('#timeline rect')].map((rect) =>
        [Number(rect.getAttribute('width')), rect.dataset.experiment + rect.dataset.row])"""
    start, end = opened.value(view)
    widths = {key: width for width, key in opened.value(widest)}
    opened.value("document.querySelector('#timeline [data-do=in]').click()")
    closer = opened.value(view)
    assert closer[1] - closer[0] == pytest.approx((end - start) / 2)
    grown = [(width, widths[key]) for width, key in opened.value(widest) if widths[key] > 20]
    assert grown and all(new == pytest.approx(2 * old, abs=1.5) for new, old in grown)
    opened.value("document.querySelector('#timeline .canvas').focus()")
    opened.press("ArrowRight")
    assert opened.value(view)[0] > closer[0]
    opened.press("0")
    assert opened.value(view) == [start, end]
    opened.press("n")
    assert "% of this execution" in opened.value("document.querySelector('#timeline .detail').textContent")


def test_dark_and_light_are_one_click_apart_and_print_is_light(opened: Tab) -> None:
    paper = "getComputedStyle(document.body).backgroundColor"
    first = opened.value(paper)
    opened.value("document.getElementById('theme').click()")
    assert opened.value(paper) != first
    opened.call("Emulation.setEmulatedMedia", media="print")
    assert opened.value(paper) == "rgb(255, 255, 255)"
    assert opened.value(f"getComputedStyle(document.querySelector('{OPERATORS} .scroll')).maxHeight") == "none"
    opened.call("Emulation.setEmulatedMedia", media="")


def test_a_phone_gets_pictures_of_its_own_and_no_sideways_scrolling(tab: Tab, page: Path) -> None:
    tab.open(page, width=360, height=740)
    assert tab.value("document.documentElement.scrollWidth") <= 360
    assert tab.value("getComputedStyle(document.querySelector('figure .wide')).display") == "none"
    smallest = tab.value("""Math.min(...[...document.querySelectorAll('figure .narrow svg')].map((svg) =>
        11 * svg.getBoundingClientRect().width / svg.viewBox.baseVal.width))""")
    assert smallest >= 9, "letters in pictures can be read"


def test_a_window_of_1100_pixels_shows_all_of_the_latency(opened: Tab) -> None:
    hidden = """[...document.querySelectorAll('#latency .scroll')].map((box) => box.scrollWidth - box.clientWidth)"""
    assert opened.value(hidden) == [0, 0]


BOTTOM = "document.querySelector('{}').getBoundingClientRect().bottom"


def test_a_screen_shows_the_result_its_picture_and_actions_without_scrolling(tab: Tab, page: Path) -> None:
    tab.open(page, width=1280, height=800)
    # On a busy machine nothing may be worth advice for certain: then there is only the result with its picture.
    advised = ["#advice li"] if tab.value("document.querySelector('#advice') !== null") else []
    order = [tab.value(BOTTOM.format(part)) for part in ("h1", "#cards", "figure", *advised)]
    # A busy machine says so first, with a command as long as the paths of this test.
    busy = tab.value("document.querySelector('#alerts')?.getBoundingClientRect().height || 0")
    # And every figure says so, too.
    assert order == sorted(order) and order[-1] <= 800 + busy + (120 if busy else 40)
    tab.open(page, width=390, height=844)
    busy = tab.value("document.querySelector('#alerts')?.getBoundingClientRect().height || 0")
    assert tab.value(BOTTOM.format("#cards dl > div, #advice li, figure")) <= 844 + busy, "a phone shows the result"


def test_at_1280_pixels_no_table_scrolls_sideways_and_a_phone_shows_the_median(tab: Tab, page: Path) -> None:
    wider = """[...document.querySelectorAll('.scroll, .tree')].filter((box) => box.scrollWidth > box.clientWidth)
        .map((box) => box.parentElement.dataset.table)"""
    tab.open(page, width=1280, height=800)
    unfold(tab)
    assert tab.value("document.querySelectorAll('.unfold').forEach((box) => box.click())") is None
    assert tab.value(wider) == []
    tab.open(page, width=390, height=844)
    edge = """(() => { const table = document.querySelector('#latency table');
        const place = [...table.querySelectorAll('th')].findIndex((cell) => cell.textContent === 'median');
        return [...table.querySelectorAll('tbody tr')].map((row) =>
            row.cells[place].getBoundingClientRect().right); })()"""
    assert tab.value(edge) and max(tab.value(edge)) <= 390


def test_a_group_unfolds_without_a_script(tab: Tab, page: Path, tmp_path: Path) -> None:
    bare = tmp_path / "bare.html"
    bare.write_text(re.sub(r"<script.*?</script>", "", page.read_text(), flags=re.DOTALL))
    tab.open(bare)
    unfold(tab)
    seen = f"[...document.querySelectorAll('{OPERATORS} tr.member')].filter((row) => row.offsetHeight).length"
    assert tab.value(seen) == 0
    tab.value(f"document.querySelector('{OPERATORS} .unfold').click()")
    assert tab.value(seen) > 1


def test_the_model_unfolds_to_modules_lines_and_operators_and_the_parts_add_up(opened: Tab) -> None:
    script = """(() => { const sum = (branch) => {
        const row = (one) => one.querySelector(':scope > summary') ?? one;
        const value = (one) => Number(row(one).querySelector('.number').dataset.value);
        const below = [...branch.querySelectorAll(':scope > .branch')];
        const parts = below.reduce((total, one) => total + value(one), 0);
        return (below.length === 0 || Math.abs(parts - value(branch)) < 1e-9) && below.every(sum); };
        return sum(document.querySelector('[data-tree=modules] > .branch')); })()"""
    assert opened.value(script) is True
    lines = opened.value("[...document.querySelectorAll('.tree .part')].map((part) => part.textContent).join()")
    assert "toy_cnn/model.py:" in lines and "(portable)" in lines
    assert opened.value("document.querySelector('figure[data-chart=modules] svg') !== null")


def test_names_that_are_markup_are_shown_as_text(tab: Tab, measured_run: Path, tmp_path: Path) -> None:
    def rename(name: str) -> str:
        return name.replace("Convolution (NHWC", f"{HOSTILE}</script><b> (NHWC") if "Convolution" in name else name

    def change(manifest: Manifest) -> None:
        import msgspec

        export = manifest.model.export
        assert export is not None
        named = msgspec.structs.replace(export, model=HOSTILE)
        manifest.model = msgspec.structs.replace(manifest.model, stem=HOSTILE, export=named)
        manifest.environment["cpu"] = HOSTILE

    directory = forge_run(measured_run, tmp_path / "run", rename=rename, change=change)
    written = Run.open(directory).report(html=True)
    tab.errors.clear()
    tab.open(written[-1])
    assert tab.errors == []
    assert tab.value("window.taken ?? null") is None
    assert tab.value("document.querySelectorAll('img, main b').length") == 0
    assert tab.value("document.querySelector('h1').textContent").startswith(HOSTILE)
    assert any(HOSTILE in row["operator"][0] for row in shown_rows(tab))
    assert HOSTILE in tab.value("document.querySelector('figure[data-chart=operators] svg').textContent")
    assert HOSTILE in tab.value("[...document.querySelectorAll('#timeline title')].map((t) => t.textContent).join()")
    markdown = (directory / "report.md").read_text()
    assert "<img" not in markdown.replace("\\<img", "")
