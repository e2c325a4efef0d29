"""Sweeps, `tune`, `history --confirm`, exports and roofs: what they found earlier holds for the machine and the
libraries that it was found with."""

import json
import shutil
from pathlib import Path
from typing import Any

import msgspec
import pytest

from model_profiling.analysis.roofs.roof_rates import Roofs
from model_profiling.analysis.roofs.run_roofs import run_roofs
from model_profiling.analysis.timing.latency import Comparison
from model_profiling.base import files
from model_profiling.base.on_progress import listen_to_notes
from model_profiling.fleet.history.bisection import Measurer
from model_profiling.fleet.history.run_history import RunHistory
from model_profiling.fleet.history.trends import KeptPrograms, ProgramComparison
from model_profiling.fleet.sweep import jobs as sweep_jobs
from model_profiling.fleet.sweep.jobs import Jobs, SweepFolder
from model_profiling.fleet.sweep.sweep_file import cells, parse
from model_profiling.pipeline.group_state import MeasuredProgram
from model_profiling.pipeline.schedule import CHOSEN
from model_profiling.pipeline.side_by_side import maker_of
from model_profiling.platforms.process_platform import LocalPlatform
from model_profiling.runner import sdk as sdks
from model_profiling.store.run_directory import RunDirectory, Turn
from model_profiling.tune.bench import RoundTurns, earlier, round_key
from tests.conftest import ROOT, kit
from tests.helpers.history_forge import Forge
from tests.helpers.roof_forge import forged_roofs

pytestmark = pytest.mark.wide

SEED = ROOT / "tests" / "data" / "fuzz_seeds" / "tiny_xnnpack_fp32.pte"
BACKEND = "libexecutorch_backend_xnnpack.so"


@pytest.fixture
def tiny(tmp_path: Path) -> Path:
    """A program without the record of its export."""
    return Path(shutil.copy(SEED, tmp_path / "tiny.pte"))


@pytest.fixture
def notes() -> Any:
    """What is said of reuse: on a busy machine it is said, too, for what one waits."""
    said: list[str] = []
    listen_to_notes(lambda note: said.append(note) if "reused" in note else None)
    yield said
    listen_to_notes()


@pytest.fixture(scope="module")
def copied(tmp_path_factory: pytest.TempPathFactory) -> sdks.Sdk:
    """ExecuTorch's libraries where they can be replaced; a runner is compiled against them once."""
    sdk = LocalPlatform().build.sdk
    root = tmp_path_factory.mktemp("sdk")
    shutil.copytree(sdk.libraries, root / "lib")
    (root / "include").symlink_to(sdk.root / "include")
    return sdks.Sdk(sdk.version, root, sdk.content)


@pytest.fixture
def libraries(copied: sdks.Sdk, monkeypatch: pytest.MonkeyPatch) -> Path:
    """They are found first by the loader, and taken for the installed."""
    shutil.copy2(LocalPlatform().build.sdk.libraries / BACKEND, copied.root / "lib" / BACKEND)
    monkeypatch.setenv("LD_LIBRARY_PATH", str(copied.root / "lib"))
    monkeypatch.setattr(sdks, "installed_sdk", lambda: copied)
    return copied.root / "lib"


def replace_backend(libraries: Path) -> None:
    with (libraries / BACKEND).open("ab") as file:
        file.write(b"\0")


def test_a_round_of_tune_is_measured_again_by_other_libraries(
    tiny: Path, libraries: Path, tmp_path: Path, notes: list[str]
) -> None:
    platform, programs = LocalPlatform(), {"fp32": MeasuredProgram(tiny, "tiny", ())}

    def now() -> tuple[str, Any]:
        maker = maker_of(platform, tiny)
        return round_key(programs, maker, 1, CHOSEN), maker

    key, maker = now()
    path = tmp_path / "round-1.json"
    files.write_json(path, RoundTurns(key, {"fp32": [Turn(0, 0.0, [1])]}, maker))
    assert earlier(path, *now(), {"fp32"}) is not None and notes == []
    # What was damaged is measured again, too.
    damaged: list[dict[str, list[Turn]]] = [
        {},
        {"fp32": []},
        {"fp32": [Turn(0, 0.0, [0])]},
        {"int8": [Turn(0, 0.0, [1])]},
    ]
    for turns in damaged:
        files.write_json(tmp_path / "damaged.json", RoundTurns(key, turns, maker))
        assert earlier(tmp_path / "damaged.json", *now(), {"fp32"}) is None
    replace_backend(libraries)
    assert earlier(path, *now(), {"fp32"}) is None
    assert notes == [f"existing results are not reused: the runner's libraries changed ({BACKEND})"]
    # Inputs decide as well.
    given = tmp_path / "input.npy"
    keys = set()
    for content in (b"1", b"2"):
        given.write_bytes(content)
        keys.add(round_key({"fp32": MeasuredProgram(tiny, "tiny", (given,))}, maker, 1, CHOSEN))
    assert len(keys | {key}) == 3


