"""Every reader of the kit that meets files or answers of others: its seeds, how to damage them, and how it is called.

A reader answers or raises KitError. Each works in a folder of its own that it may fill once (`prepare`).
"""

import contextlib
import functools
import io
import json
import math
import shutil
import subprocess
import tempfile
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import msgspec
import numpy as np
import pytest

from model_profiling.analysis.accuracy.agreement import expected_outputs, read_outputs
from model_profiling.analysis.accuracy.numerics import Gap, read_numerics
from model_profiling.analysis.advice.finding import Evidence
from model_profiling.analysis.compare.comparison import AutoComparison
from model_profiling.analysis.compare.metrics import compute_metrics
from model_profiling.analysis.compare.onnx_profile import onnx_side
from model_profiling.analysis.compare.runtime_comparison import read_runtimes
from model_profiling.analysis.graph.operator_work import _work
from model_profiling.analysis.movement.inverse_transposes import cancelling_transposes
from model_profiling.analysis.movement.layout_reasons import explain_layout, moved_bytes
from model_profiling.analysis.process.memory import memory, program_memory
from model_profiling.analysis.roofs.roof_rates import Rates, read_roofs
from model_profiling.analysis.roofs.roof_table import kind_rows, roof_rows
from model_profiling.analysis.roofs.roofline import roofline
from model_profiling.analysis.roofs.run_roofs import run_roofs
from model_profiling.analysis.run.dumps import describe, read_timeline
from model_profiling.analysis.run.selection import choose
from model_profiling.analysis.run.summary import analyse_run
from model_profiling.analysis.run.validation import check_staleness, problems
from model_profiling.analysis.sme2.coverage import Coverage, CoveredOperator
from model_profiling.analysis.sme2.forecast_validation import (
    ForecastValidation,
    ValidatedGain,
    ValidatedModel,
    ValidatedOperator,
    check_prediction,
    read_validation,
    shared_environment,
)
from model_profiling.analysis.sme2.kernel_assignment import assign_kernels
from model_profiling.analysis.sme2.kernel_table import TableDifference, known_table, table_path
from model_profiling.analysis.sme2.sme2_forecast import Sides, derived_forecast
from model_profiling.analysis.sme2.target import Target, read_target
from model_profiling.analysis.sme2.xnntrace import read_log
from model_profiling.analysis.timing.breakdown import break_down
from model_profiling.analysis.timing.categories import load_table
from model_profiling.analysis.timing.latency import Comparison, summarise
from model_profiling.analysis.timing.latency import compare as compare_turns
from model_profiling.analysis.timing.profile import profiles
from model_profiling.base import files
from model_profiling.base.elf import read_library
from model_profiling.base.errors import InputError, KitError
from model_profiling.base.npy import read_npy
from model_profiling.cli.targets import target_text
from model_profiling.fleet.history.bisection import format_change
from model_profiling.fleet.history.history_records import as_csv
from model_profiling.fleet.history.run_history import RunHistory
from model_profiling.fleet.history.steps import with_steps
from model_profiling.fleet.history.trend_page import page_report, picture
from model_profiling.fleet.history.trends import KeptPrograms, ProgramComparison, Trend, read_comparison
from model_profiling.fleet.sweep import sweep as sweep_journal
from model_profiling.fleet.sweep import sweep_file
from model_profiling.fleet.sweep.jobs import Jobs, RunNote, SweepFolder
from model_profiling.fleet.sweep.task import TaskResult, pack, read_result, unpack
from model_profiling.formats import etdump, etrecord, onnx, pte
from model_profiling.formats.pte.dataflow import data_flow
from model_profiling.formats.pte.dtypes import program_dtype
from model_profiling.formats.pte.sequence import sequence_program
from model_profiling.formats.pte.xnnpack_graph import graphs
from model_profiling.gates.baseline import refuse_wrong_baseline
from model_profiling.pipeline.config import load_config
from model_profiling.pipeline.config_types import MOST_THREADS
from model_profiling.pipeline.defaults import checked_program
from model_profiling.pipeline.phase_experiments import Lengths, checked_tokens, chosen_phases, random_tokens
from model_profiling.pipeline.pipeline import export_record
from model_profiling.pipeline.progress_log import ProgressLog
from model_profiling.platforms.cpus import DeviceFacts, affinity_mask
from model_profiling.platforms.remote import android, board
from model_profiling.platforms.remote.android import AdbDevice
from model_profiling.platforms.remote.device import CommandOutput
from model_profiling.report import html
from model_profiling.report.charts.numerics import numerics as numerics_chart
from model_profiling.report.charts.roofs import roofs as roofs_chart
from model_profiling.report.charts.runtimes import runtimes as runtimes_chart
from model_profiling.report.content import validation as validation_page
from model_profiling.report.content.forecast import report as forecast_report
from model_profiling.report.content.numerics import report as numerics_report
from model_profiling.report.content.runtimes import report as runtimes_report
from model_profiling.report.content.runtimes import section as runtimes_section
from model_profiling.report.drawing.theme import LIGHT
from model_profiling.report.terminal import render
from model_profiling.runner.loaded_libraries import loaded_libraries
from model_profiling.runner.protocol import TensorInfo, decode_message
from model_profiling.runner.trace_file import read_trace
from model_profiling.store import transaction
from model_profiling.store.artifacts import (
    AUTO_COMPARISON,
    ROOFS,
    RUN_NUMERICS,
    RUNTIMES,
    ExportMeta,
    ExportPaths,
    RewriteChoice,
    TensorFile,
)
from model_profiling.store.derived import fingerprint, read_index
from model_profiling.store.made_by import Machine, Maker
from model_profiling.store.run_directory import MOST_TOKENS, Process, RunDirectory, Samples, Turn
from model_profiling.tune.bench import RoundTurns, earlier
from model_profiling.tune.tune_result import appended
from sme2_kit import compare as compare_runs
from tests.helpers import fuzz_mutations as mutations
from tests.helpers import onnx_forge
from tests.helpers import runtime_forge as forged_runtimes
from tests.helpers.etdump_fuzz import read_hostile
from tests.helpers.etdump_fuzz import seeds as etdump_seeds
from tests.helpers.numerics_forge import layer as forged_layer
from tests.helpers.numerics_forge import numerics as forged_numerics
from tests.helpers.numerics_forge import trial as forged_trial
from tests.helpers.roof_forge import forged_breakdown, forged_roofs, moving_work, product_work
from tests.helpers.run_forge import forge_run
from tests.helpers.run_use import use_all
from tests.helpers.screens import PLAIN

