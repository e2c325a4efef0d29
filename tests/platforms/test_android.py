"""Android end to end: the real adb drives a device on loopback that runs what is pushed for real."""

import platform
import re
import shutil
import threading
from collections.abc import Callable, Iterator
from pathlib import Path

import numpy as np
import pytest

from model_profiling.analysis.accuracy.agreement import outputs_of
from model_profiling.analysis.compare.metrics import Metrics
from model_profiling.base.errors import InputError, KitError
from model_profiling.base.files import read_json
from model_profiling.cli.main import main
from model_profiling.platforms.bundle import LICENCES
from model_profiling.platforms.cpus import CpuCluster, affinity_mask
from model_profiling.platforms.emulator import NEEDED, find_qemu
from model_profiling.platforms.remote.android import AdbDevice, choose_device, find_adb
from model_profiling.store.run_directory import Conditions, RunDirectory
from tests.conftest import kit, needs
from tests.helpers.adb_device import TestDevice
from tests.helpers.adb_lab import Lab, at_turn, short, write_config
from tests.helpers.contract_check import check_files
from tests.helpers.llm_programs import cosine, eager, stored, tokens
from tests.helpers.waiting import LONGEST_S, until
from tests.pipeline.test_pipeline import accelerator_for

Toy = Callable[[str], Path]
NASTY = (
    *("a b", "it's", 'say "hi"', "; touch pwned", "$(touch pwned)", "`touch pwned`", "a\nb", "--flag", "*", "$HOME"),
    *("a\\b", "ü&|<>"),
)


@pytest.fixture(scope="module")
def lab(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Lab]:
    with Lab(tmp_path_factory.mktemp("devices")) as made:
        yield made


@pytest.fixture(scope="module")
def phone(lab: Lab) -> Iterator[TestDevice]:
    """A phone with this machine's CPU: its bundle runs natively, and times are real."""
    device = lab.device("native")
    yield device
    lab.disconnect(device)


@pytest.fixture(scope="module")
def native_run(lab: Lab, phone: TestDevice, toy: Toy, tmp_path_factory: pytest.TempPathFactory) -> RunDirectory:
    """On and off on the phone, nothing else said but the power mode."""
    root = tmp_path_factory.mktemp("android") / "out"
    before = phone.phone.settings()
    counts = ("--runs", 12, "--launches", 6, "--startup-launches", 6)
    done = lab.kit(phone, toy("fp16"), "--output-root", root, "--power-mode", "boost", *counts)
    assert done.code == 0, done.stderr
    assert phone.phone.settings() == before
    check_files(root)
    return RunDirectory(root)


def conditions(directory: RunDirectory) -> Conditions:
    (schedule,) = directory.manifest().schedules.values()
    return schedule.conditions


@pytest.mark.wide
def test_on_and_off_are_measured_compared_and_reported(native_run: RunDirectory, runner: Path) -> None:
    accelerator = accelerator_for(runner, "fp16")
    metrics = read_json(native_run.metrics_path, Metrics, "metrics")
    assert metrics.platform == "android"
    assert all(experiment.latency is not None for experiment in metrics.experiments.values())
    # The device's processes say of themselves how they start and what they hold, as on this machine.
    for experiment in metrics.experiments.values():
        start, memory = experiment.startup, experiment.memory
        assert start is not None and start.page_cache == "warm" and start.ending is not None
        assert memory is not None and not memory.leak and memory.after_load_bytes is not None
        assert memory.before_load_bytes is not None
        assert memory.before_load_bytes < memory.after_load_bytes <= memory.peak_bytes
    assert all((agreement.cosine or 0) > 0.999 for agreement in metrics.agreements)
    if accelerator in ("fp16arith", "avx512fp16", "sme2"):
        (comparison,) = metrics.comparisons
        assert comparison.verdict and comparison.paired
    assert kit("validate", "--results", native_run.path).returncode == 0


