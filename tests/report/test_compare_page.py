"""The page of two programs that were compared: it adds up, claims nothing of noise, and works in a browser."""

import contextlib
import json
from collections.abc import Callable, Iterator
from pathlib import Path

import msgspec
import pytest

from model_profiling.analysis.accuracy.agreement import Agreement
from model_profiling.analysis.run.program_pair import ProgramPair
from model_profiling.cli.main import main
from model_profiling.report import change_words
from model_profiling.report.blocks import Branch, Report, Tree
from model_profiling.report.charts.frame import NARROW, WIDE
from model_profiling.report.charts.waterfall import waterfall
from model_profiling.report.content import comparison as compare_page
from model_profiling.report.drawing.drawing_process import DrawingPool
from model_profiling.report.drawing.theme import FASTER, LIGHT, SLOWER
from model_profiling.report.files.page_files import write_compared
from tests.conftest import kit
from tests.helpers.chromium import Tab
from tests.helpers.page_fit import misfits
from tests.helpers.program_forge import CONV, TRANSPOSE, Op, network, pair
from tests.helpers.run_use import RUN, command

HOSTILE = "</script><img src=x onerror=window.taken=1>"


def changed(blocks: int) -> list[Op]:
    """Return a network whose first block is slower, whose second is faster, and that has one operator more."""
    found = [op._replace(ns=op.ns / 2) if op.module.startswith("blocks.1") else op for op in network(blocks)]
    found[0] = found[0]._replace(ns=found[0].ns * 2, name=CONV.replace("F32", "QC8"))
    return [*found, Op(TRANSPOSE, 30_000, "head", "x.transpose(1, 2)", 20)]


SIX = pair(network(6), changed(6), ("fp32", "int8"))
SIX_SIDES = (SIX.before, SIX.after)
SAME = pair(network(6), network(6), ("A:net", "B:net"))


def root(report: Report) -> Branch:
    section = report.section("changes")
    assert section is not None
    return next(block for block in section.blocks if isinstance(block, Tree)).root


def levels(branch: Branch) -> Iterator[Branch]:
    yield branch
    for child in branch.children:
        yield from levels(child)


@pytest.mark.parametrize("compared", [SIX, SAME, pair(network(1), network(40))], ids=["six", "same", "grown"])
def test_times_add_up_at_every_level(compared: ProgramPair) -> None:
    whole = root(compare_page.report([compared]))
    for branch in levels(whole):
        for side in (0, 1) if branch.children else ():
            below = sum(child.cells[side].value or 0.0 for child in branch.children)
            assert below == pytest.approx(branch.cells[side].value, rel=1e-6), branch.name
    latency = compared.compared.profile.execute
    assert whole.cells[0].value == pytest.approx(latency.before_ms) and whole.cells[1].value == pytest.approx(
        latency.after_ms
    )


def test_what_changed_stands_first_and_is_unfolded_and_the_rest_is_folded_away() -> None:
    whole = root(compare_page.report([SIX]))
    names = [child.name.text for child in whole.children]
    assert set(names[:3]) == {"blocks.0", "blocks.1", "head"} and names[-1] == "5 other modules"
    assert whole.children[-1].minor and not whole.children[-1].opened
    conv = next(b for b in levels(whole) if b.name.text.startswith("conv net.py:10") and not b.minor)
    assert "dtype F32 -> QC8" in str(conv.detail) and conv.cells[2].shown.startswith("+0.0")
    assert [(op.name.text, op.detail) for op in conv.children] == [(CONV.replace("F32", "QC8"), f"was {CONV}")]
    came = next(b for b in levels(whole) if b.detail == "only after")
    assert came.name.text == TRANSPOSE and came.cells[0].shown == "-"


def test_of_a_program_against_itself_nothing_is_claimed() -> None:
    made = compare_page.report([SAME])
    difference = made.section("difference")
    assert difference is not None and "~ in all of the 19 parts" in difference.blocks[0].text  # type: ignore[union-attr]
    rows = [b for b in levels(root(made)) if b.cells[2].shown]
    assert all(b.cells[2].shown.startswith("~ (") and b.share == 0 for b in rows) and len(rows) > 19
    assert made.facts[0].value == "no difference seen"


