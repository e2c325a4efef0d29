"""The analysis of real dumps: times add up, operators are where they belong, advice has evidence."""

import csv
import json
import re
import shutil
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest

from model_profiling.analysis.compare.comparison import compare_profiles
from model_profiling.analysis.compare.program_changes import ProfiledProgram
from model_profiling.analysis.graph.graph import read_graph
from model_profiling.analysis.graph.sources import read_sources
from model_profiling.analysis.movement.movement import data_movement
from model_profiling.analysis.run.dumps import AnalysisSummary, read_timeline
from model_profiling.analysis.sme2.whatif import predict
from model_profiling.analysis.timing.breakdown import break_down
from model_profiling.analysis.timing.categories import load_table
from model_profiling.analysis.timing.intervals import student_t
from model_profiling.analysis.timing.profile import Profile, profiles
from model_profiling.analysis.timing.spans import typical_execution
from model_profiling.base.errors import InputError
from model_profiling.base.files import read_json
from model_profiling.formats import etdump
from model_profiling.report import numbers
from model_profiling.report.files.tables import csv_text, timeline_csv
from model_profiling.store.run_directory import RunDirectory
from sme2_kit import Run
from tests.conftest import ROOT, kit
from tests.helpers.run_forge import forge_run

Toy = Callable[[str], Path]
DATA = Path(__file__).parents[1] / "data" / "etdump"
TABLE = load_table()
TOOLS = ROOT / "model_profiling" / "tools"