@pytest.mark.wide
def test_the_manifest_says_which_device_and_what_it_went_through(native_run: RunDirectory, phone: TestDevice) -> None:
    manifest = native_run.manifest()
    device = manifest.environment["device"]
    assert isinstance(device, dict)
    assert (device["serial"], device["model"]) == (phone.serial, "Test Phone")
    assert {"clusters", "battery", "memory_bytes", "abi", "temperature_celsius"} <= set(manifest.environment)
    was = conditions(native_run)
    assert was.power["earlier"] == {
        "low_power": "1",
        "stay_on_while_plugged_in": "0",
        "window_animation_scale": "1.0",
        "transition_animation_scale": "0.5",
        "animator_duration_scale": "null",
    }
    assert was.power["applied"] == dict.fromkeys(
        ("low_power", "window_animation_scale", "transition_animation_scale", "animator_duration_scale"), "0"
    ) | {"stay_on_while_plugged_in": "15"}
    assert len(was.heat) >= 2
    assert (was.heat[0].celsius, was.heat[0].sensor, was.throttled) == (36.5, "skin", "")
    assert was.transport["turns"] > 20
    assert was.transport["pushed_bytes"] > 10e6


@pytest.mark.wide
def test_a_language_model_runs_by_phase_on_a_device(lab: Lab, phone: TestDevice, tmp_path: Path) -> None:
    np.save(tmp_path / "tokens.npy", tokens())
    lengths = ["--prefill", "40", "--decode", "4", "--depth", "60", "--tokens", tmp_path / "tokens.npy"]
    counts = ["--runs", "4", "--launches", "2", "--startup-launches", "0"]
    done = lab.kit(phone, stored("two_methods"), "--output-root", tmp_path / "out", *lengths, *counts)
    assert done.code == 0, done.stderr
    directory = RunDirectory(tmp_path / "out")
    manifest = directory.manifest()
    phases = {name: record.phase for name, record in manifest.experiments.items()}
    assert {phase.label for phase in phases.values() if phase is not None} == {"pp40", "tg4@d60"}
    for name, phase in phases.items():
        assert phase is not None
        (logits,) = outputs_of(directory, manifest, name)
        assert cosine(logits.ravel(), eager(phase.last)) > 0.9999


@pytest.mark.wide
def test_only_the_bundle_and_the_model_stay_on_the_device(native_run: RunDirectory, phone: TestDevice) -> None:
    left = phone.phone.kit_files()
    assert not [name for name in left if name.startswith("session-") or ".part-" in name]
    (bundle,) = {name for name in left if name.startswith("bundle-") and "/" not in name}
    names = {Path(name).name for name in left if name.startswith(f"{bundle}/")}
    assert {"sme2_runner", "libc.so.6", "libstdc++.so.6", "LICENCES.txt"} <= names
    licences = (phone.phone.root / "data/local/tmp/sme2_kit" / bundle / "LICENCES.txt").read_text()
    for name in names - {"LICENCES.txt"}:
        assert f"{name}: {LICENCES[name]}" in licences


@pytest.mark.wide
def test_what_is_there_is_kept_and_what_is_damaged_or_of_another_device_is_not(
    lab: Lab, phone: TestDevice, native_run: RunDirectory, toy: Toy, tmp_path: Path
) -> None:
    phone.pushed.clear()
    config = write_config(tmp_path / "c.json", toy("fp16"), tmp_path / "out", [short("x")])
    assert "ran: x" in lab.kit(phone, "--config", config, "--verbose").stderr
    assert phone.pushed == []
    transport = conditions(RunDirectory(tmp_path / "out")).transport
    assert (transport["pushed_bytes"], transport["already_there_bytes"] > 10e6) == (0, True)
    assert "ran: nothing; reused: x" in lab.kit(phone, "--config", config, "--verbose").stderr
    library = next((phone.phone.root / "data/local/tmp/sme2_kit").glob("bundle-*/libexecutorch_etdump.so"))
    library.write_bytes(library.read_bytes()[:-1] + b"x")
    assert lab.kit(phone, "--config", config, "--force").code == 0
    assert [Path(name).name.split(".part-")[0] for name in phone.pushed] == ["libexecutorch_etdump.so"]
    other = lab.device("other")
    done = lab.kit(other, "--config", config, "--verbose", "--remove-pushed")
    assert "ran: x; reused: nothing" in done.stderr
    # If that is asked, nothing stays on the device.
    assert list((other.phone.root / "data/local/tmp").iterdir()) == []
    lab.disconnect(other)
    assert lab.kit(other, "--config", config, "--analysis-only").code == 0  # needs no device


