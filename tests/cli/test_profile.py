"""From a file to a report in one command, and what stood in the way: inputs, settings, places, names."""

import json
import re
import shlex
import shutil
from pathlib import Path
from typing import Any

import hypothesis.strategies as st
import numpy as np
import pytest
from hypothesis import given

from model_profiling.analysis.sme2.whatif import predict
from model_profiling.api.auto_beside import shared_counts
from model_profiling.base import files
from model_profiling.base.errors import InputError, SetupError
from model_profiling.cli.main import main
from model_profiling.models.options import InputSpec, input_spec, literal_text, name_suffix, setting, settings_of
from model_profiling.pipeline.config import parse_config
from model_profiling.pipeline.defaults import default_output_root
from model_profiling.pipeline.schedule import Counts, default_budget_s
from model_profiling.store.artifacts import ExportPaths
from model_profiling.store.runs import resolve
from sme2_kit import Run
from tests.conftest import ROOT, kit
from tests.helpers.contract_check import check_printed
from tests.helpers.kit_here import kit_here

KNOWN_GOOD = ROOT / "tests" / "data" / "known_good_run"
TINY = ROOT / "tests" / "data" / "fuzz_seeds" / "tiny_xnnpack_fp32.pte"
NETWORK = """
import torch
from torch import nn


class Tagger(nn.Module):
    def __init__(self, vocabulary, widths, *, bias=True, act="relu"):
        super().__init__()
        self.embed = nn.Embedding(vocabulary, widths[0])
        self.layers = nn.ModuleList(nn.Linear(a, b, bias=bias) for a, b in zip(widths, widths[1:]))
        self.act = getattr(torch, act)

    def forward(self, ids, mask, scale):
        x = self.embed(ids)
        for layer in self.layers:
            x = self.act(layer(x))
        x = torch.where(mask[..., None], x, -x)
        return torch.cumsum(x * scale, 1)  # portable


class Pooled(nn.Module):
    def __init__(self):
        super().__init__()
        self.conv, self.head = nn.Conv2d(3, 16, 3), nn.Linear(16, 4)

    def forward(self, x):
        return self.head(self.conv(x).mean((2, 3)))


class Broken(nn.Module):
    def forward(self, x):
        return x[:, : int(x.sum().item())]
"""
FLAGS = (
    *("--set", "vocabulary=50", "--set", "widths=[8, 8]", "--set", "bias=False", "--set", "act=tanh"),
    *("--input", "int64:1,6:10..50", "--input", "bool:1,6", "--input-shape", "1,6,1", "--dtype", "fp32"),
)
QUICK = ("--runs", "6", "--launches", "2")


def line_of(text: str) -> int:
    return NETWORK[: NETWORK.index(text)].count("\n") + 1


@pytest.fixture(scope="module")
def profiled(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Any]:
    """A class with arguments, integer and boolean inputs, from its file to a page."""
    home = tmp_path_factory.mktemp("profiled")
    (home / "net.py").write_text(NETWORK)
    done = kit(
        "profile", "net.py:Tagger", *FLAGS, *QUICK, "--html", "--outdir", "results", "--label", "first", cwd=home
    )
    assert done.returncode == 0, done.stderr
    return home, done


def test_one_command_leads_from_a_file_to_a_report_and_says_what_is_next(profiled: tuple[Path, Any]) -> None:
    home, done = profiled
    run = resolve(home / "results")
    for name in ("report.md", "report.html", "analysis_summary.json", "manifest.json"):
        assert (run / name).is_file()
    assert re.search(r"^Report +results/runs/\w+/report\.html\n", done.stdout, re.MULTILINE)
    # What stayed portable, with file and line.
    assert re.search(rf"cumsum\.out \(portable\).*net\.py:{line_of('torch.cumsum')}", (run / "report.md").read_text())
    label, program = done.stdout.splitlines()[-1].split()[:2]
    assert label == "Next" and Path(program).name == "sme2-kit"
    # Stages of the export are said, although torch's own words are not.
    assert "export: lower to the backend" in done.stderr