def test_a_comparison_of_kept_programs_holds_for_the_libraries_that_made_it(
    libraries: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, notes: list[str]
) -> None:
    from model_profiling.store.labels import device_name

    platform = LocalPlatform()
    device = device_name(platform.probe().environment, platform.identity)
    forge = Forge(ROOT / "tests" / "data" / "known_good_run")
    pair = ("a" * 64, "b" * 64)
    forge.series(tmp_path / "out", [1.0] * 2, list(pair), device=device)
    series = RunHistory([tmp_path]).series()[0]
    series = msgspec.structs.replace(series, platform=platform.name)
    kept = KeptPrograms([])
    measurer = Measurer(kept, platform, lambda *_: None)
    monkeypatch.setattr(measurer, "_program", lambda sha256: SEED)
    latency = Comparison("a", "b", 1.0, 0.9, 1.1, 0.95, "no difference seen", 5.0, paired=True, turns=9)
    how = (series.platform, series.device, series.threads, list(series.off), series.phase)

    def known(maker: Any) -> None:
        before, after = pair
        kept._records = [ProgramComparison(before, after, *how, "2026-01-01", "0", latency, maker=maker)]

    def asked_again(*_: object) -> Any:
        raise LookupError("it is measured")

    monkeypatch.setattr("model_profiling.fleet.history.bisection.programs_of", asked_again)
    known(maker_of(platform, SEED))
    assert measurer.compare(series, *pair).latency is latency and notes == []
    replace_backend(libraries)
    with pytest.raises(LookupError):
        measurer.compare(series, *pair)
    assert len(notes) == 1 and notes[0].endswith(f"is not reused: the runner's libraries changed ({BACKEND})")
    known(None)
    with pytest.raises(LookupError):
        measurer.compare(series, *pair)
    # On another device, what is known of that one is told as before.
    other = msgspec.structs.replace(series, device="Another CPU, 8 CPUs")
    kept._records = [msgspec.structs.replace(kept._records[0], device=other.device)]  # type: ignore[index]
    assert measurer.compare(other, *pair).latency is latency


def test_a_cell_of_a_sweep_is_finished_for_this_machine_and_these_libraries(
    tiny: Path, libraries: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    keys = {"models": [str(tiny)], "targets": ["local"], "reports": False, "runs": 2, "launches": 1}
    found = Jobs(parse(keys, "here"), cells(parse(keys, "here"), "here"), SweepFolder(tmp_path / "out"))
    (job,) = found.all
    assert job.cell is not None
    place = found.folder.run(job.cell)
    assert kit("run", tiny, "--output-root", place, "--runs", 2, "--launches", 1, "--quiet").returncode == 0
    found.note(job.cell, RunDirectory(place).manifest(), 1)
    assert json.loads(found.folder.note(job.cell).read_text())["host"] == sweep_jobs.this_host()
    assert found.is_finished(job, 1, {})
    with monkeypatch.context() as patch:
        patch.setattr(sweep_jobs, "this_host", lambda: "Another CPU, 8 CPUs")
        assert not found.is_finished(job, 1, {})
        # What another machine has measured, of a cluster or of one's own, is not judged by this one.
        found.note(job.cell, RunDirectory(place).manifest(), 1)
        assert found.is_finished(job, 1, {})
    assert found.is_finished(job, 1, {})
    replace_backend(libraries)
    assert not found.is_finished(job, 1, {})


def test_roofs_are_of_one_machine_and_of_the_libraries_they_were_measured_with(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("SME2_KIT_ROOFS", str(tmp_path / "known"))
    small = {"cpu": "Forged Core", "cores": 4, "memory_bytes": 16 << 30}

    def roofs(dtype: str, **facts: Any) -> Roofs:
        environment = small | {name: value for name, value in facts.items() if name in small}
        return msgspec.structs.replace(
            forged_roofs(dtype=dtype), environment=environment, libraries=facts.get("libraries", "x")
        )

    assert len(roofs("fp16").merged(roofs("fp32")).measurements) == 2
    for other in ({"cores": 8}, {"memory_bytes": 64 << 30}, {"libraries": "y"}):
        assert [m.dtype for m in roofs("fp16").merged(roofs("fp32", **other)).measurements] == ["fp32"], other
    run = RunDirectory(ROOT / "tests" / "data" / "known_good_run")
    manifest = run.manifest()
    name = next(name for name, record in manifest.experiments.items() if record.features)
    record = manifest.experiments[name]
    assert record.features is not None
    known = forged_roofs(dtype=manifest.model.dtype, active=record.features.active, threads=record.threads)
    manifest.environment = {**manifest.environment, **small}

    def used(**facts: Any) -> tuple[bool, str]:
        kept = msgspec.structs.replace(known, environment=small | facts, libraries=facts.get("libraries", ""))
        files.write_json(tmp_path / "roofs.json", kept)
        found = run_roofs(tmp_path, manifest)
        return found.used is not None, " ".join(found.notes)

    assert used() == (True, "")
    assert used(cores=8) == (False, "") or "left out" in used(cores=8)[1]
    assert not used(cores=8)[0] and not used(memory_bytes=64 << 30)[0]
    manifest.experiments[name] = msgspec.structs.replace(
        record, runner=msgspec.structs.replace(record.runner, libraries={BACKEND: "1"})
    )
    assert "other libraries of ExecuTorch" in used(libraries="y")[1] and used(libraries="y")[0]
    mine = manifest.experiments[name].runner.executorch_libraries
    assert used(libraries=mine) == (True, "")
