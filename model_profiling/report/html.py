"""The HTML page: one file that works from a disk without a network, with the report's blocks and what one can try.

Names in it are not trusted. jinja2 escapes all text; data for the scripts is JSON that cannot end its element; the
scripts write text, never markup; and the page's own policy forbids any other script and every request.
"""

import base64
import hashlib
import json
from collections.abc import Mapping, Sequence
from functools import lru_cache
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

from markupsafe import Markup, escape

from model_profiling import __version__
from model_profiling.analysis.run.program_pair import ProgramPair
from model_profiling.analysis.run.run_view import RunView
from model_profiling.analysis.timing.categories import CATEGORIES
from model_profiling.analysis.timing.profile import RUNTIME
from model_profiling.base.errors import InputError
from model_profiling.base.visible import visible, visible_values
from model_profiling.report import graph_page
from model_profiling.report.blocks import Block, Name, Number, Picture, Report, Section, Table, address
from model_profiling.report.content import first_screen
from model_profiling.report.drawing.theme import CATEGORY_COLOURS, FASTER, SLOWER, for_page, ink_on
from model_profiling.report.graph_page import pair_graph_data, timeline_data
from model_profiling.report.words import ADVICE_NOTE

if TYPE_CHECKING:
    import jinja2

_FILES = Path(__file__).parent / "page"
_VENDOR = "vendor/dagre.min.js"
# The scripts of each kind of section that one can work with.
_SCRIPTS: dict[str, tuple[str, ...]] = {
    "whatif": ("whatif.js",),
    "timeline": ("timeline.js",),
    "graph": (_VENDOR, "graph_tree.js", "graph_pair.js", "graph_colours.js", "graph_drawing.js", "graph.js"),
}

Figures = Mapping[str, tuple[str, str]]


def page(report: Report, figures: Figures, made_from: str = "", data: Mapping[str, Any] | None = None) -> str:
    """Return a report as one page. Each figure comes twice, for wide and for narrow screens, in the light theme.

    `made_from` ends the footer: what the page can be made again from; `data` is what its scripts work on. What a point
    of a figure stands for (its `description` in Vega-Lite) is shown where the mouse is.
    """
    widgets = dict.fromkeys(section.widget for section in report.sections if section.widget)
    script = _script("page.js", *(name for widget in widgets for name in _SCRIPTS[widget]))
    tables = any(isinstance(each, Table) for group in report.opening for each in group)
    return (
        _environment()
        .get_template("page.html")
        .render(
            version=__version__,
            style=Markup((_FILES / "page.css").read_text(encoding="utf-8")),
            script=Markup(script),
            # The page's policy allows its script by the hash.
            script_hash=base64.b64encode(hashlib.sha256(script.encode()).digest()).decode(),
            report=report,
            figures={name: [Markup(for_page(svg)) for svg in svgs] for name, svgs in figures.items()},
            parts=lambda section: _parts(section, figures),
            made_from=made_from,
            data=_json(data or {}),
            note=ADVICE_NOTE,
            pictured=tables and report.picture is not None and report.picture.chart in figures,
        )
    )


class PagePart(NamedTuple):
    """Some blocks of a section; what a picture shows already is folded."""

    blocks: list[Block]
    folded: bool


def _parts(section: Section, figures: Figures) -> list[PagePart]:
    """Return the blocks of a section in order; of one that is not folded itself, tables below a picture are."""
    found: list[PagePart] = []
    for block in section.blocks:
        picture = isinstance(block, Picture)
        if found and not picture and not isinstance(found[-1].blocks[-1], Picture):
            found[-1].blocks.append(block)
        else:
            after = bool(found) and not picture and isinstance(block, Table)
            found.append(PagePart([block], after and not section.folded and bool(figures)))
    return found


def run_page(run: RunView, report: Report, figures: Figures) -> str:
    """Return the page of a run, with its timeline and, if it is small enough, its graph."""
    graphed = any(section.widget == "graph" for section in report.sections)
    data = _data(run.detailed) | ({"graph": graph_page.graph_data(run.detailed)} if graphed else {})
    made_from = f"with kit {run.manifest.kit_version}; everything here can be made again from the run directory."
    return page(report, figures, made_from, data)


def comparison(report: Report, figures: Figures, data: dict[str, Any]) -> str:
    """Return the page of compared pairs."""
    return page(report, figures, "", {**data, "colours": _colours()})


