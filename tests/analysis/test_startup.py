"""Start-up and memory from samples: medians with bounds, growth told from memory taken once, unknown from zero."""

import json
import math
import random
import shutil
from pathlib import Path
from typing import Any

import hypothesis.strategies as st
import msgspec
import pytest
from hypothesis import given, settings

from model_profiling.analysis.advice.rules import FIRST, LAST, Evidence
from model_profiling.analysis.compare.metrics import ExperimentMetrics
from model_profiling.analysis.process.memory import (
    Arena,
    DelegateData,
    Memory,
    ProgramMemory,
    compare_memory,
    growth,
    memory,
)
from model_profiling.analysis.process.startup import PART_NS, Startup, compare_startups, startup
from model_profiling.analysis.timing.latency import summarise
from model_profiling.base.errors import InputError
from model_profiling.store.run_directory import Process, RunDirectory, Samples, Turn
from tests.conftest import ROOT

KNOWN_GOOD = ROOT / "tests" / "data" / "known_good_run"
PAGE = 4096
MIB = 1 << 20
NS = 1_000_000


def start(launch: int, cached: int = 100, **times: int) -> Process:
    """A process that started, executed once and ended, in whole milliseconds unless said otherwise."""
    parts = {"before": 5 * NS, "program": NS, "method": 20 * NS, "inputs": NS, "first": 3 * NS, "end": 2 * NS} | times
    load = parts["program"] + parts["method"] + parts["inputs"]
    first_result = parts["before"] + load + parts["first"]
    return Process(
        launch,
        float(launch),
        1,
        before_load_ns=parts["before"],
        load_ns=load,
        program_ns=parts["program"],
        method_ns=parts["method"],
        first_ns=parts["first"],
        first_result_ns=first_result,
        life_ns=first_result + parts["end"],
        cached_percent=cached,
        peak=20 * MIB,
    )


def samples(starts: list[Process] | None = None, processes: list[Process] | None = None) -> Samples:
    return Samples([Turn(0, 0.0, [NS])], [], starts=starts or [], processes=processes or [])


# Start-up


_times = st.integers(1_000, 10**10)


@settings(deadline=None)
@given(st.lists(st.tuples(_times, _times, _times, _times, _times), min_size=1, max_size=12))
def test_medians_are_of_the_launches_and_inside_their_bounds(drawn: list[tuple[int, int, int, int, int]]) -> None:
    starts = [start(n, before=a, program=b, method=c, first=d, end=e) for n, (a, b, c, d, e) in enumerate(drawn)]
    found, why = startup(samples(starts))
    assert found is not None and why == "" and found.launches == len(starts)
    for part, ns in PART_NS.items():
        time, every = getattr(found, part), [ns(each) / 1e6 for each in starts]
        assert min(every) <= time.median_ms <= max(every)
        # Fewer than six launches bound nothing at 95 %.
        assert (time.low_ms is None) == (len(starts) < 6)
        if time.low_ms is not None:
            # Averages of logarithms, so not exactly.
            slack = 1 + 1e-9
            assert min(every) / slack <= time.low_ms <= time.median_ms <= time.high_ms <= max(every) * slack
    one = startup(samples(starts[:1]))[0]
    assert one is not None and one.ending is not None
    parts = (one.process, one.program, one.method, one.inputs, one.first_inference)
    assert math.isclose(sum(part.median_ms for part in parts), one.first_result.median_ms)
    assert math.isclose(one.first_result.median_ms + one.ending.median_ms, starts[0].life_ns / 1e6)


CACHED = {"warm": [100, 99, 97], "cold": [0, 0, 3], "partly warm": [0, 100], "not known": [100, -1]}


@pytest.mark.parametrize(("word", "cached"), [*CACHED.items(), ("partly warm", [50, 60])])
def test_the_page_cache_is_what_the_system_said_in_every_launch(cached: list[int], word: str) -> None:
    found, _ = startup(samples([start(n, cached=percent) for n, percent in enumerate(cached)]))
    assert found is not None and found.page_cache == word


def test_what_is_not_known_says_why_and_is_no_zero() -> None:
    whole = samples([start(0)], [start(0)])
    for look in (startup, memory):
        assert look(whole, timing="emulated")[1] and look(whole, mode="trace")[1]
        assert look(None)[1] and look(samples())[1]
    assert startup(whole, runner="foreign")[1] and memory(samples([start(0)], [Process(0, 0.0, 4)]))[1]
    assert "startup_launches is 0" in startup(samples([], [start(0)]))[1]
    assert "guest" in memory(whole, timing="emulated")[1]
    known, why = memory(samples([], [Process(0, 0.0, 4, peak=9 * MIB)]), runner="foreign")
    assert known is not None and not why and "sampled" in known.peak_source
    assert (known.peak_bytes, known.after_load_bytes, known.packing_bytes) == (9 * MIB, None, None)
    # The kit's own runner on a system that gives no account: what it does not say stays unknown.
    mute, _ = memory(samples([], [Process(0, 0.0, 4, peak=9 * MIB)]))
    assert mute is not None
    assert (mute.after_load_bytes, mute.growth_per_execution_bytes, mute.leak) == (None, None, False)


