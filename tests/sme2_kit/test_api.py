"""`import sme2_kit`: the kit as a Python library, in a program, a REPL and a notebook."""

import ast
import contextlib
import importlib.util
import json
import os
import re
import shutil
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import sme2_kit
from model_profiling.analysis.run import run_data, summary
from model_profiling.api.display import comparisons_html
from model_profiling.api.records import Records
from model_profiling.base import file_memo, files
from model_profiling.base.file_memo import FileMemo
from model_profiling.cli.main import main
from model_profiling.formats import pte as program
from model_profiling.store.run_directory import Manifest
from sme2_kit import InputError, KitError, Run, SetupError
from tests.conftest import QUICK, ROOT, needs, needs_emulator, shared_home
from tests.helpers import warm
from tests.helpers.run_forge import forge_run
from tests.helpers.waiting import LONGEST_S

KNOWN = ROOT / "tests" / "data" / "known_good_run"
HEAVY = ("torch", "executorch", "numpy", "msgspec", "jinja2", "pandas", "IPython", "vl_convert")


def python(code: str, *words: object) -> "subprocess.CompletedProcess[str]":
    command = [sys.executable, "-c", code, *map(str, words)]
    environment = {**os.environ, "PYTHONPATH": str(ROOT), **QUICK}
    return subprocess.run(command, env=environment, capture_output=True, text=True, check=False, timeout=LONGEST_S)


WITHOUT_TORCH = """
import sys
import sme2_kit
assert not {heavy} & set(sys.modules), {heavy} & set(sys.modules)
assert set(sme2_kit.__all__) <= set(dir(sme2_kit))
class Missing:
    def find_spec(self, name, path=None, target=None):
        if name.split(".")[0] in ("torch", "executorch"):
            raise ModuleNotFoundError(name, name=name)
sys.meta_path.insert(0, Missing())
run = sme2_kit.open_run({path!r})
assert len(run.operators) and len(run.latency) and len(run.categories) and repr(run).count("\\n") == 0
assert "<svg" in run._repr_html_()
assert 20 < len(dir(run)) <= 25 and all(hasattr(type(run), name) or name == "path" for name in dir(run))
assert all(callable(getattr(sme2_kit, name)) for name in sme2_kit.__all__ if name != "__version__")
try:
    sme2_kit.export("toy_cnn", out={out!r})
except sme2_kit.SetupError as error:
    assert "torch" in error.message or "executorch" in error.message, error.message
else:
    raise AssertionError("torch is not there")
"""


def test_a_run_is_opened_without_torch_and_the_import_alone_loads_nothing(tmp_path: Path) -> None:
    shutil.copytree(KNOWN, tmp_path / "run")
    before = sorted(path.name for path in (tmp_path / "run").rglob("*"))
    code = WITHOUT_TORCH.format(heavy=set(HEAVY), path=str(tmp_path / "run"), out=str(tmp_path / "out"))
    done = python(code)
    assert (done.returncode, done.stdout, done.stderr) == (0, "", "")
    # Looking at a run writes nothing.
    assert sorted(path.name for path in (tmp_path / "run").rglob("*")) == before


# Python 3.13.0 looks for its folder whenever a module lacks a name, and raises a SystemError if there is none.
FROM_NOWHERE = """
import os, sys, json, shutil, pathlib
import sme2_kit
gone = pathlib.Path(sys.argv[1]); os.chdir(gone)
if sys.version_info[:3] != (3, 13, 0):
    gone.rmdir()
sys.argv[:] = ["notebook", "--kernel"]
run = sme2_kit.run({pte!r}, runs=20, launches=2, budget_s=1)
run.report()
place = run.path
assert place.is_dir() and "kernel" not in str(run.manifest.config["command"])
if os.fork() == 0:
    sys.exit(0)
os.wait()
assert place.is_dir()
os.chdir("/")
print(place)
"""


def test_nothing_depends_on_the_working_directory_and_results_without_a_place_live_with_the_process(
    profiled: "Profiled", tmp_path: Path
) -> None:
    (tmp_path / "gone").mkdir()
    done = python(FROM_NOWHERE.format(pte=str(profiled.pte)), tmp_path / "gone")
    assert (done.returncode, done.stderr) == (0, "")
    assert not Path(done.stdout.strip()).exists()


