"""Boards behind ssh, with real OpenSSH servers on loopback: what a run brings, and what can go wrong."""

import json
import os
import shutil
import signal
import subprocess
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from model_profiling.base import files
from model_profiling.base.errors import InputError, KitError, SetupError
from model_profiling.base.on_progress import no_notes
from model_profiling.platforms.base import Platform
from model_profiling.platforms.platform_table import Choice, checked, folder_of, named
from model_profiling.platforms.remote.board import Board, TargetLock, open_platform
from model_profiling.platforms.remote.device import DeviceLostError
from model_profiling.platforms.remote.ssh import SshDevice, in_any_shell
from model_profiling.runner.build import build_runner
from model_profiling.runner.sdk import host_target
from model_profiling.store.run_directory import Conditions, RunDirectory
from tests.conftest import needs
from tests.helpers.adb_lab import Finished, short, write_config
from tests.helpers.prefixes import prefix, slow_prefix
from tests.helpers.ssh_lab import PLAIN, SshLab, caching_in, foreign_system, mounted, processes
from tests.helpers.waiting import LONGEST_S, until

Toy = Callable[[str], Path]
NASTY = ["'; touch pwned; '", "$(touch pwned)", "`touch pwned`", 'a "b" c', "-rf", "ä ö\tü", "!! % %s \\n \\045", "*"]


@pytest.fixture(scope="module")
def lab(tmp_path_factory: pytest.TempPathFactory) -> Iterator[SshLab]:
    with SshLab(tmp_path_factory.mktemp("hosts")) as made:
        yield made


@pytest.fixture(scope="module")
def board(lab: SshLab) -> str:
    return lab.host("board", caching_in(lab.home / "cache"))


@pytest.fixture
def folder(lab: SshLab) -> Path:
    return lab.home / "cache/sme2_kit"


@pytest.fixture
def device(lab: SshLab, board: str) -> Iterator[SshDevice]:
    made = SshDevice(board, lab.config)
    yield made
    made.close()


def _chosen(host: str, lab: SshLab, folder: Path | None = None) -> Choice:
    return Choice("ssh", host=host, ssh_config=lab.config, remote_dir=None if folder is None else str(folder))


# What a run brings.


@pytest.mark.wide
def test_a_run_over_ssh_has_all_that_a_run_here_has(lab: SshLab, board: str, toy: Toy, tmp_path: Path) -> None:
    config = write_config(
        tmp_path / "c.json", toy("fp16"), tmp_path / "out", [short("on", startup_launches=2), short("off")]
    )
    done = lab.kit(board, "run", "--config", config, "--json")
    assert done.code == 0, done.stderr
    directory = RunDirectory(tmp_path / "out")
    manifest = directory.manifest()
    assert (manifest.status, manifest.platform, manifest.timing) == ("complete", "ssh", "measured")
    environment = manifest.environment
    assert environment["cores"] == os.cpu_count()
    assert f"'host': '{board}'" in str(environment["device"]) and str(environment["system"]).startswith("Linux ")
    conditions = _conditions(directory)
    transport = conditions.transport
    assert conditions.c_library == "the target's own"
    assert transport["turns"] > 0 and transport["pushed_bytes"] > 0
    summary = json.loads(done.stdout)
    assert set(summary["experiments"]) == {"on", "off"}
    assert all(path.stat().st_size for path in (tmp_path / "out").rglob("*.etdump"))
    # Nothing stays on this machine, nothing runs on the other; what was pushed is there for the next run.
    assert not [words for _, words in processes() if str(lab.config) in words]
    assert not lab.running(lab.home / "cache")
    assert not list((lab.home / "cache/sme2_kit").glob("session-*"))
    # Through a login shell that prints, all the same.
    loud = lab.host("loud", f"echo Welcome; {caching_in(lab.home / 'cache')}")
    again = lab.kit(loud, "run", "--config", config, "--force")
    assert again.code == 0, again.stderr
    counts = _conditions(directory).transport
    assert counts["pushed_bytes"] == 0 and counts["already_there_bytes"] > 0


def _conditions(directory: RunDirectory) -> Conditions:
    (schedule,) = directory.manifest().schedules.values()
    return schedule.conditions


