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
from tests.helpers.waiting import until

pytestmark = pytest.mark.wide
Toy = Callable[[str], Path]
# The turns of the first experiment: six timed, one traced; faults come in the middle of the second.
IN_THE_SECOND = 11
LONGEST_S = 300


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
        self.device.faults.on_turn = at_turn(turn, do)

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

    def nothing_runs(self) -> None:
        until(lambda: not self.device.processes)

    def first_is_kept_and_the_rest_continues(self) -> Finished:
        """The same command again finishes what is missing, and only that."""
        manifest = RunDirectory(self.root).manifest()
        assert manifest.experiments["first"].status == "ok"
        self.device.faults = Faults()
        self.lab.connect(self.device)
        again = self.run("--verbose")
        assert again.code == 0, again.stderr
        assert "reused: first" in again.stderr
        assert RunDirectory(self.root).manifest().status == "complete"
        self.restored()
        return again


@pytest.fixture
def bench(lab: Lab, shared: TestDevice, toy: Toy, tmp_path: Path) -> Bench:
    return Bench(lab, shared, toy("fp16"), tmp_path)


def test_the_cable_is_pulled_and_stays_out(bench: Bench) -> None:
    bench.at(IN_THE_SECOND, bench.device.unplug)
    done = bench.run_impatiently()
    bench.ended_well(done, "was disconnected", "not reachable")
    # The settings cannot be restored without a device: the user is told how, and the next run does it first.
    assert "settings put global low_power 1" in done.stderr
    assert (device_directory(bench.device.serial) / "settings.json").exists()
    bench.device.plug_in()
    bench.first_is_kept_and_the_rest_continues()


def test_the_cable_is_pulled_while_files_are_pushed(bench: Bench) -> None:
    for path in (bench.device.phone.root / "data/local/tmp/sme2_kit").glob("bundle-*/*.so"):
        path.unlink()
    bench.device.faults.drop_after_bytes = 3_000_000
    done = bench.run()
    bench.ended_well(done, "not reachable", "could not be pushed", "did not answer")
    bench.lab.connect(bench.device)
    again = bench.run()
    assert again.code == 0, again.stderr
    bench.restored()


def test_the_device_reboots(bench: Bench) -> None:
    bench.at(IN_THE_SECOND, bench.device.reboot)
    bench.ended_well(bench.run(), "rebooted", "was disconnected", "not reachable")
    bench.restored()
    bench.first_is_kept_and_the_rest_continues()


@pytest.mark.again
def test_adbs_server_is_restarted(bench: Bench) -> None:
    bench.at(IN_THE_SECOND, lambda: bench.lab.run_adb("kill-server"))
    bench.ended_well(bench.run(), "was disconnected", "connection was cut", "not reachable")
    bench.restored()
    bench.first_is_kept_and_the_rest_continues()


def test_the_devices_disk_is_full_when_files_are_pushed(bench: Bench) -> None:
    for path in (bench.device.phone.root / "data/local/tmp/sme2_kit/files").iterdir():
        path.unlink()
    bench.device.faults.no_space = True
    done = bench.run()
    bench.ended_well(done, "its disk is full")
    assert "Free some space" in done.stderr
    bench.restored()


def test_the_devices_disk_is_full_when_the_runner_writes(bench: Bench) -> None:
    bench.device.faults.file_blocks = 2
    bench.ended_well(bench.run(), "cannot be written")
    bench.restored()


@pytest.mark.again
def test_the_runner_is_killed_by_the_system(bench: Bench) -> None:
    bench.at(IN_THE_SECOND, lambda: bench.device.signal_runners(signal.SIGKILL))
    done = bench.run()
    bench.ended_well(done, "SIGKILL")
    assert "possibly out of memory" in done.stderr
    bench.restored()
    bench.first_is_kept_and_the_rest_continues()


def test_the_devices_shell_hangs(bench: Bench) -> None:
    bench.at(IN_THE_SECOND, lambda: setattr(bench.device.faults, "hang", True))
    done = bench.run_impatiently()
    bench.ended_well(done, "does not answer", "did not answer")
    assert "settings put global low_power 1" in done.stderr
    bench.device.unplug()
    bench.device.plug_in()
    bench.first_is_kept_and_the_rest_continues()


def test_a_runner_that_hangs_is_ended_on_the_device_too(bench: Bench, toy: Toy, tmp_path: Path) -> None:
    config = write_config(tmp_path / "hang.json", toy("fp16"), bench.root, [short("x")], timeout_s=3)
    bench.at(2, lambda: bench.device.signal_runners(signal.SIGSTOP))
    done = bench.lab.kit(bench.device, "--config", config, "--power-mode", "boost")
    bench.ended_well(done, "no output from the runner for 3 s")
    bench.restored()
    bench.nothing_runs()


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


def test_settings_that_the_device_refuses(bench: Bench) -> None:
    refuse = bench.device.phone.root / "settings/.refuse"
    refuse.touch()
    done = bench.run()
    refuse.unlink()
    bench.ended_well(done, "cannot change its setting low_power")
    # Nothing is measured in another mode than was asked for.
    assert not RunDirectory(bench.root).manifest_path.exists()
    assert bench.device.phone.settings() == bench.settings
    assert bench.run("--only", "first").code == 0
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
    bench.nothing_runs()
