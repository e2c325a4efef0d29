"""Real programs that differ: the lines that were changed are found, and all others are the same lines.

Nothing is said of times: these tests run beside others.
"""

from collections.abc import Callable
from pathlib import Path

import msgspec
import pytest

from model_profiling.analysis.compare.comparison import PairComparison
from model_profiling.analysis.compare.program_changes import PartChange, ProgramChanges
from tests.conftest import kit

pytestmark = pytest.mark.wide

NET = """
import torch
from torch import nn


class Block(nn.Module):
    def __init__(self, width):
        super().__init__()
        self.conv, self.back = nn.Conv2d(8, width, 3, padding=1), nn.Conv2d(width, 8, 1)

    def forward(self, x):
        y = torch.nn.functional.hardswish(self.conv(x))
        return x + self.back(y)


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.stem = nn.Conv2d(3, 8, 3, padding=1)
        self.blocks = nn.ModuleList([Block(8), Block(WIDTH)])
        self.mix = nn.Linear(8, 8)

    def get_example_inputs(self):
        return (torch.randn(1, 3, 16, 16),)

    def forward(self, image):
        x = self.stem(image)
        for block in self.blocks:
            x = block(x)
        x = self.mix(x.permute(0, 2, 3, 1)).permute(0, 3, 1, 2)
        return torch.sigmoid(x)
"""
# A block is wider, an operator is none of XNNPACK's, and every line is elsewhere in another file.
EDITED = "# edited\n# twice\n" + NET.replace("WIDTH", "24").replace("torch.sigmoid(x)", "torch.erf(x)")


@pytest.fixture(scope="module")
def program(tmp_path_factory: pytest.TempPathFactory) -> Callable[..., Path]:
    home = tmp_path_factory.mktemp("programs")
    (home / "net.py").write_text(NET.replace("WIDTH", "8"))
    (home / "edited.py").write_text(EDITED)

    def made(name: str, *words: str) -> Path:
        folder = home / "-".join([name, *words]).replace("--", "")
        if not folder.is_dir():
            done = kit("export", home / f"{name}.py:Net", "--dtype", "fp32", "--outdir", folder, *words)
            assert done.returncode == 0, done.stderr
        return next(folder.glob("*.pte"))

    return made


def changes(before: Path, after: Path) -> ProgramChanges:
    done = kit("compare", before, after, "--json", "--runs", 1, "--launches", 1)
    assert done.returncode == 0, done.stderr
    (found,) = msgspec.json.decode(done.stdout, type=list[PairComparison])
    assert found.changes is not None
    for name in ("before_ms", "after_ms", "difference_ms"):
        whole = getattr(found.changes, name)
        assert sum(getattr(part, name) for part in found.changes.parts) == pytest.approx(whole, abs=1e-9)
        assert sum(getattr(module, name) for module in found.changes.modules) == pytest.approx(whole, abs=1e-9)
    assert any("too few launches" in note for note in found.changes.notes) and not found.changes.told
    return found.changes


def different(found: ProgramChanges) -> dict[str, PartChange]:
    """Return the parts that something is different about, by their module."""
    return {part.module: part for part in found.parts if part.aspects or part.matched.startswith("only")}


def test_the_edited_lines_differ_and_no_others(program: Callable[..., Path]) -> None:
    found = changes(program("net"), program("edited"))
    parts = different(found)
    assert set(parts) == {"blocks.1", "blocks.1.conv", "blocks.1.back", ""}, found.parts
    assert [aspect.what for aspect in parts["blocks.1.conv"].aspects] == ["shape"]
    assert parts[""].code == "return torch.erf(x)"
    assert "delegation" in [aspect.what for aspect in parts[""].aspects]
    assert {part.matched for part in found.parts} <= {"line", "place", "runtime"}
    same = changes(program("net"), program("net"))
    assert not different(same) and {part.matched for part in same.parts} == {"line", "runtime"}


def test_a_rewrite_keeps_the_lines_of_what_it_replaces(program: Callable[..., Path]) -> None:
    found = changes(program("net"), program("net", "--rewrite", "layout"))
    assert {part.matched for part in found.parts} <= {"line", "module", "runtime"}, found.parts
    went = [a.before for part in found.parts for a in part.aspects if a.what == "operators"]
    assert any("Transpose" in names for names in went)


def test_quantized_lines_are_the_same_lines_in_another_dtype(toy: Callable[[str], Path]) -> None:
    found = changes(toy("fp32"), toy("int8"))
    by_module = {part.module: part for part in found.parts if part.matched == "line" and part.module}
    assert set(by_module) == {"stem", "conv", "depthwise", "pointwise", "expand", "project", "reduce", "head"}
    for part in by_module.values():
        (dtype,) = [aspect for aspect in part.aspects if aspect.what == "dtype"]
        assert dtype.before == "F32" and dtype.after.startswith("Q")
    assert not [part for part in found.parts if part.matched == "only before"]


def test_what_quantization_inserts_and_looks_up_stands_at_the_line_and_module_it_is_for(
    program: Callable[..., Path],
) -> None:
    found = changes(program("net"), program("net", "--dtype", "int8"))
    assert {part.matched for part in found.parts} <= {"line", "module", "runtime"}, found.parts
    activations = [part for part in found.parts if part.module in ("blocks.0", "blocks.1") and "hardswish" in part.code]
    assert len(activations) == 2
    for part in activations:
        assert ("operators", "HardSwish", "Invalid Unary Op") in [(a.what, a.before, a.after) for a in part.aspects]


def test_a_program_without_its_etrecord_is_matched_by_kind_and_shape(
    toy: Callable[[str], Path], tmp_path: Path
) -> None:
    bare = tmp_path / "bare.pte"
    bare.write_bytes(toy("fp32").read_bytes())
    found = changes(toy("fp32"), bare)
    assert "no ETRecord next to bare.pte" in found.notes[0] and "kind of work and shape" in found.notes[0]
    assert not different(found)
