"""What more threads bring is read off runs of which it is known: perfect, none, slower, and different for each side."""

from collections.abc import Callable
from pathlib import Path

import hypothesis.strategies as st
import msgspec
import pytest
from hypothesis import HealthCheck, given, settings

from model_profiling.analysis.advice.finding import Finding, FindingKind
from model_profiling.analysis.process.scaling import FEWEST, Scaling, ThreadCurve, scaling
from model_profiling.store.run_directory import ExperimentRecord, Manifest, RunDirectory, Turn
from sme2_kit import Run
from tests.helpers.contract_check import check_files
from tests.helpers.run_forge import forge_run

KNOWN = Path(__file__).resolve().parents[1] / "data" / "known_good_run"
OFF, ON = "linux_fp16arith_off", "linux_fp16arith_on"
# How much slower operators of an experiment are than in the real run, with so many threads.
Slower = Callable[[ExperimentRecord, str], float]


def forged(place: Path, slower: Slower, change: Callable[[Manifest], None] = lambda manifest: None) -> Run:
    """A run of the real operators, a hundred times slower so that no clock shows, with times as told."""

    def times(record: ExperimentRecord, name: str, ns: int) -> float:
        return 100 * ns * slower(record, name)

    return Run.open(forge_run(KNOWN, place, executions=48, launches=8, threads=(1, 2, 4), times=times, change=change))


def curve(run: Run, name: str = ON) -> ThreadCurve:
    found = run.metrics.scaling
    assert found is not None
    mine = found.curve_of(f"{name}_threads1")
    assert mine is not None
    return mine


def findings(run: Run, experiment: str, rule: FindingKind) -> list[Finding]:
    return [finding for finding in run.summary.experiments[experiment].advice if finding.rule == rule]


@pytest.fixture(scope="module")
def perfect(tmp_path_factory: pytest.TempPathFactory) -> Run:
    return forged(tmp_path_factory.mktemp("perfect") / "run", lambda record, name: 1 / record.threads)


@pytest.fixture(scope="module")
def flat(tmp_path_factory: pytest.TempPathFactory) -> Run:
    """Threads that change nothing."""
    return forged(tmp_path_factory.mktemp("flat") / "run", lambda record, name: 1.0)


@pytest.fixture(scope="module")
def slowing(tmp_path_factory: pytest.TempPathFactory) -> Run:
    """With twice the threads everything takes twice as long."""
    return forged(tmp_path_factory.mktemp("slowing") / "run", lambda record, name: record.threads)


def elsewhere(run: Run, cores: int | None, cpus: int | None = None) -> Run:
    """The same run as of a machine with so many cores, of which a process may use so many CPUs."""
    found = Run.open(run.path)
    found.manifest.environment["cores"] = cores
    for name, record in found.manifest.experiments.items():
        found.manifest.experiments[name] = msgspec.structs.replace(record, cpus=cpus or record.cpus)
    return found


@pytest.fixture(scope="module")
def shared(tmp_path_factory: pytest.TempPathFactory) -> Run:
    """As if threads shared one unit: on, more threads bring nothing and then cost; off, they scale."""
    cost = {1: 1.0, 2: 1.0, 4: 1.6}
    units = {"shared_by": [4, 2], "source": "smidr_el1"}

    def slower(record: ExperimentRecord, name: str) -> float:
        return cost[record.threads] if not record.disable_features else 1.5 / record.threads

    def change(manifest: Manifest) -> None:
        manifest.environment |= {"sme_units": units, "cores": 2}
        for name, record in manifest.experiments.items():
            off = ["sme2"] if record.disable_features else []
            assert record.features is not None
            features = msgspec.structs.replace(record.features, disabled=off)
            manifest.experiments[name] = msgspec.structs.replace(record, disable_features=off, features=features)

    return forged(tmp_path_factory.mktemp("shared") / "run", slower, change=change)


def test_perfect_scaling_is_seen_as_such(perfect: Run) -> None:
    for name in (ON, OFF):
        found = curve(perfect, name)
        assert [point.threads for point in found.points] == [1, 2, 4]
        for point in found.points[1:]:
            assert point.speedup == pytest.approx(point.threads, rel=0.05) and point.verdict == "faster"
            assert point.low is not None and point.high is not None
            assert point.low <= point.speedup <= point.high
            assert point.efficiency == pytest.approx(1, rel=0.05)
        assert (found.best, found.equal, found.unknown) == (4, [], "")
    assert curve(perfect).disabled == [] and curve(perfect, OFF).disabled
    scales = {o.scales for traced in perfect.summary.operator_scaling for o in traced.operators if o.ms[0]}
    assert scales <= {"faster", "not known"}


