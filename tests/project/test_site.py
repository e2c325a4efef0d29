"""The site as a reader meets it: built once, opened from a disk in a real browser, wide and on a phone."""

import importlib.util
import os
import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

import sme2_kit
from tests.conftest import ROOT, SAMPLED, needs
from tests.helpers.chromium import BINARY, Tab, chromium
from tests.helpers.gallery import gallery_program

pytestmark = pytest.mark.wide
# Of each picture; what is further down does not change what is asked here.
WIDTHS, HEIGHT = (1280, 390), 640
# What a page loads by itself; where a link leads is the reader's choice.
_LOADED = re.compile(
    r"""<(?:script|link|img|iframe|source)\b[^>]*\b(?:src|href)=["']?(?:https?:)?//[^>]*>|@import|url\(["']?http"""
)
# What only the extras `export`, `run` and `wide` bring.
ABSENT = ("torch", "torchao", "executorch", "pandas", "mcp", "ray")
# An empty page of this size is packed to less.
_BLANK_BYTES = 8000


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Path:
    needs(all(importlib.util.find_spec(name) for name in ("material", "mkdocstrings_handlers")), "the docs extra")
    home = tmp_path_factory.mktemp("site") / "site"
    # As `make docs` has it, which installs no torch.
    code = f"import sys; sys.modules.update(dict.fromkeys({ABSENT})); from mkdocs.__main__ import cli; cli()"
    command = [sys.executable, "-c", code, "build", "--strict", "--site-dir", str(home)]
    environment = {**os.environ, "PYTHONPATH": str(ROOT), "NO_MKDOCS_2_WARNING": "1"}
    done = subprocess.run(command, cwd=ROOT, env=environment, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    assert 'not included in the "nav"' not in done.stdout + done.stderr, "a page cannot be reached"
    return home


@pytest.fixture(scope="module")
def tab() -> Iterator[Tab]:
    needs(BINARY is not None, "chromium")
    needs(importlib.util.find_spec("websocket") is not None, "websocket-client")
    with chromium() as opened:
        yield opened


def pages(site: Path) -> list[Path]:
    """Every page, reports of the gallery too; not the page for addresses that do not exist."""
    return [page for page in sorted(site.rglob("*.html")) if page.name != "404.html"]


def test_every_page_fits_its_window_and_asks_no_other_host(site: Path, tab: Tab, tmp_path: Path) -> None:
    assert len(pages(site)) > 30
    for number, page in [*enumerate(pages(site))][:: 3 if SAMPLED else 1]:
        tab.requests.clear()
        tab.errors.clear()
        name = str(page.relative_to(site))
        colours = ("light", "dark")[number % 2]
        tab.colours(colours)
        tab.open(page, WIDTHS[0], HEIGHT)
        for width in WIDTHS:
            tab.resize(width, HEIGHT)
            assert tab.value("document.documentElement.scrollWidth <= innerWidth"), f"{name} scrolls at {width} px"
        shot = tab.picture()
        (tmp_path / f"{name.replace('/', '_')}-{width}-{colours}.png").write_bytes(shot)
        assert len(shot) > _BLANK_BYTES, f"{name} is empty at {width} px"
        assert tab.errors == [], name
        assert [url for url in tab.requests if not url.startswith((f"{site.as_uri()}/", "data:"))] == [], name


def test_no_file_of_the_site_would_load_anything_from_another_host(site: Path) -> None:
    for path in site.rglob("*"):
        if path.suffix in (".html", ".css"):
            assert (found := _LOADED.search(path.read_text())) is None, f"{path}: {found}"


def test_search_finds_a_page_from_a_disk(site: Path, tab: Tab) -> None:
    tab.open(site / "index.html", 1280)
    tab.value("document.querySelector('[data-md-toggle=search]').click()")
    tab.value("document.querySelector('.md-search__input').focus()")
    tab.write("preempted")
    found = """new Promise((done) => { const begun = Date.now(); const look = () => {
        const links = [...document.querySelectorAll('.md-search-result__link')].map((link) => link.href);
        if (links.length || Date.now() - begun > 20000) done(links); else setTimeout(look, 50); }; look(); })"""
    assert any("measurement.html" in link for link in tab.value(found))


def test_diagrams_follow_the_colours_of_the_page_and_say_what_they_show(site: Path, tab: Tab) -> None:
    colour = "getComputedStyle(document.querySelector('.diagram .box')).fill"
    seen = []
    for scheme in ("light", "dark"):
        tab.colours(scheme)
        tab.open(site / "01-overview.html", 1280)
        seen.append(tab.value(colour))
    # What a reader switches to holds, whatever the system says.
    tab.value("document.body.setAttribute('data-md-color-scheme', 'default')")
    assert tab.value(colour) == seen[0] != seen[1]
    named = "[...document.querySelectorAll('.diagram')].map((x) => x.querySelector('title').textContent.length)"
    assert min(tab.value(named)) > 10
    ids = tab.value("[...document.querySelectorAll('.diagram [id]')].map((x) => x.id)")
    assert len(ids) == len(set(ids)) >= 6


def test_the_gallerys_page_is_the_one_its_program_writes() -> None:
    regenerate = gallery_program()
    page = (ROOT / "docs" / "gallery" / "README.md").read_text()
    assert page == regenerate.gallery_page(regenerate.shown_layout(page))


def test_the_gallerys_pictures_lead_to_reports(site: Path, tab: Tab) -> None:
    tab.open(site / "gallery" / "index.html", 1280)
    links = tab.value("[...document.querySelectorAll('article a:has(> img)')].map((link) => link.href)")
    assert len(links) >= 8
    for link in links:
        assert Path(link.removeprefix("file://")).is_file(), link
    live = {link.split("/")[-2] for link in links if link.endswith("page.html")}
    shown = {path.parent.name for path in (ROOT / "docs" / "gallery").glob("*/page.html")}
    assert live >= shown - {"combined"}


def test_the_reference_has_every_function_with_its_arguments(site: Path) -> None:
    text = (site / "reference.html").read_text()
    for name in sme2_kit.__all__:
        kind = getattr(sme2_kit, name)
        if callable(kind) and name not in ("OnProgress",):
            assert f'id="{kind.__module__}.{name}"' in text, name
    assert "budget_s" in re.sub(r"<[^>]+>", "", text)


def test_pages_of_the_site_lead_to_each_other_and_show_no_marks_of_ours(site: Path) -> None:
    page = (site / "04-agent-skills.html").read_text()
    assert "skills/01_setup_workspace.html" in page
    for path in pages(site):
        assert "```" not in re.sub(r"<[^>]+>", "", path.read_text()), f"{path}: a block was not recognised"
