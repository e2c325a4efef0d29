"""What a newcomer meets first: commands in groups, and mistakes that are answered with what to do."""

import sys
from pathlib import Path

import msgspec
import pytest

import sme2_kit
from model_profiling.analysis.accuracy.agreement import Agreement
from model_profiling.analysis.timing.latency import Comparison
from model_profiling.cli.main import COMMANDS, GROUPS, make_parser
from model_profiling.tune.tune_report import document
from model_profiling.tune.tune_result import TriedVariant, TuneResult
from tests.helpers.kit_here import kit_here
from tests.helpers.screens import flat, shown

pytestmark = pytest.mark.fast


def test_help_has_every_command_once_in_its_group_and_none_of_an_earlier_name() -> None:
    shown = make_parser().format_help()
    places = [shown.index(f"\n{title}:\n") for title in GROUPS]
    assert places == sorted(places)
    listed = [line.split()[0] for line in shown.splitlines() if line.startswith("  ") and line[2:3].isalpha()]
    assert listed == [name for names in GROUPS.values() for name in names]
    assert {"runs", "quicktest", "validate-skill"} == set(COMMANDS) - set(listed)


def test_history_alone_lists(tmp_path: Path) -> None:
    alone, listed = (kit_here("history", *action, "--root", tmp_path) for action in ([], ["list"]))
    assert (alone.returncode, alone.stdout) == (listed.returncode, listed.stdout) == (0, alone.stdout) != (0, "")


@pytest.mark.parametrize(
    ("words", "said", "fix"),
    [
        (["profile", "w.pt"], "w.pt has the weights of a model", "--checkpoint w.pt"),
        (["graph", "net.py"], "net.py is neither a run directory nor an ETDump", "sme2-kit profile net.py:ClassName"),
        (["graph", "net.pte"], "net.pte is neither a run directory nor an ETDump", "sme2-kit run net.pte"),
        (["run", "net.py"], "net.py is not a .pte", "sme2-kit profile net.py:ClassName"),
        (["profile", "Net"], "there is no model called 'Net'", "Did you mean net.py:Net?"),
        (["profile", "net.Net"], "there is no model called 'net.Net'", "Did you mean net.py:Net?"),
        (["profile", "Toy-CNN"], "there is no model called 'Toy-CNN'", "Did you mean toy_cnn"),
        (["profile", "."], ". is a folder and not a model: it holds 1 Python file: net.py", "profile net.py:ClassName"),
    ],
)
def test_a_mistake_says_what_to_do(words: list[str], said: str, fix: str, tmp_path: Path) -> None:
    for name in ("w.pt", "net.py", "net.pte"):
        (tmp_path / name).write_text("class Net(nn.Module): pass\n")
    done = kit_here(*words, cwd=tmp_path)
    assert done.returncode == 2 and said in done.stderr and fix in done.stderr


def test_a_value_that_looks_like_a_flag_is_told_how_to_be_written() -> None:
    """From Python 3.14 on, argparse takes what begins as a number does, and the kit says what is wrong with it."""
    told = "--flag=-1" if sys.version_info < (3, 14) else "-1,4 has a size below 1"
    assert told in kit_here("check", "net.py:Net", "--input", "-1,4").stderr


FOLDERS = {
    "empty": ("it holds no run, no .pte and no Python file", "sme2-kit profile MODEL"),
    "code": ("it holds 1 Python file: code/net.py", "sme2-kit profile code/net.py:ClassName"),
    "exported": ("it holds 1 exported program: exported/artifacts/net.pte", "sme2-kit run exported/artifacts/net.pte"),
    "several": ("it holds 2 runs: several/a, several/b", "sme2-kit analyze several/a"),
    "sweep": ("it holds 2 runs: sweep/out_a/runs/linux", "sme2-kit analyze sweep/out_a/runs/linux"),
    "killed": ("was interrupted before it was complete", "with the same command"),
}


@pytest.mark.parametrize(
    "command", ["analyze", "report", "graph", "forecast", "run", "kernels", "check", "profile", "tune"]
)
def test_every_command_says_what_a_folder_holds_instead(
    command: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "empty").mkdir()
    for name in ("code/net.py", "exported/artifacts/net.pte", "killed/.partial/x/run.json"):
        Path(name).parent.mkdir(parents=True)
        Path(name).write_text("")
    for name in ("several/a", "several/b", "sweep/out_a/runs/linux", "sweep/out_b/runs/linux"):
        Path(name).mkdir(parents=True)
        Path(name, "manifest.json").write_text("{}")
    for folder, (said, fix) in FOLDERS.items():
        done = kit_here(command, folder)
        assert done.returncode == 2, folder
        if folder != "killed" or command in ("analyze", "report", "graph", "forecast"):
            assert said in done.stderr and fix in done.stderr, done


def test_a_keyword_that_is_nearly_right_is_named() -> None:
    for function in (sme2_kit.run, sme2_kit.profile, sme2_kit.compare):
        with pytest.raises(TypeError, match="unexpected keyword argument 'budget'; did you mean 'budget_s'"):
            function("net.pte", budget=3)  # type: ignore[call-arg]


def compared(contended: bool) -> Comparison:
    return Comparison("fp16", "fp16+silu", 1.9, 1.52, 1.91, 0.95, "faster", 1.0, True, 20, contended)


@pytest.mark.parametrize("contended", [True, False])
@pytest.mark.parametrize("agrees", [True, False])
def test_the_verdict_of_tune_never_contradicts_its_table(contended: bool, agrees: bool) -> None:
    agreement = Agreement("fp16+silu", "eager", 0.1, 1.0, 60.0, 1.0, "agrees" if agrees else "differs")
    entry = TriedVariant("fp16+silu", "silu", "sme2-kit export net", 1.0, compared(contended), agreement)
    baseline = TriedVariant("fp16", "the baseline", "sme2-kit export net", 1.9)
    result = TuneResult("net", "fp16", "linux", [entry, baseline])
    if agrees and not contended:
        result = msgspec.structs.replace(result, winner=entry.name, program="out/net.pte")
    text = flat(shown(document(result)))
    assert ("no variant is faster" in text) is False
    assert ("the machine was busy: fp16+silu looks 1.90x faster" in text) == contended
    assert ("fp16+silu is faster, but its outputs do not agree" in text) == (not agrees and not contended)
    assert ("Program out/net.pte" in text) == bool(result.winner)
