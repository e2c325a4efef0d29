"""`sme2-kit clean` lists and deletes what is the kit's own, and nothing else."""

from pathlib import Path

import pytest

from tests.helpers.kit_here import kit_here


@pytest.fixture
def place(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder with results, other things called out_*, and a cache directory that is not the kit's alone."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("SME2_KIT_CACHE", str(tmp_path / "cache"))
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))
    for name in (
        *("cache/runner/0/runner", "cache/android/serial/settings.json", "cache/of_another_program/file"),
        *("out_net/runs/linux/derived.json", "out_other/holiday.txt", "elsewhere/runs/derived.json"),
        "out_web/manifest.json",
        *("elsewhere/sdk/file", "net.pte", "state/sme2-kit/key"),
    ):
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_text("x" * 100)
    (tmp_path / "out_linked").symlink_to("elsewhere")
    (tmp_path / "cache" / "sdk").symlink_to(tmp_path / "elsewhere" / "sdk")
    (tmp_path / "out_net" / "linked").symlink_to(tmp_path / "elsewhere")
    return tmp_path


def files(place: Path) -> set[str]:
    return {str(path.relative_to(place)) for path in place.rglob("*") if path.is_file() and not path.is_symlink()}


def test_it_lists_and_deletes_nothing_without_yes(place: Path) -> None:
    before = files(place)
    shown = kit_here("clean").stdout
    assert "cache/runner" in shown and "state/sme2-kit" in shown and "out_net" not in shown
    shown = kit_here("clean", "--outputs").stdout
    assert "out_net" in shown and "sme2-kit clean --outputs --yes" in shown
    for name in ("out_other", "out_web", "out_linked", "elsewhere", "of_another_program", "cache/sdk", "cache/android"):
        assert name not in shown
    assert files(place) == before


@pytest.mark.parametrize("flags", [[], ["--outputs"]])
def test_yes_deletes_what_is_listed_and_follows_no_link(flags: list[str], place: Path) -> None:
    before = files(place)
    assert kit_here("clean", *flags, "--yes").returncode == 0
    gone = {"cache/runner/0/runner", "state/sme2-kit/key"}
    gone |= {"out_net/runs/linux/derived.json"} if flags else set()
    assert before - files(place) == gone
    assert (place / "out_linked").is_symlink() and (place / "cache" / "sdk").is_symlink()


def test_the_environment_is_named_and_left_alone(place: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    environment = place / ".venv"
    environment.mkdir()
    (environment / "large").write_bytes(bytes(3 << 20))
    monkeypatch.setattr("sys.prefix", str(environment))
    assert "not touched: .venv, 3.00 MiB" in kit_here("clean", "--outputs", "--yes").stdout
    assert (environment / "large").is_file()
