"""The runner is built once, and for the platforms that this machine is not."""

import dataclasses
import importlib.util
import os
import shlex
import shutil
import subprocess
from pathlib import Path

import numpy as np
import pytest

from model_profiling.base.errors import SetupError
from model_profiling.platforms.operator_libraries import LIBRARY, operator_libraries
from model_profiling.runner.build import (
    NATIVE,
    PRIVATE_SYMBOLS,
    Build,
    build_runner,
    compile_command,
    generate_tables,
    host_compiler,
)
from model_profiling.runner.kernel_trace import TRACE_VARIABLE, build_shim, preload_environment
from model_profiling.runner.protocol import Exit
from model_profiling.runner.sdk import PYTHON_TAG, TARGETS, ZIG, host_target, sdk_for
from tests.conftest import SAMPLED, needs, needs_hardware
from tests.helpers.llm_programs import cosine, eager, stored, tokens
from tests.runner.test_runner import Toy, call, event


@pytest.mark.wide
@pytest.mark.parametrize("target", [name for name in TARGETS if name != host_target().name])
def test_it_compiles_for_the_other_platforms(target: str) -> None:
    command = TARGETS[target].cross_compiler
    if command[0] == ZIG:
        needs(importlib.util.find_spec(ZIG) is not None, ZIG)
    else:
        needs(shutil.which(command[0]) is not None, command[0])
    built = build_runner(target).path
    magic = {"linux": b"\x7fELF", "macos": b"\xcf\xfa\xed\xfe"}[target.split("-")[0]]
    assert built.read_bytes()[:4] == magic


SOURCES = sorted([*NATIVE.iterdir(), *PRIVATE_SYMBOLS.iterdir()])
# Most of the time goes into ExecuTorch's headers. Of two files, each comes before the other in one of these.
UNITS = [SOURCES, SOURCES[::-1]] if SAMPLED else [[source] for source in SOURCES]