@pytest.mark.wide
def test_kernels_comparisons_and_start_up_work_over_ssh(lab: SshLab, board: str, toy: Toy, tmp_path: Path) -> None:
    done = lab.kit(board, "kernels", toy("fp32"), "--output-root", tmp_path / "kernels", "--level", "neon", "--json")
    if host_target().arch == "aarch64":
        assert done.code in (0, 4) and json.loads(done.stdout)["kind"] == "kernels", done.stderr
    else:
        assert done.code == 2 and "no SME or NEON kernels" in done.stderr, done.stderr
    words = ("--runs", 6, "--launches", 2, "--startup-launches", 2, "--json")
    done = lab.kit(board, "compare", toy("fp32"), toy("fp16"), *words)
    assert done.code == 0, done.stderr
    (pair,) = json.loads(done.stdout)
    assert pair["latency"]["ratio"] > 0 and pair["startup"] is not None


@pytest.mark.wide
@pytest.mark.again
def test_builds_of_executorch_are_compared_over_ssh_each_with_all_its_libraries(
    lab: SshLab, board: str, toy: Toy, tmp_path: Path
) -> None:
    good, slow = prefix(tmp_path / "good"), slow_prefix(tmp_path / "slow", delay_ns=300_000)
    words = ("--runs", 12, "--launches", 6, "--startup-launches", 2, "--json")
    done = lab.kit(board, "compare", toy("fp32"), "--executorch", good, "--executorch", slow, *words)
    assert done.code == 0, done.stderr
    (pair,) = json.loads(done.stdout)
    assert pair["outputs"]["max_abs_error"] == 0
    (runtime,) = (change for change in pair["profile"]["categories"] if change["name"] == "Runtime")
    assert runtime["ratio"] < 0.5, "the library in front of the thread pool was not used there"


def test_the_choice_of_a_platform_is_checked_in_one_place() -> None:
    assert named("ssh:board") == Choice("ssh", host="board") and folder_of(named("ssh:me@b:1")) == "ssh_me_b_1"
    assert folder_of(named("emulator")) == "emulator"
    for wrong, said in (
        (Choice("ssh"), "needs a host"),
        (Choice("linux", host="x"), "hosts behind ssh"),
        (Choice("ssh", host="x", device="y"), "Android devices"),
        (Choice(None, cool_down=40.0), "other machines"),
        (Choice("amiga"), "no platform"),
        (Choice("ssh", host="x", remote_dir="there"), "absolute"),
    ):
        with pytest.raises(InputError, match=said):
            checked(wrong)


# Shells.


@pytest.mark.wide
@pytest.mark.parametrize("shell", ["sh", "bash", "tcsh", "fish", "busybox sh"])
def test_whatever_the_login_shell_words_arrive_as_they_are(lab: SshLab, shell: str, tmp_path: Path) -> None:
    needs(shutil.which(shell.split()[0]) is not None, shell)
    device = SshDevice(lab.host(shell.replace(" ", "-"), f'exec {shell} -c "$SSH_ORIGINAL_COMMAND"'), lab.config)
    try:
        assert device.shell("printf", "%s\\0", *NASTY).stdout.split("\0")[:-1] == NASTY
        assert device.script('exit "$2"', "x", "7").code == 7
        (tmp_path / "local").write_bytes(b"content" * 1000)
        for name in NASTY:
            device.push({"x y": tmp_path / "local"}, str(tmp_path / f"there {name.replace('/', '')}"))
        assert not list(tmp_path.rglob("pwned"))
        lock = TargetLock(device)
        lock.take()
        lock.release()
    finally:
        device.close()


def test_commands_for_any_shell_have_nothing_that_one_could_interpret() -> None:
    for text in NASTY:
        inside = in_any_shell(text)[len('exec sh -c \'eval "$(printf %b "') : -len('")"\'')]
        assert not set(inside) & set("'\"`$!;&|<>()*?[]{}~#%^ \t\n")


@pytest.mark.wide
def test_a_login_shell_that_prints_changes_nothing(lab: SshLab, tmp_path: Path) -> None:
    noise = """echo 'Welcome!'; printf 'no newline {"ready": 1}'; echo careful >&2"""
    device = SshDevice(lab.host("talkative", f"{noise}; {PLAIN}"), lab.config)
    try:
        assert device.shell("echo", "said").stdout == "said\n"
        (tmp_path / "a").write_bytes(os.urandom(300_000))
        device.pull(str(tmp_path / "a"), tmp_path / "b")
        assert files.sha256(tmp_path / "a") == files.sha256(tmp_path / "b")
        lock = TargetLock(device)
        lock.take()
        lock.release()
    finally:
        device.close()


