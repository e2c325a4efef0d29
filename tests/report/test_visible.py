"""Text of others reaches people as text: no file and no terminal gets a character of it that commands or misleads."""

import json
import os
import re
import xml.etree.ElementTree as ET
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from model_profiling.base import files, printing
from model_profiling.base.errors import InputError
from model_profiling.base.visible import SPACES, visible
from model_profiling.fleet.history.history_records import as_csv
from model_profiling.fleet.history.run_history import RunHistory
from model_profiling.fleet.history.trend_page import page_report
from model_profiling.fleet.history.trends import Trend
from model_profiling.fleet.sweep import portfolio
from model_profiling.fleet.sweep.result import CellRecord, CellResult, SweepResult
from model_profiling.report import html, markdown
from model_profiling.store.run_directory import Manifest
from tests.helpers.run_forge import forge_run
from tests.helpers.run_use import RUN, use_all

# C0, DEL, C1; marks and overrides of direction; what has no width; separators of lines; half a character; private use.
HOSTILE = (
    "\x00\x07\x08\x0b\r\x1b[2J\x1b]0;owned\x07\x7f\x85\x9b31m\u061c\u200b\u200d\u200e\u200f\u2028\u2029\u202a\u202e"
    "\u2060\u2066\u2069\ufeff\U000e0001\ue000"
)


def raw(text: str) -> set[str]:
    """The characters of a text that must not be in a file or on a terminal."""
    return {character for character in text if not character.isprintable() and character not in f"\n\t{SPACES}"}


@settings(max_examples=80, deadline=None)
@given(st.text(st.characters(), max_size=40))
def test_any_text_becomes_visible_and_stays_the_same_data_in_json(text: str) -> None:
    shown = visible(text)
    assert not raw(shown) and visible(shown) == shown
    assert shown == text or raw(text)
    shown.encode()
    quoted = json.dumps(text, ensure_ascii=False)
    assert json.loads(visible(quoted)) == text
    error = InputError(text, text).within(text)
    assert not raw(f"{error} {error.message} {error.hint}") and error.names(text)
    assert not raw(printing.clean(text))


def test_what_is_printed_as_json_and_written_as_json_is_the_same_data(
    capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    printing.say_json({HOSTILE: [HOSTILE]})
    printed = capsys.readouterr().out
    files.write_json(tmp_path / "x.json", {HOSTILE: [HOSTILE]})
    written = (tmp_path / "x.json").read_bytes().decode()
    assert not raw(printed) and not raw(written)
    assert json.loads(printed) == json.loads(written) == {HOSTILE: [HOSTILE]}


def _hostile(value: Any) -> Any:
    """Plain data with hostile text at the end of every text in it."""
    if isinstance(value, dict):
        return {key: _hostile(item) for key, item in value.items()}
    if isinstance(value, list):
        return [_hostile(item) for item in value]
    return value + HOSTILE if isinstance(value, str) else value


def _change(manifest: Manifest) -> None:
    manifest.kit_version += HOSTILE
    manifest.platform += HOSTILE
    manifest.device = manifest.labels["key"] = HOSTILE
    manifest.config |= {"command": f"sme2-kit run {HOSTILE}", "directory": f"/{HOSTILE}"}
    manifest.environment = _hostile(manifest.environment) | {f"a{HOSTILE}": {HOSTILE: [HOSTILE]}}


def _hostile_records(path: Path) -> None:
    """Hostile text in what the manifest says of experiments, as far as no file is named by it."""
    manifest = json.loads(path.read_text())
    for record in manifest["experiments"].values():
        record |= {"notes": [HOSTILE], "backends": [HOSTILE], "partial": HOSTILE, "workspace": HOSTILE}
        record["runner"] = _hostile(record["runner"]) | {"kind": record["runner"]["kind"]}
        record["disable_features"] = [HOSTILE]
    manifest["model"] |= {"dtype": f"fp16{HOSTILE}", "dtypes": {f"fp16{HOSTILE}": 0.6, f"fp32{HOSTILE}": 0.4}}
    path.write_text(json.dumps(manifest))


@pytest.fixture(scope="module")
def hostile_run(tmp_path_factory: pytest.TempPathFactory) -> Path:
    home = forge_run(RUN, tmp_path_factory.mktemp("hostile") / "run", 12, 4, lambda name: f"{name}{HOSTILE}", _change)
    _hostile_records(home / "manifest.json")
    return home


def _texts(folder: Path) -> Iterator[tuple[str, str]]:
    for path in sorted(folder.rglob("*")):
        if path.suffix in (".md", ".html", ".csv", ".json", ".xml", ".svg", ".txt"):
            yield path.name, path.read_bytes().decode()


def test_nothing_that_is_printed_or_written_of_a_hostile_run_is_obeyed(
    hostile_run: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    for name, said in use_all(hostile_run).items():
        assert not said.startswith("error: "), (name, said)
        assert not raw(said), name
    seen = dict(_texts(hostile_run.parent))
    wanted = {"report.md", "report.html", "graph.html", "junit.xml", "summary.md", "trace.json", "metrics.json"}
    assert wanted <= set(seen) and any(name.endswith(".csv") for name in seen)
    for name, text in seen.items():
        assert not raw(text), name
    for name in ("report.md", "report.html", "graph.html", "trace.json"):
        assert re.search(r"\\+u202e", seen[name]), name
    ET.fromstring(seen["junit.xml"])


def test_a_page_shows_what_its_data_hide(hostile_run: Path) -> None:
    use_all(hostile_run, "graph")
    page = (hostile_run.parent / "graph.html").read_text()
    data = re.search(r'<script type="application/json" id="data">(.*?)</script>', page, re.DOTALL)
    assert data is not None and not raw(str(json.loads(data[1])))


def test_history_of_a_hostile_run_is_shown_and_not_obeyed(
    hostile_run: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("SME2_KIT_CACHE", str(tmp_path / "cache"))
    history = RunHistory([hostile_run])
    report = page_report(Trend(history.series()), tmp_path)
    files.write_text(tmp_path / "trend.md", markdown.render(report, {}))
    files.write_text(tmp_path / "trend.html", html.page(report, {}))
    assert history.rows() and not raw(as_csv(history.rows()).decode())
    for name, text in _texts(tmp_path):
        assert not raw(text), name


def test_a_portfolio_of_hostile_names_is_shown_and_not_obeyed(tmp_path: Path) -> None:
    h = HOSTILE
    result = CellResult(h, median_ms=1.0, sme2_coverage=h, warnings=[h], unknown={"startup_ms": h})
    cells = [
        CellRecord(f"a{h}", f"m{h}", f"fp32{h}", [h], 1, f"local{h}", "measured", "finished", results=[result]),
        CellRecord(f"b{h}", f"m{h}", f"fp16{h}", [h], 1, f"local{h}", "measured", "failed", failure=h),
    ]
    portfolio.write(SweepResult(h, h, h, h, "failed", [f"local{h}"], [], cells, {h: h}), tmp_path)
    found = dict(_texts(tmp_path))
    assert set(found) == {"portfolio.html", "portfolio.md", "latencies.svg"}
    for name, text in found.items():
        assert not raw(text) and r"\u202e" in text, name


def test_a_path_that_would_command_a_terminal_is_shown(tmp_path: Path) -> None:
    if os.name == "posix":
        with pytest.raises(InputError) as caught:
            files.read_bytes(tmp_path / "a\x1b[2J\u202eb", "file")
        assert r"a\u001b[2J\u202eb" in caught.value.message