@pytest.mark.wide
def test_any_name_and_prefix_run_as_they_are_and_a_slow_cable_does_not_enter_the_measured_time(
    lab: Lab, phone: TestDevice, toy: Toy, tmp_path: Path
) -> None:
    folder, delay_s = tmp_path / "it's; $(touch pwned)\n`touch pwned`", 0.15
    folder.mkdir()
    model, root = folder / 'my "model"; $(touch pwned) &.pte', tmp_path / "out dir; $(touch pwned)"
    model.write_bytes(toy("fp16").read_bytes())
    experiment = short("odd", launch_prefix=["env", "ODD=$(touch pwned); `touch pwned`\n'\""])
    config = write_config(tmp_path / "c.json", model, root, [experiment])
    phone.faults.on_turn = at_turn(phone.turns + 1, lambda: setattr(phone.faults, "delay_s", delay_s))
    try:
        done = lab.kit(phone, "--config", config)
    finally:
        phone.faults.delay_s = 0.0
    assert done.code == 0, done.stderr
    assert not list(phone.phone.root.rglob("pwned")) and not Path("pwned").exists()
    directory = RunDirectory(root)
    transport = conditions(directory).transport
    latency = read_json(directory.metrics_path, Metrics, "metrics").experiments["odd"].latency
    assert latency is not None
    # Every turn waited for the cable, and no execution did.
    assert transport["around_a_turn_median_ms"] > delay_s * 1e3
    assert latency.median_ms < delay_s * 1e3
    assert transport["around_turns_s"] > transport["measured_on_device_s"]


@pytest.mark.wide
def test_an_sme2_phone_runs_the_arm_bundle_under_qemu_with_a_kernel_trace(lab: Lab, toy: Toy, tmp_path: Path) -> None:
    qemu = find_qemu()
    needs(qemu is not None and qemu.version >= NEEDED, "QEMU 10.1 or newer")
    assert qemu is not None
    device = lab.device("sme2", cpu="sme2")
    experiment = {"name": "sme2", "mode": "trace", "num_runs": 1, "warmup": 0, "affinity": "big"}
    experiment["launch_prefix"] = [qemu.path, "-cpu", "max"]
    config = write_config(tmp_path / "c.json", toy("fp16"), tmp_path / "out", [experiment])
    done = lab.kit(device, "--config", config)
    lab.disconnect(device)
    assert done.code == 0, done.stderr
    manifest = RunDirectory(tmp_path / "out").manifest()
    assert manifest.timing == "emulated"
    features = manifest.environment["features"]
    assert isinstance(features, list)
    assert {"sme", "sme2"} <= set(features)
    record = manifest.experiments["sme2"]
    assert record.features is not None
    assert "sme2" in record.features.active
    assert (record.latency_source, record.runner.target) == ("none", "linux-aarch64")
    assert "_sme2_mopa" in (tmp_path / "out" / "kernels.json").read_text()
    assert (device.phone.root / "taskset").read_text().split() == ["80"]
    assert re.search(r"^Coverage .* of 8 CONV and GEMM operators", done.stdout, re.MULTILINE)
    assert " ms" not in done.stdout


@pytest.mark.wide
def test_the_desktop_emulators_architecture_works_the_same_way(lab: Lab, toy: Toy, tmp_path: Path) -> None:
    native = platform.machine() == "x86_64"
    qemu = shutil.which("qemu-x86_64")
    needs(native or (qemu is not None and shutil.which("x86_64-linux-gnu-g++") is not None), "QEMU and g++ for x86_64")
    device = lab.device("desktop", cpu="x86_64")
    experiment = {"name": "x86", "mode": "trace", "num_runs": 1, "warmup": 0}
    experiment["launch_prefix"] = [] if native else [str(qemu), "-cpu", "max"]
    config = write_config(tmp_path / "c.json", toy("fp32"), tmp_path / "out", [experiment])
    done = lab.kit(device, "--config", config)
    lab.disconnect(device)
    assert done.code == 0, done.stderr
    manifest = RunDirectory(tmp_path / "out").manifest()
    record = manifest.experiments["x86"]
    assert (manifest.environment["abi"], record.runner.target) == ("x86_64", "linux-x86_64")
    assert any("no kernel trace" in note for note in record.notes)


