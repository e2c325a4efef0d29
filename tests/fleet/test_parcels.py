"""What a machine of a cluster sends is read or refused, whatever it is; nothing of it lands elsewhere."""

import functools
import io
import os
import pickle
import shutil
import tempfile
import zipfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from model_profiling.base import files
from model_profiling.base.errors import KitError, RunError
from model_profiling.fleet.sweep import ray_executor
from model_profiling.fleet.sweep.jobs import Jobs, SweepFolder
from model_profiling.fleet.sweep.ray_executor import REFUSED, LostError
from model_profiling.fleet.sweep.sweep import adopt_export, adopt_run
from model_profiling.fleet.sweep.sweep_file import cells, parse
from model_profiling.fleet.sweep.task import Task, TaskResult, pack, perform, read_result, unpack
from model_profiling.store.run_directory import Manifest, RunDirectory
from tests.conftest import ROOT

pytestmark = pytest.mark.filterwarnings("ignore:Duplicate name")
KNOWN_GOOD = ROOT / "tests" / "data" / "known_good_run"
SEEDS = ROOT / "tests" / "data" / "fuzz_seeds"


def zipped(*members: tuple[str, bytes], size: int | None = None) -> bytes:
    """A zip as a hostile machine writes it, whose directory says that each file has another size."""
    buffer = io.BytesIO()
    with zipfile.ZipFile(buffer, "w", zipfile.ZIP_DEFLATED) as whole:
        for name, content in members:
            info = zipfile.ZipInfo(name)
            whole.writestr(info, content, zipfile.ZIP_DEFLATED)
            info.file_size = info.file_size if size is None else size
    return buffer.getvalue()


def written(home: Path) -> set[str]:
    return {path.relative_to(home).as_posix() for path in home.rglob("*") if not path.is_dir()}


@contextmanager
def place() -> Iterator[Path]:
    """A folder for one example; pytest's is for all of a test."""
    with tempfile.TemporaryDirectory() as home:
        yield Path(home)


NAMES = st.text("aA0.-_~ :*é漢😀", min_size=1, max_size=50).filter(lambda name: name not in (".", ".."))


@given(st.dictionaries(NAMES, st.binary(max_size=300), max_size=5), st.booleans())
def test_what_is_packed_is_unpacked(contents: dict[str, bytes], deep: bool) -> None:
    with place() as home:
        source = home / "source"
        (source / "of" / "it").mkdir(parents=True)
        for name, content in contents.items():
            (source / ("of/it" if deep else ".") / name).write_bytes(content)
            os.utime(source / ("of/it" if deep else ".") / name, (0, 0))
        unpack(pack(source), home / "there")
        assert written(source) == written(home / "there")
        assert all((home / "there" / name).read_bytes() == (source / name).read_bytes() for name in written(source))


REAL = pack(SEEDS, ["export_meta.json", "output.npy"])
PARTS = st.sampled_from(["", ".", "..", "a", "b", "/", "\\", "~", "\0", "\n", "x" * 300, "CON", "\u202e", "é"])
HOSTILE = st.lists(st.tuples(st.lists(PARTS, max_size=20).map("/".join), st.binary(max_size=20)), max_size=4)


@st.composite
def damaged(draw: st.DrawFn, real: bytes) -> bytes:
    """Bytes that are torn or changed in some places."""
    data = bytearray(real[: draw(st.integers(0, len(real)))] if draw(st.booleans()) else real)
    for _ in range(draw(st.integers(1, 4))):
        at = draw(st.integers(0, len(data)))
        data[at : at + draw(st.integers(0, 3))] = draw(st.binary(max_size=3))
    return bytes(data)


@given(st.binary(max_size=400) | HOSTILE.map(lambda members: zipped(*members)) | damaged(REAL))
def test_whatever_was_sent_is_unpacked_where_it_belongs_or_refused(data: bytes) -> None:
    with place() as home:
        try:
            unpack(data, home / "in" / "it")
        except RunError as error:
            assert error.message and error.hint and len(error.message) < 500
            assert not (home / "in" / "it").exists()
        assert all(name.startswith("in/it/") for name in written(home))
        assert not any(path.is_symlink() for path in home.rglob("*"))