def graph(run: RunView) -> str:
    """Return a page with the graph of a run and nothing else."""
    if not run.graphs:
        raise InputError(f"no experiment of {run.directory} has finished", "Measure it again: sme2-kit run")
    dump = run.path.is_file()
    title, subtitle = (run.path.stem, "") if dump else (first_screen.title(run), first_screen.subtitle(run))
    return _graph_alone(f"Graph of {title}", subtitle, graph_page.graph_data(run))


def pair_graph(pairs: Sequence[ProgramPair]) -> str:
    """Return a page with the graph of both programs of each pair as one, and nothing else."""
    found = pair_graph_data(*pairs)
    if not found["graphs"]:
        raise InputError("it is not known which operators the two sides have", "Measure them again: sme2-kit run")
    names = "; ".join(f"{pair.before.name} before, {pair.after.name} now" for pair in pairs)
    return _graph_alone("Graph of two programs", names, found)


def _graph_alone(title: str, subtitle: str, found: dict[str, Any]) -> str:
    report = Report(title, subtitle, sections=[Section("graph", "", widget="graph")])
    return page(report, {}, "layout by dagre (MIT).", {"graph": found, "colours": _colours()})


@lru_cache(maxsize=1)
def _environment() -> "jinja2.Environment":
    import jinja2  # it takes a moment to load

    environment = jinja2.Environment(
        loader=jinja2.FileSystemLoader(_FILES),
        autoescape=True,
        undefined=jinja2.StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    environment.tests["kind"] = lambda block, kind: type(block).__name__ == kind
    environment.tests["number"] = lambda cell: isinstance(cell, Number)
    environment.filters["plain"] = lambda cell: cell.text if isinstance(cell, Name) else cell
    environment.filters["inline"] = _inline
    environment.filters["address"] = address
    colours = {**CATEGORY_COLOURS, "faster": FASTER, "slower": SLOWER}
    environment.filters["colour"] = lambda name: colours.get(name, "#999999")
    return environment


def _inline(text: str) -> Markup:
    """Return plain text, in which what stands between backticks is code."""
    parts = text.split("`")
    # An odd number of pieces: every backtick has its other.
    if len(parts) % 2 == 0:
        return escape(text)
    return Markup("").join(Markup("<code>{}</code>").format(x) if n % 2 else escape(x) for n, x in enumerate(parts))


def _script(*names: str) -> str:
    # Before its hash is taken: a control character in a string of a script is as well an escape.
    bodies = visible("\n".join(_body(name) for name in names))
    return f'"use strict";\n(() => {{\n{bodies}}})();\n'


def _body(name: str) -> str:
    text = (_FILES / name).read_text(encoding="utf-8")
    if name != _VENDOR:
        return text
    # Its licence goes with every copy; its source map does not.
    licence = (_FILES / "vendor" / "dagre.LICENSE").read_text(encoding="utf-8").strip()
    return f"/* dagre\n{licence}\n*/\n{text.partition('//# sourceMappingURL')[0]}"


def _colours() -> dict[str, list[str]]:
    """Return the colour of each category, and what to write with on it."""
    return {name: [CATEGORY_COLOURS.get(name, "#999999"), ink_on(name)] for name in (*CATEGORIES, RUNTIME)}


def _data(run: RunView) -> dict[str, Any]:
    """Return what the scripts need: categories for what-if, one execution for the timeline, colours for both."""
    metrics, breakdowns = run.summary.metrics, {n: e.breakdown for n, e in run.summary.experiments.items()}
    experiments = {}
    for name in run.shown if run.measured else []:
        measured = metrics.experiments.get(name) if metrics else None
        experiments[name] = {
            "execute_ms": breakdowns[name].execute_ms,
            "latency_ms": measured.latency.median_ms if measured and measured.latency else None,
            "categories": breakdowns[name].ms_by_category,
        }
    timed = run.timelines if run.measured else {}
    timelines = {name: timeline_data(timeline, breakdowns[name].instances) for name, timeline in timed.items()}
    shown = {"experiments": experiments, "labels": run.labels, "of_interest": run.of_interest, "colours": _colours()}
    return {**shown, "timelines": {"timeline": {"timelines": timelines, "labels": run.labels}}}


def _json(value: object) -> Markup:
    """Return JSON that can stand inside a script element: nothing in it can end the element or begin a comment."""
    text = json.dumps(visible_values(value), separators=(",", ":"), allow_nan=False)
    return Markup(text.replace("<", "\\u003c").replace(">", "\\u003e").replace("&", "\\u0026"))