@pytest.mark.wide
def test_two_devices_at_once_each_get_their_own_run(lab: Lab, toy: Toy, tmp_path: Path) -> None:
    devices = [lab.device(name, model=f"Phone {name}") for name in ("left", "right")]
    configs = [
        write_config(tmp_path / f"{d.phone.serial}.json", toy("fp16"), tmp_path / d.phone.serial, [short("one")])
        for d in devices
    ]
    running = [lab.start_kit(d, "--config", config) for d, config in zip(devices, configs, strict=True)]
    for process in running:
        _, stderr = process.communicate(timeout=LONGEST_S)
        assert process.returncode == 0, stderr
    undecided = lab.kit(None, "--config", configs[0])
    for device in devices:
        manifest = RunDirectory(tmp_path / device.phone.serial).manifest()
        found = manifest.environment["device"]
        assert isinstance(found, dict)
        assert (found["serial"], found["model"]) == (device.serial, f"Phone {device.phone.serial}")
        assert device.turns > 0
        lab.disconnect(device)
    assert undecided.code == 2
    assert "devices are connected" in undecided.stderr
    assert "--device SERIAL" in undecided.stderr


@pytest.mark.wide
def test_no_device_an_unknown_one_and_one_that_does_not_trust_us(tmp_path: Path) -> None:
    with Lab(tmp_path / "empty") as empty:
        wary, refused = (empty.device(name, connect=False) for name in ("wary", "refused"))
        refused.stop()

        def choosing(device: str | None, remote: str | None = None) -> KitError:
            with pytest.raises(KitError) as shown:
                choose_device(empty.adb, device, remote)
            return shown.value

        none, unknown, nowhere = choosing(None), choosing("nobody"), choosing(None, refused.serial)
        assert "no Android device is connected" in none.message and "USB debugging" in none.hint
        assert "no device 'nobody'" in unknown.message and "cannot connect" in nowhere.message
        assert (none.exit_code, unknown.exit_code, nowhere.exit_code) == (3, 2, 3)
        wary.authorised = False
        empty.run_adb("connect", wary.serial)
        untrusted = choosing(wary.serial)
        assert re.search(r"unauthorized|offline|authorizing", untrusted.message) and untrusted.hint


@pytest.mark.parametrize(
    ("listed", "state"),
    [
        ("offline", "offline"),
        ("unauthorized", "unauthorized"),
        ("no permissions (user in plugdev group)", "no permissions"),
    ],
)
def test_every_state_a_device_can_be_in_has_its_fix(listed: str, state: str, tmp_path: Path) -> None:
    """adb's own words, from a stand-in: a broken cable cannot be here."""
    fake = tmp_path / "adb"
    fake.write_text(f"#!/bin/sh\nprintf 'List of devices attached\\nABC123  %s usb:1-1\\n' '{listed}'\n")
    fake.chmod(0o755)
    with pytest.raises(KitError, match=f"ABC123 is {state}") as shown:
        choose_device(str(fake), None, None)
    assert shown.value.hint
    assert shown.value.exit_code == 3


@pytest.mark.wide
def test_no_name_is_ever_interpreted(lab: Lab, phone: TestDevice, tmp_path: Path) -> None:
    device, there = AdbDevice(find_adb(), phone.serial), "/data/local/tmp"
    assert device.shell("printf", "%s\\0", *NASTY).stdout.split("\0")[:-1] == [*NASTY]
    assert device.script('printf "%s\\0" "$@"', *NASTY).stdout.split("\0")[:-1] == [*NASTY]
    sources = {f"{number} {name}": tmp_path / f"{number} {name}" for number, name in enumerate(NASTY)}
    for name, local in sources.items():
        local.write_bytes(name.encode())
    device.push(sources, there)
    remotes = [f"{there}/{name}" for name in sources]
    assert list(device.sha256(remotes)) == remotes
    for name, remote in zip(sources, remotes, strict=True):
        device.pull(remote, tmp_path / f"back {name}")
        assert (tmp_path / f"back {name}").read_bytes() == name.encode()
    device.must("remove files", "rm", "-f", *remotes)
    assert not list(phone.phone.root.rglob("pwned"))
    assert not list(tmp_path.rglob("pwned"))