def test_what_reaches_outside_or_is_too_large_is_refused_before_anything_is_written(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("model_profiling.fleet.sweep.task._MOST_FILES", 5)
    victim = str(tmp_path / "victim")
    names = [victim, "a/../../victim", "a/..", ".", "", "a//b", "a\\..\\victim", "a\x1b[2Jb", "/".join("a" * 17)]
    wrong = {name: zipped((name, b"evil")) for name in (*names, "a" * 300, "a" * 1001)} | {
        "twice": zipped(("a", b"1"), ("a", b"2")),
        "file and folder": zipped(("a", b"1"), ("a/b", b"2")),
        "folder and file": zipped(("a/b", b"1"), ("a", b"2")),
        "says too little": zipped(("a", b"x" * 100_000), size=10),
        "a bomb": zipped(("a", b"\0" * (64 << 20)), size=1),
        "together too large": zipped(*((str(n), b"") for n in range(3)), size=8 << 30),
        "too many": zipped(*((str(n), b"") for n in range(6))),
        "torn": zipped(("a", b"evil"))[:-3],
        "nothing": b"",
        "a pickle": pickle.dumps(Path(victim)),
    }
    for name, data in wrong.items():
        with pytest.raises(RunError) as caught:
            unpack(data, tmp_path / "home")
        assert caught.value.message.startswith("files on their way through the cluster are refused"), name
        assert not list(tmp_path.iterdir()), name


def test_what_cannot_be_sent_is_said_where_it_is_packed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "home" / ".hidden").mkdir(parents=True)
    for name in ("a", ".stamp", ".hidden/b"):
        (tmp_path / "home" / name).write_bytes(bytes(range(256)) * 10)
    (tmp_path / "home" / "link").symlink_to("/etc/passwd")
    unpack(pack(tmp_path / "home"), tmp_path / "there")
    assert written(tmp_path / "there") == {"a", ".stamp"}
    monkeypatch.setattr("model_profiling.fleet.sweep.task.LARGEST", 200)
    with pytest.raises(RunError, match="which a cluster does not carry"):
        pack(tmp_path / "home")
    (tmp_path / "home" / "a\nb").touch()
    with pytest.raises(RunError, match="refused"):
        pack(tmp_path / "home")


# What a node answers

ANYTHING = st.recursive(
    st.none() | st.booleans() | st.integers(-(2**63), 2**64 - 1) | st.floats() | st.text() | st.binary(),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text() | st.integers(0, 9), inner, max_size=3),
    max_leaves=8,
)
ANSWERS = ANYTHING | st.fixed_dictionaries(
    {"node": ANYTHING | st.text()},
    optional={name: ANYTHING | st.text() | st.floats() for name in (*TaskResult.__struct_fields__[1:], "more")},
)
ANSWER = msgspec.msgpack.encode(TaskResult("node", 1.5, "no", "do", memoryview(b"parcel"), "a log\n" * 9, 1.0, 2.0))


@given(st.binary(max_size=300) | ANSWERS.map(msgspec.msgpack.encode) | damaged(ANSWER))
def test_whatever_a_node_answers_is_a_result_or_refused(data: bytes) -> None:
    try:
        result = read_result(data)
    except RunError as error:
        assert error.message and error.hint and len(error.message) < 2500 and error.message.isprintable()
    else:
        assert all(text.isprintable() for text in (result.node, result.failure, result.hint))
        assert result.log.replace("\n", "").replace("\t", "").isprintable()
        assert 0 <= result.seconds <= 1e11 and 0 <= result.began <= 1e11 and 0 <= result.ended <= 1e11


def test_whatever_goes_wrong_in_a_task_is_an_answer(monkeypatch: pytest.MonkeyPatch) -> None:
    task = Task("run a", ["run"], "run", None)
    other = msgspec.msgpack.encode(msgspec.structs.replace(task, kit_version=""))
    for wrong in (b"", b"\xff", pickle.dumps(task), other):
        assert read_result(perform(wrong, b"")).failure
    assert "refused" in read_result(perform(msgspec.msgpack.encode(task), b"no parcel")).failure
    for error in (OSError("\ud800 lone"), KeyError("x"), RecursionError(), RunError("\ud800", "\x1b")):

        def fail(*_: Any, error: Exception = error) -> None:
            raise error

        monkeypatch.setattr("model_profiling.fleet.sweep.task._performed", fail)
        answer = read_result(perform(msgspec.msgpack.encode(task), b""))
        assert answer.failure and not bytes(answer.parcel)


