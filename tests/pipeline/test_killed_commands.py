"""Commands that are ended at random moments leave no process, lose nothing, and can be carried out again."""

from pathlib import Path

import pytest

from tests.conftest import SAMPLED, TORCH, needs, needs_hardware
from tests.helpers.killing_commands import COMMANDS, kill_commands

pytestmark = [pytest.mark.wide, pytest.mark.again]


@pytest.mark.parametrize("name", COMMANDS)
def test_a_command_ended_at_any_moment_leaves_nothing_and_can_be_carried_out_again(name: str, tmp_path: Path) -> None:
    needs(TORCH, "torch")
    needs_hardware(Path("/proc/self/environ").exists(), "Linux, which lists processes in /proc")
    kill_commands(tmp_path, 3 if SAMPLED else 12, 20.0, (name,))
