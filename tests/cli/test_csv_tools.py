"""The tools of the learning path take CSV where they take ETDumps and logs, and say the same of both."""

import json
from pathlib import Path

import msgspec
import pytest

from model_profiling.cli.tools import main
from model_profiling.report.words import busy_sentence, comparison_sentence, merge_sentences
from model_profiling.store.run_directory import Manifest
from sme2_kit import Run
from tests.conftest import ROOT
from tests.helpers.run_forge import forge_run
from tests.helpers.run_use import command

KNOWN_GOOD = ROOT / "tests" / "data" / "known_good_run"
OFF, ON = (next((KNOWN_GOOD / f"linux_fp16arith_{side}").glob("*.etdump")) for side in ("off", "on"))
LOG = """
Using gemm microkernel 'xnn_f16_gemm_minmax_ukernel_6x16__asm_aarch64_neonfp16arith_ld64'
Using igemm microkernel 'xnn_pf16_igemm_ukernel_32x32__neonsme2'
Using igemm microkernel 'xnn_pf16_igemm_ukernel_32x32__neonsme2'
"""


@pytest.fixture(scope="module")
def timelines(tmp_path_factory: pytest.TempPathFactory) -> list[Path]:
    home = tmp_path_factory.mktemp("timelines")
    made = [home / f"{side}_all_runs_timeline.csv" for side in ("off", "on")]
    for dump, csv in zip((OFF, ON), made, strict=True):
        assert main("etdump_to_csv", [str(dump), "--output", str(csv)]) == 0
    return made


@pytest.mark.parametrize("tool", ["etdump_to_ops_json", "categorize_operators", "analyze_transpose_patterns"])
@pytest.mark.parametrize("flag", [[], ["--timeline-csv"]])
def test_a_tool_says_the_same_of_a_dump_and_of_its_timeline(
    tool: str, flag: list[str], timelines: list[Path], capsys: pytest.CaptureFixture[str]
) -> None:
    said = []
    for arguments in ([str(ON)], [*flag, str(timelines[1])]):
        assert main(tool, arguments) == 0
        said.append(json.loads(capsys.readouterr().out))
    names = [sorted(o["operator"] for o in operators) for operators in map(_operators, said)]
    assert names[0] == names[1]
    if tool == "categorize_operators":
        shares = [{c["category"]: round(c["ms"], 3) for c in one["categories"]} for one in said]
        assert shares[0] == pytest.approx(shares[1], abs=0.01)


def _operators(said: dict[str, object]) -> list[dict[str, str]]:
    found = said.get("operators", [])
    groups = found.values() if isinstance(found, dict) else [found]
    return [operator for group in groups if isinstance(group, list) for operator in group if "operator" in operator]


def test_latency_of_timelines_is_told_to_be_of_traced_executions(
    timelines: list[Path], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    off, on = map(str, timelines)
    flags = ["--timeline-csv", off, "--compare", on, "--name1", "SME2-Off", "--name2", "SME2-On", "--verbose"]
    assert main("robust_latency_analysis", [*flags, "--output-dir", str(tmp_path)]) == 0
    assert "SME2-On is" in capsys.readouterr().out
    said = json.loads((tmp_path / "SME2-Off_robust_stats.json").read_text())
    assert said["SME2-Off"]["latency_source"] == "traced executions"
    ratio = said["SME2-Off"]["latency"]["median_ms"] / said["SME2-On"]["latency"]["median_ms"]
    assert said["comparison"]["ratio"] == pytest.approx(ratio, rel=0.01) and ratio > 1.5
    assert main("robust_latency_analysis", [on]) == 0
    assert json.loads(capsys.readouterr().out)["A"]["latency"]["runs"] > 1
    (tmp_path / "other.csv").write_text("a,b\n1,2\n")
    assert main("robust_latency_analysis", [str(tmp_path / "other.csv")]) == 2


def test_kernels_of_a_log_go_to_a_csv_and_from_it_into_the_view(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "on.log").write_text(LOG)
    (tmp_path / "off.log").write_text(LOG.splitlines()[1])
    for side in ("on", "off"):
        paths = ["--xnntrace", str(tmp_path / f"{side}.log"), "--out", str(tmp_path / f"{side}.csv")]
        assert main("xnntrace_to_kernels", paths) == 0
    assert (tmp_path / "on.csv").read_text().startswith("kernel,purpose,instructions,count\n")
    views = []
    for ending in ("csv", "log"):
        sides = ["--sme2-on", str(tmp_path / f"on.{ending}"), "--sme2-off", str(tmp_path / f"off.{ending}")]
        assert main("generate_kernel_view", sides) == 0
        views.append(capsys.readouterr().out)
    assert views[0] == views[1] and "| SME2 on | SME2 off |" in views[0] and "neonsme2" in views[0]
    (tmp_path / "bad.csv").write_text("kernel\nx\n")
    assert main("generate_kernel_view", [str(tmp_path / "bad.csv")]) == 2


def test_failures_stand_as_they_are(tmp_path: Path) -> None:
    signals = {"a": "signal 9 (see /data/run1/t7.log)", "b": "signal 11 (see /data/run2/t8.log)"}
    said = [*signals.items(), ("c", signals["a"])]
    assert merge_sentences(said) == [("a, c", signals["a"]), ("b", signals["b"])]

    def fail(manifest: Manifest) -> None:
        for name, why in zip(list(manifest.experiments)[2:], signals.values(), strict=True):
            record = manifest.experiments[name]
            manifest.experiments[name] = msgspec.structs.replace(record, status="failed", failure=why, notes=[why])

    home = forge_run(KNOWN_GOOD, tmp_path / "run", change=fail, copies=2)
    shown = " ".join(command("analyze", home).split())
    for side, why in zip(("on", "off"), signals.values(), strict=True):
        assert shown.count(f"linux_fp16arith_{side}_2 failed: {why}") == 1, shown


def test_a_busy_machine_is_said_once_for_all_experiments() -> None:
    said = [(f"run_{n}", f"executions vary by {n + 6} % (MAD): the machine is busy") for n in range(3)]
    assert merge_sentences([*said, ("run_0", "latency drifted by +3.5 %")], ranges=True) == [
        ("run_0, run_1, run_2", "executions vary by 6 to 8 % (MAD): the machine is busy"),
        ("run_0", "latency drifted by +3.5 %"),
    ]
    (comparison,) = Run.open(KNOWN_GOOD).metrics.comparisons
    busy = msgspec.structs.replace(comparison, contended=True)
    assert "machine was busy" in comparison_sentence(busy) and "busy" not in comparison_sentence(busy, busy=False)
    assert busy_sentence([comparison]) == "" and busy_sentence([busy, busy]).count("busy") == 1
    assert comparison.after in busy_sentence([busy, comparison])