ROOT = Path(__file__).parents[2]
DATA = ROOT / "tests" / "data"
SEEDS = DATA / "fuzz_seeds"
RUN = DATA / "known_good_run"
_STEM = "tiny_xnnpack_fp32"
_ON = "linux_fp16arith_on"
_FILE = f"toy_cnn_xnnpack_fp16_{_ON}_t1"


@dataclass(frozen=True)
class Reader:
    """`read` gets damaged bytes and a folder that `prepare` has filled; one that is slow takes `share` of the cases."""

    name: str
    seeds: Callable[[], list[bytes]]
    mutate: mutations.Mutator
    read: Callable[[bytes, Path], object]
    prepare: Callable[[Path], object] = lambda folder: None
    share: float = 1.0


def _files(*paths: Path) -> Callable[[], list[bytes]]:
    return lambda: [path.read_bytes() for path in paths]


def _text(*lines: str) -> Callable[[], list[bytes]]:
    return lambda: ["\n".join(lines).encode()]


# What puts a case where its reader looks: a plain file, or another kind of file (file_kinds.py).
put: Callable[[Path, bytes], object] = Path.write_bytes


def _at(folder: Path, name: str, data: bytes) -> Path:
    path = folder / name
    put(path, data)
    return path


def _alone(use: Callable[[Path], object]) -> Callable[[bytes, Path], None]:
    """A function of one file."""

    def read(data: bytes, folder: Path) -> None:
        use(_at(folder, "case", data))

    return read


def _read_etdump(data: bytes, folder: Path) -> None:
    if read_hostile(data) is None:
        for profile in profiles(etdump.parse(data, Path("hostile.etdump")), load_table()):
            msgspec.json.encode(describe(folder, [], Evidence(break_down(profile))))


def _read_pte(data: bytes, folder: Path) -> None:
    path = _at(folder, "hostile.pte", data)
    said = program_memory(path)
    assert said is None or min(said.planned_bytes, said.all_constant_bytes) >= 0
    program = pte.read(path)
    # Each is asked for alone in some command, so a refusal of one does not hide the other.
    with contextlib.suppress(KitError):
        assert all(0 < share <= 1 for share in program_dtype(path).shares.values())
    for method in program.methods:
        with contextlib.suppress(KitError):
            for graph in graphs(program, method).values():
                assert all(node.multiply_accumulates >= 0 for node in graph.nodes)
        flow = data_flow(program, method)
        if flow is not None:
            cancelling_transposes(flow)
            [moved_bytes(flow, position) for position in range(len(flow.steps))]
            [_work(step, wide) for step in flow.steps for wide in (False, True)]
            explain_layout(flow, {})


def _read_llm(data: bytes, folder: Path) -> None:
    found = sequence_program(pte.read(_at(folder, "hostile.pte", data)))
    if found is not None:
        assert found.cache_bytes >= 0
        for phase in chosen_phases(found, Lengths()):
            read = sum(size * count for _, size, count in found.fill(phase.depth + phase.tokens))
            assert 0 <= read <= 2 * MOST_TOKENS


def _token_seeds() -> list[bytes]:
    held = io.BytesIO()
    np.save(held, np.arange(40), allow_pickle=False)
    return [held.getvalue()]


def _read_tokens(path: Path) -> None:
    random_tokens(checked_tokens(path, 8, 64), 50, 64, 0)


@functools.cache
def _blob() -> tuple[bytes, int, int]:
    """The whole program, and where XNNPACK's blob lies in it."""
    path = SEEDS / f"{_STEM}.pte"
    delegate = next(delegate for method in pte.read(path).methods for delegate in method.delegates)
    return path.read_bytes(), delegate.offset, delegate.size


def _blob_seeds() -> list[bytes]:
    whole, offset, size = _blob()
    return [whole[offset : offset + size]]


def _read_blob(data: bytes, folder: Path) -> None:
    whole, offset, size = _blob()
    _read_pte(whole[:offset] + data[:size].ljust(size, b"\0") + whole[offset + size :], folder)


