"""The commands under "How to reproduce", typed where the report says, give the same program and run."""

# ruff: noqa: E402 - without torch these tests are skipped before the imports that need it
import dataclasses
import shlex
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.helpers.parsers import parser_of

pytest.importorskip("executorch.exir")
torch = pytest.importorskip("torch")

from model_profiling.base import files
from model_profiling.base.rewrites import REWRITES
from model_profiling.cli import export as export_command
from model_profiling.cli.main import main
from model_profiling.export.in_memory import export_module
from model_profiling.export.options import OPTIONS
from model_profiling.export.request import ExportRequest, repeated
from model_profiling.models.options import DTYPES, LoadOptions
from model_profiling.report.blocks import Code, Paragraph, Section
from model_profiling.report.content import method
from model_profiling.store.artifacts import Delegation, ExportMeta, ExportRecord
from model_profiling.store.run_directory import RunDirectory
from sme2_kit import Run

NETWORK = """
import torch

class TinyNet(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.first = torch.nn.Linear(32, 32)

    def forward(self, x):
        return self.first(x).mean((2, 3))

get_example_inputs = lambda: torch.randn(1, 2, 4, 32)
"""
# Where the files lie: a path may hold whatever a file system allows.
FOLDER = 'it\'s a "model" $HOME & co'


FILE = f"{FOLDER}/net.py:TinyNet"


