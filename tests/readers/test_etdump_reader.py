"""The reader against ExecuTorch's own: real dumps, every column, and Inspector's medians."""

import subprocess
from collections.abc import Callable
from pathlib import Path
from typing import Any

import msgspec
import numpy as np
import pytest

from model_profiling.base.errors import InputError
from model_profiling.formats.etdump import Etdump, EtdumpError, merged, nest, parse, read
from tests.helpers.etdump_forge import Dump

pytestmark = pytest.mark.fast

DATA = Path(__file__).parents[1] / "data" / "etdump"
DUMPS = sorted(DATA.glob("*.etdump"))
MODELS = [DATA / f"cnn_{dtype}.etdump" for dtype in ("fp32", "fp16", "int8")]


def texts(dump: Etdump, codes: Any) -> list[str]:
    return [dump.strings[code] for code in codes]


@pytest.mark.parametrize("path", DUMPS, ids=lambda path: path.stem)
def test_every_column_is_what_flatc_reads(path: Path) -> None:
    pytest.importorskip("torch")
    serialize = pytest.importorskip("executorch.devtools.etdump.serialize")
    runs = serialize.deserialize_from_etdump_flatcc(path.read_bytes()).run_data
    expected = []
    for block, run in enumerate(runs):
        for event in filter(None, (each.profile_event for each in run.events)):
            number, text = event.delegate_debug_id_int, event.delegate_debug_id_str or ""
            places = (event.chain_index, event.instruction_id, event.start_time, event.end_time)
            expected.append((block, event.name or "", text if number == -1 else str(number), *places))
    dump = read(path)
    events = dump.events
    numbers = (events.chain, events.instruction, events.start, events.end)
    columns = (
        events.block.tolist(),
        texts(dump, events.name),
        texts(dump, events.delegate),
        *(n.tolist() for n in numbers),
    )
    assert list(zip(*columns, strict=True)) == expected


@pytest.mark.parametrize("path", MODELS, ids=lambda path: path.stem)
def test_medians_are_inspectors_to_the_last_printed_digit(path: Path) -> None:
    devtools = pytest.importorskip("executorch.devtools")
    dump = read(path)
    events = dump.events
    label, duration = np.array(texts(dump, events.label)), events.duration / 1e6
    seen = 0
    for block in devtools.Inspector(etdump_path=str(path)).event_blocks:
        for event in block.events:
            same = (label == event.name) & (events.instruction == event._instruction_id)
            assert same.sum() == len(event.perf_data.raw)
            assert f"{np.median(duration[same]):.6g}" == f"{event.perf_data.p50:.6g}"
            seen += int(same.sum())
    assert seen == len(events)


def test_each_event_belongs_to_its_execution_and_its_call() -> None:
    dump = read(DATA / "two_methods.etdump")
    nesting = nest(dump)
    assert len(nesting) == 4
    labels = texts(dump, dump.events.label)
    execution = nesting.execution.tolist()
    assert [labels[i] for i in range(len(labels)) if execution[i] == 1] == [
        "Fully Connected (NC, F32) GEMM #1",
        "Softmax (NC, F32) #1",
        "DELEGATE_CALL",
        "Method::execute",
    ]
    assert {labels[i] for i in range(len(labels)) if execution[i] == -1} == {"Method::init", "Program::load_method"}
    around = {labels[i]: labels[call] if call >= 0 else None for i, call in enumerate(nesting.call.tolist())}
    assert around["Softmax (NC, F32) #1"] == "DELEGATE_CALL"
    assert around["native_call_mean.out"] == "OPERATOR_CALL"
    assert around["DELEGATE_CALL"] is around["Method::execute"] is around["Method::init"] is None


@pytest.mark.parametrize("path", DUMPS, ids=lambda path: path.stem)
def test_children_end_inside_their_execution(path: Path) -> None:
    dump = read(path)
    events, nesting = dump.events, nest(dump)
    inside = np.flatnonzero(nesting.execution >= 0)
    around = nesting.executions[nesting.execution[inside]]
    assert np.all(events.start[inside] >= events.start[around])
    assert np.all(events.end[inside] <= events.end[around])


def test_an_integer_identifier_is_shown_as_text() -> None:
    dump = read(DATA / "allocations.etdump")
    assert dump.strings[dump.events.label[0]] == "7"
    assert bool(dump.events.delegated[0])


@pytest.mark.parametrize("path", DUMPS, ids=lambda path: path.stem)
def test_a_size_prefix_makes_no_difference(path: Path) -> None:
    prefixed = read(path)
    plain = parse(path.read_bytes()[4:], path)
    assert plain.strings == prefixed.strings
    for name, column in msgspec.structs.asdict(plain.events).items():
        assert np.array_equal(column, getattr(prefixed.events, name)), name


