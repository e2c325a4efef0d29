"""The graph of two programs in a real browser: what changed is coloured, marked and found; noise is not."""

from pathlib import Path

import msgspec
import pytest

from model_profiling.report import html
from model_profiling.report.files.model_explorer import pair_explorer_files
from sme2_kit import Run
from tests.conftest import kit
from tests.helpers.chromium import Tab
from tests.helpers.program_forge import TRANSPOSE, Op, network, pair
from tests.report.test_graph_page import boxes, choose, click, shown

FILLS = "[...document.querySelectorAll('.box')].map((box) => box.firstChild.getAttribute('fill')).filter(Boolean)"


def edited() -> list[Op]:
    """The network of four blocks, with one layer faster, one slower outside of the delegate, one gone, one new."""
    after = network(4)
    after[3] = after[3]._replace(name="Convolution (NHWC, PF32) IGEMM", ns=20_000)
    after[7] = after[7]._replace(name="linear.out", where="portable", ns=400_000)
    return [*after[:7], Op(TRANSPOSE, 30_000), *after[7:11]]


def opened(tab: Tab, before: list[Op], after: list[Op], folder: Path) -> Tab:
    page = folder / "pair.html"
    page.write_text(html.pair_graph([pair(before, after)]))
    tab.requests.clear()
    tab.errors.clear()
    tab.open(page, 1280, 900)
    assert tab.errors == [] and tab.requests == [page.resolve().as_uri()]
    return tab


def fill(tab: Tab, label: str) -> str | None:
    boxes = "[...document.querySelectorAll('.box')]"
    found = f"{boxes}.find((box) => box.ariaLabel.startsWith({label!r}))"
    answer: str | None = tab.value(f"{found}.firstChild.getAttribute('fill')")
    return answer


def is_blue(colour: str | None) -> bool:
    assert colour is not None
    return int(colour[5:7], 16) > int(colour[1:3], 16)


def test_what_changed_is_coloured_by_its_difference_and_marked_by_its_side(tab: Tab, tmp_path: Path) -> None:
    opened(tab, network(4), edited(), tmp_path)
    whole = tab.value("(({ before, sum }) => [before, sum].map(Number))(document.getElementById('graph').dataset)")
    assert whole == pytest.approx([0.54, 0.87], rel=0.1), "the boxes add up to both wholes"
    tab.value("document.querySelector('[data-graph=unfold]').click()")
    assert is_blue(fill(tab, "Convolution (NHWC, PF32)")) and not is_blue(fill(tab, "linear.out"))
    assert not is_blue(fill(tab, "Transpose"))
    assert is_blue(tab.value("document.querySelector('.only-before').firstChild.getAttribute('fill')"))
    unchanged = [label for label in boxes(tab) if "~" in label and "operators" not in label]
    assert len(unchanged) >= 8 and all(fill(tab, label) is None for label in unchanged)
    only = "[...document.querySelectorAll('.box.only-{} .title')].map((line) => line.textContent)"
    assert tab.value(only.format("before")) == ["\N{MINUS SIGN} Add"] and tab.value(only.format("after")) == [
        "+ ⇄ Transpose"
    ]
    dashes = tab.value("getComputedStyle(document.querySelector('.only-before').firstChild).strokeDasharray")
    assert dashes != "none", "not by colour alone"
    assert tab.value("document.querySelectorAll('.edge.before').length") >= 1
    assert "faster by" in tab.value("document.querySelector('.graph-legend').textContent")
    # A folded module has the colour of what can be told of it.
    tab.value("document.querySelector('[data-graph=fold]').click()")
    assert not is_blue(fill(tab, "blocks"))


def test_a_click_shows_both_sides(tab: Tab, tmp_path: Path) -> None:
    opened(tab, network(4), edited(), tmp_path)
    click(tab, "linear.out")
    facts = shown(tab)
    assert [float(facts[f"time {side}"].split()[0]) for side in ("before", "now")] == pytest.approx(
        [0.04, 0.4], rel=0.1
    )
    assert facts["operator before"].startswith("Fully Connected") and facts["operator now"] == "linear.out"
    assert "left the delegate" in facts["what changed"] and facts["matched by"].startswith("the same line")
    assert facts["difference"].startswith("+0.3") and facts["module"] == "blocks.2.linear"
    tab.value("document.querySelector('.graph-detail .shut').click()")
    assert "Largest differences" in tab.value("document.querySelector('.graph-detail').textContent")
    click(tab, "blocks.2")
    group = shown(tab)
    assert group["difference"].startswith("+") and group["operators"] == "3 before, 4 now"


def test_changed_only_leaves_what_changed_in_its_modules_and_edges_through_the_rest(tab: Tab, tmp_path: Path) -> None:
    opened(tab, network(4), edited(), tmp_path)
    tab.value("document.querySelector('.graph-changed input').click()")
    tab.value("document.querySelector('[data-graph=unfold]').click()")
    labels = [label for label in boxes(tab) if "; Enter" not in label]
    assert sorted(label.split(" (")[0].split(" in ")[0].split(",")[0] for label in labels) == [
        "Add",
        "Convolution",
        "Transpose",
        "linear.out",
    ]
    assert any("blocks.3" in label for label in labels), "the path of modules stays"
    assert "4 of 13 operators changed" in tab.value("document.querySelector('.graph-sum').textContent")
    assert tab.value("document.querySelectorAll('.edge.through').length") >= 1
    tab.value("document.querySelector('.graph-changed input').click()")
    assert len(boxes(tab)) > len(labels) and tab.value("document.querySelectorAll('.edge.through').length") == 0


