"""A result is reused only by what made it: the same machine, the same runner, the same bytes of all that it loads."""

import os
import re
import shutil
import struct
import subprocess
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import hypothesis.strategies as st
import msgspec
import pytest
from hypothesis import given

from model_profiling.base.errors import InterruptionError
from model_profiling.pipeline.config import parse_config
from model_profiling.pipeline.pipeline import Pipeline, PipelineResult
from model_profiling.platforms import process_platform
from model_profiling.platforms.environment import describe_host
from model_profiling.platforms.process_platform import LocalPlatform
from model_profiling.runner.loaded_libraries import loaded_libraries
from model_profiling.store.made_by import Machine, Maker, RunnerRecord, installed_gib, machine_of
from model_profiling.store.run_directory import RunDirectory
from model_profiling.store.runs import list_runs
from tests.conftest import ROOT, needs
from tests.helpers.distorted_clock import true_clock
from tests.helpers.waiting import LONGEST_S

TINY = ROOT / "tests" / "data" / "fuzz_seeds" / "tiny_xnnpack_fp32.pte"
CUSTOM = ROOT / "tests" / "data" / "llm" / "custom.pte"
BACKEND = "libexecutorch_backend_xnnpack.so"
COUNTS = {"num_runs": 2, "launches": 1, "startup_launches": 0}
ELSEWHERE = {"cpu": "Another CPU", "cores": 96, "memory_bytes": 512 << 30}


def asked(root: Path, **more: Any) -> Any:
    model = root.parent / "tiny.pte"  # without the record of its export, which names inputs
    if not model.exists():
        shutil.copy(TINY, model)
    experiments = [{"name": name, **COUNTS, **more} for name in ("left", "right")]
    return parse_config({"model": str(model), "output_root": str(root), "experiments": experiments}, "here")


def measured(config: Any, only: list[str] | None = None) -> tuple[PipelineResult, list[str]]:
    """What a run did, and what it told the user."""
    notes: list[str] = []
    result = Pipeline(config, LocalPlatform(no_lock=True), lambda *_: None, only, on_note=notes.append).run()
    return result, notes


