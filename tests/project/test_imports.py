"""The direction of imports, as CONTRIBUTING states it: a module imports from its own stage and from earlier ones."""

import ast
import functools
import re
from pathlib import Path

from tests.conftest import ROOT

PACKAGES = ("model_profiling", "sme2_kit")
# Modules that lie in a folder for their subject and belong elsewhere by what they need and who needs them.
APART = {
    # What the runner says is a part of what a run directory holds.
    "model_profiling.runner.protocol": "shared",
    "model_profiling.__main__": "doors",
    "model_profiling.export.export_model": "doors",
    "model_profiling.scripts": "doors",
    "model_profiling.tools": "doors",
}
HEAVY = ("torch", "executorch", "torchao", "torchvision", "timm", "transformers", "safetensors")


def stages() -> list[list[str]]:
    """The stages in order, as CONTRIBUTING lists them; those of one line may not import each other."""
    text = (ROOT / "CONTRIBUTING.md").read_text()
    listed = text.split("<!-- stages -->")[1]
    return [re.findall(r"`(\w+)/?`", line) for line in re.findall(r"^\d+\. (.*)$", listed, re.MULTILINE)]


@functools.cache
def modules() -> dict[str, Path]:
    found = {}
    for package in PACKAGES:
        for path in (ROOT / package).rglob("*.py"):
            parts = path.relative_to(ROOT).with_suffix("").parts
            if not any(part.startswith("out_") for part in parts):
                found[".".join(parts).removesuffix(".__init__")] = path
    return found


@functools.cache
def imported(path: Path, package: str) -> frozenset[str]:
    """Every module that a file's import statements name, at the top, in functions and for type checkers alike."""
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


def stage(module: str) -> str:
    apart = [name for prefix, name in APART.items() if module == prefix or module.startswith(f"{prefix}.")]
    if apart:
        return apart[0]
    parts = module.split(".")
    if parts[0] == "sme2_kit":
        return "sme2_kit"
    folder = len(parts) > 1 and (ROOT / "model_profiling" / parts[1]).is_dir()
    return parts[1] if folder else "shared"


def test_a_module_imports_only_from_its_own_stage_and_from_earlier_ones() -> None:
    order = {name: place for place, names in enumerate(stages()) for name in names}
    wrong = []
    for module, path in modules().items():
        package = module if path.name == "__init__.py" else module.rpartition(".")[0]
        for other in imported(path, package):
            if other.split(".")[0] not in PACKAGES:
                continue
            ours, theirs = stage(module), stage(other)
            assert ours in order and theirs in order, f"CONTRIBUTING does not list {ours} or {theirs}"
            if ours != theirs and order[theirs] >= order[ours]:
                wrong.append(f"{module} ({ours}) imports {other} ({theirs})")
    assert not wrong, "\n".join(wrong)


def test_every_folder_has_a_stage() -> None:
    listed = {name for names in stages() for name in names}
    assert {stage(module) for module in modules()} == listed


def test_torch_and_executorch_are_imported_where_exports_are_made_and_nowhere_else() -> None:
    allowed = ("model_profiling.export", "model_profiling.models")
    typing_only = {"sme2_kit"}  # names torch.nn.Module in its signatures, for type checkers
    found = {
        module
        for module, path in modules().items()
        if any(other.split(".")[0] in HEAVY for other in imported(path, module)) and not module.startswith(allowed)
    }
    assert found <= typing_only


def test_the_rule_finds_what_breaks_it(tmp_path: Path) -> None:
    nested = tmp_path / "module.py"
    nested.write_text(
        "from typing import TYPE_CHECKING\n"
        "if TYPE_CHECKING:\n    from model_profiling.cli import run\n"
        "def f():\n    import model_profiling.report.html as page\n    from ..report import words\n"
    )
    found = imported(nested, "model_profiling.analysis")
    assert {"model_profiling.cli.run", "model_profiling.report.html", "model_profiling.report.words"} <= found