@pytest.fixture(scope="module")
def dumps(runner: Path, toy: Toy, tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    """Dumps of real models from the real runner."""
    home = tmp_path_factory.mktemp("dumps")
    models = {"toy_fp32": toy("fp32"), "toy_fp16": toy("fp16"), "toy_int8": toy("int8")}
    for name, pte in models.items():
        flags = [f"--model_path={pte}", "--num_executions=20", "--warmup=2", "--cpu_threads=1"]
        command = [str(runner), *flags, f"--etdump_path={home / name}.etdump"]
        subprocess.run(command, check=True, capture_output=True)
    return {name: home / f"{name}.etdump" for name in models}


def profile_of(path: Path) -> Profile:
    return profiles(etdump.read(path), TABLE)[0]


def test_times_sum_to_method_execute_and_no_operator_is_unknown_on_every_real_dump(dumps: dict[str, Path]) -> None:
    for path in [*dumps.values(), *DATA.glob("*.etdump")]:
        for profile in profiles(etdump.read(path), TABLE):
            assert np.allclose(profile.times.sum(axis=0), profile.execute, rtol=1e-9)
            breakdown = break_down(profile)
            for parts in (breakdown.categories, breakdown.operators, breakdown.instances):
                assert sum(entry.ms for entry in parts) == pytest.approx(breakdown.execute_ms, rel=1e-3)
            assert sum(breakdown.shares_by_where.values()) == pytest.approx(1.0, rel=1e-3)
            assert [x.name for x in profile.instances if x.where != "runtime" and not x.kind_of.known] == []
            if path.name.startswith("cnn_"):
                # The sum is not the median, which would not add up; of executions that are alike it says the same.
                medians = sum(x.spread.median_ms for x in breakdown.instances)
                assert breakdown.execute_ms == pytest.approx(medians, rel=0.03)


def test_medians_are_inspectors_to_the_last_printed_digit(dumps: dict[str, Path]) -> None:
    inspector = pytest.importorskip("executorch.devtools").Inspector
    for name in ("toy_int8", "toy_fp32"):
        frame = inspector(etdump_path=str(dumps[name])).to_dataframe()
        parents = {"DELEGATE_CALL", "OPERATOR_CALL", "Method::execute"}
        theirs = sorted(
            (row.event_name, row["p50 (ms)"])
            for _, row in frame.iterrows()
            if row.event_block_name == "Execute" and row.event_name not in parents
        )
        breakdown = break_down(profile_of(dumps[name]))
        ours = sorted(
            (x.name if x.where == "delegated" else f"native_call_{x.name}", x.spread.median_ms)
            for x in breakdown.instances
            if x.where != "runtime"
        )
        assert [name for name, _ in ours] == [name for name, _ in theirs]
        # Half a nanosecond, which a median of two has, may be rounded up or down.
        assert [ms for _, ms in ours] == pytest.approx([ms for _, ms in theirs], rel=1e-5, abs=1e-6)


def test_toy_cnn_is_what_it_was_made_to_be(dumps: dict[str, Path], toy: Toy) -> None:
    profile = profile_of(dumps["toy_fp16"])
    breakdown = break_down(profile)
    portable = [x.name for x in breakdown.instances if x.where == "portable"]
    assert portable == ["mean.out"]
    assert {"CONV", "GEMM", "Data Movement"} <= {x.category for x in breakdown.instances if x.ms > 0}
    assert {"depthwise", "conv2d", "fully connected", "transpose"} <= {x.kind for x in breakdown.instances}
    unknown = data_movement(breakdown)
    assert unknown.chains == [] == unknown.inverse_pairs and ".pte" in unknown.note
    movement = data_movement(breakdown, read_graph(profile.instances, toy("fp16")))
    assert movement.ms == unknown.ms == pytest.approx(breakdown.category("Data Movement").ms)
    assert any(chain.at_boundary and chain.after == "mean.out" for chain in movement.chains)
    assert sum(chain.ms for chain in movement.chains) == pytest.approx(movement.ms)


def test_two_methods_in_one_dump_are_unique_labels() -> None:
    found = profiles(etdump.read(DATA / "two_methods.etdump"), TABLE)
    assert len(found) == 2
    assert found[0].execute.sum() >= found[1].execute.sum()


def test_a_dump_without_an_execution_is_an_error(tmp_path: Path) -> None:
    for text in (b"", b"junk" * 100):
        (tmp_path / "x.etdump").write_bytes(text)
        done = kit("analyze", tmp_path / "x.etdump")
        assert done.returncode == 2
        assert "Traceback" not in done.stderr


def test_what_if_is_amdahls_law_and_says_that_it_is_a_prediction(dumps: dict[str, Path]) -> None:
    breakdown = break_down(profile_of(dumps["toy_fp16"]))
    conv = breakdown.category("CONV").ms
    prediction = predict(breakdown, {"CONV": 4.0})
    assert prediction.predicted_ms == pytest.approx(breakdown.execute_ms - conv * 0.75)
    assert prediction.label == "prediction"
    assert sum(prediction.shares.values()) == pytest.approx(1.0)
    assert predict(breakdown, {"CONV": float("inf"), "GEMM": float("inf")}).next_bottleneck not in ("CONV", "GEMM")
    assert predict(breakdown, {}).ratio == pytest.approx(1.0)
    for bad in ({"CONVOLUTION": 2.0}, {"CONV": 0.0}, {"CONV": -1.0}, {"CONV": float("nan")}):
        with pytest.raises(InputError):
            predict(breakdown, bad)


def scaled(profile: Profile, category: str, factor: float) -> Profile:
    """The same profile with one category made slower: a change whose size is known."""
    rows = np.array([x.category == category for x in profile.instances])
    times = np.where(rows[:, None], profile.times * factor, profile.times)
    return Profile(profile.instances, times, profile.starts, times.sum(axis=0), profile.launch)


def test_a_comparison_finds_what_was_changed_and_nothing_else(dumps: dict[str, Path]) -> None:
    traced = profile_of(dumps["toy_fp16"])
    # As a quiet machine would have measured it, whatever else ran beside this test.
    noise = np.random.default_rng(0).normal(1.0, 0.005, traced.times.shape)
    times = np.median(traced.times, axis=1)[:, None] * noise
    calm = Profile(traced.instances, times, traced.starts, times.sum(axis=0), traced.launch)
    new = calm.with_launches(dict.fromkeys(range(10), traced.executions // 10))
    assert len(new.launches) == 10
    old = scaled(new, "CONV", 3.0)
    comparison = compare_profiles(_side("off", old), _side("on", new), paired=True)
    changes = {entry.name: entry for entry in comparison.categories}
    assert changes["CONV"].ratio == pytest.approx(3.0, rel=0.02)
    assert changes["CONV"].low is not None and changes["CONV"].low > 2.9
    assert changes["GEMM"].ratio == pytest.approx(1.0, rel=0.02)
    # GEMM is CONV's neighbour and was not made faster, so each of its operators (that has time) is called out.
    gemms = {x.name for x in new.instances if x.category == "GEMM"}
    timed = {x.name for x in break_down(new).instances if x.category == "GEMM" and x.spread.median_ms > 0}
    assert timed <= {entry.after for entry in comparison.untouched} <= gemms
    assert comparison.shift.before == "CONV"
    assert comparison.shift.before_share > comparison.shift.after_share


def _side(name: str, profile: Profile) -> ProfiledProgram:
    return ProfiledProgram(name, profile, break_down(profile))


def test_a_row_shows_one_statistic(dumps: dict[str, Path]) -> None:
    """Every ratio is that of the two times beside it and lies within its bounds, however noisy the executions."""
    base = profile_of(dumps["toy_fp16"])
    generator = np.random.default_rng(0)
    for launches in (1, 2, 6, 20):
        sides = []
        for name in ("before", "after"):
            noise = generator.lognormal(0, 1.0, base.times.shape)
            times = base.times * noise
            made = Profile(base.instances, times, base.starts, times.sum(axis=0), base.launch)
            made = made.with_launches(dict.fromkeys(range(launches), base.executions // launches))
            sides.append(_side(name, made))
        comparison = compare_profiles(sides[0], sides[1], paired=True)
        changes = [*comparison.categories, comparison.execute, *(entry.change for entry in comparison.operators)]
        for change in changes:
            if change.ratio is not None:
                assert change.ratio == pytest.approx(change.before_ms / change.after_ms)
                if change.low is not None and change.high is not None:
                    assert change.low <= change.ratio <= change.high
                    told = numbers.bounded_speedup(change.ratio, change.low, change.high)
                    assert (told == "~") == (change.low <= 1 <= change.high)


def test_the_bottleneck_shift_is_stated_when_it_happens(dumps: dict[str, Path]) -> None:
    traced = profile_of(dumps["toy_fp16"])
    base = traced.with_launches(dict.fromkeys(range(10), traced.executions // 10))
    old, new = scaled(base, "CONV", 10.0), scaled(scaled(base, "CONV", 0.01), "Data Movement", 20.0)
    shift = compare_profiles(_side("off", old), _side("on", new), paired=True).shift
    assert (shift.before, shift.after, shift.moved) == ("CONV", "Data Movement", True)
    assert shift.sentence.startswith("The bottleneck moved from CONV")


def test_operators_are_matched_by_place_across_dtypes(dumps: dict[str, Path]) -> None:
    """F16 against F32: other names, the same places."""
    sides = [_side(dtype, profile_of(dumps[f"toy_{dtype}"])) for dtype in ("fp32", "fp16")]
    comparison = compare_profiles(sides[0], sides[1], paired=False)
    convolutions = [entry for entry in comparison.operators if entry.category == "CONV"]
    assert len(convolutions) == 4
    assert all("F32" in entry.before and "F16" in entry.after for entry in convolutions)


@pytest.fixture(scope="module")
def run(toy: Toy, tmp_path_factory: pytest.TempPathFactory) -> RunDirectory:
    root = tmp_path_factory.mktemp("run") / "out"
    done = kit("run", toy("fp16"), "--output-root", root)
    assert done.returncode == 0, done.stderr
    return RunDirectory(root)


def test_a_run_leaves_every_file_the_learning_path_names(run: RunDirectory) -> None:
    manifest = run.manifest()
    stem = manifest.model.stem
    names = {path.name for path in run.path.iterdir()}
    assert {"manifest.json", "metrics.json", "analysis_summary.json", f"{stem}_pipeline_summary.json"} <= names
    assert f"{stem}_pipeline_summary.md" in names
    for name, record in manifest.experiments.items():
        suffixes = (".etdump", ".log", "_all_runs_timeline.csv", "_run0_timeline.csv", "_ops_stats.csv")
        for suffix in (*suffixes, "_robust_stats.json"):
            assert (run.experiment(name) / f"{stem}_{name}_t{record.threads}{suffix}").is_file()


def test_everything_but_the_dump_can_be_made_again(run: RunDirectory) -> None:
    before = run.analysis_path.read_bytes()
    made = (path for pattern in ("*/*.csv", "*/*_robust_stats.json") for path in run.path.glob(pattern))
    for path in [run.analysis_path, run.metrics_path, *made]:
        path.unlink()
    assert kit("analyze", "--run-dir", run.path).returncode == 0
    assert run.analysis_path.read_bytes() == before
    assert kit("validate", "--results", run.path).returncode == 0


def test_the_tables_say_what_the_summary_says(run: RunDirectory) -> None:
    summary = read_json(run.analysis_path, AnalysisSummary, "analysis")
    for name, experiment in summary.experiments.items():
        with next(run.experiment(name).glob("*_ops_stats.csv")).open() as file:
            rows = list(csv.DictReader(file))
        assert [row["operator"] for row in rows] == [entry.operator for entry in experiment.breakdown.operators]
        for row, entry in zip(rows, experiment.breakdown.operators, strict=True):
            assert float(row["ms"]) == pytest.approx(entry.ms, abs=1e-6)
            assert float(row["share"]) == pytest.approx(entry.share, abs=1e-6)


def test_advice_has_evidence_a_gain_and_a_next_step(run: RunDirectory, tmp_path: Path) -> None:
    stated = forge_run(run.path, tmp_path / "run", times=lambda _, operator, __: 50_000 if operator else 2_000)
    for experiment in Run.open(stated).summary.experiments.values():
        (mean,) = [finding for finding in experiment.advice if finding.rewrite == "keepdim"]
        assert "keepdim=True" in mean.next_step
        assert re.search(r"model\.py:\d+: mean\(.*\) runs outside the delegate", mean.title)
        assert all((f.gain is None) == (f.label == "suggestion") and (f.gain or 1) >= 1 for f in experiment.advice)
        assert all(f.evidence and f.next_step for f in experiment.advice)


def test_portable_operators_and_delegate_calls_know_their_pytorch_line(run: RunDirectory) -> None:
    summary = read_json(run.analysis_path, AnalysisSummary, "analysis")
    for experiment in summary.experiments.values():
        mean = next(x for x in experiment.breakdown.instances if x.name == "mean.out")
        assert mean.source is not None
        assert mean.source.file.endswith("toy_cnn/model.py")
        assert "mean" in mean.source.code
        delegated = {
            x.name: x.source for x in experiment.breakdown.instances if x.category == "GEMM" and x.instruction == 0
        }
        lines = [source.code for source in delegated.values() if source is not None]
        assert lines[0] == "x = torch.relu(self.pointwise(x))"
        assert lines[1:] == ["x = self.mix_windows(x)"] * 2
        calls = [x for x in experiment.breakdown.instances if x.name == "delegate call"]
        assert all(call.source is not None for call in calls)


def test_a_missing_or_foreign_etrecord_is_said_and_skipped(toy: Toy, tmp_path: Path) -> None:
    model = Path(shutil.copytree(toy("fp16").parent, tmp_path / "home")) / "toy_cnn_xnnpack_fp16.pte"
    record = model.with_name(f"{model.name}.etrecord")
    record.unlink()
    assert "no ETRecord" in read_sources(model).note
    record.write_bytes(b"not an ETRecord")
    done = kit("run", model, "--output-root", tmp_path / "out", "--runs", 5, "--json")
    assert done.returncode == 0, done.stderr
    assert any("ETRecord" in note for note in json.loads(done.stdout)["notes"]), done.stdout


def test_bare_dumps_are_analysed_without_any_run_and_a_users_table_changes_the_categories(
    dumps: dict[str, Path], tmp_path: Path
) -> None:
    done = kit("analyze", dumps["toy_fp16"], dumps["toy_int8"])
    assert done.returncode == 0, done.stderr
    assert "CONV" in done.stdout and "toy_int8" in done.stdout and "traced" in done.stdout
    table = tmp_path / "mine.json"
    table.write_text(json.dumps({"operators": {"mean.out": "Elementwise"}}))
    data = json.loads(kit("analyze", dumps["toy_fp16"], "--json", "--categories", table).stdout)
    breakdown = data["experiments"]["toy_fp16"]["breakdown"]
    assert breakdown["executions"] == 20
    operators = {entry["operator"]: entry for entry in breakdown["operators"]}
    assert operators["mean.out"]["category"] == "Elementwise"


def test_a_timeline_csv_reads_back_as_the_same_profile(dumps: dict[str, Path], tmp_path: Path) -> None:
    profile = profile_of(dumps["toy_int8"])
    (tmp_path / "t.csv").write_text(timeline_csv(profile, range(profile.executions)))
    again = read_timeline(tmp_path / "t.csv", TABLE)
    assert again.instances == profile.instances
    assert np.allclose(again.times, profile.times, atol=1.0)
    for text in ("", "a,b\n1,2\n", "run,index\n0,0\n", "\0", timeline_csv(profile, range(3))[:-200]):
        (tmp_path / "bad.csv").write_text(text)
        with pytest.raises(InputError):
            read_timeline(tmp_path / "bad.csv", TABLE)


def test_the_execution_that_a_timeline_shows_is_typical_of_its_operators() -> None:
    [profile] = profiles(etdump.read(DATA / "cnn_fp32.etdump"), TABLE)
    # The first has almost the median total, and operators as no other has them; the third has all at their medians.
    usual = np.full((2, 1), 100.0)
    times = np.hstack([[[10.0], [195.0]], usual + 1, usual, usual, usual + 30, usual - 5, usual])
    made = Profile(profile.instances[:2], times, times * 0, times.sum(axis=0) + 5, np.zeros(7, dtype=np.int64))
    assert typical_execution(made) == 2
    # Of two executions the one that was not interrupted.
    assert typical_execution(made.only(np.array([4, 2]))) == 1


def test_a_name_that_looks_like_a_formula_stays_text_in_a_spreadsheet() -> None:
    assert csv_text(("name",), [["=HYPERLINK(1)"], ["a,b\nc"]]) == 'name\n\'=HYPERLINK(1)\n"a,b\nc"\n'


@pytest.mark.parametrize(
    ("freedom", "expected"), [(1, 12.706), (2, 4.303), (3, 3.182), (9, 2.262), (19, 2.093), (99, 1.984)]
)
def test_students_t_is_the_tables(freedom: int, expected: float) -> None:
    assert student_t(0.95, freedom) == pytest.approx(expected, rel=0.01)


def test_the_tools_of_the_learning_path_work_on_a_dump_and_on_timelines(run: RunDirectory, tmp_path: Path) -> None:
    def tool(name: str, *words: str | Path) -> tuple[int, str, str]:
        # In this process a tool would end it, or not: that depends on the threads that are there.
        command = [sys.executable, str(TOOLS / f"{name}.py"), *map(str, words)]
        done = subprocess.run(command, capture_output=True, text=True, cwd="/", check=False)
        return done.returncode, done.stdout, done.stderr

    dump = next(run.path.glob("*/*.etdump"))
    for name in ("etdump_to_csv", "etdump_to_ops_json", "categorize_operators", "analyze_transpose_patterns"):
        assert tool(name, dump, "--output", tmp_path / name)[0] == 0
        assert (tmp_path / name).stat().st_size > 100
        code, _, said = tool(name, tmp_path / "no.etdump")
        assert code == 2 and "fix:" in said
    assert set(json.loads(tool("robust_latency_analysis", run.path)[1])) == set(run.manifest().experiments)
    timelines = sorted(run.path.glob("*/*_all_runs_timeline.csv"))
    names = ("--name1", "SME2-Off", "--name2", "SME2-On", "--output-dir", tmp_path / "out", "--verbose")
    code, said, _ = tool("analyze_etdump_csv", "--timeline-csv", timelines[0], "--compare", timelines[-1], *names)
    assert code == 0 and "SME2-Off" in said
    assert {path.name for path in (tmp_path / "out").iterdir()} == {
        "SME2-Off_ops_stats.csv", "SME2-On_ops_stats.csv", "operator_analysis.json", "operator_comparison.csv",
    }  # fmt: skip