def test_a_dump_longer_than_one_slice_reads_the_same(monkeypatch: pytest.MonkeyPatch) -> None:
    whole = read(DATA / "debug_events.etdump")
    monkeypatch.setattr("model_profiling.formats.etdump._SLICE", 7)
    sliced = read(DATA / "debug_events.etdump")
    assert texts(sliced, sliced.events.label) == texts(whole, whole.events.label)
    for name in ("block", "chain", "instruction", "start"):
        assert np.array_equal(getattr(sliced.events, name), getattr(whole.events, name))


def forged(names: list[bytes]) -> Etdump:
    """Read a dump of one run whose events have these names."""
    dump = Dump(runs=1)
    entries = dump.events(dump.run(0), len(names))
    for index, name in enumerate(names):
        profile = dump.event(entries + 4 * index, start=index, end=2 * index)
        dump.name(profile, dump.string(name))
    return parse(dump.bytes(), Path("forged.etdump"))


def test_names_that_differ_anywhere_stay_apart() -> None:
    names = [b"a", b"a\0", b"a\0\0\0", b"", b"abc", b"abcd", b"abcde", "ümläut ☃".encode()]
    names += [b"x" * 300, b"x" * 299 + b"y", b"y" + b"x" * 299, b"x" * 255, b"x" * 256]
    names += [b"%d" % number for number in range(5000)] + [
        b"longer operator name %d" % number for number in range(5000)
    ]
    dump = forged(names + names)
    assert texts(dump, dump.events.name) == [name.decode() for name in names + names]
    assert len(dump.strings) == len(set(names))
    assert dump.events.duration.tolist() == list(range(2 * len(names)))


def test_a_name_that_is_not_utf8_is_shown_with_replacements() -> None:
    assert forged([b"caf\xe9"]).strings == ["", "caf\ufffd"]


@pytest.mark.parametrize(
    ("content", "problem"),
    [
        (b"", "empty"),
        (b"PK\x03\x04 this is a zip, or something", "no ED00"),
        (b"ED00", "no ED00"),
        (MODELS[0].read_bytes()[:-1], "cut short"),
        (MODELS[0].read_bytes()[:1000], "cut short"),
        (MODELS[0].read_bytes()[4:1000], "past the end"),
        (Dump(runs=0).bytes(), "no runs"),
    ],
    ids=["empty", "foreign", "tiny", "one byte short", "short", "plain and short", "no runs"],
)
def test_a_file_that_cannot_be_read_says_why(tmp_path: Path, content: bytes, problem: str) -> None:
    path = tmp_path / "broken.etdump"
    path.write_bytes(content)
    with pytest.raises(EtdumpError, match=problem) as caught:
        read(path)
    assert isinstance(caught.value, InputError)
    assert str(path) in caught.value.message
    assert caught.value.hint


def test_a_path_that_is_no_file_says_so(tmp_path: Path) -> None:
    with pytest.raises(EtdumpError, match="it does not exist"):
        read(tmp_path / "absent.etdump")
    with pytest.raises(EtdumpError, match="it is a directory, not a file"):
        read(tmp_path)


def test_the_dumps_of_several_launches_make_one_that_holds_them_all(
    tmp_path: Path, runner: Path, toy: Callable[[str], Path]
) -> None:
    """One file an experiment, which Inspector reads too: every execution of every launch, in order."""
    from executorch.devtools import Inspector

    dumps = []
    for launch, executions in enumerate((2, 1, 3)):
        dumps.append(tmp_path / f"{launch}.etdump")
        flags = [f"--model_path={toy('fp16')}", f"--num_executions={executions}", f"--etdump_path={dumps[-1]}"]
        subprocess.run([str(runner), *flags], check=True, capture_output=True)
    together = tmp_path / "all.etdump"
    together.write_bytes(merged(dumps))
    parts, whole = [read(path) for path in dumps], read(together)
    assert whole.events.duration.tolist() == [int(ns) for part in parts for ns in part.events.duration]
    labels = [part.strings[label] for part in parts for label in part.events.label]
    assert [whole.strings[label] for label in whole.events.label] == labels
    blocks = [block for block in Inspector(etdump_path=str(together)).event_blocks if block.name == "Execute"]
    (execute,) = [event for event in blocks[0].events if event.name == "Method::execute"]
    ours = whole.events.duration[nest(whole).executions] / 1e6
    assert execute.perf_data.raw == pytest.approx(ours.tolist())