@pytest.mark.parametrize("width", [WIDE, NARROW])
def test_the_waterfall_leads_from_before_to_now_without_a_gap(width: int) -> None:
    changes = SIX.compared.changes
    assert changes is not None
    rows = change_words.difference_rows(changes, 10)
    spec = waterfall(rows, ("A", "B"), width, LIGHT, "")
    bars = spec["layer"][0]["data"]["values"]
    assert len(bars) == len(rows) + 1 and bars[0]["high"] == changes.before_ms
    assert bars[-1]["high"] == pytest.approx(changes.after_ms)
    for bar, step in zip(bars[1:-1], rows, strict=False):
        assert bar["high"] - bar["low"] == pytest.approx(abs(step.after_ms - step.before_ms))
        assert (bar["colour"] == SLOWER) == bar["label"].startswith("+") if step.told else bar["colour"] == LIGHT.grid
    assert {FASTER, SLOWER} <= {bar["colour"] for bar in bars}
    links = [link["level"] for link in spec["layer"][1]["data"]["values"]]
    ends = [{bar["low"], bar["high"]} for bar in bars]
    assert all(level in one and level in other for level, one, other in zip(links, ends, ends[1:], strict=False))


def test_accuracy_of_both_sides_stands_beside_time() -> None:
    sides = [
        Agreement("fp32", "eager", 1e-6, 1.0, 120.0, 1.0, "agrees"),
        Agreement("int8", "eager", 0.5, 0.9, 8.0, 1.0, "differs"),
    ]
    compared = msgspec.structs.replace(SIX.compared, accuracy=sides)
    made = compare_page.report([ProgramPair(compared, SIX.before, SIX.after)])
    (outputs,) = [fact for fact in made.facts if fact.label == "Outputs"]
    assert outputs.value == "differ" and "120.0 dB before, 8.0 dB now" in outputs.note
    besides = made.section("besides")
    assert besides is not None and besides.title == "Accuracy"


def test_of_a_busy_machine_undisturbed_times_are_shown_or_none() -> None:
    latency = msgspec.structs.replace(SIX.compared.latency, contended=True)
    compared = msgspec.structs.replace(SIX.compared, latency=latency)
    made = compare_page.report([ProgramPair(compared, *SIX_SIDES)])
    assert "undisturbed" in made.alerts[0]
    assert f"{compared.profile.execute.before_ms:.3f} ms before" in made.facts[0].note
    profile = msgspec.structs.replace(compared.profile, unreliable="busy")
    none = compare_page.report([ProgramPair(msgspec.structs.replace(compared, profile=profile), *SIX_SIDES)])
    assert none.facts[0].value == "not known" and " ms" not in none.facts[0].text