def test_on_is_held_against_off_with_every_number_of_threads(perfect: Run) -> None:
    found = perfect.metrics.scaling
    assert found is not None
    assert [(s.threads, s.before, s.after) for s in found.switches] == [
        (n, f"{OFF}_threads{n}", f"{ON}_threads{n}") for n in (1, 2, 4)
    ]
    assert [s.ratio for s in found.switches] == [c.ratio for c in perfect.metrics.comparisons]


def test_threads_that_change_nothing_are_not_worth_having(flat: Run) -> None:
    found = curve(flat)
    assert [point.verdict for point in found.points] == [FEWEST, "no difference seen", "no difference seen"]
    assert (found.best, found.equal) == (1, [2, 4])
    assert found.points[2].efficiency == pytest.approx(0.25, rel=0.05)
    for experiment in flat.summary.experiments.values():
        assert not {f.rule for f in experiment.advice} & {FindingKind.THREAD_COUNT, FindingKind.MORE_THREADS_SLOWER}
    unscaled = flat.summary.operator_scaling[0].unscaled
    assert {o.scales for o in unscaled} == {"no faster"}
    assert unscaled[0].lost_ms == max(o.lost_ms for o in unscaled)


def test_more_threads_that_are_slower_are_advised_against(slowing: Run) -> None:
    found = curve(slowing)
    assert (found.best, found.equal) == (1, [])
    assert [point.verdict for point in found.points[1:]] == ["slower", "slower"]
    (finding,) = findings(slowing, f"{ON}_threads4", FindingKind.MORE_THREADS_SLOWER)
    assert finding.gain == pytest.approx(4, rel=0.05) and "1 thread" in finding.title
    assert not findings(slowing, f"{ON}_threads1", FindingKind.MORE_THREADS_SLOWER)


def test_the_number_that_was_used_is_not_the_best(perfect: Run) -> None:
    (finding,) = findings(perfect, f"{ON}_threads2", FindingKind.THREAD_COUNT)
    assert finding.gain == pytest.approx(2, rel=0.05) and "4 threads" in finding.title
    assert finding.next_step and finding.instances == [] and len(finding.evidence) >= 3
    assert not findings(perfect, f"{ON}_threads4", FindingKind.THREAD_COUNT)


def test_fewest_of_several_that_are_equal_is_best(tmp_path: Path) -> None:
    run = forged(tmp_path / "run", lambda record, name: {1: 1.0, 2: 0.5, 4: 0.5}[record.threads])
    assert (curve(run).best, curve(run).equal) == (2, [4])


def test_on_that_is_faster_alone_and_slower_with_many_threads_is_found(shared: Run) -> None:
    (finding,) = findings(shared, f"{ON}_threads4", FindingKind.SLOWER_WITH_THREADS)
    assert finding.gain is not None and finding.gain > 1.5
    assert "this machine has 2 SME units, shared by 4 and 2 CPUs" in finding.evidence
    assert "SME2" in finding.title.upper()
    assert not findings(shared, f"{ON}_threads1", FindingKind.SLOWER_WITH_THREADS)
    assert not findings(shared, f"{OFF}_threads4", FindingKind.SLOWER_WITH_THREADS)


def test_operators_that_do_not_scale_are_told_from_those_that_do(tmp_path: Path) -> None:
    stuck = "Convolution"

    def slower(record: ExperimentRecord, name: str) -> float:
        return 1.0 if name.startswith(stuck) else 1 / record.threads

    run = forged(tmp_path / "run", slower)
    for traced in run.summary.operator_scaling:
        assert traced.threads == [1, 2, 4]
        assert traced.unscaled and all(o.operator.startswith(stuck) for o in traced.unscaled)
        assert traced.operators[0].operator.startswith(stuck)
        scaled = [o for o in traced.operators if o.scales == "faster"]
        assert scaled and not any(o.operator.startswith(stuck) for o in scaled)
    # Their times add up to what breakdowns have, whatever the number of threads.
    for place, name in enumerate(traced.experiments):
        whole = run.summary.experiments[name].breakdown.execute_ms
        assert sum(o.ms[place] or 0 for o in traced.operators) == pytest.approx(whole)


