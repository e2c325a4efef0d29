"""A class name means one thing, a function's docstring begins with a verb, and names are words of the field."""

import ast
import functools
import re
from collections import defaultdict
from collections.abc import Iterator
from pathlib import Path

from tests.conftest import ROOT

PACKAGE = ROOT / "model_profiling"
# What a noun phrase or a question begins with; a docstring begins with a verb: "Return ...", "Write ...".
NOT_VERBS = re.compile(
    r"(The|An?|This|These|Those|What|Whether|How|Why|Where|Which|Who|When|All|Each|Every|Everything|Both|One|Two|Only"
    r"|Nothing|None|Another|Of|For|In|By|With|From|At|On|Over|Under|After|It|As)\b"
)
# Riddles that the field has a word for; `tests/project/test_docs.py` has those that users met.
RIDDLES = re.compile(
    r"foretold|for nothing go|only to see how they start|nearer to the roof|refuses its own|what nobody needs"
    r"|told_apart|[Ss]ilence where|surely (slower|faster)|is no assumption"
)
RIDDLE_NAMES = {"Hand", "Ended", "Asked", "Standing", "Remembered", "Known", "Chosen", "Listed", "Measured", "Opened"}


@functools.cache
def trees() -> dict[str, ast.Module]:
    paths = (path for path in PACKAGE.rglob("*.py") if not any(part.startswith("out_") for part in path.parts))
    return {str(path.relative_to(ROOT)): ast.parse(path.read_text()) for path in sorted(paths)}


def is_network(path: str) -> bool:
    """Return whether a file is a model's own: its layers have the names that its paper gives them."""
    return path.startswith("model_profiling/models/") and len(Path(path).parts) > 3


def documented() -> Iterator[tuple[str, str]]:
    """Yield where each function of the package is and how its docstring begins; properties may name the thing."""
    for path, tree in trees().items():
        holders: list[ast.Module | ast.ClassDef] = [
            tree,
            *(node for node in tree.body if isinstance(node, ast.ClassDef)),
        ]
        for node in (node for holder in holders for node in holder.body):
            if not isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef) or node.name.startswith("__"):
                continue
            text = ast.get_docstring(node)
            if text and not any("property" in ast.unparse(decorator) for decorator in node.decorator_list):
                yield f"{path}:{node.lineno} {node.name}", text.splitlines()[0]


def test_a_public_class_name_is_that_of_one_class() -> None:
    homes = defaultdict(list)
    for path, tree in trees().items():
        for node in tree.body:
            if isinstance(node, ast.ClassDef) and not node.name.startswith("_") and not is_network(path):
                homes[node.name].append(path)
    assert not {name: paths for name, paths in homes.items() if len(paths) > 1}
    assert not RIDDLE_NAMES & set(homes)


def test_a_docstring_of_a_function_begins_with_a_verb() -> None:
    found = [f"{where}: {line}" for where, line in documented() if NOT_VERBS.match(line)]
    assert not found


def test_no_riddle_stands_where_the_field_has_a_word() -> None:
    found = [f"{path}: {match[0]}" for path in trees() for match in RIDDLES.finditer((ROOT / path).read_text())]
    assert not found