def test_text_of_a_node_is_bounded_and_controls_no_terminal() -> None:
    evil = "\x1b]0;title\x07\x1b[2J\r\u202e\u2028bad\n" * 100_000
    result = read_result(msgspec.msgpack.encode(TaskResult(evil, 1.0, evil, evil, log=evil)))
    assert len(result.node) == 100 and len(result.failure) == len(result.hint) == 2000 and len(result.log) == 100_000
    for text in (result.node, result.failure, result.hint, result.log.replace("\n", "")):
        assert text.isprintable()
    assert "bad\n" in result.log


class RayError(Exception):
    pass


class RayTaskError(RayError):
    pass


@pytest.mark.parametrize(
    ("answer", "said"),
    [
        (b"1234", "1234"),
        (b"12345", "more than any result has"),
        ({"node": "x"}, "no result of the kit"),
        (RayTaskError("Traceback\nModuleNotFoundError: \x1b[2J no kit"), "could not begin: ModuleNotFoundError"),
        (RayError("gone"), "RayError"),
    ],
)
def test_what_ray_has_of_a_task_is_its_bytes_or_an_error(
    answer: Any, said: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    def get(ref: None, timeout: float) -> Any:
        if isinstance(answer, Exception):
            raise answer
        return answer

    ray = SimpleNamespace(get=get, exceptions=SimpleNamespace(RayError=RayError, RayTaskError=RayTaskError))
    monkeypatch.setattr(ray_executor, "_MOST_BYTES", 4)
    try:
        found = ray_executor.fetch(ray, None, 1.0).decode()
    except (RunError, LostError) as error:
        assert isinstance(error, LostError) == (said == "RayError")
        found = str(error)
    assert said in found and found.isprintable()


# Before it is kept


PROGRAM = SEEDS / "tiny_xnnpack_fp32.pte"
ON = "linux_fp16arith_on"


@pytest.fixture
def jobs(tmp_path: Path) -> Jobs:
    asked = parse({"models": [str(PROGRAM)], "reports": False}, "here")
    return Jobs(asked, cells(asked, "here"), SweepFolder(tmp_path / "out"))


def sent(incoming: Path) -> Path:
    """A run of the program as a node sends it."""
    shutil.copytree(KNOWN_GOOD, incoming)
    change(incoming, "manifest.json", RunDirectory(incoming).manifest().model.sha256, files.sha256(PROGRAM))
    return incoming


def change(incoming: Path, name: str, before: str, after: str) -> None:
    text = (incoming / name).read_text()
    assert before in text
    (incoming / name).write_text(text.replace(before, after))


def renamed(incoming: Path, experiment: str) -> None:
    """As if an experiment had been called so from the start."""
    (incoming / ON).rename(incoming / experiment)
    for path in list((incoming / experiment).iterdir()):
        path.rename(path.with_name(path.name.replace(ON, experiment)))
    for name in ("manifest.json", "metrics.json"):
        change(incoming, name, ON, experiment)


def samples_of(incoming: Path, text: str) -> None:
    """Samples with another content, which the manifest lists as it is."""
    (path,) = (incoming / ON).glob("*_samples.json")
    before = files.sha256(path)
    path.write_text(text)
    change(incoming, "manifest.json", before, files.sha256(path))


def test_a_run_that_was_sent_is_kept_if_it_is_valid_and_changes_nothing_if_not(jobs: Jobs, tmp_path: Path) -> None:
    (job,) = jobs.all
    assert job.cell is not None
    root = jobs.folder.run(job.cell)
    noted: list[Manifest] = []

    def adopt(incoming: Path) -> None:
        adopt_run(job, incoming, root, PROGRAM, noted.append)

    adopt(sent(tmp_path / "first"))
    adopt(sent(tmp_path / "second"))
    assert len(noted) == 2 and len(list((root / "earlier").iterdir())) == 1

    def state() -> dict[str, bytes]:
        return {name: (root / name).read_bytes() for name in written(root)}

    before = state()
    hostile: dict[str, Callable[[Path], Any]] = {
        **{
            name: functools.partial(renamed, experiment=name)
            for name in ("earlier", "failed", "programs", "report_charts", "metrics.html", ".partial", "-", " ", "é")
        },
        "above": lambda home: change(home, "manifest.json", f'"{ON}"', '"../../x"'),
        "named otherwise": lambda home: change(home, "manifest.json", f'"name": "{ON}"', '"name": "other"'),
        "of another program": lambda home: change(home, "manifest.json", files.sha256(PROGRAM), "0" * 64),
        "a file of it changed": lambda home: next((home / ON).glob("*.etdump")).write_bytes(b"changed"),
        "a file of it missing": lambda home: next((home / ON).glob("*.etdump")).unlink(),
        "a folder of it missing": lambda home: shutil.rmtree(home / ON),
        "a file of another place": lambda home: change(home, "manifest.json", f"{ON}_t1.log", "../../../../etc/passwd"),
        "no samples": lambda home: samples_of(home, "{}"),
        "impossible samples": lambda home: samples_of(home, '{"kind": "samples", "timed": [], "traced": []}'),
        "no manifest": lambda home: (home / "manifest.json").write_bytes(b"\x80"),
        "a manifest without an end": lambda home: (home / "manifest.json").write_bytes(b"[" * 100_000),
        "nothing": shutil.rmtree,
    }
    for name, damage in hostile.items():
        incoming = sent(tmp_path / "sent")
        damage(incoming)
        with pytest.raises(KitError) as caught:
            adopt(incoming)
        assert caught.value.message.startswith(f"{job.name}: "), name
        assert len(noted) == 2 and state() == before, name
        shutil.rmtree(incoming, ignore_errors=True)


def test_an_export_that_was_sent_replaces_the_one_that_is_there_only_if_it_is_what_was_asked_for(
    tmp_path: Path,
) -> None:
    asked = parse({"models": ["toy_cnn"], "reports": False}, "here")
    jobs = Jobs(asked, cells(asked, "here"), SweepFolder(tmp_path / "out"))
    request = jobs.request(jobs.all[0].variant)
    request.outdir.mkdir(parents=True)
    (request.outdir / "mine").touch()
    for content in (b"", b"{}", b"\xff", b"[" * 100_000):
        incoming = tmp_path / "incoming"
        incoming.mkdir()
        for name in (".toy_cnn_xnnpack_fp16.stamp.json", "export_meta.json", "toy_cnn_xnnpack_fp16.pte"):
            (incoming / name).write_bytes(content)
        with pytest.raises(RunError, match="no complete export"):
            adopt_export(request, incoming)
        assert written(request.outdir) == {"mine"}
        shutil.rmtree(incoming)


# The token


@pytest.mark.parametrize(
    ("mode", "said"), [(0o600, False), (0o400, False), (0o640, True), (0o644, True), (0o602, True)]
)
def test_a_token_that_others_can_read_is_said(
    mode: int, said: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    class Ray:
        @staticmethod
        def get_runtime_context() -> Any:
            return type("Context", (), {"gcs_address": "127.0.0.1:1"})

    token = tmp_path / ".ray" / "auth_token"
    token.parent.mkdir()
    token.write_text("secret")
    token.chmod(mode)
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.delenv("RAY_AUTH_TOKEN", raising=False)
    monkeypatch.delenv("RAY_AUTH_TOKEN_PATH", raising=False)
    monkeypatch.setattr(ray_executor, "_as_stranger", lambda _: REFUSED)
    notes = ray_executor.token_notes(Ray)
    assert len(notes) == said and all(f"chmod 600 {token}" in note and "secret" not in note for note in notes)
    monkeypatch.setenv("RAY_AUTH_TOKEN_PATH", str(tmp_path / "other"))
    assert not ray_executor.token_notes(Ray)
    (tmp_path / "other").write_text("secret")
    (tmp_path / "other").chmod(mode)
    assert len(ray_executor.token_notes(Ray)) == said
    monkeypatch.setenv("RAY_AUTH_TOKEN", "secret")
    assert not ray_executor.token_notes(Ray)
    for code, words in ((0, "accepts connections without a token"), (1, "is not known"), (-9, "is not known")):
        monkeypatch.setattr(ray_executor, "_as_stranger", lambda _, code=code: code)
        (note,) = ray_executor.token_notes(Ray)
        assert words in note and "RAY_AUTH_MODE=token" in note