def _read_etrecord(data: bytes, folder: Path) -> None:
    record = etrecord.read(_at(folder, "hostile.etrecord", data))
    etrecord.matches(record, SEEDS / f"{_STEM}.pte")
    for instruction in range(12):
        record.source(instruction)


_ORT_NODES = [("node_conv", "Conv", 50), ("relu_nchwc", "Conv", 7), ("node_linear/MatMulAddFusion", "Gemm", 20)]


def _onnx_seeds() -> list[bytes]:
    inside = onnx_forge.field(1, onnx_forge.node("node_sin", "Sin", ["x"], ["y"], 21, "b"))
    nodes = [onnx_forge.node(name, kind, ["x"], [name], 3, "a") for name, kind, _ in _ORT_NODES]
    return [onnx_forge.model(*nodes, onnx_forge.node("node_if", "If", line=4, inside=inside))]


def _read_onnx(data: bytes, folder: Path) -> None:
    assert all(node.line >= 0 for node in onnx.read(_at(folder, "hostile.onnx", data)))


def _ort_seeds() -> list[bytes]:
    branch = [
        onnx_forge.event("s", "Sin", 905, 9, [1, 4]),
        onnx_forge.event("i", "If", 901, 20),
        onnx_forge.run(900, 50),
    ]
    return [json.dumps(events).encode() for events in (onnx_forge.sequence(0, _ORT_NODES), branch)]


def _read_ort_profile(data: bytes, folder: Path) -> None:
    (folder / "net.onnx").write_bytes(_onnx_seeds()[0])
    side = onnx_side("net", folder / "net.onnx", [_at(folder, "hostile.json", data)], warmup=0)
    profile, found = side.profile, side.breakdown
    assert np.allclose(profile.times.sum(axis=0), profile.execute) and np.isfinite(found.execute_ms)


def _copy_run(folder: Path) -> None:
    shutil.copytree(RUN, folder / "run", dirs_exist_ok=True)


def _read_manifest(data: bytes, folder: Path) -> None:
    directory = RunDirectory(folder / "run")
    _at(directory.path, "manifest.json", data)
    with contextlib.suppress(KitError):
        fingerprint(directory)
    problems(directory)
    manifest = directory.manifest()
    with contextlib.suppress(KitError):
        analyse_run(directory, manifest, load_table())
    for side in choose(str(directory.path)).values():
        side.profile()


