"""Which ExecuTorch the runner is built against: releases, and builds of one's own that are checked first."""

import shutil
from collections.abc import Callable
from pathlib import Path

import pytest

from model_profiling.base import cache, files
from model_profiling.base.errors import InputError, KitError, SetupError
from model_profiling.platforms.operator_libraries import LIBRARY
from model_profiling.runner import sdk as sdks
from model_profiling.runner.build import build_runner
from model_profiling.runner.sdk import (
    MOST_CHOICES,
    TARGETS,
    host_target,
    installed_sdk,
    prefix_sdk,
    sdk_for,
    split_choices,
)
from tests.conftest import needs_hardware
from tests.helpers.prefixes import prefix


@pytest.fixture(autouse=True)
def linux() -> None:
    needs_hardware(host_target().library_suffix == ".so", "Linux")


@pytest.fixture
def store(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("SME2_KIT_CACHE", str(tmp_path / "cache"))
    return tmp_path / "cache"


def built(path: Path | str) -> sdks.Sdk:
    return prefix_sdk(host_target(), str(path))


def test_a_prefix_is_known_by_its_content_wherever_it_lies(store: Path, tmp_path: Path) -> None:
    first, second = built(prefix(tmp_path / "one")), built(prefix(tmp_path / "two"))
    # A damaged copy in the cache is copied again.
    library = first.libraries / "libexecutorch.so"
    library.write_bytes(b"")
    assert built(tmp_path / "one") == first
    assert library.read_bytes() == (tmp_path / "one" / "lib" / library.name).read_bytes()
    assert (first.content, first.root) == (second.content, second.root)
    assert first.root.is_relative_to(store) and first.given == str(tmp_path / "one")
    assert first.version == f"own build {first.content[:8]}"


@pytest.mark.parametrize("part", ["lib/libexecutorch_backend_xnnpack.so", "include/executorch/runtime/core/error.h"])
def test_a_part_that_was_built_again_in_its_place_makes_another_build(store: Path, tmp_path: Path, part: str) -> None:
    home = prefix(tmp_path / "build")
    include = home / "include" / "executorch"
    real = include.resolve()
    include.unlink()
    shutil.copytree(real, include)
    before = built(home)
    with (home / part).open("ab") as file:
        file.write(b"\n")
    after = built(home)
    assert before.content != after.content and before.root != after.root
    # What an earlier run used is still what it was.
    assert (before.root / part).read_bytes() + b"\n" == (after.root / part).read_bytes()
    assert cache.damaged_entries() == []


@pytest.mark.parametrize(
    ("name", "text", "version"),
    [
        ("version.txt", "1.6.0a0+3f2a91c\n", "1.6.0a0+3f2a91c"),
        ("version.py", '__all__ = []\n__version__ = "1.5.1+cpu"\n', "1.5.1+cpu"),
        ("version.txt", "\x1b[31mred\n", ""),
        ("version.txt", "9" * 1000, ""),
    ],
)
def test_the_version_of_a_prefix_is_what_a_file_in_it_says(
    store: Path, tmp_path: Path, name: str, text: str, version: str
) -> None:
    home = prefix(tmp_path / "build")
    (home / name).write_text(text)
    found = built(home)
    assert found.version == (version or f"own build {found.content[:8]}")


def test_a_package_folder_and_the_folder_around_it_are_prefixes(store: Path, tmp_path: Path) -> None:
    package = prefix(tmp_path / "site" / "executorch")
    (tmp_path / "site" / "executorch-1.5.7.dist-info").mkdir()
    assert built(package).version == built(tmp_path / "site").version == "1.5.7"
    operators = package / LIBRARY
    operators.parent.mkdir(parents=True)
    shutil.copy(installed_sdk().root / LIBRARY, operators)
    assert (built(package).root / LIBRARY).is_file(), "operators for language models follow the build"


def incomplete(home: Path) -> None:
    for name in ("lib/libexecutorch_etdump.so", "lib/libexecutorch_threadpool.so", "include/executorch"):
        (home / name).unlink()


def emptied(home: Path) -> None:
    shutil.rmtree(home)
    home.mkdir()


def truncate(home: Path) -> None:
    path = home / "lib" / "libexecutorch.so"
    path.write_bytes(path.read_bytes()[:5000])


def foreign(home: Path) -> None:
    path = home / "lib" / "libexecutorch_etdump.so"
    data = bytearray(path.read_bytes())
    data[18:20] = (183 if host_target().arch == "x86_64" else 62).to_bytes(2, "little")
    path.write_bytes(data)


def static(home: Path) -> None:
    for path in (home / "lib").iterdir():
        path.rename(path.with_suffix(".a"))


def early_xnnpack(home: Path) -> None:
    shutil.copy(home / "lib" / "libexecutorch_backend_xnnpack.so", home / "lib" / "libexecutorch_etdump.so")


def without_cpuinfo(home: Path) -> None:
    path = home / "lib" / "libexecutorch_threadpool.so"
    path.write_bytes(path.read_bytes().replace(b"cpuinfo_isa\0", b"cpuinfo_ISA\0"))


BROKEN: dict[str, tuple[Callable[[Path], object], tuple[str, ...]]] = {
    "missing": (
        incomplete,
        ("libexecutorch_etdump.so, libexecutorch_threadpool.so", "include/ lacks executorch/", "more"),
    ),
    "truncated": (truncate, ("lib/libexecutorch.so is truncated",)),
    "of another architecture": (foreign, ("lib/libexecutorch_etdump.so is for", "not for")),
    "static": (static, ("static build", "masked before XNNPACK", "loading the backend library after masking")),
    "XNNPACK too early": (early_xnnpack, ("libexecutorch_etdump.so brings XNNPACK", "before they are masked")),
    "without cpuinfo's table": (without_cpuinfo, ("no library exports cpuinfo_isa",)),
    "empty": (emptied, ("neither include nor lib",)),
    "gone": (shutil.rmtree, ("does not exist",)),
}


@pytest.mark.parametrize("what", BROKEN)
def test_a_broken_prefix_is_one_error_that_says_all_that_is_wrong_and_what_to_do(
    store: Path, tmp_path: Path, what: str
) -> None:
    home = prefix(tmp_path / "build")
    damage, expected = BROKEN[what]
    damage(home)
    with pytest.raises(InputError) as caught:
        built(home)
    assert all(part in caught.value.message for part in expected), caught.value.message
    assert caught.value.hint and str(home) in caught.value.message
    assert not (store / "sdk").exists() or not list((store / "sdk").iterdir()), "nothing of it is kept"


def test_a_prefix_of_another_machine_is_refused_for_this_one_and_the_other_way_round(
    store: Path, tmp_path: Path
) -> None:
    other = next(target for target in TARGETS.values() if target.arch != host_target().arch)
    with pytest.raises(InputError, match=f"is for {host_target().arch}, not for {other.arch}"):
        prefix_sdk(other, str(prefix(tmp_path / "build")))


def test_a_prefix_that_changes_while_it_is_copied_is_not_used(
    store: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    home = prefix(tmp_path / "build")
    real = files.copy_file

    def rebuild(source: Path, copy: Path) -> None:
        (home / "lib" / "libexecutorch_etdump.so").write_bytes(b"being written")
        real(source, copy)

    monkeypatch.setattr(files, "copy_file", rebuild)
    with pytest.raises(SetupError, match="changed while it was copied"):
        built(home)
    assert [path for path in (store / "sdk").iterdir() if not path.name.startswith(".")] == []


def test_the_installed_release_is_copied_and_not_fetched_unless_files_of_it_were_replaced(
    store: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    fetched = []

    def download(platform: str, version: str, _into: Path) -> Path:
        fetched.append((platform, version))
        raise SetupError("no network here", "")

    monkeypatch.setattr(sdks, "_download", download)
    here = installed_sdk()
    found = sdk_for(host_target(), here.version)
    assert fetched == [] and found.version == here.version and found.root.is_relative_to(store)
    library = "lib/libexecutorch_backend_xnnpack.so"
    assert (found.root / library).read_bytes() == (here.root / library).read_bytes()
    shutil.rmtree(store)
    monkeypatch.setattr(sdks, "_record_hash", lambda path: "another" if path.name == Path(library).name else "")
    with pytest.raises(SetupError, match="no network"):
        sdk_for(host_target(), here.version)
    assert fetched == [(host_target().pip_platform, here.version)]


def test_a_wheel_without_libraries_is_an_error_that_names_the_first_release_that_has_them(
    store: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sdks, "_download", lambda *_: Path())
    monkeypatch.setattr(sdks, "_unpack", lambda *_: None)
    with pytest.raises(SetupError, match=r"1\.4\.0 ships no C\+\+ libraries") as caught:
        sdk_for(host_target(), "1.4.0")
    assert "1.5.0" in caught.value.hint and "/" not in caught.value.message


def test_choices_are_releases_and_folders_each_once(tmp_path: Path) -> None:
    strange = tmp_path / "a,b c"
    strange.mkdir()
    assert split_choices(None) == []
    assert split_choices("1.5.0,1.5.1") == split_choices(["1.5.0", "1.5.1"]) == ["1.5.0", "1.5.1"]
    assert split_choices([str(strange), Path("x")]) == [str(strange), "x"], "a folder may have a comma in its name"
    for wrong in ("", ",", "1.5.0,", "1.5.0,1.5.0", ["a\0b"], list(map(str, range(MOST_CHOICES + 1)))):
        with pytest.raises(InputError) as caught:
            split_choices(wrong)
        assert caught.value.hint


@pytest.mark.parametrize(
    "choice", ["1.5.0; import os", "--index-url=x", "../1.5.0", "1.5.0 ", "-e .", "x" * 5000, "\x1b[31m", "\ud800"]
)
def test_what_is_no_release_never_reaches_pip(store: Path, choice: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sdks, "run_program", lambda *_: pytest.fail("pip was called"))
    with pytest.raises(KitError):
        sdk_for(host_target(), choice)


@pytest.mark.wide
def test_a_runner_that_is_built_against_a_prefix_uses_its_libraries(tmp_path: Path, runner: Path) -> None:
    """Also where the name of the prefix is one that a linker would take for something else."""
    home = prefix(tmp_path / "it's, $ORIGIN:a")
    build = build_runner(executorch=str(home))
    assert build.path != runner and build.sdk.content and build.sdk.given == str(home)
    assert str(home) not in str(build.path.read_bytes())