@pytest.fixture
def place(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The directory in which the user works, with a model in a folder of an awkward name and a checkpoint."""
    home = tmp_path / "work here"
    (home / FOLDER).mkdir(parents=True)
    (home / FOLDER / "net.py").write_text(NETWORK)
    torch.save({"first.weight": torch.eye(32), "first.bias": torch.ones(32)}, home / FOLDER / "trained weights.pt")
    monkeypatch.chdir(home)
    return home


def the_record(home: Path) -> tuple[Path, ExportRecord]:
    """The one export below `home`."""
    (path,) = home.rglob("export_meta.json")
    ((stem, record),) = files.read_json(path, ExportMeta, "export record").exports.items()
    return path.with_name(f"{stem}.pte"), record


@pytest.mark.parametrize(
    ("words", "away"),
    [
        pytest.param(
            ["llm_block_prefill", "--set", "tokens=4", "--set", "width=64", "--seed", "3"],
            False,
            marks=[pytest.mark.wide, pytest.mark.again],
        ),
        ([f"{FOLDER}/net.py"], True),
        ([FILE, "--input-shape", "1,2,8,32", "--seed", "7", "--rewrite", "keepdim", "--dtype", "fp16"], False),
        (
            [FILE, "--checkpoint", f"{FOLDER}/trained weights.pt", "--outdir", "some where", "--backend", "portable"],
            True,
        ),
    ],
    ids=["registered with settings", "file, typed elsewhere", "rewrite, shape and seed", "checkpoint and place"],
)
@pytest.mark.wide
def test_the_printed_export_gives_the_same_program(
    words: list[str], away: bool, place: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert main(["export", *words]) == 0
    pte, record = the_record(place)
    digest = files.sha256(pte)
    if away:
        (tmp_path / "other").mkdir()
        monkeypatch.chdir(tmp_path / "other")
    command = repeated(record, str(Path.cwd()))
    assert command is not None
    pte.unlink()
    program, *again = shlex.split(shlex.join(command))
    assert program == "sme2-kit" and main(again) == 0
    assert files.sha256(pte) == digest


def parsed(words: list[str]) -> ExportRequest:
    return export_command.export_request(parser_of("export").parse_args(words))


def recorded(request: ExportRequest, origin: str) -> ExportRecord:
    """The record of an export that was asked for like this."""
    facts: dict[str, Any] = {
        "source": "",
        "weights": "",
        "inputs": [],
        "outputs": [],
        "delegation": Delegation(0, 0, 0, []),
    }
    facts |= {"versions": {}, "files": {}, "stage_seconds": {}, "created": ""}
    asked = request.record("file" if origin == "file" else "registry")
    return ExportRecord(model=request.model, request=asked, **facts, **request.recorded("export"))


words_of = st.text("abc XYZ'\"$&;|<>*?\\#~!()é\n", min_size=1, max_size=12).filter(lambda text: text.strip() == text)
sizes = st.lists(st.integers(1, 300), min_size=1, max_size=4).map(lambda shape: ",".join(map(str, shape)))
ranges = st.tuples(st.integers(-9, 9), st.integers(10, 99)).map(lambda ends: f":{ends[0]}..{ends[1]}")
inputs_of = st.one_of(
    sizes.map(lambda shape: ("--input-shape", shape)),
    st.tuples(st.sampled_from(DTYPES), sizes | st.just("()")).map(lambda parts: ("--input", ":".join(parts))),
    st.tuples(st.sampled_from(DTYPES), sizes, ranges)
    .filter(lambda parts: parts[0] not in ("bool", "uint8"))
    .map(lambda parts: ("--input", f"{parts[0]}:{parts[1]}{parts[2]}")),
)
values_of = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False) | words_of,
    lambda inner: st.lists(inner, max_size=3) | st.lists(inner, max_size=3).map(tuple),
    max_leaves=4,
)
# Every option that has choices, with one of them.
chosen = st.tuples(
    *(st.tuples(st.just(row.flag), st.sampled_from(row.choices)) for row in OPTIONS if row.choices and not row.repeated)
)
asked = st.builds(
    lambda chosen, seed, shapes, rewrites, checkpoint: [
        *(word for words in chosen for word in words),
        *("--seed", str(seed)),
        *(word for shape in shapes for word in shape),
        *(word for name in rewrites for word in ("--rewrite", name)),
        *(["--checkpoint", checkpoint] if checkpoint else []),
    ],
    chosen,
    st.integers(-5, 5),
    st.lists(inputs_of, max_size=3),
    st.lists(st.sampled_from(sorted(REWRITES)), max_size=3),
    st.one_of(st.just(""), words_of),
)


@settings(max_examples=30, deadline=None)
@given(
    flags=asked,
    outdir=st.one_of(st.none(), words_of),
    setting=st.one_of(
        st.none(),
        st.tuples(st.sampled_from(["width", "mode"]), st.sampled_from(["4", "007", "a-b.c", "[1,2]", "true"])),
    ),
    from_file=st.booleans(),
)
def test_what_was_asked_is_asked_again(
    flags: list[str],
    outdir: str | None,
    setting: tuple[str, str] | None,
    from_file: bool,
    tmp_path_factory: pytest.TempPathFactory,
) -> None:
    home = tmp_path_factory.getbasetemp() / "asked again" / FOLDER
    home.mkdir(parents=True, exist_ok=True)
    (home / "net.py").write_text(NETWORK)
    words = [str(home / "net.py:TinyNet") if from_file else "toy_cnn", *flags]
    words += ["--outdir", outdir] if outdir else []
    words += ["--set", "=".join(setting)] if setting else []
    request = parsed(words)
    command = repeated(recorded(request, "file" if from_file else "registry"), str(Path.cwd()))
    assert command is not None
    # As a shell reads it.
    assert parsed(shlex.split(shlex.join(command))[2:]) == request


@settings(max_examples=80, deadline=None)
@given(value=values_of)
def test_a_setting_of_a_python_program_is_typed_so_that_it_is_the_same_again(value: object) -> None:
    request = ExportRequest("toy_cnn", Path("out"), options=LoadOptions(settings=(("width", value),)), dtype="fp32")
    command = repeated(recorded(request, "registry"), str(Path.cwd()))
    if command is None:
        # Only text that a terminal cannot show has no spelling.
        assert "\\n" in repr(value)
        return
    (key, read), *_ = parsed(command[2:]).options.settings
    assert (key, repr(read), type(read)) == ("width", repr(value), type(value))


@pytest.mark.parametrize("value", [float("inf"), object(), {1, 2, print}, float("nan")])
def test_a_setting_that_cannot_be_typed_is_not_printed_as_if_it_could(value: object) -> None:
    request = ExportRequest("toy_cnn", Path("out"), options=LoadOptions(settings=(("width", value),)), dtype="fp32")
    assert repeated(recorded(request, "registry"), str(Path.cwd())) is None


def said(section: Section) -> tuple[str, list[list[str]]]:
    """The words of a section, and the commands in it."""
    words = " ".join(block.text for block in section.blocks if isinstance(block, Paragraph))
    lines = [line for block in section.blocks if isinstance(block, Code) for line in block.text.splitlines()]
    return words, [shlex.split(line) for line in lines if "sme2-kit" in line]


def test_the_printed_run_measures_nothing_again(place: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("sys.argv", ["/opt/notebook/kernel.py", "-f", "/run/kernel-1.json"])
    monkeypatch.setenv("SME2_KIT_BUDGET_S", "2")
    net = torch.nn.Sequential(torch.nn.Linear(8, 8), torch.nn.ReLU())
    result = export_module(net, torch.ones(1, 8), "my files", name="in_memory", dtype="fp16")
    sample = next(result.paths.inputs.glob("*.npy"))
    flags = ["--runs", "6", "--launches", "2", "--threads", "2", "--inputs", str(sample), "--output-root", "my run"]
    assert main(["run", str(result.paths.pte), *flags, "--quiet"]) == 0
    directory = RunDirectory(Path("my run"))
    before = directory.manifest()
    assert before.config["directory"] == str(place) and "kernel" not in str(before.config["command"])
    section = method.reproduce(Run.open(directory.path))
    words, commands = said(section)
    # No command exports it, and Python does.
    assert "no command line" in words and [command[1] for command in commands[1:]] == ["report", "validate"]
    (code,) = [block.text for block in section.blocks if isinstance(block, Code) and "export_module" in block.text]
    space: dict[str, object] = {"module": net, "example_inputs": torch.ones(1, 8)}
    exec(code, space)
    assert files.sha256(result.paths.pte) == before.model.sha256
    # The same fingerprints: model, inputs, counts, threads, budget and platform are what they were.
    variable, program, *again = commands[0]
    assert (variable, program) == ("SME2_KIT_BUDGET_S=2", "sme2-kit") and main(again) == 0
    after = directory.manifest()
    assert after.experiments == before.experiments and after.config == before.config
    assert commands[1][1:] == ["report", "my run", "--html"]


def test_a_request_that_no_export_can_do_says_what_can_be_asked(tmp_path: Path) -> None:
    base = ExportRequest("toy_cnn", tmp_path, dtype="fp32")
    odds = ({"dtype": "bf16"}, {"backend": "x"}, {"memory_format": "x"}, {"io_layout": "x"}, {"delegation": "x"})
    for odd in (*odds, {"rewrites": ("x",)}):
        with pytest.raises(Exception, match="there is no"):
            dataclasses.replace(base, **odd).check()
