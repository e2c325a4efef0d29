"""The completion scripts, tried in real shells: what the parser takes is what a shell offers."""

import argparse
import shutil
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from model_profiling.cli.completions import SHELLS
from model_profiling.cli.main import GROUPS, make_parser
from tests.conftest import needs
from tests.helpers.kit_here import kit_here

pytestmark = pytest.mark.fast

# Given $1 as the script and lines of words on standard input, the last of each line to be completed, print the offers.
_ASK = """
source "$1"
while IFS= read -r line; do
  IFS='|' read -ra COMP_WORDS <<< "$line"
  [[ $line == *'|' ]] && COMP_WORDS+=("")
  COMP_CWORD=$(( ${#COMP_WORDS[@]} - 1 ))
  _shtab_sme2_kit 2> /dev/null
  echo "${COMPREPLY[*]}"
done
"""


@pytest.fixture(scope="module")
def scripts(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    home = tmp_path_factory.mktemp("scripts")
    for shell in SHELLS:
        (home / f"completions.{shell}").write_text(kit_here("completions", shell).stdout)
    return {shell: home / f"completions.{shell}" for shell in SHELLS}


def _offers(script: Path, lines: list[list[str]], cwd: Path) -> list[set[str]]:
    """What bash offers for the last word of each line."""
    asked = "".join("|".join(["sme2-kit", *words]) + "\n" for words in lines)
    command = ["bash", "-c", _ASK, "bash", str(script)]
    done = subprocess.run(command, input=asked, cwd=cwd, capture_output=True, text=True, check=True)
    answers = [set(line.split()) for line in done.stdout.splitlines()]
    assert len(answers) == len(lines), done.stderr
    return answers


def _parsers(parser: argparse.ArgumentParser, words: tuple[str, ...] = ()) -> Iterator[tuple[list[str], list[str]]]:
    """Every command's words and flags, actions of commands among them."""
    yield (
        list(words),
        [flag for action in parser._actions if action.help != argparse.SUPPRESS for flag in action.option_strings],
    )
    for action in parser._actions:
        if isinstance(action, argparse._SubParsersAction):
            for listed in action._choices_actions:
                yield from _parsers(action.choices[listed.dest], (*words, listed.dest))


def test_bash_offers_every_command_and_exactly_its_flags(scripts: dict[str, Path], tmp_path: Path) -> None:
    known = list(_parsers(make_parser()))
    offered = _offers(scripts["bash"], [[""], *([*words, "--"] for words, _ in known)], tmp_path)
    assert offered[0] == {name for names in GROUPS.values() for name in names}
    for (words, flags), found in zip(known, offered[1:], strict=True):
        assert found == {flag for flag in flags if flag.startswith("--")}, words


def test_bash_offers_choices_files_directories_and_models(scripts: dict[str, Path], tmp_path: Path) -> None:
    (tmp_path / "zz_dir").mkdir()
    (tmp_path / "zz_file.pte").touch()
    both, nothing = {"zz_dir", "zz_file.pte"}, set[str]()
    cases: list[tuple[str, set[str]]] = [
        ("export|--dtype|int8", {"int8", "int8-dynamic"}),
        ("completions|", set(SHELLS)),
        ("skills|in", {"install"}),
        ("run|zz", both),
        ("run|--config|zz", both),
        ("compare|zz", both),
        ("export|zz", both),
        ("export|toy", {"toy_cnn"}),
        ("tune|toy", {"toy_cnn"}),
        ("report|zz", both),
        ("export|--out|zz", {"zz_dir"}),
        ("run|--runs|zz", nothing),
        ("new-model|zz", nothing),
    ]
    asked = [words.split("|") for words, _ in cases]
    for (words, wanted), found in zip(cases, _offers(scripts["bash"], asked, tmp_path), strict=True):
        assert found == wanted, words


@pytest.mark.parametrize("shell", SHELLS)
def test_each_shell_takes_its_script(shell: str, scripts: dict[str, Path], tmp_path: Path) -> None:
    needs(shutil.which(shell) is not None, shell)
    proof = {
        "bash": 'source "$1"; complete -p sme2-kit',
        "zsh": 'autoload -U compinit; compinit -u -D; eval "$(< $1)"; print ${_comps[sme2-kit]}',
        "fish": 'source $argv[1]; complete -C "sme2-kit comp"',
    }[shell]
    command = [shell, "-c", proof, *([shell] if shell != "fish" else []), str(scripts[shell])]
    done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, check=False)
    assert (done.returncode, done.stderr) == (0, "")
    assert ("completions" if shell == "fish" else "_shtab_sme2_kit") in done.stdout


def test_a_shell_that_is_not_known_is_refused() -> None:
    done = kit_here("completions", "tcsh")
    assert done.returncode == 2 and "bash" in done.stderr