def _ask_history(folder: Path) -> None:
    """All that history answers, of a folder with one run in it."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("SME2_KIT_CACHE", str(folder / "cache"))
        history = RunHistory([folder / "run"])
    kept = KeptPrograms([str(folder / "run")])
    found = [with_steps(series, kept) for series in history.series()]
    msgspec.json.encode([history.runs(), history.top(), history.coverage(), history.rows(), found])
    if found:
        html.page(page_report(Trend(found), folder), {})
        [picture(series, 760, LIGHT, "") for series in found]
    as_csv(history.rows())


def _read_history(name: str) -> Callable[[bytes, Path], None]:
    def read(data: bytes, folder: Path) -> None:
        _at(folder / "run", f"{name}.json", data)
        _ask_history(folder)

    return read


def _compared_seeds() -> list[bytes]:
    latency = Comparison("a", "b", 0.95, 0.94, 0.96, 0.95, "slower", 0.5, True, 20)
    record = ProgramComparison("a" * 64, "b" * 64, "linux", "CPU", 1, ["dot"], "", "2026-01-01", "0.1.0", latency)
    return [msgspec.json.encode(record)]


def _read_compared(path: Path) -> None:
    format_change(read_comparison(path))


def _read_baseline(data: bytes, folder: Path) -> None:
    directory = RunDirectory(folder / "run")
    _at(directory.path, "manifest.json", data)
    refuse_wrong_baseline(str(directory.path), str(RUN), False)


def _read_metrics(data: bytes, folder: Path) -> None:
    directory = RunDirectory(folder / "run")
    put(directory.metrics_path, data)
    problems(directory)


def _read_samples(data: bytes, folder: Path) -> None:
    directory = RunDirectory(folder / "run")
    _at(directory.experiment(_ON), f"{_FILE}_samples.json", data)
    manifest = directory.manifest()
    msgspec.json.encode(compute_metrics(directory, manifest))
    choose(f"{directory.path}:{_ON}")[_ON].profile()


def _samples_seeds() -> list[bytes]:
    """Samples without processes, and with what processes say of themselves."""
    old = (RUN / _ON / f"{_FILE}_samples.json").read_bytes()
    samples = msgspec.json.decode(old, type=Samples)
    each = {name: 7 << 20 for name in Process.__struct_fields__ if name.startswith(("resident", "anonymous", "peak"))}
    times = dict.fromkeys(("before_load_ns", "program_ns", "method_ns", "first_ns"), 10**6)
    times |= {"load_ns": 3 * 10**6, "first_result_ns": 5 * 10**6, "life_ns": 6 * 10**6}
    held = [Process(launch, 0.5, 9, **each, **times, cached_percent=100, warmups=3) for launch in range(7)]
    turns = [msgspec.structs.replace(turn, resident=8 << 20) for turn in samples.timed]
    new = msgspec.structs.replace(samples, timed=turns, starts=held, processes=held)
    return [old, msgspec.json.encode(new)]


def _read_derived(data: bytes, folder: Path) -> None:
    directory = RunDirectory(folder / "run")
    _at(directory.path, "derived.json", data)
    with contextlib.suppress(KitError):
        read_index(directory)
    check_staleness(directory)


def _derived_seeds() -> list[bytes]:
    entry = {"sha256": "0" * 64, "sources": "0" * 16, "renew": "sme2-kit analyze {dir}", "others": {"../x": "0" * 16}}
    index = {"kit": "1+0", "categories": "", "files": {"metrics.json": entry, "report.md": entry}, "schema": 1}
    return [msgspec.json.encode(index)]


def _read_change(data: bytes, folder: Path) -> None:
    """What cannot be read stays as it is; what can be leads nowhere else."""
    root = folder / "run"
    home = root / ".change-0"
    home.mkdir(exist_ok=True)
    (home / "0").write_bytes(b"new")
    _at(home, "change.json", data)
    transaction.recover(root)
    assert transaction.interrupted(root) or not files.is_file(home / "change.json"), "nobody has proved it"
    with contextlib.suppress(msgspec.DecodeError, UnicodeError):
        note = msgspec.json.decode(data, type=transaction._Note)
        proved = msgspec.structs.replace(note, proof=transaction._proof_of(root, home, note))
        _at(home, "change.json", msgspec.json.encode(proved))
    transaction.recover(root)
    if home.exists():
        raise InputError("the note is left alone", "")


def _change_seeds() -> list[bytes]:
    placed = {"metrics.json": ".change-0/0", "report.html": ".change-0/1"}
    return [msgspec.json.encode({"removed": ["report.md", "x/y.csv"], "placed": placed, "proof": "0"})]


def _numerics_seeds() -> list[bytes]:
    layers = [forged_layer(0, 40.0), forged_layer(1, 10.0), forged_layer(2, None, nan=1, added=Gap(), rounded_away=0.7)]
    trials = [forged_trial(["layers.1"], 50.0), forged_trial(["layers.1", "layers.2"], None, helps=False, failure="no")]
    return [msgspec.json.encode(forged_numerics(layers)), msgspec.json.encode(forged_numerics(layers, trials=trials))]


def _read_numerics(data: bytes, folder: Path) -> None:
    found = read_numerics(_at(folder, "net_numerics.json", data))
    render(numerics_report(found), PLAIN, "whole")
    json.dumps(numerics_chart(found, 340, LIGHT, ""), allow_nan=False)
    msgspec.json.encode((found.alarms, found.worst))


def _runtimes_seeds() -> list[bytes]:
    rows = (forged_runtimes.OTHER, forged_runtimes.EXECUTORCH, forged_runtimes.FAILED)
    return [files.json_bytes(forged_runtimes.runtimes(*rows))]


def _read_runtimes(data: bytes, folder: Path) -> None:
    found = read_runtimes(_at(folder, RUNTIMES, data))
    render(runtimes_report(found), PLAIN, "whole")
    runtimes_section(found)
    json.dumps(runtimes_chart(found, 340, LIGHT, ""), allow_nan=False)


def _roofs_seeds() -> list[bytes]:
    manifest = RunDirectory(RUN).manifest()
    record = manifest.experiments[_ON]
    active = record.features.active if record.features else []
    cpu = str(manifest.environment.get("cpu"))
    return [msgspec.json.encode(forged_roofs(cpu, manifest.model.dtype, active, record.threads))]


def _validation_seeds() -> list[bytes]:
    time = check_prediction(2.0, 1.0, 1.1, 1.7, 1.9)
    held = ValidatedOperator("FC #1", "GEMM", "fully connected", "8 x 8 by 8 x 8", "as a probe gains", time)
    gain = ValidatedGain("apple_m4", 4.0, 3.0, 5.0, 2.0, 1.9, 2.1, 0.9)
    differs = TableDifference("FC #1", 3, "kai_sme2", "none", "differs", "")
    model = ValidatedModel("net", "fp16", ["sme2"], 1, time, [held], 1, traced=2, differences=[differs], gain=gain)
    environment = shared_environment("linux", ["sme2"], {"cpu": "Forged Core", "arch": "aarch64", "cores": 8})
    roofs = forged_roofs(active=["sme2"])
    return [msgspec.json.encode(ForecastValidation("2026-01-02", "1", "1.5.1", environment, roofs, [model]))]


def _read_validation(data: bytes, folder: Path) -> None:
    path = _at(folder, "forecast_validation.json", data)
    validation_page.page_report(read_validation(path))
    read_target(path).refuse(set())


def _read_roofs(data: bytes, folder: Path) -> None:
    """Alone it is refused if it is damaged; in a run it is left out, and what is kept can be reckoned with."""
    path = _at(folder / "run", ROOFS, data)
    directory = RunDirectory(folder / "run")
    manifest = directory.manifest()
    used = run_roofs(directory.path, manifest)
    for entry in used.used.measurements if used.used else []:
        roofline(_BREAKDOWN, Rates(entry), "", "")
    roofs = read_roofs(path)
    roof_rows(roofs)
    kind_rows(roofs)
    roofs_chart(roofs.measurements, 340, LIGHT, "")


def _target_seeds() -> list[bytes]:
    kit = [
        (ROOT / "model_profiling" / "targets" / f"{name}.json").read_bytes() for name in ("apple_m4_pro", "arm_phone")
    ]
    on = forged_roofs(dtype="fp32", active=["sme2"], gops=400, element="fp32")
    return [*kit, msgspec.json.encode(on.merged(forged_roofs(dtype="fp32", disabled=["sme2"], element="fp32")))]


def _read_target(data: bytes, folder: Path) -> None:
    """What a target is asked for: to be shown, and the forecast of a run whose .pte tells the work of its operators."""
    target = read_target(_at(folder, "target.json", data))
    if isinstance(target, Target):
        target_text(target)
    record = RunDirectory(RUN).manifest().experiments[_ON]
    for threads in (1, 3, MOST_THREADS):
        with contextlib.suppress(KitError):
            found = derived_forecast(_SIDES, target, msgspec.structs.replace(record, threads=threads))
            msgspec.json.encode(found)
            assert 0 < found.predictions[0].predicted_ms < math.inf
            with contextlib.redirect_stdout(io.StringIO()):
                render(forecast_report("net", [found]), PLAIN, "whole")


def _kernel_table_seeds() -> list[bytes]:
    table = msgspec.json.decode((ROOT / "model_profiling" / "kernel_tables" / "1.5.1.json").read_bytes())
    return [msgspec.json.encode(table | {"executorch": "9.9", "rows": table["rows"][:20]})]


def _read_kernel_table(data: bytes, folder: Path) -> None:
    """A table that a user made, and what it is asked for."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("SME2_KIT_CACHE", str(folder))
        table_path("9.9").parent.mkdir(exist_ok=True)
        put(table_path("9.9"), data)
        table = known_table("9.9")
    for row in table.rows if table is not None else ():
        assert table is not None and table.find(row.node) is not None
        table.dtypes_with_sme2(row.node)


