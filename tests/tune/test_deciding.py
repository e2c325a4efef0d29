"""Which variant is kept: told apart by more turns, and the most accurate of those that cannot be; each step's gain."""

import random

import pytest

from model_profiling.analysis.timing.latency import Comparison
from model_profiling.cli.tune import following
from model_profiling.store.run_directory import Turn
from model_profiling.tune.tune_report import document
from model_profiling.tune.tune_result import (
    TriedVariant,
    TuneResult,
    appended,
    ladder,
    preferred,
    promising,
    rivals,
    step_gains,
    won,
)
from model_profiling.tune.variants import TuneVariant
from tests.helpers.screens import flat, shown

pytestmark = pytest.mark.fast
BASE = TuneVariant("fp16")
FASTER = Comparison("fp16", "int8", 2.0, 1.9, 2.1, 0.95, "faster", 1.0, True, 20)


def turns(medians: dict[str, float], launches: int = 12, noise: float = 0.01, seed: int = 0) -> dict[str, list[Turn]]:
    """Turns of programs side by side, with some noise that is each one's own."""
    draw = random.Random(seed)
    found: dict[str, list[Turn]] = {name: [] for name in medians}
    for number in range(launches):
        for name, ms in medians.items():
            runs = [int(ms * 1e6 * (1 + draw.gauss(0, noise))) for _ in range(3)]
            found[name].append(Turn(number, 0.0, runs, launch=number))
    return found


def test_turns_of_later_rounds_count_on_and_stay_paired() -> None:
    first, second = turns({"a": 2.0, "b": 1.0}), turns({"a": 2.0, "new": 0.5}, seed=1)
    both = appended(first, second)
    assert [turn.turn for turn in both["a"]] == list(range(24)) == [turn.launch for turn in both["a"]]
    assert [turn.turn for turn in both["new"]] == list(range(12, 24))
    assert both["b"] == first["b"]


def test_what_cannot_be_told_from_the_best_is_its_rival() -> None:
    measured = turns({"best": 1.0, "near": 1.001, "far": 1.5, "base": 2.0}, noise=0.02)
    assert rivals(measured, "best", ["best", "near", "far"]) == ["near"]
    assert rivals(measured, "best", ["best"]) == []


def test_of_equals_the_most_accurate_and_then_the_simplest_is_kept() -> None:
    rewritten = TuneVariant("fp16", rewrites=("auto",))
    variants = {"int8": TuneVariant("int8"), "fp16": rewritten, "plain": TuneVariant("fp16")}
    assert preferred(["int8", "fp16"], {"int8": 30.0, "fp16": 55.0}, variants) == "fp16"
    assert preferred(["fp16", "plain"], {"fp16": 80.0, "plain": 70.0}, variants) == "plain"
    assert preferred(["int8", "plain"], {"int8": None, "plain": 20.0}, variants) == "plain"


def test_each_change_says_what_it_gained_beside_those_before_it() -> None:
    best = TuneVariant("int8", rewrites=("auto",), io_layout="channels_last")
    between = ladder(BASE, best)
    assert [each.name for each in between] == ["int8", "int8+auto"]
    measured = turns({"fp16": 4.0, "int8": 2.0, "int8+auto": 1.6, "int8+io-layout+auto": 1.6})
    gains = step_gains(BASE, best, measured)
    assert [step.change for step in gains] == ["--dtype int8", "--rewrite auto", "--io-layout channels_last"]
    assert [step.comparison.verdict for step in gains] == ["faster", "faster", "no difference seen"]
    assert gains[0].comparison.low < 2.0 < (gains[0].comparison.high or 0)
    # What could not be made between is passed over; one change alone is the whole.
    del measured["int8"]
    assert [step.change for step in step_gains(BASE, best, measured)] == [
        *("--dtype int8 --rewrite auto", "--io-layout channels_last")
    ]
    assert step_gains(BASE, TuneVariant("int8"), turns({"fp16": 4.0, "int8": 2.0})) == []