@pytest.mark.parametrize(("cores", "many"), [(1, 2), (2, 2), (3, 2), (4, 4), (64, 4), (None, 4)])
def test_operators_are_judged_by_threads_that_have_cpus(slowing: Run, cores: int | None, many: int) -> None:
    for traced in elsewhere(slowing, cores).summary.operator_scaling:
        assert traced.many == many
        largest = max(traced.operators, key=lambda o: o.ms[0] or 0)
        assert largest.speedup == pytest.approx(1 / many, rel=0.05) and largest.scales == "slower"


def test_more_threads_than_cpus_is_a_warning(shared: Run, perfect: Run) -> None:
    def warned(run: Run) -> list[str]:
        found = run.metrics.experiments.items()
        return [name for name, m in found if m.latency and any("CPUs" in w for w in m.latency.warnings)]

    assert set(warned(shared)) == {f"{ON}_threads4", f"{OFF}_threads4"}
    found = shared.metrics.scaling
    assert found is not None and (found.cpus, found.sme_units) == (2, [4, 2])


def test_cpus_that_a_process_may_use_count_for_more_than_those_there_are(flat: Run) -> None:
    latency = elsewhere(flat, 64, cpus=1).metrics.experiments[f"{ON}_threads2"].latency
    assert latency is not None and any(w.startswith("2 threads on 1 CPU") for w in latency.warnings)


def test_too_few_turns_have_no_best_number(tmp_path: Path) -> None:
    run = Run.open(forge_run(KNOWN, tmp_path / "run", executions=3, threads=(1, 2)))
    found = curve(run)
    assert found.best is None and found.unknown
    assert found.points[1].high is None and not found.points[1].reliable


def test_a_run_with_one_number_has_no_curves() -> None:
    run = Run.open(KNOWN)
    assert run.metrics.scaling is None and run.summary.operator_scaling == []
    assert len(run.scaling) == len(run.operator_scaling) == 0


def test_files_keep_their_contracts(perfect: Run) -> None:
    perfect.save()
    check_files(perfect.path)


@pytest.fixture(scope="module")
def manifest() -> Manifest:
    return RunDirectory(KNOWN).manifest()


def _turns(ms: float, launches: int = 6) -> list[Turn]:
    jitter = (1.0, 1.001, 0.999)
    return [Turn(n, float(n), [round(ms * 1e6 * j) for j in jitter], launch=n) for n in range(launches)]


@given(st.dictionaries(st.integers(1, 64), st.floats(0.5, 50), min_size=2, max_size=5), st.booleans())
@settings(max_examples=25, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
def test_the_best_number_is_never_slower_than_another(
    manifest: Manifest, latencies: dict[int, float], numbered: bool
) -> None:
    record = manifest.experiments[ON]
    names = {n: f"a_threads{n}" if numbered else f"any{n}" for n in latencies}
    made = {name: msgspec.structs.replace(record, name=name, threads=n) for n, name in names.items()}
    run = msgspec.structs.replace(manifest, experiments=made)
    found = scaling(run, {names[n]: _turns(ms) for n, ms in latencies.items()}, [])
    assert isinstance(found, Scaling)
    (only,) = found.curves
    assert [point.threads for point in only.points] == sorted(latencies)
    assert only.best is not None
    fastest = min(latencies.values())
    # Within what the intervals can tell, which is a few percent here, no number is faster; and none that is has fewer.
    assert latencies[only.best] <= fastest * 1.05
    assert all(ms > fastest * 0.95 for n, ms in latencies.items())
    assert not [n for n, ms in latencies.items() if n < only.best and ms <= fastest]
    first = latencies[min(latencies)]
    for point in only.points:
        assert point.speedup == pytest.approx(first / latencies[point.threads], rel=0.01)


def test_experiments_that_differ_in_more_are_not_one_curve(manifest: Manifest) -> None:
    record = manifest.experiments[ON]

    def curves(**changes: object) -> list[list[str]]:
        made = {}
        for name, threads in (("a1", 1), ("a2", 2), ("b1", 1), ("b2", 2)):
            other = changes if name.startswith("b") else {}
            made[name] = msgspec.structs.replace(record, name=name, threads=threads, **other)
        run = msgspec.structs.replace(manifest, experiments=made)
        found = scaling(run, {name: _turns(1.0) for name in made}, [])
        return [[point.experiment for point in each.points] for each in found.curves] if found else []

    assert curves(disable_features=["x"]) == [["a1", "a2"], ["b1", "b2"]]
    assert curves(weight_cache="on") == [["a1", "a2"], ["b1", "b2"]]
    # Nothing says which of these belong together.
    assert curves() == []