@pytest.fixture
def libraries(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """ExecuTorch's libraries in a folder of our own, where the loader looks first."""
    needs(os.name == "posix" and shutil.which("ldd") is not None, "Linux")
    home = tmp_path / "lib"
    shutil.copytree(LocalPlatform().build.sdk.libraries, home)
    monkeypatch.setenv("LD_LIBRARY_PATH", str(home))
    monkeypatch.delenv("LD_PRELOAD", raising=False)
    return home


def another_machine(monkeypatch: pytest.MonkeyPatch, **facts: object) -> None:
    """Be on hardware that is not here."""
    monkeypatch.setattr(process_platform, "describe_host", lambda: {**describe_host(), **facts})


def test_what_nobody_changed_is_reused_and_a_replaced_library_is_measured_again(
    libraries: Path, tmp_path: Path
) -> None:
    config = asked(tmp_path / "out")
    first, said = measured(config)
    assert first.ran == ["left", "right"] and not said
    again, said = measured(config)
    assert (again.ran, again.kept, said) == ([], ["left", "right"], [])
    state = (libraries / BACKEND).stat()
    with (libraries / BACKEND).open("ab") as file:
        file.write(b"\0")
    os.utime(libraries / BACKEND, ns=(state.st_atime_ns, state.st_mtime_ns))
    replaced, said = measured(config)
    assert replaced.ran == ["left", "right"] and replaced.archived == first.manifest.label
    assert said == [f"existing results are not reused: the runner's libraries changed ({BACKEND})"]
    before, after = (each.manifest.experiments["left"].runner for each in (first, replaced))
    assert before.sha256 == after.sha256 and before.libraries[BACKEND] != after.libraries[BACKEND]


@pytest.mark.parametrize("fact", ELSEWHERE)
def test_results_of_another_machine_are_not_reused_and_stay_apart(
    fact: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    root = tmp_path / "shared"
    here, _ = measured(asked(root))
    with monkeypatch.context() as patch:
        another_machine(patch, **{fact: ELSEWHERE[fact]})
        there, said = measured(asked(root), only=["left"])
        assert there.ran == ["left"] and len(said) == 1
        assert said[0].startswith("existing results are not reused: measured on another machine (")
        assert str(here.manifest.experiments["left"].machine) in said[0]
        # What the other machine had measured beside it does not stand beside this result.
        assert list(RunDirectory(root).manifest().experiments) == ["left"]
        assert {*RunDirectory(root / "earlier" / here.manifest.label).manifest().experiments} == {"left", "right"}
        assert measured(asked(root), only=["left"])[0].kept == ["left"]
    back, _ = measured(asked(root))
    assert back.ran == ["left", "right"]
    machines = {str(record.machine) for record in back.manifest.experiments.values()}
    assert machines == {str(machine_of("", (), describe_host()))}


def test_an_interrupted_run_goes_on_only_on_its_own_machine(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    config, steps = asked(tmp_path / "out", num_runs=8, launches=4), iter(range(1000))

    def interrupt(what: str, done: int, total: int) -> None:
        if next(steps) > 6:
            raise KeyboardInterrupt

    with pytest.raises(InterruptionError, match="are kept"):
        Pipeline(config, LocalPlatform(no_lock=True), interrupt).run()
    with monkeypatch.context() as patch:
        another_machine(patch, **ELSEWHERE)
        there, said = measured(config)
        assert not any("resuming" in note for note in said)
        assert any("interrupted run of another machine (" in note and "command there" in note for note in said), said
        assert not any("interrupted" in note for r in there.manifest.experiments.values() for note in r.notes)
    assert {entry.kind for entry in list_runs(tmp_path / "out")} == {"latest", "interrupted"}
    here, said = measured(config)
    assert any("resuming" in note for note in said) and here.ran == ["left", "right"]
    for run in (here, there):
        assert len({record.machine.sha256 for record in run.manifest.experiments.values() if record.machine}) == 1


def test_a_run_can_be_read_on_a_machine_that_could_not_have_made_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from model_profiling.api import open_run

    measured(asked(tmp_path / "out"))
    shutil.copytree(tmp_path / "out", tmp_path / "copied")
    monkeypatch.setattr("platform.machine", lambda: "riscv64")
    monkeypatch.setattr("model_profiling.runner.build.build_runner", lambda *_: pytest.fail("no runner is needed"))
    run = open_run(tmp_path / "copied")
    assert [bool(entry.median_ms) for entry in run.latency] == [True, True]


# What is loaded


def really_loaded(command: list[str]) -> dict[str, Path]:
    """What the loader itself says that it loads, by name."""
    done = subprocess.run(
        command, env={**os.environ, "LD_DEBUG": "files"}, capture_output=True, text=True, check=True, timeout=LONGEST_S
    )
    paths = map(Path, re.findall(r"calling init: (\S+)", done.stderr))
    return {path.name: path for path in paths}


@pytest.mark.parametrize("model", [TINY, CUSTOM], ids=["xnnpack", "llm"])
def test_the_record_has_exactly_what_the_loader_loads(model: Path, libraries: Path) -> None:
    from model_profiling.platforms.operator_libraries import libraries_for

    platform = LocalPlatform()
    record = platform.runner(None, model=model)
    operators = [f"--operator_library={path}" for path in libraries_for(platform.build, model)]
    flags = [f"--model_path={TINY}", "--num_executions=1", *operators]
    loaded = really_loaded([record.path, *flags])
    assert BACKEND in loaded and loaded[BACKEND].parent == libraries
    named = {name for name in record.libraries if not name.startswith("ld-linux")}
    assert named == {name for name in loaded if not name.startswith("ld-linux")}
    assert ("libcustom_ops_aot_lib.so" in named) == (model is CUSTOM)
    from model_profiling.base.files import sha256

    assert {name: sha256(path) for name, path in loaded.items()}.items() <= record.libraries.items()


def compiled(home: Path, name: str, code: str, *words: str) -> Path:
    source = home / f"{name}.c"
    source.write_text(code)
    subprocess.run(
        ["cc", "-o", str(home / name), str(source), *words], check=True, capture_output=True, timeout=LONGEST_S
    )
    return home / name


@pytest.fixture(scope="module")
def program(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A program with a library, which has another one in a folder below it; a third one is opened by name."""
    needs(shutil.which("cc") is not None, "a C compiler")
    home = tmp_path_factory.mktemp("program")
    (home / "deep").mkdir()
    compiled(home, "deep/libdeep.so", "int deep(void) { return 1; }", "-shared", "-fPIC")
    shared = ("-shared", "-fPIC", f"-L{home}/deep", "-ldeep", "-Wl,-rpath,$ORIGIN/deep")
    compiled(home, "libnear.so", "int deep(void); int near(void) { return deep(); }", *shared)
    compiled(home, "libopened.so", "int opened;", "-shared", "-fPIC")
    linked = (f"-L{home}", "-lnear", "-Wl,-rpath,$ORIGIN", "-Wl,--disable-new-dtags", "-Wl,--allow-shlib-undefined")
    return compiled(home, "main", "int near(void); int main(void) { return near(); }", *linked)


def maker(program: Path, machine: Machine) -> Maker:
    from model_profiling.base.files import sha256

    loaded = loaded_libraries(program, ["libopened.so"])
    return Maker(machine, RunnerRecord("foreign", str(program), sha256(program), libraries=loaded))


MACHINE = Machine("aarch64", ["neon", "sme2"], "Arm C1-Ultra", 8, 16.0, "abc")
MACHINES = st.builds(
    Machine,
    st.sampled_from(["aarch64", "x86_64"]),
    st.lists(st.sampled_from(["neon", "sme", "sme2", "i8mm"]), unique=True).map(sorted),
    st.sampled_from(["", "Arm C1-Ultra", "Arm Cortex-X4", "Arm C1-Ultra, Arm C1-Nano"]),
    st.integers(0, 64),
    st.sampled_from([0.0, 8.0, 16.0, 24.0]),
    st.sampled_from(["", "abc", "abd"]),
)
FILES = ["main", "libnear.so", "deep/libdeep.so", "libopened.so"]


def test_libraries_are_found_where_the_loader_finds_them(program: Path) -> None:
    found = loaded_libraries(program, ["libopened.so", "libnowhere.so"])
    assert {"libnear.so", "libdeep.so", "libopened.so", "libc.so.6"} <= {*found}
    assert found["libnowhere.so"] == "" and all(found[name] for name in found if name != "libnowhere.so")
    assert subprocess.run([str(program)], check=False).returncode == 1


def test_libraries_of_a_runner_of_ones_own_are_recorded_and_a_script_is_known_by_itself(
    program: Path, tmp_path: Path
) -> None:
    record = LocalPlatform().runner(str(program))
    assert record.kind == "foreign" and {"libnear.so", "libdeep.so"} <= {*record.libraries}
    script = tmp_path / "runner.sh"
    script.write_text(f"#!/bin/sh\nexec {program}\n")
    script.chmod(0o755)
    assert LocalPlatform().runner(str(script)).libraries == {}


def load_command(kind: int, text: str) -> bytes:
    """A load command of Mach-O: LC_LOAD_DYLIB has a date and two versions between its head and its name."""
    gap = b"" if kind == 0x8000001C else bytes(12)
    body = text.encode() + b"\0"
    body += bytes(-(12 + len(gap) + len(body)) % 8)
    return struct.pack("<III", kind, 12 + len(gap) + len(body), 12 + len(gap)) + gap + body


@true_clock()
def test_libraries_of_macos_are_found_by_rpath(tmp_path: Path) -> None:
    """Files as Apple's linker lays them out; the whole way is tried with a real one where a Mac's wheel is fetched."""

    def image(name: str, *commands: bytes) -> Path:
        head = struct.pack("<IIIIIIII", 0xFEEDFACF, 0x0100000C, 0, 2, len(commands), sum(map(len, commands)), 0, 0)
        path = tmp_path / name
        path.parent.mkdir(exist_ok=True)
        path.write_bytes(head + b"".join(commands))
        return path

    image(
        "lib/libnear.dylib", load_command(0xC, "@loader_path/libdeep.dylib"), load_command(0xC, "/usr/lib/libz.dylib")
    )
    image("lib/libdeep.dylib")
    image("lib/libopened.dylib")
    rpath = load_command(0x8000001C, "@executable_path/lib")
    main = image("main", load_command(0xC, "@rpath/libnear.dylib"), rpath)
    found = loaded_libraries(main, ["@rpath/libopened.dylib"])
    assert {name: bool(digest) for name, digest in found.items()} == {
        **dict.fromkeys(("libnear.dylib", "libdeep.dylib", "libopened.dylib"), True),
        "libz.dylib": False,
    }


@given(place=st.sampled_from(FILES), at=st.floats(0, 1, exclude_max=True), flip=st.integers(1, 255))
def test_any_changed_byte_of_anything_loaded_is_another_maker(program: Path, place: str, at: float, flip: int) -> None:
    path = program.parent / place
    content, state, before = path.read_bytes(), path.stat(), maker(program, MACHINE)
    assert maker(program, MACHINE).identity == before.identity
    changed = bytearray(content)
    changed[int(at * len(content))] ^= flip
    try:
        path.write_bytes(changed)
        # As long as before, and as old as it says.
        os.utime(path, ns=(state.st_atime_ns, state.st_mtime_ns))
        after = maker(program, MACHINE)
        assert after.identity != before.identity and after.difference(before)
        named = "the runner changed" if place == "main" else path.name
        assert named in after.difference(before)
    finally:
        path.write_bytes(content)
    assert maker(program, MACHINE).identity == before.identity


@given(MACHINES, MACHINES)
def test_machines_are_told_apart_by_any_fact_and_by_nothing_else(one: Machine, other: Machine) -> None:
    same = msgspec.json.decode(msgspec.json.encode(one), type=Machine)
    assert one.sha256 == same.sha256 and one.difference(same) == ""
    assert (one == other) == (one.sha256 == other.sha256) == (one.difference(other) == "")


@given(MACHINES, st.sampled_from(Machine.__struct_fields__), MACHINES)
def test_one_other_fact_is_another_machine(one: Machine, field: str, other: Machine) -> None:
    changed = msgspec.structs.replace(one, **{field: getattr(other, field)})
    assert (changed.sha256 != one.sha256) == (getattr(one, field) != getattr(other, field))


@given(st.dictionaries(st.sampled_from(["a.so", "b.so", "c.so"]), st.sampled_from(["", "0", "1"])), st.data())
def test_runners_are_told_apart_by_any_library(libraries: dict[str, str], data: st.DataObject) -> None:
    other = data.draw(st.dictionaries(st.sampled_from(["a.so", "b.so", "c.so"]), st.sampled_from(["", "0", "1"])))
    one, two = (RunnerRecord("kit", "r", "f", libraries=each) for each in (libraries, other))
    assert (one.content == two.content) == (libraries == other) == (one.difference(two) == "")


@pytest.mark.parametrize(
    "visible,installed",
    [(15.3, 16), (15.5, 16), (15.7, 16), (31.1, 32), (62.6, 64), (125.6, 128), (7.6, 8), (3.8, 4), (1.9, 2), (24, 24)],
)
def test_memory_is_what_is_built_in_and_not_what_a_kernel_leaves_of_it(visible: float, installed: float) -> None:
    assert installed_gib(int(visible * 2**30)) == installed


# What restarts and time change is no fact of a machine.
RESTLESS = st.dictionaries(
    st.sampled_from(["load_1m_5m_15m", "system", "temperature_celsius", "battery", "governors", "khz", "python"]),
    st.integers(),
)


@given(RESTLESS, st.integers(-(40 << 20), 40 << 20))
def test_what_changes_from_boot_to_boot_is_no_other_machine(facts: dict[str, int], more: int) -> None:
    known = {"cpu": "x", "cores": 4, "memory_bytes": int(15.5 * 2**30)}
    moved = {**known, **facts, "memory_bytes": int(15.5 * 2**30) + more}
    assert machine_of("a", ["f"], known) == machine_of("a", ["f"], moved)


# Hashes are kept from one command to the next


@pytest.fixture
def forgetful(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Callable[[Path], str]]:
    """`kept_sha256` as in a new process each time; with files that are seconds old."""
    from model_profiling.base import cache

    monkeypatch.setenv("SME2_KIT_CACHE", str(tmp_path / "cache"))
    monkeypatch.setattr(cache, "_YOUNG_NS", -1)
    yield cache._sha256


def test_a_hash_is_computed_once_and_again_when_anything_of_the_file_changed(
    forgetful: Callable[[Path], str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from model_profiling.base import files

    path = tmp_path / "library"
    path.write_bytes(b"one")
    first, state = forgetful(path), path.stat()
    with monkeypatch.context() as patch:
        patch.setattr(files, "sha256", lambda path: pytest.fail("it is known"))
        assert forgetful(path) == first
    path.write_bytes(b"two")
    os.utime(path, ns=(state.st_atime_ns, state.st_mtime_ns))
    assert forgetful(path) == files.sha256(path) != first
    # Another file moved to its place, as an installer does.
    (tmp_path / "new").write_bytes(b"new")
    os.utime(tmp_path / "new", ns=(state.st_atime_ns, state.st_mtime_ns))
    (tmp_path / "new").replace(path)
    assert forgetful(path) == files.sha256(path)
    # What was kept is damaged, or there is no place for it.
    kept = tmp_path / "cache" / "hashes"
    kept.write_bytes(kept.read_bytes()[:-3] + b"abc")
    assert forgetful(path) == files.sha256(path)
    shutil.rmtree(tmp_path / "cache")
    (tmp_path / "cache").write_text("in the way")
    assert forgetful(path) == files.sha256(path)
