"""Every command in every state of its streams, locale, terminal, rights, limits, folder: it works, or it says why."""

import io
import json
import random
import re
import sys
from collections.abc import Iterator

import pytest
from hypothesis import given
from hypothesis import strategies as st

from model_profiling.base.printing import clean, say_json
from model_profiling.base.visible import SPACES
from model_profiling.cli.main import COMMANDS
from tests.helpers.states import STATES, Ended, Forks

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="hardware: /dev/full and capabilities are Linux's")
OFF, ON = "run:linux_fp16arith_off", "run:linux_fp16arith_on"
# Cheap work of commands. All of them, new ones too, are asked for help.
WORK: dict[str, list[str]] = {
    "analyze": ["run"],
    "check": ["no_such_model"],
    "clean": ["--outputs"],
    "compare": [OFF, ON],
    "completions": ["bash"],
    "doctor": ["--essentials"],
    "export": ["no_such_model"],
    "forecast": ["run", "run"],
    "graph": ["run", "--output", "graph.html"],
    "history": ["list", "--root", "."],
    "kernels": ["none.pte"],
    "mcp": [],
    "models": ["--json"],
    "new-model": ["my_model"],
    "roofs": ["show"],
    "run": ["none.pte"],
    "runs": ["run", "--json"],
    "skills": ["list"],
    "schema": ["config"],
    "sweep": ["sweep.json"],
    "targets": [],
    "validate": ["--results", "run"],
    "validate-skill": ["01_setup_workspace"],
}
CALLS = [
    *([name, *words] for name, words in WORK.items()),
    *([name, "--help"] for name in COMMANDS),
    *(["analyze", name] for name in ("run\udcff", "x" * 300, "x/" * 3000)),
    *(["runs", "ru\udcff", "--json"], ["export", f"{'x' * 300}.py"], ["new-model", "\udcff"], ["compare", "ü", "☃"]),
    *(["--help"], ["--version"], ["no-such-command"], ["analyze", "--no-such-flag"], []),
]
ENCODINGS = ("ascii", "utf-8", "latin-1", "cp1252", "utf-16")
# As docs/troubleshooting.md lists them.
CODES = {0, 1, 2, 3, 4, 141}


@pytest.fixture(scope="module")
def forks() -> Iterator[dict[bool, Forks]]:
    found = {of_ascii: Forks(of_ascii) for of_ascii in (False, True)}
    yield found
    for each in found.values():
        each.close()


@pytest.fixture(scope="module")
def usual() -> dict[str, Ended]:
    return {}


def check(forks: dict[bool, Forks], usual: dict[str, Ended], name: str, call: list[str]) -> None:
    state, words = STATES[name], " ".join(call)
    if words not in usual:
        usual[words] = forks[False].run("plain", call)
    plain, ended = usual[words], forks[state.ascii].run(name, call)
    what = f"sme2-kit {words}, {name}: {ended}"
    said = ended.stdout + ended.stderr
    assert ended.code in (CODES if state.change != "sigpipe" else {*CODES, -13}), what
    assert "Traceback" not in said and not re.search(r"\b\w+(Error|Exception|Interrupt)\b", said), what
    assert "bug in the kit" not in said, what
    if ended.code not in (0, 141, -13) and state.stderr == "file" and state.stdout != "unread":
        assert "error: " in ended.stderr or ended.stdout.strip(), what
    if state.mute and plain.stdout:
        assert ended.code != 0, what
    if state.same:
        assert ended.code == plain.code, (what, plain)


@pytest.mark.parametrize("command", sorted({call[0] if call else "" for call in CALLS}))
def test_a_command_works_or_says_why_not_in_some_states(
    command: str, forks: dict[bool, Forks], usual: dict[str, Ended]
) -> None:
    chance = random.Random(command)
    for call in CALLS:
        if (call[0] if call else "") == command:
            check(forks, usual, chance.choice(sorted(STATES)), call)


def test_who_cannot_write_the_cache_is_told_how_to_choose_another(forks: dict[bool, Forks]) -> None:
    for name in ("HOME nowhere", "HOME a file", "cache nowhere"):
        ended = forks[False].run(name, ["build"])
        assert ended.code == 3 and "error: " in ended.stderr, ended
        assert "SME2_KIT_CACHE" in ended.stderr or "executorch" in ended.stderr, ended


@pytest.mark.parametrize("name", ["few files open", "very few files open"])
def test_a_picture_that_cannot_be_drawn_is_an_error_of_two_lines(forks: dict[bool, Forks], name: str) -> None:
    ended = forks[False].run(name, ["report", "run"])
    assert ended.code in (3, 4) and len(ended.stderr.splitlines()) == 2, ended
    assert ended.stderr.startswith("error: ") and "\n  fix: " in ended.stderr, ended


@given(
    text=st.text(st.characters(codec="utf-8") | st.sampled_from("\ud800\udcff\x1b\u202e")),
    encoding=st.sampled_from(ENCODINGS),
)
def test_data_is_json_in_every_encoding_and_loses_nothing(text: str, encoding: str) -> None:
    printed = io.BytesIO()
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(sys, "stdout", io.TextIOWrapper(printed, encoding=encoding, errors="backslashreplace"))
        say_json({"name": text})
        sys.stdout.flush()
        assert json.loads(printed.getvalue().decode(encoding)) == {"name": text}


@given(text=st.text(), code=st.integers(0x80, 0xFF))
def test_bytes_of_a_name_that_are_no_text_are_shown(text: str, code: int) -> None:
    shown = clean(f"{text}{bytes([code]).decode('ascii', 'surrogateescape')}")
    assert shown.endswith(f"\\x{code:02x}") and "".join(c for c in shown if c not in f"\n\t{SPACES}").isprintable()


@pytest.mark.wide
@pytest.mark.again
@pytest.mark.parametrize("name", STATES)
def test_every_command_works_or_says_why_not_in_every_state(
    name: str, forks: dict[bool, Forks], usual: dict[str, Ended]
) -> None:
    for call in CALLS:
        # Of those that do something here, the help is seen in some states.
        if call[1:] != ["--help"] or call[0] not in WORK:
            check(forks, usual, name, call)
