"""A run is held against the roofs of its CPU wherever it is shown; without them, nothing else changes."""

import csv
import json
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import msgspec
import pytest

from model_profiling.analysis.roofs.roof_rates import Roofs, read_roofs, roofs_path
from model_profiling.analysis.roofs.run_roofs import roofs_of
from model_profiling.analysis.run.validation import check_staleness
from model_profiling.base import files
from model_profiling.report import charts, markdown
from model_profiling.report.blocks import Paragraph, Table
from model_profiling.report.content import whole as content
from model_profiling.report.content.roofline import at_the_roof
from model_profiling.report.drawing.theme import LIGHT
from model_profiling.report.html import run_page
from model_profiling.store.artifacts import ROOFS
from model_profiling.store.run_directory import RunDirectory
from sme2_kit import Run
from tests.conftest import needs_hardware
from tests.helpers.contract_check import check_files
from tests.helpers.roof_forge import forged_roofs
from tests.helpers.screens import whole_text

SENTENCE = "measures how fast this CPU can be"


@pytest.fixture(autouse=True)
def known(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Where roofs are known by CPU: none at first."""
    monkeypatch.setenv("SME2_KIT_ROOFS", str(tmp_path / "known"))


@pytest.fixture
def bare(measured_run: Path, tmp_path: Path) -> Path:
    """A real run without roofs."""
    copy = tmp_path / "run"
    shutil.copytree(measured_run, copy, ignore=shutil.ignore_patterns(ROOFS, "report*"))
    return copy


@pytest.fixture(scope="module")
def own_roofs(measured_run: Path) -> Roofs:
    """Roofs out of a run like any other: what toy_cnn's own operators reach at their best."""
    run = Run.open(measured_run)
    sides = {name: (run.profiles[name], run.summary.experiments[name].breakdown) for name in run.shown}
    return roofs_of(run.manifest, sides)


@pytest.fixture
def held(bare: Path, own_roofs: Roofs) -> Path:
    files.write_json(bare / ROOFS, own_roofs)
    return bare


def columns(run: Run) -> tuple[str, ...]:
    section = content.report(run).section("operators")
    assert section is not None
    return next(block.columns for block in section.blocks if isinstance(block, Table))


def shown(run: Run) -> list[str]:
    """The run as terminal, Markdown and page show it."""
    report = content.report(run)
    return [whole_text(run), markdown.render(report, {}), run_page(run, report, {})]


def test_without_roofs_one_line_says_how_to_measure_them_and_nothing_else_changes(bare: Path) -> None:
    run = Run.open(bare)
    run.save()
    for text in shown(run):
        assert text.count(SENTENCE) == 1 and "of roof" not in text and "headroom" not in text
    assert "roofline" not in charts.of_run(run, 760, LIGHT) and content.report(run).section("roofline") is None
    assert not (bare / ROOFS).exists() and run.roofs.identity == ""
    assert all(row.of_roof is None for row in run.operators)
    assert all(experiment.roofline is None for experiment in run.summary.experiments.values())


def test_with_roofs_every_form_of_a_report_says_how_near_operators_are(held: Path, own_roofs: Roofs) -> None:
    run = Run.open(held)
    run.save()
    assert "of roof" in columns(run)
    for text in shown(run):
        assert "of roof" in text and "headroom: at their roofs, all operators together would save" in text.lower()
        assert SENTENCE not in text
    markdown = shown(run)[1]
    assert "## How far from the roof" in markdown and own_roofs.cpu in markdown
    spec = charts.of_run(run, 760, LIGHT)["roofline"]
    dots = next(layer for layer in spec["layer"] if layer["mark"]["type"] == "point")["data"]["values"]
    multiply = {row.operator for row in run.operators if row.category in ("CONV", "GEMM")}
    assert {dot["category"] for dot in dots} <= {"CONV", "GEMM"} and len({dot["side"] for dot in dots}) == 2
    assert {dot["operator"].partition(" #")[0] for dot in dots} <= multiply
    assert "roofs" in check_files(held), "every JSON file is what its schema says"


def test_operators_are_listed_with_their_work_in_csv_and_python(held: Path) -> None:
    run = Run.open(held)
    run.save()
    for name in run.shown:
        instances = run.summary.experiments[name].breakdown.instances
        with next((held / name).glob("*_operators.csv")).open() as file:
            rows = list(csv.DictReader(file))
        assert [row["name"] for row in rows] == [entry.name for entry in instances]
        for row, entry in zip(rows, instances, strict=True):
            work = entry.work
            product = work.product if work else None
            assert [row[size] for size in "mnk"] == ([str(getattr(product, s)) for s in "mnk"] if product else [""] * 3)
            assert row["bytes_read"] == (str(work.read_bytes) if work else "")
            assert bool(row["of_roof"]) == bool(row["headroom_ms"])
        assert any(float(row["of_roof"]) > 0 for row in rows if row["of_roof"])
        with next((held / name).glob("*_ops_stats.csv")).open() as file:
            added = {row["operator"]: row for row in csv.DictReader(file)}
        for record in run.operators:
            if record.experiment == name and record.multiply_accumulates is not None:
                assert added[record.operator]["multiply_accumulates"] == str(record.multiply_accumulates)
    best = max(row.of_roof for row in run.operators if row.of_roof is not None)
    assert 0 < best < 2


def test_a_run_keeps_only_the_roofs_it_needs_and_says_the_same_without_the_cache(bare: Path, own_roofs: Roofs) -> None:
    """Those of its features and threads, in all dtypes: what another dtype would take is predicted from them."""
    first_of_all = own_roofs.measurements[0]
    int8 = msgspec.structs.replace(first_of_all, dtype="int8")
    other = msgspec.structs.replace(first_of_all, active=[*first_of_all.active, "sme2"], disabled=["unheard of"])
    everything = msgspec.structs.replace(own_roofs, measurements=[int8, other, *own_roofs.measurements])
    cached = roofs_path(own_roofs.cpu)
    cached.parent.mkdir(parents=True, exist_ok=True)
    files.write_json(cached, everything)
    try:
        first = Run.open(bare)
        first.save()
        said = shown(first)[1]
    finally:
        cached.unlink()
    kept = read_roofs(bare / ROOFS)
    assert [entry.dtype for entry in kept.measurements].count("int8") == 1 and other not in kept.measurements
    assert len(kept.measurements) == 1 + len(own_roofs.measurements)
    again = Run.open(bare)
    assert shown(again)[1] == said and again.sources == first.sources


def test_other_roofs_make_another_state_of_the_run(bare: Path, own_roofs: Roofs) -> None:
    without = Run.open(bare)
    without.save()
    files.write_json(bare / ROOFS, own_roofs)
    with_them = Run.open(bare)
    assert with_them.sources != without.sources
    outdated = with_them.save()
    assert not outdated, "all files of an analysis are written again"
    assert not check_staleness(RunDirectory(bare)).stale
    faster = msgspec.structs.replace(own_roofs.measurements[0], executions=99)
    changed = msgspec.structs.replace(own_roofs, measurements=[faster, *own_roofs.measurements[1:]])
    files.write_json(bare / ROOFS, changed)
    assert Run.open(bare).sources != with_them.sources


DAMAGES: list[Callable[[dict[str, Any]], object]] = [
    lambda data: data["measurements"][0]["probes"][0].update(best_ms=-1),
    lambda data: data["measurements"][0]["probes"][0]["work"].update(read_bytes=10**30),
    lambda data: data.update(schema=99),
    lambda data: data.clear(),
]


def test_damaged_roofs_are_a_note_and_break_no_report(bare: Path, own_roofs: Roofs) -> None:
    texts = ["{ no json"]
    for damage in DAMAGES:
        data = json.loads(msgspec.json.encode(own_roofs))
        damage(data)
        texts.append(json.dumps(data))
    places = [bare / ROOFS, roofs_path(own_roofs.cpu)]
    places[1].parent.mkdir(parents=True, exist_ok=True)
    # Of all kinds of damage in a run, and of two in the cache.
    for place, text in [(places[0], text) for text in texts] + [(places[1], text) for text in texts[:2]]:
        place.write_text(text)
        run = Run.open(bare)
        assert any(note.startswith("roofs are left out") for note in run.summary.notes), text[:80]
        assert "of roof" not in columns(run)
        place.unlink()
    places[0].write_text(texts[0])
    run = Run.open(bare)
    run.save()
    assert all("roofs are left out" in text for text in shown(run)[:2])
    places[0].unlink()


def test_roofs_of_another_cpu_are_not_used(bare: Path, own_roofs: Roofs) -> None:
    files.write_json(bare / ROOFS, msgspec.structs.replace(own_roofs, cpu="Another Core"))
    run = Run.open(bare)
    assert "of roof" not in columns(run) and any("is of Another Core" in note for note in run.summary.notes)


def test_roofs_of_other_threads_features_or_dtypes_do_not_fit(bare: Path, own_roofs: Roofs) -> None:
    fits = own_roofs.measurements[0]
    for change, command in (
        ({"threads": 2}, "sme2-kit roofs --dtype fp16"),
        ({"dtype": "fp32"}, "sme2-kit roofs --dtype fp16"),
        ({"active": [*fits.active, "sme2"]}, ""),
    ):
        others = [msgspec.structs.replace(entry, **change) for entry in own_roofs.measurements]
        files.write_json(bare / ROOFS, msgspec.structs.replace(own_roofs, measurements=others))
        run = Run.open(bare)
        assert "of roof" not in columns(run) and run.roofs.command == command


def edited(run: Path, change: Callable[[dict[str, Any]], None]) -> Run:
    manifest = json.loads((run / "manifest.json").read_text())
    change(manifest)
    (run / "manifest.json").write_text(json.dumps(manifest))
    return Run.open(run)


def test_an_emulated_run_has_no_roofline_whatever_lies_in_it(held: Path) -> None:
    run = edited(held, lambda manifest: manifest.update(timing="emulated"))
    assert run.roofs.used is None and run.roofs.command == ""
    assert all(experiment.roofline is None for experiment in run.summary.experiments.values())
    assert "of roof" not in columns(run) and all(SENTENCE not in text for text in shown(run))


def test_without_the_program_nothing_is_said_of_roofs(held: Path) -> None:
    """Nobody knows what operators had to do, and measuring the CPU would not tell."""
    run = edited(held, lambda manifest: manifest["model"].update(path="gone.pte"))
    assert not run.rooflines and "of roof" not in columns(run)
    (held / ROOFS).unlink()
    for text in shown(Run.open(held))[:2]:
        assert SENTENCE not in text and "of roof" not in text and "roofs are left out" not in text


def test_a_dtype_that_no_probe_has_is_not_sent_to_measure(bare: Path) -> None:
    run = edited(bare, lambda manifest: manifest["model"].update(dtype="int4"))
    assert run.roofs.command == "" and all(SENTENCE not in text for text in shown(run))


def test_where_compute_is_at_its_roof_the_first_screen_says_so(bare: Path, own_roofs: Roofs) -> None:
    """A CPU that is no faster than this model: nothing but less work, or a smaller dtype, is left."""
    run = Run.open(bare)
    (name, *_) = run.of_interest
    breakdown = run.summary.experiments[name].breakdown
    # A category is at its roof if nine tenths of its time are; of depthwise convolutions the forged roofs know nothing.
    depthwise = sum(entry.ms for entry in breakdown.instances if "DWConv" in entry.name)
    needs_hardware(depthwise < 0.1 * breakdown.category("CONV").ms, "depthwise convolutions are fast in fp16")
    rates = [
        2 * entry.work.multiply_accumulates / entry.ms / 1e6
        for entry in breakdown.instances
        if entry.work is not None and entry.work.product is not None and entry.ms > 0
    ]
    record = run.manifest.experiments[name]
    assert record.features is not None
    slow = forged_roofs(own_roofs.cpu, "fp16", record.features.active, record.threads, gops=min(rates), gbps=0.001)
    files.write_json(bare / ROOFS, slow)
    held = Run.open(bare)
    sentence = at_the_roof(held, name)
    assert sentence.startswith("At the roof: CONV") and "less work or a smaller dtype" in sentence
    assert all("At the roof" in text for text in shown(held))
    section = content.report(held).section("roofline")
    assert section is not None
    words = " ".join(block.text for block in section.blocks if isinstance(block, Paragraph))
    assert "above the roof, up to" in words and "in a nearer cache" in words
    assert "load 0.1 when it began" in words and "measure them again with `sme2-kit roofs`" in words
