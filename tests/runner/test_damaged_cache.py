"""Whatever happens to a file of the cache: what needs it gives the right result, and the cache is whole again."""

import errno
import os
import shlex
import shutil
import subprocess
import sys
import time
import zipfile
from collections.abc import Callable, Iterator
from pathlib import Path

import msgspec
import pytest

from model_profiling.base import cache
from model_profiling.base.errors import SetupError
from model_profiling.base.file_locks import folder_held, hold_for_life, is_abandoned
from model_profiling.base.files import sha256
from model_profiling.base.on_progress import listen_to_notes
from model_profiling.cli.main import main
from model_profiling.pipeline.phase_experiments import random_tokens
from model_profiling.platforms.bundle import small_bundle
from model_profiling.platforms.operator_libraries import operator_libraries
from model_profiling.runner import build as building
from model_profiling.runner import sdk as sdks
from model_profiling.runner.build import build_runner, host_compiler
from model_profiling.runner.kernel_trace import build_shim, preload_environment
from model_profiling.runner.sdk import fetched_sdk, host_target
from model_profiling.upstream.libraries import LINKED
from tests.conftest import ROOT, needs_hardware
from tests.helpers.file_faults import FAULTS
from tests.helpers.waiting import LONGEST_S

# A compiler that compiles everything once: what it made goes by the name of its output.
COMPILER = """#!/bin/sh
case "$*" in *" -o "*) ;; *) exec {compiler} "$@";; esac
echo compiled >> "{store}/calls"
sleep "${{SLOW_COMPILER:-0}}"
out=; previous=
for word in "$@"; do [ "$previous" = -o ] && out=$word; previous=$word; done
made="{store}/$(basename "$out")"
[ -f "$made" ] || {compiler} "$@" || exit
[ -f "$made" ] || cp "$out" "$made"
cp "$made" "$out"
"""


