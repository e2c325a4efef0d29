"""The runner is built once, and for the platforms that this machine is not."""

import shutil
from pathlib import Path

import pytest

from model_profiling.runner.build import TARGETS, build_runner, host_target
from tests.conftest import needs
from tests.runner.test_runner import Toy, call, event


@pytest.mark.parametrize("target", [name for name in TARGETS if name != host_target().name])
def test_it_compiles_for_the_other_platforms(target: str) -> None:
    command = TARGETS[target].cross_compiler
    if "ziglang" in command:
        needs(call(*command[:3], "version").returncode == 0, "ziglang")
    else:
        needs(shutil.which(command[0]) is not None, command[0])
    built = build_runner(target).path
    magic = {"linux": b"\x7fELF", "macos": b"\xcf\xfa\xed\xfe"}[target.split("-")[0]]
    assert built.read_bytes()[:4] == magic


@pytest.mark.parametrize("target", [n for n in TARGETS if n.startswith("linux-") and n != host_target().name])
def test_the_other_architecture_proves_and_masks_its_features_too(target: str, toy: Toy) -> None:
    """Under an emulator: no timing, but the real table, the real proof and the real kernels of that architecture."""
    arch = TARGETS[target].arch
    emulator = f"qemu-{arch}"
    needs(shutil.which(emulator) is not None and shutil.which(TARGETS[target].cross_compiler[0]) is not None, emulator)
    start = [emulator, "-cpu", "max", "-L", f"/usr/{arch}-linux-gnu", build_runner(target).path]
    present = event(call(*start, "--list_features"), "features")["present"]
    feature = {"x86_64": "avx2", "aarch64": "sme"}[arch]
    assert feature in present
    done = call(*start, "--model_path", toy("fp32"), f"--disable_features={feature}")
    assert done.returncode == 0, done.stderr
    assert feature not in event(done, "features")["active"]


def test_the_build_is_cached_until_something_changes(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("SME2_KIT_CACHE", str(tmp_path))
    built = []
    for name in ("one-c++", "another-c++"):
        compiler = tmp_path / name
        # Without optimising, which takes most of the time.
        compiler.write_text(f'#!/bin/sh\nexec {shutil.which("c++")} "$@" -O0\n')
        compiler.chmod(0o755)
        monkeypatch.setenv("CXX", str(compiler))
        built.append(build_runner().path)
        stamp = built[-1].stat().st_mtime_ns
        assert build_runner().path.stat().st_mtime_ns == stamp
    assert built[0] != built[1]