_SHAPES = [(64, 64, 64), (1, 4096, 4096), (1, 1, 1), (1 << 16, 512, 512), (65, 7, 3)]
_PRODUCTS = forged_breakdown(
    [("fully connected", product_work(*shape, element="fp32"), 0.1) for shape in _SHAPES] + [("copy", None, 0.1)]
)
_COVERED = [
    CoveredOperator(x.name, x.category, x.kind, x.where, x.dtype, x.instruction, "SME2", [], None, "", "")
    for x in _PRODUCTS.instances[: len(_SHAPES)]
]
_SIDES = Sides("on", _PRODUCTS, Coverage(len(_COVERED), len(_COVERED), 0, None, None, "", _COVERED), [])

_BREAKDOWN = forged_breakdown(
    [("conv2d", product_work(64, 64, 64), 0.1), ("transpose", moving_work(4096), 0.1), ("copy", moving_work(1), 0.1)]
)


def _prepare_export(folder: Path) -> None:
    shutil.copy(SEEDS / f"{_STEM}.pte", folder)


def _read_export_meta(data: bytes, folder: Path) -> None:
    _at(folder, "export_meta.json", data)
    record = export_record(ExportPaths(folder / f"{_STEM}.pte"))
    if record is not None:
        expected_outputs(folder, record)


def _read_npy(data: bytes, folder: Path) -> None:
    _at(folder, "output.npy", data)
    record = msgspec.json.decode((SEEDS / "export_meta.json").read_bytes(), type=ExportMeta).exports[_STEM]
    outputs = [msgspec.structs.replace(record.outputs[0], file="output.npy")]
    for array in expected_outputs(folder, msgspec.structs.replace(record, outputs=outputs)):
        assert array.nbytes <= len(data)


def _read_kernel_trace(data: bytes, folder: Path) -> None:
    trace = read_trace(_at(folder, "hostile_kernel_trace.txt", data))
    assign_kernels(trace, etdump.read(DATA / "etdump" / "cnn_fp32.etdump"))


def _kernel_trace_seeds() -> list[bytes]:
    dump = etdump.read(DATA / "etdump" / "cnn_fp32.etdump")
    clock = 0
    lines: list[str] = []
    for index in range(len(dump.events)):
        if dump.events.delegated[index]:
            if not lines:
                lines += ["xnn_invoke_runtime 1", f"- {clock}"]
            clock += int(dump.events.duration[index])
            lines += [f"kai_run_matmul_clamp_f32_f32p2vlx1_f32p2vlx1b_sme2_mopa {index + 1}", f"- {clock}"]
    return ["\n".join([*lines, "end", ""]).encode()]


def _read_line(data: bytes, folder: Path) -> None:
    # What the session says of it is a KitError; a line that is no message must be told from every other failure.
    with contextlib.suppress(msgspec.DecodeError):
        decode_message(data)


_LINES = _text(
    '{"event":"ready","method":"forward","threads":1,"load_ns":12,"warmup_ns":[1,2],"backends":["XnnpackBackend"],'
    '"inputs":[{"shape":[1,2],"dtype":"float32"}],"outputs":[{"shape":[1],"dtype":"float16","nonfinite":0}]}'
)


def _read_sweep_file(data: bytes, folder: Path) -> None:
    path = _at(folder, "sweep.json", data)
    asked = sweep_file.load(path)
    jobs = Jobs(asked, sweep_file.cells(asked, str(path)), SweepFolder(folder / "out"))
    assert all(Path(job.subject).name == job.subject for job in jobs.all)
    list(jobs.finished({}))


