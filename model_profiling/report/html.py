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
from typing import Any

import jinja2
from markupsafe import Markup, escape

from model_profiling import __version__
from model_profiling.analysis.run.program_pair import ProgramPair
from model_profiling.analysis.run.run_view import RunView
from model_profiling.analysis.timing.categories import CATEGORIES
from model_profiling.analysis.timing.profile import RUNTIME
from model_profiling.base.errors import InputError
from model_profiling.base.visible import visible, visible_values
from model_profiling.report import graph_page
from model_profiling.report.blocks import Name, Number, Report, address
from model_profiling.report.content import headline, pair_changes
from model_profiling.report.drawing.theme import CATEGORY_COLOURS, FASTER, SLOWER, for_page, ink_on
from model_profiling.report.pair_graph import pair_graph_data
from model_profiling.report.timeline_data import timeline_data
from model_profiling.report.words import ADVICE_NOTE, SME2_TITLE

_FILES = Path(__file__).parent / "page"
_SCRIPTS = ("common.js", "table.js", "whatif.js", "timeline.js", "theme.js")
_VENDOR = "vendor/dagre.min.js"
_GRAPH_SCRIPTS = (_VENDOR, "graph_tree.js", "graph_pair.js", "graph_colours.js", "graph_drawing.js", "graph.js")


def page(run: RunView, report: Report, figures: Mapping[str, tuple[str, str]]) -> str:
    """Return the whole page as text. Each figure comes twice, for wide and for narrow screens, in the light theme."""
    near = run.detailed
    graphed = bool(run.shown) and graph_page.fits_report(near)
    script = _script(*_SCRIPTS, *(_GRAPH_SCRIPTS if graphed else ()))
    return _rendered(
        "page.html",
        script,
        report=report,
        run=run,
        figures=_figures(figures),
        data=_json({**_data(near), **({"graph": graph_page.graph_data(near)} if graphed else {})}),
        graphed=graphed,
        ungraphed=bool(run.shown) and not graphed,
        graph_alone=False,
        note=ADVICE_NOTE,
        playable=run.measured and bool(run.shown),
    )


def overview(report: Report, figures: Mapping[str, tuple[str, str]], made_from: str) -> str:
    """Return a page about many runs: a report's blocks in the same frame, with nothing of one run.

    Figures are as of `page`; what a point of one stands for (its `description` in Vega-Lite) is shown where the mouse
    is. `made_from` ends the footer: what the page can be made again from.
    """
    script = _script("common.js", "table.js", "hover.js", "theme.js")
    return _rendered("overview.html", script, report=report, figures=_figures(figures), made_from=made_from)


def comparison(
    report: Report, figures: Mapping[str, tuple[str, str]], data: dict[str, Any], timelines: Sequence[str]
) -> str:
    """Return the page of compared pairs; `timelines` are the sections, pair by pair, that both timelines follow."""
    graphed = "graph" in data
    script = _script("common.js", "tree.js", "timeline.js", *(_GRAPH_SCRIPTS if graphed else ()), "theme.js")
    return _rendered(
        "compare.html",
        script,
        report=report,
        figures=_figures(figures),
        data=_json({**data, "colours": _colours()}),
        timelines=timelines,
        by_module=pair_changes.BY_MODULE,
        graphed=graphed,
        graph_alone=False,
    )


def graph(run: RunView) -> str:
    """Return a page with the graph of a run and nothing else."""
    if not run.graphs:
        raise InputError(f"no experiment of {run.directory} has finished", "Measure it again: sme2-kit run")
    script = _script("common.js", *_GRAPH_SCRIPTS, "theme.js")
    bare = run.path.is_file()
    return _rendered(
        "graph.html",
        script,
        title=f"Graph of {run.path.stem}" if bare else f"Graph of {headline.title(run)}",
        subtitle="" if bare else headline.subtitle(run),
        data=_json({"graph": graph_page.graph_data(run), "colours": _colours()}),
        graph_alone=True,
    )


def pair_graph(pairs: Sequence[ProgramPair]) -> str:
    """Return a page with the graph of both programs of each pair as one, and nothing else."""
    found = pair_graph_data(*pairs)
    if not found["graphs"]:
        raise InputError("it is not known which operators the two sides have", "Measure them again: sme2-kit run")
    names = [(pair.before.name, pair.after.name) for pair in pairs]
    return _rendered(
        "graph.html",
        _script("common.js", *_GRAPH_SCRIPTS, "theme.js"),
        title="Graph of two programs",
        subtitle="; ".join(f"{before} before, {after} now" for before, after in names),
        data=_json({"graph": found, "colours": _colours()}),
        graph_alone=True,
    )


def _rendered(template: str, script: str, **values: Any) -> str:
    """Return a page with its style and its script, which its policy allows by the hash."""
    digest = base64.b64encode(hashlib.sha256(script.encode()).digest()).decode()
    style = (_FILES / "page.css").read_text(encoding="utf-8")
    shared = {"version": __version__, "style": Markup(style), "script": Markup(script), "script_hash": digest}
    shared["sme2_title"] = SME2_TITLE
    return _environment().get_template(template).render(**shared, **values)


def _figures(figures: Mapping[str, tuple[str, str]]) -> dict[str, list[Markup]]:
    return {name: [Markup(for_page(svg)) for svg in svgs] for name, svgs in figures.items()}


@lru_cache(maxsize=1)
def _environment() -> jinja2.Environment:
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
    return Markup("").join(
        Markup("<code>{}</code>").format(part) if number % 2 else escape(part) for number, part in enumerate(parts)
    )


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
    metrics = run.summary.metrics
    experiments = {}
    for name in run.shown:
        experiment = run.summary.experiments[name]
        measured = metrics.experiments.get(name) if metrics else None
        experiments[name] = {
            "execute_ms": experiment.breakdown.execute_ms,
            "latency_ms": measured.latency.median_ms if measured and measured.latency else None,
            "categories": {entry.category: entry.ms for entry in experiment.breakdown.categories},
        }
    return {
        "experiments": experiments if run.measured else {},
        "timelines": {name: _timeline(run, name) for name in run.timelines} if run.measured else {},
        "colours": _colours(),
        "of_interest": run.of_interest,
        "labels": run.labels,
    }


def _timeline(run: RunView, experiment: str) -> dict[str, Any]:
    return timeline_data(run.timelines[experiment], run.summary.experiments[experiment].breakdown.instances)


def _json(value: object) -> Markup:
    """Return JSON that can stand inside a script element: nothing in it can end the element or begin a comment."""
    text = json.dumps(visible_values(value), separators=(",", ":"), allow_nan=False)
    return Markup(text.replace("<", "\\u003c").replace(">", "\\u003e").replace("&", "\\u0026"))