def test_a_program_against_itself_has_no_colour_and_nothing_changed(tab: Tab, tmp_path: Path) -> None:
    opened(tab, network(6), network(6), tmp_path)
    assert tab.value(FILLS) == [] and all("~" in label for label in boxes(tab))
    tab.value("document.querySelector('.graph-changed input').click()")
    assert boxes(tab) == [] and tab.value("document.querySelector('.graph-sum').textContent") == "Nothing changed."
    assert tab.errors == []
    offered = tab.value("[...document.querySelector('.graph-colour').options].map((o) => o.value)")
    assert offered == ["difference", "category", "time"]


def test_too_few_launches_claim_nothing_and_say_so(tab: Tab, tmp_path: Path) -> None:
    both = pair(network(2), edited()[:6], launches=2)
    page = tmp_path / "few.html"
    page.write_text(html.pair_graph([both]))
    tab.open(page, 1280, 900)
    assert tab.value(FILLS) == []
    assert "too few launches" in tab.value("document.querySelector('.graph-notes').textContent")
    click(tab, "Convolution (NHWC, PF32)")
    assert shown(tab)["difference"].startswith("unknown")


@pytest.mark.parametrize(("width", "scheme"), [(1280, "dark"), (390, "light")])
def test_it_fits_narrow_screens_and_dark_ones(tab: Tab, tmp_path: Path, width: int, scheme: str) -> None:
    tab.colours(scheme)
    opened(tab, network(4), edited(), tmp_path)
    tab.resize(width)
    assert tab.value("document.documentElement.scrollWidth <= innerWidth")
    choose(tab, ".graph-colour", "category")
    assert tab.errors == []


@pytest.mark.wide
def test_five_thousand_operators_begin_folded_on_what_changed(tab: Tab, tmp_path: Path) -> None:
    before = network(1700)
    after = [op._replace(ns=op.ns * 3) if op.module.startswith("blocks.900.") else op for op in before]
    opened(tab, before, after, tmp_path)
    assert len(boxes(tab)) < 120
    tab.value("document.querySelector('.graph-changed input').click()")
    labels = boxes(tab)
    assert any(label.startswith("Convolution") and "blocks.900.conv" in label for label in labels) or any(
        label.startswith("blocks.900") for label in labels
    )
    assert len(labels) < 10
    tab.value("document.querySelector('.graph-changed input').click()")
    click(tab, next(label for label in boxes(tab) if label.startswith("part 2 of")))
    assert tab.errors == []


def test_model_explorer_gets_both_graphs_with_one_id_for_what_is_one(tmp_path: Path) -> None:
    both = pair(network(4), edited())
    written = {path.name: msgspec.json.decode(path.read_bytes()) for path in pair_explorer_files([both], tmp_path)}
    before, after = written["pair_graph.json"]["graphs"]
    ids = [{node["id"]: node for node in graph["nodes"]} for graph in (before, after)]
    for graph, nodes in zip((before, after), ids, strict=True):
        assert all(edge["sourceNodeId"] in nodes for node in graph["nodes"] for edge in node["incomingEdges"])
        times = written["pair_time_overlay.json"][graph["id"]]["results"]
        assert set(times) == set(nodes)
    changes = both.compared.changes
    assert changes is not None
    sums = [sum(v["value"] for v in written["pair_time_overlay.json"][name]["results"].values()) for name in ("A", "B")]
    assert sums == pytest.approx([changes.before_ms, changes.after_ms])
    assert all(ids[0][both]["namespace"] == ids[1][both]["namespace"] for both in ids[0].keys() & ids[1].keys())
    told = [overlay["results"] for overlay in written["pair_difference_overlay.json"].values()]
    whole = sum({**told[0], **told[1]}[id_]["value"] for id_ in {**told[0], **told[1]})
    assert whole == pytest.approx(sum(part.difference_ms for part in changes.told), abs=1e-4)
    # Noise has no overlay.
    same = pair_explorer_files([pair(network(4), network(4))], tmp_path / "same")
    assert sorted(path.name for path in same) == ["pair_graph.json", "pair_time_overlay.json"]


def test_the_graph_of_two_experiments_is_a_command(measured_run: Path, tmp_path: Path) -> None:
    page, on = tmp_path / "both.html", next(name for name in Run.open(measured_run).shown if name.endswith("_on"))
    sides = [f"{measured_run}:{on.removesuffix('_on')}_off", f"{measured_run}:{on}"]
    done = kit("graph", *sides, "--out", page)
    assert done.returncode == 0, done.stderr
    assert done.stdout.strip() == str(page) and "Graph of two programs" in page.read_text()
    done = kit("graph", *sides, "--out", tmp_path / "explorer", "--model-explorer")
    assert done.returncode == 0 and "model-explorer " in done.stdout, done.stderr
    assert (tmp_path / "explorer" / "pair_graph.json").is_file()
    for words, said in (
        ([measured_run, measured_run], "--out"),
        ([measured_run, measured_run, "--json"], "compare --json"),
        ([measured_run, "--model-explorer"], "report"),
    ):
        refused = kit("graph", *words)
        assert refused.returncode == 2 and said in refused.stderr