@pytest.mark.wide
def test_a_run_cools_down_before_a_turn_and_says_in_its_verdict_that_it_throttled(
    lab: Lab, phone: TestDevice, toy: Toy, tmp_path: Path
) -> None:
    config = write_config(tmp_path / "c.json", toy("fp16"), tmp_path / "out", [short("off"), short("on")])
    phone.phone.set_heat(44.0, status=3)
    phone.faults.on_turn = None
    looks = sum("thermalservice" in command for command in phone.commands)

    def cool_after_a_few_looks() -> None:
        """One look is the probe's, one comes before the first turn; the third is the first of those that wait."""
        until(lambda: sum("thermalservice" in command for command in list(phone.commands)) >= looks + 3)
        phone.phone.set_heat(35.0)

    cooler = threading.Thread(target=cool_after_a_few_looks)
    cooler.start()
    done = lab.kit(phone, "--config", config, "--cool-down", 40)
    cooler.join()
    phone.phone.set_heat(36.5)
    assert done.code == 0, done.stderr
    was = conditions(RunDirectory(tmp_path / "out"))
    assert was.cooled_down_s > 0
    assert (was.heat[0].celsius, was.heat[-1].celsius) == (44.0, 35.0)
    throttled = "the device throttled (severe) at up to 44 °C"
    assert throttled in " ".join(done.stdout.split())
    (comparison,) = read_json(tmp_path / "out" / "metrics.json", Metrics, "metrics").comparisons
    assert comparison.caveats == [throttled]


@pytest.mark.wide
def test_a_users_own_runner_goes_with_its_cpp_runtime_and_its_logcat(
    lab: Lab, phone: TestDevice, toy: Toy, tmp_path: Path, runner: Path
) -> None:
    own = tmp_path / "ndk build"
    own.mkdir()
    (own / "libc++_shared.so").write_bytes(b"stands for the NDK's")
    foreign = own / "executor_runner"
    foreign.write_text(
        f"""#!/bin/sh
case "$*" in *--list_features*|*--paced*) echo "ERROR: unknown command line flag" >&2; exit 1 ;; esac
[ -e "$LD_LIBRARY_PATH/libc++_shared.so" ] || exit 9
exec {runner} "$@" > /dev/null
"""
    )
    foreign.chmod(0o755)
    line = "I XNNPACK : Using f16 igemm microkernel 'xnn_f16_igemm_minmax_ukernel_6x16__asm_aarch64_neonfp16arith'"
    (phone.phone.root / "logcat").write_text(f"{line}\n")
    experiment = {"name": "own", "mode": "trace", "num_runs": 2, "warmup": 1, "runner_path": str(foreign)}
    config = write_config(tmp_path / "c.json", toy("fp16"), tmp_path / "out", [experiment])
    done = lab.kit(phone, "--config", config)
    assert done.code == 0, done.stderr
    record = RunDirectory(tmp_path / "out").manifest().experiments["own"]
    assert record.runner.kind == "foreign"
    assert any(Path(name).name.startswith("libc++_shared.so") for name in phone.pushed)
    assert line in next((tmp_path / "out" / "own").glob("*.log")).read_text()


def test_affinity_by_cluster_or_mask() -> None:
    little, mid, big = (
        CpuCluster((0, 1, 2, 3), 2_000_000),
        CpuCluster((4, 5, 6), 3_000_000),
        CpuCluster((7,), 4_000_000),
    )
    three = (little, mid, big)
    assert [affinity_mask(name, three) for name in ("little", "mid", "big")] == ["f", "70", "80"]
    assert affinity_mask("0xF0", three) == "f0"
    assert affinity_mask("big", (little,)) == "f"
    with pytest.raises(InputError, match="no 'mid' cores"):
        affinity_mask("mid", (little, big))


def test_the_flags_for_devices_are_for_android_only(
    toy: Toy, runner: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    config = write_config(tmp_path / "c.json", toy("fp16"), tmp_path / "out", [short("x", affinity="big")])
    for words, said in (
        ([str(toy("fp16")), "--power-mode", "boost"], "--power-mode is for Android"),
        (["--config", str(config)], "is for devices and hosts"),
    ):
        assert main(["run", *words]) == 2 and said in capsys.readouterr().err