def test_a_slower_start_is_seen_and_an_equal_one_is_not() -> None:
    chance = random.Random(1)

    def starts(method: float) -> list[Process]:
        return [start(n, method=int(method * chance.uniform(0.98, 1.02) * NS)) for n in range(10)]

    equal = compare_startups(("off", starts(20)), ("on", starts(20)), paired=True)
    slower = compare_startups(("off", starts(20)), ("on", starts(40)), paired=True)
    assert equal is not None and slower is not None
    assert equal.first_result.verdict == "no difference seen" and slower.first_result.verdict == "slower"
    method = slower.parts["method"]
    assert method.low is not None and method.high is not None and method.low <= 0.5 <= method.high
    same = slower.parts["program"]
    assert same.low is not None and same.high is not None and same.low <= 1 <= same.high
    assert compare_startups(("off", []), ("on", starts(20)), paired=True) is None
    cold = [start(n, cached=0) for n in range(10)]
    mixed = compare_startups(("off", starts(20)), ("on", cold), paired=True)
    assert mixed is not None and mixed.first_result.caveats == ["the page cache was warm before and cold after"]


# Memory


@st.composite
def _held(draw: st.DrawFn, each: int) -> tuple[list[Process], list[Turn]]:
    """Processes of some turns whose memory grows by `each` bytes an inference, takes more once at some time, and is
    read with an error of a few pages, as Linux reads it."""
    launches, turns, count = draw(st.integers(2, 12)), draw(st.integers(1, 7)), draw(st.integers(1, 6))
    once_at, once = draw(st.integers(0, turns)), draw(st.sampled_from((0, PAGE, 50 * MIB)))
    noise = st.integers(-16, 16).map(lambda pages: pages * PAGE)
    processes, taken = [], []
    for launch in range(launches):
        base, warmups, done = draw(st.integers(5, 500)) * MIB, 3, 3
        first, warm = base + draw(noise), base + 2 * each + (once if once_at == 0 else 0) + draw(noise)
        for turn in range(turns):
            done += 1 + count
            now = base + each * (done - 1) + (once if turn + 1 >= once_at else 0) + draw(noise)
            taken.append(Turn(launch * turns + turn, 0.0, [NS] * count, 0, launch, now))
        processes.append(
            Process(launch, 0.0, done, peak=now, resident_first=first, resident_warm=warm, warmups=warmups)
        )
    return processes, taken


@settings(deadline=None)
@given(_held(each=0))
def test_memory_that_is_taken_once_is_no_leak(held: tuple[list[Process], list[Turn]]) -> None:
    assert growth(*held)[2] is False


@settings(deadline=None)
@given(_held(each=MIB))
def test_a_megabyte_an_inference_is_a_leak_whatever_else_is_taken_once(held: tuple[list[Process], list[Turn]]) -> None:
    _, slope, leak = growth(*held)
    assert leak and slope is not None
    # The error of two readings, over the inferences between them; what is taken once is in one step.
    assert slope > MIB - 32 * PAGE


def test_growth_needs_more_than_one_step_of_one_process() -> None:
    one = Process(0, 0.0, 5, peak=MIB, resident_warm=10 * MIB, warmups=1)
    turn = Turn(0, 0.0, [NS] * 4, resident=100 * MIB)
    assert growth([one], [turn]) == (90 * MIB, 22.5 * MIB, False)
    assert growth([one], []) == (None, None, False)
    assert growth([one], [msgspec.structs.replace(turn, resident=0)]) == (None, None, False)


@settings(deadline=None)
@given(st.integers(6, 20), st.floats(0.5, 3.0), st.randoms(use_true_random=False))
def test_the_bounds_of_peak_memory_hold_how_much_more_it_is(count: int, ratio: float, chance: random.Random) -> None:
    def held(size: float) -> list[Process]:
        return [
            Process(n, 0.0, 9, peak=int(size * chance.uniform(0.999, 1.001) * MIB), resident_loaded=MIB)
            for n in range(count)
        ]

    found = compare_memory(("off", held(100)), ("on", held(100 * ratio)), paired=True)
    assert found is not None and found.low_percent is not None and found.high_percent is not None
    assert found.low_percent <= (ratio - 1) * 100 <= found.high_percent
    assert found.high_percent - found.low_percent < 3 * ratio
    sampled = [Process(0, 0.0, 9, peak=MIB)]
    assert compare_memory(("kit", held(100)), ("foreign", sampled), paired=False) is None