def test_the_command_writes_it_where_it_is_told_and_json_stays_alone(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    experiments = sorted(path.name for path in RUN.iterdir() if path.name.endswith(("_off", "_on")))
    sides = [f"{RUN}:{name}" for name in experiments]
    done = kit("compare", *sides, "--json", "--html", cwd=tmp_path)
    (name,) = [path.name for path in tmp_path.glob("compare_*_off_*_on.html")]
    assert len(json.loads(done.stdout)) == 1 and f"Report     {name}" in done.stderr
    said = command("compare", *sides, "--html", tmp_path / "own.html")
    assert said.index("Latency") < said.index(f"Report     {tmp_path / 'own.html'}")
    with contextlib.suppress(SystemExit):
        assert main(["compare", "--html", *sides]) == 2
    assert "is compared with nothing" in capsys.readouterr().err


@pytest.fixture(scope="module")
def write(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Callable[..., Path]]:
    with DrawingPool() as artist:
        yield lambda *pairs: write_compared(pairs, artist, tmp_path_factory.mktemp("page") / "compare.html")


@pytest.fixture
def opened(tab: Tab, write: Callable[..., Path]) -> Tab:
    tab.requests.clear()
    tab.errors.clear()
    tab.open(write(SIX))
    return tab


def chosen(tab: Tab, which: str) -> list[str]:
    return list(tab.value(f"[...document.querySelectorAll('#timeline rect.{which}')].map((r) => r.dataset.experiment)"))


def test_choosing_an_operator_lights_its_counterpart_and_says_what_changed(opened: Tab) -> None:
    opened.value(
        "document.querySelector('#timeline rect[data-experiment=before][data-row=\"0\"]')"
        ".dispatchEvent(new MouseEvent('click'))"
    )
    assert chosen(opened, "chosen") == ["before"] and chosen(opened, "counterpart") == ["after"]
    said = opened.value("document.querySelector('#timeline .detail').textContent")
    assert "blocks.0.conv net.py:10" in said and "dtype F32 -> QC8" in said and " before, " in said
    assert "difference +0.0" in said and " to +0." in said and "Now: Convolution (NHWC, QC8)" in said
    assert opened.value("document.querySelectorAll('#timeline path.link.lit.slower').length") == 1
    assert opened.value("document.querySelectorAll('#timeline path.link:not(.lit).faster').length") > 0
    # With the keyboard: its counterpart, and the next one there.
    opened.value("document.querySelector('#timeline .canvas').focus()")
    opened.press("c")
    assert chosen(opened, "chosen") == ["after"]
    opened.press("n")
    assert "blocks.0.linear" in opened.value("document.querySelector('#timeline .detail').textContent")


def test_an_operator_of_one_side_has_no_counterpart_and_no_link(opened: Tab) -> None:
    opened.value(
        f"document.querySelector('#timeline rect[data-experiment=after][data-row=\"{6 * 3}\"]')"
        ".dispatchEvent(new MouseEvent('click'))"
    )
    assert "Before: nothing." in opened.value("document.querySelector('#timeline .detail').textContent")
    assert chosen(opened, "counterpart") == []
    assert opened.value("document.querySelectorAll('#timeline path.link.lit').length") == 0


def test_modules_unfold_and_what_did_not_change_can_be_hidden(opened: Tab) -> None:
    visible = "[...document.querySelectorAll('.tree .branch')].filter((b) => b.checkVisibility()).length"
    shown = opened.value(visible)
    opened.value("document.querySelectorAll('.tree details').forEach((one) => { one.open = true; })")
    everything = opened.value(visible)
    assert everything > shown
    opened.value("document.querySelector('.hide-minor').click()")
    assert 0 < opened.value(visible) < everything
    assert not opened.value("[...document.querySelectorAll('.minor')].some((b) => b.checkVisibility())")


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_the_page_fits_wide_and_narrow_windows_and_asks_for_nothing(opened: Tab, scheme: str) -> None:
    opened.colours(scheme)
    opened.value("document.querySelectorAll('.tree details').forEach((one) => { one.open = true; })")
    assert {width: misfits(opened, width) for width in (1400, 390)} == {1400: [], 390: []}
    assert opened.errors == [] and len(opened.requests) == 1


def test_several_pairs_are_one_page_with_ids_of_their_own(tab: Tab, write: Callable[..., Path]) -> None:
    tab.errors.clear()
    long = pair(network(3), network(3), ("A:" + "wide_name" * 12, "B:" + "wide_name" * 12))
    tab.open(write(SIX, SAME, long))
    ids = tab.value("[...document.querySelectorAll('[id]')].map((x) => x.id)")
    assert len(ids) == len(set(ids)) and {"difference", "difference-2", "timeline", "timeline-2"} <= set(ids)
    assert tab.value("document.querySelectorAll('.timeline svg').length") == 3 and tab.errors == []
    titles = [f"document.querySelector('#{key}-2 h2').textContent" for key in ("changes", "timeline")]
    assert [tab.value(title) for title in titles] == ["net: By module and line", "net: Both timelines"]
    assert misfits(tab, 1400) == misfits(tab, 390) == []


def test_hostile_names_are_text(tab: Tab, write: Callable[..., Path]) -> None:
    ops = [
        op._replace(name=f"{op.name}{HOSTILE}", module=f"{op.module}{HOSTILE}", code=HOSTILE, file=HOSTILE)
        for op in network(3)
    ]
    tab.errors.clear()
    tab.open(write(pair(ops, [op._replace(ns=op.ns * 2) for op in ops], (f"a{HOSTILE}", f"b{HOSTILE}"))))
    assert tab.value("window.taken ?? null") is None and tab.errors == []
    assert tab.value("document.querySelectorAll('img').length") == 0
    assert HOSTILE in tab.value("document.querySelector('h1').textContent")


@pytest.mark.wide
def test_five_thousand_operators_are_a_page_that_opens(tab: Tab, write: Callable[..., Path]) -> None:
    large = network(1667)
    page = write(pair(large, [op._replace(ns=op.ns * 1.5) if n % 7 == 0 else op for n, op in enumerate(large)]))
    assert page.stat().st_size < 12 << 20
    tab.errors.clear()
    tab.open(page)
    assert tab.value("document.querySelectorAll('#timeline rect').length") > 10_000 and tab.errors == []
    # Styles that ask much of every row take minutes here.
    tab.resize(390)
    assert tab.value("document.documentElement.scrollWidth <= innerWidth")