@pytest.mark.wide
@pytest.mark.parametrize("unit", UNITS, ids=lambda unit: unit[0].name)
def test_each_source_compiles_alone_without_a_warning(unit: list[Path], tmp_path: Path) -> None:
    """In 120 columns; `.clang-format` has the rest of its style."""
    target = host_target()
    (tmp_path / "kit_tables.h").write_text(generate_tables(target))
    alone = tmp_path / "alone.cpp"
    alone.write_text("".join(f'#include "{source}"\n' for source in unit))
    call = compile_command(target, sdk_for(target, None), host_compiler(), tmp_path, alone, tmp_path / "none")
    words = [*call[: call.index(str(alone)) + 1], "-fsyntax-only", "-Werror"]
    done = subprocess.run(words, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    assert max(len(line) for source in unit for line in source.read_text(encoding="utf-8").splitlines()) <= 120


OTHERS = pytest.mark.parametrize("target", [n for n in TARGETS if n.startswith("linux-") and n != host_target().name])


def emulated(target: str) -> tuple[Build, list[object]]:
    """The runner for another architecture, and the words that start it under an emulator."""
    arch = TARGETS[target].arch
    emulator = f"qemu-{arch}"
    needs(shutil.which(emulator) is not None and shutil.which(TARGETS[target].cross_compiler[0]) is not None, emulator)
    build = build_runner(target)
    return build, [emulator, "-cpu", "max", "-L", f"/usr/{arch}-linux-gnu", build.path]


@OTHERS
@pytest.mark.wide
def test_the_other_architecture_proves_and_masks_its_features_too(target: str, toy: Toy) -> None:
    """Under an emulator: no timing, but the real table, the real proof and the real kernels of that architecture."""
    build, start = emulated(target)
    present = event(call(*start, "--list_features"), "features")["present"]
    feature = {"x86_64": "avx2", "aarch64": "sme"}[build.target.arch]
    assert feature in present
    done = call(*start, "--model_path", toy("fp32"), f"--disable_features={feature}")
    assert done.returncode == 0, done.stderr
    assert feature not in event(done, "features")["active"]


def test_the_build_is_cached_until_something_changes(
    runner: Path, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setenv("SME2_KIT_CACHE", str(tmp_path))
    # Compilers whose work is done: when they are called is the point.
    script = f'while [ "$1" != -o ]; do shift; done; cp "{runner}" "$2"'
    built = []
    for name in ("one-c++", "another-c++"):
        compiler = tmp_path / name
        compiler.write_text(f'#!/bin/sh\nif [ "$1" = --version ]; then echo 1.0; exit; fi\n{script}\n')
        compiler.chmod(0o755)
        monkeypatch.setenv("CXX", shlex.quote(str(compiler)))
        built.append(build_runner().path)
        stamp = built[-1].stat().st_mtime_ns
        assert build_runner().path.stat().st_mtime_ns == stamp
    assert built[0] != built[1]


@OTHERS
def test_a_language_models_operators_load_on_the_other_architecture(target: str, tmp_path: Path) -> None:
    (build, start), index = emulated(target), 40
    np.save(tmp_path / "tokens.npy", tokens())
    loaded = [f"--operator_library={library}" for library in operator_libraries(build)]
    read = [f"--tokens={tmp_path / 'tokens.npy'}", f"--fill=prefill_forward:{index}:1", f"--position={index}"]
    flags = ["--model_path", stored("two_methods"), "--method_name=decode_forward", "--output_file", tmp_path / "out"]
    done = call(*start, *loaded, *read, *flags)
    assert done.returncode == 0, done.stderr
    assert cosine(np.fromfile(tmp_path / "out-0.bin", np.float32), eager(index)) > 0.9999


def test_a_language_models_operators_load_after_another_pythons_wheel_has_filled_the_cache(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    build = build_runner()
    monkeypatch.setenv("SME2_KIT_CACHE", str(tmp_path / "cache"))
    needs_hardware(build.target.library_suffix == ".so", "Linux")
    own = (build.sdk.root / LIBRARY).read_bytes()
    tag = PYTHON_TAG.encode()
    assert tag in own
    for python in (b"cpython-398", b"cpython-399", tag):
        # As long as the real one and with the same symbols, as those of other Pythons are.
        library = tmp_path / python.decode() / LIBRARY
        library.parent.mkdir(parents=True)
        library.write_bytes(own.replace(tag, python.ljust(len(tag), b"t")))
        other = dataclasses.replace(build, sdk=dataclasses.replace(build.sdk, root=tmp_path / python.decode()))
        loaded = [f"--operator_library={library}" for library in operator_libraries(other)]
        # What the library itself needs lies in its wheel.
        environment = {**os.environ, "LD_LIBRARY_PATH": str(build.sdk.libraries)}
        words = [str(build.path), *loaded, f"--model_path={stored('custom')}"]
        done = subprocess.run(words, capture_output=True, text=True, env=environment, check=False)
        assert done.returncode == 0, done.stderr


def test_kernels_are_traced_by_a_library_in_a_folder_with_spaces(
    toy: Toy, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    needs_hardware(host_target().name == "linux-aarch64", "aarch64 Linux")
    build, trace = build_runner(), tmp_path / "trace.txt"
    monkeypatch.setenv("SME2_KIT_CACHE", str(tmp_path / "my cache"))
    monkeypatch.setenv(TRACE_VARIABLE, str(trace))
    for name, value in preload_environment(build_shim(build)).items():
        monkeypatch.setenv(name, value)
    done = call(build.path, "--model_path", toy("int8"))
    assert (done.returncode, "cannot be preloaded" in done.stderr) == (0, False)
    assert trace.stat().st_size > 0


def test_where_operators_cannot_be_loaded_that_is_said(tmp_path: Path) -> None:
    build = build_runner()
    mac = dataclasses.replace(build, target=TARGETS["macos-arm64"])
    with pytest.raises(SetupError, match="cannot load llama::"):
        operator_libraries(mac)
    empty = dataclasses.replace(build, sdk=dataclasses.replace(build.sdk, root=tmp_path))
    with pytest.raises(SetupError, match="has no libcustom_ops"):
        operator_libraries(empty)
    (tmp_path / LIBRARY).parent.mkdir(parents=True)
    (tmp_path / LIBRARY).write_bytes(b"\x7fELF\x02\x01 and no more")
    with pytest.raises(SetupError, match="not a readable shared library"):
        operator_libraries(empty)
    done = call(build.path, f"--operator_library={tmp_path / LIBRARY}", "--model_path", stored("custom"))
    assert done.returncode == Exit.OPERATOR_MISSING and "cannot be loaded" in done.stderr
    bare = call(build.path, "--model_path", stored("custom"))
    assert bare.returncode == Exit.OPERATOR_MISSING and "llama::custom_sdpa.out" in bare.stderr
