"""What can go wrong with a device: each ends in bounded time with a clear message, keeps what is finished, restores."""

import json
import signal
import subprocess
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from model_profiling.platforms.remote.android import device_directory
from model_profiling.store.run_directory import RunDirectory
from tests.helpers.adb_device import TestDevice
from tests.helpers.adb_lab import Finished, Lab, at_turn, short, write_config
from tests.helpers.adb_services import Faults
from tests.helpers.waiting import LONGEST_S, until

pytestmark = pytest.mark.wide
Toy = Callable[[str], Path]
# The turns of the first experiment: six timed, one traced; faults come in the middle of the second.
IN_THE_SECOND = 11


@pytest.fixture(scope="module")
def lab(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Lab]:
    with Lab(tmp_path_factory.mktemp("devices")) as made:
        yield made


@pytest.fixture(scope="module")
def shared(lab: Lab) -> TestDevice:
    return lab.device("faulty")


class Bench:
    """A device, a config of two experiments one after the other, and the settings that must come back."""

    def __init__(self, lab: Lab, device: TestDevice, model: Path, home: Path) -> None:
        self.lab, self.device = lab, device
        device.faults, device.turns = Faults(), 0
        lab.connect(device)
        self.root = home / "out"
        # Three experiments of which none is compared run one after the other, not side by side.
        experiments = [short(name) for name in ("first", "second", "third")]
        self.config = write_config(home / "c.json", model, self.root, experiments)
        self.settings = device.phone.settings()

    def run(self, *more: object) -> Finished:
        return self.lab.kit(self.device, "--config", self.config, "--power-mode", "boost", *more)

    def run_impatiently(self) -> Finished:
        """What is waited for here does not come: there is no point in waiting long."""
        self.lab.patience = "0.2"
        try:
            return self.run()
        finally:
            self.lab.patience = "1"

    def at(self, turn: int, do: Callable[[], object]) -> None:
        """Do something in the turn of that number from now on."""
        self.device.faults.on_turn = at_turn(self.device.turns + turn, do)

    def repaired(self) -> Faults:
        """Connect a device without faults; returns those that it may get now."""
        self.device.faults = Faults()
        self.lab.connect(self.device)
        return self.device.faults

    def ended_well(self, done: Finished, *said: str) -> None:
        """With a message and no traceback; every JSON file whole."""
        assert done.code in (3, 4), done.stderr
        assert "Traceback" not in done.stderr
        assert any(words in done.stderr for words in said), done.stderr
        assert "fix: " in done.stderr
        for path in self.root.rglob("*.json"):
            json.loads(path.read_text())

    def restored(self) -> None:
        assert self.device.phone.settings() == self.settings
        assert not (device_directory(self.device.serial) / "settings.json").exists()

    def left_changed(self, done: Finished, *said: str) -> None:
        self.ended_well(done, *said)
        assert "settings put global low_power 1" in done.stderr
        assert (device_directory(self.device.serial) / "settings.json").exists()

    def first_is_kept_and_the_rest_continues(self) -> Finished:
        """The same command again finishes what is missing, and only that."""
        manifest = RunDirectory(self.root).manifest()
        assert manifest.experiments["first"].status == "ok"
        self.repaired()
        again = self.run("--verbose")
        assert again.code == 0, again.stderr
        assert "reused: first" in again.stderr
        assert RunDirectory(self.root).manifest().status == "complete"
        self.restored()
        return again


@pytest.fixture
def bench(lab: Lab, shared: TestDevice, toy: Toy, tmp_path: Path) -> Bench:
    return Bench(lab, shared, toy("fp16"), tmp_path)


def test_whatever_happens_to_the_device_the_same_command_goes_on(bench: Bench) -> None:
    device, kit_home = bench.device, bench.device.phone.root / "data/local/tmp/sme2_kit"
    gone = ("was disconnected", "not reachable")

    # It refuses a setting: nothing is measured in another mode than was asked for.
    refuse = device.phone.root / "settings/.refuse"
    refuse.touch()
    bench.ended_well(bench.run(), "cannot change its setting low_power")
    refuse.unlink()
    assert not RunDirectory(bench.root).manifest_path.exists() and device.phone.settings() == bench.settings

    # The cable is pulled, and then the disk is full, while files are pushed.
    for path in (*kit_home.glob("bundle-*/*.so"), *kit_home.glob("files/*")):
        path.unlink()
    device.faults.drop_after_bytes = 3_000_000
    bench.ended_well(bench.run(), "not reachable", "could not be pushed", "did not answer")
    bench.repaired().no_space = True
    done = bench.run()
    bench.ended_well(done, "its disk is full")
    assert "Free some space" in done.stderr
    bench.restored()

    # It reboots.
    bench.repaired()
    bench.at(IN_THE_SECOND, device.reboot)
    bench.ended_well(bench.run(), "rebooted", *gone)
    bench.restored()

    # Its shell hangs, and then the cable is pulled and stays out. The settings cannot be restored without a device: the
    # user is told how, and the next run does it first.
    bench.repaired()
    bench.at(1, lambda: setattr(device.faults, "hang", True))
    bench.left_changed(bench.run_impatiently(), "does not answer", "did not answer")
    device.unplug()
    device.plug_in()
    bench.repaired()
    bench.at(1, device.unplug)
    bench.left_changed(bench.run_impatiently(), *gone)
    device.plug_in()

    # Its disk is full when the runner writes.
    bench.repaired().file_blocks = 2
    bench.ended_well(bench.run(), "cannot be written")
    bench.restored()
    bench.first_is_kept_and_the_rest_continues()