# Advice


def _evidence(
    start: Startup | None = None, held: Memory | None = None, program: ProgramMemory | None = None
) -> Evidence:
    """What rules about start-up and memory look at, of an inference of 10 ms."""
    latency = summarise([Turn(n, 0.0, [10 * NS]) for n in range(12)])
    metrics = ExperimentMetrics("ok", latency, "untraced executions", None, [], 0, startup=start, memory=held)
    return Evidence(None, measured=metrics, program=program)  # type: ignore[arg-type]


def _named(evidence: Evidence) -> set[str]:
    """The rules about what costs no inference that find something."""
    return {rule.__name__ for rule in LAST for _ in rule(evidence)}


def _program(planned: int, weights: int, delegates: int = 1) -> ProgramMemory:
    return ProgramMemory("forward", [Arena(1, planned)], 0, weights, [DelegateData("XnnpackBackend", delegates, 0, 0)])


@settings(deadline=None)
@given(st.integers(1, 3000), st.integers(1, 3000), st.integers(1, 3000))
def test_start_up_is_a_finding_where_it_is_long_and_most_of_the_wait(before: int, method: int, first: int) -> None:
    start_up, _ = startup(
        samples([start(n, before=before * NS, method=method * NS, first=first * NS) for n in range(6)])
    )
    found = _named(_evidence(start_up))
    whole = before + 2 + method + first
    assert ("packing" in found) == (method >= 50 and method >= whole / 2)
    assert ("slow_first_inference" in found) == (first >= 60 and first >= 30)
    assert "packing" not in _named(_evidence(start_up, program=_program(MIB, 0)))
    assert not _named(_evidence())


@settings(deadline=None)
@given(st.integers(0, 400), st.integers(0, 400), st.integers(0, 400), st.integers(0, 400))
def test_memory_is_a_finding_where_the_file_does_not_account_for_it(
    weights: int, planned: int, packed: int, workspace: int
) -> None:
    runner = 5
    loaded = runner + weights + packed
    first = loaded + planned + workspace
    held = Memory(
        6,
        first * MIB,
        before_load_bytes=runner * MIB,
        after_load_bytes=loaded * MIB,
        after_first_bytes=first * MIB,
        packing_bytes=packed * MIB,
        first_inference_bytes=(planned + workspace) * MIB,
    )
    evidence = _evidence(held=held, program=_program(planned * MIB, weights * MIB))
    found = _named(evidence)
    assert ("first_inference_memory" in found) == (workspace >= 32 and workspace >= first / 4)
    assert ("peak_memory" in found) == (packed >= 32 and packed >= 1.5 * (runner + weights + planned))
    # What loading allocates is called packed weights only where there are weights enough to be packed.
    said = " ".join(f"{f.title} {f.next_step}" for rule in LAST for f in rule(evidence)).lower()
    assert weights or "pack" not in said
    leak = msgspec.structs.replace(held, leak=True, growth_per_execution_bytes=float(MIB))
    (finding,) = [finding for rule in FIRST for finding in rule(_evidence(held=leak))]
    assert finding.measured == "1.00 MiB an inference" and finding.gain == 1


# What files say


def _damaged(home: Path, change: dict[str, Any]) -> RunDirectory:
    shutil.copytree(KNOWN_GOOD, home)
    for path in home.glob("*/*_samples.json"):
        raw = json.loads(path.read_text())
        raw["starts"] = [{"launch": 0, "at_s": 0.0, "runs": 1, **change}, {"launch": 1, "at_s": 1.0, "runs": 1}]
        path.write_text(json.dumps(raw))
    return RunDirectory(home)


@pytest.mark.parametrize(
    "change",
    [
        {"peak": -5},
        {"first_result_ns": 10**30},
        {"launch": 1},
        {"cached_percent": -2},
        {"at_s": 1e300},
        {"resident_loaded": "many"},
        {"load_ns": 1.5},
        {"colour": "blue"},
    ],
)
def test_odd_numbers_in_samples_are_an_error_that_names_the_file(change: dict[str, Any], tmp_path: Path) -> None:
    run = _damaged(tmp_path / "run", change)
    manifest = run.manifest()
    with pytest.raises(InputError) as raised:
        run.samples(manifest, next(iter(manifest.experiments)))
    assert "_samples.json" in raised.value.message and raised.value.hint