def test_an_accuracy_that_is_asked_for_decides_instead_of_the_dtypes_own() -> None:
    from model_profiling.analysis.accuracy.agreement import Agreement

    def tried(sqnr: float, verdict: str) -> TriedVariant:
        agreement = Agreement("int8", "eager", 0.1, 0.99, sqnr, 1.0, verdict)  # type: ignore[arg-type]
        return TriedVariant("int8", "", "", 1.0, FASTER, agreement, dtype="int8")

    assert won(tried(35.0, "differs"), 30.0) and not won(tried(35.0, "differs"))
    assert won(tried(25.0, "agrees")) and not won(tried(25.0, "agrees"), 30.0)
    # Where none is asked for, another dtype than the baseline's must not be far from eager's all the same.
    assert not won(tried(25.0, "agrees"), baseline="fp16") and won(tried(25.0, "agrees"), baseline="int8")
    assert won(tried(35.0, "agrees"), baseline="fp16")
    for floor in (None, 30.0):
        result = TuneResult("net", "fp16", "linux", [tried(25.0, "agrees")], min_sqnr_db=floor, program="a/net.pte")
        assert "int8 is faster, but less accurate than 30 dB" in flat(shown(document(result)))


def test_the_end_names_program_gain_steps_and_what_is_as_fast() -> None:
    best = TuneVariant("int8", rewrites=("auto",))
    gains = step_gains(BASE, best, turns({"fp16": 4.0, "int8": 2.0, "int8+auto": 1.0}))
    entry = TriedVariant("int8+auto", "why", "sme2-kit export net --rewrite auto", 1.0, FASTER, dtype="int8")
    same = TriedVariant("int8+silu", "why", "sme2-kit export net --rewrite silu", same_as="int8+auto")
    result = TuneResult(
        *("net", "fp16", "linux", [entry, same], "int8+auto"),
        program="tune/int8+auto/net.pte",
        baseline_program="tune/fp16/net.pte",
        steps=gains,
        as_fast=["int8+layout"],
    )
    text = flat(shown(document(result)))
    wanted = ("Keep int8+auto sme2-kit export net --rewrite auto", "Gained 2.00x faster (1.90 to 2.10)", "--dtype int8")
    for words in (*wanted, "--rewrite ", "as fast: int8+layout", "Program tune/int8+auto/net.pte"):
        assert words in text, text
    assert [str(word) for word in following(result)] == ["compare", "tune/fp16/net.pte", "tune/int8+auto/net.pte"]


def test_what_looks_faster_by_too_few_runs_is_measured_again_and_never_called_no_faster() -> None:
    def entry(
        name: str, ms: float, ratio: float, high: float | None, verdict: str = "no difference seen"
    ) -> TriedVariant:
        compared = Comparison("fp16", name, ratio, 0.0, high, 0.95, verdict, None, True, 2)  # type: ignore[arg-type]
        return TriedVariant(name, "", "sme2-kit export net", ms, compared)

    base = TriedVariant("fp16", "the baseline", "sme2-kit export net", 96.0)
    far, near, slower = entry("auto", 1.3, 72.0, None), entry("norm", 95.5, 1.005, None), entry("x", 99.0, 0.97, None)
    wide = entry("wide", 60.0, 1.6, 2.5)
    assert promising([base, far, near, slower, wide], won) == ["auto", "wide"]
    # Only what may be better than what is known to be faster.
    sure = entry("silu", 2.0, 48.0, 50.0, "faster")
    assert promising([base, far, near, sure, wide], won) == ["auto"]
    result = TuneResult("net", "fp16", "linux", [far, near, base], program="a/net.pte")
    text = flat(shown(document(result)))
    assert "too few runs to tell: auto looks 72.00x faster" in text and "no variant is faster" not in text
    assert "the budget is used up" in text
    assert "keep the baseline until then" in text
