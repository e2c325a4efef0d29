"""One fact, one place: what several parts of the kit say or need is decided once and means the same everywhere."""

import ast
import functools
import re
import shutil
from pathlib import Path

import pytest

from model_profiling.analysis.advice.finding import FindingKind
from model_profiling.analysis.timing.categories import PACKED_TYPES
from model_profiling.formats.graph_terms import base_name
from model_profiling.platforms.base import LaunchRequest, launch_flags, paced_flags
from model_profiling.report import markdown
from model_profiling.report.blocks import AdviceBlock, Block, Bullets, Paragraph, Report, Section
from model_profiling.report.content.whole import report as content
from model_profiling.store.artifacts import Delegation, UndelegatedOperator
from model_profiling.store.made_by import RunnerRecord
from model_profiling.store.run_directory import RunDirectory
from sme2_kit import Run
from tests.conftest import ROOT
from tests.helpers.screens import whole_text

PACKAGE = ROOT / "model_profiling"


@functools.cache
def literals(path: Path) -> list[str]:
    """The strings of a module that are not documentation."""
    tree = ast.parse(path.read_text())
    words = {id(node.value) for node in ast.walk(tree) if isinstance(node, ast.Expr)}
    found = [node for node in ast.walk(tree) if isinstance(node, ast.Constant) and isinstance(node.value, str)]
    return [str(node.value) for node in found if id(node) not in words]


@pytest.mark.parametrize(
    ("word", "home"),
    [(r"^--(model_path|num_executions|cpu_threads|paced|etdump_path)", "platforms/base.py")]
    + [(rf"^{name}$", "analysis/timing/categories.py") for name in PACKED_TYPES]
    + [(rf"^{kind.value}$", "analysis/advice/finding.py") for kind in FindingKind],
)
def test_a_name_that_programs_go_by_is_spelled_in_one_module(word: str, home: str) -> None:
    # To parse all files takes seconds.
    suspect = [path for path in PACKAGE.rglob("*.py") if re.search(word.strip("^$"), path.read_text())]
    found = [path for path in suspect if any(re.search(word, text) for text in literals(path))]
    assert [path.relative_to(PACKAGE).as_posix() for path in found] == [home]


def test_the_accelerator_is_chosen_in_one_place() -> None:
    asked = [path for path in PACKAGE.rglob("*.py") if "features.default_accelerator(" in path.read_text()]
    # doctor tells what would be chosen for each dtype, without a platform to run on.
    assert {path.name for path in asked} == {"axes.py", "doctor.py"}


def test_every_text_that_is_read_or_written_says_that_it_is_utf8() -> None:
    """Else it is whatever the user's locale says."""
    texts = {path: path.read_text(encoding="utf-8") for path in PACKAGE.rglob("*.py")}
    for path in [path for path, text in texts.items() if re.search(r"\b(read_text|write_text|open)\(", text)]:
        for node in ast.walk(ast.parse(texts[path])):
            if isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute):
                mode = next((arg.value for arg in node.args if isinstance(arg, ast.Constant)), "")
                # `files` and what derives from it write bytes; what describes a wheel is always UTF-8.
                own = ast.unparse(node.func.value) in ("files", "writer", "wheel")
                asked = node.func.attr == "open" and isinstance(mode, str) and re.fullmatch(r"[rwax]\+?", mode)
                if (node.func.attr in ("read_text", "write_text") and not own) or asked:
                    assert any(word.arg == "encoding" for word in node.keywords), (path, ast.unparse(node))


def test_flags_name_the_paths_of_the_machine_that_runs_them() -> None:
    here = Path("here.pte")
    request = LaunchRequest(RunnerRecord("kit", "r", ""), here, (Path("x.npy"),), 2, 3, ("sme2", "sme"), Path("log"))
    assert paced_flags(request, "/there/m.pte", ["/there/a", "/there/b"]) == [
        *("--model_path=/there/m.pte", "--cpu_threads=2", "--warmup=3", "--paced"),
        *("--inputs=/there/a", "--inputs=/there/b", "--disable_features=sme2,sme"),
    ]
    flags = paced_flags(request, here, (), "/there/dump", "/there/out")
    assert flags[-2:] == ["--etdump_path=/there/dump", "--output_file=/there/out"]
    foreign = launch_flags(request, here, 7, "/there/dump")
    # What any executor_runner takes, and nothing else.
    assert foreign == ["--model_path=here.pte", "--num_executions=7", "--cpu_threads=2", "--etdump_path=/there/dump"]


@pytest.mark.parametrize(
    ("graph", "program"),
    [
        ("aten.mean.dim", "aten::mean.out"),
        ("aten.mean.dim", "mean.out"),
        ("aten._softmax.default", "aten::_softmax.out"),
        ("aten.clone", "clone.out"),
        ("dim_order_ops._clone_dim_order.default", "dim_order_ops::_clone_dim_order.out"),
        ("quantized_decomposed.quantize_per_tensor.default", "quantized_decomposed::quantize_per_tensor.out"),
        ("my_ops.dim.default", "my_ops::dim.out"),
    ],
)
def test_an_operator_is_the_same_in_graph_and_program(graph: str, program: str) -> None:
    assert base_name(graph) == base_name(program)
    others = [
        UndelegatedOperator("aten.sum.dim", 1, "another's"),
        UndelegatedOperator("aten.view_copy.default", 1, "another's, too"),
    ]
    found = Delegation(0, 3, 0, [*others, UndelegatedOperator(graph, 1, "its own")])
    assert found.why_not(program) == "its own"
    assert Delegation(0, 2, 0, others).why_not(program) == ""


def test_an_operator_left_out_for_two_reasons_has_both() -> None:
    left = [
        UndelegatedOperator("aten.mean.dim", 2, "keepdim"),
        UndelegatedOperator("aten.mean.dim", 1, "int64"),
        UndelegatedOperator("aten.mean", 1, "int64"),
    ]
    assert Delegation(0, 4, 0, left).why_not("mean.out") == "keepdim; or int64"


def test_numbered_lists_count() -> None:
    found = [AdviceBlock(f"finding {n}", "1.10x", ["seen", "twice"], "do it") for n in range(1, 13)]
    blocks: list[Block] = [Paragraph("For a:"), *found, Paragraph("For b:"), *found[:2], Bullets(["one", "two"])]
    text = markdown.render(Report("t", "s", [], [Section("advice", "Advice", blocks)]), {})
    numbers = [int(n) for n in re.findall(r"^(\d+)\. \*\*", text, re.MULTILINE)]
    assert numbers == [*range(1, 13), 1, 2]
    # Evidence is indented to its item's text, or it would end the list.
    assert "\n9. " in text and "\n   - seen" in text and "\n12. " in text and "\n    - seen" in text


def test_the_summary_and_every_table_give_mad_in_one_unit(tmp_path: Path) -> None:
    shutil.copytree(ROOT / "tests" / "data" / "known_good_run", tmp_path / "run")
    directory = RunDirectory(tmp_path / "run")
    run = Run.open(directory.path)
    run.save()
    metrics, manifest = run.metrics, run.manifest
    printed = whole_text(run)
    made = markdown.render(content(run), {})
    summary = directory.summary_path(manifest.model.stem, "md").read_text()
    for name, experiment in metrics.experiments.items():
        assert experiment.latency is not None and experiment.latency.mad_percent is not None
        shown = f"{experiment.latency.mad_percent:.1f} %"
        for text in (printed, made, summary):
            rows = [line for line in text.splitlines() if run.label(name) in line and shown in line]
            assert rows, (name, shown, text)
    assert "MAD ms" not in summary