@pytest.mark.wide
def test_an_account_that_runs_no_commands_is_named(lab: SshLab) -> None:
    host = lab.host("locked", "echo 'This account is currently not available.'; exit 1")
    with pytest.raises(SetupError, match="does not run commands: This account is currently not available"):
        Board(_chosen(host, lab))


@pytest.mark.wide
def test_keys_are_the_users_business(lab: SshLab) -> None:
    with pytest.raises(SetupError, match=r"cannot be reached: .*verification failed") as shown:
        SshDevice(lab.host("stranger", known=False), lab.config)
    assert "by hand" in shown.value.hint
    with pytest.raises(SetupError, match="Permission denied"):
        SshDevice(lab.host("unwilling", IdentityFile="/nowhere"), lab.config)
    with pytest.raises(SetupError, match="cannot be reached"):
        SshDevice("127.0.0.1:1", lab.config)


# Where files can lie and run.


def _platform(lab: SshLab, host: str, folder: Path | None = None) -> Platform:
    return open_platform(_chosen(host, lab, folder), emulated=False, on_note=no_notes)


@pytest.mark.wide
def test_a_full_disk_is_named_and_nothing_half_is_left(lab: SshLab, board: str, tmp_path: Path) -> None:
    with mounted(tmp_path / "small", "size=3m") as small:
        made = Board(_chosen(board, lab, small / "kit"))
        try:
            with pytest.raises(KitError, match="disk is full"):
                made.bundle(build_runner())
            assert not list(small.rglob("*.part-*"))
        finally:
            made.let_go(False)


@pytest.mark.wide
def test_a_folder_that_must_not_run_anything_is_passed_over(lab: SshLab, tmp_path: Path) -> None:
    with mounted(tmp_path / "home", "noexec", "size=64m") as home:
        host = lab.host("noexec", caching_in(home))
        made = Board(_chosen(host, lab, home / "kit"))
        try:
            with pytest.raises(SetupError, match="Permission denied") as shown:
                _ = made.store
            assert "--remote-dir" in shown.value.hint
        finally:
            made.let_go(False)
        made = Board(_chosen(host, lab))
        try:
            assert not made.store.root.startswith(str(home))
        finally:
            made.let_go(True)


@pytest.mark.wide
def test_a_system_without_glibc_gets_the_kits(lab: SshLab, toy: Toy, tmp_path: Path) -> None:
    with foreign_system(tmp_path / "root") as does:
        host = lab.host("foreign", does)
        config = write_config(tmp_path / "c.json", toy("fp16"), tmp_path / "out", [short("on")])
        done = lab.kit(host, "run", "--config", config)
        assert done.code == 0, done.stderr
        assert _conditions(RunDirectory(tmp_path / "out")).c_library.startswith("the kit's (")


# One at a time.


@pytest.mark.wide
def test_two_people_do_not_measure_at_once(lab: SshLab, board: str, device: SshDevice) -> None:
    lock, other = TargetLock(device), SshDevice(board, lab.config)
    lock.take()
    try:
        with pytest.raises(SetupError, match=rf"is being measured by .*@.* \(process {os.getpid()} there\), since"):
            TargetLock(other).take()
        lock.release()
        second = TargetLock(other)
        second.take()
        second.release()
    finally:
        other.close()


@pytest.mark.wide
def test_a_lock_whose_owner_here_is_dead_is_taken_over(lab: SshLab, device: SshDevice, board: str) -> None:
    # A connection that outlives its owner, as after a network that died without a word.
    reading, writing = os.pipe()
    owner = os.fork()
    if owner == 0:
        other = SshDevice(board, lab.config)
        TargetLock(other).take()
        if (left := os.fork()) == 0:
            time.sleep(60)
        else:
            os.write(writing, str(left).encode())
        os._exit(0)
    os.waitpid(owner, 0)
    try:
        lock = TargetLock(device)
        lock.take()
        lock.release()
    finally:
        os.kill(int(os.read(reading, 20)), signal.SIGKILL)


# Connections.


