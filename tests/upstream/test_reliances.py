"""What the kit relies on without a promise: all of it is on one list, named in one folder, and checked."""

import ast
import re
from pathlib import Path

import pytest

from model_profiling.upstream.all_reliances import ALL
from model_profiling.upstream.reliance import FAILS_VARIABLE, Reliance, holds, why_not
from tests.conftest import ROOT

pytestmark = pytest.mark.fast
PACKAGE = ROOT / "model_profiling"
# Private things of others, as code names them: imports, symbols, files of theirs, and numbers that only they know.
PRIVATE = re.compile(
    r"ray\._private|ray\._raylet|ray\.core\.generated|torch\._|executorch\.(backends|exir|examples|devtools|extension)\."
    r"|libexecutorch_|executorch_(backend|etdump|kernels|threadpool)|libcustom_ops_aot|kai_run_|cpuinfo_isa|cpuinfo_init"
    r"|_ZNK?\d|\bxnn_\w+|XNN(?!PACK|_LOG)[A-Z_]\w+|XN01|SUPPORTED_PATTERNS|_unsafe_reset_threadpool|\.fbs\b"
)
ALLOWED = ("upstream", "export", "models")


def named(path: Path) -> list[str]:
    """What a module names in its code: strings that are not documentation, imports and dotted names."""
    tree = ast.parse(path.read_text(encoding="utf-8"))
    documentation = {id(node.value) for node in ast.walk(tree) if isinstance(node, ast.Expr)}
    found = []
    for node in ast.walk(tree):
        if isinstance(node, ast.Constant) and isinstance(node.value, str) and id(node) not in documentation:
            found.append(node.value)
        elif isinstance(node, ast.Import):
            found += [alias.name for alias in node.names]
        elif isinstance(node, ast.ImportFrom):
            found += [f"{node.module or ''}.{alias.name}" for alias in node.names]
        elif isinstance(node, ast.Attribute):
            found.append(ast.unparse(node))
    return found


def test_private_things_of_others_are_named_in_upstream_export_and_models_alone() -> None:
    wrong = {
        f"{path.relative_to(PACKAGE)}: {found[0]}"
        for path in PACKAGE.rglob("*.py")
        if path.relative_to(PACKAGE).parts[0] not in ALLOWED
        for text in named(path)
        if (found := PRIVATE.search(text))
    }
    # What operators of a trace are called is what people read, and is the category table's business.
    assert wrong == set()
    sources = [*(PACKAGE / "runner" / "native").iterdir()]
    declared = {path.name for path in sources if re.search(r"extern .*cpuinfo|struct ThreadPool", path.read_text())}
    assert sources and declared == set()


def test_the_rule_finds_what_breaks_it(tmp_path: Path) -> None:
    module = tmp_path / "module.py"
    for line in (
        "from ray._private.worker import global_worker",
        "import importlib\nimportlib.import_module('ray._private.worker')",
        "name = 'libexecutorch_backend_xnnpack.so'",
        "from executorch.exir.pass_base import ExportPass",
        "import torch\ntorch._C._dispatch_dump('x')",
        "x = 'kai_run_matmul_x'",
    ):
        module.write_text(line)
        assert any(PRIVATE.search(text) for text in named(module)), line


def test_every_record_says_all_and_has_a_name_of_its_own() -> None:
    assert len({each.name for each in ALL}) == len(ALL)
    for each in ALL:
        assert re.fullmatch(r"[a-z][a-z-]+", each.name)
        assert all((each.project, each.relies_on, each.proven, each.checked, each.instead)), each.name


def test_each_can_be_made_to_fail_by_its_name_and_then_says_what_happens(monkeypatch: pytest.MonkeyPatch) -> None:
    for each in ALL:
        monkeypatch.setenv(FAILS_VARIABLE, f"nothing,{each.name}")
        assert not holds(each) and each.instead in why_not(each)
        monkeypatch.setenv(FAILS_VARIABLE, "all")
        assert holds(each) == each.essential


@pytest.mark.parametrize("raised", [AttributeError("gone"), ImportError("moved"), TypeError("other arguments")])
def test_a_check_that_breaks_has_failed(raised: Exception) -> None:
    def check() -> str:
        raise raised

    broken = Reliance("something", "torch", "a name", "torch 2", "it is called", "the slow way", check)
    assert str(raised) in why_not(broken) and why_not(broken).endswith("the slow way")