_SWEEPS = _text(
    '{"models": ["toy_cnn", {"model": "ds_cnn", "name": "d", "set": ["a=1"], "input": ["1,3,8,8"]}], "dtypes": ["fp32",'
    '"int8"], "rewrites": [[], "layout", ["norm", "mean"]], "threads": [1, 2], "targets": ["local", "emulator",'
    '"ssh:b", {"platform": "android", "device": "x", "cool_down": 30}], "exclude": [{"model": "d", "threads": [2]}],'
    '"runs": 3, "budget_s": 1.5, "labels": {"a": "b"}, "output": "out_x", "reports": false}'
)


def _read_sweep_state(data: bytes, folder: Path) -> None:
    """What a sweep finds of itself: a damaged journal or note means that a job is not finished."""
    sweep_journal.Journal(_at(folder, "journal.jsonl", data))
    asked = sweep_file.parse({"models": [str(SEEDS / f"{_STEM}.pte")]}, "here")
    jobs = Jobs(asked, sweep_file.cells(asked, "here"), SweepFolder(folder / "out"))
    note = jobs.folder.note(jobs.cells[0])
    note.parent.mkdir(parents=True, exist_ok=True)
    put(note, data)
    list(jobs.finished({}))


def _unpack(data: bytes, folder: Path) -> None:
    home = folder / "unpacked"
    shutil.rmtree(home, ignore_errors=True)
    unpack(data, home)


def _node_results() -> list[bytes]:
    parcel = memoryview(pack(SEEDS, ["export_meta.json"]))
    return [
        msgspec.msgpack.encode(TaskResult("node", 1.5, "no device", "plug it in", parcel, "run: 1 of 2\n", 1.0, 2.5))
    ]


def _read_node_result(data: bytes, folder: Path) -> None:
    """What a machine of a cluster answers, and the files in it."""
    _unpack(bytes(read_result(data).parcel), folder)


def _sweep_states() -> list[bytes]:
    entry = sweep_journal.JournalEntry("2026-11-16T16:40:48+00:00", "finished", "run a", 1, 1.5)
    return [msgspec.json.encode(state) for state in (RunNote("key", 1, {"linux_on": "print session"}), entry)]


def _config_seeds() -> list[bytes]:
    """The kit's own configs, each for a model that exists; tests run at the top of the repository."""
    root = ROOT
    configs = sorted((root / "model_profiling" / "configs").rglob("*.json"))
    model = (SEEDS / f"{_STEM}.pte").relative_to(root).as_posix()
    return [
        msgspec.json.encode({**msgspec.json.decode(path.read_bytes()), "model": model})
        for path in configs
        if "schema" not in path.name
    ]


def _read_categories(data: bytes, folder: Path) -> None:
    table = load_table(_at(folder, "categories.json", data))
    table.classify("Convolution (NHWC, F32) IGEMM #1", True)
    table.classify("native_call_my::op.out", False)


_CATEGORIES = _text(
    '{"operators": {"my_op.out": "CONV", "Transpose*": {"category": "Other", "kind": "layout"}, "a::b?[c]": "GEMM"}}'
)


def _read_timeline(data: bytes, folder: Path) -> None:
    profile = read_timeline(_at(folder, "timeline.csv", data), load_table())
    with np.errstate(all="ignore"):
        break_down(profile)


class _Answers(AdbDevice):
    """A device that says the same text to everything it is asked; the readers look for what they know in it."""

    def __init__(self, said: str) -> None:
        self._said = said
        super().__init__("", "fuzzed")

    def _run(self, arguments: list[str], timeout_s: float) -> "subprocess.CompletedProcess[str]":
        return subprocess.CompletedProcess(arguments, 0, "shell_v2", "")

    def shell(self, *words: str, timeout_s: float = 0.0) -> CommandOutput:
        return CommandOutput(0, self._said, "")


def _probed(probe: Callable[[Any], DeviceFacts]) -> Callable[[bytes, Path], None]:
    def read(data: bytes, folder: Path) -> None:
        facts = probe(_Answers(data.decode(errors="replace")))
        msgspec.json.encode(facts.environment)
        for affinity in ("big", "mid", "little"):
            affinity_mask(affinity, facts.clusters)

    return read


_ADB = _text(
    *("[ro.product.cpu.abi]: [arm64-v8a]", "[ro.product.model]: [Phone 9]", "[ro.soc.manufacturer]: [Maker]"),
    *("Features\t: fp asimd asimdhp asimddp sve2 sme2", "0 1 2 3|1800000", "4 5 6|2800000", "7|3300000"),
    *("MemTotal:        7654321 kB", "  level: 83", "  temperature: 312", "  AC powered: true", "Thermal Status: 0"),
    *("Temperature{mValue=36.5, mType=3, mName=skin, mStatus=0}", "--- battery", "  temperature: 312"),
    *("--- limits", "1800000 2800000 3300000"),
)

