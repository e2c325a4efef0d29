"""Count lines of Python: `make size` prints them by folder, with the largest files and functions."""

import ast
from collections import Counter
from collections.abc import Iterable, Iterator
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
PACKAGES = ("model_profiling", "sme2_kit")
_SHOWN = 10


def lines_by_file(*folders: str) -> dict[Path, int]:
    """Return the lines of every Python file below these folders of the repository; what exports wrote is left out."""
    found = (path.relative_to(ROOT) for folder in folders for path in sorted((ROOT / folder).rglob("*.py")))
    return {
        path: len((ROOT / path).read_text().splitlines())
        for path in found
        if not any(part.startswith("out_") for part in path.parts)
    }


def lines_by_folder(files: dict[Path, int]) -> Counter[str]:
    """Return the lines of each folder with its subfolders, but for the files at the top of the package."""
    lines = Counter[str]()
    for path, count in files.items():
        lines["/".join(path.parent.parts[:2])] += count
    return lines


def functions(paths: Iterable[Path]) -> Iterator[tuple[str, int]]:
    """Return the name and the lines of every function, `file:line name`."""
    for path in paths:
        for node in ast.walk(ast.parse((ROOT / path).read_text())):
            if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
                yield f"{path}:{node.lineno} {node.name}", (node.end_lineno or node.lineno) - node.lineno + 1


def report() -> str:
    """Return what `make size` prints."""
    package = lines_by_file(*PACKAGES)
    others = {name: sum(lines_by_file(name).values()) for name in ("tests", "benchmarks")}
    parts = {
        "lines of Python by folder": lines_by_folder(package).most_common(),
        "in all": [(" and ".join(PACKAGES), sum(package.values())), *others.items()],
        "largest files": Counter({str(path): lines for path, lines in package.items()}).most_common(_SHOWN),
        "largest functions": Counter(dict(functions(package))).most_common(_SHOWN),
    }
    return "\n\n".join(
        "\n".join([title, *(f"{lines:8,}  {name}" for name, lines in rows)]) for title, rows in parts.items()
    )


if __name__ == "__main__":
    import sys

    sys.stdout.write(report() + "\n")
