"""`sme2-kit roofs`: what this CPU reaches is measured, kept, shown and drawn; mistakes are said in two lines."""

import contextlib
import json
import re
from collections.abc import Callable
from pathlib import Path

import pytest

from model_profiling.analysis.roofs.roof_rates import read_roofs, roofs_bytes, roofs_path
from model_profiling.api import roof_measuring
from model_profiling.base import files
from model_profiling.base.errors import InputError
from model_profiling.base.on_progress import no_progress
from model_profiling.platforms.emulator import EmulatorPlatform
from model_profiling.platforms.environment import describe_host
from model_profiling.platforms.process_platform import LocalPlatform
from tests.conftest import needs_emulator, needs_hardware
from tests.helpers.contract_check import check_printed
from tests.helpers.file_faults import CHANGED, FAULTS, REPLACED
from tests.helpers.kit_here import kit_here
from tests.helpers.roof_forge import forged_roofs


def test_roofs_are_measured_with_a_real_program_and_kept(
    toy: Callable[[str], Path], monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """Any program can be the probe; toy_cnn is exported already, and has products, convolutions and transposes."""
    monkeypatch.setattr(roof_measuring, "_probe", lambda dtype, home, on_progress: toy(dtype))
    output, picture = tmp_path / "roofs.json", tmp_path / "roofs.svg"
    words = ["--dtype", "fp32", "--dtype", "fp32", "--runs", "2", "--launches", "1"]
    done = kit_here("roofs", *words, "--output", output, "--picture", picture, "--json")
    check_printed("roofs", json.loads(done.stdout))
    assert "only 2 executions" in done.stderr, "what makes a measurement hard to believe is said"
    roofs = read_roofs(output)
    assert roofs.cpu == describe_host()["cpu"] and {entry.dtype for entry in roofs.measurements} == {"fp32"}
    kinds = {probed.kind for probed in roofs.measurements[0].probes}
    assert {"conv2d", "fully connected", "depthwise", "transpose"} <= kinds
    assert b"<svg" in picture.read_bytes()
    shown = kit_here("roofs", "show", output)
    assert roofs.cpu in shown.stdout and "fp32" in shown.stdout and str(output) in shown.stderr


@pytest.fixture
def cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("SME2_KIT_ROOFS", str(tmp_path))
    return tmp_path


def test_roofs_are_shown_by_cpu_by_file_and_of_this_machine(cache: Path) -> None:
    for cpu in ("Forged Core", str(describe_host()["cpu"])):
        path = roofs_path(cpu)
        path.parent.mkdir(parents=True, exist_ok=True)
        files.write_json(path, forged_roofs(cpu, gops=77.7))
    for words in ([], ["Forged Core"], ["forged core"], [str(roofs_path("Forged Core"))]):
        assert "77.7" in kit_here("roofs", "show", *words).stdout
    check_printed("roofs", json.loads(kit_here("roofs", "show", "Forged Core", "--json").stdout))


@pytest.mark.parametrize(
    ("words", "said", "fix"),
    [
        (["show"], "no roofs are known of this machine's CPU", "sme2-kit roofs"),
        (["show", "Unheard Of"], "no roofs are known of Unheard Of", "sme2-kit roofs"),
        (["show", "--dtype", "fp16"], "--dtype is for measuring", "leave out show"),
        (["measure", "file.json"], "only with show", "sme2-kit roofs show FILE"),
        (["--threads", "0"], "--threads", ""),
        (["show", "--picture", "x.gif"], "neither .png nor .svg", "FILE.png"),
    ],
)
def test_what_cannot_be_is_said_in_two_lines(cache: Path, words: list[str], said: str, fix: str) -> None:
    done = kit_here("roofs", *words)
    assert done.returncode == 2 and said in done.stderr and fix in done.stderr and done.stderr.count("\n") == 2


def test_an_emulator_has_no_roofs() -> None:
    """Nothing is exported for it; where the machine itself has SME2, what is called the emulator is this machine."""
    needs_emulator()
    with contextlib.closing(EmulatorPlatform()) as platform:
        needs_hardware(platform.timing == "emulated", "a machine without SME2")
    done = kit_here("roofs", "--platform", "emulator")
    assert done.returncode == 2 and "cannot be measured under an emulator" in done.stderr


def test_new_measurements_replace_their_like_and_keep_the_rest() -> None:
    older = forged_roofs(gops=10).merged(forged_roofs(dtype="int8", gops=10))
    newer = forged_roofs(gops=20)
    merged = older.merged(newer)
    assert {entry.dtype for entry in merged.measurements} == {"fp16", "int8"} and len(merged.measurements) == 2
    (fp16,) = [entry for entry in merged.measurements if entry.dtype == "fp16"]
    assert fp16 == newer.measurements[0]


def test_roofs_with_any_other_number_in_them_are_not_used(tmp_path: Path) -> None:
    path = tmp_path / "roofs.json"
    files.write_bytes(path, roofs_bytes(forged_roofs()))
    whole = path.read_text()
    assert read_roofs(path).measurements == forged_roofs().measurements
    # Laid out in another way they are the same.
    path.write_text(json.dumps(dict(reversed(json.loads(whole).items())), indent=7))
    assert read_roofs(path).measurements == forged_roofs().measurements
    digits = [match.start() for match in re.finditer(r"(?<=[: ])[0-9]", whole)]
    for place in digits[:: max(1, len(digits) // 50)]:
        path.write_text(whole[:place] + str(9 - int(whole[place])) + whole[place + 1 :])
        with pytest.raises(InputError):
            read_roofs(path)


@pytest.mark.parametrize("fault", [*CHANGED, *REPLACED])
def test_damaged_roofs_are_set_aside_when_new_ones_are_measured(
    fault: str, cache: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    found, notes = forged_roofs(), list[str]()
    path = roofs_path(found.cpu)
    files.write_bytes(path, roofs_bytes(found))
    FAULTS[fault](path)
    monkeypatch.setattr(roof_measuring, "_measured", lambda *_: found)
    roof_measuring.measure_roofs(roof_measuring.Probing(), LocalPlatform(), no_progress, notes.append)
    assert read_roofs(path).measurements == found.measurements
    # A line more changes nothing of what they say.
    assert len(notes) == (fault not in ("longer", "removed"))
