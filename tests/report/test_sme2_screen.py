"""The first screen of any run says what SME2 does for the model, or would do, and what it does not know."""

import re
from pathlib import Path

import msgspec
import pytest
import torch
from torch import Tensor, nn

pytest.importorskip("executorch.exir")

import sme2_kit
from model_profiling.analysis.sme2.target import targets
from model_profiling.report import html, markdown
from model_profiling.report.content import whole as content
from model_profiling.store.run_directory import Manifest
from sme2_kit import Run
from tests.conftest import kit
from tests.helpers.run_forge import forge_run
from tests.helpers.screens import whole_text


class Mixture(nn.Module):  # type: ignore[misc]
    """A convolution and a layer with SME2 kernels, one of each kind that has none in fp16."""

    def __init__(self) -> None:
        super().__init__()
        self.stem = nn.Conv2d(3, 16, 3, padding=1)
        self.depthwise = nn.Conv2d(16, 16, 3, padding=1, groups=16)
        self.point = nn.Conv2d(16, 16, 1)
        self.up = nn.ConvTranspose2d(16, 8, 2, stride=2)
        self.head = nn.Linear(8, 4)

    def forward(self, x: Tensor) -> Tensor:
        return self.head(self.up(self.point(self.depthwise(self.stem(x)).relu())).mean((2, 3)))


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> Run:
    home = tmp_path_factory.mktemp("mixture")
    made = sme2_kit.export(Mixture().eval(), torch.randn(1, 3, 16, 16), dtype="fp16", out=home, name="mixture")
    return sme2_kit.run(made, runs=10, launches=1, out=home / "run")


def screens(run: Run) -> list[str]:
    report = content.report(run)
    page = html.run_page(run, report, {})
    rendered = (whole_text(run), re.sub(r"[\\`]", "", markdown.render(report, {})), page)
    return [" ".join(text.split()) for text in rendered]


def test_every_format_has_coverage_prediction_and_what_gets_no_kernel(run: Run) -> None:
    (answer,) = run.sme2
    assert (answer.eligible, answer.on_sme2, answer.not_known, answer.evidence) == (5, 2, 0, "table")
    assert answer.work and answer.work_on_sme2 and answer.forecast is not None
    assert {(group.operators, group.change) for group in answer.without} == {
        (1, ""),
        (1, "--dtype fp32 or int8"),
        (1, "--dtype int8"),
    }
    for screen in screens(run):
        place = screen.index("SME2")
        for words in ("2 of 5", "CONV and GEMM operators", "depthwise", "--dtype int8 has one"):
            assert words in screen[place:]
    (kept,) = run.full_summary.sme2
    assert kept.without == answer.without and kept.forecast is not None
    assert kept.forecast.operators == answer.forecast.operators[:20]


def test_a_prediction_is_of_each_operators_own_dtype_and_adds_up(run: Run) -> None:
    (answer,) = run.sme2
    forecast = answer.forecast
    assert forecast is not None and {entry.why.partition(":")[0] for entry in forecast.operators} == {"fp16"}
    now = sum(entry.ms for entry in forecast.operators) + sum(entry.ms for entry in forecast.left)
    assert now == pytest.approx(forecast.now.execute_ms, rel=1e-6)


def forged(run: Run, home: Path, executorch: str = "", sme2: bool = False) -> Run:
    def change(manifest: Manifest) -> None:
        pairs = list(manifest.experiments.items())
        for name, record in pairs:
            off = bool(record.disable_features)
            assert record.features is not None
            active = [*record.features.active, *([] if off else ["sme", "sme2"])] if sme2 else record.features.active
            manifest.experiments[name] = msgspec.structs.replace(
                record,
                runner=msgspec.structs.replace(record.runner, executorch=executorch or record.runner.executorch),
                features=msgspec.structs.replace(record.features, active=active),
                disable_features=["sme2", "sme"] if sme2 and off else record.disable_features,
            )

    return Run.open(forge_run(run.path, home / "forged", change=change, launches=4))


def test_under_another_executorch_nothing_is_known_and_the_command_that_changes_that_is_said(
    run: Run, tmp_path: Path
) -> None:
    other = forged(run, tmp_path, executorch="9.9.9")
    (answer,) = other.sme2
    assert answer.on_sme2 is None and answer.forecast is None and {g.level for g in answer.without} == {"unknown"}
    for screen in screens(other):
        assert "not known" in screen and "sme2-kit kernels --make-table" in screen


def test_on_a_cpu_with_sme2_the_measurement_stands_beside_the_prediction(run: Run, tmp_path: Path) -> None:
    if len(run.manifest.experiments) < 2:
        pytest.skip("hardware: something that can be switched off")
    there = forged(run, tmp_path, sme2=True)
    (answer,) = there.sme2
    assert answer.measured is not None and answer.forecast is not None
    assert answer.measured.after != answer.experiment == answer.measured.before
    assert answer.measured.ratio == there.metrics.comparisons[0].ratio
    shown = [" ".join(re.sub(r"<[^>]+>|[*]", " ", screen).split()) for screen in screens(there)]
    assert all(re.search(r", measured \(", screen) for screen in shown)


@pytest.mark.wide
def test_a_forecast_takes_a_run_a_program_or_a_model_and_every_target(run: Run, tmp_path: Path) -> None:
    assert run.program is not None
    shown = kit("forecast", run.path, "--target", "all")
    assert shown.returncode == 0, shown.stderr
    assert all(f"\n  {name} " in shown.stdout for name in targets())
    for thing in (run.program, "toy_cnn"):
        shown = kit("forecast", thing, cwd=tmp_path)
        assert shown.returncode == 0 and "a prediction, not a measurement" in shown.stdout, shown.stderr
        assert "table of known kernels" in shown.stdout