_BOARD = _text(
    *("--- sme2-kit: uname", "Linux", "aarch64", "6.1.0-rpi7"),
    *("--- sme2-kit: os", 'PRETTY_NAME="Debian GNU/Linux 12 (bookworm)"'),
    *("--- sme2-kit: board", "Raspberry Pi 5 Model B Rev 1.0"),
    *("--- sme2-kit: machine_id", "0123456789abcdef0123456789abcdef", "--- sme2-kit: name", "board"),
    *("--- sme2-kit: cpuinfo", "processor\t: 0", "Features\t: fp asimd asimdhp asimddp sme2"),
    *("CPU implementer\t: 0x41", "CPU part\t: 0xd0b"),
    *("--- sme2-kit: clusters", "0 1|1800000", "2|2000000", "3|2400000"),
    *("--- sme2-kit: governors", "ondemand", "--- sme2-kit: khz", "1500000"),
    *("--- sme2-kit: memory", "MemTotal:        8256000 kB", "--- sme2-kit: load", "0.10 0.20 0.30 1/200 4321"),
    *("--- sme2-kit: libc", "ldd (Debian GLIBC 2.36) 2.36", "--- sme2-kit: randomize", "2"),
    *("zone|cpu-thermal|51234", "2400000"),
)


def _run_file(name: str) -> Callable[[bytes, Path], None]:
    """What commands read of a run directory in which one file is the case."""

    def read(data: bytes, folder: Path) -> None:
        put(folder / "run" / name, data)
        use_all(folder / "run", "validate", "analyze")

    return read


@functools.cache
def _auto_seed() -> bytes:
    """A program with two rewrites beside one without, as `profile` compares them."""
    experiments = f"{RUN}:linux_fp16arith_off", f"{RUN}:{_ON}"
    pairs = [pair.compared for pair in compare_runs(*experiments).pairs]
    choices = [RewriteChoice("mean", True, "7 % of the time"), RewriteChoice("layout", False, "no gain")]
    return msgspec.json.encode(AutoComparison("", "auto.pte", "0" * 64, choices, pairs))


_ROUND = RoundTurns(
    "key",
    {name: [Turn(turn, 0.1, [1000 + turn], 0, turn) for turn in range(6)] for name in ("fp32", "int8")},
    processes={name: [Process(0, 0.5, 9)] for name in ("fp32", "int8")},
    outputs={name: [TensorInfo([1, 4], "float32")] for name in ("fp32", "int8")},
)


def _round_seeds() -> list[bytes]:
    """What tune keeps of a round; of a language model with what it says of its processes."""
    return [msgspec.json.encode(each) for each in (_ROUND, RoundTurns("key", _ROUND.turns))]


def _maker() -> Maker:
    record = RunDirectory(RUN).manifest().experiments[_ON]
    return Maker(record.machine or Machine("x", []), record.runner)


def _read_round(path: Path) -> None:
    """It is used as it is kept, or measured again."""
    if (found := earlier(path, "key", _maker(), _ROUND.turns.keys())) is not None:
        both = appended(found.turns, found.turns)
        compare_turns(("fp32", both["fp32"]), ("int8", both["int8"]), paired=True)
        [summarise(turns) for turns in found.turns.values()]
        [memory(Samples([], [], processes=found.processes[name])) for name in found.processes]
        [read_outputs(path.with_name("output"), outputs) for outputs in found.outputs.values()]


def _prepare_used(folder: Path) -> None:
    """A run with two numbers of threads, roofs, other runtimes, and a record of accuracy."""
    home = forge_run(RUN, folder / "run", 6, 4, threads=(1, 2))
    (home / ROOFS).write_bytes(_roofs_seeds()[0])
    sha256 = {"pte_sha256": RunDirectory(home).manifest().model.sha256}
    seeds = {RUN_NUMERICS: _numerics_seeds()[1], RUNTIMES: _runtimes_seeds()[0], AUTO_COMPARISON: _auto_seed()}
    for name, seed in seeds.items():
        (home / name).write_bytes(msgspec.json.encode(msgspec.json.decode(seed) | sha256))
    shutil.copytree(home, folder / "before")


@functools.cache
def _used_files() -> dict[str, bytes]:
    with tempfile.TemporaryDirectory() as scratch:
        _prepare_used(Path(scratch))
        home = Path(scratch) / "run"
        found = [*sorted(home.rglob("*.json")), *sorted(home.rglob("*.etdump"))]
        return {path.relative_to(home).as_posix(): path.read_bytes() for path in found}


def _used(name: str, mutate: mutations.Mutator = mutations.json_values) -> Reader:
    """All commands on a run whose file of this name is damaged; the others are what they were."""

    def file() -> str:
        return next(known for known in _used_files() if known.endswith(name))

    def read(data: bytes, folder: Path) -> None:
        for other, content in _used_files().items():
            (folder / "run" / other).write_bytes(content)
        put(folder / "run" / file(), data)
        use_all(folder / "run")

    def seeds() -> list[bytes]:
        return [_used_files()[file()]]

    called = f"used_{name.strip('_.').removesuffix('.json')}"
    return Reader(called, seeds, mutate, read, _prepare_used, 0.03)


def _read_output(path: Path) -> None:
    path.rename(path.with_name("output-0.bin"))
    shape = [path.with_name("output-0.bin").lstat().st_size]
    read_outputs(path.with_name("output"), [TensorFile(shape, "uint8", "", [0])])


def _locked(path: Path) -> None:
    path.rename(path.with_name(".lock"))
    with files.locked(path.parent, "test"):
        pass