@pytest.fixture(scope="module")
def profiled(tmp_path_factory: pytest.TempPathFactory) -> "Profiled":
    """A small network that exists only here, profiled in one call."""
    pytest.importorskip("executorch.exir")
    return Profiled(tmp_path_factory.mktemp("profiled"))


class Profiled:
    """The run, and what the process was told and looked like meanwhile."""

    def __init__(self, home: Path) -> None:
        torch: Any = pytest.importorskip("torch")
        self.module = torch.nn.Sequential(torch.nn.Conv2d(3, 8, 3), torch.nn.Flatten(), torch.nn.Linear(8 * 36, 4))
        self.inputs = torch.ones(1, 3, 8, 8)
        self.progress: list[tuple[str, int, int]] = []
        before = process_state()
        out, err = Path(home / "stdout"), Path(home / "stderr")
        with _streams_to(out, err):
            how: dict[str, Any] = {"dtype": "fp32", "runs": 20, "launches": 2, "out": home / "out"}
            told = self.progress
            self.run = sme2_kit.profile(self.module, self.inputs, **how, on_progress=lambda *each: told.append(each))
        self.pte = home / "out" / "artifacts" / "sequential_xnnpack_fp32.pte"
        self.printed = out.read_text() + err.read_text()
        self.unchanged = before == process_state()


def process_state() -> tuple[object, ...]:
    handlers = [signal.getsignal(number) for number in (signal.SIGINT, signal.SIGTERM)]
    return handlers, list(sys.argv), sys.stdout, sys.stderr


@contextlib.contextmanager
def _streams_to(out: Path, err: Path) -> Iterator[None]:
    """Everything that this process or a library in it writes, past Python's own streams, too."""
    kept = os.dup(1), os.dup(2)
    with out.open("wb") as first, err.open("wb") as second:
        os.dup2(first.fileno(), 1)
        os.dup2(second.fileno(), 2)
        try:
            yield
        finally:
            for number, copy in zip((1, 2), kept, strict=True):
                os.dup2(copy, number)
                os.close(copy)


def test_a_module_in_memory_is_profiled_in_one_call_and_only_the_callback_speaks(profiled: Profiled) -> None:
    run = profiled.run
    assert isinstance(run, Run) and run.measured and run.manifest.model.stem == "sequential_xnnpack_fp32"
    assert {row.category for row in run.categories} >= {"CONV", "GEMM"}
    for name in run.manifest.experiments:
        parts = [row.ms for row in run.categories if row.experiment == name]
        whole = run.summary.experiments[name].breakdown.execute_ms
        assert sum(ms for ms in parts if ms is not None) == pytest.approx(whole)
    assert all(row.median_ms and row.runs == 20 for row in run.latency)
    # All files are where the caller said.
    assert (run.path / "analysis_summary.json").is_file() and run.path.parent.name == "runs"
    assert profiled.pte.is_file() and run.program == profiled.pte.resolve()
    # The host is told by its callback and by nothing else.
    labels = [label for label, _, _ in profiled.progress]
    assert "export: import torch and executorch" in labels and "preparing" in labels
    assert any(done and done <= total for _, done, total in profiled.progress)
    assert profiled.printed == "" and profiled.unchanged


def test_rows_become_tables(profiled: Profiled, monkeypatch: pytest.MonkeyPatch) -> None:
    pandas = pytest.importorskip("pandas")
    run = profiled.run
    for rows in (run.operators, run.categories, run.latency, run.advice, run.comparisons, run.kernels):
        assert isinstance(rows, Records)
        assert json.loads(json.dumps(rows.to_dicts())) == rows.to_dicts() and len(rows) == len(rows.to_dicts())
        table = rows.to_pandas()
        assert isinstance(table, pandas.DataFrame) and len(table) == len(rows)
        assert "\n" not in repr(rows) and rows._repr_html_() and rows[:1] == Records(list(rows)[:1])
    assert list(run.operators.to_pandas().columns) == list(run.operators[0].__struct_fields__)
    monkeypatch.setitem(sys.modules, "pandas", None)
    with pytest.raises(SetupError, match="pandas") as caught:
        run.operators.to_pandas()
    assert caught.value.hint == "pip install pandas"


