"""Language models by phase: what is recognised, that a cache is right, and what is never mixed."""

from dataclasses import replace
from pathlib import Path

import msgspec
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from model_profiling.analysis.compare.metrics import Metrics
from model_profiling.analysis.run.dumps import analyse_dumps
from model_profiling.analysis.run.selection import choose
from model_profiling.analysis.timing.categories import load_table
from model_profiling.base.errors import InputError
from model_profiling.formats import etdump, pte
from model_profiling.formats.pte.sequence import SequenceProgram, TokenMethod
from model_profiling.pipeline.config import parse_config
from model_profiling.pipeline.config_types import Experiment
from model_profiling.pipeline.phase_experiments import Lengths, chosen_phases, sequence_of, token_plan
from model_profiling.platforms.process_platform import LocalPlatform
from model_profiling.store.run_directory import Phase
from tests.conftest import kit
from tests.helpers.bulk_dump import first_execution, write_dump
from tests.helpers.llm_programs import (
    CONTEXT,
    FORMS,
    VOCABULARY,
    answer,
    cosine,
    eager,
    request_of,
    stored,
    tokens,
    without_filling,
)

RIGHT = 0.9999


@pytest.fixture(scope="module")
def read(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("llm") / "tokens.npy"
    np.save(path, tokens())
    return path


@pytest.mark.parametrize("form", FORMS)
def test_answers_are_those_of_eager_at_every_depth(form: str, read: Path, tmp_path: Path) -> None:
    platform = LocalPlatform()
    phases = [Phase("prefill", 5), Phase("prefill", 60), Phase("prefill", 20, 30)]
    phases += [Phase("decode", 1), Phase("decode", 1, 1), Phase("decode", 7, 50), Phase("decode", 15, 80)]
    for phase in phases:
        ours = answer(platform, request_of(platform, stored(form), phase, read, tmp_path))
        assert cosine(ours, eager(phase.last)) > RIGHT, phase.label


@pytest.mark.parametrize("form", ["custom", "two_methods"])
def test_perplexity_is_that_of_the_eager_model(form: str, read: Path, tmp_path: Path) -> None:
    platform, ids, count = LocalPlatform(), tokens(), 40
    request = request_of(platform, stored(form), Phase("decode", 1), read, tmp_path)
    done = platform.open(replace(request, once=True, score=count, output_base=None)).finish()
    logits = np.stack([eager(index) for index in range(count - 1)]).astype(np.float64)
    odds = logits - np.log(np.exp(logits).sum(axis=1, keepdims=True))
    assert done.scored == count - 1
    assert done.surprise == pytest.approx(-odds[np.arange(count - 1), ids[1:count]].sum(), rel=1e-4)


@pytest.mark.parametrize("form", ["custom", "two_methods"])
def test_a_wrong_cache_is_found(form: str, read: Path, tmp_path: Path) -> None:
    platform, phase = LocalPlatform(), Phase("decode", 4, 60)
    request = without_filling(request_of(platform, stored(form), phase, read, tmp_path))
    assert cosine(answer(platform, request), eager(phase.last)) < RIGHT


def test_the_forms_of_a_language_model_are_recognised() -> None:
    one, two = sequence_of(stored("custom")), sequence_of(stored("two_methods"))
    assert one is not None and two is not None
    assert (one.prefill, one.decode) == (TokenMethod("forward", 95, True),) * 2
    assert two.prefill == TokenMethod("prefill_forward", 95, True) and two.decode == TokenMethod(
        "decode_forward", 1, False
    )
    # Keys and values of two layers, 96 positions, 2 heads of 8.
    assert one.cache_bytes == two.cache_bytes == 2 * 2 * 96 * 2 * 8 * 4
    for form in FORMS:
        found = sequence_of(stored(form))
        assert found is not None and (found.vocabulary, found.context) == (VOCABULARY, CONTEXT)


def test_what_keeps_nothing_is_no_language_model() -> None:
    ids, where = pte.TensorSpec("int64", (1, 16), True), pte.TensorSpec("int64", (1,), False)
    logits = pte.TensorSpec("float32", (1, 100), False)
    steps = (pte.Instruction(0, 0, "KernelCall", "aten::embedding.out", None, (0, 2)),)
    values = (ids, where, logits)
    method = pte.Method("forward", steps, (), (ids, where), (logits,), values, (0, 1), (2,))
    from model_profiling.formats.pte.sequence import sequence_program

    assert sequence_program(pte.Program(Path("x.pte"), 0, (method,))) is None
    kept = pte.Instruction(0, 1, "KernelCall", "aten::copy_", None, (2, 2))
    stateful = pte.Method("forward", (*steps, kept), (), (ids, where), (logits,), values, (0, 1), (2,))
    assert sequence_program(pte.Program(Path("x.pte"), 0, (stateful,))) is not None


@given(st.integers(1, 300), st.integers(1, 400), st.booleans(), st.booleans())
def test_a_cache_is_filled_to_the_last_token(count: int, most: int, dynamic: bool, two: bool) -> None:
    many = TokenMethod("many", most, dynamic) if most > 1 else None
    one = TokenMethod("one", 1, False) if two or many is None else many if dynamic else None
    sequence = SequenceProgram(many, one, 100, None, 1)
    fill = sequence.fill(count)
    read = sum(size * times for _, size, times in fill)
    assert read >= count or (one is None and many is not None and not many.dynamic)
    readers = {reader.method: reader for reader in (many, one) if reader is not None}
    assert all(readers[method].takes(size) for method, size, _ in fill)
    if one is not None:
        assert read == count


def test_what_a_program_cannot_read_is_said() -> None:
    static = SequenceProgram(TokenMethod("p", 64, False), TokenMethod("d", 1, False), 100, 96, 1)
    assert [phase.label for phase in chosen_phases(static, Lengths())] == ["pp64", "tg32@d64"]
    with pytest.raises(InputError, match="exactly 64 tokens at once, not 128"):
        chosen_phases(static, Lengths(prefill=128))
    with pytest.raises(InputError, match="needs 132 positions, and this program has 96"):
        chosen_phases(static, Lengths(depths=(100,)))
    single = SequenceProgram(None, TokenMethod("d", 1, False), 100, None, 1)
    assert [phase.label for phase in chosen_phases(single, Lengths())] == ["tg32@d128"]
    with pytest.raises(InputError, match="it has no prefill"):
        chosen_phases(single, Lengths(prefill=8))


def test_a_cache_that_cannot_be_filled_is_not_taken_for_full() -> None:
    static = SequenceProgram(TokenMethod("p", 64, False), None, 100, 96, 1)
    with pytest.raises(InputError, match="needs 70 tokens in the cache"):
        token_plan(static, Experiment("x", phase=Phase("prefill", 64, 70)), Path("tokens.npy"))


def test_one_command_runs_and_reports_every_phase(tmp_path: Path) -> None:
    model, out = stored("custom"), tmp_path / "out"
    flags = ["--prefill", "40", "--decode", "8", "--depth", "0,64", "--runs", "6", "--launches", "2", "--verbose"]
    done = kit("run", model, "--output-root", out, *flags, "--startup-launches", "0")
    assert done.returncode == 0, done.stderr
    assert "tokens/s" in done.stdout and "tg8@d64" in done.stdout
    metrics = msgspec.json.decode((out / "metrics.json").read_bytes(), type=Metrics)
    found = {name: each.phase for name, each in metrics.experiments.items()}
    assert {phase.label for phase in found.values() if phase is not None} == {"pp40", "tg8", "tg8@d64"}
    for name, phase in found.items():
        assert phase is not None
        latency = metrics.experiments[name].latency
        assert latency is not None
        if phase.kind == "prefill":
            assert phase.ttft_ms == latency.median_ms
            assert phase.prefill_token_per_sec == pytest.approx(40_000 / latency.median_ms)
        else:
            assert phase.decode_token_per_sec == pytest.approx(1000 / latency.median_ms)
            assert phase.tpot_p95_ms == latency.p95_ms
    # Experiments of two phases are never a pair.
    for pair in metrics.comparisons:
        before, after = found[pair.before], found[pair.after]
        assert before is not None and after is not None and before.label == after.label
    sides = [f"{out}:{next(name for name in found if word in name)}" for word in ("pp40", "tg8")]
    other = kit("compare", *sides)
    assert other.returncode == 2 and "different phases" in other.stderr


def test_a_dump_of_both_phases_shows_them_apart(read: Path, tmp_path: Path) -> None:
    """The operators of a real program, with times as they would be: those of a prefill ten times as long."""
    dumps = [_dump(phase, read, tmp_path) for phase in (Phase("prefill", 90), Phase("decode", 6, 4))]
    for dump, ns in zip(dumps, (20_000, 2_000), strict=True):
        write_dump(dump, [[call.restated(lambda *_: ns) for call in first_execution(dump)]], 5)  # noqa: B023
    both = tmp_path / "both.etdump"
    both.write_bytes(etdump.merged(dumps))
    found = analyse_dumps([both], load_table()).summary.experiments
    executions = [each.breakdown.executions for each in found.values()]
    assert executions == [5, 5]
    assert all("shown apart" in " ".join(each.notes) for each in found.values())
    with pytest.raises(InputError, match="several methods or sizes"):
        choose(str(both))
    alone = analyse_dumps([dumps[1]], load_table()).summary.experiments
    assert sum(each.breakdown.executions for each in alone.values()) == 5


def _dump(phase: Phase, read: Path, home: Path) -> Path:
    platform = LocalPlatform()
    path = home / f"{phase.in_names}.etdump"
    session = platform.open(replace(request_of(platform, stored("custom"), phase, read, home), etdump=path))
    session.run(5)
    session.finish()
    return path


def test_a_config_never_compares_two_phases() -> None:
    raw = {
        "model": str(stored("custom")),
        "output_root": "out",
        "experiments": [
            {"name": "a", "phase": {"kind": "prefill", "tokens": 8}},
            {"name": "b", "phase": {"kind": "decode", "tokens": 8}},
        ],
        "analysis": {"compare_pairs": [["a", "b"]]},
    }
    with pytest.raises(InputError, match="different phases"):
        parse_config(raw, "x")


def test_an_input_may_be_smaller_than_a_dynamic_bound_and_no_larger(tmp_path: Path) -> None:
    files = [tmp_path / "ids.npy", tmp_path / "at.npy"]
    np.save(files[1], np.zeros(1, np.int64))
    for count, code in ((9, 0), (96, 2)):
        np.save(files[0], np.ones((1, count), np.int64))
        flags = ["--inputs", *files, "--runs", "2", "--launches", "1", "--startup-launches", "0"]
        done = kit("run", stored("custom"), "--output-root", tmp_path / str(count), *flags)
        assert done.returncode == code, done.stderr
    assert "int64[1, 95] or smaller" in done.stderr


def test_tokens_are_checked(tmp_path: Path) -> None:
    for held, said in ((np.full(96, VOCABULARY), "the program knows 0 to 63"), (np.zeros(3, np.int64), "3 tokens")):
        np.save(tmp_path / "t.npy", held)
        done = kit("run", stored("custom"), "--output-root", tmp_path / "o", "--tokens", tmp_path / "t.npy")
        assert done.returncode == 2 and said in done.stderr
    done = kit("run", stored("custom"), "--output-root", tmp_path / "o", "--prefill", "-1")
    assert done.returncode == 2 and "--prefill must be 0 to" in done.stderr