@pytest.fixture(scope="module")
def store(runner: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    home = tmp_path_factory.mktemp("compiled")
    shutil.copy(runner, home / runner.name)
    compiler = home / "c++"
    compiler.write_text(COMPILER.format(compiler=shlex.join(host_compiler()), store=home))
    compiler.chmod(0o755)
    with zipfile.ZipFile(home / "executorch-1.5.1.whl", "w") as archive:
        archive.writestr("executorch/lib/libexecutorch_backend_xnnpack.dylib", b"library" * 1000)
        archive.writestr("executorch/include/executorch/runtime.h", b"// header")
    return home


@pytest.fixture
def use(store: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Use an empty cache, this compiler, and a wheel that lies here."""
    home = tmp_path / "cache"
    monkeypatch.setenv("SME2_KIT_CACHE", str(home))
    monkeypatch.setenv("CXX", shlex.quote(str(store / "c++")))
    # Hashes of libraries are no entries: what is damaged among them is computed again when it is asked for.
    monkeypatch.setattr(cache, "_YOUNG_NS", 1 << 62)
    monkeypatch.setattr(
        sdks, "_download", lambda _platform, _version, into: Path(shutil.copy(store / "executorch-1.5.1.whl", into))
    )
    return home


def said_by_runner(*flags: str, **variables: str) -> str:
    words = [str(build_runner().path), *flags]
    done = subprocess.run(words, capture_output=True, text=True, env={**os.environ, **variables}, check=True)
    return done.stdout + done.stderr


def sdk_files() -> str:
    root = fetched_sdk("macosx_14_0_arm64", "1.5.1").root
    return str([(path.name, sha256(path)) for path in sorted(root.rglob("*.*")) if path.is_file()])


# What asks for each kind of entry, and has a result that shows whether it was right.
USES: dict[str, Callable[[], str]] = {
    "runner": lambda: said_by_runner("--list_features"),
    "sdk": sdk_files,
    "pushed": lambda: str(small_bundle(build_runner()).hashes),
    "tokens": lambda: random_tokens(None, 64, 1000, 0).read_bytes().hex(),
}
if host_target().library_suffix == ".so":
    USES["operators"] = lambda: said_by_runner(
        "--list_operators", *(f"--operator_library={library}" for library in operator_libraries(build_runner()))
    )
if host_target().name == "linux-aarch64":
    USES["shim"] = lambda: said_by_runner("--list_features", **preload_environment(build_shim(build_runner())))


def contents(home: Path) -> dict[str, bytes]:
    """Every file of a cache. Nothing else may be in it."""
    found = [path for path in sorted(home.rglob("*")) if not path.is_dir() or path.is_symlink()]
    assert all(path.is_file() and not path.is_symlink() for path in found)
    return {path.relative_to(home).as_posix(): path.read_bytes() for path in found}


def damaged_one_by_one(home: Path, faults: Callable[[int], list[str]]) -> Iterator[str]:
    expected = {kind: ask() for kind, ask in USES.items()}
    pristine = contents(home)
    assert {name.split("/")[0] for name in pristine} == set(USES), "every kind of entry is used here"
    assert set(cache.KINDS) >= set(USES)
    for number, name in enumerate(pristine):
        for fault in faults(number):
            notes: list[str] = []
            listen_to_notes(notes.append)
            FAULTS[fault](home / name)
            kind = name.split("/")[0]
            changed = bool(cache.damaged_entries())
            assert USES[kind]() == expected[kind], (name, fault)
            assert contents(home) == pristine and cache.damaged_entries() == [], (name, fault)
            assert [("damaged" in line, " again" in line) for line in notes] == [(True, True)] * changed, (name, fault)
            yield fault


def test_a_damaged_file_of_the_cache_is_made_again(use: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    # Also of a cache that is named relative to the working directory.
    monkeypatch.chdir(use.parent)
    monkeypatch.setenv("SME2_KIT_CACHE", use.name)
    names = list(FAULTS)
    seen = set(damaged_one_by_one(use, lambda number: [names[number % len(names)]]))
    assert len(seen) > 6


@pytest.mark.wide
@pytest.mark.again
def test_every_damage_of_every_file_of_the_cache_is_repaired(use: Path) -> None:
    seen = list(damaged_one_by_one(use, lambda number: list(FAULTS)))
    assert len(seen) > 100


def test_an_entry_replaced_as_a_whole_is_made_again(use: Path, tmp_path: Path) -> None:
    home = build_runner().path.parent
    expected = contents(use)
    shutil.rmtree(home)
    home.write_text("in the way")
    assert cache.damaged_entries() == [home]
    assert build_runner().path.parent == home and contents(use) == expected
    shutil.rmtree(home)
    home.symlink_to("nowhere")
    assert build_runner().path.parent == home and contents(use) == expected
    (home / "libc.so.6").write_text("what nobody made")
    assert build_runner().path.parent == home and contents(use) == expected
    (home / "include").symlink_to(tmp_path)
    assert cache.damaged_entries() == [home]
    assert build_runner().path.parent == home and contents(use) == expected
    # Even what would be the same: whoever owns the place that it links to may change it.
    home.rename(tmp_path / "elsewhere")
    home.symlink_to(tmp_path / "elsewhere")
    assert cache.damaged_entries() == [home]
    assert build_runner().path.parent == home and contents(use) == expected and contents(tmp_path / "elsewhere")


def test_another_source_compiler_python_or_wheel_has_an_entry_of_its_own(
    use: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    homes = [build_runner().path]
    first = contents(use)

    def another() -> None:
        homes.append(build_runner().path)
        build_runner()

    with monkeypatch.context() as patch:
        shutil.copytree(building.NATIVE, tmp_path / "native")
        patch.setattr(building, "NATIVE", tmp_path / "native")
        assert build_runner().path == homes[0], "where a kit lies changes nothing"
        with (tmp_path / "native" / "clock.h").open("a") as source:
            source.write("// edited\n")
        another()
    with monkeypatch.context() as patch:
        patch.setattr(building, "PYTHON_TAG", "cpython-399")
        another()
    with monkeypatch.context() as patch:
        patch.setenv("CXX", f"{os.environ['CXX']} -g0")
        another()
    with monkeypatch.context() as patch:
        patch.setattr(building, "LINKED", LINKED[:-1])
        another()
    with monkeypatch.context() as patch:
        sdk = sdks.installed_sdk()
        other = sdks.Sdk(sdk.version, sdk.root, "built again, with the same version")
        patch.setattr(building, "sdk_for", lambda *_: other)
        another()
    assert len(set(homes)) == len(homes) == 6
    assert build_runner().path == homes[0] and capsys.readouterr().err == ""
    now = contents(use)
    assert {name: now[name] for name in first} == first


def test_a_replaced_header_makes_another_runner_and_a_replaced_library_does_not(
    use: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The runner is compiled with headers, and finds libraries when it is started."""
    installed = sdks.installed_sdk()
    own = sdks.Sdk(installed.version, tmp_path / "sdk", installed.content)
    shutil.copytree(installed.root / "include", own.root / "include")
    shutil.copytree(installed.libraries, own.libraries)
    monkeypatch.setattr(building, "sdk_for", lambda *_: own)
    first = build_runner().path
    with (own.libraries / "libexecutorch_backend_xnnpack.so").open("ab") as library:
        library.write(b"\0")
    assert build_runner().path == first
    header = next((own.root / "include").rglob("*.h"))
    header.write_text(header.read_text() + "// edited\n")
    assert build_runner().path != first


def test_processes_that_fill_a_cache_at_once_compile_once(use: Path, store: Path, runner: Path) -> None:
    script = "from model_profiling.runner.build import build_runner\nprint(build_runner().path)"
    environment = {**os.environ, "PYTHONPATH": str(ROOT), "SLOW_COMPILER": "1"}
    (store / "calls").unlink(missing_ok=True)
    for damage in (False, True):
        if damage:
            build_runner().path.write_bytes(b"")
        asking = [
            subprocess.Popen([sys.executable, "-c", script], stdout=subprocess.PIPE, env=environment) for _ in range(3)
        ]
        (path,) = {Path(each.communicate(timeout=LONGEST_S)[0].decode().strip()) for each in asking}
        assert path.read_bytes() == runner.read_bytes()
    assert (store / "calls").read_text().count("compiled") == 2
    assert all(name.startswith(f"runner/{path.parent.name}/") for name in contents(use))


def test_what_a_killed_process_left_goes_with_the_next_command_and_nothing_else(use: Path, tmp_path: Path) -> None:
    """The next use removes it, of whatever kind it is and whether or not there is something to make."""
    random_tokens(None, 8, 10, 0)
    (use / "sdk").mkdir()
    left = [use / "tokens" / ".making-now", use / "sdk" / ".making-other", use / "sdk" / ".making-x.held"]
    for each in left:
        (each / "new").mkdir(parents=True)
    held = use / "sdk" / ".making-held"
    held.mkdir()
    mine = tmp_path / "mine"
    mine.mkdir()
    (mine / "file").write_text("")
    link, inner = use / "sdk" / ".making-link", left[1] / "new" / "link"
    for each in (link, inner):
        each.symlink_to(mine)
    (use / "sdk" / ".making-file").write_text("")
    handle = hold_for_life(held)
    random_tokens(None, 8, 10, 0)
    assert not any(each.exists() for each in left)
    assert held.is_dir() and link.is_symlink() and (mine / "file").is_file()
    os.close(handle)
    # A process that is at work in the folder holds it, as earlier kits do.
    with folder_held(use / "sdk"):
        random_tokens(None, 8, 10, 0)
        assert held.is_dir()
    random_tokens(None, 8, 10, 0)
    assert not held.exists()


def test_a_compiler_that_fails_leaves_nothing_that_its_message_names(
    use: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    compiler = tmp_path / "c++"
    compiler.write_text(
        '#!/bin/sh\n[ "$1" = --version ] && exec echo fake\n'
        'echo "error: cannot write $TMPDIR/x.s" >&2; echo > "$TMPDIR/x.s"; exit 1\n'
    )
    compiler.chmod(0o755)
    monkeypatch.setenv("CXX", shlex.quote(str(compiler)))
    with pytest.raises(SetupError, match=r"cannot write .*x\.s"):
        build_runner()
    assert [path.suffix for path in (use / "runner").iterdir()] == [".log"]


def test_where_there_are_no_locks_only_what_is_old_goes(use: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def no_locks(handle: int, how: int) -> None:
        raise OSError(errno.EOPNOTSUPP, "Operation not supported")

    fresh, old = use / "tokens" / ".making-now", use / "tokens" / ".making-before"
    for left in (fresh, old):
        (left / "new").mkdir(parents=True)
    os.utime(old, (time.time() - 90_000,) * 2)
    for left in (fresh, old):
        with monkeypatch.context() as patch:
            patch.setattr("fcntl.flock", no_locks)
            assert is_abandoned(left) == (left == old)


@pytest.mark.parametrize("place", ["a file", "below a file", "a dangling link", "no home", "not writable"])
def test_a_cache_that_cannot_be_used_is_an_error_that_says_how_to_choose_another(
    place: str, use: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "file").write_text("")
    (tmp_path / "link").symlink_to("/proc/nowhere")
    places = {"a file": tmp_path / "file", "below a file": tmp_path / "file" / "cache"}
    places |= {"a dangling link": tmp_path / "link", "not writable": Path("/proc/cache")}
    monkeypatch.setenv("SME2_KIT_CACHE", str(places.get(place, "~nobody-has-this-name/cache")))
    with pytest.raises(SetupError) as caught:
        build_runner()
    assert "SME2_KIT_CACHE" in caught.value.hint


def test_a_cache_from_which_nothing_can_be_executed_is_an_error(
    use: Path, store: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As on a file system that is mounted noexec: what is compiled there is no program."""
    compiler = tmp_path / "c++"
    out = 'for word in "$@"; do [ -f "$word" ] && chmod a-x "$word"; done; exit 0'
    compiler.write_text(f'#!/bin/sh\n{shlex.quote(str(store / "c++"))} "$@" || exit\n{out}\n')
    compiler.chmod(0o755)
    monkeypatch.setenv("CXX", shlex.quote(str(compiler)))
    with pytest.raises(SetupError, match="cannot be executed") as caught:
        build_runner()
    assert "SME2_KIT_CACHE" in caught.value.hint and contents(use) == {}


def test_doctor_repairs_the_runner_and_reports_what_else_is_damaged(
    use: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    needs_hardware(host_target().library_suffix == ".so", "Linux")
    build = build_runner()
    stub = operator_libraries(build)[0]
    for path in (build.path, stub):
        path.write_bytes(b"")

    def cache_check() -> tuple[bool, str, str]:
        capsys.readouterr()
        main(["doctor", "--json"])
        told = capsys.readouterr()
        checks = {check["what"]: check for check in msgspec.json.decode(told.out)}
        assert checks["runner"]["ok"] and checks["CPU features"]["ok"]
        return checks["cache"]["ok"], checks["cache"]["found"] + checks["cache"]["fix"], told.err

    ok, words, notes = cache_check()
    assert not ok and stub.parent.name in words and build.path.parent.name not in words
    assert notes == "note: the cached runner was damaged: built again\n"
    operator_libraries(build)
    ok, words, notes = cache_check()
    assert ok and "nothing damaged" in words and notes == ""
