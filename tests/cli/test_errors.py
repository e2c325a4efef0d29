"""An error keeps what it is wherever it is passed on: its class, exit code, hint and attributes."""

import copy
import pickle
from pathlib import Path

import pytest

from model_profiling.base.errors import GateError, InputError, KitError, RunError, SetupError
from model_profiling.formats.etdump.flatbuffer import EtdumpError
from model_profiling.formats.etrecord.reader import EtrecordError
from model_profiling.formats.pte import PteError
from model_profiling.platforms.remote.device import DeviceLostError

pytestmark = pytest.mark.fast


class OddError(RunError):
    """One whose constructor takes none of what its message says."""

    exit_code = 77

    def __init__(self, *, device: str, attempts: int = 3) -> None:
        super().__init__(f"{device} did not answer {attempts} times", "Plug it in again.")
        self.device = device


FILE = Path("some/file")
ERRORS: tuple[KitError, ...] = (
    *(kind("what happened", "What to do.") for kind in (GateError, InputError, SetupError, RunError, DeviceLostError)),
    EtdumpError(FILE, "it ends early", 12, "Copy it again."),
    EtrecordError(FILE, "it is no archive"),
    PteError(FILE, "it ends early"),
    OddError(device="a phone"),
)


@pytest.mark.parametrize("error", ERRORS, ids=lambda error: type(error).__name__)
def test_an_error_within_another_place_keeps_all_but_the_start_of_its_message(error: KitError) -> None:
    seen = error.within("experiment 'a' failed").within("run 3")
    assert type(seen) is type(error) and seen.exit_code == error.exit_code and seen.hint == error.hint
    assert str(seen) == seen.message == f"run 3: experiment 'a' failed: {error.message}"
    rest = {name: value for name, value in vars(error).items() if name != "message"}
    assert {name: value for name, value in vars(seen).items() if name != "message"} == rest
    seen.message += " (and 2 more)"
    assert str(seen).endswith(" (and 2 more)")


@pytest.mark.parametrize("error", ERRORS, ids=lambda error: type(error).__name__)
@pytest.mark.parametrize("passed", [copy.copy, lambda error: pickle.loads(pickle.dumps(error))], ids=["copy", "pickle"])
def test_an_error_can_be_copied_and_sent_to_another_process(error: KitError, passed: object) -> None:
    assert callable(passed)
    seen = passed(error)
    assert type(seen) is type(error) and str(seen) == str(error) and vars(seen) == vars(error)
