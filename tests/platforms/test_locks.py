"""Locks: whoever measures has the machine alone, and nobody can turn a lock against another user."""

import contextlib
import itertools
import os
import re
import shutil
import signal
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import hypothesis
import hypothesis.strategies as st
import pytest

from model_profiling.api.measuring import open_platform
from model_profiling.base import files
from model_profiling.base.errors import InputError, KitError
from model_profiling.base.on_progress import listen_to_notes, no_notes
from model_profiling.cli.arguments import choice_of
from model_profiling.cli.main import make_parser
from model_profiling.fleet.sweep.executor import start_tied
from model_profiling.fleet.sweep.sweep_file import SweepTarget, parse
from model_profiling.fleet.sweep.task import Task, _claimed
from model_profiling.platforms import locks
from model_profiling.platforms.locks import (
    HOST,
    Busy,
    Claim,
    Claims,
    TakenError,
    is_inherited,
    this_machine,
    wait_and_take,
)
from model_profiling.platforms.platform_table import Choice, checked, checked_machine, named
from model_profiling.platforms.remote import board
from model_profiling.platforms.remote.android import choose_device
from tests.conftest import QUICK, ROOT, needs_hardware
from tests.helpers.adb_lab import short, write_config
from tests.helpers.waiting import LONGEST_S, until

Toy = Callable[[str], Path]
Trap = Callable[[Path, Path], None]


def writable_file(path: Path, victim: Path) -> None:
    del victim
    path.write_text("somebody else's")
    path.chmod(0o666)


def unreadable_file(path: Path, victim: Path) -> None:
    del victim
    path.touch(0o000)


# What somebody may have put where a lock should be; `victim` is a folder that must stay as it is.
TRAPS: dict[str, Trap] = {
    "a link to nowhere": lambda path, victim: path.symlink_to(victim / "new"),
    "a link to a file": lambda path, victim: path.symlink_to(victim / "file"),
    "a link to a folder": lambda path, victim: path.symlink_to(victim),
    "a link to itself": lambda path, _: path.symlink_to(path),
    "a second name of a file": lambda path, victim: path.hardlink_to(victim / "file"),
    "a pipe": lambda path, _: os.mkfifo(path),
    "a folder": lambda path, _: path.mkdir(),
    "a file that all may write": writable_file,
    "a file that only its owner may read": unreadable_file,
}
traps = pytest.mark.parametrize("trap", TRAPS.values(), ids=TRAPS.keys())


@pytest.fixture
def victim(tmp_path: Path) -> Iterator[Path]:
    """A folder of a user in which nothing may be made or changed."""
    home = tmp_path / "victim"
    home.mkdir()
    (home / "file").write_text("precious")
    before = contents(home)
    yield home
    assert contents(home) == before


def contents(home: Path) -> dict[str, tuple[int, int, bytes]]:
    return {p.name: (p.stat().st_mode, p.stat().st_mtime_ns, p.read_bytes()) for p in home.iterdir()}