@pytest.mark.again
def test_adbs_server_is_restarted_and_the_runner_killed_by_the_system(bench: Bench) -> None:
    bench.at(IN_THE_SECOND, lambda: bench.lab.run_adb("kill-server"))
    bench.ended_well(bench.run(), "was disconnected", "connection was cut", "not reachable")
    bench.restored()
    bench.repaired()
    bench.at(2, lambda: bench.device.signal_runners(signal.SIGKILL))
    done = bench.run()
    bench.ended_well(done, "SIGKILL")
    assert "possibly out of memory" in done.stderr
    bench.restored()
    bench.first_is_kept_and_the_rest_continues()


def test_a_runner_that_hangs_is_ended_on_the_device_too(bench: Bench, toy: Toy, tmp_path: Path) -> None:
    config = write_config(tmp_path / "hang.json", toy("fp16"), bench.root, [short("x")], timeout_s=3)
    bench.at(2, lambda: bench.device.signal_runners(signal.SIGSTOP))
    done = bench.lab.kit(bench.device, "--config", config, "--power-mode", "boost")
    bench.ended_well(done, "no output from the runner for 3 s")
    bench.restored()
    until(lambda: not bench.device.processes)


def test_a_second_run_on_the_same_device_waits_and_disturbs_nothing(bench: Bench, toy: Toy, tmp_path: Path) -> None:
    config = write_config(tmp_path / "other.json", toy("fp16"), tmp_path / "other", [short("x")])
    second: list[subprocess.Popen[str]] = []
    said: list[str] = []
    seen: list[dict[str, str]] = []

    def intrude() -> None:
        bench.device.signal_runners(signal.SIGSTOP)  # the first run waits for us
        second.append(bench.lab.start_kit(bench.device, "--config", config, "--power-mode", "app"))
        stream = second[0].stderr
        assert stream is not None
        said.append(next(line for line in stream if line.startswith("note: ")))
        seen.append(bench.device.phone.settings())
        bench.device.signal_runners(signal.SIGCONT)

    bench.at(2, intrude)
    assert bench.run().code == 0
    _, rest = second[0].communicate(timeout=LONGEST_S)
    assert f"{bench.device.serial} is being measured by process " in said[0] and "sme2-kit run" in said[0]
    assert second[0].returncode == 0 and "note: waited " in rest, rest
    assert seen[0]["low_power"] == "0"
    bench.restored()


@pytest.mark.parametrize(
    "how", [pytest.param(signal.SIGINT, marks=pytest.mark.again), signal.SIGKILL], ids=["ctrl-c", "killed"]
)
def test_the_kit_itself_is_interrupted(bench: Bench, how: signal.Signals) -> None:
    started: list[subprocess.Popen[str]] = []
    bench.at(IN_THE_SECOND, lambda: started[0].send_signal(how))
    started.append(bench.lab.start_kit(bench.device, "--config", bench.config, "--power-mode", "boost"))
    _, stderr = started[0].communicate(timeout=LONGEST_S)
    if how is signal.SIGINT:
        assert started[0].returncode == 130
        assert "planned launches are kept" in stderr and "Run the same command to resume" in stderr
        bench.restored()
    else:
        assert bench.device.phone.settings() != bench.settings
    again = bench.first_is_kept_and_the_rest_continues()
    assert "resuming an interrupted run" in again.stderr
    run = RunDirectory(bench.root)
    records = run.manifest().experiments
    for name in records:
        # What was measured before the interruption counts, and nothing is measured twice.
        samples = run.samples(run.manifest(), name)
        assert sum(len(turn.ns) for turn in samples.timed) == 6 and len(samples.traced_launches) == 2
    assert sum("interrupted after" in " ".join(record.notes) for record in records.values()) == 1
    until(lambda: not bench.device.processes)