class Bench:
    """A config of three experiments one after the other on a host, and faults in the middle of the second."""

    def __init__(self, lab: SshLab, host: str, model: Path, home: Path) -> None:
        self.lab, self.host, self.root = lab, host, home / "out"
        # Three experiments of which none is compared run one after the other, not side by side.
        experiments = [short(name, num_runs=4, launches=1, traced_runs=1) for name in ("first", "second", "third")]
        self.config = write_config(home / "c.json", model, self.root, experiments)

    def run_until(self, experiment: str, fault: Callable[[int], object]) -> Finished:
        """Start the kit, do something to it when an experiment has begun, and wait for its end."""
        process = self.lab.start_kit(self.host, "run", "--config", self.config)
        # Not `glob`: what is moved while it looks is an error to it.
        until(lambda: self._has_log(experiment) or process.poll() is not None)
        fault(process.pid)
        stdout, stderr = process.communicate(timeout=LONGEST_S)
        return Finished(process.returncode, stdout, stderr)

    def _has_log(self, experiment: str) -> bool:
        found = (names for folder, _, names in os.walk(self.root) if Path(folder).name == experiment)
        return any(name.endswith(".log") for names in found for name in names)

    def the_rest_continues(self) -> None:
        assert RunDirectory(self.root).manifest().experiments["first"].status == "ok"
        again = self.lab.kit(self.host, "run", "--config", self.config, "--verbose")
        assert again.code == 0, again.stderr
        assert "reused: first" in again.stderr
        assert RunDirectory(self.root).manifest().status == "complete"


@pytest.fixture
def bench(lab: SshLab, board: str, toy: Toy, tmp_path: Path) -> Bench:
    return Bench(lab, board, toy("fp16"), tmp_path)


@pytest.mark.wide
@pytest.mark.parametrize("again", [False, pytest.param(True, marks=pytest.mark.again)])
def test_a_connection_that_goes_away_and_a_kit_that_is_ended_lose_nothing(
    bench: Bench, folder: Path, again: bool
) -> None:
    cut = (lambda _: bench.lab.kill_connections()) if again else (lambda _: bench.lab.cut(bench.host))
    done = bench.run_until("second", cut)
    assert done.code in (3, 4), done.stderr
    assert "Traceback" not in done.stderr and "fix: " in done.stderr and "the host board" in done.stderr
    until(lambda: not bench.lab.running(folder))
    how, code = (signal.SIGINT, 130) if again else (signal.SIGKILL, -9)
    done = bench.run_until("third", lambda pid: os.kill(pid, how))
    assert done.code == code, done.stderr
    until(lambda: not bench.lab.running(folder))
    bench.the_rest_continues()


@pytest.mark.wide
def test_a_link_on_which_nothing_moves_is_given_up(
    lab: SshLab, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("model_profiling.platforms.remote.ssh.STALLED_S", 1.0)
    monkeypatch.setattr("model_profiling.platforms.remote.ssh._DRAIN_S", 1.0)
    (tmp_path / "large").write_bytes(bytes(1 << 20))
    stuck = SshDevice(
        lab.host("stuck", 'case "$SSH_ORIGINAL_COMMAND" in *tar*) exec sleep 60;; esac; ' + PLAIN), lab.config
    )
    try:
        with pytest.raises(DeviceLostError, match="nothing moved"):
            stuck.push({"large": tmp_path / "large"}, str(tmp_path / "there"))
        # It is lost until it is asked for again.
        with pytest.raises(DeviceLostError):
            stuck.shell("true")
        assert stuck.reconnect(5.0) and stuck.shell("true").code == 0
    finally:
        stuck.close()


@pytest.mark.wide
def test_a_slow_link_only_takes_longer(lab: SshLab, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("model_profiling.platforms.remote.ssh.STALLED_S", 2.0)
    (tmp_path / "large").write_bytes(os.urandom(1_500_000))
    device = SshDevice(lab.host("slow", ProxyCommand=lab.slow_link(500_000)), lab.config)
    try:
        # By its rate it takes three seconds.
        device.push({"there": tmp_path / "large"}, str(tmp_path))
        device.pull(str(tmp_path / "there"), tmp_path / "back")
        assert (tmp_path / "back").read_bytes() == (tmp_path / "large").read_bytes()
    finally:
        device.close()


@pytest.mark.wide
def test_more_runners_than_a_connection_takes_are_spread(lab: SshLab) -> None:
    device = SshDevice(lab.host("narrow", sessions=4), lab.config)
    try:
        commands = [device.command("sh", "-c", "echo here; cat > /dev/null") for _ in range(7)]
        assert len({each for command in commands for each in command if each.startswith("-oControlPath")}) == 3
        started = [subprocess.Popen(words, stdin=subprocess.PIPE, stdout=subprocess.PIPE) for words in commands]
        for command, process in zip(commands, started, strict=True):
            assert b"here" in process.communicate(timeout=LONGEST_S)[0]
            device.freed(command)
    finally:
        device.close()