@pytest.fixture
def shared(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder for the locks of all users, as /tmp is one."""
    home = tmp_path / "shared"
    home.mkdir()
    home.chmod(0o1777)
    monkeypatch.delenv(locks.VARIABLE)
    monkeypatch.setenv("SME2_KIT_CACHE", str(tmp_path / "cache"))
    monkeypatch.setattr(locks, "_FOR_ALL_USERS", (home,))
    return home


@pytest.fixture
def alone(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Locks of this test only."""
    monkeypatch.setenv(locks.VARIABLE, str(tmp_path / "locks"))
    return tmp_path / "locks"


def claimed(name: str | None) -> Claim:
    found = Claims("a test").try_claim(name)
    assert isinstance(found, Claim), found
    return found


def refused(name: str | None) -> str:
    """Why it cannot be had; nothing waits for it afterwards."""
    claims = Claims("another")
    found = claims.try_claim(name)
    claims.step_back()
    assert isinstance(found, Busy)
    return found.reason


# Nobody can turn a lock against another user.


@traps
@pytest.mark.parametrize("name", ["host", "gate", "target-android-one"])
def test_what_lies_in_the_place_of_a_shared_lock_is_never_followed_or_changed(
    shared: Path, victim: Path, trap: Trap, name: str
) -> None:
    path = shared / f"sme2-kit-{name}.lock"
    trap(path, victim)
    before = path.lstat()
    wanted = "target-android-one" if name.startswith("target") else HOST
    claim = claimed(wanted)
    # Whatever is there, two of a user exclude each other.
    assert refused(wanted)
    claim.close()
    claimed(wanted).close()
    after = path.lstat()
    assert (before.st_mode, before.st_ino, before.st_mtime_ns) == (after.st_mode, after.st_ino, after.st_mtime_ns)


@traps
def test_what_lies_in_a_chosen_folder_is_never_followed_or_changed_nor_is_who_holds_a_lock_read_from_it(
    tmp_path: Path, victim: Path, trap: Trap, monkeypatch: pytest.MonkeyPatch
) -> None:
    def trapped(name: str) -> Path:
        home = tmp_path / f"with {name}"
        home.mkdir()
        trap(home / name, victim)
        monkeypatch.setenv(locks.VARIABLE, str(home))
        return home

    for name in ("host.holder", "gate.holder"):
        trapped(name)
        claim = claimed(HOST)
        assert "precious" not in refused(None)
        claim.close()
    trapped("gate.lock")
    with contextlib.suppress(KitError):
        claimed(HOST).close()
    # The lock of a folder.
    with contextlib.suppress(KitError), files.locked(trapped(".lock"), "test"):
        pass


def test_a_users_own_folder_of_locks_is_private_and_no_link(
    shared: Path, victim: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(locks, "_FOR_ALL_USERS", ())
    claimed(HOST).close()
    (home,) = (shared.parent / "cache/locks").iterdir()
    assert home.stat().st_mode & 0o777 == 0o700 and (home / "host.lock").is_file()
    shutil.rmtree(home)
    home.symlink_to(victim)
    with pytest.raises(KitError, match="not a folder of your own"):
        claimed(HOST)


def test_a_folder_in_which_others_could_replace_files_is_not_shared(shared: Path) -> None:
    shared.chmod(0o777)
    claimed(HOST).close()
    assert not list(shared.iterdir())


def as_nobody(work: Callable[[], bool]) -> bool:
    """Whether something holds for another user, in a process of its own."""
    process = os.fork()
    if process == 0:
        code = 2
        with contextlib.suppress(BaseException):
            os.setgroups([])
            os.setgid(65534)
            os.setuid(65534)
            code = 0 if work() else 1
        os._exit(code)
    code = os.waitstatus_to_exitcode(os.waitpid(process, 0)[1])
    assert code in (0, 1)
    return code == 0


def test_two_users_exclude_each_other(monkeypatch: pytest.MonkeyPatch) -> None:
    needs_hardware(os.geteuid() == 0, "the right to become another user")
    monkeypatch.delenv(locks.VARIABLE)
    with tempfile.TemporaryDirectory(dir="/tmp") as folder:
        home = Path(folder)
        home.chmod(0o1777)
        monkeypatch.setattr(locks, "_FOR_ALL_USERS", (home,))

        monkeypatch.setenv("SME2_KIT_CACHE", str(home / "ours"))

        def theirs() -> bool:
            os.environ["SME2_KIT_CACHE"] = str(home / "theirs")
            return isinstance(Claims("theirs").try_claim(HOST), Claim)

        def ours() -> bool:
            claimed(HOST).close()
            return True

        # Whose files they are does not matter, nor whether the folder was chosen.
        begins: list[Callable[[], bool]] = [ours, lambda: as_nobody(theirs)]
        for first, chosen in itertools.product(begins, ("", str(home))):
            monkeypatch.setenv(locks.VARIABLE, chosen)
            for path in home.glob("*.lock"):
                path.unlink()
            before = os.umask(0o077)
            assert first()
            os.umask(before)
            claim = claimed(HOST)
            assert not as_nobody(theirs)
            claim.close()
            assert as_nobody(theirs)


def shells() -> list[list[str]]:
    return [shell for shell in (["dash"], ["bash"], ["busybox", "sh"]) if shutil.which(shell[0])]


class Holder:
    """The script that holds a board for as long as it is fed, by a name that no other test knows."""

    def __init__(self, shell: list[str], file: Path) -> None:
        script = board._HOLD.replace(board._NAME, f"test-lock-{os.getpid()}")
        self._process = subprocess.Popen(
            [*shell, "-c", script, f"test-lock-{os.getpid()}", "1"],
            env={**os.environ, "SME2_KIT_LOCK": str(file)},
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            text=True,
        )
        assert self._process.stdout is not None
        self.said = self._process.stdout.readline().strip()

    def end(self, how: signal.Signals | None = None) -> None:
        if how is not None:
            self._process.send_signal(how)
        self._process.communicate(timeout=LONGEST_S)


@traps
@pytest.mark.parametrize("shell", shells(), ids=" ".join)
def test_what_lies_in_the_place_of_a_boards_lock_is_never_followed_or_changed(
    shell: list[str], tmp_path: Path, victim: Path, trap: Trap
) -> None:
    path = tmp_path / "a lock"
    trap(path, victim)
    before = path.lstat()
    first = Holder(shell, path)
    second = Holder(shell, path)
    assert (first.said, second.said) == ("held", "taken")
    second.end()
    first.end()
    assert (before.st_mode, before.st_mtime_ns) == (path.lstat().st_mode, path.lstat().st_mtime_ns)


@pytest.mark.parametrize("shell", shells(), ids=" ".join)
def test_a_boards_lock_is_free_when_its_holder_is_killed(shell: list[str], tmp_path: Path) -> None:
    for how in (signal.SIGKILL, signal.SIGTERM, None):
        first = Holder(shell, tmp_path / "lock")
        taken = Holder(shell, tmp_path / "lock")
        assert (first.said, taken.said) == ("held", "taken")
        taken.end()
        first.end(how)
    assert (tmp_path / "lock").stat().st_mode & 0o777 == 0o644 and not (tmp_path / "lock").stat().st_size


# Everybody who measures takes the lock.


def start_run(config: Path, *words: str) -> "subprocess.Popen[str]":
    command = [sys.executable, "-m", "model_profiling", "run", "--config", str(config), "--quiet", *words]
    environment = {**os.environ, **QUICK, "PYTHONPATH": str(ROOT)}
    return subprocess.Popen(command, env=environment, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)


def watched(home: Path, name: str, model: Path, **more: object) -> Path:
    """A config whose runners note when they begin and end."""
    script = 'echo "begin $1" >> "$2"; log=$2; name=$1; shift 2; "$@"; code=$?; echo "end $name" >> "$log"; exit $code'
    prefix = ["sh", "-c", script, "sh", name, str(home / "log")]
    experiments = [short(each, launch_prefix=prefix, **more) for each in ("on", "off")]
    return write_config(home / f"{name}.json", model, home / name, experiments)


def noted(process: "subprocess.Popen[str]") -> str:
    """What it says while it waits."""
    assert process.stderr is not None
    return next((line for line in process.stderr if line.startswith("note: waiting")), "")


def test_two_runs_that_are_started_together_take_turns(alone: Path, toy: Toy, tmp_path: Path) -> None:
    started = [start_run(watched(tmp_path, name, toy("fp32"))) for name in ("one", "two")]
    for process in started:
        _, said = process.communicate(timeout=LONGEST_S)
        assert process.returncode == 0, said
    names = [line.split()[1] for line in (tmp_path / "log").read_text().splitlines()]
    assert len(names) >= 8 and len(list(itertools.groupby(names))) == 2, names


@pytest.mark.wide
def test_a_run_says_for_whom_it_waits_and_goes_on_when_that_is_killed(alone: Path, toy: Toy, tmp_path: Path) -> None:
    first = start_run(watched(tmp_path, "first", toy("fp32"), num_runs=100000))
    log = tmp_path / "log"
    until(log.exists)
    second = start_run(watched(tmp_path, "second", toy("fp32")))
    line = noted(second)
    assert f"this machine is being measured by process {first.pid} (" in line and "sme2-kit run --config" in line
    assert re.match(r"note: waiting for \d+ s: ", line)
    assert "second" not in log.read_text()
    first.kill()
    first.communicate(timeout=LONGEST_S)
    _, said = second.communicate(timeout=LONGEST_S)
    assert second.returncode == 0 and re.search(r"^note: waited \d+ s for this machine$", said, re.MULTILINE), said


@pytest.mark.wide
def test_a_run_beside_the_work_of_a_sweep_waits_unless_it_is_told_not_to(alone: Path, toy: Toy, tmp_path: Path) -> None:
    claim = claimed(None)  # as an export of a sweep
    unlocked = start_run(watched(tmp_path, "unlocked", toy("fp32")), "--no-lock")
    _, said = unlocked.communicate(timeout=LONGEST_S)
    assert unlocked.returncode == 0 and "waiting" not in said, said
    waiting = start_run(watched(tmp_path, "waiting", toy("fp32")))
    assert f"process {os.getpid()} (a test)" in noted(waiting)
    # From now on the sweep starts nothing new.
    assert refused(None)
    claim.close()
    assert waiting.wait(LONGEST_S) == 0
    # What is there already is not measured, and waits for nobody.
    claim = claimed(HOST)
    again = start_run(tmp_path / "waiting.json")
    _, said = again.communicate(timeout=LONGEST_S)
    assert again.returncode == 0 and "waiting" not in said, said
    claim.close()


@pytest.mark.wide
def test_a_job_of_a_sweep_has_the_lock_that_it_was_given_and_waits_for_no_other(
    alone: Path, toy: Toy, tmp_path: Path
) -> None:
    config = watched(tmp_path, "job", toy("fp32"))
    words = ("run", "--config", str(config), "--quiet")
    claim = claimed(HOST)
    job = start_tied(words, tmp_path / "log of job", claim.handles)
    claim.close()
    assert refused(HOST)
    assert job.wait(LONGEST_S) == 0, (tmp_path / "log of job").read_text()
    config = watched(tmp_path, "other", toy("fp32"))
    claim = claimed(HOST)
    # One that was given another lock says at once that it is taken: its sweep begins it again.
    job = start_tied(("run", "--config", str(config)), tmp_path / "log of job", [])
    assert job.wait(LONGEST_S) == 3
    assert "this machine is being measured by process" in (tmp_path / "log of job").read_text()
    claim.close()


def test_a_lock_that_a_sweep_is_said_to_have_given_is_verified(
    alone: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    claim = claimed(HOST)
    (alone / "other.lock").touch()
    with (alone / "host.lock").open() as opened, (alone / "other.lock").open() as other:
        for said, given in (
            ("", False),
            ("nonsense,-1,99999999999999999999", False),
            (f"{other.fileno()}", False),
            # Open, but held by somebody else.
            (f"{opened.fileno()}", False),
            (f"{other.fileno()},{claim.handles[0]}", True),
        ):
            monkeypatch.setenv(locks.GIVEN, said)
            assert is_inherited(HOST) == given, said
    claim.close()


def test_threads_take_turns_and_whoever_has_the_machine_has_it_again(alone: Path) -> None:
    inside: list[str] = []

    def measure(name: str) -> None:
        with this_machine(), this_machine():
            inside.append(name)
            time.sleep(0.05)
            inside.append(name)

    threads = [threading.Thread(target=measure, args=(str(number),)) for number in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(LONGEST_S)
    assert len(list(itertools.groupby(inside))) == 4
    claimed(HOST).close()


def test_waiting_is_said_once_with_who_and_for_how_long(caplog: pytest.LogCaptureFixture) -> None:
    listen_to_notes()
    answers = iter([True, True, True, False])

    def take() -> str:
        if next(answers):
            raise TakenError("the device x", "process 1 (sme2-kit run)")
        return "mine"

    assert wait_and_take(take, 0.01) == "mine"
    assert caplog.messages == [
        "waiting for 0 s: the device x is being measured by process 1 (sme2-kit run)",
        "waited 0 s for the device x",
    ]


def test_on_a_node_of_a_cluster_exports_and_measurements_exclude_each_other(alone: Path) -> None:
    """Wherever they were started: by the sweep itself on this machine, or by Ray."""
    export, measurement = (Task("x", [], "", target) for target in (None, SweepTarget("local")))
    for first, second in ((None, measurement), (HOST, export), (HOST, measurement)):
        near, claims = claimed(first), list[Claim]()
        waiting = threading.Thread(target=lambda task=second, got=claims: got.append(_claimed(task)))
        waiting.start()
        waiting.join(0.5)
        assert not claims
        near.close()
        waiting.join(LONGEST_S)
        assert refused(HOST)
        claims[0].close()


# Names of machines.

SAFE = re.compile(r"[A-Za-z0-9_.:@%\[\]-]+")


def machine_doors() -> list[Callable[[str], object]]:
    """All ways in which the name of a host or device comes in."""

    def typed(flag: str, platform: str) -> Callable[[str], object]:
        parser = make_parser(["run"])
        return lambda name: choice_of(parser.parse_args(["run", "x.pte", f"--platform={platform}", f"{flag}={name}"]))

    def in_python(name: str) -> None:
        with open_platform(f"ssh:{name}", no_notes):
            pass

    def swept(target: object) -> None:
        parse({"models": ["toy_cnn"], "targets": [target]}, "here")

    return [
        typed("--host", "ssh"),
        typed("--device", "android"),
        typed("--remote-device", "android"),
        in_python,
        lambda name: checked(named(f"android:{name}")),
        lambda name: checked(Choice("ssh", host=name)),
        lambda name: choose_device("adb", name, None),
        lambda name: choose_device("adb", None, name),
        lambda name: swept(f"ssh:{name}"),
        lambda name: swept(f"android:{name}"),
        lambda name: swept({"platform": "ssh", "host": name}),
        lambda name: swept({"platform": "android", "device": name}),
        lambda name: swept({"platform": "android", "remote_device": name}),
    ]


DOORS = machine_doors()


@hypothesis.settings(max_examples=8)
@hypothesis.given(st.text(min_size=1).filter(lambda text: not SAFE.fullmatch(text)))
@hypothesis.example("-oProxyCommand=x")
@hypothesis.example("-x")
@hypothesis.example("a b")
@hypothesis.example("a\n")
@hypothesis.example("$(x)")
@hypothesis.example("a'b")
@hypothesis.example("a/b")
@hypothesis.example("ä")
@hypothesis.example("x" * 300)
@hypothesis.example("a\0b")
def test_a_name_that_is_no_machines_is_refused_wherever_it_comes_in(name: str) -> None:
    for door in DOORS:
        with pytest.raises(InputError):
            door(name)


@hypothesis.given(st.text(st.sampled_from("aZ09_.:@%[]-"), min_size=1, max_size=40))
def test_a_name_that_begins_with_a_dash_is_never_a_machines(name: str) -> None:
    if name[0] in "-.@%]":
        with pytest.raises(InputError):
            checked_machine(name)
    else:
        assert checked_machine(name) == name


@pytest.mark.parametrize(
    "name",
    [
        *("board", "me@board", "10.0.0.1", "fe80::1%eth0", "::1", "my_phone:5555"),
        *("[::1]:5555", "R58M123ABC", "emulator-5554", "adb-R58M-aBc._adb-tls-connect._tcp", "usb:1-1.4"),
    ],
)
def test_names_that_hosts_and_devices_have_are_taken(name: str) -> None:
    assert checked(Choice("ssh", host=name)).host == checked(Choice("android", device=name)).device == name


def test_a_serial_from_the_environment_is_checked_too(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("ANDROID_SERIAL", "-H evil")
    with pytest.raises(InputError, match="not the name of a host or device"):
        choose_device("adb", None, None)
    with pytest.raises(InputError):
        checked_machine("")
