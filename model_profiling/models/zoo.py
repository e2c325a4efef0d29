"""ExecuTorch's own example models, by ExecuTorch's own names, without importing any of them until one is wanted."""

import ast
import functools
import importlib.util
import sys
from collections.abc import Iterator
from pathlib import Path

from model_profiling.upstream.example_models import ZOO_PACKAGE as PACKAGE
from model_profiling.upstream.example_models import zoo_table


def zoo_models() -> dict[str, str]:
    """Map each of ExecuTorch's model names to `package.module:Class`; empty where executorch is not installed."""
    return {name: f"{PACKAGE}.{module}:{cls}" for name, (module, cls) in sorted(zoo_table().items())}


def missing_packages(name: str) -> list[str]:
    """Name the packages that a zoo model's source imports and this environment lacks, read from the source itself."""
    package = zoo_models()[name].split(":")[0].removeprefix(f"{PACKAGE}.")
    return sorted(top for top in _imports_of(package) if not _installed(top))


@functools.cache
def _imports_of(package: str) -> frozenset[str]:
    """Collect the top-level packages imported by a zoo package and by those it imports from the zoo in turn."""
    spec = importlib.util.find_spec(PACKAGE)
    assert spec is not None and spec.origin is not None  # zoo_models() has already imported it
    root = Path(spec.origin).parent
    waiting, seen, found = [root.joinpath(*package.split("."), "__init__.py")], set(), set()
    while waiting:
        path = waiting.pop()
        if path in seen or not path.is_file():
            continue
        seen.add(path)
        for module in _imported_modules(path, root):
            if module.startswith(f"{PACKAGE}."):
                inside = root.joinpath(*module.removeprefix(f"{PACKAGE}.").split("."))
                waiting += [inside.with_suffix(".py"), inside / "__init__.py"]
            else:
                found.add(module.split(".")[0])
    return frozenset(found)


@functools.cache
def _imported_modules(path: Path, root: Path) -> frozenset[str]:
    """Return the absolute names of the modules that importing a file imports in turn."""
    here = [*PACKAGE.split("."), *path.relative_to(root).with_suffix("").parts]
    found: set[str] = set()
    for node in _certain_statements(ast.parse(path.read_text(encoding="utf-8"))):
        if isinstance(node, ast.Import):
            found |= {alias.name for alias in node.names}
        elif isinstance(node, ast.ImportFrom):
            parent = here[: -node.level] if node.level else []
            module = ".".join([*parent, *([node.module] if node.module else [])])
            found.add(module)
            if node.level or module.startswith(PACKAGE):
                found |= {f"{module}.{alias.name}" for alias in node.names}
    return frozenset(found)


def _certain_statements(tree: ast.AST) -> Iterator[ast.AST]:
    """Yield the statements that run on import, whatever is installed."""
    for child in ast.iter_child_nodes(tree):
        copes = isinstance(child, ast.Try) and not any(isinstance(node, ast.Raise) for node in ast.walk(child))
        if not copes and not isinstance(child, (ast.FunctionDef, ast.AsyncFunctionDef, ast.expr)):
            yield child
            yield from _certain_statements(child)


@functools.cache
def _installed(top: str) -> bool:
    return top in sys.stdlib_module_names or importlib.util.find_spec(top) is not None