def test_inputs_are_of_the_dtypes_and_ranges_asked_for(profiled: tuple[Path, Any]) -> None:
    (inputs,) = (profiled[0] / "results" / "artifacts").glob("*_fp32_inputs")
    ids, mask, scale = (np.load(inputs / f"input_{number}.npy") for number in range(3))
    assert (ids.dtype, ids.shape) == (np.int64, (1, 6)) and ids.min() >= 10 and ids.max() < 50
    assert (mask.dtype, mask.shape, scale.dtype, scale.shape) == (bool, (1, 6), np.float32, (1, 6, 1))


def test_the_report_repeats_the_one_command_and_the_record_the_export(profiled: tuple[Path, Any]) -> None:
    from model_profiling.export.request import repeated

    home, _ = profiled
    exports = json.loads((home / "results" / "artifacts" / "export_meta.json").read_text())["exports"]
    (meta,) = [record for stem, record in exports.items() if not stem.endswith("_auto")]
    assert meta["request"]["inputs"] == ["int64:1,6:10..50", "bool:1,6", "1,6,1"]
    run = Run.open(resolve(home / "results"))
    text = (run.path / "report.md").read_text()
    named = re.findall(r"`(?:\w+=\S+ )*sme2-kit (\w+)", text)
    assert "profile" in named and "export" not in named
    assert run.manifest.model.export is not None
    words = repeated(run.manifest.model.export, str(home))
    assert words is not None
    again = kit(*words[1:], cwd=home)
    assert "reused the existing export" in again.stderr, again.stderr


def test_the_same_command_again_measures_nothing_and_gives_json(profiled: tuple[Path, Any]) -> None:
    home, _ = profiled
    done = kit(
        "profile", "net.py:Tagger", *FLAGS, *QUICK, "--outdir", "results", "--label", "first", "--json", cwd=home
    )
    said = json.loads(done.stdout)
    assert done.returncode == 0 and "reused existing results" in done.stderr
    assert set(said) == {"paths", "export", "summary", "auto", "next"} and said["summary"]["kind"] == "analysis_summary"
    assert all((home / path).exists() for path in [said["paths"]["run"], *said["paths"]["report"]])
    (pte,) = (home / "results" / "artifacts").glob("*_fp32.pte")
    refused = kit_here("profile", pte, "--dtype", "fp16", "--set", "a=1", "--json", cwd=home)
    assert refused.returncode == 2
    assert "--set, --dtype cannot change it" in json.loads(refused.stdout)["error"]["message"]
    direct = kit("profile", pte, *QUICK, "--quiet", "--outdir", "direct", cwd=home)
    assert direct.returncode == 0 and list(home.glob("direct/runs/*/report.md")), direct.stderr


POOLED = ("profile", "net.py:Pooled", "--input", "1,3,12,12", "--dtype", "fp32", *QUICK, "--no-html", "--out", "pooled")


