"""One name for each thing on the command line: it is the one in the help, and what it was called before still works."""

import argparse
import inspect
import shutil
from pathlib import Path

import pytest

import sme2_kit
from model_profiling.api.definition import find
from model_profiling.base.errors import InputError
from model_profiling.cli.arguments import Parser, prepare
from model_profiling.cli.main import GROUPS, main, make_parser
from model_profiling.cli.tools import _TOOLS
from model_profiling.export.options import OPTIONS
from tests.helpers.kit_here import kit_here
from tests.helpers.parsers import parser_of
from tests.helpers.states import KNOWN_GOOD

pytestmark = pytest.mark.fast
EARLIER = {
    *("--outdir", "--output-root", "--output", "--output-dir", "--run-dir", "--results", "--input-shape", "--inputs"),
}
LISTED = [name for names in GROUPS.values() for name in names]


def parse(*words: str) -> argparse.Namespace:
    return make_parser(words[:1]).parse_args(words)


def listed_flags(parser: argparse.ArgumentParser) -> set[str]:
    shown = [action for action in parser._actions if action.help != argparse.SUPPRESS]
    return {flag for action in shown for flag in action.option_strings}


def test_no_help_lists_an_earlier_spelling() -> None:
    (commands,) = [a for a in make_parser()._actions if isinstance(a, argparse._SubParsersAction)]
    for name in LISTED:
        assert not EARLIER & listed_flags(commands.choices[name]), name
    for name, (taken, _) in _TOOLS.items():
        prepare(parser := argparse.ArgumentParser(), find(taken))
        assert not EARLIER & listed_flags(parser), name


@pytest.mark.parametrize("name", LISTED)
def test_help_is_a_sentence_an_example_and_at_most_twenty_lines(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COLUMNS", "80")
    parser = parser_of(name)
    assert isinstance(parser, Parser)
    parts = [part.splitlines() for part in parser.format_short_help().split("\n\n")]
    assert max(map(len, parts)) <= 20 and "".join(parts[1]).endswith(".")


@pytest.mark.parametrize(
    ("words", "spellings"),
    [
        (["export", "toy_cnn"], ["--outdir", "--output"]),
        (["profile", "toy_cnn"], ["--outdir"]),
        (["tune", "toy_cnn"], ["--outdir"]),
        (["numerics", "toy_cnn"], ["--outdir"]),
        (["run", "a.pte"], ["--output-root"]),
        (["kernels", "a.pte"], ["--output-root"]),
        (["report", "run"], ["--output", "-o"]),
        (["graph", "run"], ["--output", "-o"]),
        (["roofs"], ["--output", "-o"]),
        (["sweep", "a.json"], ["--output"]),
        (["history", "trend", "a"], ["--output"]),
        (["profile", "--demo"], ["--outdir"]),
        (["validate-forecast"], ["--outdir"]),
    ],
)
def test_out_is_where_a_command_writes_whatever_it_was_called(words: list[str], spellings: list[str]) -> None:
    wanted = parse(*words, "--out", "there")
    assert wanted.out == Path("there")
    for spelling in spellings:
        assert parse(*words, spelling, "there") == wanted
        if spelling.startswith("--"):
            assert parse(*words, f"{spelling}=there") == wanted


@pytest.mark.parametrize(
    ("command", "flag"), [("report", "--run-dir"), ("analyze", "--run-dir"), ("validate", "--results")]
)
def test_a_run_directory_is_a_plain_argument(command: str, flag: str, tmp_path: Path) -> None:
    plain, flagged = (kit_here(command, *words, tmp_path / "none") for words in ((), (flag,)))
    assert (plain.returncode, plain.stderr) == (flagged.returncode, flagged.stderr) and plain.returncode != 0
    assert kit_here(command).returncode == 2


def test_input_takes_shapes_specs_and_files_each_in_order(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    for name in ("a.npy", "b.raw"):
        Path(name).touch()
    words = ["--input", "1,3,8,8", "--input", "a.npy", "--input-shape", "1,4", "--input", "int64:1,32:0..8000"]
    given = parse("profile", "net.py:Net", *words, "--input", "b.raw", "--inputs", "c.npy", "d.npy")
    assert given.input_shapes == ["1,3,8,8", "1,4", "int64:1,32:0..8000"]
    assert given.inputs == [Path("a.npy"), Path("b.raw"), Path("c.npy"), Path("d.npy")]
    assert parse("run", "a.pte", "--input", "a.npy").inputs == [Path("a.npy")]
    # What was given to one call is no default of the next.
    assert parse("profile", "toy_cnn").inputs is parse("profile", "toy_cnn").input_shapes is None


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["profile", "n.py", "--input", "1,2"], "is a shape, and a file here has that name"),
        (["export", "n.py", "--input", "a.npy"], "takes no file"),
        (["run", "a.pte", "--input", "1,3,8,8"], "is not a file"),
        (["check", "n.py", "--input", "three"], "is not a shape"),
        (["profile", "n.py", "--input", "float99:1,2"], "there is no dtype"),
    ],
)
def test_a_wrong_input_names_what_can_be_given(
    words: list[str], said: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    for name in ("1,2", "a.npy"):
        Path(name).touch()
    with pytest.raises(InputError, match=said) as caught:
        parse(*words)
    forms = ("./1,2", "float32:1,2") if "has that name" in said else ("1,3,224,224", "int64:1,128:0..30522", ".npy")
    assert all(form in caught.value.hint for form in forms)
    assert main(words) == 2


@pytest.mark.parametrize(
    ("earlier", "now"),
    [
        (["runs", "RUN"], ["history", "runs", "RUN"]),
        (["runs", "RUN", "--remove", "nobody"], ["history", "runs", "RUN", "--remove", "nobody"]),
        (["validate-skill", "no_such"], ["skills", "validate", "no_such"]),
        (["quicktest", "--runs", "3"], ["profile", "--demo", "--runs", "3"]),
    ],
)
def test_an_earlier_name_of_a_command_does_the_same(earlier: list[str], now: list[str], tmp_path: Path) -> None:
    run = str(shutil.copytree(KNOWN_GOOD, tmp_path / "run"))
    ended = [kit_here(*(run if word == "RUN" else word for word in words)) for words in (earlier, now)]
    (told, also) = ((done.returncode, done.stdout, done.stderr) for done in ended)
    assert told == also and any(told[1:])


def test_a_demo_takes_no_model_and_no_other_flags() -> None:
    for words, said in ((["toy_cnn"], "MODEL"), (["--seed", "3"], "--seed"), (["--input", "1,3"], "--input")):
        done = kit_here("profile", "--demo", *words)
        assert done.returncode == 2 and f"--demo takes no {said}" in done.stderr


def test_one_dtype_is_the_default_of_all() -> None:
    from model_profiling.base.dtypes import DEFAULT_DTYPE
    from model_profiling.fleet.sweep.sweep_file import SweepFile

    assert {row.default for row in OPTIONS if row.name == "dtype"} == {DEFAULT_DTYPE}
    assert SweepFile(models=["toy_cnn"]).dtypes == [DEFAULT_DTYPE]
    for verb in ("export", "profile", "numerics", "tune"):
        assert inspect.signature(getattr(sme2_kit, verb)).parameters["dtype"].default == DEFAULT_DTYPE
