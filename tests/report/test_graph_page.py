"""The interactive graph in a real browser: from a disk, by mouse and by keys, with two thousand operators."""

import hashlib
import json
import shutil
import xml.etree.ElementTree as ET
from pathlib import Path
from typing import Any

import pytest

from model_profiling.report import graph_page, html
from model_profiling.report.content import whole as content
from sme2_kit import Run
from tests.helpers.chromium import Tab
from tests.helpers.run_forge import forge_run

# With a browser, which is not the kit.
pytestmark = pytest.mark.wide

HOSTILE = "</script><img src=x onerror=window.taken=1>"


@pytest.fixture(scope="module")
def page(measured_run: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    # In a copy: other tests ask which files the shared run has.
    return Run.open(shutil.copytree(measured_run, tmp_path_factory.mktemp("graph") / "run")).graph()


@pytest.fixture
def opened(tab: Tab, page: Path) -> Tab:
    return _open(tab, page)


def _open(tab: Tab, page: Path) -> Tab:
    tab.requests.clear()
    tab.errors.clear()
    tab.open(page, 1280, 900)
    return tab


def click(tab: Tab, label: str) -> None:
    """Click a box whose label begins so, as a person does: with the mouse."""
    found = f"[...document.querySelectorAll('.box')].find((box) => box.ariaLabel.startsWith({json.dumps(label)}))"
    tab.value(f"{found}.scrollIntoView({{ block: 'center', inline: 'center', behavior: 'instant' }})")
    where = f"(({{ x, y, width }}) => [x + width / 2, y + 12])({found}.firstChild.getBoundingClientRect())"
    tab.click(*tab.value(where))


def boxes(tab: Tab) -> list[str]:
    found: list[str] = tab.value("[...document.querySelectorAll('.box')].map((box) => box.ariaLabel)")
    return found


def shown(tab: Tab) -> dict[str, str]:
    """What is said of what is chosen."""
    names = tab.value("[...document.querySelectorAll('.graph-detail dt')].map((one) => one.textContent)")
    values = tab.value("[...document.querySelectorAll('.graph-detail dd')].map((one) => one.textContent)")
    return dict(zip(names, values, strict=True))


def choose(tab: Tab, control: str, value: str) -> None:
    tab.value(f"""(() => {{ const control = document.querySelector('{control}'); control.value = {json.dumps(value)};
        control.dispatchEvent(new Event('change')); }})()""")


def focused(tab: Tab) -> str:
    return str(tab.value("document.activeElement?.ariaLabel ?? ''"))


def test_it_opens_from_disk_and_its_boxes_sum_to_method_execute(opened: Tab, page: Path, measured_run: Path) -> None:
    assert opened.requests == [page.resolve().as_uri()]
    assert opened.errors == []
    graph = Run.open(measured_run).graphs[0]
    assert opened.value("Number(document.getElementById('graph').dataset.sum)") == pytest.approx(graph.execute_ms)
    operators = sum(node.node == "operator" for node in graph.nodes)
    assert f"{operators} operators" in opened.value("document.querySelector('.graph-sum').textContent")
    labels = boxes(opened)
    assert sum(label.startswith(("Convolution", "Fully Connected")) for label in labels) == 8
    assert opened.value("document.querySelectorAll('.edge').length") >= operators - 1
    assert opened.value("document.documentElement.scrollWidth <= innerWidth")


def test_a_click_shows_time_shapes_source_line_and_what_feeds_it(opened: Tab, measured_run: Path) -> None:
    node = next(n for n in Run.open(measured_run).graphs[0].nodes if "DWConv" in n.name)
    click(opened, node.name)
    facts = shown(opened)
    assert facts["category"] == "CONV (depthwise)"
    assert facts["reads"] == node.reads[0] and facts["writes"] == node.writes[0]
    assert node.source is not None and facts["source"].endswith(f"model.py:{node.source.line}")
    assert facts["code"] == node.source.code
    assert facts["SME2"].startswith("no") and "% of Method::execute" in facts["time"]
    # A ratio, or on a busy machine that there is none; both times in any case.
    assert facts["compared"].count(" ms with ") == 2
    # What feeds it, and from there back.
    opened.value("document.querySelector('.graph-detail ul .jump').click()")
    assert opened.value("document.querySelector('.graph-detail h3').textContent").startswith("Convolution")
    assert len(opened.value("[...document.querySelectorAll('.edge.lit')].map(() => 1)")) == 2
    opened.value("document.querySelector('.graph-detail .shut').click()")
    assert shown(opened) == {} and opened.value("document.querySelectorAll('.chosen').length") == 0


def test_a_group_unfolds_and_folds_by_click_and_its_parts_are_its_time(opened: Tab) -> None:
    before = boxes(opened)
    click(opened, "ExecuTorch runtime")
    unfolded = boxes(opened)
    parts = [label for label in unfolded if label not in before and "Runtime" in label]
    assert len(parts) >= 3 and any(label.startswith("delegate call") for label in parts)
    assert "of Method::execute" in shown(opened)["time"]
    click(opened, "ExecuTorch runtime")
    assert boxes(opened) == before


def test_keys_alone_lead_through_the_graph(opened: Tab) -> None:
    opened.value("document.querySelector('.box[tabindex=\"0\"]').focus()")
    first = focused(opened)
    opened.press("ArrowDown")
    second = focused(opened)
    assert second != first
    opened.press("ArrowUp")
    assert focused(opened) == first
    opened.press("ArrowDown")
    opened.press("Enter")
    assert opened.value("document.querySelector('.graph-detail h3').textContent") in second
    opened.press("Escape")
    assert opened.value("document.querySelectorAll('.chosen').length") == 0 and focused(opened) == second
    opened.press("n")
    assert focused(opened) not in (first, second)
    # To the group of ExecuTorch's own time, which Enter unfolds.
    opened.value("[...document.querySelectorAll('.box.group')].at(-1).focus()")
    assert opened.value("document.activeElement.ariaExpanded") == "false"
    opened.press("Enter")
    assert opened.value("document.activeElement.ariaExpanded") == "true"
    zoom = "Number(document.querySelector('.graph-canvas').dataset.zoom)"
    was = opened.value(zoom)
    opened.press("+")
    assert opened.value(zoom) > was
    assert opened.value("document.querySelectorAll('.box[tabindex=\"0\"]').length") == 1


def test_on_and_off_are_two_graphs_and_colours_follow_the_choice(opened: Tab, measured_run: Path) -> None:
    on, off = Run.open(measured_run).graphs
    fills = "JSON.stringify([...document.querySelectorAll('.box')].map((box) => box.firstChild.getAttribute('fill')))"
    seen = {opened.value(fills)}
    options = opened.value("[...document.querySelector('.graph-colour').options].map((option) => option.value)")
    assert options == ["category", "time", "speedup", "sme2"], "no SQNR is known, so none is offered"
    for colour in options[1:]:
        choose(opened, ".graph-colour", colour)
        seen.add(opened.value(fills))
        assert opened.value("document.querySelectorAll('.graph-legend .swatch').length") >= 3
    assert len(seen) == len(options)
    choose(opened, ".graph-experiment", "1")
    assert opened.value("Number(document.getElementById('graph').dataset.sum)") == pytest.approx(off.execute_ms)
    assert on.execute_ms != off.execute_ms
    choose(opened, ".graph-grouping", "delegate")
    assert any(label.startswith("delegate at instruction 0") for label in boxes(opened))
    assert opened.value("Number(document.getElementById('graph').dataset.sum)") == pytest.approx(off.execute_ms)


def test_find_leads_to_an_operator_wherever_it_is_folded(opened: Tab) -> None:
    opened.value("document.querySelector('[data-graph=fold]').click()")
    opened.value("document.querySelector('.graph-find').focus()")
    opened.write("delegate call")
    assert "found" in opened.value("document.querySelector('.graph-found').textContent")
    assert opened.value("document.querySelector('.graph-detail h3').textContent") == "delegate call"
    assert opened.value("document.querySelector('.chosen').ariaLabel").startswith("delegate call")


def test_transposes_stand_out_and_what_is_saved_is_an_svg_of_all_that_is_shown(opened: Tab) -> None:
    slanted = opened.value("document.querySelectorAll('.box.transpose polygon').length")
    assert slanted == sum("Transpose" in label for label in boxes(opened)) == 6
    svg = ET.fromstring(opened.value("document.getElementById('graph').graphSvg()"))
    texts = [found.text or "" for found in svg.iter("{http://www.w3.org/2000/svg}text")]
    assert sum("⇄ Transpose" in text for text in texts) == 6
    assert not any("var(" in value for found in svg.iter() for value in found.attrib.values())
    shape = next(svg.iter("{http://www.w3.org/2000/svg}polygon"))
    assert shape.get("fill", "").startswith("rgb")


def test_on_paper_the_whole_graph_is_there_without_what_scrolls(opened: Tab) -> None:
    opened.call("Emulation.setEmulatedMedia", media="print")
    try:
        canvas = "document.querySelector('.graph-canvas')"
        assert opened.value(f"getComputedStyle({canvas}).overflow") == "visible"
        assert opened.value("getComputedStyle(document.querySelector('.graph-detail')).display") == "none"
        assert opened.value(f"{canvas}.firstChild.getBoundingClientRect().width <= innerWidth")
    finally:
        opened.call("Emulation.setEmulatedMedia", media="")


def test_two_thousand_operators_begin_folded_and_can_all_be_unfolded(
    tab: Tab, measured_run: Path, tmp_path: Path
) -> None:
    run = Run.open(forge_run(measured_run, tmp_path / "big", operators=2000, executions=2))
    _open(tab, run.graph())
    assert tab.errors == []
    assert len(boxes(tab)) < 120, "one look, not two thousand boxes"
    assert tab.value("Number(document.getElementById('graph').dataset.sum)") == pytest.approx(run.graphs[0].execute_ms)
    click(tab, "part 2")
    assert 60 <= len(boxes(tab)) < 250
    tab.value("document.querySelector('[data-graph=unfold]').click()")
    drawn = tab.value("document.querySelectorAll('.box:not(.group):not(.end)').length")
    assert drawn == sum(node.node == "operator" for node in run.graphs[0].nodes) == 2000
    tab.value("document.querySelector('[data-graph=fold]').click()")
    assert len(boxes(tab)) < 120


def test_names_from_a_hostile_dump_are_text(tab: Tab, measured_run: Path, tmp_path: Path) -> None:
    run = Run.open(forge_run(measured_run, tmp_path / "hostile", rename=lambda name: f"{HOSTILE}{name}", executions=2))
    _open(tab, run.graph())
    assert any(HOSTILE in label for label in boxes(tab))
    click(tab, HOSTILE)
    assert tab.value("document.querySelector('.graph-detail h3').textContent").startswith(HOSTILE)
    assert tab.value("window.taken ?? null") is None and tab.errors == []
    assert tab.value("document.querySelectorAll('#graph img').length") == 0


def test_the_report_page_has_the_same_graph(
    tab: Tab, measured_run: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    run, page = Run.open(measured_run), tmp_path / "page.html"
    page.write_text(html.run_page(run, content.report(run), {}))
    _open(tab, page)
    assert tab.errors == []
    assert len(boxes(tab)) > 15 and tab.value("document.querySelector('nav a[href=\"#graph\"]') !== null")
    # One with more operators than a page bears says where it is.
    monkeypatch.setattr(graph_page, "MOST_IN_REPORT", 3)
    page.write_text(html.run_page(run, content.report(run), {}))
    _open(tab, page)
    assert tab.value("document.querySelector('.graph-canvas')") is None and tab.errors == []
    assert f"sme2-kit graph {measured_run}" in tab.value("document.body.innerText")


@pytest.mark.parametrize(("width", "scheme"), [(1280, "dark"), (390, "light")])
def test_it_fits_narrow_screens_and_dark_ones(tab: Tab, page: Path, width: int, scheme: str) -> None:
    tab.colours(scheme)
    _open(tab, page)
    tab.resize(width)
    assert tab.value("document.documentElement.scrollWidth <= innerWidth")
    assert tab.value("document.querySelector('.graph-canvas').clientWidth") > 300


def test_the_layout_library_is_npms_and_its_licence_is_in_the_page(page: Path) -> None:
    vendor = Path(html.__file__).parent / "page" / "vendor"
    digest = hashlib.sha256((vendor / "dagre.min.js").read_bytes()).hexdigest()
    assert digest in (vendor / "README.md").read_text()
    text = page.read_text()
    assert (vendor / "dagre.LICENSE").read_text().strip() in text and "sourceMappingURL" not in text


def data(page: Path) -> dict[str, Any]:
    text = page.read_text().split('id="data">')[1].split("</script>")[0]
    found: dict[str, Any] = json.loads(text)
    return found


def test_sqnr_is_offered_where_it_is_known(tab: Tab, measured_run: Path, tmp_path: Path) -> None:
    class Judged(Run):
        def sqnr(self, experiment: str) -> dict[int, float]:
            return {1: 12.5, 2: 48.0}

    page = Judged.open(measured_run).graph(tmp_path / "judged.html")
    assert sorted(node["sqnr"] for node in data(page)["graph"]["graphs"][0]["nodes"] if "sqnr" in node) == [12.5, 48.0]
    _open(tab, page)
    choose(tab, ".graph-colour", "sqnr")
    assert tab.value("[...document.querySelectorAll('.box text')].some((line) => line.textContent === '12.5 dB')")