# Every file of a run directory, and all that reads or copies one file: given each kind of file, but not fuzzed.
RUN_FILES = [
    Reader(f"run/{name}", _files(RUN / name), mutations.binary, _run_file(name), _copy_run, 0.1)
    for name in sorted(path.relative_to(RUN).as_posix() for path in RUN.rglob("*") if path.is_file())
    # The other experiment has the same files.
    if not name.startswith("linux_fp16arith_off")
]
FILE_USES = [
    Reader(name, _files(SEEDS / "output.npy"), mutations.binary, _alone(use))
    for name, use in {
        "hash": files.sha256,
        "end of a log": files.tail,
        "model to run": checked_program,
        "shared library": read_library,
        "libraries of a program": loaded_libraries,
        "progress": ProgressLog,
        "ETDump": etdump.read,
        "ETDumps of launches": lambda path: etdump.merged([path, path]),
        "array": lambda path: read_npy(path, "array", ""),
        "outputs": _read_output,
        "copy": lambda path: files.copy_file(path, path.with_name("copy")),
        "second name": lambda path: files.copy_file(path, path.with_name("copy"), link=True),
        "tree": lambda path: files.copy_tree(path.parent, path.parent.with_name("tree")),
        "folder's hash": lambda path: files.folder_sha256(path.parent, "*"),
        "line of a log": lambda path: files.append_line(path, b"line"),
        "lock": _locked,
    }.items()
]
READERS = {
    reader.name: reader
    for reader in (
        Reader("etdump", etdump_seeds, mutations.binary, _read_etdump),
        Reader("pte", _files(SEEDS / f"{_STEM}.pte"), mutations.binary, _read_pte),
        Reader("language_model", _files(DATA / "llm" / "two_methods.pte"), mutations.binary, _read_llm),
        Reader("tokens", _token_seeds, mutations.binary, _alone(_read_tokens)),
        Reader("xnnpack_graph", _blob_seeds, mutations.binary, _read_blob),
        Reader("onnx", _onnx_seeds, mutations.binary, _read_onnx),
        Reader("ort_profile", _ort_seeds, mutations.json_values, _read_ort_profile),
        Reader("etrecord", _files(SEEDS / f"{_STEM}.pte.etrecord"), mutations.zip_members, _read_etrecord),
        Reader("manifest", _files(RUN / "manifest.json"), mutations.json_values, _read_manifest, _copy_run),
        *(
            Reader(
                f"history_{name}", _files(RUN / f"{name}.json"), mutations.json_values, _read_history(name), _copy_run
            )
            for name in ("manifest", "metrics", "analysis_summary")
        ),
        Reader(
            "compared_programs",
            _compared_seeds,
            mutations.json_values,
            _alone(_read_compared),
        ),
        Reader("baseline", _files(RUN / "manifest.json"), mutations.json_values, _read_baseline, _copy_run),
        Reader("metrics", _files(RUN / "metrics.json"), mutations.json_values, _read_metrics, _copy_run),
        Reader("samples", _samples_seeds, mutations.json_values, _read_samples, _copy_run),
        Reader("change", _change_seeds, mutations.json_values, _read_change, _copy_run),
        Reader("derived", _derived_seeds, mutations.json_values, _read_derived, _copy_run),
        Reader(
            "export_meta",
            _files(SEEDS / "export_meta.json"),
            mutations.json_values,
            _read_export_meta,
            _prepare_export,
        ),
        *map(_used, ("manifest.json", RUN_NUMERICS, RUNTIMES, ROOFS, "_samples.json", AUTO_COMPARISON)),
        _used(".etdump", mutations.binary),
        Reader("tune_round", _round_seeds, mutations.json_values, _alone(_read_round)),
        Reader("npy", _files(SEEDS / "output.npy"), mutations.binary, _read_npy),
        Reader("kernel_trace", _kernel_trace_seeds, mutations.text, _read_kernel_trace),
        Reader("runner_line", _LINES, mutations.json_values, _read_line),
        Reader("config", _config_seeds, mutations.json_values, _alone(load_config)),
        Reader("sweep_file", _SWEEPS, mutations.json_values, _read_sweep_file),
        Reader("parcel", lambda: [pack(SEEDS, ["export_meta.json", "output.npy"])], mutations.binary, _unpack),
        Reader("node_result", _node_results, mutations.binary, _read_node_result),
        Reader("sweep_state", _sweep_states, mutations.json_values, _read_sweep_state),
        Reader("numerics", _numerics_seeds, mutations.json_values, _read_numerics),
        Reader("runtimes", _runtimes_seeds, mutations.json_values, _read_runtimes),
        Reader("roofs", _roofs_seeds, mutations.json_values, _read_roofs, _copy_run),
        Reader("kernel_table", _kernel_table_seeds, mutations.json_values, _read_kernel_table),
        Reader("target", _target_seeds, mutations.json_values, _read_target),
        Reader("forecast_validation", _validation_seeds, mutations.json_values, _read_validation),
        Reader("categories", _CATEGORIES, mutations.json_values, _read_categories),
        Reader("timeline", _files(RUN / _ON / f"{_FILE}_run0_timeline.csv"), mutations.text, _read_timeline),
        Reader(
            "xnntrace",
            _text("Debug (XNNPACK): Using qs8_gemm microkernel 'xnn_qs8_gemm_ukernel_4x8__neon_dot'"),
            mutations.text,
            _alone(read_log),
        ),
        Reader("adb", _ADB, mutations.text, _probed(android.probe_device)),
        Reader("ssh", _BOARD, mutations.text, _probed(board.probe_board)),
    )
}