def test_the_program_with_rewrites_is_measured_beside_the_one_without(tmp_path: Path) -> None:
    (tmp_path / "net.py").write_text(NETWORK)
    done = kit(*POOLED, cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    run = Run.open(resolve(tmp_path / "pooled"))
    found = run.auto
    assert found is not None and not found.reason and found.outputs_agree is True
    assert [(choice.name, choice.applied) for choice in found.choices] == [("keepdim", True)]
    (pair,) = found.pairs
    stock, auto = (f"{run.manifest.model.stem}{suffix}" for suffix in ("", "_auto"))
    assert (pair.latency.before, pair.latency.after) == (stock, auto) and pair.latency.paired
    assert (tmp_path / found.pte).name == f"{auto}.pte" and (tmp_path / found.pte).is_file()
    # By line, as `compare` says it: the mean is delegated now.
    assert pair.changes is not None
    assert any(part.source_line.endswith(f":{line_of('.mean')}") for part in pair.changes.parts)
    report = (run.path / "report.md").read_text()
    for text in (done.stdout, report):
        assert re.search(r"--rewrite auto\W+((about )?\d+\.\d\dx|no difference)", text)
    assert kit("report", run.path, "--html", cwd=tmp_path).returncode == 0
    assert "keepdim: saves 1 operator outside delegates" in (run.path / "report.html").read_text()
    kept = (run.path / "auto_comparison.json").stat().st_mtime_ns
    again = kit(*POOLED, "--json", cwd=tmp_path)
    assert again.returncode == 0 and (run.path / "auto_comparison.json").stat().st_mtime_ns == kept
    check_printed("auto_comparison", json.loads(again.stdout)["auto"])


def test_what_was_left_out_is_said_in_one_line(profiled: tuple[Path, Any]) -> None:
    home, done = profiled
    found = Run.open(resolve(home / "results")).auto
    assert found is not None and not found.pairs and [choice.applied for choice in found.choices] == [False]
    assert "--rewrite auto leaves the program as it is" in re.sub(r"[`\s]+", " ", done.stdout)


@pytest.mark.wide
def test_who_wants_no_rewrites_measures_none_and_who_needs_none_is_told(tmp_path: Path) -> None:
    source = "from torch import nn\n\n\ndef plain():\n    return nn.Sequential(nn.Linear(8, 8), nn.ReLU())\n"
    (tmp_path / "net.py").write_text(source)
    asked = ("profile", "net.py:plain", "--input", "4,8", "--dtype", "fp32", *QUICK, "--no-html", "--json")
    told = kit(*asked, "--out", "told", cwd=tmp_path)
    assert told.returncode == 0, told.stderr
    assert "nothing to change" in json.loads(told.stdout)["auto"]["reason"]
    for flags in (["--rewrite", "none"], ["--rewrite", "layout"]):
        done = kit(*asked, *flags, "--out", "none", cwd=tmp_path)
        assert done.returncode == 0 and "auto" not in json.loads(done.stdout), done.stderr
    assert not list(tmp_path.glob("*/artifacts/*_auto.pte"))


@given(st.one_of(st.none(), st.floats(0.1, 1e4)))
def test_a_budget_is_for_both_measurements(budget: float | None) -> None:
    own, pair = shared_counts(Counts(budget_s=budget))
    assert pair.budget_s is not None and pair.budget_s > 0
    if budget is None:
        assert own.budget_s is None and pair.budget_s <= 0.6 * default_budget_s()
    else:
        assert own.budget_s is not None and own.budget_s + pair.budget_s == pytest.approx(budget)


@pytest.mark.parametrize(("number", "said"), [(0, "0 delegate calls"), (1, "1 delegate call"), (2, "2 delegate calls")])
def test_one_of_a_thing_is_one(number: int, said: str) -> None:
    from model_profiling.cli.export import delegation_lines
    from model_profiling.store.artifacts import Delegation, UndelegatedOperator

    left = UndelegatedOperator("aten.x", number, "no", [f"net.py:{place}" for place in range(number + 2)])
    delegated, portable, *_, out = delegation_lines(Delegation(number, number, number, [left]))
    noun = "operator" if number == 1 else "operators"
    assert delegated == f"  delegated: {number} {noun} in {said}" and portable == f"  portable:  {number} {noun}"
    more = {0: ")", 1: " and 1 more place)", 2: " and 2 more places)"}[number]
    assert out.endswith(f"(at net.py:0, net.py:1{more}")


def test_export_ends_with_the_command_that_goes_on(profiled: tuple[Path, Any]) -> None:
    home, _ = profiled
    done = kit("export", "net.py:Tagger", *FLAGS, "--outdir", "results/artifacts", cwd=home)
    assert re.search(rf"cumsum.*\(at net\.py:{line_of('torch.cumsum')}\)", done.stdout), done
    last = shlex.split(done.stdout.splitlines()[-1])
    assert [last[0], Path(last[1]).name, last[2]] == ["Next", "sme2-kit", "run"] and (home / last[3]).is_file()


def test_a_check_that_fails_leaves_nothing_and_does_not_speak_of_an_export(tmp_path: Path) -> None:
    (tmp_path / "net.py").write_text(NETWORK)
    done = kit("check", "net.py:Broken", "--input-shape", "1,4", "--dtype", "fp32", cwd=tmp_path)
    assert done.returncode == 4 and "error: check failed while trying to" in done.stderr
    assert "export failed" not in done.stderr and f"net.py:{line_of('x[:, : int')}" in done.stderr
    assert [path.name for path in tmp_path.iterdir()] == ["net.py"]


@pytest.mark.parametrize(
    ("flags", "said", "fix"),
    [
        (["--set", "vocabulary=50"], "cannot be called with vocabulary alone", "--set widths=VALUE"),
        ([], "cannot be called without arguments", "--set vocabulary=VALUE --set widths=VALUE"),
        (["--set", "vocab=1"], "no setting called 'vocab'", "It takes: vocabulary, widths, bias, act."),
        ([*FLAGS[:4], "--input", "int64:1,6:0..999", *FLAGS[10:]], "an index outside its table", "--input int64:"),
    ],
)
def test_what_does_not_fit_is_said_with_what_would(flags: list[str], said: str, fix: str, tmp_path: Path) -> None:
    (tmp_path / "net.py").write_text(NETWORK)
    done = kit("check", "net.py:Tagger", *flags, cwd=tmp_path)
    assert done.returncode != 0 and said in done.stderr and fix in done.stderr, done.stderr


@pytest.mark.parametrize(
    ("text", "spec"),
    [
        ("1,3,224,224", InputSpec((1, 3, 224, 224))),
        ("1x3", InputSpec((1, 3))),
        ("int64:1,128", InputSpec((1, 128), "int64")),
        ("int64:1,128:0..30522", InputSpec((1, 128), "int64", 0, 30522)),
        ("int32:4:-5..5", InputSpec((4,), "int32", -5, 5)),
        ("float32:2:0..1", InputSpec((2,), "float32", 0.0, 1.0)),
        ("bool:7", InputSpec((7,), "bool")),
        ("int64:()", InputSpec((), "int64")),
    ],
)
def test_an_input_is_read_and_spelled_the_same(text: str, spec: InputSpec) -> None:
    assert input_spec(text) == spec and input_spec(str(spec)) == spec


@pytest.mark.parametrize(
    "text",
    [
        *("", "0,3", "1,-1", "a,b", "int64", "int65:1", "int64:1:", "int64:1:5..5", "int64:1:9..5", "int64:1:0.5..3"),
        *("bool:1:0..2", "uint8:1:0..999", "int8:1:-129..1", "float32:1:0..inf", "float32:1:nan..1", "int64:1:0..1:2"),
    ],
)
def test_an_input_that_is_none_is_refused_with_an_example(text: str) -> None:
    with pytest.raises(InputError) as caught:
        input_spec(text)
    assert caught.value.hint


def test_settings_are_python_literals_or_text() -> None:
    texts = ["a=512", "b=0.5", "c=True", "d=false", "e=None", "f=[1, 2]", "g=relu", "h='512'", "i=1,2", "j=a/b c"]
    values = [512, 0.5, True, False, None, [1, 2], "relu", "512", (1, 2), "a/b c"]
    assert list(settings_of(texts).values()) == values
    for value in values:
        assert setting(literal_text(value) or "") == value
    assert name_suffix([("resolution", 512)]) == "_resolution512"
    long = name_suffix([("widths", list(range(200)))])
    assert len(long) < 120 and "/" not in name_suffix([("path", "a/b")])
    for text in ("a", "a=", "1=2", "=3", "a=\n"):
        with pytest.raises(InputError, match="is not KEY=VALUE"):
            settings_of([text])


@pytest.mark.parametrize("command", ["export", "profile", "tune"])
def test_a_place_that_cannot_be_written_is_found_before_the_export(command: str, tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    done = kit_here(command, "toy_cnn", "--outdir", "file/deep/er", cwd=tmp_path)
    assert done.returncode == 3 and re.search("file/deep/er/.* cannot be written: Not a directory", done.stderr)
    assert "import torch" not in done.stderr
    assert [path.name for path in tmp_path.iterdir()] == ["file"]
    files.refuse_unwritable(tmp_path / "new" / "place")
    assert not (tmp_path / "new").exists()
    with pytest.raises(SetupError):
        files.refuse_unwritable(Path("/proc/self/nowhere"))


@pytest.mark.parametrize(
    "name", ["net_xnnpack_fp16", "net_portable_int8-dynamic", "net", "a_net_xnnpack_int4", "net_xnnpack_int4-channel"]
)
def test_a_run_goes_where_the_readme_says(name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    model = name.split("_xnnpack")[0].split("_portable")[0]
    elsewhere = ExportPaths(tmp_path / "downloads" / f"{name}.pte")
    assert default_output_root(elsewhere, "linux") == Path(f"out_{model}/runs/linux")
    ours = ExportPaths(tmp_path / f"out_{model}" / "artifacts" / f"{name}.pte")
    assert default_output_root(ours, "linux") == tmp_path / f"out_{model}" / "runs" / "linux"
    # Another model's run that is there already is not put aside.
    shutil.copytree(KNOWN_GOOD, tmp_path / f"out_{model}" / "runs" / "linux")
    elsewhere.directory.mkdir()
    shutil.copy(TINY, elsewhere.pte)
    # What its name says of its dtype counts for nothing.
    assert default_output_root(elsewhere, "linux") == Path(f"out_{model}/runs/linux-fp32")


def test_a_models_directory_stands_for_the_one_run_below_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    run = shutil.copytree(KNOWN_GOOD, tmp_path / "out_net" / "runs" / "linux")
    (tmp_path / "out_net" / "artifacts").mkdir()
    label = json.loads((run / "manifest.json").read_text())["created"][:10]
    for place in ("out_net", "out_net/", "out_net/runs"):
        assert resolve(place).resolve() == run
        assert main(["analyze", place]) == 0 and "Where the time goes" in capsys.readouterr().out
    assert resolve("out_net@latest").resolve() == run
    assert main(["runs", "out_net", "--json"]) == 0
    assert [entry["directory"] for entry in json.loads(capsys.readouterr().out)] == ["out_net/runs/linux"]
    assert resolve("out_net:linux_fp16arith_on") == Path("out_net/runs/linux:linux_fp16arith_on")
    assert main(["compare", "out_net:linux_fp16arith_off", "out_net:linux_fp16arith_on"]) == 0
    shutil.copytree(KNOWN_GOOD, tmp_path / "out_net" / "runs" / "emulator")
    with pytest.raises(InputError, match="holds 2 runs") as caught:
        resolve("out_net")
    assert "out_net/runs/emulator" in caught.value.hint and label
    assert resolve("out_net/artifacts") == Path("out_net/artifacts")
    # A link that leads out of the directory is not followed.
    (tmp_path / "here").mkdir()
    (tmp_path / "here" / "link").symlink_to(run)
    assert resolve("here") == Path("here")


@pytest.mark.parametrize("name", ["conv", "CONV", "Conv", " conv", "data movement"])
def test_what_if_ignores_case(name: str) -> None:
    breakdown = Run.open(KNOWN_GOOD).summary.experiments["linux_fp16arith_on"].breakdown
    known = next(c.category for c in breakdown.categories if c.category.lower() == name.strip().lower())
    assert predict(breakdown, {name: 3.0}) == predict(breakdown, {known: 3.0})
    with pytest.raises(InputError, match="neither a category nor an operator"):
        predict(breakdown, {"convolutions": 3.0})


def test_relative_runners_are_looked_up_in_the_executorch_clone(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "m.pte").write_bytes(b"")
    runner = tmp_path / "src" / "et" / "cmake-out" / "sme2-on" / "executor_runner"
    runner.parent.mkdir(parents=True)
    runner.write_bytes(b"")

    def config(path: str) -> str | None:
        experiment = {"name": "on", "runner_path": path}
        raw = {"model": "m.pte", "output_root": "out", "experiments": [experiment]}
        return parse_config(raw, "test").experiments[0].runner_path

    named = ("executorch/cmake-out/sme2-on/executor_runner", "cmake-out/sme2-on/executor_runner")
    for path in named:
        with pytest.raises(InputError, match="does not exist") as caught:
            config(path)
        assert "EXECUTORCH_REPO" in caught.value.hint
    monkeypatch.setenv("EXECUTORCH_REPO", str(tmp_path / "src" / "et"))
    assert [config(path) for path in named] == [str(runner)] * 2
    assert config(str(runner)) == str(runner)
    # What is here comes first.
    here = tmp_path / named[0]
    here.parent.mkdir(parents=True)
    here.write_bytes(b"")
    assert config(named[0]) == named[0]
    with pytest.raises(InputError, match=r"nor in .*EXECUTORCH_REPO"):
        config("cmake-out/other/executor_runner")