def test_what_was_measured_is_not_measured_again_and_that_is_said(profiled: Profiled) -> None:
    run = profiled.run
    again = sme2_kit.run(profiled.pte, threads=1, runs=20, launches=2, out=run.path)
    assert any("reused existing results" in note for note in again.notes)
    assert again.latency == run.latency and sme2_kit.open_run(f"{run.path}@latest").latency == run.latency


def test_two_programs_are_compared_side_by_side(profiled: Profiled, tmp_path: Path) -> None:
    made = sme2_kit.export(profiled.module, profiled.inputs, dtype="fp16", out=tmp_path)
    found = sme2_kit.compare(profiled.pte, made, runs=20, launches=5)
    (each,) = found
    assert each.latency.paired and each.latency.verdict and each.sentence in repr(found)
    assert found.to_dicts() == [msgspec.to_builtins(each)] and found.latency[0] is each.latency
    html = found._repr_html_()
    assert "<svg" in html and "sequential_xnnpack_fp16" in html and "\n" not in repr(found)


def test_compare_takes_runs_experiments_and_dumps(tmp_path: Path) -> None:
    run = sme2_kit.open_run(KNOWN)
    first = next(iter(run.manifest.experiments))
    same = sme2_kit.compare(run, KNOWN)
    assert [*same.changes] == [each.changes for each in same] and len(same.changes.told) == 0
    assert same.changes.parts.to_dicts() and len(same.changes.modules) >= len(same)
    assert [each.latency.verdict for each in same] == ["no difference seen"] * len(run.manifest.experiments)
    assert len(sme2_kit.compare(f"{KNOWN}:{first}", KNOWN / first)) == 1
    dump = next(KNOWN.glob(f"{first}/*.etdump"))
    assert sme2_kit.compare(dump, dump)[0].latency.ratio == 1
    bare = sme2_kit.open_run(dump)
    assert len(bare.operators) and bare.operators[0].ms and not len(bare.latency) and "<svg" in bare._repr_html_()
    assert str(dump.name) in repr(bare)


def emulated(manifest: Manifest) -> None:
    manifest.timing = "emulated"


