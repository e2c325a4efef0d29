"""A .pte has an identifier at byte 4: one that the runner does not take is refused with the reason, before anything
starts, and what is known of such a program is nothing."""

import json
import shutil
from pathlib import Path

import hypothesis.strategies as st
import pytest
from hypothesis import given, settings

from model_profiling.base import files
from model_profiling.base.errors import InputError
from model_profiling.cli.main import main
from model_profiling.formats import pte
from model_profiling.pipeline.defaults import checked_program
from model_profiling.pipeline.side_by_side import programs_of
from tests.conftest import ROOT

SEED = ROOT / "tests" / "data" / "fuzz_seeds" / "tiny_xnnpack_fp32.pte"
REASON = "its format is 'ET13', and the runner takes 'ET12'"


def program(folder: Path, identifier: bytes = b"ET13") -> Path:
    """A real program with another identifier."""
    content = SEED.read_bytes()
    path = folder / "other.pte"
    path.write_bytes(content[:4] + identifier + content[8:])
    return path


@settings(max_examples=25)
@given(st.binary(min_size=4, max_size=4))
def test_the_runner_takes_one_identifier(identifier: bytes) -> None:
    head = b"\0\0\0\0" + identifier
    if identifier == b"ET12":
        pte.check_identifier(SEED, head)
        return
    with pytest.raises(pte.PteError, match="ET12") as caught:
        pte.check_identifier(SEED, head)
    assert ("another version of ExecuTorch" in caught.value.hint) == (identifier[:2] == b"ET")


@pytest.mark.parametrize("identifier", [b"ET13", b"ET11", b"ET1\n", b"ET\0\0", b"NOPE"])
def test_what_the_runner_would_refuse_is_refused_wherever_a_program_is_given_to_be_run(
    identifier: bytes, tmp_path: Path
) -> None:
    other = program(tmp_path, identifier)
    for use in (checked_program, pte.read, lambda path: programs_of({"A": SEED, "B": path})):
        with pytest.raises(InputError, match="is not a"):
            use(other)


def test_commands_say_the_reason_and_start_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    other = str(program(tmp_path))
    monkeypatch.chdir(tmp_path)
    config = {"model": other, "output_root": "out", "experiments": [{"name": "one"}]}
    (tmp_path / "config.json").write_text(json.dumps(config))
    monkeypatch.setattr("subprocess.Popen", lambda *_, **__: pytest.fail("nothing is started"))
    for words in (["run", other], ["kernels", other], ["compare", str(SEED), other], ["compare", other, str(SEED)]):
        assert main(words) == 2
        said = capsys.readouterr().err
        assert REASON in said and "export the model with the one that is installed" in said
    monkeypatch.undo()
    monkeypatch.chdir(tmp_path)
    assert main(["run", "--config", "config.json"]) == 2 and REASON in capsys.readouterr().err
    assert not list(tmp_path.rglob("manifest.json"))


def test_a_run_of_such_a_program_is_analysed_and_says_what_is_unknown(tmp_path: Path) -> None:
    from model_profiling.api import open_run

    other, home = program(tmp_path), tmp_path / "run"
    shutil.copytree(ROOT / "tests" / "data" / "known_good_run", home)
    raw = json.loads((home / "manifest.json").read_text())
    raw["model"] |= {"path": str(other), "sha256": files.sha256(other)}
    (home / "manifest.json").write_text(json.dumps(raw))
    run = open_run(home)
    assert any(REASON in note and note.endswith("its graph is unknown") for note in run.summary.notes)
    assert len(run.latency) == 2 and len(run.operators) > 0
