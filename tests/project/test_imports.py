"""The direction of imports, as CONTRIBUTING's tree states it: a folder imports only from folders above it."""

import ast
import functools
import re
from pathlib import Path

import pytest

from model_profiling.runtimes.runtime_table import RUNTIMES
from tests.conftest import ROOT

pytestmark = pytest.mark.fast
PACKAGE = "model_profiling"
# The doors of the spec: a few lines each, which call the command line.
DOORS = (f"{PACKAGE}.__main__", f"{PACKAGE}.export.export_model")
HEAVY = ("torch", "executorch", "torchao", "torchvision", "timm", "transformers", "safetensors")
# Each is imported by one process.
RUNTIME_PACKAGES = ("onnx", "onnxruntime", "ai_edge_litert")

RUNTIME_PROCESSES = tuple(f"{PACKAGE}.runtimes.{row.module}" for row in RUNTIMES.values() if row.module)


@functools.cache
def tree() -> dict[str, list[str]]:
    """Return the folders of the package in CONTRIBUTING's order, each with those inside it that have an order."""
    listed = (ROOT / "CONTRIBUTING.md").read_text().split("<!-- stages -->")[1]
    found: dict[str, list[str]] = {}
    for indent, name in re.findall(r"^( +)(\w+)/ ", listed, re.MULTILINE):
        if len(indent) == 2:
            found[name] = []
        else:
            found[list(found)[-1]].append(name)
    return found


@functools.cache
def modules() -> dict[str, Path]:
    found = {}
    for path in (ROOT / PACKAGE).rglob("*.py"):
        parts = path.relative_to(ROOT).with_suffix("").parts
        if not any(part.startswith("out_") for part in parts):
            found[".".join(parts).removesuffix(".__init__")] = path
    return found


@functools.cache
def imported(path: Path, package: str) -> frozenset[str]:
    """Return every module that a file imports: at the top, in functions and for type checkers alike."""
    found = set()
    known = modules()
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.Import):
            found |= {alias.name for alias in node.names}
        elif isinstance(node, ast.ImportFrom):
            base = node.module or ""
            if node.level:
                home = package.split(".")[: len(package.split(".")) - node.level + 1]
                base = ".".join([*home, *([base] if base else [])])
            found |= {f"{base}.{a.name}" if f"{base}.{a.name}" in known else base for a in node.names}
    return frozenset(found)


def all_imports_of(module: str) -> frozenset[str]:
    """Return the modules that a module of the package imports, other people's too."""
    path = modules()[module]
    return imported(path, module if path.name == "__init__.py" else module.rpartition(".")[0])


def imports_of(module: str) -> list[str]:
    """Return the modules of the package that a module imports."""
    return [other for other in all_imports_of(module) if other in modules() and other not in (module, PACKAGE)]


def wrong_way(depth: int, order: list[str], within: str) -> list[str]:
    """Return the imports from one folder to a later one, of the folders at a depth below `within`."""
    found = []
    for module in modules():
        if not module.startswith(f"{within}.") or module in DOORS or module.count(".") < depth:
            continue
        for other in imports_of(module):
            if other.startswith(f"{within}.") and other.count(".") >= depth:
                ours, theirs = module.split(".")[depth], other.split(".")[depth]
                if ours != theirs and order.index(theirs) > order.index(ours):
                    found.append(f"{module} imports {other}")
    return found


def test_a_folder_imports_only_from_folders_above_it() -> None:
    assert not wrong_way(1, list(tree()), PACKAGE)


@pytest.mark.parametrize("folder", [name for name, inside in tree().items() if inside])
def test_inside_a_folder_the_same_holds(folder: str) -> None:
    assert not wrong_way(2, tree()[folder], f"{PACKAGE}.{folder}")


def test_the_tree_has_every_folder_and_no_other() -> None:
    code = {module.split(".")[1] for module in modules() if "." in module and module not in DOORS}
    assert set(tree()) == code
    for folder, inside in tree().items():
        there = {path.parent.name for path in (ROOT / PACKAGE / folder).glob("*/__init__.py")}
        assert not inside or set(inside) == there, folder
    loose = {path.name for path in (ROOT / PACKAGE).glob("*.py")}
    assert loose == {"__init__.py", "__main__.py"}


def test_no_two_files_import_each_other() -> None:
    """By any way round: what is left after taking away all that imports nothing of what is left is a circle."""
    left = {module: set(imports_of(module)) for module in modules() if module not in DOORS}
    while free := {module for module, others in left.items() if not others & left.keys()}:
        left = {module: others for module, others in left.items() if module not in free}
    # Whoever only leads into a circle is no part of it.
    while last := left.keys() - {other for others in left.values() for other in others}:
        left = {module: others for module, others in left.items() if module not in last}
    assert not left


def test_the_public_name_is_the_api_and_nothing_else() -> None:
    assert [path.name for path in (ROOT / "sme2_kit").glob("*.py")] == ["__init__.py"]
    assert imported(ROOT / "sme2_kit" / "__init__.py", "sme2_kit") <= {"typing", "model_profiling.api"}
    assert not [module for module in modules() if "sme2_kit" in all_imports_of(module)]


def test_torch_and_executorch_are_imported_where_exports_are_made_and_nowhere_else() -> None:
    allowed = ("model_profiling.export", "model_profiling.models", "model_profiling.upstream", *RUNTIME_PROCESSES)
    typing_only = {"model_profiling.api.parameters"}  # names torch.nn.Module in its signatures, for type checkers
    found = {
        module
        for module in modules()
        if any(other.split(".")[0] in (*HEAVY, *RUNTIME_PACKAGES) for other in all_imports_of(module))
        and not module.startswith(allowed)
    }
    assert found <= typing_only


def test_only_the_process_of_a_runtime_imports_it() -> None:
    assert not [m for m in modules() if set(imports_of(m)) & {*RUNTIME_PROCESSES} and m not in RUNTIME_PROCESSES]


def test_the_rule_finds_what_breaks_it(tmp_path: Path) -> None:
    nested = tmp_path / "module.py"
    nested.write_text(
        "from typing import TYPE_CHECKING\n"
        "if TYPE_CHECKING:\n    from model_profiling.cli import run\n"
        "def f():\n    import model_profiling.report.html as page\n    from ..report import words\n"
    )
    found = imported(nested, "model_profiling.analysis")
    assert {"model_profiling.cli.run", "model_profiling.report.html", "model_profiling.report.words"} <= found