@pytest.fixture(scope="module")
def forged(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A run of an emulator, with names that nobody should trust."""
    home = tmp_path_factory.mktemp("forged") / "run"

    def hostile(name: str) -> str:
        return f"{name}<script>alert('&')</script>\x1b[31m"

    return forge_run(KNOWN, home, operators=12, executions=4, rename=hostile, change=emulated)


def test_times_that_mean_nothing_are_unknown_and_not_zero(forged: Path) -> None:
    run = sme2_kit.open_run(forged)
    assert len(run.operators) and len(run.categories)
    assert all(row.ms is row.share is row.median_ms is row.p95_ms is None for row in run.operators)
    assert all(row.ms is row.share is None for row in run.categories)
    assert len(run.latency) == len(run.advice) == len(run.comparisons) == 0
    assert "<svg" not in run._repr_html_() and "ms</td>" not in run._repr_html_()
    assert run.speedup.ratio is run.speedup.low is None and "emulated" in run.speedup.note and " ms" not in str(run)


def test_a_run_has_its_speedup_with_the_interval_and_prints_its_result(tmp_path: Path) -> None:
    run = sme2_kit.open_run(KNOWN)
    found, compared = run.speedup, run.comparisons[0]
    assert (found.ratio, found.low, found.high) == (compared.ratio, compared.low, compared.high)
    assert (found.before, found.after, found.verdict) == (compared.before, compared.after, "faster")
    assert found.reliable == compared.reliable and f"{compared.ratio:.2f}x faster (95 % interval" in str(found)
    # What the terminal says first, and no more than fits a screen.
    text = str(run)
    assert (
        f"{compared.ratio:.2f}x faster" in text and "Where the time goes" in text and "\nSME2       not known" in text
    )
    assert text.count("\n") < 40 and "\x1b" not in text and "\n" not in repr(run)
    bare = sme2_kit.open_run(next(KNOWN.glob("*/*.etdump")))
    assert bare.speedup.verdict == "unknown" and bare.speedup.ratio is None and "CONV" in str(bare)
    # One experiment has nothing to be compared with; a run that is gone says so.
    shutil.copytree(KNOWN, tmp_path / "one")
    manifest = json.loads((tmp_path / "one" / "manifest.json").read_text())
    manifest["experiments"].popitem()
    (tmp_path / "one" / "manifest.json").write_text(json.dumps(manifest))
    one = sme2_kit.open_run(tmp_path / "one")
    assert one.speedup.ratio is None and "1 experiment and no pair" in str(one.speedup) and "Convolution" in str(one)
    gone = sme2_kit.open_run(shutil.copytree(KNOWN, tmp_path / "gone"))
    shutil.rmtree(tmp_path / "gone")
    assert str(gone).startswith("<Run")


def test_names_from_files_are_shown_and_not_obeyed(forged: Path, tmp_path: Path) -> None:
    shutil.copytree(forged, tmp_path / "run")
    manifest = json.loads((tmp_path / "run" / "manifest.json").read_text())
    manifest["timing"] = "measured"
    (tmp_path / "run" / "manifest.json").write_text(json.dumps(manifest))
    run = sme2_kit.open_run(tmp_path / "run")
    compared = comparisons_html(sme2_kit.compare(run, run), picture="")
    for shown in (run._repr_html_(), run.operators._repr_html_(), compared):
        assert "<script" not in shown and "&lt;script&gt;" in shown and "\x1b" not in shown
    assert "\x1b" not in repr(run) and "\n" not in repr(run)
    shutil.rmtree(tmp_path / "run")
    assert "Run" in repr(sme2_kit.open_run(forged)) and "<Run" in repr(run)


@pytest.mark.parametrize(
    ("call", "problem"),
    [
        (lambda: sme2_kit.open_run("nowhere"), "no run at nowhere"),
        (sme2_kit.run, "one of the two"),
        (lambda: sme2_kit.run("a.pte", config="b.json"), "one of the two"),
        (lambda: sme2_kit.run(config="b.json", threads=2), "can be used only with a .pte"),
        (lambda: sme2_kit.run("a.pte", runs=0), "runs must be at least 1"),
        (lambda: sme2_kit.run("a.pte", budget_s=-1), "budget must be"),
        (lambda: sme2_kit.run("a.pte"), "a.pte does not exist"),
        (lambda: sme2_kit.run("a.pte", platform="phone"), "no platform 'phone'"),
        (lambda: sme2_kit.run(KNOWN / "manifest.json"), "is not a .pte"),
        (lambda: sme2_kit.profile("a.pte", dtype="int8"), "is exported already"),
        (lambda: sme2_kit.profile("a.pte", input_shapes=[(1, 3)]), "is exported already"),
        (lambda: sme2_kit.profile("no_such_model"), "no model called 'no_such_model'"),
        (lambda: sme2_kit.export("toy_cnn", (1,), dtype="fp32"), "brings its own inputs"),
        (lambda: sme2_kit.export("toy_cnn", dtype="fp8"), "no dtype 'fp8'"),
        (lambda: sme2_kit.export("nofile.py:Net", dtype="fp32"), "nofile.py does not exist"),
        (lambda: sme2_kit.export(object(), settings={"a": 1}, dtype="fp32"), "are for a model by its name"),
        (lambda: sme2_kit.export("toy_cnn", input_shapes=[(0,)], dtype="fp32"), "below 1"),
        (lambda: sme2_kit.compare("a.pte", "b.pte"), "a.pte does not exist"),
        (lambda: sme2_kit.compare(KNOWN, "b.pte"), "has not been measured"),
        (lambda: sme2_kit.compare(KNOWN, KNOWN, runs=3), "are for two .pte"),
        (lambda: sme2_kit.compare(KNOWN, 3), "a int is neither"),  # type: ignore[arg-type]
        (lambda: sme2_kit.forecast(KNOWN, KNOWN, speedups=[0.5]), "0.5"),
        (lambda: sme2_kit.tune("no_such_model"), "no model called"),
    ],
)
def test_what_cannot_be_done_raises_with_what_and_what_now(call: Callable[[], object], problem: str) -> None:
    with pytest.raises(KitError) as caught:
        call()
    assert isinstance(caught.value, InputError) and problem in caught.value.message and caught.value.hint


class Counted:
    """How often a run is analysed, and the .pte of a command parsed and hashed, whoever asks for it."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, pte: Path) -> None:
        self.counts = {"analysed": 0, "hashed": 0, "parsed": 0}

        def counting(what: str, function: Callable[..., Any]) -> Callable[..., Any]:
            def counted(first: Any, *others: Any) -> Any:
                self.counts[what] += what != "hashed" or first.name == pte.name
                return function(first, *others)

            return counted

        monkeypatch.setattr(run_data, "analyse_run", counting("analysed", summary.analyse_run))
        hashing = counting("hashed", files.sha256)
        monkeypatch.setattr(files, "sha256", hashing)
        for memo, compute in ((file_memo.program_sha256, hashing), (program.read, counting("parsed", program.parse))):
            monkeypatch.setattr(memo, "_compute", compute)
            monkeypatch.setattr(memo, "_known", {})


@pytest.mark.parametrize("command", ["run --html", "kernels"])
def test_a_command_reads_and_hashes_its_program_once_and_analyses_once(
    command: str, profiled: Profiled, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    flags = ["--html", "--quiet", "--runs", "20", "--launches", "2"] if command == "run --html" else ["--json"]
    if command == "kernels":
        needs_emulator()
    counted = Counted(monkeypatch, profiled.pte)
    assert main([command.split()[0], str(profiled.pte), "--output-root", str(tmp_path / "run"), *flags]) == 0
    assert counted.counts == {"analysed": 1, "hashed": 1, "parsed": 1}
    if command == "kernels":
        rows = sme2_kit.open_run(tmp_path / "run").kernels
        assert any(row.level == "SME2" and row.kernels for row in rows)


@settings(max_examples=15, deadline=None)
@given(st.lists(st.sampled_from(["ask", "write", "replace", "touch", "ask other"]), min_size=1, max_size=12))
def test_what_is_read_of_a_file_is_what_the_file_holds(
    tmp_path_factory: pytest.TempPathFactory, steps: list[str]
) -> None:
    home = tmp_path_factory.mktemp("remembered")
    path, other = home / "a", home / "b"
    path.write_bytes(b"0")
    other.write_bytes(b"other")
    content = FileMemo(lambda path: path.read_bytes())
    for number, step in enumerate(steps):
        if step == "write":  # in place, of the same size, at once
            path.write_bytes(str(number % 10).encode())
        elif step == "replace":
            files.write_bytes(path, str(number % 10).encode())
        elif step == "touch":
            os.utime(path, (1, 1))
        assert content(other if step == "ask other" else path) == (other if step == "ask other" else path).read_bytes()
    assert len(content._known) <= 2
    path.unlink()
    with pytest.raises(FileNotFoundError):
        content(path)


def test_library_code_neither_prints_nor_ends_the_process_nor_reads_its_arguments() -> None:
    allowed = {
        # A process of its own, and functions that only the command line calls.
        "model_profiling/report/drawing/drawing_process.py",
        "model_profiling/base/child_watcher.py",
        "model_profiling/runtimes/runtime_process.py",
        "model_profiling/runtimes/process_facts.py",
        # Puts back at once what it changes.
        "model_profiling/base/programs.py",
        "model_profiling/base/printing.py",
        "model_profiling/models/user_file.py",
    }
    ours = ("model_profiling/cli/", "model_profiling/scripts/", "model_profiling/tools/")
    doors = {f"model_profiling/{name}.py" for name in ("__main__", "export/export_model", "schemas/__main__")}
    no_words = {"sys.argv", "sys.exit", "print", "signal.signal", "os._exit", "os.chdir"}
    wrong = []
    for path in [*(ROOT / "model_profiling").rglob("*.py"), *(ROOT / "sme2_kit").rglob("*.py")]:
        name = path.relative_to(ROOT).as_posix()
        if name in allowed or name.startswith(ours) or name in doors or "/out_" in name:
            continue
        for node in ast.walk(ast.parse(path.read_text())):
            if isinstance(node, ast.Name):
                wrong += [f"{name}: {node.id}"] if node.id in no_words else []
            elif isinstance(node, ast.Attribute) and isinstance(node.value, ast.Name):
                wrong += [f"{name}: {text}"] if (text := f"{node.value.id}.{node.attr}") in no_words else []
            elif isinstance(node, ast.Call) and isinstance(node.func, ast.Name):
                wrong += [f"{name}: input"] if node.func.id == "input" else []
            elif isinstance(node, ast.ImportFrom) and node.module == "model_profiling.base.printing":
                spoken = {alias.name for alias in node.names} & {"say", "warn", "say_json"}
                wrong += [f"{name} imports {word}" for word in spoken if "/report/" not in name]
    # For a moment, while Ray asks where its workers should look for modules.
    wrong.remove("model_profiling/fleet/sweep/ray_executor.py: os.chdir")
    # A process that knocks at a cluster.
    for word in ("sys.exit", "sys.argv"):
        wrong.remove(f"model_profiling/fleet/sweep/ray_executor.py: {word}")
    assert not wrong


def test_every_function_is_documented() -> None:
    text = (ROOT / "docs" / "api.md").read_text()
    functions = [name for name in sme2_kit.__all__ if name[0].islower()]
    for name in functions:
        assert getattr(sme2_kit, name).__doc__ and f"`sme2_kit.{name}(" in text, name
    fields = {name for name in vars(Run) if not name.startswith("_")}
    assert fields <= set(re.findall(r"`run\.(\w+)", text)), fields


@pytest.mark.wide
def test_the_notebook_of_the_documentation_works_in_a_fresh_kernel() -> None:
    """A newcomer's first profile: a network in a cell, and a picture without a file being named."""
    pytest.importorskip("executorch.exir")
    needs(
        all(_there(name) for name in ("nbclient", "ipykernel", "pandas", "mkdocs")),
        "nbclient, ipykernel, pandas, mkdocs",
    )
    import nbclient
    import nbformat
    from jupyter_client.manager import AsyncKernelManager

    source = (ROOT / "docs" / "notebook.py").read_text()
    v4: Any = nbformat.v4
    make = {"markdown": v4.new_markdown_cell, "python": v4.new_code_cell}
    notebook = v4.new_notebook(cells=[make[kind](text) for kind, text in site_hooks().notebook_cells(source)])
    environment = {**os.environ, "PYTHONPATH": str(ROOT), "SME2_KIT_BUDGET_S": "0.3"}
    kernel = AsyncKernelManager(kernel_name="python3")
    assert kernel.kernel_spec is not None
    kernel.kernel_spec.argv[0] = str(warm.python(shared_home()))
    client = nbclient.NotebookClient(notebook, km=kernel, timeout=LONGEST_S)
    with client.setup_kernel(env=environment):
        for place, cell in enumerate(notebook.cells):
            if cell.cell_type == "code":
                client.execute_cell(cell, place)
    nbformat.validate(notebook)
    outputs = [output for cell in notebook.cells for output in cell.get("outputs", [])]
    assert {output["output_type"] for output in outputs} <= {"display_data", "execute_result"}, outputs
    shown = [output["data"] for output in outputs if "text/html" in output.get("data", {})]
    pictures = [data for data in shown if "<svg" in data["text/html"]]
    assert len(pictures) >= 2 and all("\n" not in data["text/plain"] for data in pictures)
    assert any("<table" in data["text/html"] and "dataframe" in data["text/html"] for data in shown)
    # The progress bar is gone when the work is done.
    assert any(output["output_type"] == "display_data" for output in outputs)
    assert not any("<progress" in data["text/html"] for data in shown)


def site_hooks() -> Any:
    """docs/site_hooks.py, which mkdocs loads by its path, too."""
    spec = importlib.util.spec_from_file_location("site_hooks", ROOT / "docs" / "site_hooks.py")
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def _there(name: str) -> bool:
    return importlib.util.find_spec(name) is not None
